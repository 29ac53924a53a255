"""Compiled programs that are damaged, or newer than this reader: what is known of them is right,
and what is not is said.
"""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.core.trace import Module
from nbprof.hlo.hlo import Program
from nbprof.hlo.programs import Programs
from nbprof.profiles.load import load
from tests.analysis.test_hlo import JIT, KNOWN, US, kernel, op, run
from tests.support import hlo
from tests.support.hlo_memory import small
from tests.support.xspace import PlaneWriter, chunk, xspace

OPS = ("add_fusion", "mul.1.remat", "tanh.1", "add.1", "a", "no_such_op")


def programs(data):
    return Programs([Module("jit_f(3)", 3, data, 0)], ["a"])


def told(data):
    """What is said of each op, and whether the receipt says that the program is damaged."""
    found = programs(data)
    ops = [
        (found.find(0, 3, name), found.cost(0, 3, name), found.category(0, 3, name)) for name in OPS
    ]
    return ops, "damaged_program" in {note.key for note in found.notes()}


def test_a_program_that_was_cut_off_anywhere_is_told_and_nothing_is_said_of_its_ops():
    whole, damaged = told(JIT)
    assert not damaged
    assert all(cost is not None for _, cost, _ in whole[:-1])
    for length in range(1, len(JIT)):
        ops, damaged = told(JIT[:length])
        assert damaged, length
        assert ops == [(None, None, "")] * len(OPS), length
    # What has no byte at all is no damage: a program of no instructions.
    assert told(b"") == ([(None, None, "")] * len(OPS), False)


def test_a_plan_of_memory_that_was_cut_off_anywhere_has_no_peak():
    def row(data):
        (one,) = memory_modules.frame(
            memory_modules.named([Module("j", 1, data, 0)], ["a"]), {}
        ).to_dict("records")
        return one

    data = small()
    assert row(data)["peak_bytes"] == 16 * 1024
    notes = {}
    for length in range(len(data)):
        one = row(data[:length])
        assert pd.isna(one["peak_bytes"]), length
        notes.setdefault(one["note"].partition(":")[0], []).append(length)
    assert set(notes) == {"damaged", memory_modules.NO_ASSIGNMENT}
    assert len(notes[memory_modules.NO_ASSIGNMENT]) == 2, (
        "without a byte, and where the plan would begin"
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(JIT) - 1), st.integers(0, 255)), min_size=1, max_size=6)
)
def test_ops_of_a_damaged_program_are_looked_up_without_a_crash(changes):
    data = bytearray(JIT)
    for at, value in changes:
        data[at] = value
    ops, _ = told(bytes(data))
    assert len(ops) == len(OPS)


@settings(max_examples=15, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(JIT) - 1), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_the_frames_of_a_damaged_program_have_the_time_of_its_ops(tmp_path_factory, changes):
    data = bytearray(JIT)
    for at, value in changes:
        data[at] = value
    known = {"jit_f(3)": (3, bytes(data))}
    p = run(
        tmp_path_factory.mktemp("p"),
        kernel(0, "k1", "add_fusion"),
        kernel(20 * US, "k2", "mul.1.remat"),
        programs=known,
    )
    assert p.hlo.frame["self_us"].tolist() == [10.0, 10.0]
    assert sorted(p.hlo.frame["op"]) == ["add_fusion", "mul.1.remat"]
    assert p.op_profile.frame["time_us"].iloc[0] == 20.0
    assert len(p.roofline.frame) == 2
    assert p.memory_viewer.modules["peak_bytes"].isna().all()


@pytest.mark.parametrize("counted", [False, True])
def test_programs_are_found_by_the_ident_beside_them_where_the_file_only_counts_them(
    tmp_path, counted
):
    """From JAX 0.11 on. Here the third program of the file has the number that the ops of the first
    one state.
    """
    others = {
        f"jit_g({ident})": (
            ident,
            hlo.program("jit_g", hlo.computation("main", op("a", "parameter", 11))),
        )
        for ident in (700, 800)
    }
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion"),
        kernel(20 * US, "k2", "a", ident=700),
        programs={"counted": counted, "jit_f(3)": (3, JIT), **others},
    )
    frame = p.hlo.frame.set_index("op")
    assert frame["program"].to_dict() == {"add_fusion": "jit_f(3)", "a": "jit_g(700)"}
    assert frame.loc["add_fusion", "framework_op"] == "jit(f)/add"
    assert "missing_programs" not in set(p.receipt.notes["key"])


