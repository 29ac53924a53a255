"""Rings: the largest parts of a whole, and the others as one."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.display import wording
from nbprof.tools.parts import RingPart


def parts(sums: pd.Series[Any], most: int, whole: float | None = None) -> list[RingPart]:
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
    whole = (float(sums.sum()) if whole is None else whole) or 1.0
    named = most + 1 if len(sums) == most + 1 else most
    shares = 100 * sums.head(named) / whole
    ring = [RingPart(label=wording.one_line(str(name)), percent=float(share), kind="rank") for name, share in shares.items()]
    if others := sums.iloc[named:].tolist():
        rest = 100 * float(sum(others)) / whole
        ring.append(RingPart(label=wording.plural(len(others), "other"), percent=rest, kind="others"))
    return ring
