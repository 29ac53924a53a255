"""The protobuf wire format as numpy columns.

Many messages of one kind are read by the compiled reader (`native/wire.c`). What that does not read
is walked in lockstep: one numpy call reads the next field of every message that still has one, so
the cost is a few calls per *field*, not per message. Every length is
checked against the message around it; a wrong one raises `ReadError` with its byte. The rules are
those of protobuf's parser (upb): tags and lengths have at most five bytes, numbers at most ten, and
groups, which are obsolete, are skipped, nested up to 100 deep.

Source of the format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import ReadError
from nbprof.native import library
from nbprof.native import wire as native

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Data = Sequence[int]
"""bytes or a memoryview of them"""

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5

# A varint has at most ten bytes, so this much zero padding makes every read in bounds; lengths are
# checked afterwards.
PADDING = 16
MOST_NESTED = 100
_MOST_TAG = (1 << 32) - 1
_MOST_LENGTH = (1 << 31) - 1
# Fewer messages are walked field by field, which is faster than a round of numpy calls.
_FEW_MESSAGES = 32


class CutError(ReadError):
    """The bytes end inside a field: the file is truncated, or a length is wrong."""


def buffer(data: bytes) -> Bytes:
    """Bytes as a numpy array, padded so that a varint can be read at its very end."""
    padded = np.zeros(len(data) + PADDING, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    return padded


def read_varint(data: Data, pos: int, end: int) -> tuple[int, int]:
    """One varint as an unsigned number, and the position after it."""
    value = shift = 0
    start = pos
    while True:
        if pos >= end:
            raise CutError("the data ends inside a number", offset=pos)
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, pos
        shift += 7
        if shift >= 70:
            raise ReadError(
                "a number has more than ten bytes; this is not a protobuf file", offset=start
            )


def signed(value: int) -> int:
    """An unsigned 64-bit number read as int64 (two's complement)."""
    return value - (1 << 64) if value >= 1 << 63 else value


def read_tag(data: Data, pos: int, end: int, least: int = 1) -> tuple[int, int, int]:
    """Field number (`least` or more), wire type and the position after them."""
    tag, after = read_varint(data, pos, end)
    if after - pos > 5 or tag > _MOST_TAG:
        raise ReadError("a field number is too large; this is not a protobuf file", offset=pos)
    if tag >> 3 < least:
        raise ReadError("field number 0 is not valid protobuf", offset=pos)
    return tag >> 3, tag & 7, after


def _content(data: Data, start: int, kind: int, pos: int, end: int) -> tuple[int, int]:
    """Begin and end of the content of a field with a length; `start` is its tag."""
    if kind == LENGTH:
        length, after = read_varint(data, pos, end)
        if after - pos > 5 or length > _MOST_LENGTH:
            raise ReadError("a field claims more than 2 GiB", offset=start)
        pos = after
    elif kind == FIXED64:
        length = 8
    elif kind == FIXED32:
        length = 4
    else:
        raise ReadError(f"wire type {kind} is not valid protobuf", offset=start)
    if pos + length > end:
        raise CutError(
            f"a field of {length:,} bytes runs over the end of its message", offset=start
        )
    return pos, pos + length


def skip_group(data: Data, start: int, pos: int, end: int, depth: int = 0) -> int:
    """The position after a group whose first tag is at `start` and ends at `pos`."""
    number, _, _ = read_tag(data, start, end)
    open_groups = [number]
    while open_groups:
        if len(open_groups) + depth > MOST_NESTED:
            raise ReadError(f"groups are nested over {MOST_NESTED} deep", offset=start)
        if pos >= end:
            raise CutError("a group runs over the end of its message", offset=start)
        tag_start = pos
        # In groups, which are skipped, protobuf's parser accepts field number 0.
        number, kind, pos = read_tag(data, pos, end, 0)
        if kind == GROUP:
            open_groups.append(number)
        elif kind == GROUP_END:
            if number != open_groups.pop():
                raise ReadError("a group ends that was never opened", offset=tag_start)
        elif kind == VARINT:
            _, pos = read_varint(data, pos, end)
        else:
            _, pos = _content(data, tag_start, kind, pos, end)
    return pos


def read_field(data: Data, start: int, end: int, depth: int = 0) -> tuple[int, int, int, int]:
    """Read the field whose tag is at `start`: (number, wire type, value or start, end).

    For VARINT the third item is the value; for the others it is the start of the content, and the
    fourth its end. `depth` is the number of messages around this one.
    """
    number, kind, pos = read_tag(data, start, end)
    if kind == VARINT:
        return number, kind, *read_varint(data, pos, end)
    if kind == GROUP:
        return number, kind, pos, skip_group(data, start, pos, end, depth)
    if kind == GROUP_END:
        raise ReadError("a group ends that was never opened", offset=start)
    return number, kind, *_content(data, start, kind, pos, end)


def fields(data: Data, pos: int, end: int, depth: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """The fields of one message, each as `read_field` gives it."""
    # Nearly all of them: a tag and a length or number of one or two bytes each, four at most.
    while pos + 4 <= end:
        tag, content = data[pos], pos + 1
        if tag >= 0x80:
            tag, content = tag & 0x7F | data[content] << 7, content + 1
        first, second, kind = data[content], data[content + 1], tag & 7
        if (
            tag < 8
            or tag >= 0x4000
            or (first >= 0x80 and second >= 0x80)
            or (kind != LENGTH and kind != VARINT)
        ):
            field = read_field(data, pos, end, depth)
            pos = field[3]
            yield field
            continue
        if first >= 0x80:
            first, content = first & 0x7F | second << 7, content + 1
        content += 1
        if kind == VARINT:
            pos = content
            yield tag >> 3, kind, first, content
        elif content + first > end:
            # Raises an error that describes the problem.
            read_field(data, pos, end, depth)
        else:
            pos = content + first
            yield tag >> 3, kind, content, pos
    while pos < end:
        field = read_field(data, pos, end, depth)
        pos = field[3]
        yield field


def split(
    data: Data, pos: int, end: int, depth: int = 0
) -> tuple[dict[int, tuple[list[int], list[int]]], list[tuple[int, int, int, int]]]:
    """The fields of one message that may contain a hundred thousand messages: begins and ends of
    these by field number, and all other fields as `read_field` returns them.

    `data` has padding after `end`, as in `buffer`.
    """
    spans: dict[int, tuple[list[int], list[int]]] = {}
    scalars: list[tuple[int, int, int, int]] = []
    while pos < end:
        tag, content = data[pos], pos + 2
        # Nearly all of them: a tag of one byte, a length of one or two.
        if tag & 0x87 == LENGTH and tag > 7:
            number, kind, size = tag >> 3, LENGTH, data[pos + 1]
            if size >= 0x80:
                size, content = size & 0x7F | data[content] << 7, content + 1
            stop = content + size
            if size >= 1 << 14 or stop > end:
                number, kind, content, stop = read_field(data, pos, end, depth)
        else:
            number, kind, content, stop = read_field(data, pos, end, depth)
        if kind == LENGTH:
            starts, ends = spans.setdefault(number, ([], []))
            starts.append(content)
            ends.append(stop)
        else:
            scalars.append((number, kind, content, stop))
        pos = stop
    return spans, scalars


def varints(buf: Bytes, pos: Int64s) -> tuple[Int64s, Int64s]:
    """Varints at many positions at once: their values as int64 and the positions after them."""
    first = buf[pos]
    value = (first & 0x7F).astype(np.int64)
    after = pos + 1
    more = np.flatnonzero(first & 0x80)
    shift = 7
    while len(more):
        if shift >= 70:
            raise ReadError(
                "a number has more than ten bytes; this is not a protobuf file",
                offset=int(pos[more[0]]),
            )
        byte_offset = after[more]
        byte = buf[byte_offset]
        value[more] |= (byte & 0x7F).astype(np.int64) << np.int64(shift)
        after[more] = byte_offset + 1
        more = more[(byte & 0x80) != 0]
        shift += 7
    return value, after


def write_varint(value: int) -> bytes:
    """Encode a number from 0 to 2**64 - 1."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def number_field(number: int, value: int) -> bytes:
    """A field of a number; nothing where that is 0, which is what a missing field means."""
    if value:
        return write_varint(number << 3 | VARINT) + write_varint(value)
    return b""


def bytes_field(number: int, data: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return write_varint(number << 3 | LENGTH) + write_varint(len(data)) + data


def packed(buf: Bytes, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """The numbers in packed fields of varints, the index of the first number of each field (and the
    total), and a mask of the fields that are complete.
    """
    length = end - start
    size = int(length.sum())
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    source = np.arange(size) + np.repeat(start - offsets[:-1], length)
    byte = buf[source]
    is_last = byte < 0x80
    if not size:
        return np.zeros(0, np.int64), offsets, np.ones(len(start), np.bool_)
    complete = (length == 0) | is_last[np.maximum(offsets[1:] - 1, 0)]
    # A number that the end of a field truncates ends there, so that the next field is read right.
    is_last[offsets[1:][length > 0] - 1] = True
    stop = np.flatnonzero(is_last)
    begin = np.concatenate([[0], stop[:-1] + 1])
    within = np.arange(size) - np.repeat(begin, stop - begin + 1)
    parts = (byte & 0x7F).astype(np.uint64) << np.minimum(7 * within, 63).astype(np.uint64)
    values = np.add.reduceat(parts, begin)
    counts = np.zeros(size + 1, np.int64)
    np.cumsum(is_last, out=counts[1:])
    # No number has more than ten bytes.
    long = np.flatnonzero(stop - begin >= 10)
    complete[np.searchsorted(offsets, begin[long], side="right") - 1] = False
    return values.view(np.int64), counts[offsets], complete


@dataclass
class Field:
    """One field of many messages: message, wire type, and value or span of each occurrence."""

    number: int
    kind: int
    message: Int64s
    value: Int64s
    """VARINT: the value. LENGTH and FIXED: the start of the content."""
    end: Int64s


def columns(buf: Bytes, start: Int64s, end: Int64s, depth: int = 0) -> list[Field]:
    """All fields of many messages, grouped by field number and wire type. Groups are skipped.

    Within a group a message's own fields keep their order, different messages may interleave. Sort
    by `message` (stable) to have them message by message.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    start, end : int64[messages]
        Spans of the messages in `buf`.
    depth : int
        Number of messages around these.

    Raises
    ------
    ReadError
        A tag or length that does not fit its message.
    """
    if library.load().library is not None:
        columns = native.columns(buf, start, end)
        if columns is not None:
            return [Field(c.tag >> 3, c.tag & 7, c.message, c.value, c.end) for c in columns]
    return _in_lockstep(buf, start, end, depth)


def _in_lockstep(buf: Bytes, start: Int64s, end: Int64s, depth: int) -> list[Field]:
    """`columns` of whatever the format allows, and where the compiled reader is missing."""
    rounds_of: dict[tuple[int, int], list[tuple[Int64s, Int64s, Int64s]]] = {}
    message = np.flatnonzero(start < end).astype(np.int64)
    pos = start[message].astype(np.int64)
    limit = end[message].astype(np.int64)
    while len(message) > _FEW_MESSAGES:
        tag, after = varints(buf, pos)
        wrong = (tag < 8) | (tag > _MOST_TAG) | (after - pos > 5)
        if wrong.any():
            _explain(buf, pos, limit, wrong, depth)
        kind = tag & 7
        value, stop = _content_of_each(buf, kind, pos, after, limit, depth)
        over = stop > limit
        if over.any():
            _explain(buf, pos, limit, over, depth)
        for rows in _groups(tag):
            code = int(tag[rows[0]])
            if code & 7 != GROUP:
                rounds_of.setdefault((code >> 3, code & 7), []).append(
                    (message[rows], value[rows], stop[rows])
                )
        alive = stop < limit
        message, pos, limit = message[alive], stop[alive], limit[alive]
    for key, rest in _one_by_one(buf, message, pos, limit, depth).items():
        column = np.array(rest, np.int64)
        rounds_of.setdefault(key, []).append((column[:, 0], column[:, 1], column[:, 2]))
    fields_of_all = []
    for (number, wire), rounds in rounds_of.items():
        parts = [np.concatenate(part) for part in zip(*rounds, strict=True)]
        fields_of_all.append(Field(number, wire, *parts))
    return fields_of_all


def _content_of_each(
    buf: Bytes, kind: Int64s, pos: Int64s, after: Int64s, limit: Int64s, depth: int
) -> tuple[Int64s, Int64s]:
    """Value or start, and end of the content of one field of each message.

    Parameters
    ----------
    kind : int64[n]
        Wire types. An invalid one ends far behind `limit`, like an invalid length.
    pos, after, limit : int64[n]
        Begin and end of the tags, and end of the messages.
    """
    value = after.copy()
    stop = after.copy()
    for wire in np.unique(kind):
        rows = np.flatnonzero(kind == wire)
        if wire == VARINT:
            value[rows], stop[rows] = varints(buf, after[rows])
        elif wire == LENGTH:
            length, content = varints(buf, after[rows])
            bad = (length < 0) | (length > _MOST_LENGTH) | (content - after[rows] > 5)
            value[rows] = content
            stop[rows] = content + np.where(bad, 1 << 40, length)
        elif wire in (FIXED64, FIXED32):
            stop[rows] = after[rows] + (8 if wire == FIXED64 else 4)
        elif wire == GROUP:
            data = buf.data
            for row in rows.tolist():
                stop[row] = skip_group(data, int(pos[row]), int(after[row]), int(limit[row]), depth)
        else:
            stop[rows] = 1 << 62
    return value, stop


def _groups(tag: Int64s) -> list[Int64s]:
    """The rows of each tag, ascending."""
    codes = np.unique(tag)
    if len(codes) < 16:
        return [np.flatnonzero(tag == code) for code in codes]
    order = np.argsort(tag, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(tag[order])) + 1)


def _one_by_one(
    buf: Bytes, message: Int64s, pos: Int64s, limit: Int64s, depth: int
) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """The fields of the remaining messages: one may have a million where the others have three."""
    rows_of: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    data = buf.data
    for number, start, end in zip(message.tolist(), pos.tolist(), limit.tolist(), strict=True):
        spans, scalars = split(data, start, end, depth)
        for field, (begins, ends) in spans.items():
            rows_of.setdefault((field, LENGTH), []).extend(
                zip(repeat(number), begins, ends, strict=False)
            )
        for field, kind, value, stop in scalars:
            if kind != GROUP:
                rows_of.setdefault((field, kind), []).append(
                    (number, signed(value) if kind == VARINT else value, stop)
                )
    return rows_of


def _explain(
    buf: Bytes, pos: Int64s, limit: Int64s, wrong: npt.NDArray[np.bool_], depth: int
) -> None:
    """Raise an error that describes the first wrong field."""
    first = int(np.argmax(wrong))
    list(fields(buf.data, int(pos[first]), int(limit[first]), depth))
    raise ReadError("a field runs over the end of its message", offset=int(pos[first]))


def fixed64(buf: Bytes, pos: Int64s) -> Int64s:
    """The eight little-endian bytes at many positions, as int64 bit patterns."""
    if not len(pos):
        return np.zeros(0, np.int64)
    parts = buf[pos[:, None] + np.arange(8)]
    return np.ascontiguousarray(parts).view("<i8").reshape(-1)
