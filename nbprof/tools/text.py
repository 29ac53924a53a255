"""The run in at most ten lines of plain text: for terminals, diffs and whoever reads the notebook's
source.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nbprof.core.guard import Failures, collecting, guarded
from nbprof.display import wording
from nbprof.tools import register
from nbprof.tools.header import UNFINISHED
from nbprof.tools.parts import Footer

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_MOST_LINES = 10


def summary(payload: Payload) -> str:
    """Ten lines or fewer: the lines of each tool, between the name of the run and its file.

    Parameters
    ----------
    payload : Payload
    """
    meta, only = payload.meta, register.only(payload)
    head = [f"nbprof · {meta.label} · {' · '.join(meta.facts)}"]
    if meta.pending:
        head.append(UNFINISHED)
    lines: list[str] = []
    # The overview, which is first, fills the lines that the others leave.
    tools = [only] if only else reversed(register.tools().values())
    with collecting(Failures(lines.append)):
        for tool in tools:
            limit = _MOST_LINES - 1 - len(head) - len(lines)
            text = partial(tool.text, payload, limit)
            lines[:0] = guarded("A part of this text", text, lambda _: [])
    return "\n".join(wording.one_line(line) for line in [*head, *lines, _footer(meta.footer)])


def _footer(footer: Footer) -> str:
    text = f"{wording.plural(footer.events, 'event')}, {footer.dropped:,} dropped; {footer.file}"
    return text if footer.bytes is None else f"{text}, {wording.size(footer.bytes)}"
