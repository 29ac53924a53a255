"""What one event has to do with others, on made files and on real ones."""

from __future__ import annotations

import numpy as np
import pytest

import nbprof
from nbprof.timeline.links import MOST, Links
from nbprof.timeline.tracks import tracks
from tests.support.kineto import BACKWARD, MAIN, PID, Kineto
from tests.support.kineto import profile as torch_profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, training_run, xspace

DETAIL = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"


def links(run):
    return Links(run, tracks(run))


def named(run, name, nth=0):
    """The n-th event of a name."""
    codes = np.flatnonzero(run.trace.names == name)
    return int(np.flatnonzero(np.isin(run.trace.events.name, codes))[nth])


def said(run, arrows):
    names = run.trace.names[run.trace.events.name]
    return sorted((kind, str(names[a]), str(names[b])) for kind, a, b in arrows)


def opened(folder, data):
    path = folder / "host-a.xplane.pb"
    path.write_bytes(data)
    return nbprof.load(path).run


def gpu(launches=1, kernels=1):
    """A host that calls, and a GPU with so many kernels a call."""
    host, device = (
        PlaneWriter("/host:CPU"),
        PlaneWriter("/device:GPU:0", {"device_vendor": "Nvidia"}),
    )
    calls, work = [host.event("train", 0, 100 * MS, _r=1, step_num=5)], []
    for i in range(launches):
        calls.append(host.event("a/MatMul:MatMul", (10 * i + 1) * MS, 5 * MS))
        calls.append(host.event("cuLaunchKernel", (10 * i + 2) * MS, MS, correlation_id=i + 1))
        for k in range(kernels):
            at = (10 * i + 4) * MS + k * MS // 100
            work.append(
                device.event(
                    f"kernel{i}",
                    at,
                    MS // 200,
                    correlation_id=i + 1,
                    kernel_details=DETAIL,
                    tf_op="a/MatMul:MatMul",
                )
            )
    host.line("python", calls, line_id=1)
    device.line("Stream #7(Compute)", work, line_id=7)
    return xspace(host, device)


def test_launch_and_kernel_both_ways(tmp_path):
    run = opened(tmp_path, gpu(launches=2))
    found = links(run)
    call, kernel = named(run, "cuLaunchKernel", 1), named(run, "kernel1")
    assert found.launch(kernel) == (call, 2 * MS)
    assert found.launch(call) is None
    assert found.arrows(kernel) == found.arrows(call) == [("launch", call, kernel)]
    assert found.op(kernel) == found.op(call) == "a/MatMul"
    assert found.step(kernel) == found.step(call) == "train 5"
    assert found.stack(kernel) == []
    assert found.left_out(call) == ""


