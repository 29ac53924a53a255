"""Lines of TPU cores that mark steps, and the group of each event of a core.

A core has separate lines for steps, programs and ops. Its grouping line joins the host's groups:
`Steps`, or `XLA Modules` if no steps were recorded. The other lines follow it.

A core has a line of its own for steps, programs and ops. What joins the host's groups is its
grouping line: `Steps`, or `XLA Modules` where no steps were recorded. The other lines follow it.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s, Trace

CORE = re.compile(r"/device:TPU:\d+\Z")
STEPS, MODULES = "Steps", "XLA Modules"


def grouping_lanes(trace: Trace) -> Int64s:
    """int64[lanes]: the grouping line of the core of each lane; -1 for other lanes."""
    lanes = trace.lanes
    grouping_lane = np.full(len(lanes), -1, np.int64)
    cores = [number for number, plane in enumerate(trace.planes) if CORE.match(plane.name)]
    if not cores:
        return grouping_lane
    plane, line, events = (lanes[c].to_numpy() for c in ("plane", "line", "events"))
    for core in cores:
        of_core = plane == core
        for name in (STEPS, MODULES):
            lanes_of_line = np.flatnonzero(of_core & (line == name) & (events > 0))
            if len(lanes_of_line):
                grouping_lane[of_core] = lanes_of_line[0]
                break
    return grouping_lane


def module_lanes(trace: Trace) -> Int64s:
    """The lines of TPU cores that have runs of programs, of hosts on which no core has steps."""
    lanes = trace.lanes
    cores = [number for number, plane in enumerate(trace.planes) if CORE.match(plane.name)]
    if not cores or "line" not in lanes:
        return np.zeros(0, np.int64)
    of_cores = np.isin(lanes["plane"].to_numpy(), cores) & (lanes["events"].to_numpy() > 0)
    line, host = lanes["line"].to_numpy(), lanes["host"].to_numpy()
    stepped = set(host[of_cores & (line == STEPS)].tolist())
    return np.flatnonzero(of_cores & (line == MODULES) & ~np.isin(host, list(stepped)))


def carriers(trace: Trace, of_lane: Int64s) -> tuple[Int64s, Int64s]:
    """Events on TPU cores, and the event of the grouping line in which each begins (-1)."""
    events = trace.events
    on_core = np.flatnonzero((of_lane >= 0)[events.lane])
    carrier = np.full(len(on_core), -1, np.int64)
    target = of_lane[events.lane[on_core]]
    for lane in np.unique(target).tolist():
        # Events are sorted by lane and start.
        first, stop = np.searchsorted(events.lane, np.array([lane, lane + 1], events.lane.dtype))
        rows = np.flatnonzero(target == lane)
        candidate = (
            np.searchsorted(events.start[first:stop], events.start[on_core[rows]], side="right")
            - 1
            + first
        )
        in_candidate = (candidate >= first) & (
            events.start[on_core[rows]] <= events.start[candidate] + events.duration[candidate]
        )
        carrier[rows[in_candidate]] = candidate[in_candidate]
    return on_core, carrier


def lock_step(
    trace: Trace, of_lane: Int64s, host: npt.NDArray[np.integer], group: Int32s
) -> dict[tuple[int, int], int]:
    """Groups the steps of cores that the host's groups did not reach, in place: the n-th step of
    each core of a host is one group.

    Returns the first such event of each new group, by (host, group).
    """
    events, line = (
        trace.events,
        trace.lanes["line"].to_numpy() if "line" in trace.lanes else np.zeros(0, object),
    )
    lanes = [lane for lane in np.unique(of_lane[of_lane >= 0]).tolist() if line[lane] == STEPS]
    rows = {
        lane: np.arange(
            *np.searchsorted(events.lane, np.array([lane, lane + 1], events.lane.dtype))
        )
        for lane in lanes
    }
    opened: dict[tuple[int, int], int] = {}
    for host_index in {int(host[r[0]]) for r in rows.values()}:
        core_rows = [r for r in rows.values() if host[r[0]] == host_index]
        if any((group[r] >= 0).any() for r in core_rows):
            continue
        base = int(group[host == host_index].max()) + 1
        for r in core_rows:
            group[r] = base + np.arange(len(r), dtype=np.int32)
        longest = max(core_rows, key=len)
        opened.update(
            {(host_index, base + n): int(event) for n, event in enumerate(longest.tolist())}
        )
    return opened
