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
from nbprof.formats.build import stable_order
from nbprof.formats.chrome.part import Rows
from nbprof.formats.perfetto import fields as perfetto_fields
from nbprof.formats.perfetto import sequences as perfetto_sequences
from nbprof.formats.perfetto.fields import NUMBER, Fields, Spec
from nbprof.formats.perfetto.sequences import Sequences, part
from nbprof.formats.perfetto.texts import Texts

_SPEC: Spec = {1: NUMBER, **dict.fromkeys((2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17))}
_DEEPEST = 32
# Longer parts of a dotted name are cut: each may be repeated by a million others.
_LONGEST_NAME = 200
_LOST = "(name lost)"


@dataclass
class _Values:
    """Values of annotations, with the index of the annotation that each is of."""

    annotation: Int32s
    kind: npt.NDArray[np.uint8]
    value: Int64s

    def placed(self, row: Int32s, name: Int32s, rank: Int64s) -> _PacketValues:
        """The values with the packets, names and ranks of their annotations."""
        index = self.annotation
        return _PacketValues(row[index], name[index], self.kind, self.value, rank[index])


@dataclass
class _PacketValues:
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
    parts: list[_PacketValues] = []
    damaged, rank, above = 0, np.arange(len(row), dtype=np.int64), np.full(len(row), -1, np.int32)
    for _ in range(_DEEPEST):
        if not len(row):
            break
        columns = perfetto_fields.read(buf, start, end, _SPEC)
        damaged += int(columns.bad.sum())
        name = _names(buf, columns, row, sequences, texts, above)
        values_at_depth, unread = _values(buf, columns, row, sequences, texts)
        parts += [part.placed(row, name, rank) for part in values_at_depth]
        damaged += unread
        inner, start, end = columns.spans(11)
        row, rank, above = row[inner], rank[inner], name[inner]
    else:
        damaged += len(row)
    result: dict[str, Rows] = {}
    if not parts:
        return result, damaged
    rows = np.concatenate([part.row for part in parts])
    names = np.concatenate([part.name for part in parts])
    kinds = np.concatenate([part.kind for part in parts])
    values = np.concatenate([part.value for part in parts])
    if len(parts) > 1:
        # In the order of the file: of several of one name the last counts.
        order = np.argsort(np.concatenate([part.rank for part in parts]), kind="stable")
        rows, names, kinds, values = rows[order], names[order], kinds[order], values[order]
    listed = texts.listed
    codes = np.flatnonzero(np.bincount(names))
    order = stable_order(np.searchsorted(codes, names))
    edges = np.searchsorted(names[order], codes)
    for code, rows_of_code in zip(codes.tolist(), np.split(order, edges[1:]), strict=True):
        result[listed[code]] = Rows(rows[rows_of_code], kinds[rows_of_code], values[rows_of_code])
    return result, damaged


def _names(
    buf: wire.Bytes, columns: Fields, row: Int32s, sequences: Sequences, texts: Texts, above: Int32s
) -> Int32s:
    """The name of each annotation, as a code."""
    name = np.full(len(row), -1, np.int32)
    ident = columns.number(1)
    rows = np.flatnonzero(ident != 0)
    if len(rows):
        table = perfetto_sequences.KEY
        name[rows] = sequences.lookup(
            table, row[rows], ident[rows], texts.of_table(sequences, table)
        )
    owner, start, end = columns.spans(10)
    if len(owner):
        name[owner] = texts.spans(buf, start, end)
    name[name < 0] = texts.code(_LOST)
    nested = np.flatnonzero(above >= 0)
    if len(nested):
        pairs, inverse = np.unique(
            np.stack([above[nested], name[nested]]), axis=1, return_inverse=True
        )
        listed = texts.listed
        joined = [
            texts.code(f"{listed[a][:_LONGEST_NAME]}.{listed[b][:_LONGEST_NAME]}")
            for a, b in pairs.T.tolist()
        ]
        name[nested] = np.array(joined, np.int32)[inverse.reshape(-1)]
    return name


