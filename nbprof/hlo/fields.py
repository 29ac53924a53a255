"""The fields of one instruction of a compiled program, for those who want more of them than all ask for."""

from __future__ import annotations

import struct
from functools import cached_property

from nbprof.core import wire
from nbprof.core.wire import LENGTH, VARINT
from nbprof.hlo import details as hlo_details
from nbprof.hlo.details import Details
from nbprof.hlo.hlo import Instruction, Program
from nbprof.hlo.shapes import numbers

DEPTH = 4
"""In how many messages a message inside an instruction lies."""


class Fields:
    """The fields of an instruction by number, decoded when they are asked for; its name, opcode, shape and ident are in the program.

    Parameters
    ----------
    program : Program
    place : int
        Of the instruction in the file.

    Raises
    ------
    ReadError
        It is damaged.
    """

    def __init__(self, program: Program, place: int) -> None:
        self.program = program
        self.place = place
        self.opcode = program.opcodes[place]
        self.fields: dict[int, list[tuple[int, int, int]]] = {}
        for number, kind, value, end in program.fields(place):
            self.fields.setdefault(number, []).append((kind, value, end))

    @cached_property
    def one(self) -> Instruction:
        """All that most ask for at once."""
        return self.program.instruction(self.place)

    @cached_property
    def details(self) -> Details:
        """What it states of dimensions, window and settings."""
        return hlo_details.read(self.program, self.place)

    def number(self, field: int) -> int:
        """A number or flag; 0 where it is not stated."""
        found = [value for kind, value, _ in self.fields.get(field, []) if kind == VARINT]
        return wire.signed(found[-1]) if found else 0

    def numbers(self, field: int) -> list[int]:
        """The numbers of a repeated field."""
        out: list[int] = []
        for kind, value, end in self.fields.get(field, []):
            out += numbers(self.program.buffer.data, kind, value, end)
        return out

    def messages(self, field: int) -> list[tuple[int, int]]:
        """Where the messages of a field lie."""
        found = self.fields.get(field)
        return [(value, end) for kind, value, end in found if kind == LENGTH] if found else []

    def parts(self, span: tuple[int, int]) -> dict[int, list[tuple[int, int, int]]]:
        """The fields of a message inside."""
        out: dict[int, list[tuple[int, int, int]]] = {}
        for number, kind, value, end in wire.fields(self.program.buffer.data, *span, DEPTH):
            out.setdefault(number, []).append((kind, value, end))
        return out

    def values(self, span: tuple[int, int], *fields: int) -> list[list[int]]:
        """Lists of numbers in a message inside, by field."""
        known = self.parts(span)
        data = self.program.buffer.data
        return [[n for kind, value, end in known.get(field, []) for n in numbers(data, kind, value, end)] for field in fields]

    def text_at(self, span: tuple[int, int]) -> str:
        """The text of a span."""
        return bytes(self.program.buffer.data[span[0] : span[1]]).decode("utf-8", "replace")

    def float_at(self, at: int, form: str) -> float:
        """The number of a form of `struct` at a position."""
        size = struct.calcsize(form)
        return float(struct.unpack(f"<{form}", bytes(self.program.buffer.data[at : at + size]))[0])


def short_number(value: float, form: str = "f") -> str:
    """A number with 6 digits where they tell it, else with 9; of a float64 with 15 or 17."""
    few, many = (15, 17) if form == "d" else (6, 9)
    text = f"{value:.{few}g}"
    try:
        same = struct.pack(form, float(text)) == struct.pack(form, value)
    except OverflowError:
        same = False
    return text if same else f"{value:.{many}g}"
