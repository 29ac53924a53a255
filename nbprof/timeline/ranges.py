"""What happened in a range of time: self time by name, and how busy each lane and each device was."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.timeline.density import repeats
from nbprof.timeline.slices import MOST_NAME, Part, Slices
from nbprof.timeline.sums import NOTHING, ByName, Rows, Sums, Union, covered, in_lane
from nbprof.timeline.tracks import Lane
from nbprof.trace import Int64s

MOST_NAMES = 200
MOST_EVENTS = 1_000_000
"""Of a set of events that is asked about."""


def work_lanes(slices: Slices) -> list[Lane]:
    """Lanes that hold work themselves; those that say again what others hold, and derived ones, are left out."""
    repeated = repeats(slices.tracks)
    return [
        lane
        for lane in slices.tracks.lanes
        if lane.kind in ("device", "host") and not lane.derived and lane.id not in repeated and lane.events
    ]


def range_info(slices: Slices, from_: float, to: float, lanes: list[int] | None) -> dict[str, Any]:
    """A `RangeInfo`: what lies in from…to (ns).

    Parameters
    ----------
    slices : Slices
    from_, to : float
        ns since the origin, in any order.
    lanes : list of int, optional
        Lane ids; all that hold work themselves when left out.
    """
    from_, to = sorted((float(from_), float(to)))
    low, high = slices.ps(from_), slices.ps(to)
    work = work_lanes(slices)
    chosen = work if lanes is None else [lane for i in dict.fromkeys(lanes) if (lane := slices.lanes.get(i)) and lane.kind != "counter"]
    sets: list[Rows] = []
    busy = []
    unions: dict[int, Union] = {}
    touching = slices.touching(low, high)
    for lane in chosen if high > low else ():
        if not touching[lane.id]:
            unions[lane.id] = NOTHING
            busy.append(_busy(lane.id, NOTHING, low, high, 0))
            continue
        part = slices.part_of(lane.id)
        found = in_lane(part, lane.id, low, high)
        sets += found
        unions[lane.id] = covered(part, lane.id, low, high)
        busy.append(_busy(lane.id, unions[lane.id], low, high, sum(map(len, found))))
    sections: dict[tuple[str, str], list[Union]] = {}
    for lane in work:
        if lane.kind == "device" and lane.id in unions:
            sections.setdefault((lane.host, lane.process), []).append(unions[lane.id])
    return {
        "from": from_,
        "to": to,
        **_shares(slices, Sums(slices, sets), high - low),
        "lanes": busy,
        "idle": [
            {"process": process, "percent": 100 - _percent(Union.all(found).length, high - low)} for (_, process), found in sections.items()
        ]
        if high > low
        else [],
        "note": "",
    }


def many_info(slices: Slices, events: list[int]) -> dict[str, Any]:
    """A `RangeInfo` of some events: each counts whole, and the range is from the first start to the last end.

    Raises
    ------
    IndexError
        One of the events does not exist.
    """
    ids = np.unique(np.asarray(events, np.int64))
    if len(ids) and (ids[0] < 0 or ids[-1] >= len(slices)):
        raise IndexError(f"there is no event {int(ids[0] if ids[0] < 0 else ids[-1]):,}; there are {len(slices):,}")
    sets, lanes = [], []
    none = np.zeros(0, np.int64)
    start, duration = slices.starts(ids), slices.durations(ids)
    low, high = (int(start.min()), max(map(sum, zip(start.tolist(), duration.tolist(), strict=True)))) if len(ids) else (0, 0)
    for part in slices.parts:
        rows = ids[(ids >= part.first) & (ids < part.first + len(part.events))] - part.first
        sets.append(Rows(part, rows, none, none, none))
        lanes += _busy_lanes(part, rows, low, high)
    return {
        "from": slices.ns(low) if len(ids) else 0.0,
        "to": slices.ns(high) if len(ids) else 0.0,
        **_shares(slices, Sums(slices, sets), high - low),
        "lanes": lanes,
        "idle": [],
        "note": "",
    }


def _busy_lanes(part: Part, rows: Int64s, low: int, high: int) -> list[dict[str, Any]]:
    lane = part.events.lane[rows]
    out = []
    for i in np.unique(lane).tolist():
        mine = rows[lane == i]
        start = part.events.start[mine]
        out.append(_busy(i, Union.of(start, start + part.events.duration[mine], ordered=True), low, high, len(mine)))
    return out


def _busy(lane: int, union: Union, low: int, high: int, count: int) -> dict[str, Any]:
    time = union.length
    return {"lane": int(lane), "busy_ns": time / 1000, "percent": _percent(time, high - low), "count": int(count)}


def _percent(time: float, of: float) -> float:
    return 100 * float(time) / of if of > 0 else 0.0


def _shares(slices: Slices, sums: Sums, length: int) -> dict[str, Any]:
    """`shares`, `others` and `count` of a `RangeInfo`."""
    names = sums.names
    group, texts = _alike(slices.tracks.names[names.code])
    count = np.bincount(group, names.count, len(texts)).astype(np.int64)
    own = np.bincount(group, names.own, len(texts))
    total = np.bincount(group, names.total, len(texts))
    order = np.lexsort((np.arange(len(texts)), -count, -own))
    # One name more than fit gets its own line rather than one that sums up a single name.
    head, rest = (order, order[:0]) if len(order) <= MOST_NAMES + 1 else (order[:MOST_NAMES], order[MOST_NAMES:])
    shares = []
    longest = _longest(names, group, len(texts))
    for i in head.tolist():
        code = int(names.code[longest[i]])
        shares.append(
            {
                "name": str(texts[i])[:MOST_NAME],
                "fill": slices.fill(code),
                "count": int(count[i]),
                "self_ns": float(own[i]) / 1000,
                "total_ns": float(total[i]) / 1000,
                "percent": _percent(own[i], length),
                "longest": slices.ref(sums.longest(int(longest[i]))),
            }
        )
    others = {"names": len(rest), "count": int(count[rest].sum()), "self_ns": float(own[rest].sum()) / 1000} if len(rest) else None
    return {"shares": shares, "others": others, "count": sums.count}


def _alike(texts: npt.NDArray[np.object_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]:
    """For each name the place of its text among the different ones, and these: names may differ in full and be shown as one."""
    group, unique = pd.factorize(texts)
    return group, np.asarray(unique, object)


def _longest(names: ByName, group: npt.NDArray[np.intp], size: int) -> Int64s:
    """By text, the place in `names` of the code that has its longest event."""
    out = np.zeros(size, np.int64)
    order = np.lexsort((-np.arange(len(group)), names.longest))
    # The last assignment wins.
    out[group[order]] = order
    return out
