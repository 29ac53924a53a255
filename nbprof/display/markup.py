"""Plain HTML for every viewer: no scripts, style sheets or SVG.

Code hosts and untrusted notebooks remove everything but plain elements and `style=` attributes, and
some of them (GitHub) these attributes, too. So what a style says is said by an element or a
character as well: bold, code, changed lines, bars, indentation.
Arguments that are texts are foreign, and escaped here.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Literal

from nbprof.display import wording
from nbprof.display.payload import Part

CODE = "font:12px/18px ui-monospace,Menlo,Consolas,monospace"
SOFT = "opacity:.7"
HEADING = "margin:18px 0 4px"
"""Of the paragraph of a heading, and of no other."""
# A notebook aligns cells to the right by default, so each cell has its alignment. Cells are styled
# hundreds of times in an output, so the style is short: borders, stripes and bold heads are left to
# the viewer, and quotes are single ones, which JSON does not escape.
_CELL = "padding:3px 6px"
_ROW = "border-bottom:1px solid #8884"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
"""Parts of a block character, by eighths."""


def table(title: str, scope: str, heads: list[str], rows: list[list[str]], align: str) -> str:
    """A table with cells of HTML; empty without rows, and without a head if no column has one."""
    if not rows:
        return ""
    sides = [f"{_CELL};text-align:{'right' if side == 'r' else 'left'}" for side in align]
    head = ""
    if any(heads):
        labels = zip(sides, heads, strict=True)
        titles = "".join(f"<th style='{side}'>{text(label)}</th>" for side, label in labels)
        head = f"<thead><tr style='{_ROW}'>{titles}</tr></thead>"
    body = ""
    for row in rows:
        cells = [f"<td style='{side}'>{cell}</td>" for side, cell in zip(sides, row, strict=True)]
        body += f"<tr style='{_ROW}'>{''.join(cells)}</tr>"
    style = "border-collapse:collapse;border:0;margin:0 0 8px;font-size:12px;line-height:18px"
    html = f"<table style='{style}'>{head}<tbody>{body}</tbody></table>"
    if title:
        html = heading(title, scope) + html
    return html


def headline(html: str) -> str:
    """The sentence with the answer, large and bold."""
    return f'<p style="font-size:20px;line-height:28px;margin:0 0 4px"><b>{html}</b></p>'


def heading(title: str, scope: str) -> str:
    """A line in bold, followed by a smaller text."""
    small = ""
    if scope:
        small = f' <span style="{SOFT}">{text(scope)}</span>'
    return f'<p style="{HEADING}"><b>{text(title)}</b>{small}</p>'


def paragraph(html: str) -> str:
    """A paragraph of HTML."""
    return f'<p style="margin:0 0 8px;max-width:760px">{html}</p>'


class FixLine(Part):
    """A line of a diff."""

    kind: Literal["removed", "added", "same"]
    text: str


def diff(lines: list[FixLine]) -> str:
    """A diff of code; empty without lines."""
    if not lines:
        return ""
    return _block([_changed(line) for line in lines])


def _changed(line: FixLine) -> str:
    html = _line(line.text)
    if line.kind == "removed":
        return f"<del style='{SOFT}'>{html}</del>"
    if line.kind == "added":
        return f"<ins style='text-decoration:none;background:rgba(35,137,106,.18)'>{html}</ins>"
    return html


def code_block(code: str) -> str:
    """Lines of code; empty without any."""
    if not code:
        return ""
    return _block(list(map(_line, code.splitlines())))


def _block(lines: list[str]) -> str:
    style = "margin:0 0 12px;padding:6px 10px;background:rgba(128,128,128,.1)"
    return f'<p style="{style}"><samp style="{CODE}">{"<br>".join(lines)}</samp></p>'


def _line(line: str) -> str:
    """One line of code with its indentation, in an element that viewers do not reformat."""
    line = wording.one_line(line.replace("\t", "    "))
    indent = len(line) - len(line.lstrip(" "))
    return "&nbsp;" * indent + text(line.lstrip(" ")) or "&nbsp;"


def indented(html: str, depth: int) -> str:
    """A row of a tree, behind figure spaces: no viewer removes, collapses or breaks them."""
    return "\u2007" * 3 * depth + html


def name(full: str, limit: int) -> str:
    """The end of a name, with the full name as tooltip."""
    return _code(full, wording.tail(full, limit))


def kernel(full: str) -> str:
    """The name of a kernel without arguments, with the full name as tooltip."""
    return _code(full, wording.kernel(full, 80))


def _code(full: str, short: str) -> str:
    tooltip = f" title='{text(full[:300])}'" if short != full else ""
    # Notebooks draw <code> as a grey box; <samp> has a fixed width everywhere. It wraps on narrow
    # pages, such as paper, to leave space for the figures after the name.
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
        "<span style='display:inline-block;width:10px;height:10px;border-radius:2px;"
        f"margin-right:6px;background:{colour}'></span>"
    )


def bar(percent: float, colour: str) -> str:
    """A bar on its track; without styles it is one of block characters, which a style hides."""
    width = round(min(max(wording.real(percent) or 0.0, 0.0), 100.0), 1)
    full, eighths = divmod(round(width * 0.8), 8)
    fill = f"linear-gradient(90deg,{colour} {width:g}%,#8883 0)"
    style = f"display:inline-block;width:100px;height:8px;font-size:0;background:{fill}"
    return f"<span aria-hidden=true style='{style}'>{'█' * full}{_EIGHTHS[eighths]}</span>"


def marked(sentence: str) -> str:
    """A text in which double asterisks mark bold parts."""
    parts = []
    for bold, part in wording.bold_parts(sentence):
        parts.append(f"<b>{text(part)}</b>" if bold else text(part))
    return "".join(parts)


def text(foreign: object) -> str:
    """A foreign text in one line."""
    return escape(wording.one_line(str(foreign)), quote=True)
