"""Compiled XLA programs as a profile holds them: which instructions they have, and what the framework calls each.

Only names are read at first; an instruction is decoded when it is asked for, since a program may have a hundred thousand of them and
a profile asks for those that ran.

Source of the message numbers: `hlo.proto` and `xla_data.proto` of https://github.com/openxla/xla (HloProto, HloModuleProto,
HloComputationProto, HloInstructionProto, OpMetadata).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nbprof.formats import wire
from nbprof.formats.wire import LENGTH, VARINT, Bytes, Int64s

_HLO_MODULE = 1
_MODULE_NAME, _ENTRY_NAME, _COMPUTATIONS, _MODULE_ID, _ENTRY_ID = 1, 2, 3, 5, 6
_COMPUTATION_NAME, _INSTRUCTIONS, _COMPUTATION_ID, _ROOT_ID = 1, 2, 5, 6
_NAME, _OPCODE, _METADATA, _FUSION_KIND, _TARGET, _ID, _OPERANDS, _CALLED = 1, 2, 7, 11, 28, 35, 36, 38
_OP_TYPE, _OP_NAME, _SOURCE_FILE, _SOURCE_LINE = 1, 2, 3, 4
_PROGRAM_DEPTH, _COMPUTATION_DEPTH, _INSTRUCTION_DEPTH, _METADATA_DEPTH = 1, 2, 3, 4


class Instruction(NamedTuple):
    """One instruction of a program.

    `opcode` is that of HLO ("fusion", "custom-call", "dot"), `fusion_kind` "kLoop", "kInput" … or '', `target` what a custom call calls.
    `op_name` is the framework's name of the op with its scopes and `op_type` its type, '' where the compiler kept none; `source_line` is 0
    then. `operands` are the idents of instructions, `called` those of computations.
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

    @property
    def category(self) -> str:
        """What kind of work it is, as XProf names it: "loop fusion", "custom-call", "dot"."""
        return f"{self.fusion_kind[1:].lower()} fusion" if self.opcode == "fusion" and self.fusion_kind[:1] == "k" else self.opcode

    @property
    def framework_op(self) -> str:
        """The op as `scope/name:Type`, the form of `tf_op`; '' where the compiler kept no name."""
        return f"{self.op_name}:{self.op_type}" if self.op_name else ""


