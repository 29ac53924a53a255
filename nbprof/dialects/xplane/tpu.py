"""Lines of TPU cores that mark steps, and the group of each event of a core.

A core has separate lines for steps, programs and ops. Its grouping line joins the host's groups:
`Steps`, or `XLA Modules` if no steps were recorded. The other lines follow it.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s, Trace

CORE = re.compile(r"/device:TPU:\d+\Z")
STEPS, MODULES = "Steps", "XLA Modules"


def is_core(trace: Trace) -> npt.NDArray[np.bool_]:
    """bool[planes]: the planes of TPU Tensor Cores."""
    return np.array([bool(CORE.match(plane.name)) for plane in trace.planes], np.bool_)


def core_planes(trace: Trace) -> list[int]:
    """The planes of TPU Tensor Cores."""
    planes: list[int] = np.flatnonzero(is_core(trace)).tolist()
    return planes


def grouping_lanes(trace: Trace) -> Int64s:
    """int64[lanes]: the grouping line of the core of each lane; -1 for other lanes."""
    lanes = trace.lanes
    grouping_lane = np.full(len(lanes), -1, np.int64)
    cores = core_planes(trace)
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
    cores = core_planes(trace)
    if not cores or "line" not in lanes:
        return np.zeros(0, np.int64)
    of_cores = np.isin(lanes["plane"].to_numpy(), cores) & (lanes["events"].to_numpy() > 0)
    line, host = lanes["line"].to_numpy(), lanes["host"].to_numpy()
    stepped = set(host[of_cores & (line == STEPS)].tolist())
    return np.flatnonzero(of_cores & (line == MODULES) & ~np.isin(host, list(stepped)))


def carriers(trace: Trace, of_lane: Int64s) -> tuple[Int64s, Int64s]:
    """Events on TPU cores, and the event of the grouping line in which each begins (-1)."""
    events = trace.events
    on_core = events.of_lanes(of_lane >= 0)
    carrier = np.full(len(on_core), -1, np.int64)
    target = of_lane[events.lane[on_core]]
    for lane in np.unique(of_lane[of_lane >= 0]).tolist():
        first, stop = _events_of(trace, lane)
        rows = np.flatnonzero(target == lane)
        start = events.start[on_core[rows]]
        candidate = first - 1 + np.searchsorted(events.start[first:stop], start, side="right")
        in_candidate = (candidate >= first) & (
            start <= events.start[candidate] + events.duration[candidate]
        )
        carrier[rows[in_candidate]] = candidate[in_candidate]
    return on_core, carrier


def lock_step(
    trace: Trace, of_lane: Int64s, host: npt.NDArray[np.integer], group: Int32s
) -> dict[tuple[int, int], int]:
    """Groups the steps of cores that no group of their host reached, in place.

    The n-th step of each core of a host is one group.

    Returns
    -------
    dict
        The first event of each new group by (host, group), from the core with most steps.
    """
    opened: dict[tuple[int, int], int] = {}
    for host_index, steps_of_cores in _steps_by_host(trace, of_lane, host).items():
        if any((group[steps] >= 0).any() for steps in steps_of_cores):
            continue
        base = int(group[host == host_index].max()) + 1
        for steps in steps_of_cores:
            group[steps] = base + np.arange(len(steps), dtype=np.int32)
        longest = max(steps_of_cores, key=len)
        for number, event in enumerate(longest.tolist()):
            opened[host_index, base + number] = event
    return opened


def _steps_by_host(
    trace: Trace, of_lane: Int64s, host: npt.NDArray[np.integer]
) -> dict[int, list[Int64s]]:
    """By host: the events of the `Steps` line of each of its cores."""
    result: dict[int, list[Int64s]] = {}
    lanes = np.unique(of_lane[of_lane >= 0])
    if not len(lanes) or "line" not in trace.lanes:
        return result
    line = trace.lanes["line"].to_numpy()
    for lane in lanes.tolist():
        if line[lane] == STEPS:
            steps = np.arange(*_events_of(trace, lane))
            result.setdefault(int(host[steps[0]]), []).append(steps)
    return result


def _events_of(trace: Trace, lane: int) -> tuple[int, int]:
    """The first event of a lane and the one behind its last: events are sorted by lane."""
    lanes = trace.events.lane
    first, stop = np.searchsorted(lanes, np.array([lane, lane + 1], lanes.dtype))
    return int(first), int(stop)