def test_a_launch_of_many_kernels_says_how_many_more(tmp_path):
    run = opened(tmp_path, gpu(kernels=70))
    found = links(run)
    call = named(run, "cuLaunchKernel")
    arrows = found.arrows(call)
    assert len(arrows) == MOST == 50
    assert [b for _, _, b in arrows] == [named(run, "kernel0", k) for k in range(50)]
    assert "20 more" in found.left_out(call)
    assert found.launch(named(run, "kernel0", 69)) == (call, 2 * MS + 69 * (MS // 100))


def test_who_made_what_is_taken(tmp_path):
    run = opened(tmp_path, training_run(steps=3))
    found = links(run)
    made, taken = named(run, "FunctionRun", 1), named(run, "dense/MatMul:MatMul", 1)
    assert found.arrows(made) == found.arrows(taken) == [("producer", made, taken)]
    assert found.op(taken) == "dense/MatMul"
    assert found.step(made) == run.steps["name"].iloc[1]


def test_ids_of_another_kind_are_no_link(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "a",
        [host.event("sends", 0, MS, _pt=1, _p=9), host.event("other", 2 * MS, MS, _pt=2, _p=9)],
        line_id=1,
    )
    host.line("b", [host.event("takes", 4 * MS, MS, _ct=2, _c=9)], line_id=2)
    run = opened(tmp_path, xspace(host))
    assert said(run, links(run).arrows(named(run, "takes"))) == [("producer", "other", "takes")]
    assert links(run).arrows(named(run, "sends")) == []


def test_lines_of_code_of_an_xspace(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("$train.py:3 fit", 0, 9 * MS),
            host.event("$net.py:7 call", MS, 5 * MS),
            host.event("op", 2 * MS, MS),
        ],
    )
    run = opened(tmp_path, xspace(host))
    assert links(run).stack(named(run, "op")) == ["net.py:7 call", "train.py:3 fit"]


def torch(**kinds):
    """A step: forward on the main thread, backward on another, a kernel each."""
    file = Kineto()
    file.step(3, 0, 900)
    file.add("train.py(12): main", "python_function", 1, 800, args={"Python id": 1})
    file.add("net.py(5): forward", "python_function", 5, 100, args={"Python id": 2})
    ops = kinds.get("sequence", False)
    fwd = file.op(
        "aten::addmm", 10, 50, **({"Sequence number": 7, "Fwd thread id": 0} if ops else {})
    )
    file.launched("gemm", 20, 100, 40, fwd)
    bwd = file.op(
        "AddmmBackward0",
        300,
        80,
        tid=BACKWARD,
        **({"Sequence number": 7, "Fwd thread id": 1} if ops else {}),
    )
    inner = file.op(
        "aten::mm",
        310,
        50,
        tid=BACKWARD,
        **({"Sequence number": 7, "Fwd thread id": 1} if ops else {}),
    )
    assert bwd < inner
    file.launched("gemm_back", 320, 400, 40, inner, tid=BACKWARD)
    if kinds.get("flows"):
        for phase, tid, ts in (("s", MAIN, 10), ("f", BACKWARD, 300)):
            more = {"bp": "e"} if phase == "f" else {}
            file.events.append(
                {
                    "ph": phase,
                    "id": 1,
                    "pid": PID,
                    "tid": tid,
                    "ts": ts,
                    "cat": "fwdbwd",
                    "name": "fwdbwd",
                    **more,
                }
            )
    return file


@pytest.mark.parametrize("how", ["sequence", "flows"])
def test_forward_and_backward(tmp_path, how):
    run = torch_profile(tmp_path, torch(**{how: True})).run
    found = links(run)
    arrow = [("forward", "aten::addmm", "AddmmBackward0")]
    assert said(run, found.arrows(named(run, "aten::addmm"))) == arrow
    assert said(run, found.arrows(named(run, "AddmmBackward0"))) == arrow
    assert found.arrows(named(run, "aten::mm")) == []


def test_a_kernel_of_pytorch(tmp_path):
    run = torch_profile(tmp_path, torch()).run
    found = links(run)
    kernel = named(run, "gemm")
    call, delay = found.launch(kernel)
    assert str(run.trace.names[run.trace.events.name[call]]) == "cudaLaunchKernel"
    assert delay == 80_000_000
    assert found.op(kernel) == "aten::addmm"
    assert found.stack(kernel) == ["net.py(5): forward", "train.py(12): main"]
    assert found.step(kernel) == found.step(call) == "ProfilerStep#3"
    assert found.op(named(run, "gemm_back")) == "aten::mm"


def test_a_stack_that_an_op_states(tmp_path):
    file = torch()
    file.op("aten::relu", 200, 10, **{"Call stack": "net.py(9): relu;train.py(12): main"})
    run = torch_profile(tmp_path, file).run
    assert links(run).stack(named(run, "aten::relu")) == ["net.py(9): relu", "train.py(12): main"]


def test_arrows_of_a_plain_trace(tmp_path):
    """A point belongs to the slice around it, a finish without `bp` to the next one; ids are used
    again.
    """
    file = Kineto()
    for name, ts, tid in (("a", 0, 1), ("b", 100, 2), ("a2", 200, 1), ("b2", 300, 2)):
        file.add(name, "cat", ts, 50, tid=tid)
    for base in (0, 200):
        for phase, tid, ts in (("s", 1, 10), ("f", 2, 99.5)):
            file.events.append(
                {
                    "ph": phase,
                    "id": 4,
                    "pid": PID,
                    "tid": tid,
                    "ts": base + ts,
                    "cat": "x",
                    "name": "x",
                }
            )
    run = torch_profile(tmp_path, file).run
    found = links(run)
    assert (
        said(run, found.arrows(named(run, "a")))
        == said(run, found.arrows(named(run, "b")))
        == [("flow", "a", "b")]
    )
    assert said(run, found.arrows(named(run, "b2"))) == [("flow", "a2", "b2")]


def test_what_was_derived_has_a_step_and_no_links(tmp_path):
    run = torch_profile(tmp_path, torch()).run
    made = tracks(run)
    found = Links(run, made)
    first = len(made.events)
    for event in range(first, first + len(made.extra)):
        assert found.arrows(event) == []
        assert found.launch(event) is None
        assert found.op(event) == ""
        assert found.stack(event) == []
    assert found.step(first + len(made.extra) - 1) == "ProfilerStep#3"
    assert found.arrows(10**9) == []


@pytest.mark.parametrize(
    "name",
    ["tf-gpu/rtx5000-cnn-batch64", "kineto/v100-resnet50-workers4", "kineto/mi300-ddp-resnet18"],
)
def test_launches_and_ops_of_real_profiles_are_those_of_the_tables(name):
    run = nbprof.load(real(name)).run
    found = links(run)
    table = run.activity.launches.frame()
    launched = table[table["target"] >= 0]
    assert len(launched) > 300
    for call, target in (
        launched[["event", "target"]].iloc[:: len(launched) // 100].itertuples(index=False)
    ):
        assert found.launch(int(target))[0] == call
        assert ("launch", int(call), int(target)) in found.arrows(int(call))
    ops = run.activity.device_ops.frame()
    names = run.activity.ops.values
    known = launched[launched["op"] >= 0] if run.activity.framework.title == "PyTorch" else launched
    rows = ops[ops["event"].isin(known["target"])]
    for event, op in rows[["event", "op"]].iloc[:: len(rows) // 100].itertuples(index=False):
        assert found.op(int(event)) == names[op]


def test_sequence_numbers_say_what_the_arrows_say():
    """The arrows of a file against those by sequence number alone: the same for every backward
    op.
    """
    run = nbprof.load(real("kineto/mi300-ddp-resnet18")).run
    by_arrow = links(run)
    by_number = links(run)
    by_number._flows = None
    number = run.trace.arg("Sequence number")
    thread = run.trace.arg("Fwd thread id", 0)
    both = 0
    for event in np.flatnonzero((number >= 0) & (thread > 0)).tolist():
        arrow = [(a, b) for kind, a, b in by_arrow.arrows(event) if kind == "forward"]
        stated = [(a, b) for kind, a, b in by_number.arrows(event) if kind == "forward"]
        both += bool(arrow and stated)
        assert arrow == stated
    assert both == 355
