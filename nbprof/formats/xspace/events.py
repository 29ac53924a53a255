"""Events and their stats, decoded in lockstep along the shapes that they share.

The events of a plane have few shapes: the sequence of fields, and which stat each carries. All
events of a batch set out together; at each field they are held against the shape of the first of
them (tag, stat id and type in one 64-bit comparison), and those of another shape go on as a group
of their own. Within a group the same numpy call reads the same field of every event. What has no
common shape, or does not fit it to the byte, is left to `general`, which knows everything the
format allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nbprof.core.trace import Int32s, Int64s
from nbprof.core.wire import Words, word_varints

# Groups smaller than this cost more in numpy calls than they take as part of everything that is
# left over.
FEW = 96
_MOST_SHAPES = 48

# Fields of an event, by tag: metadata_id, offset_ps, duration_ps.
_PLACES = {0x08: 0, 0x10: 1, 0x18: 2}
_STAT_TAG = 0x22
DOUBLE_TAG, UINT_TAG, INT_TAG, TEXT_TAG, BYTES_TAG, REF_TAG = 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38
_STAT_TAGS = (DOUBLE_TAG, UINT_TAG, INT_TAG, TEXT_TAG, BYTES_TAG, REF_TAG)


def _u(value: int) -> np.uint64:
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


_BYTE = _u(8)
# Farther on than any file goes.
_FAR = _u(1 << 40)


@dataclass
class Stats:
    """One stat of many events: its id and type, the events (rows of the batch) and the values.

    `value` is the number, the bits of a double, the id that a ref points to, or for texts and bytes
    where the content starts; then `length` is its length in bytes.
    """

    ident: int
    tag: int
    row: Int32s
    value: Words
    length: Int64s | None = None


@dataclass
class Decoded:
    """The events of a batch. Those whose row is in `left` are not decoded, and no stat of theirs is
    in `stats`.
    """

    meta: Int64s
    offset: Int64s
    duration: Int64s
    stats: list[Stats] = field(default_factory=list)
    left: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))


def decode(words: Words, start: Int64s, stop: Int64s) -> Decoded:
    """Decodes the events whose contents are at `start` to `stop`.

    Parameters
    ----------
    words : uint64[n + 9]
        From `words_of`.
    start, stop : int64[events]
    """
    count = len(start)
    # Three arrays, not one of three rows: they are not needed for equally long.
    places = (np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64))
    decoded = Decoded(*places)
    left: list[Int32s] = []
    groups = [(np.arange(count, dtype=np.int32), start, stop)]
    while groups:
        rows, pos, end = groups.pop()
        unread = pos < end
        if not unread.all():
            # Only here an event is held against its end: one that ran over it read its neighbour's
            # bytes, and is left.
            over = pos > end
            if over.any():
                left.append(rows[over])
            rows, pos, end = rows[unread], pos[unread], end[unread]
        shapes = 0
        while len(rows):
            if len(rows) < FEW or shapes == _MOST_SHAPES:
                left.append(rows)
                break
            shapes += 1
            word = words[pos]
            shape = _shape(int(word[0]))
            alike = (word & shape.mask) == shape.pattern
            if alike.all():
                matching, rest = (rows, pos, end, word), (rows[:0], pos, end)
            else:
                hit, miss = np.flatnonzero(alike), np.flatnonzero(~alike)
                matching, rest = (
                    (rows[hit], pos[hit], end[hit], word[hit]),
                    (rows[miss], pos[miss], end[miss]),
                )
            if shape.skip == 0 or len(matching[0]) < FEW:
                left.append(matching[0])
            else:
                rows, pos, end, wrong = _field(words, shape, *matching, places, decoded.stats)
                if len(wrong):
                    left.append(wrong)
                groups.append((rows, pos, end))
            rows, pos, end = rest
    if left:
        _leave(decoded, np.concatenate(left), count)
    return decoded


@dataclass(frozen=True)
class _Shape:
    """What the first eight bytes of a field have in common. `skip` is where its value begins; 0 for
    none that is known here.
    """

    mask: np.uint64
    pattern: np.uint64
    skip: int
    place: int = -1
    ident: int = 0
    tag: int = 0
    head: int = 0
    """Bytes of a stat's tag and length."""


