"""Plain HTML: no script, no style sheet, no SVG, so that every viewer keeps it.

Code hosts and untrusted notebooks strip all but plain elements and `style=` attributes; what is
here must be good alone. What is called a text is foreign, and escaped here.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Literal

from nbprof.display import wording
from nbprof.display.payload import Part

CODE = "font:12px ui-monospace,Menlo,Consolas,monospace"
SOFT = "opacity:.7"
# A notebook sets the text of cells to the right, so that each says its side. Short, since what is
# said of a cell is in an output hundreds of times: what a viewer draws by itself, as borders,
# stripes and bold heads, is left to it. So are the quotes, which JSON escapes where they are
# double.
_CELL = "padding:3px 6px"
_ROW = "border-bottom:1px solid #8884"


def table(title: str, scope: str, heads: list[str], rows: list[list[str]], align: str) -> str:
    """A table whose cells are HTML already; nothing when it has no rows."""
    if not rows:
        return ""
    sides = [f"{_CELL};text-align:{'right' if side == 'r' else 'left'}" for side in align]
    head = "".join(
        f"<th style='{side}'>{text(label)}</th>" for side, label in zip(sides, heads, strict=True)
    )
    body = "".join(
        f"<tr style='{_ROW}'>"
        + "".join(f"<td style='{side}'>{cell}</td>" for side, cell in zip(sides, row, strict=True))
        + "</tr>"
        for row in rows
    )
    style = "border-collapse:collapse;border:0;margin:0 0 8px;font-size:12px;line-height:18px"
    return (
        f"{heading(title, scope)}<table style='{style}'><thead><tr"
        f" style='{_ROW}'>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def heading(title: str, scope: str) -> str:
    """A line in bold, with a smaller text behind it."""
    small = f' <span style="font-weight:400;{SOFT}">{text(scope)}</span>' if scope else ""
    return f'<p style="font-weight:600;margin:18px 0 4px">{text(title)}{small}</p>'


def paragraph(html: str) -> str:
    """A paragraph of what is HTML already."""
    return f'<p style="margin:0 0 8px;max-width:760px">{html}</p>'


class FixLine(Part):
    """A line of a diff."""

    kind: Literal["removed", "added", "same"]
    text: str


def diff(lines: list[FixLine]) -> str:
    """What to change in the code."""
    if not lines:
        return ""
    looks = {
        "removed": f"text-decoration:line-through;{SOFT}",
        "added": "background:rgba(35,137,106,.18)",
    }
    return _block("<br>".join(_styled(_line(line.text), looks.get(line.kind)) for line in lines))


def code_block(code: str) -> str:
    """Lines of code; nothing without any."""
    return _block("<br>".join(_line(line) for line in code.splitlines())) if code else ""


def _styled(html: str, style: str | None) -> str:
    return f"<span style='{style}'>{html}</span>" if style else html


def _block(body: str) -> str:
    return (
        f'<p style="{CODE};line-height:18px;margin:0 0 12px;padding:6px'
        f' 10px;background:rgba(128,128,128,.1)">{body}</p>'
    )


def _line(line: str) -> str:
    """One line of code with its indentation, in an element that viewers do not reformat."""
    line = wording.one_line(line.replace("\t", "    "))
    indent = len(line) - len(line.lstrip(" "))
    return "&nbsp;" * indent + text(line.lstrip(" ")) or "&nbsp;"


def name(full: str, limit: int) -> str:
    """The end of a name that may be long; all of it in the tooltip."""
    return _code(full, wording.tail(full, limit))


def kernel(full: str) -> str:
    """The same of a kernel, whose arguments go first."""
    return _code(full, wording.kernel(full, 80))


def _code(full: str, short: str) -> str:
    tooltip = f" title='{text(full[:300])}'" if short != full else ""
    # Notebooks draw <code> as a grey box; this is of fixed width everywhere by itself. Wrapped
    # where the page is narrow, as on paper: the figures behind the name would be off the page
    # otherwise.
    return f"<samp style='overflow-wrap:anywhere'{tooltip}>{text(short)}</samp>"


def picture(png: bytes, alt: str, width: int = 700) -> str:
    """A picture, with its width in points."""
    data = base64.b64encode(png).decode()
    style = "max-width:100%;height:auto"
    return (
        f'<p style="margin:8px 0"><img src="data:image/png;base64,{data}" width="{width}"'
        f' alt="{text(alt)}" style="{style}"></p>'
    )


def swatch(colour: str) -> str:
    """A square of a colour."""
    return (
        "<span"
        f" style='display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;background:{colour}'></span>"
    )


def bar(percent: float, colour: str) -> str:
    """A bar on its track."""
    width = round(min(max(wording.real(percent) or 0.0, 0.0), 100.0), 1)
    fill = f"linear-gradient(90deg,{colour} {width:g}%,#8883 0)"
    return f"<span style='display:inline-block;width:100px;height:8px;background:{fill}'></span>"


def marked(sentence: str) -> str:
    """A text in which double asterisks mark what is bold."""
    return "".join(
        f"<b>{text(part)}</b>" if bold else text(part)
        for bold, part in wording.bold_parts(sentence)
    )


def text(foreign: object) -> str:
    """A foreign text in one line."""
    return escape(wording.one_line(str(foreign)), quote=True)
