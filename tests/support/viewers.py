"""What viewers of notebooks show of an output: which of its MIME types, and what their sanitizers
leave of HTML. Their rules are data here, as their makers publish them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

WIDGET = "application/vnd.jupyter.widget-view+json"
VOID = {"br", "hr", "img", "wbr"}

_TEXT = {"b", "bdo", "br", "cite", "code", "del", "dfn", "em", "i", "ins", "kbd", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "var", "wbr"}  # fmt: skip
_BLOCKS = {
    "blockquote",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "summary",
    "ul",
}
_TABLES = {"caption", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
_GITHUB_EVERYWHERE = {
    "abbr",
    "align",
    "alt",
    "aria-describedby",
    "aria-hidden",
    "aria-label",
    "aria-labelledby",
    "border",
    "cellpadding",
    "cellspacing",
    "colspan",
    "dir",
    "headers",
    "height",
    "id",
    "lang",
    "name",
    "open",
    "role",
    "rowspan",
    "scope",
    "span",
    "start",
    "summary",
    "tabindex",
    "title",
    "type",
    "valign",
    "value",
    "width",
}


@dataclass(frozen=True)
class Sanitizer:
    """Rules by which a viewer cleans HTML.

    Parameters
    ----------
    elements : set of str
        Those that stay; of any other only the content stays.
    attributes : dict
        Names of attributes that stay, by element; "*" of all elements.
    schemes : set of str
        What an address of a picture may begin with.
    without_content : set of str
        Elements that go with all that is in them.
    """

    elements: set[str]
    attributes: Mapping[str, set[str]]
    schemes: set[str]
    without_content: set[str] = field(default_factory=lambda: {"script", "style"})

    def clean(self, html: str) -> str:
        """What is left of HTML."""
        cleaner = _Cleaner(self)
        cleaner.feed(html)
        cleaner.close()
        return "".join(cleaner.left)


class _Cleaner(HTMLParser):
    def __init__(self, rules: Sanitizer) -> None:
        super().__init__()
        self.rules, self.left, self.inside = rules, [], 0

    def handle_starttag(self, tag, attrs):
        if tag in self.rules.without_content:
            self.inside += 1
        if self.inside or tag not in self.rules.elements:
            return
        allowed = self.rules.attributes.get(tag, set()) | self.rules.attributes["*"]
        text = ""
        for name, value in attrs:
            address = name == "src" and urlsplit(value or "").scheme not in self.rules.schemes
            if name in allowed and not address:
                text += f' {name}="{escape(value or "")}"'
        self.left.append(f"<{tag}{text}>")

    def handle_endtag(self, tag):
        if tag in self.rules.without_content:
            self.inside -= 1
        elif not self.inside and tag in self.rules.elements - VOID:
            self.left.append(f"</{tag}>")

    def handle_data(self, data):
        if not self.inside:
            self.left.append(escape(data))


@dataclass(frozen=True)
class Viewer:
    """A viewer of notebooks.

    Parameters
    ----------
    order : tuple of str
        The MIME types that it draws, the preferred first.
    source : str
        Where its makers publish that.
    sanitizer : Sanitizer or None
        What cleans its HTML; None where HTML stays as it is, and its scripts run.
    """

    order: tuple[str, ...]
    source: str
    sanitizer: Sanitizer | None = None

    def choose(self, data: Mapping[str, Any]) -> str:
        """The MIME type that it shows of an output."""
        return next(mime for mime in self.order if mime in data)


_STRICT = Sanitizer(
    elements={*_TEXT, *_BLOCKS, *_TABLES, "a", "abbr", "figcaption", "figure", "img", "mark"},
    attributes={"*": _GITHUB_EVERYWHERE, "img": {"src", "longdesc"}, "a": {"href"}},
    schemes={"", "http", "https"},
)

GITHUB = Viewer(
    ("text/html", "image/png", "image/jpeg", "text/plain"),
    "the list of html-pipeline, which removes styles, classes, scripts and data: addresses",
    _STRICT,
)
GITLAB = Viewer(
    ("image/png", "image/jpeg", "text/html", "text/latex", "image/svg+xml", "text/markdown", "text/plain"),
    "app/assets/javascripts/notebook/cells/output/index.vue",
)  # fmt: skip
GITEA = Viewer(
    ("image/png", "image/jpeg", "image/svg+xml", "text/html", "text/latex", "text/plain"),
    "modules/markup/jupyter/jupyter.go",
)
_VSCODE_ORDER = (
    "text/html", "application/javascript", "image/gif", "text/latex", "text/markdown",
    "image/png", "image/svg+xml", "image/jpeg", "application/json", "text/plain",
)  # fmt: skip
VSCODE = Viewer((WIDGET, *_VSCODE_ORDER), "vscode-jupyter: notebook.displayOrder")
VSCODE_REOPENED = Viewer(_VSCODE_ORDER, "the same, where the state of widgets is not saved")
VSCODE_RESTRICTED = Viewer(
    ("text/latex", "text/markdown", "image/png", "application/json", "text/plain"),
    "notebookCommon.ts: MIME types that are safe in a workspace that is not trusted",
)
