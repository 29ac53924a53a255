"""The protobuf wire format as numpy columns.

Many messages of one kind are walked in lockstep: one numpy call reads the next field of every message that still has
one, so the cost is a few calls per *field*, not per message. Every length is checked against the message that holds it; a
wrong one raises `ReadError` with its byte.

Source of the format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.errors import ReadError

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

# A varint has at most ten bytes, so this much zero padding makes every read in bounds; lengths are checked afterwards.
PADDING = 16


def buffer(data: bytes) -> Bytes:
    """Bytes as a numpy array, padded so that a varint may be read at its very end."""
    out = np.zeros(len(data) + PADDING, np.uint8)
    out[: len(data)] = np.frombuffer(data, np.uint8)
    return out


def read_varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """One varint as an unsigned number, and the position behind it."""
    value = shift = 0
    while True:
        if pos >= end:
            raise ReadError("the file ends inside a number; it was cut off", offset=pos)
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, pos
        shift += 7
        if shift >= 70:
            raise ReadError("a number has more than ten bytes; this is no protobuf file", offset=pos)


def signed(value: int) -> int:
    """An unsigned 64-bit number read as int64 (two's complement)."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of one message: (number, wire type, value or start, end).

    For VARINT the third item is the value; for the others it is where the content starts, and the fourth where it ends.
    """
    while pos < end:
        start = pos
        tag, pos = read_varint(data, pos, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ReadError("field number 0 is not valid protobuf", offset=start)
        if kind == VARINT:
            value, pos = read_varint(data, pos, end)
            yield number, kind, value, pos
            continue
        if kind == LENGTH:
            length, pos = read_varint(data, pos, end)
        elif kind == FIXED64:
            length = 8
        elif kind == FIXED32:
            length = 4
        else:
            raise ReadError(f"wire type {kind} is not valid protobuf", offset=start)
        if pos + length > end:
            raise ReadError(f"a field of {length:,} bytes runs over the end of its message", offset=start)
        yield number, kind, pos, pos + length
        pos += length


def varints(buf: Bytes, pos: Int64s) -> tuple[Int64s, Int64s]:
    """Varints at many positions at once: their values as int64 and the positions behind them."""
    first = buf[pos]
    value = (first & 0x7F).astype(np.int64)
    after = pos + 1
    more = np.flatnonzero(first & 0x80)
    shift = 7
    while len(more):
        if shift >= 70:
            raise ReadError("a number has more than ten bytes; this is no protobuf file", offset=int(pos[more[0]]))
        at = after[more]
        byte = buf[at]
        value[more] |= (byte & 0x7F).astype(np.int64) << np.int64(shift)
        after[more] = at + 1
        more = more[(byte & 0x80) != 0]
        shift += 7
    return value, after


@dataclass
class Field:
    """One field of many messages: which message it was in, its wire type, and its value or its span."""

    number: int
    kind: int
    message: Int64s
    value: Int64s
    """VARINT: the value. LENGTH and FIXED: where the content starts."""
    end: Int64s


def columns(buf: Bytes, start: Int64s, end: Int64s) -> list[Field]:
    """All fields of many messages, grouped by field number and wire type.

    Within a group the rows are in the order of the rounds: a message's own fields keep their order, different messages
    interleave. Sort by `message` (stable) to have them message by message.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    start, end : int64[messages]
        Spans of the messages in `buf`.

    Raises
    ------
    ReadError
        A tag or length that does not fit its message.
    """
    found: dict[tuple[int, int], list[tuple[Int64s, Int64s, Int64s]]] = {}
    message = np.flatnonzero(start < end).astype(np.int64)
    pos = start[message].astype(np.int64)
    limit = end[message].astype(np.int64)
    while len(message):
        tag, after = varints(buf, pos)
        kind = tag & 7
        number = tag >> 3
        if (number <= 0).any():
            raise ReadError("field number 0 is not valid protobuf", offset=int(pos[np.argmax(number <= 0)]))
        value = after.copy()
        stop = after.copy()
        for wire in np.unique(kind):
            rows = np.flatnonzero(kind == wire)
            if wire == VARINT:
                value[rows], stop[rows] = varints(buf, after[rows])
            elif wire == LENGTH:
                length, content = varints(buf, after[rows])
                room = limit[rows] - content
                bad = (length < 0) | (length > room)
                if bad.any():
                    raise ReadError("a field runs over the end of its message", offset=int(pos[rows[np.argmax(bad)]]))
                value[rows] = content
                stop[rows] = content + length
            elif wire in (FIXED64, FIXED32):
                stop[rows] = after[rows] + (8 if wire == FIXED64 else 4)
            else:
                raise ReadError(f"wire type {int(wire)} is not valid protobuf", offset=int(pos[rows[0]]))
        over = stop > limit
        if over.any():
            raise ReadError("a field runs over the end of its message", offset=int(pos[np.argmax(over)]))
        key = number * 8 + kind
        for code in np.unique(key):
            rows = key == code
            found.setdefault((int(code) >> 3, int(code) & 7), []).append((message[rows], value[rows], stop[rows]))
        alive = stop < limit
        message, pos, limit = message[alive], stop[alive], limit[alive]
    return [Field(number, kind, *(np.concatenate(part) for part in zip(*rounds, strict=True))) for (number, kind), rounds in found.items()]


def fixed64(buf: Bytes, pos: Int64s) -> Int64s:
    """The eight little-endian bytes at many positions, as int64 bit patterns."""
    if not len(pos):
        return np.zeros(0, np.int64)
    parts = buf[pos[:, None] + np.arange(8)]
    return np.ascontiguousarray(parts).view("<i8").reshape(-1)
