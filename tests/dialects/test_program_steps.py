"""Steps of JAX programs that mark none: what runs again and again, on made files as JAX writes them and on real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbprof.profiles.load import load
from tests.support.build import profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, Ref, xspace


class Cpu:
    """A host of JAX without a device: what ran, in ms."""

    def __init__(self, name="/host:CPU"):
        self.plane = PlaneWriter(name)
        self.ops, self.calls = [], []
        self.run = 100

    def ran(self, module, start, end, *, called=None, ops=("dot", "add"), device=0, run=None):
        """A run of a program: its ops, one behind the other, and the call that started it."""
        self.run += 1
        length = (end - start) / len(ops)
        for i, op in enumerate(ops):
            at = int((start + i * length) * MS)
            stats = {"hlo_module": Ref(module), "hlo_op": Ref(op), "program_id": 7, "run_id": run or self.run, "device_ordinal": device}
            self.ops.append(self.plane.event(op, at, int(length * MS), **stats))
        if called is not None:
            self.calls.append(self.plane.event(f"PjitFunction({module.removeprefix('jit_')})", int(called * MS), MS // 10))

    def data(self):
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
    assert frame["other_ms"].tolist() == pytest.approx([0.9, 5.9, 5.9]), "the wait before the call lies in the step"
    assert "steps: runs of the program jit_train_step, each from the end of the previous run to its own end" in str(p.receipt)
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
    assert "steps: runs" not in str(p.receipt)


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
    assert p.steps.frame["counted"].tolist() == [True] * 4 + [False] * 3
    assert "runs of the programs jit_grads and jit_evaluate" in str(p.receipt)


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
        host.ran(("jit_matmul", "jit_tanh", "jit__where")[i % 3], 10 * i, 10 * i + 5)
    host.ran("jit_init", 100, 130)
    p = profile(tmp_path, host.data())
    assert not len(p.steps.frame), "what ran once is no step either"
    assert p.run.missing["steps"].startswith("This profile has no step markers")


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
    assert "the program contains a loop, so one step here may be several training steps" in str(p.receipt)


def test_programs_of_one_name_are_one_loop(tmp_path):
    """Compiled again for another shape."""
    host = Cpu()
    for i in range(6):
        host.ran("jit_f", 10 * i, 10 * i + 4, ops=("dot", "add") if i < 3 else ("dot.1", "fusion", "add"))
    assert len(times(profile(tmp_path, host.data()))) == 6


def test_runs_on_an_nvidia_gpu_are_told_apart_by_their_calls(tmp_path):
    """There no run has a number; the loop runs its first kernel twice in each run."""
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    kernels, calls = [], [host.event("PjitFunction(f)", 0, MS // 2)]
    for i in range(3):
        at = 20 * i
        calls.append(host.event("PjRtStreamExecutorLoadedExecutable::ExecuteHelper", at * MS, 3 * MS))
        for k in range(4):
            stats = {"correlation_id": 1 + 4 * i + k}
            calls.append(host.event("cuLaunchKernel", (at + 1) * MS + k * MS // 10, MS // 20, **stats))
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
    kernels = p.run.activity.kernels
    assert frame["device_compute_ms"].min() > 0
    assert frame["device_compute_ms"].sum() <= kernels["duration"].sum() / 1e9
    ends = frame["start_ms"] + frame["step_time_ms"]
    assert frame["start_ms"].tolist()[1:] == pytest.approx(ends.tolist()[:-1])
    assert not len(p.steps.as_xprof())


def test_a_recorded_loop_on_two_devices():
    p = load(Path(__file__).parents[1] / "data" / "xspace" / "jax_loop.xplane.pb")
    assert p.steps.frame["kind"].tolist() == ["train_step"] * 5 + ["evaluate"] * 3
    assert p.steps.frame["counted"].tolist() == [True] * 5 + [False] * 3
    table = p.run.activity.markers
    assert (table["start"].to_numpy()[1:] == table["end"].to_numpy()[:-1]).all()
    trace = p.run.trace
    ops = trace.text_arg("hlo_op") >= 0
    assert set(trace.arg("device_ordinal")[ops].tolist()) == {0, 1}
    assert trace.events.end[ops].max() == table["end"].max(), "the last step ends on the last device"


def test_one_run_and_calls_one_by_one_have_no_steps():
    for name in ("jax/gtx1080ti-reactant", "jax/mi300-jax08_attention"):
        assert not len(load(real(name)).steps.frame)
