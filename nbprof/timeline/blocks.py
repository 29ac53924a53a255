"""Sum and longest event of any range of a row in constant time, from a few bytes an event.

Positions (see `Stack`) are grouped by eight, these blocks by eight again, and so on. Each position
has a byte: the bits of the earlier ones in its block that are longer than all between them and it.
The lowest bit from another position on is the longest of the range between the two (J. Fischer,
V. Heun: Space-Efficient Preprocessing Schemes for Range Minimum Queries on Static Arrays, 2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.quiet import thread_pool
from nbprof.core.trace import Int32s, Int64s
from nbprof.timeline.levels import Stack

_SAMPLE = 64
_CHUNK = 1 << 16
_LOWEST = np.array([0] + [(n & -n).bit_length() - 1 for n in range(1, 256)], np.uint8)

Bytes = npt.NDArray[np.uint8]


class Blocks:
    """Sums and longest events of the blocks of a table.

    Attributes
    ----------
    sample : int64[ceil(n / step)]
        Start of every `step`th position, ps, to find times in without a look at the events.
    """

    step = _SAMPLE

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        count = len(stack.level)
        blocks = -(-count // 8)
        self._start, self._duration = stack.events.start, stack.events.duration
        self._order = stack.order
        self.sample = np.empty(-(-count // _SAMPLE), np.int64)
        masks = np.empty(blocks * 8, np.uint8)
        longest, sums = np.empty(blocks, np.int64), np.zeros(blocks + 1, np.int64)

        def fill(block: int) -> None:
            ids = self._ids(block, min(block + _CHUNK, count))
            samples = slice(block // _SAMPLE, -(-(block + len(ids)) // _SAMPLE))
            self.sample[samples] = self._start[ids[::_SAMPLE]]
            length = np.full(-(-len(ids) // 8) * 8, -1, np.int64)
            np.take(self._duration, ids, out=length[: len(ids)])
            part = slice(block // 8, block // 8 + len(length) // 8)
            masks[block : block + len(length)], longest[part] = _masks(length)
            # Behind the last event no more than a block is padded.
            sums[1:][part] = length.reshape(-1, 8).sum(axis=1)

        with thread_pool() as pool:
            list(pool.map(fill, range(0, count, _CHUNK)))
        if count:
            sums[-1] += blocks * 8 - count
        # Beyond int64 the sums wrap around; the difference of two of a row does not.
        self._sums = np.cumsum(sums)
        self._masks: list[Bytes] = [masks]
        self._longest_of: list[Int64s] = []
        while len(longest) > 1:
            padded = np.append(longest, np.full(-len(longest) % 8, -1))
            masks, longest = _masks(padded)
            self._masks.append(masks)
            self._longest_of.append(longest)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        parts: list[npt.NDArray[Any]] = [self.sample, self._sums, *self._masks, *self._longest_of]
        return sum(part.nbytes for part in parts)

    def _ids(self, index: int, stop: int) -> Int32s:
        """Events of positions."""
        bounds, flat = self.stack.bounds, self.stack.flat
        ids = np.empty(stop - index, np.int32)
        k = int(np.searchsorted(bounds, index, side="right")) - 1
        while index < stop:
            until = min(int(bounds[k + 1]), stop)
            part = slice(len(ids) - (stop - index), len(ids) - (stop - until))
            ids[part] = np.arange(index, until) if flat[k] else self._order[index:until]
            index, k = until, k + 1
        return ids

    def event(self, position: Int64s, flat: bool) -> npt.NDArray[np.integer]:
        """Events of positions, all on flat lanes or all on other lanes."""
        return position if flat else self._order.take(position)

    def sums(self, first: Int64s, stop: Int64s, flat: bool) -> Int64s:
        """Sum of the durations of each range of a row, ps; `stop` is excluded."""
        aligned, rest = (first + 7) & ~7, stop & ~7
        result: Int64s = np.where(
            aligned < rest,
            self._sums.take(rest >> 3) - self._sums.take(np.minimum(aligned, rest) >> 3),
            0,
        )
        # The ends before the first complete block and after the last; a block may hold positions of
        # another row, which do not count.
        head = np.minimum(aligned, stop)
        tail = np.maximum(rest, head)
        index = np.stack([first, tail], axis=1).ravel()
        size = np.stack([head - first, stop - tail], axis=1).ravel()
        until = np.cumsum(size)
        single = np.arange(int(until[-1]) if len(until) else 0)
        single += np.repeat(index - (until - size), size)
        sums = np.append(0, np.cumsum(self._duration.take(self.event(single, flat))))
        result += np.diff(sums.take(until[1::2]), prepend=0)
        return result

    def longest(self, first: Int64s, last: Int64s, flat: bool) -> Int64s:
        """Position of the first longest event of each range of a row; both ends are included."""
        return self._longest(0, first, last, flat)

    def _longest(self, level: int, first: Int64s, last: Int64s, flat: bool) -> Int64s:
        masks = self._masks[level]
        base = last & ~7
        within = first >= base
        best: Int64s = np.where(within, first, base)
        best += _LOWEST.take(masks.take(last) >> (best & 7).astype(np.uint8))
        far = np.flatnonzero(~within)
        if not len(far):
            return best
        first, last, right = first.take(far), last.take(far), best.take(far)
        length = self._length(level, right, flat)
        middle = np.flatnonzero((last >> 3) - (first >> 3) > 1)
        if len(middle):
            block = self._longest(
                level + 1, (first.take(middle) >> 3) + 1, (last.take(middle) >> 3) - 1, flat
            )
            item = self._longest_item(level, block)
            other = self._length(level, item, flat)
            wins = np.flatnonzero(other >= length.take(middle))
            middle = middle.take(wins)
            right[middle], length[middle] = item.take(wins), other.take(wins)
        left = first + _LOWEST.take(masks.take(first | 7) >> (first & 7).astype(np.uint8))
        best[far] = np.where(self._length(level, left, flat) >= length, left, right)
        return best

    def _longest_item(self, level: int, block: Int64s) -> Int64s:
        """The longest item of a block of eight of a level."""
        item: Int64s = block * 8
        item += _LOWEST.take(self._masks[level].take(item + 7))
        return item

    def _length(self, level: int, item: Int64s, flat: bool) -> Int64s:
        """Duration of the longest event of an item, ps."""
        if level > 1:
            return self._longest_of[level - 2].take(item)
        if level:
            item = self._longest_item(0, item)
        result: Int64s = self._duration.take(self.event(item, flat))
        return result


def _masks(values: Int64s) -> tuple[Bytes, Int64s]:
    """For each value the bits of those of its eight that are no less than any from there to it,
    itself included; and the largest of each eight.
    """
    columns = np.ascontiguousarray(values.reshape(-1, 8).T)
    result = np.empty((columns.shape[1], 8), np.uint8)
    bits = np.zeros((8, columns.shape[1]), np.uint8)
    for k in range(8):
        for earlier in range(k):
            bits[earlier] *= columns[earlier] >= columns[k]
        bits[k] = 1 << k
        result[:, k] = np.bitwise_or.reduce(bits[: k + 1], axis=0)
    return result.reshape(-1), columns.max(axis=0)
