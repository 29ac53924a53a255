"""Rings: the largest parts of a time, and the others as one."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.display import wording
from nbprof.tools.parts import RingPart


def parts(sums: pd.Series[Any], limit: int, total: float | None = None) -> list[RingPart]:
    """The parts of a ring.

    Parameters
    ----------
    sums : Series
        By name, the largest first.
    limit : int
        Parts that are named; a single further one is named, too.
    total : float, optional
        The time of 100 %, if that is more than the sum.
    """
    total = (float(sums.sum()) if total is None else total) or 1.0
    named = limit + 1 if len(sums) == limit + 1 else limit
    ring = []
    names, values = sums.index.tolist(), sums.tolist()
    for name, value in zip(names[:named], values[:named], strict=True):
        label = wording.one_line(str(name))
        ring.append(RingPart(label=label, percent=100 * value / total, kind="rank"))
    rest = values[named:]
    if rest:
        label = wording.plural(len(rest), "other")
        percent = 100 * float(sum(rest)) / total
        ring.append(RingPart(label=label, percent=percent, kind="others"))
    return ring
