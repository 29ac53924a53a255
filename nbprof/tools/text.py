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
    unfinished = [UNFINISHED] if meta.pending else []
    lines: list[str] = []
    # The overview, which is first, fills what the others leave.
    with collecting(Failures(lines.append)):
        for tool in [only] if only else reversed(register.tools().values()):
            limit = _MOST_LINES - 2 - len(unfinished) - len(lines)
            lines[:0] = guarded(
                "A part of this text", partial(tool.text, payload, limit), lambda _: []
            )
    head = f"nbprof · {meta.label} · {' · '.join(meta.facts)}"
    return "\n".join(
        wording.one_line(line) for line in [head, *unfinished, *lines, _footer(meta.footer)]
    )


def _footer(footer: Footer) -> str:
    size = "" if footer.bytes is None else f", {wording.size(footer.bytes)}"
    return (
        f"{wording.plural(footer.events, 'event')}, {footer.dropped:,} dropped; {footer.file}{size}"
    )