def _values(
    buf: wire.Bytes,
    columns: Fields,
    row: Int32s,
    sequences: Sequences,
    texts: Texts,
) -> tuple[list[_Values], int]:
    """Values of the annotations of `row` that are no dict, and how many could not be read.

    Each value goes by the annotation that it is of, as an index into `row`.
    """
    result: list[_Values] = []

    def add(annotation: Int32s, kind: int | npt.NDArray[np.uint8], value: Int64s) -> None:
        if len(annotation):
            kinds = np.full(len(annotation), kind, np.uint8)
            result.append(_Values(annotation, kinds, value))

    annotation, value = columns.numbers(2)
    add(annotation, INT, (value != 0).astype(np.int64))
    annotation, value = columns.numbers(4)
    add(annotation, INT, value)
    annotation, value = columns.numbers(3)
    add(annotation, np.where(value < 0, UINT, INT).astype(np.uint8), value)
    annotation, value = columns.numbers(5, kind=FIXED64)
    add(annotation, DOUBLE, value)
    annotation, value = columns.numbers(7)
    if len(annotation):
        pointers, inverse = np.unique(value, return_inverse=True)
        pointer_codes = [
            texts.code(hex(pointer & 0xFFFFFFFFFFFFFFFF)) for pointer in pointers.tolist()
        ]
        add(annotation, TEXT, np.array(pointer_codes, np.int64)[inverse.reshape(-1)])
    damaged = 0
    annotation, value = columns.numbers(17)
    if len(annotation):
        table = perfetto_sequences.TEXT
        codes = sequences.lookup(table, row[annotation], value, texts.of_table(sequences, table))
        valid = codes >= 0
        damaged += int((~valid).sum())
        add(annotation[valid], TEXT, codes[valid].astype(np.int64))
    for number in (6, 9):
        annotation, start, end = columns.spans(number)
        if len(annotation):
            add(annotation, TEXT, texts.spans(buf, start, end).astype(np.int64))
    # Values that nest in themselves, as recorders wrote them before 2021, are not read.
    damaged += len(columns.spans(8)[0])
    arrays, codes_of_arrays, damaged_items = _arrays(buf, columns, row, sequences, texts)
    add(arrays, TEXT, codes_of_arrays)
    return result, damaged + damaged_items


def _arrays(
    buf: wire.Bytes, columns: Fields, row: Int32s, sequences: Sequences, texts: Texts
) -> tuple[Int32s, Int64s, int]:
    """Annotations that are arrays, the codes of their JSON, and how many items are damaged."""
    owner, start, end = columns.spans(12)
    arrays = np.unique(owner)
    damaged = 0
    items: dict[int, list[object]] = {array: [] for array in arrays.tolist()}
    for array, begin, stop in zip(owner.tolist(), start.tolist(), end.tolist(), strict=True):
        try:
            item = _array_item(bytes(buf.data[begin:stop]), int(row[array]), sequences, 0)
        except ReadError:
            damaged += 1
        else:
            items[array].append(item)
    codes = [
        texts.code(json.dumps(values, ensure_ascii=False, default=str)) for values in items.values()
    ]
    return arrays, np.array(codes, np.int64), damaged


def _array_item(data: bytes, row: int, sequences: Sequences, depth: int) -> object:
    """The value of one annotation in an array."""
    if depth > _DEEPEST:
        raise ReadError("annotations are nested too deep")
    keys: list[tuple[str, object]] = []
    values: list[object] = []
    result: object = None
    for number, kind, value, stop in wire.fields(data, 0, len(data)):
        if kind == VARINT:
            if number == 2:
                result = bool(value)
            elif number == 3:
                result = value
            elif number == 4:
                result = wire.signed(value)
            elif number == 7:
                result = hex(value)
            elif number == 17:
                text = sequences.entry(perfetto_sequences.TEXT, row, wire.signed(value)) or b""
                result = text.decode("utf-8", "replace")
        elif kind == FIXED64 and number == 5:
            result = float(np.frombuffer(data, "<f8", 1, value)[0])
        elif kind == LENGTH:
            content = data[value:stop]
            if number in (6, 9):
                result = content.decode("utf-8", "replace")
            elif number == 8:
                raise ReadError("values that nest in themselves are not read")
            elif number == 11:
                key = _key(content, row, sequences)
                keys.append((key, _array_item(content, row, sequences, depth + 1)))
            elif number == 12:
                values.append(_array_item(content, row, sequences, depth + 1))
    if keys:
        return dict(keys)
    return values or result


def _key(data: bytes, row: int, sequences: Sequences) -> str:
    annotation = part(data)
    if 10 in annotation:
        return perfetto_sequences.text(annotation, 10)
    ident = perfetto_sequences.integer(annotation, 1)
    name = sequences.entry(perfetto_sequences.KEY, row, ident)
    if name is None:
        return _LOST
    return name.decode("utf-8", "replace")
