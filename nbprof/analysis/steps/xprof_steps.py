"""The step table of XProf 2.24, by its rules, for comparing the two tools.

They differ from the guide's, which `steps` follows: host work is left out of the steps of a profile
with a device, a step there is called by its group, copies are only known by the names of today
(`MemcpyHToD`), bfloat16 counts as 32 bit, and of more than five steps the first and the last are
dropped.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES, HOST_COMPUTE, Activity
from nbprof.analysis.steps import steps
from nbprof.analysis.sweep import Classes
from nbprof.analysis.table import stacked
from nbprof.core.intervals import end_to_end, extents
from nbprof.core.trace import Int64s

COLUMNS = ["host", "step", "name", "start_ms", "step_time_ms", *(f"{c}_ms" for c in CATEGORIES)]
# With more steps than this the first and the last may be incomplete.
FEW = 5


def frame(activity: Activity, *, drop_incomplete: bool = True) -> pd.DataFrame:
    """One row per step of each host, by group; every category is a number, 0 where nothing was
    recorded, as in XProf.
    """
    parts = [_of_host(activity, host, drop_incomplete) for host in range(len(activity.hosts))]
    if not any(map(len, parts)):
        return pd.DataFrame(columns=COLUMNS)
    return stacked(parts)


def _of_host(activity: Activity, host: int, drop_incomplete: bool) -> pd.DataFrame:
    devices = activity.devices[activity.devices["host"] == activity.hosts[host]]
    tpus = devices[devices["kind"] == "TPU"]["device"].tolist()
    if tpus:
        parts = [_table(activity, host, device=core) for core in tpus]
        table = pd.concat(parts, ignore_index=True)
        # Only steps of all cores; the step lasts as long as that of the slowest.
        table = table[table.groupby("step")["step"].transform("count") == len(parts)].reset_index(
            drop=True
        )
        if not len(table):
            return table
        return table.loc[table.groupby("step")["step_time_ms"].idxmax()]
    table = _table(activity, host, device=None, on_device=len(devices) > 0)
    if drop_incomplete and len(table) > FEW:
        return table.iloc[1:-1]
    return table


def _table(
    activity: Activity, host: int, device: int | None, *, on_device: bool = True
) -> pd.DataFrame:
    markers, work = activity.xprof_markers.frame(), activity.xprof_work.frame()
    if not (markers["host"] == host).any():
        markers = activity.markers.frame()
    core_markers = (markers["device"] >= 0) == on_device
    if device is not None:
        core_markers = markers["device"] == device
    times = steps.longest(
        markers[(markers["host"] == host) & core_markers & ~markers["event"].isin(activity.rebuilt)]
    )
    times = times[times["end"] > times["start"]]
    group, begin, stop = (
        times.index.to_numpy(np.int64),
        times["start"].to_numpy(np.int64),
        times["end"].to_numpy(np.int64),
    )
    work_device = work["device"].to_numpy()
    of_device = (work_device >= 0) == on_device
    if device is not None:
        of_device = work_device == device
    used = (work["host"].to_numpy() == host) & of_device
    step, rows = steps.step_of_spans(group, work["group"].to_numpy(), used)
    cls = work["cls"].to_numpy()[rows]
    start, end = (work[c].to_numpy()[rows] for c in ("start", "end"))
    end = _prolonged(step, start, end, cls)
    by_class = steps.time_by_class(begin, stop, step, start, end, cls)
    total = steps.by_category(stop - begin, by_class)
    # A step is whole with any compute that nothing of a larger class hides, also outside of its
    # time.
    first, last = np.full(len(group), np.iinfo(np.int64).max), begin.copy()
    np.minimum.at(first, step, start)
    np.maximum.at(last, step, end)
    seen = steps.time_by_class(np.minimum(first, last), last, step, start, end, cls)
    formed = np.zeros(len(group), np.bool_)
    for compute in steps.COMPUTE if on_device else (HOST_COMPUTE,):
        if compute in seen:
            formed |= seen[compute] > 0
    # Only hosts give steps a name.
    names = list(map(str, group.tolist()))
    if not on_device:
        for row, number in enumerate(group.tolist()):
            names[row] = activity.group_names.get((host, number), names[row])
    table = pd.DataFrame(
        {
            "host": activity.hosts[host],
            "step": group,
            "name": names,
            "start_ms": begin / 1e9,
            "step_time_ms": (stop - begin) / 1e9,
            **{f"{c}_ms": total[:, i] / 1e9 for i, c in enumerate(CATEGORIES)},
        }
    )
    return table[formed].reset_index(drop=True)


def _prolonged(step: Int64s, start: Int64s, end: Int64s, cls: Classes) -> Int64s:
    """The end of each span as XProf's sweep has it.

    Of boundaries at one instant it takes ends before begins. So it ends a span of no length before
    it begins it, and takes its class to go on, unless a span of that class or a larger one is open,
    until the next of these begins; the last one in a step to the end of all.
    """
    empty = np.flatnonzero(end == start)
    if not len(empty):
        return end
    first, last = extents(step, int(step.max()) + 1, start, end)
    # Of a step without any span.
    first, last = np.where(last < first, 0, first), np.where(last < first, 0, last)
    # Steps are laid end to end, one apart, so that one order serves all of them.
    shift = end_to_end(first, last + 1)
    shifted = end.copy()
    for value in np.unique(cls[empty]).tolist():
        empty_rows = empty[cls[empty] == value]
        over = np.flatnonzero((cls >= value) & (end > start))
        over = over[np.argsort(start[over] + shift[step[over]], kind="stable")]
        begins = np.append(start[over] + shift[step[over]], np.iinfo(np.int64).max)
        reach = np.maximum.accumulate(
            np.append(np.iinfo(np.int64).min, end[over] + shift[step[over]])
        )
        position = start[empty_rows] + shift[step[empty_rows]]
        after = np.searchsorted(begins[:-1], position, side="right")
        goes_on = np.minimum(begins[after], last[step[empty_rows]] + shift[step[empty_rows]])
        free = reach[after] <= position
        shifted[empty_rows[free]] = (goes_on - shift[step[empty_rows]])[free]
    return shifted
