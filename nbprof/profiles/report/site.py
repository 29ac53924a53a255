"""The start page of a site of reports: one HTML file that opens saved reports in the browser."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from nbprof.core.version import __version__
from nbprof.profiles.report import bundle, html

_TITLE = "nbprof reports"
_STYLE = """\
body:not([data-nbprof-open]) h1 { position: static; width: auto; height: auto; clip-path: none;
  margin: 0 0 16px; font: 600 20px/28px var(--ui) }
:root { --ui: system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif;
  --line: color-mix(in srgb, var(--jp-ui-font-color0) 26%, var(--jp-layout-color0)) }
body { font: 13px/20px var(--ui) } main p { margin: 0 0 8px; max-width: 92ch }
h2 { font: 600 14px/20px var(--ui); margin: 24px 0 8px }
ul { margin: 0; padding-left: 18px } li { margin: 4px 0; overflow-wrap: anywhere }
a { color: var(--jp-brand-color1) }
.drop { padding: 24px 16px 16px; border: 1px dashed var(--line); border-radius: 6px }
.dragged .drop { border-color: var(--jp-brand-color1);
  background: color-mix(in srgb, var(--jp-brand-color1) 10%, transparent) }
.hint, .drop span { color: var(--jp-ui-font-color2) }
.drop button, .drop select { font: inherit; color: inherit; padding: 4px 12px; border-radius: 4px;
  border: 1px solid var(--line); background: var(--jp-layout-color0); max-width: 100% }
.drop button { cursor: pointer }
:is(button, select, a):focus-visible { outline: 2px solid var(--jp-brand-color1);
  outline-offset: 2px }
.status { color: var(--jp-ui-font-color2); overflow-wrap: anywhere }
.problems { color: var(--jp-error-color1); overflow-wrap: anywhere }
.status:empty, .problems:empty { display: none }
.drop + .status, .status + .problems { margin-top: 8px }
[hidden], .home { display: none }
[data-nbprof-open] :is(nav, .hint, .drop p span) { display: none }
[data-nbprof-open] .home { display: inline }
[data-nbprof-open] .drop { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center;
  padding: 0; border-color: transparent }
[data-nbprof-open] .drop p { margin: 0 }
@media print { .drop, .status, .problems { display: none } }
"""


class Link(NamedTuple):
    """A report of the site.

    Parameters
    ----------
    href : str
        Its path from the start page.
    title : str
    """

    href: str
    title: str


def page(reports: Sequence[Link]) -> str:
    """The start page, with a list of the reports of the site.

    It runs no script but its own, whatever is opened in it.

    Raises
    ------
    NbprofError
        The front end has not been built.
    """
    scripts = [_inline(bundle.script()), _inline(bundle.script("site.js"))]
    elements = "".join(f'<script type="module">{script}</script>\n' for script in scripts)
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    body = (
        f'<div data-nbprof-site="{escape(__version__)}"></div>\n'
        "<noscript><p>Reports are opened by a script of this page, which the browser does not"
        f" run.</p></noscript>\n{_list(reports)}{elements}"
    )
    return html.shell(
        body,
        title=_TITLE,
        version=__version__,
        scripts=f"{allowed}; connect-src http: https:",
        style=_STYLE,
    )


def _list(reports: Sequence[Link]) -> str:
    if not reports:
        return ""
    items = "".join(
        f'<li><a href="{escape(quote(report.href))}">{escape(report.title)}</a></li>'
        for report in reports
    )
    return f'<nav aria-labelledby="reports"><h2 id="reports">Reports</h2><ul>{items}</ul></nav>\n'


def _inline(script: str) -> str:
    """A module as the content of a script element, which none of its strings may end."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
