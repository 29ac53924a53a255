r"""Outputs for an export that sanitizes HTML, as JupyterLab 4.6 offers it.

nbconvert then keeps a few elements, drops every style, and shows all other markup as text: of a
dashboard, hundreds of kilobytes of its script. `static_outputs` is a preprocessor of nbconvert that
puts in its place what is allowed: the picture, and the static report in the allowed elements.
`nbprof.server` adds it to the exports of JupyterLab. On the command line:

    jupyter nbconvert --to html --HTMLExporter.sanitize_html=True \
      --HTMLExporter.preprocessors=nbprof.profiles.report.sanitized.static_outputs notebook.ipynb
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from html.parser import HTMLParser
from itertools import chain, zip_longest
from typing import Any

from nbprof.display import markup

NAME = f"{__name__}.static_outputs"
"""The preprocessor, as a configuration of nbconvert names it."""

_MARK = "data-nbprof-static"
_BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "details", "summary", "dl", "dt", "dd"})
"""Become `div`, unless they are allowed."""
_ALLOWED = frozenset(
    {"a", "b", "blockquote", "code", "div", "em", "i", "li", "ol", "pre", "span", "strong", "ul"}
)
_RENAMED = {"samp": "code"}
_BOLD = frozenset({"h1", "h2", "h3", "h4", "summary"})
_HEADING = "font-weight:600"
_HIDDEN = frozenset({"script", "style", "template"})
_DIFF_MARKS = {"del": "- ", "ins": "+ "}
"""Before lines of a diff that are removed and added."""


def static_outputs(notebook: Any, resources: Any) -> tuple[Any, Any]:
    """The notebook with outputs of nbprof that a sanitizer leaves as they are; the notebook itself
    if the export does not sanitize. A preprocessor of nbconvert.
    """
    if not resources.get("should_sanitize_html"):
        return notebook, resources
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(chain.from_iterable(map(_parts, cell.outputs)))
    return notebook, resources


def _parts(output: Any) -> list[Any]:
    """The picture and the text of an output of nbprof; any other output unchanged."""
    text = output.get("data", {}).get("text/html", "")
    if isinstance(text, list):
        text = "".join(text)
    if _MARK not in text:
        return [output]
    parts = []
    if "image/png" in output.data:
        parts.append(_with_data(output, "image/png", output.data["image/png"]))
    parts.append(_with_data(output, "text/html", allowed(text)))
    return parts


def _with_data(output: Any, kind: str, value: str) -> Any:
    part = output.copy()
    part["data"] = type(output.data)({kind: value})
    return part


def allowed(text: str) -> str:
    """The static report in the HTML of an output, in elements that nbconvert's sanitizer keeps."""
    rewriter = _Rewriter()
    rewriter.feed(text)
    rewriter.close()
    return rewriter.text


class _Rewriter(HTMLParser):
    """Writes what is within the marked element, with other elements for those not allowed.

    Without styles, a heading needs `b` and a line before it, lines of code need `pre`, and `br`
    becomes the end of its block. Tables become text: the sanitizer shows the `tbody`
    that its own parser adds.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._written: list[str] = []
        self._open: list[tuple[str, list[str]]] = []
        """Names of the open elements in the source, each with the elements written for it."""
        self._table: list[list[str]] | None = None
        """Rows of the table that is read, each with the texts of its cells."""
        self._hidden = 0
        self._depth = 0
        """Number of open elements when the marked one began; 0 outside of it."""

    @property
    def text(self) -> str:
        return "".join(self._written)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if self._table is not None:
            _begin_cell(self._table, tag)
            return
        if self._depth and tag == "table":
            self._table = []
            return
        if tag in {"br", "img", "hr", "col", "wbr", "input"}:
            if tag == "br" and self._depth:
                self._end_line()
            return
        elements: list[str] = []
        if self._depth:
            style = names.get("style") or ""
            if tag == "p" and markup.HEADING in style and self._written:
                self._written.append("<div>&nbsp;</div>")
            elements = _elements(tag, style)
            self._write(elements)
            self._written.append(_DIFF_MARKS.get(tag, ""))
        elif _MARK in names:
            self._depth = len(self._open) + 1
        self._hidden += tag in _HIDDEN
        self._open.append((tag, elements))

    def handle_endtag(self, tag: str) -> None:
        if self._table is not None:
            if tag == "table":
                self._written.append(
                    f"<pre><code>{escape(_aligned(self._table), quote=False)}</code></pre>"
                )
                self._table = None
            return
        if all(tag != name for name, _ in self._open):
            return
        while self._open:
            name, elements = self._open.pop()
            self._hidden -= name in _HIDDEN
            self._end(elements)
            if len(self._open) < self._depth:
                self._depth = 0
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._table is not None:
            if self._table and self._table[-1]:
                self._table[-1][-1] += data
        elif self._depth and not self._hidden:
            self._written.append(escape(data, quote=False))

    def _write(self, elements: list[str]) -> None:
        self._written += [f"<{element}>" for element in elements]

    def _end(self, elements: list[str]) -> None:
        self._written += [f"</{element}>" for element in reversed(elements)]

    def _end_line(self) -> None:
        """Ends the line: within `pre` by its character, elsewhere by another block."""
        elements = [element for _, names in self._open for element in names]
        if "pre" in elements:
            self._written.append("\n")
            return
        inline: list[str] = []
        while elements and elements[-1] not in {"div", "li"}:
            inline.insert(0, elements.pop())
        self._end(inline)
        if elements and elements[-1] == "div":
            self._written.append("</div><div>")
        else:
            self._written.append(" ")
        self._write(inline)


def _begin_cell(rows: list[list[str]], tag: str) -> None:
    """Adds a row or a cell if an element begins one; other elements only separate texts."""
    if tag == "tr":
        rows.append([])
    elif tag in {"td", "th"} and rows:
        rows[-1].append("")
    elif tag == "br" and rows and rows[-1]:
        rows[-1][-1] += " "


def _aligned(rows: list[list[str]]) -> str:
    """The rows of a table as lines of text; columns of numbers are aligned to the right."""
    columns = list(zip_longest(*map(_texts, filter(None, rows)), fillvalue=""))
    widths = [max(map(len, column)) for column in columns]
    numeric = [_is_numeric(column[1:]) for column in columns]
    lines = []
    for row in zip(*columns, strict=True):
        parts = []
        for cell, width, right in zip(row, widths, numeric, strict=True):
            parts.append(cell.rjust(width) if right else cell.ljust(width))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _texts(row: list[str]) -> list[str]:
    # Figure spaces indent the rows of a tree.
    return [re.sub(r"[ \t\r\n]+", " ", cell).strip(" ") for cell in row]


def _is_numeric(cells: Sequence[str]) -> bool:
    """True if all cells begin like numbers; empty ones may be in between."""
    return all(cell[:1] in "0123456789.-+\N{MINUS SIGN}\N{EN DASH}<" for cell in cells)


def _elements(tag: str, style: str) -> list[str]:
    """The elements for one with this style; none if only its content is kept."""
    bold = ["b"] if tag in _BOLD or _HEADING in style else []
    if tag == "samp" and markup.CODE in style:
        return ["pre", "code"]
    if tag in _BLOCKS - _ALLOWED:
        return ["div", *bold]
    name = _RENAMED.get(tag, tag)
    return [name, *bold] if name in _ALLOWED else bold
