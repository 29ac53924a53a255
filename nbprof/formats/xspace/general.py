"""Events, stats and names in whatever shape the format allows: fields in any order, repeated,
unknown, missing.

For what the compiled reader leaves, all events where it is missing, and the messages that are few.
Where a field comes twice the last one counts, and of the fields that exclude each other (protobuf's
oneof) the last one, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.wire import LENGTH, VARINT, Int64s

# Fields of a stat, by tag.
DOUBLE_TAG, UINT_TAG, INT_TAG, TEXT_TAG, BYTES_TAG, REF_TAG = 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38

# In how many messages an event and its stats lie: space, plane, line, event.
EVENT_DEPTH, STAT_DEPTH = 3, 4


@dataclass
class StatRows:
    """Stats in the order of the file: the message that holds each, its id, the tag of its value (0:
    none) and the value.

    `value` is the number, the bits of a double, the id that a ref points to, or where a text or
    bytes begin; `end` is where they end. `hidden` are the spans of texts that do not count because
    another value comes behind them.
    """

    owner: Int64s
    ident: Int64s
    tag: npt.NDArray[np.uint8]
    value: Int64s
    end: Int64s
    hidden: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class EventRows:
    """Events as columns; `occurrences` is -1 for an event that has a place in time (an event that
    has a count has none).
    """

    meta: Int64s
    offset: Int64s
    duration: Int64s
    occurrences: Int64s
    has_count: npt.NDArray[np.bool_]
    stats: StatRows


def events(buf: wire.Bytes, start: Int64s, end: Int64s) -> EventRows:
    """The events whose contents are at `start` to `end`.

    Raises
    ------
    ReadError
        A field does not fit its message.
    """
    count = len(start)
    meta, offset, duration, occurrences = (np.zeros(count, np.int64) for _ in range(4))
    placed, counted = np.full(count, -1), np.full(count, -1)
    stats = None
    for column in wire.columns(buf, start, end, EVENT_DEPTH):
        if column.kind == VARINT and column.number in (1, 2, 3, 5):
            (meta, offset, duration, occurrences)[(1, 2, 3, 5).index(column.number)][
                column.message
            ] = column.value
            if column.number == 2:
                placed[column.message] = column.end
            elif column.number == 5:
                counted[column.message] = column.end
        elif column.kind == LENGTH and column.number == 4:
            stats = column
    has_count = counted > placed
    offset[has_count] = 0
    occurrences[~has_count] = -1
    return EventRows(
        meta, offset, duration, occurrences, has_count, stat_rows(buf, stats, STAT_DEPTH)
    )


def stat_rows(buf: wire.Bytes, column: wire.Field | None, depth: int) -> StatRows:
    """The stats that a field of many messages holds, message by message.

    Raises
    ------
    ReadError
        A field does not fit its message.
    """
    if column is None:
        empty = np.zeros(0, np.int64)
        return StatRows(empty, empty, empty.astype(np.uint8), empty, empty)
    order = np.lexsort((column.value, column.message))
    return stats(buf, column.message[order], column.value[order], column.end[order], depth)


def stats(buf: wire.Bytes, owner: Int64s, start: Int64s, end: Int64s, depth: int) -> StatRows:
    """The stats whose contents are at `start` to `end`.

    Raises
    ------
    ReadError
        A field does not fit its message.
    """
    count = len(start)
    ident, value, stop, seen = (np.zeros(count, np.int64) for _ in range(4))
    tag = np.zeros(count, np.uint8)
    texts: wire.Field | None = None
    for column in wire.columns(buf, start, end, depth):
        field_tag = column.number << 3 | column.kind
        if field_tag == TEXT_TAG:
            texts = column
        if field_tag == 0x08:
            ident[column.message] = column.value
        elif field_tag in (DOUBLE_TAG, UINT_TAG, INT_TAG, TEXT_TAG, BYTES_TAG, REF_TAG):
            # Within a column later fields of a message come later, and numpy keeps the last of
            # several assignments.
            last = np.zeros(count, np.int64)
            last[column.message] = column.end
            rows = np.flatnonzero(
                (column.end == last[column.message]) & (column.end > seen[column.message])
            )
            index = column.message[rows]
            seen[index] = column.end[rows]
            tag[index] = field_tag
            if field_tag == DOUBLE_TAG:
                value[index] = wire.fixed64(buf, column.value[rows])
            else:
                value[index] = column.value[rows]
            stop[index] = column.end[rows]
    result = StatRows(owner, ident, tag, value, stop)
    if texts is not None:
        hidden = (tag[texts.message] != TEXT_TAG) | (value[texts.message] != texts.value)
        result.hidden = list(
            zip(texts.value[hidden].tolist(), texts.end[hidden].tolist(), strict=True)
        )
    return result


def last_of(column: wire.Field, count: int) -> tuple[Int64s, Int64s]:
    """Start and end of the last content of a field, for each of `count` messages; 0 and 0 where it
    has none.
    """
    order = np.argsort(column.value, kind="stable")
    start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    start[column.message[order]] = column.value[order]
    end[column.message[order]] = column.end[order]
    return start, end
