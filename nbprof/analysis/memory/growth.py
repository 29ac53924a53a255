"""Memory that grows from step to step: the least that an allocator has in use in each step, and
what stays allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nbprof.analysis.memory import alive
from nbprof.analysis.steps.steps import counted
from nbprof.core.runs import rows_by_code
from nbprof.core.trace import Int64s


@dataclass(frozen=True)
class Growth:
    """The allocator whose least memory in use grows fastest.

    Attributes
    ----------
    memory : str
    steps : int
        Over so many steps.
    rising : float
        The share of them, but the first, whose least memory in use is above that of the step
        before.
    each : float
        Bytes per step: the median of the slopes between any two steps, of more than 500 between
        neighbours.
    grown, peak : int
        Bytes from the first of these steps to the last, and at most in use.
    capacity : int, optional
    op, shape : str
        What allocated most of the blocks of these steps that were never freed, if it was one op;
        their shape.
    """

    memory: str
    steps: int
    rising: float
    each: float
    grown: int
    peak: int
    capacity: int | None
    op: str = ""
    shape: str = ""


def find(steps: pd.DataFrame, timeline: pd.DataFrame, hosts: Sequence[str]) -> Growth | None:
    """The growth over the steps in the averages; None without allocator events in each of three
    steps.
    """
    if not len(timeline):
        return None
    # Of the rows only the columns that are asked for are taken, an allocator at a time.
    code, _ = pd.factorize(timeline["memory_id"].to_numpy(object))
    by_memory = rows_by_code(code)
    host_steps = counted(steps)
    growths = [
        growth
        for rows in by_memory
        if (growth := _of(host_steps, timeline, rows, hosts)) is not None
    ]
    return max(growths, key=lambda growth: growth.rising * growth.each / growth.peak, default=None)


def _of(
    steps: pd.DataFrame, timeline: pd.DataFrame, rows: Int64s, hosts: Sequence[str]
) -> Growth | None:
    def of(column: str) -> pd.Series:
        return timeline[column].iloc[rows]

    rows = rows[(of("in_use_bytes").notna() & of("host").notna()).to_numpy(np.bool_)]
    if not len(rows) or not len(steps):
        return None
    host_steps = steps[steps["host"] == hosts[int(of("host").iloc[0])]].sort_values(
        "start_ms", kind="stable"
    )
    if len(host_steps) < 3:
        return None
    used = of("in_use_bytes").to_numpy(np.int64)
    # By the step that asked for it: a host that launches ahead allocates for steps of which its
    # device has not begun any. Numbers of steps may repeat, as in a second loop; groups do not.
    step = pd.Index(host_steps["group"].to_numpy(np.int64)).get_indexer(
        pd.Index(of("group").to_numpy(np.int64, na_value=-1))
    )
    in_steps = np.flatnonzero(step >= 0)
    least = np.full(len(host_steps), np.iinfo(np.int64).max)
    np.minimum.at(least, step[in_steps], used[in_steps])
    if (least == np.iinfo(np.int64).max).any() or not (peak := int(used.max())):
        return None
    first_step, other = (
        np.triu_indices(len(least), 1)
        if len(least) <= 500
        else (np.arange(len(least) - 1), np.arange(1, len(least)))
    )
    each = float(np.median((least[other] - least[first_step]) / (other - first_step)))
    capacity = of("capacity_bytes").iloc[0]
    grown = int(least[-1] - least[0])
    return Growth(
        memory=str(of("memory_id").iloc[0]),
        steps=len(least),
        rising=float((np.diff(least) > 0).mean()),
        each=each,
        grown=grown,
        peak=peak,
        capacity=None if pd.isna(capacity) else int(capacity),
        **_kept(timeline, rows[in_steps], grown),
    )


def _kept(timeline: pd.DataFrame, in_steps: Int64s, grown: int) -> dict[str, str]:
    """Op and shape of the blocks that hold most of what was never freed, if it is at least half of
    the growth.
    """
    if grown <= 0:
        return {}
    rows = timeline[["address", "event", "op", "shape", "allocated_bytes"]].iloc[in_steps]
    if rows["address"].isna().any():
        return {}
    left = rows.iloc[
        alive.last_at_address(rows["address"].to_numpy(np.int64), alive.allocating(rows))
    ]
    size = (
        left.groupby(["op", "shape"], sort=False, dropna=False)["allocated_bytes"]
        .sum()
        .astype("int64")
    )
    if not len(size) or 2 * int(size.max()) < grown:
        return {}
    op, shape = map(str, size.index[int(size.to_numpy().argmax())])
    return {"op": op, "shape": "" if shape == "unknown" else shape}