@dataclass(frozen=True)
class Computation:
    """One computation: `first` and `count` say which of the program's instructions are its own, `root` is the ident of its root."""

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
        Name of the computation that the program begins with.
    computations : list of Computation

    Raises
    ------
    ReadError
        The bytes are damaged; so does `instruction` where only one instruction is.
    """

    def __init__(self, data: bytes) -> None:
        self._buffer = wire.buffer(data)
        self.name, self.entry, self.ident = "", "", 0
        spans: list[tuple[int, int]] = []
        for number, kind, at, end in wire.fields(data, 0, len(data)):
            if (number, kind) != (_HLO_MODULE, LENGTH):
                continue
            for number, kind, value, stop in wire.fields(data, at, end, _PROGRAM_DEPTH):
                if kind == LENGTH and number == _MODULE_NAME:
                    self.name = _text(data, value, stop)
                elif kind == LENGTH and number == _ENTRY_NAME:
                    self.entry = _text(data, value, stop)
                elif kind == LENGTH and number == _COMPUTATIONS:
                    spans.append((value, stop))
                elif kind == VARINT and number == _MODULE_ID:
                    self.ident = wire.signed(value)
        self._decoded: dict[int, Instruction] = {}
        self.computations: list[Computation] = []
        self._read_computations(np.array(spans, np.int64).reshape(-1, 2))

    def _read_computations(self, spans: Int64s) -> None:
        count = len(spans)
        names, idents, roots = [""] * count, [0] * count, [0] * count
        owner, start, end = (np.zeros(0, np.int64) for _ in range(3))
        for field in wire.columns(self._buffer, spans[:, 0], spans[:, 1], _COMPUTATION_DEPTH):
            if (field.number, field.kind) == (_INSTRUCTIONS, LENGTH):
                order = np.argsort(field.message, kind="stable")
                owner, start, end = field.message[order], field.value[order], field.end[order]
            elif (field.number, field.kind) == (_COMPUTATION_NAME, LENGTH):
                for at, a, b in zip(field.message.tolist(), field.value.tolist(), field.end.tolist(), strict=True):
                    names[at] = _text(self._buffer.data, a, b)
            elif field.kind == VARINT and field.number in (_COMPUTATION_ID, _ROOT_ID):
                into = idents if field.number == _COMPUTATION_ID else roots
                for at, value in zip(field.message.tolist(), field.value.tolist(), strict=True):
                    into[at] = value
        self._start, self._end = start, end
        first = np.searchsorted(owner, np.arange(count + 1))
        for at in range(count):
            self.computations.append(Computation(names[at], idents[at], roots[at], int(first[at]), int(first[at + 1] - first[at])))

    def __len__(self) -> int:
        return len(self._start)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Which instruction has a name; names are unique in a program, of two alike the first counts."""
        places: dict[str, int] = {}
        for field in wire.columns(self._buffer, self._start, self._end, _INSTRUCTION_DEPTH):
            if (field.number, field.kind) == (_NAME, LENGTH):
                for at, a, b in sorted(zip(field.message.tolist(), field.value.tolist(), field.end.tolist(), strict=True)):
                    places.setdefault(_text(self._buffer.data, a, b), at)
        return places

    def find(self, name: str) -> Instruction | None:
        """The instruction of a name; None where there is none."""
        place = self._places.get(name)
        return None if place is None else self.instruction(place)

    def instruction(self, place: int) -> Instruction:
        """An instruction by its place in the order of the file."""
        if place not in self._decoded:
            self._decoded[place] = _instruction(self._buffer, int(self._start[place]), int(self._end[place]))
        return self._decoded[place]


def _instruction(buffer: Bytes, start: int, end: int) -> Instruction:
    data = buffer.data
    texts = dict.fromkeys((_NAME, _OPCODE, _FUSION_KIND, _TARGET), "")
    metadata = dict.fromkeys((_OP_TYPE, _OP_NAME, _SOURCE_FILE), "")
    ident = line = 0
    numbers: dict[int, list[int]] = {_OPERANDS: [], _CALLED: []}
    for number, kind, value, stop in wire.fields(data, start, end, _INSTRUCTION_DEPTH):
        if number in texts and kind == LENGTH:
            texts[number] = _text(data, value, stop)
        elif number == _ID and kind == VARINT:
            ident = wire.signed(value)
        elif number in numbers and kind == VARINT:
            numbers[number].append(wire.signed(value))
        elif number in numbers and kind == LENGTH:
            numbers[number] += _packed(data, value, stop)
        elif number == _METADATA and kind == LENGTH:
            for key, form, content, after in wire.fields(data, value, stop, _METADATA_DEPTH):
                if key in metadata and form == LENGTH:
                    metadata[key] = _text(data, content, after)
                elif key == _SOURCE_LINE and form == VARINT:
                    line = wire.signed(content)
    return Instruction(
        name=texts[_NAME],
        ident=ident,
        opcode=texts[_OPCODE],
        fusion_kind=texts[_FUSION_KIND],
        target=texts[_TARGET],
        op_name=metadata[_OP_NAME],
        op_type=metadata[_OP_TYPE],
        source_file=metadata[_SOURCE_FILE],
        source_line=line,
        operands=tuple(numbers[_OPERANDS]),
        called=tuple(numbers[_CALLED]),
    )


def _packed(data: wire.Data, pos: int, end: int) -> list[int]:
    """The numbers of a packed field."""
    out: list[int] = []
    while pos < end:
        value, pos = wire.read_varint(data, pos, end)
        out.append(wire.signed(value))
    return out


def _text(data: wire.Data, start: int, end: int) -> str:
    return bytes(data[start:end]).decode("utf-8", "replace")