def _shape(word: int) -> _Shape:
    data = word.to_bytes(8, "little")
    first_place = _PLACES.get(data[0])
    if first_place is not None:
        return _Shape(_u(0xFF), _u(data[0]), 1, first_place)
    head = 3 if data[1] >= 0x80 else 2
    if data[0] == _STAT_TAG and data[head - 1] < 0x80 and data[head] == 0x08:
        offset, ident = head + 1, 0
        while offset < 7 and data[offset] >= 0x80:
            offset += 1
        if offset < 7 and data[offset + 1] in _STAT_TAGS:
            for i, byte in enumerate(data[head + 1 : offset + 1]):
                ident |= (byte & 0x7F) << 7 * i
            mask = bytes(
                [0xFF] + [0x80] * (head - 1) + [0xFF] * (offset + 2 - head) + [0] * (6 - offset)
            )
            bits = int.from_bytes(mask, "little")
            return _Shape(_u(bits), _u(bits & word), offset + 2, -1, ident, data[offset + 1], head)
    return _Shape(_u(0xFFFF), _u(word & 0xFFFF), 0)


def _field(
    words: Words,
    shape: _Shape,
    rows: Int32s,
    pos: Int64s,
    end: Int64s,
    word: Words,
    places: tuple[Int64s, Int64s, Int64s],
    stats: list[Stats],
) -> tuple[Int32s, Int64s, Int64s, Int32s]:
    """Reads one field of events of one shape; returns the rows behind it, and those that did not
    fit.
    """
    length: Int64s | None = None
    if shape.tag == DOUBLE_TAG:
        value, after = words[pos + shape.skip], pos + (shape.skip + 8)
    else:
        value, after = _varints_in(word, shape.skip, pos) or word_varints(words, pos + shape.skip)
    if shape.place >= 0:
        places[shape.place][rows] = value.view(np.int64)
        return rows, after, end, rows[:0]
    if shape.tag in (TEXT_TAG, BYTES_TAG):
        # A length that is far over the end must not go round.
        content, length = after, np.minimum(value, _FAR).view(np.int64)
        after, value = content + length, content.view(np.uint64)
    size = word >> _BYTE
    size &= _u(0x7F)
    if shape.head == 3:
        size |= ((word >> _u(16)) & _u(0x7F)) << _u(7)
    size += _u(shape.head)
    size += pos.view(np.uint64)
    right = size.view(np.int64) == after
    wrong = rows[:0]
    if not right.all():
        fits = np.flatnonzero(right)
        wrong = rows[~right]
        rows, after, end, value = rows[fits], after[fits], end[fits], value[fits]
        length = length[fits] if length is not None else None
    if len(rows):
        stats.append(Stats(shape.ident, shape.tag, rows, value, length))
    return rows, after, end, wrong


def _varints_in(word: Words, skip: int, pos: Int64s) -> tuple[Words, Int64s] | None:
    """Varints from the byte `skip` on of words that are read already; None where one of them may go
    on behind its word.

    Nearly all values of stats are below 128, or 16384 at least.
    """
    limit = 8 - skip
    if limit < 1:
        return None
    value = word >> _u(8 * skip)
    if not int(np.bitwise_or.reduce(value)) & 0x80:
        value &= _u(0x7F)
        return value, pos + (skip + 1)
    more = value & _u(0x80)
    if limit < 2 or int(np.bitwise_or.reduce(value & (more << _BYTE))) & 0x8000:
        return None
    # One byte or two: what is behind the first is taken only where that one says so.
    more >>= _u(7)
    second = value >> _u(8)
    second &= _u(0x7F)
    second *= more
    second <<= _u(7)
    value &= _u(0x7F)
    value |= second
    after = more.view(np.int64) + (skip + 1)
    after += pos
    return value, after


def _leave(decoded: Decoded, rows: Int32s, count: int) -> None:
    """Takes rows back that turned out to be of no common shape."""
    gone = np.zeros(count, np.bool_)
    gone[rows] = True
    decoded.left = np.flatnonzero(gone)
    for column in (decoded.meta, decoded.offset, decoded.duration):
        column[decoded.left] = 0
    for stats in decoded.stats:
        keep = ~gone[stats.row]
        if not keep.all():
            stats.row, stats.value = stats.row[keep], stats.value[keep]
            stats.length = stats.length[keep] if stats.length is not None else None
    decoded.stats = [s for s in decoded.stats if len(s.row)]