def test_programs_that_state_the_same_number_are_told_apart_by_nothing(tmp_path):
    """On CPUs the numbers of JAX are not unique. Neither is taken for the other."""
    other = hlo.program("jit_g", hlo.computation("main", op("add_fusion", "parameter", 11)))
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion"),
        programs={"counted": True, "jit_f(3)": (3, JIT), "jit_g(3)": (3, other)},
    )
    assert p.hlo.frame[["op", "in_file", "framework_op"]].to_numpy().tolist() == [
        ["add_fusion", False, ""]
    ]
    assert "1 compiled program that ran is not in the file" in str(p.receipt)
    assert {module.ident for module in p.run.trace.modules} == {-2, -3}


def test_element_types_and_opcodes_that_are_not_known_yet(tmp_path):
    entry = hlo.computation(
        "main",
        op("a", "parameter", 11),
        hlo.instruction(
            "twist.1",
            "quantum-twist",
            ident=12,
            extra=chunk(3, hlo.shape(99, 1000)) + chunk(36, b"\x0b"),
        ),
        hlo.instruction(
            "add.1", "add", ident=13, extra=chunk(3, hlo.shape(99, 1000)) + chunk(36, b"\x0c\x0c")
        ),
        ident=8,
        root=13,
    )
    known = {"jit_f(3)": (3, hlo.program("jit_f", entry))}
    p = run(tmp_path, kernel(0, "k1", "twist.1"), kernel(20 * US, "k2", "add.1"), programs=known)
    frame = p.hlo.frame.set_index("op")
    assert frame.loc["twist.1", "category"] == "quantum-twist"
    assert frame["self_us"].tolist() == [10.0, 10.0]
    assert (
        frame.loc["add.1", "expression"]
        == "%add.1 = type 99[1000]{0} add(type 99[1000]{0} %twist.1, type 99[1000]{0} %twist.1)"
    )
    # How many bytes an element takes is not known, nor what a twist computes: it is missing, and
    # not 0.
    assert frame[["flops", "bytes", "flops_per_second", "bytes_per_second"]].isna().all(axis=None)
    assert p.op_profile.frame["wasted_us"].isna().all()
    assert (p.roofline.frame["bound_by"] == "").all()


def test_an_op_that_is_not_known_has_no_cost_and_neither_has_what_contains_it():
    fused = hlo.computation(
        "fused", op("p0", "parameter", 1), op("twist.1", "quantum-twist", 2, 1), ident=7, root=2
    )
    entry = hlo.computation(
        "main",
        op("a", "parameter", 11),
        op("f.1", "fusion", 12, 11, kind="kLoop", extra=chunk(38, b"\x07")),
        op("add.1", "add", 13, 11, 11),
        ident=8,
    )
    found = programs(hlo.program("jit_f", fused, entry))
    assert found.cost(0, 3, "f.1") is None
    assert found.cost(0, 3, "add.1").bytes == 12_000
    assert found.category(0, 3, "f.1") == "loop fusion"


def test_padding_of_an_element_type_that_is_not_known_is_none_and_said():
    lines = [
        hlo.instruction(
            "x", "parameter", ident=1, extra=chunk(3, hlo.shape(99, 8, 100, tiles=((8, 128),)))
        ),
        hlo.instruction(
            "y", "copy", ident=2, extra=chunk(3, hlo.shape(11, 8, 100, tiles=((8, 128),)))
        ),
    ]
    buffers = [hlo.buffer(1, 4096, 1), hlo.buffer(2, 4096, 2)]
    allocations = [hlo.allocation(0, 8192, (1, 0, 4096), (2, 4096, 4096))]
    data = hlo.program("j", hlo.computation("main", *lines)) + hlo.assignment(
        buffers, allocations, [hlo.heap((0, 1, "x"), (0, 2, "y"), allocation=0)]
    )
    seen = memory_viewer.view(Program(data))
    assert (seen.peak_bytes, seen.peak_unpadded_bytes) == (8192, 4096 + 3200)
    assert seen.at_peak["padding_ratio"].tolist() == [1.0, 4096 / 3200]
    assert seen.notes == [
        "1 buffer has an element type unknown to this version of nbprof: padding is unknown there and counted as 0."
    ]


