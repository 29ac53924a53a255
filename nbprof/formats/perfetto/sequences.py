"""State of the packets of one writer: interned data, defaults, and whether these were lost on the
way.

Format: https://perfetto.dev/docs/reference/trace-packet-proto (`trusted_packet_sequence_id`,
`sequence_flags`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.trace import Int32s, Int64s
from nbprof.core.wire import LENGTH, VARINT
from nbprof.formats.build import stable_order
from nbprof.formats.perfetto.fields import Fields, numbered

CATEGORY, NAME, KEY, TEXT, QUEUE, GPU_COUNTERS = 1, 2, 3, 29, 24, 47
"""Tables of InternedData that are read, by field number."""
_TABLES = frozenset({CATEGORY, NAME, KEY, TEXT, QUEUE, GPU_COUNTERS})
_CLEARED, _NEEDS = 1, 2
# A table of all ids of all states has at most so many rows; beyond that they are looked up by
# bisection.
_MOST = 1 << 24

Message = dict[int, list[int | bytes]]
_Column = TypeVar("_Column", Int32s, npt.NDArray[np.bool_])


def message(data: memoryview, start: int, end: int) -> Message:
    """The fields of one message: numbers (as int64) and bytes, by field number.

    Raises
    ------
    ReadError
    """
    result: Message = {}
    for number, kind, value, stop in wire.fields(data, start, end):
        if kind == VARINT:
            result.setdefault(number, []).append(wire.signed(value))
        elif kind != wire.GROUP:
            result.setdefault(number, []).append(bytes(data[value:stop]))
    return result


def part(data: bytes) -> Message:
    """The fields of a message in a field."""
    return message(memoryview(data), 0, len(data))


def integer(fields: Message, number: int, missing: int = 0) -> int:
    """The number in a field; the last counts."""
    for value in reversed(fields.get(number, [])):
        if isinstance(value, int):
            return value
    return missing


def content(fields: Message, number: int) -> bytes | None:
    """The bytes of a field; the last counts."""
    values = contents(fields, number)
    return values[-1] if values else None


def contents(fields: Message, number: int) -> list[bytes]:
    """The bytes of a field that there may be often."""
    return [value for value in fields.get(number, ()) if isinstance(value, bytes)]


def text(fields: Message, number: int) -> str:
    """The text of a field; empty where there is none."""
    return (content(fields, number) or b"").decode("utf-8", "replace")


@dataclass
class Defaults:
    """Values that a writer states once for the packets that follow."""

    clock: int = -1
    track: int | None = None
    counters: list[int] = field(default_factory=list)
    double_counters: list[int] = field(default_factory=list)


class Sequences:
    """The sequences of a file, and the state that applies to each packet.

    A state lasts from one packet that clears all that was stated before to the next one.

    Attributes
    ----------
    code : int32[packets]
        The sequence of each packet.
    state : int32[packets]
        The state of each packet.
    usable : bool[packets]
        False for packets that need a state of which something was lost, or that never began.
    lost : int
        How often packets were lost before one.
    defaults : list of Defaults
    default : int32[packets]
        The one that applies to each packet, -1 where none does.
    damaged : int
        Messages that could not be read.
    """

    def __init__(self, fields: Fields, buf: wire.Bytes) -> None:
        count = fields.count
        self.damaged = 0
        self.code, numbers = numbered(fields.small(10).astype(np.int64))
        # The packets sequence by sequence; None where there is only one.
        self._order: Int64s | None = None
        if len(numbers) > 1:
            self._order = stable_order(self.code)
        flags = fields.small(13)
        cleared = self._by_sequence((flags & _CLEARED) != 0)
        cleared |= self._by_sequence(fields.has(41))
        begins = np.zeros(count, np.bool_)
        begins[:1] = True
        if self._order is not None:
            code_sorted = self.code[self._order]
            begins[1:] = code_sorted[1:] != code_sorted[:-1]
        dropped = self._by_sequence(fields.small(42) != 0) & ~begins
        self.lost = int(dropped.sum())
        fresh = cleared | begins
        self.states = int(fresh.sum())
        self.state = self._back(np.cumsum(fresh, dtype=np.int32) - np.int32(1))
        # Start of the state of each packet, and the last packet with a change to it.
        self._fresh = _last(fresh)
        self.usable = (flags & _NEEDS) == 0
        if not self.usable.all():
            self.usable |= self._back(cleared[_last(fresh | dropped)])
        self.defaults: list[Defaults] = []
        self.default = self._defaults(fields, buf)
        self.tables: dict[int, dict[tuple[int, int], bytes]] = {}
        self._intern(fields, buf)
        self._codes: dict[int, _Lookup] = {}

    def _by_sequence(self, column: _Column) -> _Column:
        if self._order is None:
            return column
        return column[self._order]

    def _back(self, column: _Column) -> _Column:
        """A column by sequences in the order of the packets."""
        if self._order is None:
            return column
        result = np.empty_like(column)
        result[self._order] = column
        return result

    def latest(self, rows: Int32s) -> Int32s:
        """For each packet which of some packets (ascending) is the last of its state up to it, as
        an latest among them; -1 for none.
        """
        result = np.full(len(self.code), -1, np.int32)
        if not len(rows):
            return result
        result[rows] = np.arange(len(rows), dtype=np.int32)
        number = self._by_sequence(result)
        latest = _last(number >= 0)
        valid = (number[latest] >= 0) & (latest >= self._fresh)
        return self._back(np.where(valid, number[latest], np.int32(-1)))

    def _defaults(self, fields: Fields, buf: wire.Bytes) -> Int32s:
        row, start, end = fields.spans(59)
        if not len(row):
            return np.full(fields.count, -1, np.int32)
        for a, b in zip(start.tolist(), end.tolist(), strict=True):
            defaults = Defaults()
            try:
                packet_defaults = message(buf.data, a, b)
                defaults.clock = integer(packet_defaults, 58, -1)
                inner = content(packet_defaults, 11)
                if inner is not None:
                    event = part(inner)
                    if 11 in event:
                        defaults.track = integer(event, 11)
                    defaults.counters = numbers_of(event, 31)
                    defaults.double_counters = numbers_of(event, 45)
            except ReadError:
                self.damaged += 1
            self.defaults.append(defaults)
        # Several in one packet are one, the last.
        rows, last = np.unique(row[::-1], return_index=True)
        self.defaults = [self.defaults[len(row) - 1 - i] for i in last.tolist()]
        return self.latest(rows.astype(np.int32))

    def _intern(self, fields: Fields, buf: wire.Bytes) -> None:
        data = buf.data
        row, start, end = fields.spans(12)
        for state, a, b in zip(self.state[row].tolist(), start.tolist(), end.tolist(), strict=True):
            try:
                for number, kind, first, last in wire.fields(data, a, b):
                    if kind != LENGTH or number not in _TABLES:
                        continue
                    ident, value = 0, b""
                    for inner, inner_kind, x, y in wire.fields(data, first, last):
                        if inner == 1 and inner_kind == VARINT:
                            ident = wire.signed(x)
                        elif inner == 2 and inner_kind == LENGTH:
                            value = bytes(data[x:y])
                    if number in (QUEUE, GPU_COUNTERS):
                        value = bytes(data[first:last])
                    self.tables.setdefault(number, {}).setdefault((state, ident), value)
            except ReadError:
                self.damaged += 1

    def entry(self, table: int, row: int, ident: int) -> bytes | None:
        """Meaning of an id for one packet: the text, or the message of tables that have more than a
        text; None for an unknown id.
        """
        return self.tables.get(table, {}).get((int(self.state[row]), ident))

    def lookup(
        self, table: int, rows: Int32s | Int64s | None, ident: Int64s, codes: Sequence[int]
    ) -> Int32s:
        """Codes of the meanings of ids for packets; -1 for an unknown id.

        Parameters
        ----------
        table : int
        rows : integers[k], optional
            The packets; all of them if left out.
        ident : int64[k]
        codes : sequence of int
            Of each entry of the table.
        """
        if table not in self._codes:
            self._codes[table] = _Lookup(self.tables.get(table, {}), self.states)
        state = self.state
        if rows is not None:
            state = state[rows]
        return self._codes[table].find(state, ident, np.asarray(codes, np.int32))


def _last(marks: npt.NDArray[np.bool_]) -> Int32s:
    """For each place the last one up to it that is marked; 0 where there is none."""
    rows = np.flatnonzero(marks)
    if not len(rows) or rows[0]:
        rows = np.append(0, rows)
    result: Int32s = np.repeat(rows.astype(np.int32), np.diff(np.append(rows, len(marks))))
    return result


class _Lookup:
    """Entries by (state, id)."""

    def __init__(self, entries: dict[tuple[int, int], bytes], states: int) -> None:
        keys = np.array(list(entries), np.int64).reshape(-1, 2)
        self.idents, inverse = np.unique(keys[:, 1], return_inverse=True)
        self.top = int(self.idents[-1]) if len(keys) else -1
        self.table: Int32s | None = None
        if len(keys) and self.idents[0] >= 0 and states * (self.top + 2) <= _MOST:
            self.table = np.full(states * (self.top + 2), -1, np.int32)
            self.table[keys[:, 0] * (self.top + 2) + keys[:, 1]] = np.arange(
                len(keys), dtype=np.int32
            )
        else:
            key = keys[:, 0] * max(len(self.idents), 1) + inverse.reshape(-1)
            self.order = np.argsort(key)
            self.keys = key[self.order]

    def find(self, state: Int32s, ident: Int64s, codes: Int32s) -> Int32s:
        codes = np.append(codes, np.int32(-1))
        if not len(self.idents):
            return np.full(len(ident), -1, np.int32)
        if self.table is not None:
            # Too large or negative ids fall on the last id of a state, which is unused.
            entry = np.minimum(ident.view(np.uint64), np.uint64(self.top + 1)).view(np.int64)
            if int(state.max(initial=0)) > 0:
                entry += state.astype(np.int64) * (self.top + 2)
            # One table of both: an entry that is not there has the place -1, and so the last code.
            looked_up: Int32s = codes[self.table][entry]
            return looked_up
        position = np.minimum(np.searchsorted(self.idents, ident), len(self.idents) - 1)
        key = state.astype(np.int64) * len(self.idents) + position
        entry = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        valid = (self.idents[position] == ident) & (self.keys[entry] == key)
        return np.where(valid, codes[self.order[entry]], np.int32(-1))


def numbers_of(fields: Message, number: int) -> list[int]:
    """The numbers of a field that there may be often, packed or not."""
    result: list[int] = []
    for value in fields.get(number, ()):
        if isinstance(value, int):
            result.append(value)
        else:
            pos = 0
            while pos < len(value):
                varint, pos = wire.read_varint(value, pos, len(value))
                result.append(wire.signed(varint))
    return result
