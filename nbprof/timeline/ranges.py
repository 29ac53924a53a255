"""Summary of a time range: self time by name, and how busy each lane and device was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import intervals
from nbprof.core.intervals import Intervals
from nbprof.core.runs import expand
from nbprof.core.trace import Int64s
from nbprof.timeline.density import repeats
from nbprof.timeline.slices import KINDS, MOST_NAME, Part, Slices
from nbprof.timeline.sums import ByName, Floats, Rows, Sums, covered, in_lane
from nbprof.timeline.tracks import Lane

MOST_NAMES = 200


def work_lanes(slices: Slices) -> list[Lane]:
    """Lanes with work of their own: neither derived nor repetitions of others."""
    repeated = repeats(slices.tracks)
    result = []
    for lane in slices.tracks.lanes:
        is_repetition = lane.derived or lane.id in repeated
        if lane.kind in ("device", "host") and lane.events and not is_repetition:
            result.append(lane)
    return result


def range_info(slices: Slices, from_: float, to: float, lanes: list[int] | None) -> dict[str, Any]:
    """The `RangeInfo` of from…to (ns).

    Parameters
    ----------
    slices : Slices
    from_, to : float
        ns since the origin, in any order.
    lanes : list of int, optional
        Lane ids; all with work of their own when left out.
    """
    from_, to = sorted((float(from_), float(to)))
    low, high = slices.ps(from_), slices.ps(to)
    work = work_lanes(slices)
    chosen = work
    if lanes is not None:
        chosen = [slices.lanes[i] for i in dict.fromkeys(lanes) if slices.is_drawn(i)]
    if high <= low:
        chosen = []
    sets: dict[str, list[Rows]] = {}
    busy = []
    unions: dict[int, Intervals] = {}
    touching = slices.touching(low, high)
    for lane in chosen:
        if not touching[lane.id]:
            unions[lane.id] = intervals.EMPTY
            busy.append(_busy(lane.id, intervals.EMPTY, low, high, 0))
            continue
        part = slices.part_of(lane.id)
        rows_in_lane = in_lane(part, lane.id, low, high)
        sets.setdefault(lane.kind, []).extend(rows_in_lane)
        unions[lane.id] = covered(part, lane.id, low, high)
        count = sum(map(len, rows_in_lane))
        busy.append(_busy(lane.id, unions[lane.id], low, high, count))
    sections: dict[tuple[str, str], list[Intervals]] = {}
    for lane in work:
        if lane.kind == "device" and lane.id in unions:
            sections.setdefault((lane.host, lane.process), []).append(unions[lane.id])
    idle = []
    for (_, process), lanes_busy in sections.items():
        percent = _percent(Intervals.union_of(lanes_busy).total(), high - low)
        idle.append({"process": process, "percent": 100 - percent})
    return {
        "from": from_,
        "to": to,
        **_shares(slices, by_name(slices, sets), high - low),
        "lanes": busy,
        "idle": idle,
        "note": "",
    }


def many_info(slices: Slices, events: list[int]) -> dict[str, Any]:
    """A `RangeInfo` of some events: each counts whole, and the range is from the first start to the
    last end.

    Raises
    ------
    IndexError
        One of the events does not exist.
    """
    ids = np.unique(np.asarray(events, np.int64))
    for event in (*ids[:1].tolist(), *ids[-1:].tolist()):
        slices.part_and_row(event)
    sets: dict[str, list[Rows]] = {}
    lanes = []
    none = np.zeros(0, np.int64)
    low = high = slices.tracks.origin
    if len(ids):
        start, duration = slices.starts(ids), slices.durations(ids)
        low = int(start.min())
        high = max(map(sum, zip(start.tolist(), duration.tolist(), strict=True)))
    for part in slices.parts:
        rows = ids[(ids >= part.first) & (ids < part.first + len(part.events))] - part.first
        kind = slices.kind[part.events.lane[rows]]
        for code in np.unique(kind).tolist():
            complete = Rows(part, rows[kind == code], none, none, none)
            sets.setdefault(KINDS[code], []).append(complete)
        lanes += _busy_lanes(part, rows, low, high)
    return {
        "from": slices.ns(low),
        "to": slices.ns(high),
        **_shares(slices, by_name(slices, sets), high - low),
        "lanes": lanes,
        "idle": [],
        "note": "",
    }


def _busy_lanes(part: Part, rows: Int64s, low: int, high: int) -> list[dict[str, Any]]:
    lane = part.events.lane[rows]
    result = []
    for i in np.unique(lane).tolist():
        lane_rows = rows[lane == i]
        start = part.events.start[lane_rows]
        busy = Intervals.union(start, start + part.events.duration[lane_rows])
        result.append(_busy(i, busy, low, high, len(lane_rows)))
    return result


def _busy(lane: int, busy: Intervals, low: int, high: int, count: int) -> dict[str, Any]:
    time = busy.total()
    return {
        "lane": int(lane),
        "busy_ns": time / 1000,
        "percent": _percent(time, high - low),
        "count": int(count),
    }


def _percent(time: float, total_time: float) -> float:
    if total_time <= 0:
        return 0.0
    return 100 * float(time) / total_time


@dataclass
class Named:
    """Sums by name and kind of lane; times in ps.

    A launch on the host may have the name of its kernel: their times are never added up.
    """

    name: npt.NDArray[np.object_]
    on: npt.NDArray[np.object_]
    count: Int64s
    self_time: Floats
    total: Floats
    longest: list[Callable[[], int]]
    """Functions that find the id of the longest event of each."""
    code: Int64s
    """Name code of that event."""


def by_name(slices: Slices, sets: dict[str, list[Rows]]) -> Named:
    """Sums over rows by kind of lane, in no order."""
    # One kind at least, so that there is something to join.
    kinds = list(sets) or [""]
    sums = [Sums(slices, sets.get(kind, [])) for kind in kinds]
    parts = [each.names for each in sums]
    names = ByName.joined(parts)
    sizes = np.array([len(part.code) for part in parts])
    side, index = expand(np.zeros(len(sizes), np.int64), sizes)
    # Different full names may have one short name.
    text, texts = pd.factorize(slices.tracks.names[names.code])
    group, alike = pd.factorize(text * len(kinds) + side)
    size = len(alike)
    order = np.lexsort((-np.arange(len(group)), names.longest))
    best = np.zeros(size, np.int64)
    # The last assignment wins.
    best[group[order]] = order
    return Named(
        np.asarray(texts, object)[text[best]],
        np.asarray(kinds, object)[side[best]],
        np.bincount(group, names.count, size).astype(np.int64),
        np.bincount(group, names.self_time, size).astype(np.float64),
        np.bincount(group, names.total, size).astype(np.float64),
        [partial(sums[side[i]].longest, int(index[i])) for i in best.tolist()],
        names.code[best],
    )


def _shares(slices: Slices, names: Named, length: int) -> dict[str, Any]:
    """`shares`, `others` and `count` of a `RangeInfo`."""
    count, self_time, size = names.count, names.self_time, len(names.name)
    order = np.lexsort((np.arange(size), -count, -self_time))
    # One name more than fit gets its own line rather than one that sums up a single name.
    listed = MOST_NAMES
    if size == MOST_NAMES + 1:
        listed = size
    head, rest = order[:listed], order[listed:]
    shares = []
    for i in head.tolist():
        share = {
            "name": str(names.name[i])[:MOST_NAME],
            "on": names.on[i],
            "fill": slices.fill(int(names.code[i])),
            "count": int(count[i]),
            "self_ns": float(self_time[i]) / 1000,
            "total_ns": float(names.total[i]) / 1000,
            "percent": _percent(self_time[i], length),
            "longest": slices.ref(names.longest[i]()),
        }
        shares.append(share)
    remainder = None
    if len(rest):
        remainder = {
            "names": len(rest),
            "count": int(count[rest].sum()),
            "self_ns": float(self_time[rest].sum()) / 1000,
        }
    return {"shares": shares, "others": remainder, "count": int(count.sum())}
