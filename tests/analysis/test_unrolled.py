"""Layers that a Python loop wrote out into a compiled program, and the rows of the products that
programs run on the CPU.
"""

from __future__ import annotations

import pytest

from nbprof.analysis.advice import unrolled
from nbprof.analysis.advice.programs import most_rows
from nbprof.hlo.hlo import Program
from tests.analysis.test_advice_programs import convolution, dot, f32, instr, tpu
from tests.support import hlo
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, chunk, number, xspace

TERA = 10**12
FORWARD = "jit(step)/jvp()/dot_general"


def product(name, ident, operands, *, op=FORWARD, line=12, sizes=(128, 64), opcode="dot"):
    """A product that a line of the model made."""
    metadata = chunk(
        7, chunk(2, op) + (chunk(3, "/srv/train/model.py") + number(4, line) if line else b"")
    )
    return instr(name, opcode, f32(*sizes), ident, operands, extra=metadata + dot())


def layers(count, **more):
    """So many layers of 64 features, each on what the one before gave; weights have idents from
    1000 on, activations even ones.
    """
    instructions = [instr("x", "parameter", f32(128, 64), 2)]
    for i in range(count):
        instructions += [
            instr(f"w{i}", "parameter", f32(64, 64), 1000 + i),
            product(f"dot.{i}", 3 + 2 * i, (2 + 2 * i, 1000 + i), **more),
            instr(f"tanh.{i}", "tanh", f32(128, 64), 4 + 2 * i, (3 + 2 * i,)),
        ]
    return instructions


def found(*instructions, before=()):
    return unrolled.in_program(
        Program(hlo.program("jit_step", *before, hlo.computation("main", *instructions)))
    )


def test_products_in_a_row_are_counted():
    chain = found(*layers(20))
    assert chain == unrolled.Unrolled("jit_step", 61, 20, "f32[128,64]", "model.py:12")
    assert found(*layers(unrolled._LEAST - 1)) is None


def test_products_beside_each_other_are_in_no_row():
    x = instr("x", "parameter", f32(128, 64), 1)
    weights = [instr(f"w{i}", "parameter", f32(64, 64), 100 + i) for i in range(20)]
    chain = found(x, *weights, *(product(f"dot.{i}", 200 + i, (1, 100 + i)) for i in range(20)))
    assert chain.times == 1


def test_two_branches_of_layers_are_as_long_as_the_longer():
    main = layers(12)
    again = [instr("y", "parameter", f32(128, 64), 500)]
    for i in range(9):
        again += [product(f"other.{i}", 501 + i, (500 + i, 1000))]
    assert found(*main, *again).times == 12


@pytest.mark.parametrize(
    "more",
    [
        {"op": "jit(step)/transpose(jvp())/dot_general"},
        {"op": "jit(step)/jvp()/while/body/closed_call/dot_general"},
        {"op": "jit(step)/jvp()/add"},
        {"line": 0},
        {"opcode": "add"},
    ],
)
def test_what_is_no_layer_of_a_python_loop(more):
    """The backward pass, a loop of the program that the compiler wrote out, other ops, and products
    of which no line is known.
    """
    assert found(*layers(20, **more)) is None


def test_layers_of_different_sizes_or_lines_are_not_alike():
    rows = [instr("x", "parameter", f32(128, 64), 1)]
    for i in range(20):
        rows += [
            instr(f"w{i}", "parameter", f32(64, 64), 100 + i),
            product(f"dot.{i}", 200 + i, (199 + i if i else 1, 100 + i), line=12 + i),
        ]
    assert found(*rows) is None
    rows = [instr("x", "parameter", f32(128, 64), 1)]
    for i in range(20):
        rows += [
            instr(f"w{i}", "parameter", f32(64 + i, 65 + i), 100 + i),
            product(f"dot.{i}", 200 + i, (199 + i if i else 1, 100 + i), sizes=(128, 65 + i)),
        ]
    assert found(*rows) is None


def test_products_inside_fusions_and_calls_of_libraries_count():
    fused = [
        hlo.computation(
            f"fused.{i}",
            instr("p", "parameter", f32(128, 64), 5000 + 10 * i),
            instr("w", "parameter", f32(64, 64), 5001 + 10 * i),
            product(
                "d",
                5002 + 10 * i,
                (5000 + 10 * i, 5001 + 10 * i),
                opcode="custom-call" if i % 2 else "dot",
            ),
            ident=100 + i,
        )
        for i in range(17)
    ]
    main = [instr("x", "parameter", f32(128, 64), 1)]
    for i in range(17):
        main += [
            instr(f"w{i}", "parameter", f32(64, 64), 1000 + i),
            instr(
                f"fusion.{i}",
                "fusion",
                f32(128, 64),
                2 + i,
                (1 + i, 1000 + i),
                (100 + i,),
                kind="kOutput",
            ),
        ]
    assert found(*main, before=fused).times == 17


