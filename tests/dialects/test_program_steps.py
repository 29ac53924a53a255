"""Steps of JAX programs that mark none: what runs again and again, on made files as JAX writes them
and on real ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.unit import ITERATION, MARKED, RECORDING
from nbprof.dialects.iterations import Placed
from nbprof.dialects.xplane.placed import from_the_loop
from nbprof.dialects.xplane.programs import ProgramSteps
from nbprof.profiles.load import load
from tests.support.build import profile
from tests.support.hlo import computation, instruction, metadata_plane, program
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, Ref, xspace


class Cpu:
    """A host of JAX without a device: what ran, in ms."""

    def __init__(self, name="/host:CPU"):
        self.plane = PlaneWriter(name)
        self.ops, self.calls, self.compiler = [], [], []
        self.run = 100

    def ran(
        self, module, start, end, *, called=None, ops=("dot", "add"), device=0, run=None, program=7
    ):
        """A run of a program: its ops, one behind the other, and the call that started it."""
        self.run += 1
        length = (end - start) / len(ops)
        for i, op in enumerate(ops):
            at = int((start + i * length) * MS)
            stats = {
                "hlo_module": Ref(module),
                "hlo_op": Ref(op),
                "program_id": program,
                "run_id": run or self.run,
                "device_ordinal": device,
            }
            self.ops.append(self.plane.event(op, at, int(length * MS), **stats))
        if called is not None:
            self.calls.append(
                self.plane.event(
                    f"PjitFunction({module.removeprefix('jit_')})", int(called * MS), MS // 10
                )
            )

    def compiles(self, function, start, end):
        """The call of a function that has to be compiled for it; the compiler works on a thread of
        its own.
        """
        self.calls.append(
            self.plane.event(f"PjitFunction({function})", int(start * MS), int((end - start) * MS))
        )
        self.calls.append(
            self.plane.event("backend_compile_and_load", int(start * MS), int((end - start) * MS))
        )
        self.compiler.append(
            self.plane.event("PjRtCpuClient::Compile", int(start * MS), int((end - start) * MS))
        )

    def data(self):
        if self.compiler:
            self.plane.line("tf_PjRtCompilerThreadPool", self.compiler, line_id=3)
        self.plane.line("python", self.calls, line_id=1)
        self.plane.line("tf_XLAPjRtCpuClient", self.ops, line_id=2)
        return xspace(self.plane)


def times(p):
    return list(zip(p.steps.frame["name"], p.steps.frame["step_time_ms"], strict=True))


def test_a_step_goes_from_the_end_of_the_run_before_to_its_own_end(tmp_path):
    host = Cpu()
    for i in range(3):
        host.ran("jit_train_step", 10 * i + 6, 10 * i + 10, called=10 * i + 5)
    p = profile(tmp_path, host.data())
    assert times(p) == [("train_step 1", 5.0), ("train_step 2", 10.0), ("train_step 3", 10.0)]
    frame = p.steps.frame
    assert frame["host_compute_ms"].tolist() == pytest.approx([4.1, 4.1, 4.1])
    assert frame["other_ms"].tolist() == pytest.approx([0.9, 5.9, 5.9]), (
        "the wait before the call lies in the step"
    )
    assert (
        "steps: runs of the program jit_train_step, each from the end of the previous run to its own end"
        in str(p.receipt)
    )
    assert "steps" not in p.run.missing
    assert not len(p.steps.as_xprof())


def test_what_the_host_does_while_the_device_works_counts_where_it_is_done(tmp_path):
    """The call of the second step and the third begins while the first one runs."""
    host = Cpu()
    for i in range(3):
        host.ran("jit_f", 10 * i + 2, 10 * i + 8)
    host.calls.append(host.plane.event("fetch", 4 * MS, 12 * MS))
    p = profile(tmp_path, host.data())
    # Step 2 is from 8 to 18: the host works until 16, the device from 12 to 18.
    assert p.steps.frame["host_compute_ms"].tolist() == pytest.approx([6.0, 10.0, 6.0])


def test_marked_steps_win(tmp_path):
    host = Cpu()
    for i in range(3):
        host.ran("jit_f", 10 * i + 6, 10 * i + 9)
    host.calls = [host.plane.event("mine", 10 * MS, 10 * MS, _r=1, step_num=4)]
    p = profile(tmp_path, host.data())
    assert times(p) == [("mine 4", 10.0)]
    assert "steps_by_programs" not in set(p.receipt.notes["key"])


def test_an_evaluation_has_steps_of_its_own_and_what_takes_turns_is_one_step(tmp_path):
    host = Cpu()
    at = 0
    for _ in range(4):
        host.ran("jit_grads", at, at + 6)
        host.ran("jit_update", at + 6, at + 8)
        at += 10
    for _ in range(3):
        host.ran("jit_evaluate", at, at + 4)
        at += 5
    p = profile(tmp_path, host.data())
    assert p.steps.frame["kind"].tolist() == ["grads"] * 4 + ["evaluate"] * 3
    assert p.steps.frame["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert p.steps.frame["step_time_ms"].tolist() == [6, 10, 10, 10, 8, 5, 5]
    assert p.steps.frame["counted"].tolist() == [False] + [True] * 3 + [False] * 3
    assert "runs of the programs jit_grads and jit_evaluate" in str(p.receipt)


def test_the_first_run_lacks_what_came_before_it_and_is_in_no_average(tmp_path):
    host = Cpu()
    for i in range(5):
        host.ran("jit_f", 10 * i + 7, 10 * i + 10, called=10 * i + 7)
    p = profile(tmp_path, host.data())
    assert p.steps.frame["step_time_ms"].tolist() == [3, 10, 10, 10, 10]
    assert p.steps.frame["counted"].tolist() == [False] + [True] * 4
    assert p.steps.frame["cut"].tolist() == [True] + [False] * 4
    assert p.steps.frame["other_ms"].tolist()[1:] == pytest.approx([7.0] * 4), (
        "the gap is part of the step"
    )
    assert p.overview["step_time_ms"] == pytest.approx(10.0)
    assert p.payload()["steps"]["left_out"] == "Averages exclude step 1 (start not recorded)."
    assert "the first is shown but not averaged" in str(p.receipt)


def test_what_lies_between_two_loops_is_in_no_average(tmp_path):
    host = Cpu()
    for i in range(12):
        at = 10 * i + (500 if i >= 6 else 0)
        host.ran("jit_f", at + 7, at + 10, called=at + 7, program=7 if i < 6 else 8)
    p = profile(tmp_path, host.data())
    assert p.steps.frame["step_time_ms"].tolist() == [3, *[10] * 5, 510, *[10] * 5]
    assert p.steps.frame["counted"].tolist() == [i not in (0, 6) for i in range(12)]
    assert p.overview["step_time_ms"] == pytest.approx(10.0)
    text = "Averages exclude step 1 (start not recorded) and step 7 (between two loops)."
    assert p.payload()["steps"]["left_out"] == text
    assert "nor is step 7, with which another compiled program took over" in str(p.receipt)


@pytest.mark.parametrize(
    "programs", [[7] * 9 + [8], [7, 7, 7, 8, 7, 7, 7, 8, 8, 8], [7, 7, 8, 8, 9, 9, 10, 10, 11, 11]]
)
def test_a_loop_may_run_several_programs(tmp_path, programs):
    """A last batch that is smaller, batches of two sizes, sizes that grow."""
    host = Cpu()
    for i, one in enumerate(programs):
        host.ran("jit_f", 10 * i + 7, 10 * i + 10, called=10 * i + 7, program=one)
    assert profile(tmp_path, host.data()).steps.frame["counted"].tolist() == [False] + [True] * 9


def test_a_program_that_runs_twice_in_each_step_is_part_of_it(tmp_path):
    """As one that measures on two batches."""
    host = Cpu()
    for i in range(6):
        host.ran("jit_train_step", 10 * i, 10 * i + 4)
        for k in range(2):
            host.ran("jit_metrics", 10 * i + 4 + 3 * k, 10 * i + 7 + 3 * k)
    frame = profile(tmp_path, host.data()).steps.frame
    assert frame["kind"].tolist() == ["train_step"] * 6
    assert frame.loc[frame["counted"], "step_time_ms"].tolist() == [10.0] * 5


@pytest.mark.parametrize(
    ("many", "closes"), [("jit_grads", "jit_update"), ("jit_augment", "jit_train_step")]
)
def test_several_runs_before_each_update_are_one_step(tmp_path, many, closes):
    """Gradients of four parts of a batch, or a batch that is made in four."""
    host = Cpu()
    for i in range(5):
        for k in range(4):
            host.ran(many, 20 * i + 4 * k, 20 * i + 4 * k + 4)
        host.ran(closes, 20 * i + 16, 20 * i + 18)
    frame = profile(tmp_path, host.data()).steps.frame
    assert frame["kind"].unique().tolist() == [closes.removeprefix("jit_")]
    assert frame["step_time_ms"].tolist() == [2.0, *[20.0] * 4], (
        "what the first made before is not known to be its own"
    )


def test_an_evaluation_after_every_few_steps_closes_none(tmp_path):
    host = Cpu()
    for i in range(4):
        for k in range(5):
            host.ran("jit_train_step", 30 * i + 5 * k, 30 * i + 5 * k + 5)
        host.ran("jit_eval_step", 30 * i + 25, 30 * i + 30)
    assert len(profile(tmp_path, host.data()).steps.frame) == 20


def test_convolutions_outside_of_jit_are_no_steps(tmp_path):
    host = Cpu()
    for i in range(12):
        host.ran("jit_conv_general_dilated", 10 * i, 10 * i + 8)
    unit = profile(tmp_path, host.data()).run.activity.unit
    assert (unit.kind, unit.estimated) == (ITERATION, True), (
        "they repeat, and are runs of no program"
    )
    assert "runs of the program" not in unit.how


def test_compiling_another_program_while_steps_run_is_no_part_of_them(tmp_path):
    """A loop, then `w.sum()`: the calls of all steps have returned when the device is at the
    second.
    """
    host = Cpu()
    for i in range(10):
        host.ran("jit_train_step", 10 * i, 10 * i + 10, called=i / 10)
    host.compiles("_reduce_sum", 12, 55)
    host.ran("jit__reduce_sum", 101, 102)
    p = profile(tmp_path, host.data())
    assert not p.steps.frame["compile_ms"].gt(0).any()
    assert p.steps.frame["host_compute_ms"].tolist() == pytest.approx([10.0] * 10)
    assert "compile" not in p.advice["rule"].tolist()


def test_compiling_another_lambda_while_steps_run_is_no_part_of_them(tmp_path):
    """All lambdas have one name, and between the runs of programs there is a little time."""
    host = Cpu()
    for i in range(10):
        host.ran("jit__lambda", 10 * i, 10 * i + 9.9, called=i / 10)
    host.compiles("<lambda>", 12, 55)
    assert not profile(tmp_path, host.data()).steps.frame["compile_ms"].gt(0).any()


def test_an_evaluation_compiled_on_the_way_is_work_of_the_host(tmp_path):
    """The step behind it waits for it, but compiles nothing: `shapes change` would be wrong."""
    host = Cpu()
    for i in range(10):
        late = 40 if i > 4 else 0
        host.ran("jit_train_step", 10 * i + late, 10 * i + late + 8, called=10 * i + late)
    host.compiles("evaluate", 49, 88)
    host.ran("jit_evaluate", 88, 89)
    p = profile(tmp_path, host.data())
    assert not p.steps.frame["compile_ms"].gt(0).any()
    assert p.steps.frame["host_compute_ms"].max() > 40
    assert "compile" not in p.advice["rule"].tolist()


@pytest.mark.parametrize("function", ["train_step", "prepare"])
def test_a_step_waits_for_what_it_compiles_itself(tmp_path, function):
    """Its own program, and one that each step runs: from when the device has nothing to do."""
    host = Cpu()
    for i in range(6):
        host.compiles(function, 20 * i - 2 if i else 0, 20 * i + 10)
        host.ran("jit_prepare", 20 * i + 10, 20 * i + 11)
        host.ran("jit_train_step", 20 * i + 11, 20 * i + 19)
    p = profile(tmp_path, host.data())
    assert p.steps.frame["compile_ms"].tolist()[1:] == pytest.approx([11.0] * 5), (
        "1 ms of 12 while the run before goes on"
    )
    assert "compile" in p.advice["rule"].tolist()


def test_a_step_waits_for_the_lambda_that_it_compiles_itself(tmp_path):
    """XLA writes its name differently."""
    host = Cpu()
    for i in range(6):
        host.compiles("<lambda>", 20 * i, 20 * i + 10)
        host.ran("jit__lambda", 20 * i + 10, 20 * i + 20)
    p = profile(tmp_path, host.data())
    assert p.steps.frame["compile_ms"].tolist()[1:] == pytest.approx([10.0] * 5)


@pytest.mark.parametrize(("evaluation", "averaged"), [(9, "train_step"), (80, "evaluate")])
def test_averages_are_of_training_unless_the_rest_takes_far_longer(tmp_path, evaluation, averaged):
    host = Cpu()
    for i in range(4):
        host.ran("jit_train_step", 5 * i, 5 * i + 4)
    for i in range(4):
        host.ran("jit_evaluate", 20 + evaluation * i, 20 + evaluation * (i + 1) - 1)
    frame = profile(tmp_path, host.data()).steps.frame
    assert frame.loc[frame["counted"], "kind"].unique().tolist() == [averaged]


def test_single_calls_of_jax_numpy_are_no_steps(tmp_path):
    host = Cpu()
    for i in range(9):
        name = ("matmul", "tanh", "where")[i % 3]
        host.ran(f"jit_{name}", 10 * i, 10 * i + 5, ops=(name,))
    host.ran("jit_init", 100, 130, ops=("iota",))
    p = profile(tmp_path, host.data())
    assert times(p) == [("iteration 0", 30.0), ("iteration 1", 30.0), ("iteration 2", 25.0)], (
        "what ran once is no part of any"
    )
    assert p.run.activity.unit.agreement == 0.9
    assert "steps" not in p.run.missing


def test_a_run_ends_on_the_last_of_its_devices(tmp_path):
    host = Cpu()
    for i in range(3):
        for device in range(4):
            host.ran("jit_f", 10 * i, 10 * i + 5 + device, device=device, run=50 + i)
    assert [t for _, t in times(profile(tmp_path, host.data()))] == [8.0, 10.0, 10.0]


def test_a_program_that_loops_inside_is_one_step_and_says_so(tmp_path):
    host = Cpu()
    for i in range(3):
        host.ran("jit_epoch", 10 * i, 10 * i + 9, ops=("copy", *("dot", "add") * 5))
    p = profile(tmp_path, host.data())
    assert len(p.steps.frame) == 3
    assert "the program contains a loop, so one step here may be several training steps" in str(
        p.receipt
    )


@pytest.mark.parametrize("loops", [False, True])
def test_an_op_that_is_several_kernels_is_no_loop(tmp_path, loops):
    """Calls of libraries run a kernel several times; where the file has the program, it says
    whether it loops.
    """
    inside = instruction("loop", "while" if loops else "custom-call", ident=1)
    host = Cpu()
    for i in range(3):
        host.ran("jit_loss", 10 * i, 10 * i + 9, ops=("attention", "attention", "dot", "dot"))
    kept = host.plane
    host.data()
    p = profile(
        tmp_path,
        xspace(
            kept,
            metadata_plane(
                **{"jit_loss(7)": (7, program("jit_loss", computation("main", inside)))}
            ),
        ),
    )
    assert len(p.steps.frame) == 3
    assert ("contains a loop" in str(p.receipt)) is loops


def test_calls_of_attention_are_no_loop():
    p = load(real("findings/D9-D10-custom-calls"))
    assert p.steps.frame["kind"].tolist() == ["loss_fn"] * 5
    assert "contains a loop" not in str(p.receipt)


def test_programs_of_one_name_are_one_loop(tmp_path):
    """Compiled again for another shape."""
    host = Cpu()
    for i in range(6):
        host.ran(
            "jit_f", 10 * i, 10 * i + 4, ops=("dot", "add") if i < 3 else ("dot.1", "fusion", "add")
        )
    assert len(times(profile(tmp_path, host.data()))) == 6


def test_runs_on_an_nvidia_gpu_are_told_apart_by_their_calls(tmp_path):
    """There no run has a number; the loop runs its first kernel twice in each run."""
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    kernels, calls = [], [host.event("PjitFunction(f)", 0, MS // 2)]
    for i in range(3):
        at = 20 * i
        calls.append(
            host.event("PjRtStreamExecutorLoadedExecutable::ExecuteHelper", at * MS, 3 * MS)
        )
        for k in range(4):
            stats = {"correlation_id": 1 + 4 * i + k}
            calls.append(
                host.event("cuLaunchKernel", (at + 1) * MS + k * MS // 10, MS // 20, **stats)
            )
            op = Ref(("body", "tail")[k % 2])
            kernels.append(
                gpu.event(
                    f"fusion_{k % 2}", (at + 2 + 2 * k) * MS, 2 * MS, hlo_module=Ref("jit_f"), hlo_op=op,
                    kernel_details="regs:32 grid:4,1,1 block:128,1,1", **stats,
                )
            )  # fmt: skip
    gpu.line("Stream #1(Compute)", kernels, line_id=3)
    host.line("python", calls, line_id=1)
    p = profile(tmp_path, xspace(gpu, host))
    assert [t for _, t in times(p)] == [10.0, 20.0, 20.0]
    assert p.steps.frame["device_compute_ms"].tolist() == [8.0, 8.0, 8.0]
    assert p.steps.frame["kernel_launch_ms"].gt(0).all()
    assert "contains a loop" in str(p.receipt)


def test_runs_of_a_program_on_several_gpus_are_steps():
    """Eight GPUs that run one program five times, with no mark. XProf has no steps."""
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    frame = p.steps.frame
    assert frame["name"].tolist() == [f"forward_3d_conv {n}" for n in range(1, 6)]
    kernels = p.run.activity.kernels.frame()
    assert frame["device_compute_ms"].min() > 0
    assert frame["device_compute_ms"].sum() <= kernels["duration"].sum() / 1e9
    ends = frame["start_ms"] + frame["step_time_ms"]
    assert frame["start_ms"].tolist()[1:] == pytest.approx(ends.tolist()[:-1])
    assert not len(p.steps.as_xprof())


def test_a_recorded_loop_on_two_devices():
    p = load(Path(__file__).parents[1] / "data" / "xspace" / "jax_loop.xplane.pb")
    assert p.steps.frame["kind"].tolist() == ["train_step"] * 5 + ["evaluate"] * 3
    assert p.steps.frame["counted"].tolist() == [False] + [True] * 4 + [False] * 3
    table = p.run.activity.markers.frame()
    assert (table["start"].to_numpy()[1:] == table["end"].to_numpy()[:-1]).all()
    trace = p.run.trace
    ops = trace.text_arg("hlo_op") >= 0
    assert set(trace.arg("device_ordinal")[ops].tolist()) == {0, 1}
    assert trace.events.end[ops].max() == table["end"].max(), (
        "the last step ends on the last device"
    )


@pytest.mark.parametrize(
    ("name", "kind", "units"),
    [("jax/gtx1080ti-reactant", RECORDING, 1), ("jax/mi300-jax08_attention", ITERATION, 3)],
)
def test_one_run_and_calls_one_by_one_mark_no_steps(name, kind, units):
    p = load(real(name))
    assert (p.run.activity.unit.kind, len(p.steps.frame)) == (kind, units)
    assert not len(p.steps.as_xprof()), (
        "XProf has none: what stands in for steps is no figure of its"
    )


@pytest.mark.parametrize(("loop_begins", "begins"), [(40, 40), (120, 100), (10, 100)])
def test_the_first_step_of_a_recorded_loop_begins_with_its_iteration(loop_begins, begins):
    columns = {
        "host": 0,
        "group": [0, 1],
        "event": [3, 9],
        "begin": [100, 200],
        "end": [200, 300],
        "name": ["jit_f 0", "jit_f 1"],
    }
    # One that ended before the program ran is of another loop.
    ended = 150 if loop_begins == 40 else loop_begins + 20
    iterations = Placed(
        np.array([loop_begins]), np.array([loop_begins]), np.array([ended]), waits=True, unit=MARKED
    )
    found = from_the_loop(ProgramSteps(pd.DataFrame(columns)), iterations)
    assert found.table["begin"].tolist() == [begins, 200]
    assert found.table["end"].tolist() == [200, 300]
