"""Time by range that the program names: what is a range of the program, what is in it, and where it
is shown.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.analysis import scopes
from nbprof.dialects.named_ranges import personal_in_torch, personal_in_xspace
from nbprof.profiles.profile import Profile
from nbprof.schema import frames
from nbprof.tools.overview import static, text
from tests.support import ascend_db, msprof, nsys
from tests.support.hlo import computation, instruction, metadata_plane, program
from tests.support.kineto import BACKWARD, Kineto, profile
from tests.support.xspace import PlaneWriter, xspace

STEPS = 4
STEP_US = 1000
US = 1_000_000


def training(
    steps: int = STEPS, *, named: bool = True, numbered: bool = False, slower: float = 1.0
) -> Kineto:
    """Steps of 1 ms: forward with two layers, a backward pass whose thread launches, an optimizer
    with one slow op, a log.
    """
    trace = Kineto()
    trace.named(0, "GPU 0")
    for step in range(steps):
        t = step * STEP_US
        trace.step(step, t, STEP_US)
        if named:
            note(trace, "forward", t, 300)
            note(trace, "layer 0", t + 10, 100)
            note(trace, "layer 1", t + 120, 100)
            note(trace, "backward", t + 310, 200)
            note(trace, "optimizer", t + 520, 400 * slower)
            note(trace, f"log step {step}" if numbered else "log", t + 930, 20)
        trace.note("Optimizer.step#Shampoo.step", t + 530, 380 * slower)
        for layer in range(2):
            op = trace.op(
                "aten::mm",
                t + 20 + 110 * layer,
                50,
                **{"Sequence number": 10 * step + layer, "Fwd thread id": 0},
            )
            trace.launched("gemm", t + 30 + 110 * layer, t + 40 + 110 * layer, 80, op)
        for layer in range(2):
            at = t + 320 + 60 * layer
            number = {"Sequence number": 10 * step + layer, "Fwd thread id": 1}
            trace.op("autograd::engine::evaluate_function: MmBackward0", at, 50, BACKWARD, **number)
            op = trace.op("MmBackward0", at + 1, 48, BACKWARD, **number)
            trace.launched("gemm_backward", at + 10, at + 20, 40, op, BACKWARD)
        trace.op("aten::_foreach_mul_", t + 540, 300 * slower)
        trace.call("cudaDeviceSynchronize", t + 935, 10)
    return trace


def note(trace: Kineto, name: str, ts: float, dur: float) -> None:
    trace.note(name, ts, dur)


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return profile(tmp_path_factory.mktemp("torch"), training())


def rows_of(p: Profile) -> pd.DataFrame:
    return p.ranges.frame.set_index("range")


def test_ranges_are_a_tree_with_the_host_time_of_each_per_step(torch: Profile) -> None:
    rows = rows_of(torch)
    assert list(rows.index) == [
        "forward",
        "forward/layer 0",
        "forward/layer 1",
        "backward",
        "optimizer",
        "optimizer/Optimizer.step#Shampoo.step",
        "log",
    ]
    assert rows["depth"].tolist() == [0, 1, 1, 0, 0, 1, 0]
    assert rows["calls_per_step"].tolist() == [1.0] * 7
    assert rows["host_ms_per_step"].tolist() == pytest.approx([0.3, 0.1, 0.1, 0.2, 0.4, 0.38, 0.02])
    assert rows.loc["forward", "host_self_ms_per_step"] == pytest.approx(0.1)
    assert rows.loc["optimizer", "percent"] == pytest.approx(40.0)
    assert list(torch.ranges.frame.columns) == frames.names("ranges.frame")
    assert rows["kind"].value_counts().to_dict() == {"record_function": 6, "optimizer": 1}


def test_time_of_outer_ranges_and_of_no_range_is_the_step(torch: Profile) -> None:
    frame = torch.ranges.frame
    outer = frame.loc[(frame["depth"] == 0) & (frame["thread"] == "main"), "host_ms_per_step"].sum()
    assert outer + torch.ranges.outside["host_ms_per_step"] == pytest.approx(STEP_US / 1000)


def test_device_time_is_that_of_what_was_launched_in_a_range(torch: Profile) -> None:
    rows = rows_of(torch)
    assert rows.loc["forward", "device_ms_per_step"] == pytest.approx(0.16)
    assert rows.loc["forward", "device_self_ms_per_step"] == 0
    assert rows.loc["forward/layer 0", "device_ms_per_step"] == pytest.approx(0.08)
    assert rows.loc["forward", "kernels_per_step"] == 2
    # A thread of autograd launches for the one that called backward().
    assert rows.loc["backward", "device_ms_per_step"] == pytest.approx(0.08)
    assert torch.ranges.outside["device_ms_per_step"] == 0


def test_the_backward_pass_of_a_range_is_a_column_beside(torch: Profile) -> None:
    rows = rows_of(torch)
    assert rows.loc["forward", "backward_device_ms_per_step"] == pytest.approx(0.08)
    assert rows.loc["forward/layer 1", "backward_device_ms_per_step"] == pytest.approx(0.04)
    assert rows.loc["forward/layer 1", "backward_host_ms_per_step"] == pytest.approx(0.05)
    assert rows.loc["optimizer", "backward_device_ms_per_step"] == 0


def test_waits_and_the_op_with_the_most_time_are_those_of_the_range(torch: Profile) -> None:
    rows = rows_of(torch)
    assert rows.loc["log", "wait_ms_per_step"] == pytest.approx(0.01)
    assert rows.loc["forward", "wait_ms_per_step"] == 0
    assert rows.loc["optimizer", "top_host_op"] == "aten::_foreach_mul_"
    assert rows.loc["optimizer", "top_host_op_ms_per_step"] == pytest.approx(0.3)
    assert rows.loc["forward", "top_device_op"] == "aten::mm"


def test_a_recording_without_ranges_has_none_and_says_how_to_set_them(tmp_path: Path) -> None:
    # The range of the optimizer is PyTorch's.
    p = profile(tmp_path, training(named=False))
    assert p.ranges.frame.empty
    assert "record_function" in repr(p.ranges)
    assert p.payload()["overview"]["ranges"] is None
    assert "ranges" not in dir(p)
    assert "Your ranges" not in p.text()


def test_names_that_count_steps_are_one_range_and_layers_are_several(tmp_path: Path) -> None:
    rows = rows_of(profile(tmp_path, training(numbered=True)))
    assert "log step N" in rows.index
    assert rows.loc["log step N", "calls_per_step"] == 1
    assert {"forward/layer 0", "forward/layer 1"} <= set(rows.index)


def test_without_a_device_device_time_is_not_known(tmp_path: Path) -> None:
    trace = Kineto()
    for step in range(STEPS):
        trace.step(step, step * STEP_US, STEP_US)
        trace.note("forward", step * STEP_US, 300)
        trace.op("aten::mm", step * STEP_US + 10, 200)
    rows = rows_of(profile(tmp_path, trace))
    assert rows.loc["forward", "host_ms_per_step"] == pytest.approx(0.3)
    unknown = [
        "device_ms_per_step",
        "kernels_per_step",
        "wait_ms_per_step",
        "backward_host_ms_per_step",
        "backward_device_ms_per_step",
    ]
    assert rows.loc["forward", unknown].isna().all()


def test_ranges_on_other_threads_are_rows_of_their_own(tmp_path: Path) -> None:
    trace = training()
    for step in range(STEPS):
        trace.note("prefetch", step * STEP_US + 100, 500, tid=777)
    p = profile(tmp_path, trace)
    frame = p.ranges.frame
    assert frame.loc[frame["thread"] == "other", "range"].tolist() == ["prefetch"]
    groups = p.payload()["overview"]["ranges"]["groups"]
    assert [group["title"] for group in groups] == ["Main thread", "Other threads"]


def test_hosts_are_means_over_the_steps_of_all(tmp_path: Path) -> None:
    files = training(), training(slower=0.5)
    rows = rows_of(profile(tmp_path, *files, names=("rank0.pt.trace.json", "rank1.pt.trace.json")))
    assert rows.loc["optimizer", "host_ms_per_step"] == pytest.approx(0.3)
    assert rows.loc["forward", "calls_per_step"] == 1
    assert rows.loc["forward", "device_ms_per_step"] == pytest.approx(0.16)


def test_hosts_that_are_read_apart_have_the_ranges_of_those_read_at_once(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(training(slower=1 - rank / 4).encode())
    together = nbprof.load(tmp_path).ranges
    apart = nbprof.load(tmp_path, executor=Here()).ranges
    pd.testing.assert_frame_equal(together.frame, apart.frame)
    assert together.outside == pytest.approx(apart.outside)


class Here:
    """An executor that works in this process."""

    def submit(self, function, *args):  # type: ignore[no-untyped-def]
        from concurrent.futures import Future

        future: Future = Future()
        future.set_result(function(*args))
        return future


def test_advice_names_the_range_in_which_what_it_speaks_of_happens(tmp_path: Path) -> None:
    trace = Kineto()
    trace.named(0, "GPU 0")
    for step in range(10):
        t = step * STEP_US
        trace.step(step, t, STEP_US)
        trace.note("forward", t, 300)
        trace.note("checkpoint", t + 310, 680)
        op = trace.op("aten::mm", t + 5, 200)
        trace.launched("gemm", t + 10, t + 15, 180, op)
    advice = profile(tmp_path, trace).advice.set_index("rule")["evidence"]
    assert "is in your range **checkpoint** (0.68 ms per step)" in advice["other"]


def test_the_range_that_pytorch_sets_around_an_optimizer_is_not_called_a_range_of_the_program(
    tmp_path: Path,
) -> None:
    trace = Kineto()
    trace.named(0, "GPU 0")
    for step in range(10):
        t = step * STEP_US
        trace.step(step, t, STEP_US)
        trace.note("forward", t, 300)
        trace.note("Optimizer.step#AdamW.step", t + 310, 680)
        op = trace.op("aten::mm", t + 5, 200)
        trace.launched("gemm", t + 10, t + 15, 180, op)
    p = profile(tmp_path, trace)
    advice = p.advice.set_index("rule")["evidence"]
    assert "is in **Optimizer.step#AdamW.step** (0.68 ms per step)" in advice["other"]
    (line,) = (line for line in str(p).splitlines() if line.startswith("Your ranges"))
    assert "forward" in line
    assert "Optimizer" not in line


def test_the_overview_shows_ranges_on_the_page_in_text_and_in_the_static_page(
    torch: Profile,
) -> None:
    payload = torch.payload()
    ranges = payload["overview"]["ranges"]
    table = ranges["table"]
    assert table["data"]["_depth"].tolist() == [0, 1, 1, 0, 0, 1, 0]
    keys = [column["key"] for column in table["columns"]]
    assert keys[:3] == ["name", "calls_per_step", "host_ms_per_step"]
    assert "aten::_foreach_mul_ 0.30 ms" in table["data"]["top"]["values"]
    line = next(line for line in text.lines(payload, 20) if line.startswith("Your ranges"))
    assert (
        line
        == "Your ranges, host   optimizer 0.40 ms, forward 0.30 ms, backward 0.20 ms, log 0.02 ms"
    )
    html = static.html(payload)
    assert "Your ranges" in html
    assert "Optimizer.step#Shampoo.step" in html
    assert "p.ranges.frame" in nbprof.brief(torch)


def test_smaller_ranges_are_counted_and_not_shown(tmp_path: Path) -> None:
    trace = training()
    for step in range(STEPS):
        for layer in range(20):
            trace.note(f"part {layer}", step * STEP_US + 320 + 5 * layer, 4)
    ranges = profile(tmp_path, trace).payload()["overview"]["ranges"]
    assert ranges["table"]["rows"] == 12
    assert ranges["notes"] == ["15 smaller ranges are in p.ranges.frame."]


@pytest.mark.parametrize(
    "name",
    [
        "forward",
        "## optimizer ##",
        "layer 3",
        "Model Forward Pass",
        "mymodel::encode",
        "[pl][profile]fit",
    ],
)
def test_names_of_the_program(name: str) -> None:
    assert personal_in_torch(name)


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#3",
        "Optimizer.zero_grad#SGD.zero_grad",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "DistributedDataParallel.forward",
        "FSDP::pre_forward",
        "nccl:all_reduce",
        "## Call CompiledFxGraph fabc ##",
        "Torch-Compiled Region: 0/0",
        "autograd::engine::evaluate_function: MmBackward0",
        "aten::mm",
        "triton_poi_fused_add_0",
        "CachingAutotuner.benchmark_all_configs",
        "nbprof.steps: next item",
        "",
    ],
)
def test_names_of_frameworks(name: str) -> None:
    assert not personal_in_torch(name)


@pytest.mark.parametrize(
    "name",
    [
        "PjitFunction(step)",
        "PjRtCApiLoadedExecutable::Execute",
        "DevicePut",
        "EagerExecute",
        "MemcpyD2H",
        "IteratorGetNext",
    ],
)
def test_names_of_runtimes(name: str) -> None:
    assert not personal_in_xspace(name)


@pytest.mark.parametrize(
    ("op", "path", "backward"),
    [
        ("jit(step)/jit(main)/dot_general:", (), False),
        ("jit(step)/jvp(forward)/layer0/dot_general:", ("forward", "layer0"), False),
        ("jit(step)/transpose(jvp(forward))/layer0/dot_general", ("forward", "layer0"), True),
        ("jit(step)/jit(main)/transpose(jvp(forward/layer0))/mul", ("forward", "layer0"), True),
        (
            "jit(f)/jit(main)/while/body/closed_call/attention/jit(softmax)/exp",
            ("attention",),
            False,
        ),
        ("jit(f)/vmap(encoder)/checkpoint/rematted_computation/tanh", ("encoder",), False),
        ("kernel:", (), False),
    ],
)
def test_scopes_of_jax(op: str, path: tuple[str, ...], backward: bool) -> None:
    assert scopes.of_jax(op) == scopes.Scope(path, backward)


@pytest.mark.parametrize(
    ("op", "path", "backward"),
    [
        ("encoder/block/MatMul", ("encoder", "block"), False),
        ("gradient_tape/encoder/block/MatMul/MatMul_1", ("encoder", "block", "MatMul"), True),
        ("StatefulPartitionedCall/adam/Cast_2", ("adam",), False),
        ("while/body/_12/dense/MatMul", ("dense",), False),
        ("MatMul", (), False),
        ("IteratorGetNext/_1", (), False),
        ("Iterator::Root::Map", (), False),
    ],
)
def test_scopes_of_tensorflow(op: str, path: tuple[str, ...], backward: bool) -> None:
    assert scopes.of_tensorflow(op) == scopes.Scope(path, backward)


def test_an_op_that_consists_of_others_is_no_scope() -> None:
    found = scopes.of_ops(
        ["dense/MatMul", "dense/MatMul/ReadVariableOp", "gradient_tape/dense/MatMul/MatMul"],
        compiled=False,
    )
    assert [scope.path for scope in found] == [("dense",), ("dense",), ("dense",)]
    assert [scope.backward for scope in found] == [False, False, True]


def jax_profile(tmp_path: Path) -> Profile:
    """A program for the CPU with two ops in scopes, called within annotations of the program."""
    host = PlaneWriter("/host:CPU")
    events, ops = [], []
    for step in range(STEPS):
        t = step * STEP_US
        marks = {"_r": 1, "step_num": step, "group_id": step}
        events.append(host.event("train", t * US, 900 * US, **marks))
        events.append(host.event("prepare", (t + 10) * US, 100 * US))
        events.append(host.event("update", (t + 200) * US, 600 * US))
        events.append(host.event("PjitFunction(f)", (t + 210) * US, 50 * US))
        events.append(host.event("handle arguments", (t + 220) * US, 10 * US))
    # No step came, as where another framework's optimizer was awaited.
    events.append(host.event("test", 0, STEPS * STEP_US * US, nbprof_given_up=1))
    for step in range(STEPS):
        t = step * STEP_US
        for number, name in enumerate(("tanh.1", "mul.2")):
            stats = {"hlo_op": name, "hlo_module": "jit_f", "program_id": 7}
            ops.append(host.event(name, (t + 300 + 200 * number) * US, 150 * US, **stats))
    host.line("python", events)
    host.line("tf_XLAPjRtCpuClient", ops, line_id=2)
    forward = instruction("tanh.1", "tanh", "jit(f)/jvp(forward)/layer0/tanh", ident=1)
    backward = instruction(
        "mul.2", "multiply", "jit(f)/transpose(jvp(forward))/layer0/mul", ident=2
    )
    compiled = program("jit_f", computation("main", forward, backward, ident=8, root=2))
    (tmp_path / "host.xplane.pb").write_bytes(xspace(host, metadata_plane(jit_f=(7, compiled))))
    return nbprof.load(tmp_path / "host.xplane.pb")


def test_annotations_of_jax_are_ranges_and_what_the_runtime_does_in_its_calls_is_none(
    tmp_path: Path,
) -> None:
    frame = jax_profile(tmp_path).ranges.frame
    host = frame[frame["kind"] == "TraceAnnotation"].set_index("range")
    assert list(host.index) == ["prepare", "update"]
    assert host["host_ms_per_step"].tolist() == pytest.approx([0.1, 0.6])


def test_named_scopes_of_jax_have_the_time_of_their_ops_and_of_their_backward_pass(
    tmp_path: Path,
) -> None:
    frame = jax_profile(tmp_path).ranges.frame
    scoped = frame[frame["kind"] == "named_scope"].set_index("range")
    assert list(scoped.index) == ["forward", "forward/layer0"]
    assert scoped["host_ms_per_step"].tolist() == pytest.approx([0.15, 0.15])
    assert scoped["backward_host_ms_per_step"].tolist() == pytest.approx([0.15, 0.15])
    assert scoped["calls_per_step"].isna().all()


def test_ranges_of_nvtx_are_those_of_nsight_without_the_marks_of_steps(tmp_path: Path) -> None:
    frame = nbprof.load(nsys.training().sqlite(tmp_path / "report.sqlite")).ranges.frame
    assert set(frame["kind"]) == {"NVTX"}
    # NCCL sets ranges of its own.
    assert frame["range"].tolist() == ["forward", "forward/layer 0", "forward/layer 1"]
    assert frame["host_ms_per_step"].tolist() == pytest.approx([0.032, 0.012, 0.012])
    assert frame["device_ms_per_step"].tolist() == pytest.approx([0.02, 0.01, 0.01])


def test_a_real_shampoo_optimizer_is_found_by_its_range() -> None:
    path = (
        Path(__file__).parents[3] / "shared/profiles/kineto/a100-nccl-ranks/sampled_rank-0.json.gz"
    )
    if not path.exists():
        pytest.skip("no real profiles beside the checkout")
    p = nbprof.load(path)
    rows = rows_of(p)
    optimizer = rows.loc["## optimizer ##"]
    assert optimizer["top_host_op"] == "aten::_foreach_mul_"
    assert optimizer["top_host_op_ms_per_step"] / p.overview["step_time_ms"] == pytest.approx(
        0.196, abs=0.01
    )
    assert 30 < optimizer["percent"] < 40
    assert np.isclose(
        rows.loc["## optimizer ##/Optimizer.step#Shampoo.step", "host_ms_per_step"],
        194.91,
        atol=0.1,
    )


def test_ranges_of_mstx_are_those_of_ascend(tmp_path: Path) -> None:
    folder = ascend_db.torch_npu(
        tmp_path / "h_1_20250109084754000_ascend_pt", msprof.training(4)[0], steps=2
    )
    path = folder / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute(
            "create table MSTX_EVENTS (startNs, endNs, eventType, message, globalTid, domainId, connectionId)"
        )
        base.execute("insert into STRING_IDS values (900, 'forward'), (901, 'a moment')")
        for begin, _, thread in base.execute(
            "select startNs, endNs, globalTid from PYTORCH_API where type = 50001"
        ).fetchall()[::2]:
            at = int(begin)
            base.execute(
                "insert into MSTX_EVENTS values (?, ?, 1, 900, ?, 0, 4294967295)",
                [at + 2000, at + 12_000, thread],
            )
            base.execute(
                "insert into MSTX_EVENTS values (?, ?, 0, 901, ?, 0, 4294967295)",
                [at + 2000, at + 2000, thread],
            )
        base.commit()
    frame = nbprof.load(folder).ranges.frame
    assert frame["name"].tolist() == ["forward"]
    assert frame["kind"].tolist() == ["mstx"]
    assert frame["host_ms_per_step"].tolist() == pytest.approx([0.01])
