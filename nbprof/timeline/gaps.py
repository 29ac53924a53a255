"""When each device was idle, and what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.timeline.lanes import without_place
from nbprof.timeline.ranges import work_lanes
from nbprof.timeline.slices import MOST_NAME, Slices
from nbprof.timeline.sums import Sums, covered, in_lane
from nbprof.timeline.tracks import Lane, tracks

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

MOST = 100
WAITS, COLLECTIVES = "waits", "collectives"
"""The notes of lanes of an NPU that hold no work, and that hold all collectives."""
_NAMED = 200
# Threads that are looked at for all gaps together.
_LOOKS = 100_000
_KINDS: dict[str, Any] = {
    "host": object,
    "device": object,
    "start_ms": "f8",
    "duration_us": "f8",
    "meanwhile": object,
    "meanwhile_us": "f8",
}
"""Columns of the frame of gaps."""


@dataclass(frozen=True)
class Gap:
    """A time without work on a device, ps; `name` took most self time of the host, "" for none."""

    host: str
    process: str
    start: int
    end: int
    name: str = ""
    event: int | None = None
    self_time: float = 0.0
    """Self time of that name in the gap on all threads, ps."""


def sections(slices: Slices) -> dict[tuple[str, str], list[Lane]]:
    """Lanes of work of each device, by host and heading.

    Streams that only wait are not among them. Collectives are, where they have a lane of their own,
    as no task of a stream may stand for one.
    """
    result: dict[tuple[str, str], list[Lane]] = {}
    working = {lane.id for lane in work_lanes(slices)}
    for lane in slices.tracks.lanes:
        works = lane.id in working and lane.note != WAITS
        if lane.kind == "device" and (works or lane.note == COLLECTIVES):
            result.setdefault((lane.host, lane.process), []).append(lane)
    return result


def busy(slices: Slices, lanes: list[Lane], low: int, high: int) -> Intervals:
    """When any of some lanes had work in low…high, ps."""
    return Intervals.union_of(
        covered(slices.part_of(lane.id), lane.id, low, high) for lane in lanes
    )


def gaps(
    slices: Slices, from_: float | None = None, to: float | None = None, limit: int = MOST
) -> tuple[list[Gap], int]:
    """The longest idle gaps of all devices, longest first, and the number of all gaps.

    A gap is between work of the device; without a range the time before its first and after its
    last work is not a gap.

    Parameters
    ----------
    slices : Slices
    from_, to : float, optional
        ns; the gaps of this range, cut at its ends.
    limit : int
        How many to list.
    """
    result: list[Gap] = []
    count = 0
    low, high = slices.tracks.origin, slices.tracks.end + 1
    ends: list[int | None] = [None, None]
    if from_ is not None:
        low = ends[0] = slices.ps(from_)
    if to is not None:
        high = ends[1] = slices.ps(to)
    for (host, process), lanes in sections(slices).items():
        work = busy(slices, lanes, low, high)
        idle = work.gaps(*ends)
        count += len(idle)
        longest = first_largest(idle.length, limit)
        for start, end in zip(idle.start[longest], idle.end[longest], strict=True):
            result.append(Gap(host, process, int(start), int(end)))
    result.sort(key=lambda gap: (gap.start - gap.end, gap.start))
    # Host activity is looked up for the longest gaps only.
    threads = _threads(slices)
    named_count = max(10, min(_NAMED, _LOOKS // max(sum(map(len, threads.values())), 1)))
    first = result[: min(limit, named_count)]
    with_host = [_with_host(slices, gap, threads) for gap in first]
    return with_host + result[named_count:limit], count


def first_largest(values: Int64s, limit: int) -> Int64s:
    """Positions of the largest values, largest first, of equal ones the first; by partition."""
    rows = np.arange(len(values))
    if len(values) > limit > 0:
        rows = np.flatnonzero(values >= np.partition(values, -limit)[-limit])
    return rows[np.argsort(-values[rows], kind="stable")[:limit]]


def nearest(
    slices: Slices, time: float | None, host: str | None = None, device: str | None = None
) -> Gap | None:
    """The gap around a time (ns), else the nearest one; without a time the longest."""
    best: tuple[int, Gap] | None = None
    for (gap_host, process), lanes in sections(slices).items():
        names = {process, *(lane.device for lane in lanes)}
        if (host and gap_host != host) or (device and device not in names):
            continue
        idle = busy(slices, lanes, slices.tracks.origin, slices.tracks.end + 1).gaps()
        if not len(idle):
            continue
        if time is None:
            i = int(np.argmax(idle.length))
            far = -int(idle.length[i])
        else:
            moment = slices.ps(time)
            away = np.maximum(np.maximum(idle.start - moment, moment - idle.end), 0)
            i = int(np.argmin(away))
            far = int(away[i])
        if best is None or far < best[0]:
            best = far, Gap(gap_host, process, int(idle.start[i]), int(idle.end[i]))
    if best is None:
        return None
    _, gap = best
    return _with_host(slices, gap, _threads(slices))


def _threads(slices: Slices) -> dict[str, list[Lane]]:
    """Lanes of each host's threads."""
    threads: dict[str, list[Lane]] = {}
    for lane in work_lanes(slices):
        if lane.kind == "host":
            threads.setdefault(lane.host, []).append(lane)
    return threads


