"""Compiled XLA programs in profiles: their instructions, with the framework's names.

Only names are read at first; an instruction is decoded when it is needed, as a program may have a
hundred thousand of them, and a profile only needs those that ran.

Source of the message numbers: `hlo.proto` and `xla_data.proto` of https://github.com/openxla/xla
(HloProto, HloModuleProto, HloComputationProto, HloInstructionProto, OpMetadata,
StackFrameIndexProto).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from nbprof.core import wire
from nbprof.core.factorize import lookup
from nbprof.core.wire import LENGTH, VARINT, Bytes, Int64s
from nbprof.hlo import shapes as hlo_shapes
from nbprof.hlo.shapes import Shape

_HLO_MODULE, _BUFFER_ASSIGNMENT = 1, 3
_MODULE_NAME, _ENTRY_NAME, _COMPUTATIONS, _MODULE_ID, _ENTRY_ID, _FRAME_INDEX = 1, 2, 3, 5, 6, 17
_COMPUTATION_NAME, _INSTRUCTIONS, _COMPUTATION_ID, _ROOT_ID = 1, 2, 5, 6
_NAME, _OPCODE, _SHAPE, _METADATA, _FUSION_KIND, _TARGET, _ID = 1, 2, 3, 7, 11, 28, 35
_OPERANDS, _CALLED = 36, 38
_OP_TYPE, _OP_NAME, _SOURCE_FILE, _SOURCE_LINE, _DUPLICATE, _FRAME = 1, 2, 3, 4, 12, 15
_FILE_NAMES, _LOCATIONS, _FRAMES = 1, 3, 4
_LOCATION_FILE, _LOCATION_LINE, _FRAME_LOCATION = 1, 3, 1
_PROGRAM_DEPTH, _COMPUTATION_DEPTH, _INSTRUCTION_DEPTH, _METADATA_DEPTH = 1, 2, 3, 4
_SHAPE_DEPTH = 4
_IN_COLUMNS = (_NAME, _OPCODE, _SHAPE, _ID)
T = TypeVar("T")
EMPTY = Shape("")
"""The shape of instructions that state none."""


class Instruction(NamedTuple):
    """One instruction of a program.

    `opcode` is that of HLO ("fusion", "custom-call", "dot"), `fusion_kind` "kLoop", "kInput" … or
    '', `target` the function that a custom call calls. `op_name` is the framework's name of the op
    with its scopes and `op_type` its type, '' if the compiler recorded none; `source_line` is 0
    then. `operands` are the idents of instructions, `called` those of computations. `duplicate` is
    the name that instructions with the same code share, '' if there are no others.
    """

    name: str
    ident: int
    opcode: str
    fusion_kind: str
    target: str
    op_name: str
    op_type: str
    source_file: str
    source_line: int
    operands: tuple[int, ...]
    called: tuple[int, ...]
    duplicate: str = ""

    @property
    def framework_op(self) -> str:
        """The op as `scope/name:Type`, the form of `tf_op`; '' if the compiler recorded no name."""
        if not self.op_name:
            return ""
        return f"{self.op_name}:{self.op_type}"


@dataclass(frozen=True)
class Computation:
    """One computation.

    Its instructions are `count` of those of the program, from index `first`; `root` is the ident of
    its root.
    """

    name: str
    ident: int
    root: int
    first: int
    count: int


class Program:
    """One compiled program.

    Parameters
    ----------
    data : bytes
        A serialised HloProto.

    Attributes
    ----------
    name : str
    ident : int
    entry : str
        Name of the entry computation.
    entry_ident : int
        Its ident.
    computations : list of Computation
    assignment : (int, int), optional
        The span of the buffer assignment in `data`; None if there is none.

    Raises
    ------
    ReadError
        The bytes are damaged; if only an instruction is, `instruction` raises it.
    """

    def __init__(self, data: bytes) -> None:
        self._buffer = wire.buffer(data)
        self.name, self.entry, self.ident = "", "", 0
        self.entry_ident = 0
        self.assignment: tuple[int, int] | None = None
        self._frame_index: tuple[int, int] | None = None
        spans: list[tuple[int, int]] = []
        for number, kind, start, end in wire.fields(data, 0, len(data)):
            if (number, kind) == (_BUFFER_ASSIGNMENT, LENGTH):
                self.assignment = start, end
            if (number, kind) != (_HLO_MODULE, LENGTH):
                continue
            for number, kind, value, stop in wire.fields(data, start, end, _PROGRAM_DEPTH):
                if kind == LENGTH and number == _MODULE_NAME:
                    self.name = _text(data, value, stop)
                elif kind == LENGTH and number == _ENTRY_NAME:
                    self.entry = _text(data, value, stop)
                elif kind == LENGTH and number == _COMPUTATIONS:
                    spans.append((value, stop))
                elif kind == LENGTH and number == _FRAME_INDEX:
                    self._frame_index = value, stop
                elif kind == VARINT and number == _MODULE_ID:
                    self.ident = wire.signed(value)
                elif kind == VARINT and number == _ENTRY_ID:
                    self.entry_ident = wire.signed(value)
        self._decoded: dict[int, Instruction] = {}
        self._shapes: dict[int, Shape] = {}
        self._same_shapes: dict[bytes, Shape] = {}
        self._numbers: dict[int, list[int]] = {}
        self.computations: list[Computation] = []
        self._read_computations(np.array(spans, np.int64).reshape(-1, 2))

    def _read_computations(self, spans: Int64s) -> None:
        count = len(spans)
        names, idents, roots = [""] * count, [0] * count, [0] * count
        owner, start, end = np.zeros((3, 0), np.int64)
        for field in wire.columns(self._buffer, spans[:, 0], spans[:, 1], _COMPUTATION_DEPTH):
            if (field.number, field.kind) == (_INSTRUCTIONS, LENGTH):
                order = np.argsort(field.message, kind="stable")
                owner, start, end = field.message[order], field.value[order], field.end[order]
            elif (field.number, field.kind) == (_COMPUTATION_NAME, LENGTH):
                for index, first_byte, stop in zip(
                    field.message.tolist(), field.value.tolist(), field.end.tolist(), strict=True
                ):
                    names[index] = _text(self._buffer.data, first_byte, stop)
            elif field.kind == VARINT and field.number in (_COMPUTATION_ID, _ROOT_ID):
                numbers = idents if field.number == _COMPUTATION_ID else roots
                for index, value in zip(field.message.tolist(), field.value.tolist(), strict=True):
                    numbers[index] = value
        self._start, self._end = start, end
        first = np.searchsorted(owner, np.arange(count + 1))
        for index in range(count):
            self.computations.append(
                Computation(
                    names[index],
                    idents[index],
                    roots[index],
                    int(first[index]),
                    int(first[index + 1] - first[index]),
                )
            )

    def __len__(self) -> int:
        return len(self._start)

    @cached_property
    def _columns(self) -> dict[tuple[int, int], wire.Field]:
        """The fields of all instructions, by number and wire type."""
        fields = wire.columns(self._buffer, self._start, self._end, _INSTRUCTION_DEPTH)
        return {(field.number, field.kind): field for field in fields}

    def _texts(self, number: int) -> list[str]:
        """A text of each instruction, '' if it has none."""
        texts = [""] * len(self)
        field = self._columns.get((number, LENGTH))
        if field is not None:
            order = np.argsort(field.message, kind="stable")
            columns = np.stack([field.message, field.value, field.end], axis=1)
            for index, start, end in columns[order].tolist():
                texts[index] = _text(self._buffer.data, start, end)
        return texts

    @cached_property
    def names(self) -> list[str]:
        """The name of each instruction, in the order of the file."""
        return self._texts(_NAME)

    @cached_property
    def opcodes(self) -> list[str]:
        """The opcode of each instruction."""
        return self._texts(_OPCODE)

    @cached_property
    def idents(self) -> Int64s:
        """The ident of each instruction, int64[instructions]."""
        idents = np.zeros(len(self), np.int64)
        field = self._columns.get((_ID, VARINT))
        if field is not None:
            idents[field.message] = field.value
        return idents

    @cached_property
    def _by_name(self) -> dict[str, int]:
        """Indices of instructions by name, which are unique; of equal ones, the first counts."""
        return _first_indices(self.names)

    @cached_property
    def _by_ident(self) -> dict[int, int]:
        """Indices of instructions by ident; of equal ones, the first counts."""
        return _first_indices(self._ident_list)

    @cached_property
    def _ident_list(self) -> list[int]:
        idents: list[int] = self.idents.tolist()
        return idents

    @cached_property
    def fusion_kinds(self) -> list[str]:
        """The kind of each fusion, "kLoop", "kInput" …; '' for other instructions."""
        return self._texts(_FUSION_KIND)

    def called(self, index: int) -> list[int]:
        """The idents of the computations that an instruction calls.

        Raises
        ------
        ReadError
            The instruction is damaged.
        """
        idents: list[int] = []
        for field, *span in self.fields(index):
            if field == _CALLED:
                idents += hlo_shapes.numbers(self._buffer.data, *span)
        return idents

    def number_of(self, index: int, field: int) -> int:
        """A number of an instruction by the field of HloInstructionProto; 0 if it is not stated."""
        if field not in self._numbers:
            numbers = np.zeros(len(self), np.int64)
            column = self._columns.get((field, VARINT))
            if column is not None:
                numbers[column.message] = column.value
            self._numbers[field] = numbers.tolist()
        return self._numbers[field][index]

    def operands(self, index: int) -> Sequence[int]:
        """The indices of the operands of an instruction, -1 for unknown ones.

        Raises
        ------
        ReadError
            The instruction is damaged.
        """
        first = self._operand_spans[0][index]
        if first < 0:
            return [self._by_ident.get(ident, -1) for ident in self.instruction(index).operands]
        return self._operand_indices[first : self._operand_spans[1][index]]

    @cached_property
    def _operand_spans(self) -> tuple[list[int], list[int]]:
        """The span of each instruction's operands in `_operand_indices`; -1 if not packed."""
        return self._packed_operands[0], self._packed_operands[1]

    @cached_property
    def _operand_indices(self) -> list[int]:
        idents = self._packed_operands[2]
        order = np.argsort(self.idents, kind="stable")
        indices: list[int] = lookup(self.idents[order], order, idents).tolist()
        return indices

    @cached_property
    def _packed_operands(self) -> tuple[list[int], list[int], Int64s]:
        """All operands of all instructions at once, as decoding them one by one takes seconds."""
        count = len(self)
        first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        packed = self._columns.get((_OPERANDS, LENGTH))
        if packed is None or not len(packed.message):
            odd = np.zeros(0, np.int64)
            idents = odd
        else:
            idents, offsets, good = wire.packed(self._buffer, packed.value, packed.end)
            first[packed.message], last[packed.message] = offsets[:-1], offsets[1:]
            times = np.bincount(packed.message, minlength=count)
            odd = np.union1d(np.flatnonzero(times > 1), packed.message[~good])
        single = self._columns.get((_OPERANDS, VARINT))
        if single is not None:
            odd = np.union1d(odd, single.message)
        first[odd] = -1
        return first.tolist(), last.tolist(), idents

    def index_of_name(self, name: str) -> int | None:
        """The index of the instruction of a name."""
        return self._by_name.get(name)

    def index_of_ident(self, ident: int) -> int | None:
        """The index of the instruction of an ident."""
        return self._by_ident.get(ident)

    @cached_property
    def _computations_by_ident(self) -> dict[int, Computation]:
        return {computation.ident: computation for computation in reversed(self.computations)}

    def computation(self, ident: int) -> Computation | None:
        """The computation of an ident."""
        return self._computations_by_ident.get(ident)

    def shape(self, index: int) -> Shape:
        """The shape of the result of an instruction; `EMPTY` if none is stated.

        Raises
        ------
        ReadError
            It is damaged.
        """
        if index not in self._shapes:
            start, end = self._shape_spans
            first, last = start[index], end[index]
            if first < 0:
                self._shapes[index] = EMPTY
                return EMPTY
            # A program of a hundred thousand instructions has some hundred shapes.
            content = bytes(self._buffer.data[first:last])
            if content not in self._same_shapes:
                self._same_shapes[content] = hlo_shapes.read(
                    self._buffer.data, first, last, _SHAPE_DEPTH
                )
            self._shapes[index] = self._same_shapes[content]
        return self._shapes[index]

    @cached_property
    def _shape_spans(self) -> tuple[list[int], list[int]]:
        start, end = np.full(len(self), -1, np.int64), np.full(len(self), -1, np.int64)
        field = self._columns.get((_SHAPE, LENGTH))
        if field is not None:
            start[field.message], end[field.message] = field.value, field.end
        return start.tolist(), end.tolist()

    def fields(self, index: int) -> list[list[int]]:
        """The fields of an instruction except name, opcode, shape and ident, in file order.

        Each has its number, its wire type, and either a signed number and the offset after it, or
        the span of its content.
        """
        rows, first = self._rows
        fields: list[list[int]] = rows[first[index] : first[index + 1]].tolist()
        return fields

    @cached_property
    def _rows(self) -> tuple[Int64s, list[int]]:
        """The fields of all instructions, and the first of each; one by one takes far longer."""
        columns = [field for field in self._columns.values() if field.number not in _IN_COLUMNS]
        message = np.concatenate([np.zeros(0, np.int64), *(field.message for field in columns)])
        rows = np.zeros((len(message), 4), np.int64)
        stop = 0
        for field in columns:
            start, stop = stop, stop + len(field.message)
            rows[start:stop] = np.stack(
                [
                    np.full(stop - start, field.number),
                    np.full(stop - start, field.kind),
                    field.value,
                    field.end,
                ],
                1,
            )
        order = np.lexsort((rows[:, 3], message))
        return rows[order], np.searchsorted(message[order], np.arange(len(self) + 1)).tolist()

    @property
    def buffer(self) -> Bytes:
        """The bytes to which spans refer."""
        return self._buffer

    def find(self, name: str) -> Instruction | None:
        """The instruction of a name; None if there is none."""
        index = self._by_name.get(name)
        return None if index is None else self.instruction(index)

    def instruction(self, index: int) -> Instruction:
        """An instruction by its index in the order of the file."""
        if index not in self._decoded:
            self._decoded[index] = self._instruction(index)
        return self._decoded[index]

    def _instruction(self, index: int) -> Instruction:
        data = self._buffer.data
        texts = dict.fromkeys((_FUSION_KIND, _TARGET), "")
        metadata = dict.fromkeys((_OP_TYPE, _OP_NAME, _SOURCE_FILE, _DUPLICATE), "")
        line = frame = 0
        numbers: dict[int, list[int]] = {_OPERANDS: [], _CALLED: []}
        for number, kind, value, stop in self.fields(index):
            if number in texts and kind == LENGTH:
                texts[number] = _text(data, value, stop)
            elif number in numbers:
                numbers[number] += hlo_shapes.numbers(data, kind, value, stop)
            elif number == _METADATA and kind == LENGTH:
                for key, form, content, after in wire.fields(data, value, stop, _METADATA_DEPTH):
                    if key in metadata and form == LENGTH:
                        metadata[key] = _text(data, content, after)
                    elif key == _SOURCE_LINE and form == VARINT:
                        line = wire.signed(content)
                    elif key == _FRAME and form == VARINT:
                        frame = content
        if not metadata[_SOURCE_FILE] and frame in self._frames:
            metadata[_SOURCE_FILE], line = self._frames[frame]
        return Instruction(
            name=self.names[index],
            ident=self._ident_list[index],
            opcode=self.opcodes[index],
            fusion_kind=texts[_FUSION_KIND],
            target=texts[_TARGET],
            op_name=metadata[_OP_NAME],
            op_type=metadata[_OP_TYPE],
            source_file=metadata[_SOURCE_FILE],
            source_line=line,
            operands=tuple(numbers[_OPERANDS]),
            called=tuple(numbers[_CALLED]),
            duplicate=metadata[_DUPLICATE],
        )

    @cached_property
    def _frames(self) -> dict[int, tuple[str, int]]:
        """File and line of each stack frame, by its number.

        Newer compilers write them once per program instead of once per instruction.
        """
        if self._frame_index is None:
            return {}
        data = self._buffer.data
        files: list[str] = []
        locations: list[tuple[int, int]] = []
        frames: list[int] = []
        for number, kind, start, end in wire.fields(data, *self._frame_index, _COMPUTATION_DEPTH):
            if kind != LENGTH:
                continue
            if number == _FILE_NAMES:
                files.append(_text(data, start, end))
            elif number in (_LOCATIONS, _FRAMES):
                values = {}
                for key, form, value, _ in wire.fields(data, start, end, _INSTRUCTION_DEPTH):
                    if form == VARINT:
                        values[key] = value
                if number == _LOCATIONS:
                    locations.append((values.get(_LOCATION_FILE, 0), values.get(_LOCATION_LINE, 0)))
                else:
                    frames.append(values.get(_FRAME_LOCATION, 0))
        # Files, locations and frames are counted from 1; 0 means none.
        result = {}
        for number, location in enumerate(frames, 1):
            if not 0 < location <= len(locations):
                continue
            file, line = locations[location - 1]
            if 0 < file <= len(files):
                result[number] = files[file - 1], line
        return result


def _text(data: wire.Data, start: int, end: int) -> str:
    return bytes(data[start:end]).decode("utf-8", "replace")


def _first_indices(values: list[T]) -> dict[T, int]:
    """The index of the first occurrence of each value."""
    last = len(values) - 1
    return {value: last - back for back, value in enumerate(reversed(values))}
