"""The buffer assignment of a compiled program, its values in memory, as columns.

Source of the message numbers: `hlo.proto` of https://github.com/openxla/xla (BufferAssignmentProto,
LogicalBufferProto, BufferAllocationProto, HeapSimulatorTrace).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.factorize import lookup
from nbprof.core.wire import LENGTH, VARINT, Bytes, Int64s
from nbprof.hlo.hlo import Program
from nbprof.hlo.shapes import numbers

_BUFFERS, _ALLOCATIONS, _TRACES = 1, 3, 4
_ID, _SIZE, _DEFINED, _COLOUR = 1, 2, 3, 4
_DEFINED_NAME, _DEFINED_INDEX, _DEFINED_ID = 2, 3, 4
_INDEX, _THREAD_LOCAL, _PARAMETER, _PARAMETER_NUMBER, _LIVE_OUT = 1, 3, 5, 6, 7
_ALLOCATION_COLOUR, _ASSIGNED, _TUPLE, _CONSTANT = 8, 9, 11, 12
_ASSIGNED_BUFFER, _ASSIGNED_OFFSET, _ASSIGNED_SIZE = 1, 2, 3
_EVENTS, _TRACE_ALLOCATION = 1, 3
_KIND, _EVENT_BUFFER, _EVENT_INSTRUCTION, _EVENT_SHARED = 1, 2, 4, 5
_DEPTH = 1

ALLOC, FREE, SHARE = 0, 1, 2
"""Kinds of an event of the heap."""

Bools = npt.NDArray[np.bool_]


@dataclass
class Buffers:
    """Values in memory, one row each.

    `instruction` is the index of the instruction that computes it (-1: not in the program), `index`
    the part of its value if that is a tuple.
    """

    ident: Int64s
    size: Int64s
    colour: Int64s
    instruction: Int64s
    index: dict[int, tuple[int, ...]]


@dataclass
class Allocations:
    """Pieces of memory that contain buffers, one row each.

    `parameter` is -1 if it is not a parameter of the program.
    """

    index: Int64s
    size: Int64s
    colour: Int64s
    thread_local: Bools
    parameter: Int64s
    live_out: Bools
    tuple_: Bools
    constant: Bools


@dataclass
class Assigned:
    """The place of buffers in allocations: rows of both, offset and size in bytes.

    The row of a buffer is -1 if it is not listed.
    """

    allocation: Int64s
    buffer: Int64s
    offset: Int64s
    size: Int64s


@dataclass
class HeapTrace:
    """The order in which the compiler's heap allocated and freed memory.

    `buffer` and `shared` are idents of buffers; `instruction` are codes into `names`. `allocation`
    is the index of an allocation, -1 if the trace states none.
    """

    allocation: int
    kind: Int64s
    buffer: Int64s
    shared: Int64s
    instruction: Int64s
    names: list[str]


@dataclass
class Assignment:
    """The buffer assignment of a program."""

    buffers: Buffers
    allocations: Allocations
    assigned: Assigned
    traces: list[HeapTrace]


def read(program: Program) -> Assignment | None:
    """The buffer assignment of a program; None if the file has none.

    Raises
    ------
    ReadError
        It is damaged.
    """
    if program.assignment is None:
        return None
    buf = program.buffer
    spans, _ = wire.split(buf.data, *program.assignment, _DEPTH)
    buffers = _buffers(buf, program, *_span(spans.get(_BUFFERS)))
    allocations, assigned = _allocations(buf, buffers, *_span(spans.get(_ALLOCATIONS)))
    traces = []
    for start, end in zip(*spans.get(_TRACES, ([], [])), strict=True):
        traces.append(_trace(buf, start, end))
    return Assignment(buffers, allocations, assigned, traces)


def _span(spans: tuple[list[int], list[int]] | None) -> tuple[Int64s, Int64s]:
    start, end = spans or ([], [])
    return np.array(start, np.int64), np.array(end, np.int64)


class _Messages:
    """The fields of many messages of one kind."""

    def __init__(self, buf: Bytes, start: Int64s, end: Int64s, depth: int) -> None:
        self._count = len(start)
        self._fields = {(f.number, f.kind): f for f in wire.columns(buf, start, end, depth)}

    def field(self, number: int, kind: int) -> wire.Field | None:
        """One field as it is."""
        return self._fields.get((number, kind))

    def numbers(self, number: int, missing: int = 0) -> Int64s:
        """A number of each message; of a field that occurs twice, the last counts."""
        result = np.full(self._count, missing, np.int64)
        field = self._fields.get((number, VARINT))
        if field is not None:
            result[field.message] = field.value
        return result

    def flags(self, number: int) -> Bools:
        """A flag of each message."""
        return np.asarray(self.numbers(number) != 0, np.bool_)

    def spans(self, number: int) -> tuple[Int64s, Int64s, Int64s]:
        """The messages inside, in order: the index of the outer one, start and end."""
        field = self._fields.get((number, LENGTH))
        if field is None:
            return (np.zeros(0, np.int64),) * 3
        order = np.argsort(field.message, kind="stable")
        return field.message[order], field.value[order], field.end[order]


def _texts(buf: Bytes, start: Int64s, end: Int64s) -> tuple[Int64s, list[str]]:
    """Texts as codes, and the texts of the codes."""
    data = buf.data
    code_of: dict[bytes, int] = {}
    codes = np.zeros(len(start), np.int64)
    for row, (first, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        codes[row] = code_of.setdefault(bytes(data[first:last]), len(code_of))
    return codes, [text.decode("utf-8", "replace") for text in code_of]


def _buffers(buf: Bytes, program: Program, start: Int64s, end: Int64s) -> Buffers:
    rows = _Messages(buf, start, end, _DEPTH + 1)
    owner, defined_start, defined_end = rows.spans(_DEFINED)
    defined = _Messages(buf, defined_start, defined_end, _DEPTH + 2)
    ident = np.full(len(start), -1, np.int64)
    ident[owner] = defined.numbers(_DEFINED_ID, -1)
    order = np.argsort(program.idents, kind="stable")
    by_ident = lookup(program.idents[order], order, ident)
    instruction = np.where(ident >= 0, by_ident, -1)
    # Programs from before 2022 name the instruction.
    message, name_start, name_end = defined.spans(_DEFINED_NAME)
    if len(message):
        codes, names = _texts(buf, name_start, name_end)
        by_name = np.full(len(names), -1, np.int64)
        for code, name in enumerate(names):
            index_of_name = program.index_of_name(name)
            if index_of_name is not None:
                by_name[code] = index_of_name
        by_name = by_name[codes]
        row = owner[message]
        lacks_ident = (instruction[row] < 0) & (ident[row] < 0)
        instruction[row[lacks_ident]] = by_name[lacks_ident]
    index = _tuple_indices(buf, defined, owner)
    return Buffers(
        rows.numbers(_ID), rows.numbers(_SIZE), rows.numbers(_COLOUR), instruction, index
    )


def _tuple_indices(buf: Bytes, defined: _Messages, owner: Int64s) -> dict[int, tuple[int, ...]]:
    """The part of its tuple that each buffer is, by row."""
    indices: dict[int, tuple[int, ...]] = {}
    for kind in (VARINT, LENGTH):
        field = defined.field(_DEFINED_INDEX, kind)
        if field is None:
            continue
        order = np.argsort(field.message, kind="stable")
        columns = np.stack([field.message, field.value, field.end], axis=1)
        for message, value, end in columns[order].tolist():
            row = int(owner[message])
            indices[row] = (*indices.get(row, ()), *numbers(buf.data, kind, value, end))
    return indices


def _allocations(
    buf: Bytes, buffers: Buffers, start: Int64s, end: Int64s
) -> tuple[Allocations, Assigned]:
    rows = _Messages(buf, start, end, _DEPTH + 1)
    parameter = np.where(rows.flags(_PARAMETER), rows.numbers(_PARAMETER_NUMBER), -1)
    allocations = Allocations(
        rows.numbers(_INDEX), rows.numbers(_SIZE), rows.numbers(_ALLOCATION_COLOUR),
        rows.flags(_THREAD_LOCAL), parameter, rows.flags(_LIVE_OUT), rows.flags(_TUPLE),
        rows.flags(_CONSTANT),
    )  # fmt: skip
    owner, begin, stop = rows.spans(_ASSIGNED)
    parts = _Messages(buf, begin, stop, _DEPTH + 2)
    ident = parts.numbers(_ASSIGNED_BUFFER)
    order = np.argsort(buffers.ident, kind="stable")
    return allocations, Assigned(
        owner,
        lookup(buffers.ident[order], order, ident),
        parts.numbers(_ASSIGNED_OFFSET),
        parts.numbers(_ASSIGNED_SIZE),
    )


def _trace(buf: Bytes, start: int, end: int) -> HeapTrace:
    allocation = -1
    spans, scalars = wire.split(buf.data, start, end, _DEPTH + 1)
    for number, kind, value, _ in scalars:
        if number == _TRACE_ALLOCATION and kind == VARINT:
            allocation = wire.signed(value)
    first, last = _span(spans.get(_EVENTS))
    rows = _Messages(buf, first, last, _DEPTH + 2)
    code = np.full(len(first), -1, np.int64)
    owner, begin, stop = rows.spans(_EVENT_INSTRUCTION)
    codes, names = _texts(buf, begin, stop)
    code[owner] = codes
    return HeapTrace(
        allocation,
        rows.numbers(_KIND),
        rows.numbers(_EVENT_BUFFER),
        rows.numbers(_EVENT_SHARED),
        code,
        names,
    )
