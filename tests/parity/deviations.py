"""Every figure in which nbprof differs from a peer on purpose, with the reason and the test that holds ours.

Parity tests compare all columns but these. The docs show this table, so a reason is written for a person who compares two tools.
"""

from __future__ import annotations

from tests.parity.peer import Deviation

DEVIATIONS: list[Deviation] = []


def known(tool: str, column: str, peer: str, profile: str) -> Deviation | None:
    """The deviation that covers a column of a tool on a profile."""
    for one in DEVIATIONS:
        if (one.tool, one.column, one.peer) == (tool, column, peer) and profile in one.profiles:
            return one
    return None
