"""Tiles of counters: the least and greatest value in each bin of time, and the last."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import NbprofError
from nbprof.core.trace import Int64s
from nbprof.timeline.bins import Bins, since
from nbprof.timeline.tracks import Counter, Tracks

COLUMNS = (("lane", "u4"), ("tile", "f8"), ("t", "f4"), ("low", "f8"), ("high", "f8"), ("last", "f8"))


def counter_tiles(tracks: Tracks, bins: Bins, want: list[tuple[int, int, int, int, int]], most: int) -> dict[str, npt.NDArray[Any]]:
    """Columns over the bins of the wanted tiles, in the order of time: lane, tile, t (where the bin starts, ns from the tile's start),
    low, high and last value.

    A value holds until the next sample. So the one that a bin starts with counts in it, too, and a bin without a sample has but that one.
    The first bin is that of the first sample, the last that of the end of the profile.

    Raises
    ------
    NbprofError
        More than `most` tiles are wanted.
    """
    by_id = {counter.id: counter for counter in tracks.counters}
    parts: list[list[npt.NDArray[Any]]] = []
    count = 0
    for lane, _, _, tile, tile_to in want:
        counter = by_id.get(lane)
        if counter is None or not len(counter.time):
            continue
        first, end = int(counter.time[0]), max(int(counter.time[-1]), tracks.end)
        some = bins.clip(tile, tile_to, first, end)
        count += len(some)
        if count > most:
            raise NbprofError(f"More than {most:,} tiles of counters are wanted at once; ask for fewer rows or a coarser level.")
        if len(some):
            parts.append(_tiles(counter, bins, np.array(some), end))
    return {
        name: np.concatenate([part[i] for part in parts], dtype=kind, casting="unsafe") if parts else np.zeros(0, kind)
        for i, (name, kind) in enumerate(COLUMNS)
    }


def _tiles(counter: Counter, bins: Bins, tile: Int64s, end: int) -> list[npt.NDArray[Any]]:
    """The columns of tiles that follow one another."""
    start = np.array([bins.start(k) for k in tile.tolist()])
    edges, beyond = bins.edges(start)
    bounds = np.searchsorted(counter.time, edges)
    if beyond is not None:
        bounds[beyond] = len(counter.time)
    # From the bin of the first sample to that of the end.
    shown = (bounds[:, 1:] > 0) & (edges[:, :-1] <= end)
    if beyond is not None:
        shown &= ~beyond[:, :-1]
    first, stop, begin = bounds[:, :-1][shown], bounds[:, 1:][shown], edges[:, :-1][shown]
    held = first > 0
    low = np.where(held, counter.value[first - 1], np.inf)
    high = np.where(held, counter.value[first - 1], -np.inf)
    filled = np.flatnonzero(stop > first)
    if len(filled):
        # Bins with samples lie side by side: each ends where the next one starts.
        values, at = counter.value[first[filled[0]] : stop[filled[-1]]], first[filled] - first[filled[0]]
        # A sample at a bin's very start leaves nothing of the value before.
        anew = counter.time[first[filled]] <= begin[filled]
        low[filled] = np.fmin(np.where(anew, np.inf, low[filled]), np.fmin.reduceat(values, at))
        high[filled] = np.fmax(np.where(anew, -np.inf, high[filled]), np.fmax.reduceat(values, at))
    size = shown.sum(axis=1)
    times = since(begin, np.repeat(start, size))
    return [np.full(len(first), counter.id), np.repeat(tile, size), times, low, high, counter.value[stop - 1]]
