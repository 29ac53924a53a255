"""Why a part of the steps takes longer that nobody changed: after it, fewer cores were free."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis.compare.compare import STEP, Side
from nbprof.analysis.contention import FULL, OTHERS, WAITED_PERCENT

_MORE_POINTS = 10.0
"""From so many percentage points on, ready threads waited for a core for longer than before."""


def sentence(
    before: Side, after: Side, categories: pd.DataFrame, least_ms: float, *, real: bool = True
) -> str:
    """Who took the cores, where a category other than input rose and ready threads waited for a
    core for longer; '' elsewhere.

    Parameters
    ----------
    before, after : Side
    categories : DataFrame
        `comparison.categories`.
    least_ms : float
        By so much a category must have risen.
    real : bool
        Whether only changes count that are more than chance.
    """
    was, now = before.cores, after.cores
    if "waited_percent" not in was or "waited_percent" not in now or not now.get("cores"):
        return ""
    rows = categories[~categories["category"].isin((STEP, "input"))]
    rose = rows["change_ms"].to_numpy(np.float64) >= max(least_ms, 1e-9)
    if real:
        rose &= rows["real"].fillna(False).astype(bool).to_numpy()
    waited, waited_before = now["waited_percent"], was["waited_percent"]
    busy = now.get("own_cores", 0.0) + now.get("other_cores", 0.0)
    if (
        not rose.any()
        or waited < max(WAITED_PERCENT, waited_before + _MORE_POINTS)
        or busy < FULL * now["cores"]
    ):
        return ""
    by = [*_workers(before, after), *_other_processes(before, after)]
    by = [by[0], *(name[0].lower() + name[1:] for name in by[1:])] if by else []
    if not by:
        return ""
    cores = "the core" if now["cores"] <= 1 else f"the {now['cores']:.0f} cores"
    had = was.get("other_cores", 0.0)
    if had >= OTHERS * now["cores"]:
        cores = f"what other processes, which had {had:.1f} of {cores} before, leave"
    waits = f"{waited:.0f}% of the time, {waited_before:.0f}% before"
    return f"{' and '.join(by)} took {cores}: ready threads of the training waited for one {waits}."


def _workers(before: Side, after: Side) -> list[str]:
    if after.workers is None or after.workers <= (before.workers or 0):
        return []
    count = after.workers
    return ["The worker" if count == 1 else f"The {count} workers"]


def _other_processes(before: Side, after: Side) -> list[str]:
    more = after.cores.get("other_cores", 0.0) - before.cores.get("other_cores", 0.0)
    return ["Other processes"] if more >= OTHERS * after.cores["cores"] else []
