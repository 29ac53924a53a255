"""What the planes of an XSpace file state once for many events: names of events and stats by id,
and constants of a name.

The entries of the two maps of all planes are read in lockstep. As in every protobuf map, of entries
with one key the last counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nbprof.core import wire
from nbprof.core.trace import Int32s
from nbprof.core.wire import LENGTH, VARINT, Field, Int64s
from nbprof.formats.xspace import general as xspace_general
from nbprof.formats.xspace.general import (
    BYTES_TAG,
    DOUBLE_TAG,
    INT_TAG,
    REF_TAG,
    TEXT_TAG,
    UINT_TAG,
)
from nbprof.formats.xspace.texts import Strings, span_texts

_ENTRY_DEPTH, _VALUE_DEPTH, _FACT_DEPTH = 2, 3, 4
# Ids up to this many times their count are looked up in a table, others by bisection.
_SPARSE, _FEW = 8, 32

Spans = Sequence[Int64s]
"""int64[entries, 2] of each plane."""
# Programs that are counted, as those of CPUs are, have smaller idents.
_LEAST_FINGERPRINT = 1 << 32
_NUMBERED = re.compile(r"\((\d{1,20})\)\Z")


@dataclass
class StatNames:
    """Names and descriptions of the stats of one plane by id."""

    names: dict[int, str] = field(default_factory=dict)
    descriptions: dict[int, str] = field(default_factory=dict)

    def name(self, ident: int) -> str:
        """The name of a stat; of one that the plane does not name, its number."""
        return self.names.get(ident) or f"stat {ident}"


@dataclass
class EventNames:
    """Names of the events of one plane: lists of equal length, and by place in them what only some
    have.
    """

    keys: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    names: list[str] = field(default_factory=list)
    displays: list[str] = field(default_factory=list)
    metadata: dict[int, bytes] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    facts: dict[int, list[tuple[str, object]]] = field(default_factory=dict)

    @cached_property
    def _sorted(self) -> tuple[Int64s, Int64s]:
        order = np.argsort(self.keys, kind="stable")
        return self.keys[order], order

    @cached_property
    def _table(self) -> Int32s | None:
        keys, order = self._sorted
        if len(keys) < _FEW or keys[0] < 0 or keys[-1] >= _SPARSE * len(keys):
            return None
        table = np.full(int(keys[-1]) + 2, -1, np.int32)
        table[keys] = order
        return table

    def places(self, idents: Int64s) -> Int32s:
        """For ids of events their place in the lists; -1 where the plane does not name them."""
        table = self._table
        if table is not None:
            return table[
                np.minimum(idents.view(np.uint64), np.uint64(len(table) - 1)).view(np.int64)
            ]
        keys, order = self._sorted
        if not len(keys):
            return np.full(len(idents), -1, np.int32)
        index = np.minimum(np.searchsorted(keys, idents), len(keys) - 1)
        return np.where(keys[index] == idents, order[index], -1).astype(np.int32)


@dataclass
class _Map:
    """The entries of one map of all planes: plane and key of each, and the fields of the values by
    entry.
    """

    plane: list[int]
    key: Int64s
    fields: list[Field]

    def texts(self, buf: wire.Bytes, number: int, strings: Strings) -> list[str]:
        """A text of each entry; empty where it has none."""
        count = len(self.plane)
        column = next((f for f in self.fields if (f.number, f.kind) == (number, LENGTH)), None)
        if column is None:
            return [""] * count
        if np.bincount(column.message).max() > 1:
            # Texts that another one replaces don't count, but a bad byte in them is reported.
            span_texts(buf, column.value, column.end, strings)
        return span_texts(buf, *xspace_general.last_of(column, count), strings)


def program_idents(programs: Iterable[tuple[str, int, object]]) -> list[int]:
    """The idents of the compiled programs of a plane, given the name of each, its key in the map
    and its stat `program_id`.

    An ident is what `program_id` states, as of JAX 0.11, which only counts the keys; of programs
    that state the same number, none has it. Where nothing is stated, it is the key, and stands
    behind the name, too: `jit_step(17342868964687645945)`. Some recorders only count the keys
    there, too. Then events state what stands behind the name: a fingerprint of 64 bits, or on CPUs
    a small number that is not always unique.
    """
    listed = list(programs)
    times = Counter(program_id for _, _, program_id in listed if isinstance(program_id, int))
    # Below 0 there are no small numbers, and no fingerprint that is as short as a key.
    result = []
    for name, key, program_id in listed:
        if not isinstance(program_id, int):
            result.append(_unstated(name, key))
        elif times[program_id] == 1:
            result.append(_signed(program_id))
        else:
            result.append(-1 - key)
    return result


def _unstated(name: str, key: int) -> int:
    match = _NUMBERED.search(name)
    ident = int(match.group(1)) if match else 0
    return _signed(ident) if _LEAST_FINGERPRINT <= ident < 1 << 64 else key


def _signed(ident: int) -> int:
    """As a signed number of 64 bits."""
    return ident - (1 << 64) if ident >= 1 << 63 else ident


def stat_names(buf: wire.Bytes, spans: Spans, strings: Strings) -> list[StatNames]:
    """Names of stats, plane by plane, from the spans of the entries of each.

    Raises
    ------
    ReadError
        A field does not fit its message.
    """
    result = [StatNames() for _ in spans]
    entries = _entries(buf, spans)
    names, descriptions = entries.texts(buf, 2, strings), entries.texts(buf, 3, strings)
    for plane, key, name, description in zip(
        entries.plane, entries.key.tolist(), names, descriptions, strict=True
    ):
        result[plane].names[key] = name
        if description:
            result[plane].descriptions[key] = description
        else:
            result[plane].descriptions.pop(key, None)
    return result


def event_names(
    buf: wire.Bytes, spans: Spans, stats: list[StatNames], strings: Strings
) -> list[EventNames]:
    """Names of events, plane by plane, from the spans of the entries of each.

    Raises
    ------
    ReadError
        A field does not fit its message.
    """
    entries = _entries(buf, spans)
    names, displays = entries.texts(buf, 2, strings), entries.texts(buf, 4, strings)
    result: list[EventNames] = []
    # By entry its place in the lists of its plane, -1 where a later one replaces it: plain numbers,
    # nothing for the garbage collector.
    position = [-1] * len(names)
    first = 0
    for each in spans:
        keys = entries.key[first : first + len(each)].tolist()
        last = dict(zip(keys, range(first, first + len(each)), strict=True))
        plane_rows = list(last.values())
        result.append(
            EventNames(
                np.array(list(last), np.int64),
                [names[i] for i in plane_rows],
                [displays[i] or names[i] for i in plane_rows],
            )
        )
        for i, entry in enumerate(plane_rows):
            position[entry] = i
        first += len(each)
    _extras(buf, entries, (result, position), stats, strings)
    return result


def _extras(
    buf: wire.Bytes,
    entries: _Map,
    earlier: tuple[list[EventNames], list[int]],
    stats: list[StatNames],
    strings: Strings,
) -> None:
    """What few names have: opaque metadata, children, constants."""
    data = buf.data
    planes, position = earlier
    for column in entries.fields:
        if column.number == 3 and column.kind == LENGTH:
            starts, ends = xspace_general.last_of(column, len(position))
            for entry in np.unique(column.message).tolist():
                if (index := position[entry]) >= 0:
                    planes[entries.plane[entry]].metadata[index] = bytes(
                        data[starts[entry] : ends[entry]]
                    )
        elif column.number == 5 and column.kind == LENGTH:
            rows = xspace_general.stat_rows(buf, column, _FACT_DEPTH)
            owners = rows.owner.tolist()
            for owner, fact in zip(
                owners,
                facts(buf, rows, [stats[entries.plane[i]] for i in owners], strings),
                strict=True,
            ):
                if (index := position[owner]) >= 0:
                    planes[entries.plane[owner]].facts.setdefault(index, []).append(fact)
    for entry, _, idents in sorted(_children(data, entries.fields)):
        if (index := position[entry]) >= 0:
            planes[entries.plane[entry]].children.setdefault(index, []).extend(idents)


def _children(data: memoryview, fields: list[Field]) -> list[tuple[int, int, list[int]]]:
    """Ids of children as (entry, byte, ids): protobuf writes them one by one, or packed into one
    field.
    """
    result: list[tuple[int, int, list[int]]] = []
    for column in fields:
        if column.number != 6 or column.kind not in (VARINT, LENGTH):
            continue
        for entry, value, end in zip(
            column.message.tolist(), column.value.tolist(), column.end.tolist(), strict=True
        ):
            if column.kind == VARINT:
                result.append((entry, end, [value]))
                continue
            pos, idents = value, []
            while pos < end:
                number, pos = wire.read_varint(data, pos, end)
                idents.append(wire.signed(number))
            result.append((entry, end, idents))
    return result


def _entries(buf: wire.Bytes, spans: Spans) -> _Map:
    """The entries of all planes. Several values of one entry are read as one, as protobuf merges
    messages.
    """
    plane = np.repeat(np.arange(len(spans)), [len(each) for each in spans]).tolist()
    flat = np.concatenate([np.zeros((0, 2), np.int64), *spans])
    key = np.zeros(len(plane), np.int64)
    fields: list[Field] = []
    for column in wire.columns(buf, flat[:, 0], flat[:, 1], _ENTRY_DEPTH):
        if column.number == 1 and column.kind == VARINT:
            key[column.message] = column.value
        elif column.number == 2 and column.kind == LENGTH:
            values = wire.columns(buf, column.value, column.end, _VALUE_DEPTH)
            fields = [
                Field(f.number, f.kind, column.message[f.message], f.value, f.end) for f in values
            ]
    return _Map(plane, key, fields)


def facts(
    buf: wire.Bytes, rows: xspace_general.StatRows, names: list[StatNames], strings: Strings
) -> list[tuple[str, object]]:
    """Stats as (name, value); `names` are those of the plane of each.

    Raises
    ------
    ReadError
    """
    data = buf.data
    doubles = rows.value.view(np.float64).tolist()
    result: list[tuple[str, object]] = []
    columns = (
        rows.ident.tolist(),
        rows.tag.tolist(),
        rows.value.tolist(),
        rows.end.tolist(),
        doubles,
        names,
    )
    for ident, tag, value, end, double, is_known in zip(*columns, strict=True):
        fact: object = None
        if tag == INT_TAG:
            fact = value
        elif tag == UINT_TAG:
            fact = value & 0xFFFFFFFFFFFFFFFF
        elif tag == DOUBLE_TAG:
            fact = double
        elif tag == TEXT_TAG:
            fact = strings.decode(data[value:end])
        elif tag == BYTES_TAG:
            fact = bytes(data[value:end])
        elif tag == REF_TAG:
            fact = is_known.names.get(value, "")
        result.append((is_known.name(ident), fact))
    for start, end in rows.hidden:
        strings.decode(data[start:end])
    return result
