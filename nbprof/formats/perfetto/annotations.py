"""Debug annotations as args: a value by name, with dotted names for what is in a dict; arrays as
the JSON text that Chrome traces have.

Format: https://perfetto.dev/docs/reference/trace-packet-proto (`DebugAnnotation`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.trace import DOUBLE, INT, TEXT, UINT, Int32s, Int64s
from nbprof.core.wire import FIXED64, LENGTH, VARINT
from nbprof.formats.chrome.part import Rows
from nbprof.formats.perfetto import fields as perfetto_fields
from nbprof.formats.perfetto import sequences as perfetto_sequences
from nbprof.formats.perfetto.fields import Fields, Spec
from nbprof.formats.perfetto.sequences import Sequences, part
from nbprof.formats.perfetto.texts import Texts

_SPEC: Spec = dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17))
_DEEPEST = 32
# Longer parts of a dotted name are cut: each may be repeated by a million others.
_LONGEST_NAME = 200
_LOST = "(name lost)"


@dataclass
class _Found:
    """Values of some annotations: their packets, names (codes), kinds and values."""

    row: Int32s
    name: Int32s
    kind: npt.NDArray[np.uint8]
    value: Int64s
    rank: Int64s
    """The place of the outermost annotation that each is in."""


def read(
    buf: wire.Bytes, spans: tuple[Int32s, Int64s, Int64s], sequences: Sequences, texts: Texts
) -> tuple[dict[str, Rows], int]:
    """The args of packets, by name, and how many annotations could not be read.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    spans : rows (packets), starts and ends
    sequences : Sequences
    texts : Texts
    """
    row, start, end = spans
    found: list[_Found] = []
    damaged, rank, above = 0, np.arange(len(row), dtype=np.int64), np.full(len(row), -1, np.int32)
    for _ in range(_DEEPEST):
        if not len(row):
            break
        columns = perfetto_fields.read(buf, start, end, _SPEC)
        damaged += int(columns.bad.sum())
        name = _names(buf, columns, row, sequences, texts, above)
        some, left = _values(buf, columns, row, name, rank, sequences, texts)
        found += some
        damaged += left
        inner, start, end = columns.spans(11)
        row, rank, above = row[inner], rank[inner], name[inner]
    else:
        damaged += len(row)
    out: dict[str, Rows] = {}
    if not found:
        return out, damaged
    rows, names = np.concatenate([f.row for f in found]), np.concatenate([f.name for f in found])
    kinds, values = (
        np.concatenate([f.kind for f in found]),
        np.concatenate([f.value for f in found]),
    )
    places = np.concatenate([f.rank for f in found])
    if len(found) > 1:
        # In the order of the file: of several of one name the last counts.
        order = np.argsort(places, kind="stable")
        rows, names, kinds, values = rows[order], names[order], kinds[order], values[order]
    listed = texts.listed
    codes = np.flatnonzero(np.bincount(names))
    order = np.argsort(
        np.searchsorted(codes, names).astype(np.uint16 if len(codes) < 1 << 16 else np.int64),
        kind="stable",
    )
    edges = np.searchsorted(names[order], codes)
    for code, mine in zip(codes.tolist(), np.split(order, edges[1:]), strict=True):
        out[listed[code]] = Rows(rows[mine], kinds[mine], values[mine])
    return out, damaged


def _names(
    buf: wire.Bytes, columns: Fields, row: Int32s, sequences: Sequences, texts: Texts, above: Int32s
) -> Int32s:
    """The name of each annotation, as a code."""
    name = np.full(len(row), -1, np.int32)
    ident = columns.number(1)
    at = np.flatnonzero(ident != 0)
    if len(at):
        table = perfetto_sequences.KEY
        name[at] = sequences.lookup(table, row[at], ident[at], texts.of_table(sequences, table))
    own, start, end = columns.spans(10)
    if len(own):
        name[own] = texts.spans(buf, start, end)
    name[name < 0] = texts.code(_LOST)
    inside = np.flatnonzero(above >= 0)
    if len(inside):
        pairs, which = np.unique(
            np.stack([above[inside], name[inside]]), axis=1, return_inverse=True
        )
        listed = texts.listed
        joined = [
            texts.code(f"{listed[a][:_LONGEST_NAME]}.{listed[b][:_LONGEST_NAME]}")
            for a, b in pairs.T.tolist()
        ]
        name[inside] = np.array(joined, np.int32)[which.reshape(-1)]
    return name


def _values(
    buf: wire.Bytes,
    columns: Fields,
    row: Int32s,
    name: Int32s,
    rank: Int64s,
    sequences: Sequences,
    texts: Texts,
) -> tuple[list[_Found], int]:
    """Values of the annotations that are no dict, and how many could not be read."""
    out: list[_Found] = []
    damaged = 0

    def add(at: Int32s, kind: int | npt.NDArray[np.uint8], value: Int64s) -> None:
        if len(at):
            kinds = np.full(len(at), kind, np.uint8) if isinstance(kind, int) else kind
            out.append(_Found(row[at], name[at], kinds, value, rank[at]))

    at, value = columns.numbers(2)
    add(at, INT, (value != 0).astype(np.int64))
    at, value = columns.numbers(4)
    add(at, INT, value)
    at, value = columns.numbers(3)
    add(at, np.where(value < 0, UINT, INT).astype(np.uint8), value)
    at, value = columns.numbers(5, kind=FIXED64)
    add(at, DOUBLE, value)
    at, value = columns.numbers(7)
    if len(at):
        codes, which = np.unique(value, return_inverse=True)
        add(
            at,
            TEXT,
            np.array(
                [texts.code(hex(one & 0xFFFFFFFFFFFFFFFF)) for one in codes.tolist()], np.int64
            )[which.reshape(-1)],
        )
    at, value = columns.numbers(17)
    if len(at):
        table = perfetto_sequences.TEXT
        codes = sequences.lookup(table, row[at], value, texts.of_table(sequences, table)).astype(
            np.int64
        )
        known = codes >= 0
        damaged += int((~known).sum())
        add(at[known], TEXT, codes[known])
    for number in (6, 9):
        at, start, end = columns.spans(number)
        if len(at):
            add(at, TEXT, texts.spans(buf, start, end).astype(np.int64))
    # Values that nest in themselves, as recorders wrote them before 2021, are not read.
    damaged += len(columns.spans(8)[0])
    # Arrays one by one.
    arrays = np.unique(columns.spans(12)[0])
    if len(arrays):
        items: dict[int, list[object]] = {one: [] for one in arrays.tolist()}
        for one, a, b in zip(*(column.tolist() for column in columns.spans(12)), strict=True):
            try:
                items[one].append(_plain(bytes(buf.data[a:b]), int(row[one]), sequences, 0))
            except ReadError:
                damaged += 1
        lists = [
            texts.code(json.dumps(values, ensure_ascii=False, default=str))
            for values in items.values()
        ]
        add(arrays, TEXT, np.array(lists, np.int64))
    return out, damaged


def _plain(data: bytes, row: int, sequences: Sequences, depth: int) -> object:
    """The value of one annotation in an array."""
    if depth > _DEEPEST:
        raise ReadError("annotations are nested too deep")
    keys: list[tuple[str, object]] = []
    values: list[object] = []
    out: object = None
    for number, kind, value, stop in wire.fields(data, 0, len(data)):
        if kind == VARINT:
            if number == 2:
                out = bool(value)
            elif number == 3:
                out = value
            elif number == 4:
                out = wire.signed(value)
            elif number == 7:
                out = hex(value)
            elif number == 17:
                out = (
                    sequences.entry(perfetto_sequences.TEXT, row, wire.signed(value)) or b""
                ).decode("utf-8", "replace")
        elif kind == FIXED64 and number == 5:
            out = float(np.frombuffer(data, "<f8", 1, value)[0])
        elif kind == LENGTH:
            content = data[value:stop]
            if number in (6, 9):
                out = content.decode("utf-8", "replace")
            elif number == 8:
                raise ReadError("values that nest in themselves are not read")
            elif number == 11:
                keys.append(
                    (_key(content, row, sequences), _plain(content, row, sequences, depth + 1))
                )
            elif number == 12:
                values.append(_plain(content, row, sequences, depth + 1))
    return dict(keys) if keys else values if values else out


def _key(data: bytes, row: int, sequences: Sequences) -> str:
    found = part(data)
    if 10 in found:
        return perfetto_sequences.text(found, 10)
    known = sequences.entry(perfetto_sequences.KEY, row, perfetto_sequences.whole(found, 1))
    return known.decode("utf-8", "replace") if known is not None else _LOST
