"""Rings: the largest parts of a whole, and the others as one."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.display import wording
from nbprof.tools.parts import RingPart


def parts(sums: pd.Series[Any], most: int, total: float | None = None) -> list[RingPart]:
    """The parts of a ring.

    Parameters
    ----------
    sums : Series
        By name, the largest first.
    most : int
        Parts that have their name; a single other has its name too.
    whole : float, optional
        What 100 % is, where that is more than all of them.
    """
    total = (float(sums.sum()) if total is None else total) or 1.0
    named = most + 1 if len(sums) == most + 1 else most
    names, values = sums.index.tolist(), sums.tolist()
    shares = zip(names[:named], values[:named], strict=True)
    ring = [
        RingPart(label=wording.one_line(str(name)), percent=float(100 * value / total), kind="rank")
        for name, value in shares
    ]
    if others := values[named:]:
        rest = 100 * float(sum(others)) / total
        ring.append(
            RingPart(label=wording.plural(len(others), "other"), percent=rest, kind="others")
        )
    return ring