def _with_host(slices: Slices, gap: Gap, threads: dict[str, list[Lane]]) -> Gap:
    """A gap with the name that took most self time of the host in it."""
    touching = slices.touching(gap.start, gap.end)
    sets = []
    for lane in threads.get(gap.host, []):
        if touching[lane.id]:
            sets += in_lane(slices.part_of(lane.id), lane.id, gap.start, gap.end)
    sums = Sums(slices, sets)
    names = sums.names
    if not len(names.self_time) or names.self_time.max() <= 0:
        return gap
    best = int(np.argmax(names.self_time))
    event = sums.longest(best)
    self_time = float(names.self_time[best])
    return replace(gap, name=slices.name(event), event=event, self_time=self_time)


def answer(slices: Slices, from_: float | None, to: float | None, limit: int) -> dict[str, Any]:
    """The reply to `gaps`: columns, longest first, and `total`, the count of all gaps."""
    longest, count = gaps(slices, from_, to, limit)
    return {
        "host": [gap.host for gap in longest],
        "process": [gap.process for gap in longest],
        "start_ns": np.array([slices.ns(gap.start) for gap in longest], np.float64),
        "duration_ns": np.array([(gap.end - gap.start) / 1000 for gap in longest], np.float64),
        "meanwhile": [gap.name[:MOST_NAME] for gap in longest],
        "meanwhile_ns": np.array([gap.self_time / 1000 for gap in longest], np.float64),
        "event": np.array([-1 if gap.event is None else gap.event for gap in longest], np.int64),
        "total": count,
    }


def frame(run: Drawable, limit: int = MOST, slices: Slices | None = None) -> pd.DataFrame:
    """The longest idle times of devices, longest first: the columns of `p.trace.gaps()`.

    A gap is between two pieces of work of a device, on all its streams together. `meanwhile` is
    the name that took most self time on the threads of the same host in it, and `meanwhile_us` that
    time, on all threads; empty where the host recorded nothing then, and below the longest 200 gaps
    (fewer with thousands of threads).
    """
    slices = slices or Slices(tracks(run))
    longest, _ = gaps(slices, limit=limit)
    rows = []
    for gap in longest:
        device = without_place(gap.process.removeprefix(f"{gap.host} · "))
        start_ms, duration_us = gap.start / 1e9, (gap.end - gap.start) / 1e6
        meanwhile_us = gap.self_time / 1e6 if gap.name else np.nan
        rows.append((gap.host, device, start_ms, duration_us, gap.name, meanwhile_us))
    return pd.DataFrame(rows, columns=list(_KINDS)).astype(_KINDS)
