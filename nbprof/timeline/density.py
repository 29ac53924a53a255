"""Busy share of rows of the timeline, in equal bins of a time range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nbprof.activity.activity import CATEGORIES

if TYPE_CHECKING:
    from nbprof.core.trace import Int64s
    from nbprof.timeline.tracks import Tracks

STRIP = 2048
"""Parts of the strip above the timeline."""
_BLOCK = 1 << 20
_INPUT = CATEGORIES.index("input") + 1

Floats = npt.NDArray[np.float64]


class Density:
    """Time of events in each of `bins` equal parts of first…last, by row.

    An event's time up to x is max(0, x - start) - max(0, x - end); so it is enough to count, by
    part, where events start and end and how far from the part's end. That takes two sums an event,
    however many parts it covers.

    Parameters
    ----------
    rows, bins : int
    first, last : int
        ps. Times outside of these are clipped.
    """

    def __init__(self, rows: int, bins: int, first: int, last: int) -> None:
        self._shape = (rows, bins)
        self._first = first
        self._width = max(last - first, 1) / bins
        size = rows * (bins + 1)
        # Of all edges: how many lie in each part, and what they cover of it; starts count up, ends
        # down.
        self._edges = np.zeros(size)
        self._cover = np.zeros(size)

    def add(self, row: npt.NDArray[Any], start: Int64s, end: Int64s) -> None:
        """Adds events: their row, start and end in ps."""
        bins = self._shape[1]
        for offset in range(0, len(row), _BLOCK):
            part = slice(offset, offset + _BLOCK)
            base = row[part].astype(np.int64) * (bins + 1)
            begin = np.clip((start[part] - self._first) / self._width, 0.0, float(bins))
            finish = np.clip((end[part] - self._first) / self._width, 0.0, float(bins))
            of_begin, of_end = begin.astype(np.int64), finish.astype(np.int64)
            # Most events start and end in one part, where their two edges come to their length.
            covers = finish - begin
            far = np.flatnonzero(of_begin != of_end)
            covers[far] = of_begin[far] + 1 - begin[far]
            size = len(self._edges)
            self._cover += np.bincount(base + of_begin, weights=covers, minlength=size)
            if len(far):
                starts, ends = base[far] + of_begin[far], base[far] + of_end[far]
                self._edges += np.bincount(starts, minlength=size)
                self._edges -= np.bincount(ends, minlength=size)
                uncovered = of_end[far] + 1 - finish[far]
                self._cover -= np.bincount(ends, weights=uncovered, minlength=size)

    def shares(self) -> Floats:
        """Busy time by row and part as a share of the part; more than 1 where events of a row
        overlap. float64[rows, bins]
        """
        rows, bins = self._shape
        edges = self._edges.reshape(rows, bins + 1)
        open_ = np.cumsum(edges, axis=1) - edges
        return np.maximum(open_ + self._cover.reshape(rows, bins + 1), 0.0)[:, :bins]


def bytes_of(shares: Floats) -> npt.NDArray[np.uint8]:
    """Shares as 0…255, flat; 0 only for nothing, so that a lone short event is visible."""
    # Less than that is the rounding of sums that cancel out.
    levels = np.where(shares > 1e-9, np.clip(np.round(shares * 255), 1, 255), 0)
    return levels.astype(np.uint8).ravel()


def strip(tracks: Tracks) -> dict[str, Any]:
    """The profile in `STRIP` parts: input above, and below it the device or, without one, the host.

    Of a device only the lanes count that hold its work itself, of a lane only the outermost events;
    what several lanes do at once counts once.

    Returns
    -------
    dict
        `above`, `below`: uint8[STRIP]; `below_is`: "device" or "host".
    """
    counted, work = np.zeros((2, tracks.lane_ids), np.bool_)
    by_kind: dict[str, list[int]] = {"device": [], "host": []}
    for lane in tracks.lanes:
        if lane.events and not lane.derived and lane.kind in by_kind:
            by_kind[lane.kind].append(lane.id)
    below_is, threads = "device", 1
    if not by_kind["device"]:
        below_is, threads = "host", max(len(by_kind["host"]), 1)
    work[by_kind[below_is]] = True
    work[list(repeats(tracks))] = False
    counted[by_kind["device"] + by_kind["host"]] = True
    above = Density(1, STRIP, tracks.origin, tracks.end)
    below = Density(1, STRIP, tracks.origin, tracks.end)
    for events in (tracks.events, tracks.extra):
        for offset in range(0, len(events), _BLOCK):
            part = slice(offset, offset + _BLOCK)
            lane_of, start = events.lane[part], events.start[part]
            end = start + events.duration[part]
            is_input = tracks.category[events.name[part]] == _INPUT
            input_ = np.flatnonzero(is_input & counted[lane_of])
            outer = np.flatnonzero(work[lane_of] & (events.depth[part] == 0))
            for rows, into in ((input_, above), (outer, below)):
                into.add(np.zeros(len(rows), np.int8), start[rows], end[rows])
    return {
        "above": bytes_of(above.shares()),
        "below": bytes_of(below.shares() / threads),
        "below_is": below_is,
    }


def repeats(tracks: Tracks) -> set[int]:
    """Lanes of a device that repeat its lanes of work by op, module or name scope."""
    further: dict[tuple[str, str], set[int]] = {}
    with_work: set[tuple[str, str]] = set()
    for lane in tracks.lanes:
        if lane.kind != "device":
            continue
        device, name = (lane.host, lane.process), lane.name.lower()
        if name.startswith("stream") or name == "xla ops":
            with_work.add(device)
        else:
            further.setdefault(device, set()).add(lane.id)
    repeated: set[int] = set()
    for device in with_work:
        repeated |= further.get(device, set())
    return repeated