def test_a_damaged_file_is_cut_but_does_no_harm():
    """An instruction that stands before its operand: the path is not followed."""
    rows = layers(20)
    assert found(*rows[::-1]).times == 1


@pytest.mark.parametrize("count", [15, 16])
def test_the_finding_of_a_recording(tmp_path, count):
    program = hlo.program("jit_step", hlo.computation("main", *layers(count)), ident=7)
    findings = tpu(tmp_path, [("dot.0", 50, "dot", TERA, 1)], program).advice.set_index("rule")
    assert ("unrolled" in findings.index) is (count == 16)
    if count == 16:
        text = findings.loc["unrolled", "evidence"]
        assert (
            "**16** identical matrix products in a row, each fed by the previous one (f32[128,64], model.py:12)"
            in text
        )
        assert "**49** instructions in total" in text


def on_the_cpu(folder, *instructions, loop=0):
    """Three steps of JAX in which a program ran on the CPU, with another op that a loop of it
    repeats so often.
    """
    host = PlaneWriter("/host:CPU")
    stats = {"hlo_module": "jit_step", "program_id": 7, "device_ordinal": 0}
    ran = [
        ("dot.1", 0, 2 * MS),
        *(("tanh.1", (2000 + 10 * i) * MS // 1000, MS // 200) for i in range(loop)),
    ]
    events = [
        host.event(op, k * 10 * MS + start, length, **stats, hlo_op=op, run_id=k)
        for k in range(3)
        for op, start, length in ran
    ]
    host.line(
        "python",
        [host.event("PjitFunction(step)", k * 10 * MS, 6 * MS) for k in range(3)],
        line_id=1,
    )
    host.line("tf_XLAEigen/1", events, line_id=2)
    program = hlo.program("jit_step", hlo.computation("main", *instructions), ident=7)
    return profile(folder, xspace(host, hlo.metadata_plane(**{"jit_step(7)": (7, program)})))


X, W = instr("x", "parameter", f32(5, 64), 1), instr("w", "parameter", f32(64, 32), 2)
FEW = product("dot.1", 3, (1, 2), sizes=(5, 32))
BACK = product("dot.2", 4, (2, 1), op="jit(step)/transpose(jvp())/dot_general", sizes=(64, 32))
# Six pictures of 32 by 32 places.
SPACE = (
    instr("i", "parameter", f32(6, 32, 32, 64), 5),
    instr("k", "parameter", f32(3, 3, 64, 96), 6),
    instr(
        "c",
        "convolution",
        f32(6, 32, 32, 96),
        7,
        (5, 6),
        op="jit(step)/conv_general_dilated",
        extra=convolution(),
    ),
)


@pytest.mark.parametrize(
    ("instructions", "rows"),
    [
        ((X, W, FEW), 5),
        ((X, W, FEW, BACK), 5),
        ((X, W, FEW, *SPACE), 6 * 32 * 32),
        # A library may compute a product of more rows there.
        ((X, W, FEW, instr("lib", "custom-call", f32(512, 32), 9, (1, 2))), None),
        ((X, W, instr("dot.1", "add", f32(5, 64), 3, (1, 1))), None),
    ],
)
def test_rows_of_the_largest_product_on_the_cpu(tmp_path, instructions, rows):
    activity = on_the_cpu(tmp_path, *instructions).run.activity
    assert len(activity.cpu_ops) == 3
    assert most_rows(activity) == rows


def test_of_a_device_rows_are_not_asked_for(tmp_path):
    program = hlo.program("jit_step", hlo.computation("main", X, W, FEW), ident=7)
    assert most_rows(tpu(tmp_path, [("dot.1", 50, "dot", TERA, 1)], program).run.activity) is None


def test_an_op_of_a_loop_does_not_make_many_programs_of_one(tmp_path):
    """Thirty time steps in a lax.scan are one program a step."""
    run = on_the_cpu(tmp_path, X, W, FEW, instr("tanh.1", "tanh", f32(5, 32), 9, (3,)), loop=30).run
    assert len(run.activity.cpu_ops) == 3 * 31
    assert run._evidence().programs_per_step == 1.0
