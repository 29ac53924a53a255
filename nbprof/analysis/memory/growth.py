"""Memory that grows from step to step: the least that an allocator has in use in each step, and the
blocks that stay allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
        Bytes from the step with the least in use to the last, and at most in use.
    capacity : int, optional
    op, shape : str
        The op that allocated most of the blocks of these steps that were never freed, if it was one
        op; their shape.
    role : str
        What these blocks are used for, if that is known of all that most steps left.
    line : str
        The line of the program that allocated them, if that is known and they have one.
    in_function : bool
        The line is the first of its function.
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
    role: str = ""
    line: str = ""
    in_function: bool = False


def with_place(growth: Growth, unfreed: pd.DataFrame) -> Growth:
    """A growth whose blocks are named by role and line; `unfreed` is `p.memory.unfreed`."""
    from nbprof.analysis.memory.allocated_at import CALLS
    from nbprof.core.memory_roles import UNKNOWN

    rows = unfreed[(unfreed["memory_id"] == growth.memory) & (unfreed["op"] == growth.op)]
    if not growth.op:
        return growth
    # Several lines, or modules, may leave it in turn.
    of_role = rows.groupby("role")["steps"].sum()
    roles = set(of_role.index[2 * of_role > growth.steps])
    rows = rows[2 * rows["steps"] > growth.steps]
    lines = set(zip(rows["line"], rows["line_source"], strict=True))
    if len(roles) == 1:
        growth = replace(growth, role=(roles - {UNKNOWN} or {""}).pop())
    if len(lines) == 1:
        line, source = lines.pop()
        growth = replace(growth, line=line, in_function=source == CALLS)
    return growth


def find(steps: pd.DataFrame, timeline: pd.DataFrame, hosts: Sequence[str]) -> Growth | None:
    """The growth over the steps in the averages; None without allocator events in each of three
    steps.
    """
    if not len(timeline):
        return None
    code, _ = pd.factorize(timeline["memory_id"].to_numpy(object))
    used = counted(steps)
    by_memory = (_growth(used, timeline, rows, hosts) for rows in rows_by_code(code))
    growths = [growth for growth in by_memory if growth is not None]
    return max(growths, key=lambda growth: growth.rising * growth.each / growth.peak, default=None)


def _growth(
    steps: pd.DataFrame, timeline: pd.DataFrame, rows: Int64s, hosts: Sequence[str]
) -> Growth | None:
    """The growth of one allocator, whose events are `rows`."""

    def column(name: str) -> pd.Series:
        return timeline[name].iloc[rows]

    rows = rows[(column("in_use_bytes").notna() & column("host").notna()).to_numpy(np.bool_)]
    if not len(rows) or not len(steps):
        return None
    host = hosts[int(column("host").iloc[0])]
    host_steps = steps[steps["host"] == host].sort_values("start_ms", kind="stable")
    if len(host_steps) < 3:
        return None
    used = column("in_use_bytes").to_numpy(np.int64)
    # By the step that asked for it: a host that launches ahead allocates for steps that its device
    # has not begun. Numbers of steps may repeat, as in a second loop; groups do not.
    groups = pd.Index(host_steps["group"].to_numpy(np.int64))
    step = groups.get_indexer(pd.Index(column("group").to_numpy(np.int64, na_value=-1)))
    in_steps = np.flatnonzero(step >= 0)
    least = np.full(len(host_steps), np.iinfo(np.int64).max)
    np.minimum.at(least, step[in_steps], used[in_steps])
    peak = int(used.max())
    if (least == np.iinfo(np.int64).max).any() or not peak:
        return None
    capacity = column("capacity_bytes").iloc[0]
    # The first step may begin within its forward pass, and so with more than the next one.
    grown = int(least[-1] - least.min())
    return Growth(
        memory=str(column("memory_id").iloc[0]),
        steps=len(least),
        rising=float((np.diff(least) > 0).mean()),
        each=_median_slope(least),
        grown=grown,
        peak=peak,
        capacity=None if pd.isna(capacity) else int(capacity),
        **_never_freed(timeline, rows[in_steps], grown),
    )


def _median_slope(least: Int64s) -> float:
    """The median of the slopes between any two steps, of more than 500 steps between neighbours."""
    if len(least) <= 500:
        earlier, later = np.triu_indices(len(least), 1)
    else:
        earlier, later = np.arange(len(least) - 1), np.arange(1, len(least))
    return float(np.median((least[later] - least[earlier]) / (later - earlier)))


def _never_freed(timeline: pd.DataFrame, in_steps: Int64s, grown: int) -> dict[str, Any]:
    """Op and shape of the blocks with most of the memory that was never freed, if it is at least
    half of the growth.
    """
    if grown <= 0:
        return {}
    events = timeline[["address", "event"]].iloc[in_steps]
    if events["address"].isna().any():
        return {}
    address = events["address"].to_numpy(np.int64)
    left = in_steps[alive.last_at_address(address, alive.allocating(events))]
    blocks = timeline[["op", "shape", "allocated_bytes"]].iloc[left]
    by_block = blocks.groupby(["op", "shape"], sort=False, dropna=False)
    size = by_block["allocated_bytes"].sum().astype("int64")
    if not len(size) or 2 * int(size.max()) < grown:
        return {}
    op, shape = map(str, size.index[int(size.to_numpy().argmax())])
    return {"op": op, "shape": "" if shape == "unknown" else shape}
