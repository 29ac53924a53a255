"""Which slices the events of a Chrome trace make up: complete ones, begins with their ends, async
chains, instants.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace
Event Format").
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from nbprof.core.receipt import Receipt
from nbprof.core.trace import TEXT, Int64s
from nbprof.formats import notes as shared_notes
from nbprof.formats.chrome import notes
from nbprof.formats.chrome.part import GOOD, Part, Rows
from nbprof.formats.times import LONGEST_NS, far_from_middle

_HOUR = 3600 * 10**9


def letters(*phases: str) -> list[int]:
    """Phases as numbers."""
    return [ord(p) for p in phases]


@dataclass
class Slices:
    """Slices of one file: `row` of the event that begins each, `track` (its lane, as a number),
    `time` int64 ps after the file's first moment, `duration` int64 ps, `instant` bool; `ends` maps
    rows of ending events to the slice's own row.
    """

    row: Int64s
    track: Int64s
    time: Int64s
    duration: Int64s
    instant: np.ndarray
    ends: dict[int, int]


def clock(part: Part, used: np.ndarray, receipt: Receipt) -> tuple[int, np.ndarray]:
    """The ns at which the file's events begin, and which of them lie in one stretch of time with
    the others.

    Times are left out with a line in the receipt: zeros where all else is years later, and what
    lies over a week from the middle.
    """
    state = part.start.state
    good = used & (state == GOOD)
    absent, invalid = int((used & (state == 0)).sum()), int((used & (state > GOOD)).sum())
    receipt.skip(notes.NO_TIME, absent, key="events_without_time")
    receipt.skip(notes.INVALID_TIME, invalid, key="invalid_times")
    rows = np.flatnonzero(good)
    if not len(rows):
        return 0, good
    times = part.start.ns[rows]
    zero = (times == 0) & (part.start.ps[rows] == 0)
    if zero.any() and not zero.all():
        rest = times[~zero]
        low, high = int(rest.min()), int(rest.max())
        if low > _HOUR and low > 10 * (high - low):
            receipt.skip(notes.LOST_TIME, int(zero.sum()), key="lost_times")
            good[rows[zero]] = False
            rows, times = rows[~zero], rest
        elif zero.sum() > 1:
            receipt.add(notes.zero_times(int(zero.sum())))
    elif len(rows) > 1 and zero.all():
        receipt.add(notes.all_times_zero())
    far = far_from_middle(times)
    if far.any():
        receipt.skip(shared_notes.FAR_EVENTS, int(far.sum()), key="far_events")
        good[rows[far]] = False
        times = times[~far]
    return int(times.min()), good


def relative(part: Part, rows: Int64s, first: int) -> Int64s:
    """Times of events in ps after a moment in ns."""
    return (part.start.ns[rows] - first) * 1000 + part.start.ps[rows]


def complete(part: Part, rows: Int64s, receipt: Receipt) -> tuple[Int64s, Int64s]:
    """Rows and durations (ps) of complete events; durations that can't be are dealt with."""
    state = part.length.state[rows]
    bad = state > GOOD
    receipt.skip(notes.INVALID_DURATION, int(bad.sum()), key="invalid_durations")
    missing = int((state == 0).sum())
    if missing:
        receipt.add(notes.no_duration(missing))
    rows = rows[~bad]
    long = part.length.ns[rows] > LONGEST_NS
    receipt.skip(shared_notes.LONG_DURATIONS, int(long.sum()), key="long_durations")
    rows = rows[~long]
    negative = part.length.ns[rows] < 0
    if negative.any():
        receipt.add(shared_notes.negative_durations(int(negative.sum())))
    duration = np.where(
        negative, 0, part.length.ns[rows] * np.where(negative, 0, 1) * 1000 + part.length.ps[rows]
    )
    return rows, duration.astype(np.int64)


def pair(
    order: Iterable[int],
    key: Callable[[int], object],
    begins: np.ndarray,
    name: np.ndarray,
    *,
    by_name: bool,
) -> tuple[list[tuple[int, int]], list[int], int]:
    """Begins with their ends.

    Parameters
    ----------
    order : rows in order of time
    key : what a begin and its end have in common
    begins : bool by row
    name : int by row
    by_name : whether an end closes the last open begin of its own name rather than the last one

    Returns
    -------
    pairs (begin, end), begins without an end, number of ends without a begin
    """
    stacks: dict[object, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    lost = 0
    for row in order:
        stack = stacks.setdefault(key(row), [])
        if begins[row]:
            stack.append(row)
            continue
        index = len(stack) - 1
        if by_name:
            while index >= 0 and name[stack[index]] != name[row]:
                index -= 1
        if index < 0:
            lost += 1
            continue
        pairs.append((stack.pop(index), row))
    return pairs, [row for stack in stacks.values() for row in stack], lost


def packed(chains: list[tuple[int, int, object]]) -> dict[object, int]:
    """Which sub-lane each chain gets, so that chains that overlap in time lie on different ones.

    Parameters
    ----------
    chains : (first moment, last moment, key)
    """
    result: dict[object, int] = {}
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = 0
    for start, end, key in sorted(chains, key=lambda c: (c[0], c[1])):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, lanes = lanes, lanes + 1
        result[key] = lane
        heapq.heappush(busy, (end, lane))
    return result


def dense(rows: Rows | None, count: int, *, text: bool = False) -> Int64s:
    """The value of a key by row of the part, -1 where absent: text codes, or integers."""
    result = np.full(count, -1, np.int64)
    if rows is not None:
        fits = (rows.kind == TEXT) == text
        result[rows.event[fits]] = rows.value[fits]
    return result
