"""Fields of many messages of one type as columns, read along the layouts that the messages share.

Messages of a trace have few layouts: the same fields in the same order, with numbers of as many
bytes. One message is walked; all others of its length that have the same tags, lengths and
continuation bits are read like it, each field by one numpy call at a known offset. Messages whose
layout few share are read field by field in lockstep, and the last of them one by one.
A message that is not valid is reported, and costs itself only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.quiet import silence
from nbprof.core.trace import Int32s, Int64s
from nbprof.core.wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Bytes,
    Words,
    close_gaps,
    word_varints,
    words_of,
)

Spec = dict[int, "Spec | None"]
"""The fields that are read, by number: None for a value or a span, a spec of its own for a message
that there is at most once.
"""
Path = tuple[int, ...]

# A batch's columns fit the second-level cache.
_BATCH = 1 << 16
_THREADS = min(4, os.cpu_count() or 1)
# Messages of at most so many bytes are held against layouts; so few of one layout are read in
# another way.
_LONGEST, _FEW = 256, 64
_MOST_LAYOUTS = 24
# So few messages are walked one by one sooner than a round of numpy calls is done.
_ALONE = 32
_MOST_TAG = (1 << 32) - 1
# Values that are numbered: how many are looked at first, and up to how many are held in a table of
# so many bits.
_FIRST, _MOST_VALUES, _SLOT_BITS, _ROUNDS_OF_VALUES = 1 << 12, 1 << 9, 16, 8
_FAR = 1 << 40


def _u(value: int) -> np.uint64:
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


@dataclass
class _Part:
    """One field of some messages: their rows, and values (VARINT, FIXED) or the first byte and the
    one behind the last (LENGTH).
    """

    row: Int32s
    value: Int64s | Bytes
    end: Int64s | None


@dataclass
class _Batch:
    """Fields of consecutive messages."""

    parts: dict[tuple[Path, int], list[_Part]] = field(default_factory=dict)
    bad: list[Int32s] = field(default_factory=list)
    unread: dict[int, int] = field(default_factory=dict)

    def add(
        self, path: Path, kind: int, row: Int32s, value: Int64s | Bytes, end: Int64s | None = None
    ) -> None:
        self.parts.setdefault((path, kind), []).append(_Part(row, value, end))

    def skip(self, number: int, count: int) -> None:
        """Counts messages with a field that is not read."""
        self.unread[number] = self.unread.get(number, 0) + count


class Fields:
    """Columns of the fields of many messages.

    Attributes
    ----------
    count : int
        How many messages there are.
    bad : bool[count]
        Which are not valid; nothing of them is in the columns.
    unread : dict of int to int
        Fields that were not asked for, by number: how many messages, of those at the top, have
        each.
    """

    def __init__(self, count: int, batches: list[_Batch]) -> None:
        self.count = count
        self.bad = np.zeros(count, np.bool_)
        self.unread: dict[int, int] = {}
        self._parts: dict[tuple[Path, int], list[_Part]] = {}
        for batch in batches:
            for key, parts in batch.parts.items():
                self._parts.setdefault(key, []).extend(parts)
            for rows in batch.bad:
                self.bad[rows] = True
            for number, seen in batch.unread.items():
                self.unread[number] = self.unread.get(number, 0) + seen
        self._any_bad = bool(self.bad.any())

    def _rows(self, path: Path, kind: int) -> Iterator[_Part]:
        for part in self._parts.get((path, kind), ()):
            if self._any_bad and (wrong := self.bad[part.row]).any():
                end = part.end[~wrong] if part.end is not None else None
                yield _Part(part.row[~wrong], part.value[~wrong], end)
            else:
                yield part

    def has(self, *path: int) -> npt.NDArray[np.bool_]:
        """bool[count]: which messages have a field."""
        result = np.zeros(self.count, np.bool_)
        for kind in (VARINT, FIXED64, LENGTH, FIXED32):
            for part in self._rows(path, kind):
                result[part.row] = True
        return result

    def number(self, *path: int, kind: int = VARINT) -> Int64s:
        """int64[count]: a number (the bits of one that is fixed) of each message, 0 where it has
        none; of several the last.
        """
        result = np.zeros(self.count, np.int64)
        for part in self._rows(path, kind):
            result[part.row] = part.value
        return result

    def small(self, *path: int) -> Int32s:
        """int32[count]: the same of a field of 32 bits; of a larger number the lower ones count, as
        protobuf has it.
        """
        result = np.zeros(self.count, np.int32)
        for part in self._rows(path, VARINT):
            result[part.row] = part.value
        return result

    def numbers(self, *path: int, kind: int = VARINT) -> tuple[Int32s, Int64s]:
        """Rows, ascending, and values of a field that there may be often; those of a message are in
        its order.
        """
        row, value, _ = self._joined(path, kind)
        return row, value

    def spans(self, *path: int) -> tuple[Int32s, Int64s, Int64s]:
        """Rows, ascending, and where the content of a field of bytes begins and ends."""
        return self._joined(path, LENGTH)

    def _joined(self, path: Path, kind: int) -> tuple[Int32s, Int64s, Int64s]:
        parts = list(self._rows(path, kind))
        ends = [part.value if part.end is None else part.end for part in parts]
        row = np.concatenate([np.zeros(0, np.int32), *(part.row for part in parts)])
        value = np.concatenate([np.zeros(0, np.int64), *(part.value for part in parts)])
        end = np.concatenate([np.zeros(0, np.int64), *ends])
        if (row[1:] < row[:-1]).any():
            order = np.argsort(row, kind="stable")
            row, value, end = row[order], value[order], end[order]
        return row, value, end


def numbered(values: Int64s) -> tuple[Int32s, list[int]]:
    """A number for each different value, and the values by number. Quick where there are few of
    them.
    """
    first_values: Int64s = pd.unique(values[:_FIRST])
    for _ in range(_ROUNDS_OF_VALUES):
        slot = _slots(first_values)
        if len(first_values) > _MOST_VALUES or len(np.unique(slot)) < len(first_values):
            break
        table = np.zeros(1 << _SLOT_BITS, np.int32)
        table[slot] = np.arange(len(first_values), dtype=np.int32)
        code: Int32s = table[_slots(values)]
        other = first_values[code] != values
        if not other.any():
            return code, first_values.tolist()
        first_values = np.concatenate([first_values, pd.unique(values[other][:_FIRST])])
    codes, first_values = pd.factorize(values)
    return codes.astype(np.int32), first_values.tolist()


def _slots(values: Int64s) -> Int64s:
    return ((values.view(np.uint64) * _u(0x9E3779B97F4A7C15)) >> _u(64 - _SLOT_BITS)).view(np.int64)


def read(buf: wire.Bytes, start: Int64s, end: Int64s, spec: Spec) -> Fields:
    """The fields of the messages whose contents begin and end at some bytes.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    start, end : int64[messages]
    spec : Spec
    """
    words = words_of(buf)
    every = np.arange(len(start), dtype=np.int32)
    work = np.split(every, range(_BATCH, len(start), _BATCH))

    def read_batch(rows: Int32s) -> _Batch:
        return _read(buf, words, rows, start[rows], end[rows], spec)

    if len(work) < 2 or _THREADS < 2:
        return Fields(len(start), list(map(read_batch, work)))
    with ThreadPoolExecutor(_THREADS, initializer=silence) as pool:
        return Fields(len(start), list(pool.map(read_batch, work)))


def _read(
    buf: wire.Bytes, words: Words, rows: Int32s, start: Int64s, end: Int64s, spec: Spec
) -> _Batch:
    result = _Batch()
    length = end - start
    left: list[Int64s] = []
    order = np.argsort(np.minimum(length, _LONGEST + 1).astype(np.uint16), kind="stable")
    edges = np.flatnonzero(np.diff(np.minimum(length[order], _LONGEST + 1))) + 1
    for alike in np.split(order, edges) if len(order) else []:
        size = int(length[alike[0]])
        if len(alike) < _FEW or not 0 < size <= _LONGEST:
            left.append(alike)
            continue
        pos = start[alike]
        columns = [words[pos + offset] for offset in range(0, size, 8)]
        for _ in range(_MOST_LAYOUTS):
            if len(alike) < _FEW:
                break
            layout = _layout(buf[int(pos[0]) : int(pos[0]) + size].tobytes(), spec)
            if layout is None:
                # Only the first is known to be wrong.
                fits = np.zeros(len(alike), np.bool_)
                fits[0] = True
                result.bad.append(rows[alike[:1]])
            elif (fits := layout.fits(columns)).all():
                layout.take(columns, rows[alike], pos, result)
                alike = alike[:0]
                break
            elif np.count_nonzero(fits) < _FEW // 4:
                left.append(alike[fits])
            else:
                fitting = [column[fits] for column in columns]
                layout.take(fitting, rows[alike[fits]], pos[fits], result)
            alike, pos = alike[~fits], pos[~fits]
            columns = [column[~fits] for column in columns]
        left.append(alike)
    if left:
        rest = np.concatenate(left)
        rest = rest[length[rest] > 0]
        _lockstep(buf, words, (rows[rest], start[rest], end[rest]), spec, (), result)
    return result


@dataclass
class _Layout:
    """The layout of a message: what its words have in common, and at which byte of it each field
    has how many bytes.

    `fields` are (path, kind, first byte, bytes); those of kind -1 are messages that are read into.
    """

    mask: Words
    pattern: Words
    fields: list[tuple[Path, int, int, int]]
    unread: set[int]

    def fits(self, columns: list[Words]) -> npt.NDArray[np.bool_]:
        """Mask of messages, given as columns of eight bytes, that have this layout."""
        result: npt.NDArray[np.bool_] = (columns[0] & self.mask[0]) == self.pattern[0]
        for column, mask, pattern in zip(columns[1:], self.mask[1:], self.pattern[1:], strict=True):
            if mask:
                result &= (column & mask) == pattern
        return result

    def take(self, columns: list[Words], rows: Int32s, pos: Int64s, batch: _Batch) -> None:
        """Reads the fields of messages that have it."""
        for path, kind, offset, size in self.fields:
            if kind == VARINT:
                batch.add(path, kind, rows, _numbers(columns, offset, size))
            elif kind in (FIXED64, FIXED32):
                batch.add(path, kind, rows, _bytes(columns, offset, size).view(np.int64))
            elif kind == LENGTH:
                batch.add(path, kind, rows, pos + offset, pos + (offset + size))
            else:
                # That it is there is all that counts.
                batch.add(path, LENGTH, rows, pos, pos)
        for number in self.unread:
            batch.skip(number, len(rows))


def _layout(data: bytes, spec: Spec) -> _Layout | None:
    """The layout of one message; None where it is not valid."""
    mask = bytearray(-len(data) % 8 + len(data))
    walk = _LayoutWalk(data, mask)
    try:
        walk.message((0, len(data)), spec, ())
    except ReadError:
        return None
    masks = np.frombuffer(bytes(mask), "<u8")
    pattern = np.frombuffer(data + bytes(len(mask) - len(data)), "<u8") & masks
    return _Layout(masks, pattern, walk.fields, walk.unread)


@dataclass
class _LayoutWalk:
    """Walks one message for its layout; `mask` gets the bits that messages of it share."""

    data: bytes
    mask: bytearray
    fields: list[tuple[Path, int, int, int]] = field(default_factory=list)
    unread: set[int] = field(default_factory=set)

    def message(self, span: tuple[int, int], spec: Spec, path: Path) -> None:
        """Walks the message in a span of the bytes, whose fields go by a path."""
        data, mask = self.data, self.mask
        pos, end = span
        while pos < end:
            _, _, offset = wire.read_tag(data, pos, end)
            number, kind, value, stop = wire.read_field(data, pos, end, len(path))
            mask[pos:offset] = b"\xff" * (offset - pos)
            is_read = number in spec
            inner = spec.get(number)
            inner_path = (*path, number)
            if not is_read and not path:
                self.unread.add(number)
            if kind == VARINT:
                mask[offset:stop] = b"\x80" * (stop - offset)
                if is_read:
                    self.fields.append((inner_path, VARINT, offset, stop - offset))
            elif kind == LENGTH:
                mask[offset:value] = b"\xff" * (value - offset)
                if inner is not None:
                    self.fields.append((inner_path, -1, value, stop - value))
                    self.message((value, stop), inner, inner_path)
                elif is_read:
                    self.fields.append((inner_path, LENGTH, value, stop - value))
            elif kind in (FIXED64, FIXED32):
                if is_read:
                    self.fields.append((inner_path, kind, value, stop - value))
            else:
                raise ReadError("groups are not read")
            pos = stop


def _bytes(columns: list[Words], offset: int, size: int) -> Words:
    """Up to eight bytes of each message as a number."""
    first, shift = divmod(offset, 8)
    word = columns[first] >> _u(8 * shift)
    if shift + size > 8:
        word |= columns[first + 1] << _u(8 * (8 - shift))
    if size < 8:
        word &= _u((1 << 8 * size) - 1)
    return word


def _numbers(columns: list[Words], offset: int, size: int) -> Int64s | Bytes:
    """Numbers of so many bytes each."""
    word = _bytes(columns, offset, min(size, 8))
    if size == 1:
        return word.astype(np.uint8)
    word = close_gaps(word, size)
    for i in range(8, size):
        word |= (_bytes(columns, offset + i, 1) & _u(0x7F)) << _u(7 * i)
    return word.view(np.int64)


def _lockstep(
    buf: wire.Bytes,
    words: Words,
    messages: tuple[Int32s, Int64s, Int64s],
    spec: Spec,
    path: Path,
    batch: _Batch,
) -> None:
    """Reads messages of any layout: the next field of each in one round."""
    row, pos, end = messages
    inner: dict[int, list[tuple[Int32s, Int64s, Int64s]]] = {}
    while len(row) > _ALONE:
        tag, after = word_varints(words, pos)
        sound = (after <= end) & (tag >= 8) & (tag <= _MOST_TAG)
        if not sound.all():
            batch.bad.append(row[~sound])
            row, end, tag, after = row[sound], end[sound], tag[sound], after[sound]
        number = (tag >> _u(3)).astype(np.int64)
        kind = (tag & _u(7)).astype(np.int64)
        value, stop = _field_values(words, kind, after)
        sound = stop <= end
        if not sound.all():
            batch.bad.append(row[~sound])
            row, end, number = row[sound], end[sound], number[sound]
            kind, value, stop = kind[sound], value[sound], stop[sound]
        for field_number in np.unique(number).tolist():
            field_rows = np.flatnonzero(number == field_number)
            if field_number not in spec:
                if not path:
                    batch.skip(field_number, len(field_rows))
                continue
            below = spec[field_number]
            for wire_kind in np.unique(kind[field_rows]).tolist():
                rows = field_rows[kind[field_rows] == wire_kind]
                is_span = wire_kind == LENGTH
                batch.add(
                    (*path, field_number),
                    wire_kind,
                    row[rows],
                    value[rows],
                    stop[rows] if is_span else None,
                )
                if below is not None and is_span:
                    inner.setdefault(field_number, []).append((row[rows], value[rows], stop[rows]))
        alive = stop < end
        row, pos, end = row[alive], stop[alive], end[alive]
    for inner_number, parts in inner.items():
        rows, begin, stop = (np.concatenate(column) for column in zip(*parts, strict=True))
        filled = begin < stop
        inner_messages = rows[filled], begin[filled], stop[filled]
        below = spec[inner_number]
        assert below is not None
        _lockstep(buf, words, inner_messages, below, (*path, inner_number), batch)
    if len(row):
        _one_by_one(buf, (row, pos, end), spec, path, batch)


def _field_values(words: Words, kind: Int64s, after: Int64s) -> tuple[Int64s, Int64s]:
    """The value of each field, as `_Part` has it, and the first byte behind it: far away for one of
    an unknown kind.

    Parameters
    ----------
    words : uint64[n]
    kind : int64[fields]
    after : int64[fields]
        The first byte behind each tag.
    """
    value, stop = np.zeros(len(kind), np.int64), np.full(len(kind), _FAR, np.int64)
    for wire_kind in np.unique(kind).tolist():
        rows = np.flatnonzero(kind == wire_kind)
        begin = after[rows]
        if wire_kind == VARINT:
            varint, stop[rows] = word_varints(words, begin)
            value[rows] = varint.view(np.int64)
        elif wire_kind == LENGTH:
            size, content = word_varints(words, begin)
            value[rows] = content
            stop[rows] = content + np.minimum(size, _u(_FAR)).view(np.int64)
        elif wire_kind == FIXED64:
            value[rows] = words[begin].view(np.int64)
            stop[rows] = begin + 8
        elif wire_kind == FIXED32:
            value[rows] = (words[begin] & _u(0xFFFFFFFF)).view(np.int64)
            stop[rows] = begin + 4
    return value, stop


def _one_by_one(
    buf: wire.Bytes, messages: tuple[Int32s, Int64s, Int64s], spec: Spec, path: Path, result: _Batch
) -> None:
    """Reads the fields of a few messages, or of one that has many."""
    field_rows: dict[tuple[Path, int], list[tuple[int, int, int]]] = {}
    bad: list[int] = []
    for row, start, end in zip(*(column.tolist() for column in messages), strict=True):
        walk = _ValueWalk(buf.data, row)
        try:
            walk.message((start, end), spec, path)
        except ReadError:
            bad.append(row)
            continue
        for key, rows in walk.rows.items():
            field_rows.setdefault(key, []).extend(rows)
        for number in walk.unread:
            result.skip(number, 1)
    if bad:
        result.bad.append(np.array(bad, np.int32))
    for (field_path, kind), rows in field_rows.items():
        table = np.array(rows, np.int64)
        result.add(
            field_path,
            kind,
            table[:, 0].astype(np.int32),
            table[:, 1],
            table[:, 2] if kind == LENGTH else None,
        )


@dataclass
class _ValueWalk:
    """Walks one message for the values of its fields."""

    data: memoryview
    row: int
    rows: dict[tuple[Path, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    """By path and kind: the row, the value and the end of each field."""
    unread: set[int] = field(default_factory=set)

    def message(self, span: tuple[int, int], spec: Spec, path: Path) -> None:
        """Walks the message in a span of the bytes, whose fields go by a path."""
        for number, kind, value, stop in wire.fields(self.data, *span, len(path)):
            if number not in spec:
                if not path:
                    self.unread.add(number)
                continue
            if kind == VARINT:
                value = wire.signed(value)
            elif kind in (FIXED64, FIXED32):
                value = int.from_bytes(self.data[value:stop], "little", signed=kind == FIXED64)
            self.rows.setdefault(((*path, number), kind), []).append((self.row, value, stop))
            inner = spec[number]
            if inner is not None and kind == LENGTH:
                self.message((value, stop), inner, (*path, number))
