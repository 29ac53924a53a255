"""Operands and numbers of all instructions at once: the same as one by one, also where they are
written in other ways or damaged.
"""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.hlo.hlo import Program
from tests.support import hlo_programs
from tests.support.hlo import computation, instruction, program
from tests.support.xspace import chunk, number, varint

ODD = [1, 127, 128, 300, 1 << 20, 1 << 35, (1 << 63) - 1, -1, -(1 << 40)]


def packed(*idents):
    return chunk(36, b"".join(varint(ident) for ident in idents))


def one_by_one(made, place):
    return [
        -1 if (at := made.index_of_ident(ident)) is None else at
        for ident in made.instruction(place).operands
    ]


def test_operands_are_those_of_the_instructions():
    texts = [hlo_programs.single(*one) for one in hlo_programs.OPS.values()] + [
        hlo_programs.fusion(*one) for one in hlo_programs.FUSIONS.values()
    ]
    seen = 0
    for text in texts:
        made = Program(hlo_programs.program(text))
        for place in range(len(made)):
            assert list(made.operands(place)) == one_by_one(made, place)
            seen += len(made.operands(place))
    assert seen > 200


def instructions(data):
    """Where the instructions of a program lie, walked message by message."""
    spans = [(0, len(data))]
    for wanted in (1, 3, 2):
        inner = [one for span in spans for one in wire.fields(data, *span)]
        spans = [
            (start, end)
            for number, kind, start, end in inner
            if (number, kind) == (wanted, wire.LENGTH)
        ]
    return spans


# Few instructions are walked one by one, many at once.
@pytest.mark.parametrize("copies", [1, 40])
def test_fields_of_all_are_those_of_each(copies):
    seen = set()
    for one in list(hlo_programs.OPS.values())[:: 1 if copies == 1 else 6]:
        data = hlo_programs.program(hlo_programs.single(*one)) * copies
        made, spans = Program(data), instructions(data)
        assert len(made) == len(spans) > copies
        for place in {0, len(spans) // 2, *range(len(spans) - 5, len(spans))}:
            mine = [
                [number, kind, value if kind else wire.signed(value), end]
                for number, kind, value, end in wire.fields(data, *spans[place])
            ]
            assert made.fields(place) == [field for field in mine if field[0] not in (1, 2, 3, 35)]
            seen.update(field[0] for field in mine)
    assert {1, 2, 3, 14, 16, 30, 35, 36, 38} <= seen


def test_idents_of_any_size_and_operands_that_are_nowhere():
    rows = [instruction(f"p{i}", "parameter", ident=ident) for i, ident in enumerate(ODD)]
    rows += [
        instruction("sum", "tuple", ident=7, extra=packed(*ODD, 12345, *reversed(ODD))),
        instruction("none", "tuple", ident=8),
    ]
    made = Program(program("m", computation("main", *rows)))
    count = len(ODD)
    assert list(made.operands(count)) == [*range(count), -1, *reversed(range(count))]
    assert list(made.operands(count + 1)) == []


@pytest.mark.parametrize(
    "extra",
    [
        number(36, 5) + number(36, 6),
        packed(5) + packed(6),
        packed(5) + number(36, 6),
    ],
)
def test_operands_that_are_not_in_one_piece(extra):
    rows = [
        instruction("a", "parameter", ident=5),
        instruction("b", "parameter", ident=6),
        instruction("c", "add", ident=7, extra=extra),
    ]
    made = Program(
        program(
            "m", computation("main", *rows, instruction("d", "negate", ident=9, extra=packed(7)))
        )
    )
    assert list(made.operands(2)) == [0, 1]
    assert list(made.operands(3)) == [2]


@pytest.mark.parametrize("bad", [b"\x85", b"\x05\x80", b"\xff" * 10 + b"\x01"])
def test_damaged_operands_are_of_their_instruction_alone(bad):
    rows = [
        instruction("a", "parameter", ident=5),
        instruction("b", "negate", ident=6, extra=chunk(36, bad)),
    ]
    made = Program(
        program(
            "m", computation("main", *rows, instruction("c", "add", ident=7, extra=packed(5, 6)))
        )
    )
    with pytest.raises(ReadError):
        made.operands(1)
    assert list(made.operands(2)) == [0, 1]


def test_fields_are_read_as_one_by_one():
    random = np.random.default_rng(8)
    for _ in range(300):
        data = b"".join(
            (
                number(
                    int(random.integers(1, 5000)),
                    int(random.choice([0, 1, 127, 128, 16383, 16384, 1 << 40])),
                ),
                chunk(
                    int(random.integers(1, 40)),
                    bytes(
                        random.integers(
                            0, 256, int(random.choice([0, 1, 5, 127, 128, 300])), np.uint8
                        )
                    ),
                ),
                varint(9 << 3 | 1) + bytes(8),
            )[int(random.integers(3))]
            for _ in range(int(random.integers(1, 6)))
        )
        cut = data[: int(random.integers(len(data) + 1))] if random.random() < 0.5 else data
        if random.random() < 0.3:
            cut = bytes(
                byte ^ (1 << int(random.integers(8)) if random.random() < 0.05 else 0)
                for byte in cut
            )
        assert outcome(wire.fields(cut, 0, len(cut))) == outcome(slowly(cut)), cut.hex()


def slowly(data):
    pos = 0
    while pos < len(data):
        found = wire.read_field(data, pos, len(data))
        pos = found[3]
        yield found


def outcome(found):
    out = []
    try:
        for one in found:
            out.append(one)
    except ReadError as error:
        out.append(str(error))
    return out