SMALLER = hlo.program(
    "jit_f",
    hlo.computation(
        "main",
        op("a", "parameter", 11, dims=(50,)),
        op("add_fusion", "negate", 12, 11, dims=(50,)),
        op("mul.1.remat", "multiply", 13, 12, 12, dims=(50,)),
        ident=8,
        root=13,
    ),
)


def two_hosts(folder, second, *, on_cpu):
    """`jit_f` with ident 3 on two machines, each of which runs two of its ops once."""
    for host, data in (("host-a", JIT), ("host-b", second)):
        plane = PlaneWriter("/host:CPU") if on_cpu else PlaneWriter("/device:GPU:0", dict(KNOWN))
        events = []
        for at, name in enumerate(("add_fusion", "mul.1.remat")):
            _, _, length, stats = kernel(0, name, name)
            events.append(plane.event(name, 20 * at * US, length, **stats))
        plane.line("tf_XLAPjRtCpuClient" if on_cpu else "Stream #7(Compute)", events, line_id=7)
        modules = hlo.metadata_plane(**({"jit_f(3)": (3, data)} if data else {}))
        (folder / f"{host}.xplane.pb").write_bytes(xspace(plane, modules, hostname=host))
    return load(folder)


@pytest.mark.parametrize("on_cpu", [False, True], ids=["GPU", "CPU"])
def test_what_several_machines_run_of_one_program_is_one_row(tmp_path, on_cpu):
    p = two_hosts(tmp_path, JIT, on_cpu=on_cpu)
    frame = p.hlo.frame.set_index("op")
    assert frame["program"].tolist() == ["jit_f(3)"] * 2
    assert frame["occurrences"].tolist() == [2, 2]
    assert frame["self_us"].tolist() == [20.0, 20.0]
    assert frame.loc["mul.1.remat", ["flops", "bytes"]].tolist() == [2 * 3000, 2 * 12_000]
    assert (p.op_profile.frame["kind"] == "program").sum() == 1
    assert p.memory_viewer.modules["hosts"].tolist() == [2]


@pytest.mark.parametrize("on_cpu", [False, True], ids=["GPU", "CPU"])
def test_different_programs_with_one_ident_on_two_machines_keep_their_own_numbers(tmp_path, on_cpu):
    p = two_hosts(tmp_path, SMALLER, on_cpu=on_cpu)
    frame = p.hlo.frame.set_index(["program", "op"])
    assert frame["flops"].to_dict() == {
        ("jit_f(3)", "add_fusion"): 193_000.0,
        ("jit_f(3)", "mul.1.remat"): 3000.0,
        ("jit_f(3) on host-b", "add_fusion"): 150.0,
        ("jit_f(3) on host-b", "mul.1.remat"): 150.0,
    }
    assert frame["occurrences"].tolist() == [1] * 4
    tree = p.op_profile.frame
    assert tree.loc[tree["kind"] == "program", "name"].tolist() == [
        "jit_f(3)",
        "jit_f(3) on host-b",
    ]
    assert sorted(p.memory_viewer.modules["module"]) == ["jit_f(3)", "jit_f(3) on host-b"], (
        "as the memory of programs calls them"
    )


@pytest.mark.parametrize("on_cpu", [False, True], ids=["GPU", "CPU"])
def test_a_machine_whose_file_has_no_programs_keeps_its_ops_apart(tmp_path, on_cpu):
    frame = two_hosts(tmp_path, b"", on_cpu=on_cpu).hlo.frame
    assert sorted(frame[["op", "in_file", "self_us"]].to_numpy().tolist()) == [
        ["add_fusion", False, 10.0], ["add_fusion", True, 10.0], ["mul.1.remat", False, 10.0], ["mul.1.remat", True, 10.0],
    ]  # fmt: skip
    assert frame.loc[~frame["in_file"], ["flops", "bytes"]].isna().all(axis=None)
