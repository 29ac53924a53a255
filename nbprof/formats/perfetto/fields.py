"""Fields of many messages of one type as columns: by the compiled reader, and in lockstep what that
leaves, or all where it is missing. A message that is not valid is reported, and costs itself only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.quiet import thread_pool
from nbprof.core.trace import Int32s, Int64s
from nbprof.core.wire import FIXED32, FIXED64, LENGTH, VARINT
from nbprof.formats.xspace.split import spans
from nbprof.native import library
from nbprof.native import wire as native

Spec = dict[int, "Spec | str | None"]
"""The fields that are read, by number: None for values or spans, `NUMBER` or `SMALL` for one number
(of 32 bits), of several the last, and a spec of its own for a message.
"""
NUMBER, SMALL = "number", "small"
NOT_READ = "not read"
Path = tuple[int, ...]

_KINDS = (VARINT, FIXED64, LENGTH, FIXED32)
_BATCH = 1 << 16
_THREADS = min(4, os.cpu_count() or 1)
# Values that are numbered: how many are looked at first, and up to how many are held in a table of
# so many bits.
_FIRST, _MOST_VALUES, _SLOT_BITS, _ROUNDS_OF_VALUES = 1 << 12, 1 << 9, 16, 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

_Column = TypeVar("_Column", Int32s, Int64s)


class _Plan:
    """The rules by which a spec is read.

    Attributes
    ----------
    numbers, small : dict of Path to int
        The columns of numbers.
    marks : dict of (Path, int) to int
        The bits that tell whether a message has one of these, or a message: by path and wire type.
    slots : dict of (Path, int) to int
        Those of the rows of all other fields.
    """

    def __init__(self, spec: Spec) -> None:
        self.numbers: dict[Path, int] = {}
        self.small: dict[Path, int] = {}
        self.marks: dict[tuple[Path, int], int] = {}
        self.slots: dict[tuple[Path, int], int] = {}
        self._levels: list[npt.NDArray[np.uint16]] = []
        self._level(spec, ())
        self.rules = native.Rules(np.stack(self._levels), len(self.slots))
        assert len(self.marks) <= native.MOST_MARKS

    def _level(self, spec: Spec, path: Path) -> int:
        """Adds the rules of one type of message; returns where they are."""
        level = len(self._levels)
        rules = np.zeros((native.MOST_TAGS, 4), np.uint16)
        self._levels.append(rules)
        for number, how in spec.items():
            for kind in _KINDS:
                rules[number << 3 | kind] = self._rule((*path, number), kind, how)
        return level

    def _rule(self, path: Path, kind: int, how: Spec | str | None) -> tuple[int, int, int, int]:
        if isinstance(how, dict) and kind == LENGTH:
            return native.MESSAGE, 0, self._mark(path, kind), self._level(how, path)
        if how == NUMBER and kind == VARINT:
            column = self.numbers.setdefault(path, len(self.numbers))
            return native.NUMBER, column, self._mark(path, kind), 0
        if how == SMALL and kind == VARINT:
            column = self.small.setdefault(path, len(self.small))
            return native.SMALL, column, self._mark(path, kind), 0
        return native.ROW, self.slots.setdefault((path, kind), len(self.slots)), 0, 0

    def _mark(self, path: Path, kind: int) -> int:
        return self.marks.setdefault((path, kind), len(self.marks))


@dataclass
class _Part:
    """One field of some messages: their rows, and values (VARINT, FIXED) or the first byte and the
    one behind the last (LENGTH).
    """

    row: Int32s
    value: Int64s
    end: Int64s


@dataclass
class _Walk:
    """Walks messages in lockstep.

    `parts` are the fields of those that were asked for, by path and wire type; `unread` tells which
    rows have each of the others, by number.
    """

    buf: wire.Bytes
    parts: list[tuple[Path, int, _Part]] = field(default_factory=list)
    unread: dict[int, list[Int64s]] = field(default_factory=dict)

    def messages(
        self, rows: Int64s, start: Int64s, end: Int64s, spec: Spec, path: Path = ()
    ) -> None:
        """Walks messages of one type, of some rows.

        Raises
        ------
        ReadError
            One is not valid.
        """
        for each in wire.columns(self.buf, start, end, len(path)):
            row = rows[each.message]
            how = spec.get(each.number, NOT_READ)
            if how == NOT_READ:
                if not path:
                    self.unread.setdefault(each.number, []).append(row)
                continue
            value = each.value
            if each.kind in (FIXED64, FIXED32):
                value = _fixed(self.buf, value, each.kind)
            inner = (*path, each.number)
            self.parts.append((inner, each.kind, _Part(row.astype(np.int32), value, each.end)))
            if isinstance(how, dict) and each.kind == LENGTH:
                self.messages(row, each.value, each.end, how, inner)


def _is_valid(data: memoryview, start: int, end: int, spec: Spec, depth: int = 0) -> bool:
    """True for a message that is valid, with the messages in it that are read."""
    try:
        for number, kind, value, stop in wire.fields(data, start, end, depth):
            inner = spec.get(number) if kind == LENGTH else None
            if isinstance(inner, dict) and not _is_valid(data, value, stop, inner, depth + 1):
                return False
    except ReadError:
        return False
    return True


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

    def __init__(self, count: int, spec: Spec) -> None:
        self.count = count
        self.bad = np.zeros(count, np.bool_)
        self.unread: dict[int, int] = {}
        self._plan = _Plan(spec)
        self._numbers = native.Numbers(count, len(self._plan.numbers), len(self._plan.small))
        self._parts: dict[tuple[Path, int], list[_Part]] = {}

    def read(self, buf: wire.Bytes, start: Int64s, end: Int64s | None) -> Int64s:
        """Has the compiled reader read the messages; returns those that it leaves."""
        if not self.count:
            return np.zeros(0, np.int64)
        batches = [slice(first, first + _BATCH) for first in range(0, self.count, _BATCH)]
        plan = self._plan

        def read_batch(rows: slice) -> native.Columns:
            ends = None if end is None else end[rows]
            return native.read(buf, start[rows], ends, plan.rules, self._numbers, rows.start)

        if len(batches) < 2 or _THREADS < 2:
            results = list(map(read_batch, batches))
        else:
            with thread_pool(_THREADS) as pool:
                results = list(pool.map(read_batch, batches))
        keys = list(plan.slots)
        for rows, columns in zip(batches, results, strict=True):
            for number in np.flatnonzero(columns.unread).tolist():
                self._skip(number, int(columns.unread[number]))
            for slot in np.flatnonzero(np.diff(columns.edges[:-1])).tolist():
                some = slice(columns.edges[slot], columns.edges[slot + 1])
                path, kind = keys[slot]
                value = columns.value[some]
                if kind in (FIXED64, FIXED32):
                    value = _fixed(buf, value, kind)
                part = _Part(columns.message[some] + np.int32(rows.start), value, columns.end[some])
                self._parts.setdefault((path, kind), []).append(part)
        return np.flatnonzero(self._numbers.left)

    def walk(self, buf: wire.Bytes, rows: Int64s, start: Int64s, end: Int64s, spec: Spec) -> None:
        """Reads some messages in any form, by where their contents begin and end."""
        numbers = self._numbers
        numbers.marks[rows] = 0
        numbers.numbers[:, rows] = numbers.small[:, rows] = 0
        for first in range(0, len(rows), _BATCH):
            batch = slice(first, first + _BATCH)
            row, content, stop = rows[batch], start[batch], end[batch]
            walk = _Walk(buf)
            try:
                walk.messages(row, content, stop, spec)
            except ReadError:
                each = zip(content.tolist(), stop.tolist(), strict=True)
                valid = np.array([_is_valid(buf.data, a, b, spec) for a, b in each])
                self.bad[row[~valid]] = True
                walk = _Walk(buf)
                walk.messages(row[valid], content[valid], stop[valid], spec)
            for number, seen in walk.unread.items():
                self._skip(number, len(np.unique(np.concatenate(seen))))
            for path, kind, part in walk.parts:
                self._add(path, kind, part)

    def _add(self, path: Path, kind: int, part: _Part) -> None:
        plan, numbers = self._plan, self._numbers
        if (path, kind) not in plan.marks:
            self._parts.setdefault((path, kind), []).append(part)
            return
        numbers.marks[part.row] |= np.uint32(1 << plan.marks[path, kind])
        if path in plan.numbers:
            numbers.numbers[plan.numbers[path], part.row] = part.value
        if path in plan.small:
            numbers.small[plan.small[path], part.row] = part.value.astype(np.int32)

    def _skip(self, number: int, messages: int) -> None:
        """Counts messages with a field that is not read."""
        self.unread[number] = self.unread.get(number, 0) + messages

    def _rows(self, path: Path, kind: int) -> Iterator[_Part]:
        assert (path, kind) not in self._plan.marks
        return iter(self._parts.get((path, kind), ()))

    def has(self, *path: int) -> npt.NDArray[np.bool_]:
        """bool[count]: which messages have a field."""
        result = np.zeros(self.count, np.bool_)
        for kind in _KINDS:
            if (path, kind) in self._plan.marks:
                result |= (self._numbers.marks & (1 << self._plan.marks[path, kind])) != 0
                continue
            for part in self._rows(path, kind):
                result[part.row] = True
        return result

    def number(self, *path: int, kind: int = VARINT) -> Int64s:
        """int64[count]: a number (the bits of one that is fixed) of each message, 0 where it has
        none; of several the last. Not to be changed.
        """
        if kind == VARINT and path in self._plan.numbers:
            column: Int64s = self._numbers.numbers[self._plan.numbers[path]]
            return column
        return self._last(path, kind, np.zeros(self.count, np.int64))

    def small(self, *path: int) -> Int32s:
        """int32[count]: the same of a field of 32 bits; of a larger number the lower ones count, as
        protobuf has it.
        """
        if path in self._plan.small:
            column: Int32s = self._numbers.small[self._plan.small[path]]
            return column
        return self._last(path, VARINT, np.zeros(self.count, np.int32))

    def _last(self, path: Path, kind: int, result: _Column) -> _Column:
        for part in self._rows(path, kind):
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
        row = np.concatenate([np.zeros(0, np.int32), *(part.row for part in parts)])
        value = np.concatenate([np.zeros(0, np.int64), *(part.value for part in parts)])
        end = np.concatenate([np.zeros(0, np.int64), *(part.end for part in parts)])
        if (row[1:] < row[:-1]).any():
            order = np.argsort(row, kind="stable")
            row, value, end = row[order], value[order], end[order]
        return row, value, end


def _fixed(buf: wire.Bytes, start: Int64s, kind: int) -> Int64s:
    """The bits of numbers of eight or four bytes."""
    bits = wire.fixed64(buf, start)
    if kind == FIXED32:
        bits &= np.int64(0xFFFFFFFF)
    return bits


def numbered(values: Int64s) -> tuple[Int32s, list[int]]:
    """A number for each different value, and the values by number. Quick where there are few of
    them.
    """
    if len(values) and (values == values[0]).all():
        return np.zeros(len(values), np.int32), [int(values[0])]
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
    return ((values.view(np.uint64) * _FACTOR) >> np.uint64(64 - _SLOT_BITS)).view(np.int64)


def read(buf: wire.Bytes, start: Int64s, end: Int64s | None, spec: Spec) -> Fields:
    """The fields of messages.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    start, end : int64[messages]
        Where their contents begin and end; without ends, the bytes of their tags.
    spec : Spec
    """
    fields = Fields(len(start), spec)
    left = np.arange(len(start))
    if library.load().library is not None:
        left = fields.read(buf, start, end)
    contents = spans(buf, start[left]) if end is None else (start[left], end[left])
    fields.walk(buf, left, *contents, spec)
    fields.unread = dict(sorted(fields.unread.items()))
    return fields
