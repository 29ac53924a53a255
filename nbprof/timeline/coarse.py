"""Long rows in bins of some dozens of events, built once and read for tiles of coarser levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nbprof.core.trace import Int32s, Int64s
from nbprof.timeline.bins import LEVELS, TILE
from nbprof.timeline.blocks import Blocks

EVENTS = 32
"""Events of a bin, on average."""

LEAST = 4096
"""The fewest events of a row that gets such bins."""

_LAST = 2**63 - 1


@dataclass
class Coarse:
    """The bins of a row.

    Attributes
    ----------
    level : int
        A bin is 2**level ns.
    first : int
        Number of the first bin, from the origin of the profile.
    bounds : int32[bins + 1]
        The first position of each bin, and the one behind the last.
    sums : int64[bins + 1]
        Durations of all events before each bin, ps; beyond int64 they wrap around, which
        differences do not.
    longest : int32[bins]
        Position of the longest event that starts in a bin, of equals the first; -1 where none does.
    """

    level: int
    first: int
    bounds: Int32s
    sums: Int64s
    longest: Int32s

    @classmethod
    def from_row(
        cls, blocks: Blocks, index: int, stop: int, flat: bool, origin: int
    ) -> Coarse | None:
        """The bins of the row of positions index…stop; None for a short row."""
        start = blocks.stack.events.start
        if stop - index < LEAST:
            return None
        ends = np.array([index, stop - 1])
        begin, last = start[ends if flat else blocks.stack.order[ends]].tolist()
        level = max(((last - begin) * EVENTS // ((stop - index) * 1000)).bit_length(), 0)
        width = 1000 << level
        first = (begin - origin) // width
        count = (last - origin) // width - first + 1
        if level > LEVELS[1] or origin + (first + count) * width > _LAST:
            return None
        edges = origin + (first + np.arange(count + 1)) * width
        starts = start[index:stop] if flat else start.take(blocks.stack.order[index:stop])
        bounds = index + np.searchsorted(starts, edges)
        filled = np.flatnonzero(bounds[1:] > bounds[:-1])
        low, high = bounds[:-1].take(filled), bounds[1:].take(filled)
        sums, longest = np.zeros(count + 1, np.int64), np.full(count, -1, np.int32)
        sums[1 + filled] = blocks.sums(low, high, flat)
        longest[filled] = blocks.longest(low, high - 1, flat)
        return cls(level, first, bounds.astype(np.int32), np.cumsum(sums), longest)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.bounds.nbytes + self.sums.nbytes + self.longest.nbytes

    def tile(
        self, blocks: Blocks, flat: bool, level: int, tile: int
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Bounds (int64[513]), sums (ps) and longest events' positions of the 512 bins of a tile.

        The tile's level is that of these bins or coarser.
        """
        finer = level - self.level
        count = len(self.longest)
        low = (tile * TILE << finer) - self.first
        # Far out a tile holds far more bins than the row has.
        if finer > 40:
            edges = np.array([min(max(low + (k << finer), 0), count) for k in range(TILE + 1)])
        else:
            edges = self._edges(low, finer)
        longest = np.zeros(TILE, np.int64)
        bins = np.flatnonzero(edges[1:] > edges[:-1])
        if len(bins):
            begin, size = edges.take(bins) - edges[0], edges.take(bins + 1) - edges.take(bins)
            positions = self.longest[edges[0] : edges[-1]].astype(np.int64)
            # An empty bin reads the first position of its row: the order of other lanes may be
            # unwritten.
            events = blocks.event(np.where(positions < 0, self.bounds[0], positions), flat)
            length = np.where(positions < 0, -1, blocks.stack.events.duration.take(events))
            largest = np.maximum.reduceat(length, begin)
            best = np.flatnonzero(length == np.repeat(largest, size))
            longest[bins] = positions.take(best.take(np.searchsorted(best, begin)))
        return self.bounds.take(edges).astype(np.int64), np.diff(self.sums.take(edges)), longest

    def _edges(self, low: int, finer: int) -> Int64s:
        edges: Int64s = np.clip(low + (np.arange(TILE + 1) << finer), 0, len(self.longest))
        return edges
