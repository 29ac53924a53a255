"""Ops of programs that XLA compiled for the CPU: runs on threads, found in their program by number
and by name.
"""

import pytest

import nbprof
from nbprof.analysis.memory.modules import choose
from tests.support.build import profile
from tests.support.hlo import computation, instruction, metadata_plane, program
from tests.support.xspace import PlaneWriter, xspace

US = 1_000_000


def run(tmp_path, *events, modules):
    """A CPU profile: `events` are (name, start, duration in µs, stats) of one thread, `modules` by
    name (metadata id, program).
    """
    plane = PlaneWriter("/host:CPU")
    plane.line(
        "tf_XLAPjRtCpuClient",
        [plane.event(name, at * US, length * US, **stats) for name, at, length, stats in events],
    )
    return profile(tmp_path, xspace(plane, metadata_plane(**modules)))


def small(name, op="tanh.1"):
    return program(
        name, computation("main", instruction(op, "tanh", "jit(f)/tanh", ident=1), ident=8, root=1)
    )


def test_a_jax_run_on_the_cpu_has_an_op_profile():
    p = nbprof.load("tests/data/xspace/jax_loop.xplane.pb")
    tree = p.op_profile.frame
    assert p.op_profile.missing == ""
    programs = tree[tree["kind"] == "program"]
    assert programs["name"].tolist() == ["jit_train_step(8)", "jit_evaluate(10)"]
    # The file says of an all-reduce that it ran ten times, on two devices.
    ops = p.hlo.frame.set_index(["program", "op"])
    assert ops.loc[("jit_train_step(8)", "all-reduce"), "occurrences"] == 10
    events = p.run.trace.events
    mine = events.duration[p.run.trace.names[events.name] == "dot.1"]
    assert ops.loc[("jit_train_step(8)", "dot.1"), "self_us"] == pytest.approx(mine.sum() / US)
    # A product of 32 x 128 and 128 x 128 matrices, transposed: 2 x 32 x 128 x 128 operations a run.
    assert ops.loc[("jit_train_step(8)", "dot.1"), "flops"] == pytest.approx(
        10 * 2 * 32 * 128 * 128
    )
    # What the CPU can do is not stated.
    assert tree[["flops_utilization", "wasted_us"]].isna().all(axis=None)
    assert p.hlo.as_xprof().empty


def test_ops_on_threads_that_nothing_groups_are_of_the_step_in_which_they_begin(tmp_path):
    """JAX hands a program's ops to threads of a pool; XProf has them in no step."""
    plane = PlaneWriter("/host:CPU")
    marks = [
        plane.event("train", at * US, 100 * US, step_num=step, _r=1, group_id=step)
        for step, at in ((1, 0), (2, 200))
    ]
    call = [plane.event("PjRtCpuExecutable::Execute", 10 * US, 20 * US, group_id=1)]
    plane.line("python", [marks[0], *call, marks[1]])
    stats = {"hlo_op": "tanh.1", "hlo_module": "jit_f", "program_id": 3}
    # One before its step's end and beyond it, one between steps, one in the second.
    runs = [
        plane.event("tanh.1", at * US, length * US, **stats)
        for at, length in ((20, 30), (90, 40), (150, 20), (210, 60))
    ]
    plane.line("tf_XLAEigen", runs)
    p = profile(tmp_path, xspace(plane, metadata_plane(**{"jit_f(3)": (3, small("jit_f"))})))
    mine = p.steps.frame.set_index("step")
    assert mine["host_compute_ms"].to_dict() == pytest.approx({0: 0.050, 1: 0.060})
    assert mine["step_time_ms"].tolist() == pytest.approx([0.1, 0.1]), (
        "steps do not end later for it"
    )
    assert p.steps.as_xprof()["host_compute_ms"].sum() == pytest.approx(0.020)


def test_time_of_ops_inside_another_counts_once(tmp_path):
    stats = {"hlo_module": "jit_f", "program_id": 3}
    p = run(
        tmp_path,
        ("while.1", 0, 10, {"hlo_op": "while.1", **stats}),
        ("tanh.1", 2, 3, {"hlo_op": "tanh.1", **stats}),
        ("ThunkExecutor", 6, 2, {"hlo_op": "tanh.1", **stats}),
        modules={"jit_f(3)": (3, small("jit_f"))},
    )
    ops = p.hlo.frame.set_index("op")
    assert ops["self_us"].to_dict() == {"while.1": 7.0, "tanh.1": 3.0}
    assert ops.loc["tanh.1", "framework_op"] == "jit(f)/tanh"


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        ({"jit_f(3)": (3, "jit_f")}, True),
        # Numbered anew: the number of another program.
        ({"jit_g(1)": (3, "jit_g"), "jit_f(3)": (1, "jit_f")}, True),
        ({"jit_f(4)": (9, "jit_f")}, True),
        # Two have the name, neither the number.
        ({"jit_f(4)": (9, "jit_f"), "jit_f(5)": (8, "jit_f")}, False),
        ({}, False),
    ],
)
def test_the_program_of_an_op_is_found_by_its_number_and_its_name(tmp_path, modules, found):
    stats = {"hlo_op": "tanh.1", "hlo_module": "jit_f", "program_id": 3}
    built = {
        name: (ident, small(called, "tanh.1" if called == "jit_f" else "other"))
        for name, (ident, called) in modules.items()
    }
    p = run(tmp_path, ("tanh.1", 0, 5, stats), modules=built)
    row = p.hlo.frame.iloc[0]
    assert (row["op"], row["self_us"], row["in_file"]) == ("tanh.1", 5.0, found)
    assert row["framework_op"] == ("jit(f)/tanh" if found else "")


def test_a_number_in_the_name_of_a_program_goes_before_that_of_the_file(tmp_path):
    # Two programs of one function, for two shapes: the file numbers them the other way round.
    stats = {"hlo_op": "tanh.1", "hlo_module": "jit_f", "program_id": 3}
    built = {"jit_f(8)": (3, small("jit_f", "other")), "jit_f(3)": (8, small("jit_f", "tanh.1"))}
    p = run(tmp_path, ("tanh.1", 0, 5, stats), modules=built)
    row = p.hlo.frame.iloc[0]
    assert (row["op"], row["program"], row["in_file"]) == ("tanh.1", "jit_f(3)", True)


def test_the_ident_0_is_not_in_the_name_of_a_program(tmp_path):
    """TensorFlow on the CPU gives each program that one."""
    stats = {"hlo_op": "tanh.1", "hlo_module": "a_step", "program_id": 0}
    p = run(tmp_path, ("tanh.1", 0, 5, stats), modules={"a_step(0)": (0, small("a_step"))})
    row = p.hlo.frame.iloc[0]
    assert (row["program"], row["in_file"]) == ("a_step", True)
    assert p.op_profile.frame["name"].tolist()[1] == "a_step"
    assert p.memory_viewer.modules["module"].tolist() == ["a_step"]
    assert p.run.programs.compiled[choose("a_step(0)", p.run.programs.compiled)].module.ident == 0
    (tmp_path / "gone").mkdir()
    gone = run(tmp_path / "gone", ("tanh.1", 0, 5, stats), modules={})
    assert gone.hlo.frame["program"].tolist() == ["a_step"]


def test_without_such_ops_there_is_a_sentence(tmp_path):
    p = run(tmp_path, ("matmul", 0, 5, {}), modules={})
    assert p.op_profile.frame.empty
    assert (
        p.op_profile.missing
        == "This profile has no device, and no ops of a program that XLA compiled for the CPU."
    )
