"""Compiled programs: what is read of them, and that damaged ones are told, not met with a crash."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core.errors import ReadError
from nbprof.hlo.hlo import Program
from tests.support.hlo import computation, instruction, program
from tests.support.xspace import chunk, number, varint

PROGRAM = program(
    "jit_f",
    computation("fused", instruction("p", "parameter", ident=4), instruction("add.1", "add", "jit(f)/add", ident=5), ident=2, root=5),
    computation(
        "main",
        instruction(
            "loop_add_fusion", "fusion", "jit(f)/add", kind="kLoop", ident=(1 << 33) + 1, source="train.py:12",
            extra=number(36, 4) + chunk(36, varint(5) + varint(300)) + number(38, 2),
        ),
        instruction("dot.3", "dot", "jit(f)/dot_general", "dot_general", ident=9),
        instruction("custom-call.1", "custom-call", extra=chunk(28, "__cublas$gemm")),
        ident=7, root=9,
    ),
    ident=42,
)  # fmt: skip


def test_a_program_with_its_computations():
    found = Program(PROGRAM)
    assert (found.name, found.ident, found.entry, len(found)) == ("jit_f", 42, "main", 5)
    assert [(c.name, c.ident, c.root, c.first, c.count) for c in found.computations] == [
        ("fused", 2, 5, 0, 2),
        ("main", 7, 9, 2, 3),
    ]


def test_an_instruction_in_full():
    found = Program(PROGRAM).find("loop_add_fusion")
    assert found is not None
    assert (found.opcode, found.fusion_kind, found.ident) == ("fusion", "kLoop", (1 << 33) + 1)
    assert (found.op_name, found.op_type, found.framework_op) == ("jit(f)/add", "", "jit(f)/add:")
    assert (found.source_file, found.source_line) == ("train.py", 12)
    assert (found.operands, found.called) == ((4, 5, 300), (2,)), "numbers alone and packed"


def test_categories_and_ops():
    found = Program(PROGRAM)
    dot, call = found.find("dot.3"), found.find("custom-call.1")
    assert dot is not None
    assert call is not None
    assert (dot.opcode, dot.framework_op) == ("dot", "jit(f)/dot_general:dot_general")
    assert (call.opcode, call.target, call.framework_op) == ("custom-call", "__cublas$gemm", "")
    assert found.find("nowhere") is None
    assert found.instruction(1).name == "add.1"


def test_many_instructions_are_found_by_name():
    lines = [instruction(f"op.{i}", "add", f"scope/op{i}") for i in range(1000)]
    found = Program(
        program(
            "big",
            computation("main", *lines),
            computation("other", instruction("op.7", "multiply")),
        )
    )
    assert [found.find(f"op.{i}").op_name for i in (0, 7, 999)] == [
        "scope/op0",
        "scope/op7",
        "scope/op999",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        chunk(1, b""),
        chunk(3, b"buffers"),
        program("empty"),
        program("none", computation("main")),
    ],
)
def test_programs_with_nothing_in_them(data):
    found = Program(data)
    assert len(found) == 0
    assert found.find("x") is None


def test_text_that_is_no_utf8():
    data = chunk(
        1,
        chunk(1, b"\xff\xfe")
        + chunk(3, computation("main", chunk(1, b"\xffop") + chunk(2, "add"))),
    )
    assert Program(data).find("�op").opcode == "add"


def read_all(data: bytes) -> None:
    found = Program(data)
    found.find("dot.3")
    for place in range(len(found)):
        found.instruction(place)


@pytest.mark.parametrize("length", range(1, len(PROGRAM)))
def test_a_program_that_was_cut_off_is_told(length):
    with pytest.raises(ReadError):
        read_all(PROGRAM[:length])


@given(
    st.lists(
        st.tuples(st.integers(0, len(PROGRAM) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
def test_a_damaged_program_is_read_or_told(changes):
    data = bytearray(PROGRAM)
    for at, value in changes:
        data[at] = value
    with contextlib.suppress(ReadError):
        read_all(bytes(data))
