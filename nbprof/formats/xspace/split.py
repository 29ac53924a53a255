"""Where the events of a line begin: each says only how long it is, so its place follows from all
events before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.trace import Int64s
from nbprof.native import library
from nbprof.native.wire import Messages

EVENT_TAG = 0x22
# A line lies in a plane of a space.
_DEPTH = 2

Other = tuple[int, int, int, int]


def event_starts(
    buf: wire.Bytes, lines: Sequence[tuple[int, int]], tag: int = EVENT_TAG
) -> tuple[list[Int64s], list[list[Other]]]:
    """The byte of the tag of every event (field 4) of each line, in order, and the fields that are
    no event.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    lines : (start, stop) of the content of each line
    tag : int
        That of events; other messages that hold a long row of messages have another.

    Returns
    -------
    starts : int64[events] for each line
    others : for each line its other fields: (number, wire type, value or start, end), as
    `wire.fields` gives them

    Raises
    ------
    ReadError
        A field does not fit its line.
    """
    starts: list[Int64s] = []
    other_fields: list[list[Other]] = [[] for _ in lines]
    messages = None
    if library.load().library is not None:
        messages = Messages(buf, tag)
    for (start, stop), fields in zip(lines, other_fields, strict=True):
        if messages is None:
            data = buf[start:stop].tobytes()
            starts.append(_walk(data, start, fields, tag))
        else:
            _follow(buf.data, start, stop, messages, fields, tag)
            starts.append(messages.taken())
    return starts, other_fields


def starts_of_whole(
    buf: wire.Bytes, start: int, end: int, tag: int = EVENT_TAG
) -> tuple[Int64s, int]:
    """As `event_starts` for one line that may end too early, or be damaged from some byte on: the
    events before that, and the byte up to which its fields follow each other.
    """
    last = end
    for turn in range(3):
        try:
            (starts,), _ = event_starts(buf, [(start, last)], tag)
        except ReadError as error:
            # Nearly always the byte of the field that is wrong; it may lie in it.
            last = min(error.offset or 0, last - 1) if not turn else walked(buf, start, end)
            if last < start:
                break
            continue
        return starts, last
    return np.zeros(0, np.int64), start


def walked(buf: wire.Bytes, start: int, end: int) -> int:
    """The byte up to which the fields of a message follow each other, found one by one."""
    with contextlib.suppress(ReadError):
        while start < end:
            start = wire.read_field(buf.data, start, end)[3]
    return start


def spans(buf: wire.Bytes, starts: Int64s) -> tuple[Int64s, Int64s]:
    """Start and end of the content of the events whose tags are at `starts`."""
    _, content = wire.varints(buf, starts)
    length, content = wire.varints(buf, content)
    return content, content + length


def _follow(
    data: memoryview, pos: int, end: int, messages: Messages, other_fields: list[Other], tag: int
) -> None:
    """Adds the events of a line to `messages`, and what else it has to its other fields."""
    while pos < end:
        if data[pos] == tag:
            pos = messages.follow(pos, end)
            if pos == end:
                return
        number, kind, value, after = wire.read_field(data, pos, end, _DEPTH)
        if (number, kind) == (tag >> 3, wire.LENGTH):
            messages.add(pos)
        else:
            other_fields.append((number, kind, value, after))
        pos = after


def _walk(data: bytes, base: int, other_fields: list[Other], tag: int = EVENT_TAG) -> Int64s:
    """Event tags of a line, one after the other; `base` is where it begins."""
    starts: list[int] = []
    add_start = starts.append
    pos, end = 0, len(data)
    # There a tag has two bytes behind it.
    plain = end - 2
    while pos < end:
        # Nearly every field of a line is an event: its tag, and a length of one byte or two.
        if data[pos] == tag and pos < plain:
            after = pos + 2 + data[pos + 1]
            if data[pos + 1] >= 0x80:
                # A third byte of length is for the general reader.
                after = after - 0x7F + (data[pos + 2] << 7) if data[pos + 2] < 0x80 else end + 1
            if after <= end:
                add_start(pos)
                pos = after
                continue
        try:
            number, kind, value, after = wire.read_field(data, pos, end, _DEPTH)
        except ReadError as error:
            raise ReadError(error.reason, offset=base + (error.offset or 0)) from None
        if (number, kind) == (tag >> 3, wire.LENGTH):
            add_start(pos)
        else:
            other_fields.append(
                (number, kind, value if kind == wire.VARINT else value + base, after + base)
            )
        pos = after
    return np.array(starts, np.int64) + base
