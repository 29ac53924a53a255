"""What a careful reader would not be told wrongly: cases in which a plausible number or sentence
would be false.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.profiles.load import load
from tests.support import kineto
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run, xspace


def gpu_without_steps_line(host_name="host-a", offset=0, kernel_ms=4):
    """Host markers and linked kernels, as recorders write them today: the device plane has streams
    only.
    """
    gpu = PlaneWriter("/device:GPU:0")
    host = PlaneWriter("/host:CPU")
    kernels, calls = [], []
    for i in range(5):
        at = (10 * i + offset) * MS
        calls.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        calls.append(host.event("cuLaunchKernel", at + MS, MS, correlation_id=i + 1))
        kernels.append(
            gpu.event(
                "sgemm",
                at + 3 * MS,
                kernel_ms * MS,
                correlation_id=i + 1,
                kernel_details="regs:1 grid:1,1,1 block:1,1,1",
            )
        )
    gpu.line("Stream #1(Compute)", kernels, line_id=1)
    host.line("python", calls, line_id=2)
    return xspace(gpu, host, hostname=host_name)


def test_a_device_that_the_file_does_not_name_is_no_other_kind(tmp_path):
    """Some recorders state the facts of one GPU of several alike ones."""
    named = PlaneWriter(
        "/device:GPU:0", {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 5}
    )
    planes = [named, *(PlaneWriter(f"/device:GPU:{i}") for i in range(1, 8))]
    for plane in planes:
        plane.line("Stream #1(Kernel)", [plane.event("k", 0, MS, correlation_id=1)], line_id=1)
    p = profile(tmp_path, xspace(*planes))
    assert p.overview["device_kind"] == "AMD GPU (gfx95x)"
    assert dict(p.overview["run_facts"])["Device"] == "AMD GPU (gfx95x), 8 devices"


def test_a_step_that_is_all_but_empty_is_not_said_to_become_faster(tmp_path):
    """Of 100 ms one op of 1 ms is recorded: what is left of them says nothing of the step."""
    host = PlaneWriter("/host:CPU")
    marks = [host.event("train", 100 * i * MS, 100 * MS, step_num=i, _r=1) for i in range(6)]
    ops = [host.event("dense/MatMul:MatMul", (100 * i + 9) * MS, MS) for i in range(6)]
    host.line("python", [event for pair in zip(marks, ops, strict=True) for event in pair])
    p = profile(tmp_path, xspace(host))
    assert p.overview["bound"] == "other"
    assert "faster" not in p.overview["verdict_detail"]


def test_device_steps_are_found_without_a_steps_line(tmp_path):
    steps = profile(tmp_path, gpu_without_steps_line()).steps.frame
    assert steps["step"].tolist() == [0, 1, 2, 3, 4]
    assert steps["step_time_ms"].tolist() == [10.0] * 5
    assert steps["device_compute_ms"].tolist() == [4.0] * 5
    assert steps["kernel_launch_ms"].tolist() == [1.0] * 5


def test_launches_stay_on_their_host(tmp_path):
    for i, name in enumerate(("a", "b")):
        (tmp_path / f"{name}.xplane.pb").write_bytes(gpu_without_steps_line(name, offset=3 * i))
    steps = load(tmp_path).steps.frame
    assert steps.groupby("host").size().tolist() == [5, 5]
    assert steps["device_compute_ms"].tolist() == [4.0] * 10


def test_shares_add_up_to_100_where_one_host_has_a_gpu_and_another_none(tmp_path):
    """Device categories of the host with a GPU alone are a part of the time of both."""
    host = PlaneWriter("/host:CPU")
    marks = [host.event("train", 10 * i * MS, 10 * MS, step_num=i, _r=1) for i in range(5)]
    host.line(
        "python",
        marks + [host.event("MatMul:MatMul", 10 * i * MS, 5 * MS) for i in range(5)],
        line_id=1,
    )
    (tmp_path / "gpu.xplane.pb").write_bytes(gpu_without_steps_line("gpu"))
    (tmp_path / "cpu.xplane.pb").write_bytes(xspace(host, hostname="cpu"))
    table = load(tmp_path).steps.summary.set_index("category")
    assert table.loc["device_compute", ["mean_ms", "percent"]].tolist() == pytest.approx(
        [4.0, 20.0]
    )
    assert table.loc["host_compute", "percent"] == pytest.approx(25.0)
    assert table["percent"].drop("step_time").sum() == pytest.approx(100.0)
    assert table["percent"].isna().any(), "what no host recorded has no share"


def epochs(parallelism=1):
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    for i in range(8):
        at = i * 10 * MS
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", at, 8 * MS))
        main.append(host.event("dense/MatMul:MatMul", at + 8 * MS, 2 * MS))
        ident = 100 * (i // 2)  # two steps an epoch: every epoch makes the pipeline anew
        pool.append(host.event("Iterator::Root", at, 8 * MS, id=ident + 1))
        pool.append(
            host.event(
                "Iterator::Root::MapAndBatch",
                at,
                7 * MS,
                id=ident + 2,
                parent_id=ident + 1,
                parallelism=parallelism,
            )
        )
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    return xspace(host)


def test_advice_counts_the_pipelines_of_all_epochs(tmp_path):
    advice = profile(tmp_path, epochs()).advice.set_index("rule")
    assert "input_copies" not in advice.index
    assert "**8** calls" in advice.loc["map_serial", "evidence"]
    assert "**56.0 ms** of the **64.0 ms**" in advice.loc["map_serial", "evidence"]
    assert "prefetch_missing" not in advice.index, "MapAndBatch runs ahead by itself"


def interleaved(kind):
    """Steps of 10 ms that wait 8 ms for two branches of a map in turn, 3 ms each, and 1 ms for a
    batch; every two make the pipeline anew.
    """
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    for i in range(8):
        at, ident = i * 10 * MS, 100 * (i // 2)
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", at, 8 * MS))
        main.append(host.event("dense/MatMul:MatMul", at + 8 * MS, 2 * MS))
        above = f"Iterator::Root::Batch::{kind}"
        pool.append(host.event("Iterator::Root", at, 8 * MS, id=ident + 1))
        pool.append(
            host.event("Iterator::Root::Batch", at, 7 * MS, id=ident + 2, parent_id=ident + 1)
        )
        pool.append(host.event(above, at, 6 * MS, id=ident + 3, parent_id=ident + 2))
        # A turn of the cycle makes new iterators, with the numbers of those before.
        for branch in range(2):
            own = ident + 4 + branch + 2 * (i % 2)
            pool.append(
                host.event(
                    f"{above}[{branch}]::Map",
                    at + 3 * branch * MS,
                    3 * MS,
                    id=own,
                    parent_id=ident + 3,
                )
            )
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    return xspace(host)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Interleave", "**16** calls, on **1 thread**. The step"),
        (
            "ParallelInterleaveV4",
            "**16** calls, on **1 thread** in each branch of the interleave. The step",
        ),
    ],
)
def test_branches_of_an_interleave_are_one_map(tmp_path, kind, says):
    evidence = (
        profile(tmp_path, interleaved(kind)).advice.set_index("rule").loc["map_serial", "evidence"]
    )
    assert (
        "**Map** takes **48.0 ms** of the **64.0 ms** spent in the pipeline (**75%**)" in evidence
    )
    assert says in evidence


def test_inputs_of_a_zip_are_two_maps(tmp_path):
    evidence = (
        profile(tmp_path, interleaved("Zip")).advice.set_index("rule").loc["map_serial", "evidence"]
    )
    assert (
        "**Map** takes **24.0 ms** of the **64.0 ms** spent in the pipeline (**38%**), over **8** calls"
        in evidence
    )


def test_eleven_threads_are_not_one(tmp_path):
    p = profile(tmp_path, epochs(parallelism=11))
    assert "11 threads" in p.tf_data.nodes["note"].str.cat()
    assert "map_serial" not in p.advice["rule"].tolist()


def test_a_map_of_keras_own_is_not_for_the_user_to_run_in_parallel(tmp_path):
    """`fit(x, y)` with arrays: p.tf_data says what p.advice says, whichever iterator of that
    pipeline is the slow one.
    """
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    chain = ["Iterator::Root", "Prefetch", "ParallelMapV2", "Zip[0]", "FlatMap", "Prefetch", "Map"]
    for i in range(8):
        at = i * 10 * MS
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", at, 8 * MS))
        main.append(host.event("dense/MatMul:MatMul", at + 8 * MS, 2 * MS))
        for depth in range(len(chain)):
            above = {"parent_id": depth} if depth else {}
            length = 8 * MS - depth * MS // 100
            pool.append(
                host.event("::".join(chain[: depth + 1]), at, length, id=depth + 1, **above)
            )
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    p = profile(tmp_path, xspace(host))
    found = p.advice.set_index("rule").loc["input_outside_tf_data"]
    one = p.tf_data.pipelines.iloc[0]
    assert one["bottleneck"] == "Map"
    assert one["fix"] == found["fix"]
    assert "model.fit(ds)" in one["fix"]
    for text in (one["advice"], p.tf_data.summary["next_step"]):
        assert "Keras assembles each batch from the arrays that it was given." in text
        assert "thread" not in text
    assert "Keras assembles each batch from the arrays that it was given." in found["evidence"]


def test_iterators_below_an_eager_op_are_not_eager_code(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("EagerKernelExecute", 0, 9 * MS, is_func=0),
            host.event("IteratorGetNext:IteratorGetNext", 0, 8 * MS),
            host.event("Iterator::Root", 0, 7 * MS, id=1),
        ],
    )
    ops = profile(tmp_path, xspace(host)).ops.frame.set_index("op")
    assert ops.loc["IteratorGetNext", "eager"]
    assert not ops.loc["Iterator::Root", "eager"]


@pytest.mark.parametrize(("eager", "percent"), [(2, 100 * 1 / 5), (6, 100 * 13 / 17)])
def test_eager_code_of_which_only_the_calls_were_recorded_is_eager(tmp_path, eager, percent):
    """As TensorFlow 2.21 records it. XProf says 0 % of a model that runs eagerly from end to end;
    few such calls change nothing, as there.
    """
    host = PlaneWriter("/host:CPU")
    events = [host.event(f"f/{i}:MatMul", i * MS, MS) for i in range(3)]
    events += [
        host.event("EagerLocalExecute: Relu", 10 * MS, 2 * MS),
        host.event("EagerKernelExecute", 10 * MS, 2 * MS, is_func=0),
    ]
    events += [host.event("h:Relu", 11 * MS, MS)]
    for i in range(eager):
        at = (20 + 2 * i) * MS
        events.append(host.event("EagerLocalExecute: MatMul", at, 2 * MS))
    events += [
        host.event("EagerLocalExecute: __inference_step_5", 50 * MS, 9 * MS),
        host.event("f/9:MatMul", 51 * MS, MS),
    ]
    events += [
        host.event("EagerLocalExecute: MakeIterator", 60 * MS, 9 * MS),
        host.event("EagerLocalExecute: MapDataset", 70 * MS, 9 * MS),
    ]
    host.line("python", events)
    p = profile(tmp_path, xspace(host))
    assert len(p.ops.frame) == 5
    assert p.overview["eager_host_percent"] == pytest.approx(percent)
    assert (p.overview["checks"].set_index("check").loc["eager_host", "level"]) == "moderate"
    assert (f"- {eager} ops ran eagerly, and only their calls were recorded" in str(p.receipt)) == (
        eager > 5
    )


@pytest.mark.parametrize("slow", [1, 4])
def test_what_a_few_steps_spend_is_not_told_as_a_cost_of_each(tmp_path, slow):
    """One wait of 900 ms in 20 steps of 10 ms is most of their time, and no typical step has any of
    it.
    """
    host = PlaneWriter("/host:CPU")
    events, at = [], 0
    for i in range(20):
        length = 910 if 10 <= i < 10 + slow else 10
        events.append(host.event("train", at * MS, length * MS, step_num=i, _r=1))
        if length > 10:
            events.append(host.event("IteratorGetNext", at * MS, 900 * MS))
        events.append(host.event("dense/MatMul:MatMul", (at + length - 10) * MS, 10 * MS))
        at += length
    host.line("python", events)
    o = profile(tmp_path, xspace(host)).overview
    assert o["bound"] == "input"
    few = slow == 1
    assert (
        "100% of it is in 1 of 20 steps; the other 19 take 10.00 ms on average."
        in o["verdict_detail"]
    ) is few
    assert (
        o["verdict_detail"].startswith("On average that is 45.00 ms of the 55.00 ms per step")
        is few
    )
    assert ("faster than now" in o["verdict_detail"]) is not few
    said = [text for _, text in o["confidence_evidence"] if "largest part" in text]
    assert said == [
        "Input is the largest part in only 1 of 20 steps, which has 100% of it"
        if few
        else "Input is the largest part in 4 of 20 steps (0–99%)"
    ]


@pytest.mark.parametrize(
    ("busy", "ops", "said"),
    [(380, 600, None), (420, 560, False), (600, 380, True), (900, 80, None)],
    ids=["the host is slower", "perhaps not", "the device may be", "the device is"],
)
def test_a_device_that_waits_for_a_host_which_is_recorded_may_not_do_so_otherwise(
    tmp_path, busy, ops, said
):
    """Steps of 1 ms, in which the host runs ops and then the device a kernel; `said` whether the
    verdict holds in spite of it.
    """
    k = kineto.Kineto()
    for i in range(12):
        at = 1000.0 * i
        k.step(i, at, 1000)
        k.launched("gemm", at + ops, at + ops + 5, busy, op=k.op("aten::mm", at, ops + 3))
    o = kineto.profile(tmp_path, k).overview
    assert o["bound"] == ("device_compute" if busy > ops else "host_compute")
    told = [(holds, text) for holds, text in o["confidence_evidence"] if "slows the host" in text]
    assert [holds for holds, _ in told] == ([] if said is None else [said])
    assert all(f"busy for {busy / 10:.0f}% of step time" in text for _, text in told)
    assert o["confidence"] == ("medium" if said is False else "high")


def test_what_runs_after_the_last_step_is_no_time_of_a_step(tmp_path):
    """An evaluation in the cell, after its training: its ops are in the table, but take nothing of
    a step.
    """
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(5):
        events.append(host.event("train", 10 * i * MS, 10 * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", 10 * i * MS, 4 * MS))
    events += [
        host.event(name, at * MS, 400 * MS)
        for name, at in (("dense/MatMul:MatMul", 60), ("ArgMax:ArgMax", 460))
    ]
    host.line("python", events)
    top = profile(tmp_path, xspace(host)).overview["top_ops"].set_index("op")
    assert top["self_ms"].tolist() == [420.0, 400.0]
    assert top["ms_per_step"].tolist() == [4.0, 0.0]


@pytest.mark.parametrize("gap", [0, 5])
def test_time_between_two_loops_is_in_no_loop(tmp_path, gap):
    """evaluate, then predict: what lies between them is no reason to mark a loop better; gaps in
    the loop are.
    """
    host = PlaneWriter("/host:CPU")
    events, at = [], 0
    for kind in ("test", "predict"):
        for _ in range(6):
            length = 10 if kind == "test" else 2
            events.append(host.event(kind, at * MS, length * MS, step_num=at, _r=1))
            events.append(host.event("dense/MatMul:MatMul", at * MS, length * MS))
            at += length + gap
        at += 500
    host.line("python", events)
    told = [text for _, text in profile(tmp_path, xspace(host)).overview["confidence_evidence"]]
    found = [text for text in told if "is outside steps" in text]
    assert [text.partition(":")[0] for text in found] == (
        ["29% of the time from the first to the last test step is outside steps"] if gap else []
    )


def test_a_host_without_a_device_beside_one_with_it_is_no_nan(tmp_path):
    (tmp_path / "a.xplane.pb").write_bytes(gpu_without_steps_line("a", kernel_ms=7))
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(5):
        events.append(host.event("train", i * 10 * MS, 5 * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", i * 10 * MS, 3 * MS))
    host.line("python", events)
    (tmp_path / "b.xplane.pb").write_bytes(xspace(host, hostname="b"))
    p = load(tmp_path)
    assert p.steps.frame["device_compute_ms"].isna().sum() == 5
    assert p.overview["bound"] == "device_compute"
    assert "47%" in p.overview["verdict_text"]
    assert p.overview["verdict_detail"].startswith("That is 3.50 ms of the 7.50 ms per step"), (
        "the share and the time are of the same steps"
    )
    assert "nan" not in " ".join(text for _, text in p.overview["confidence_evidence"])


def test_a_device_that_recorded_nothing_does_not_idle(tmp_path):
    """A GPU that is there but was not used is no part of the story of a step."""
    host, gpu = PlaneWriter("/host:CPU"), PlaneWriter("/device:GPU:0")
    events = []
    for i in range(4):
        events.append(host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", i * 10 * MS, 9 * MS))
    host.line("python", events)
    detail = profile(tmp_path, xspace(host, gpu)).overview["verdict_detail"]
    assert "ops run on the CPU" in detail
    assert "device" not in detail


def test_a_step_without_ops_between_others_is_still_a_step(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(4):
        events.append(host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1))
        if i != 1:
            events.append(host.event("dense/MatMul:MatMul", i * 10 * MS, 5 * MS))
    host.line("t", events)
    steps = profile(tmp_path, xspace(host)).steps.frame
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["other_ms"].tolist() == [5.0, 10.0, 5.0, 5.0]


def test_steps_that_leave_out_the_loop_lower_the_confidence(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(12):
        events.append(host.event("train", i * 100 * MS, 5 * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", i * 100 * MS, 4 * MS))
    host.line("t", events)
    o = profile(tmp_path, xspace(host)).overview
    assert o["confidence"] == "low"
    assert any("nbprof.steps" in text for ok, text in o["confidence_evidence"] if not ok)


def test_args_count_only_with_their_own_type(tmp_path):
    host = PlaneWriter("/host:CPU", {"note": "first string"})
    host.line(
        "t",
        [
            host.event(
                "MemoryAllocation",
                0,
                0,
                tf_op=7,
                shape=0,
                allocator_name="a",
                bytes_allocated=5,
                step_num=1.5,
            )
        ],
    )
    timeline = profile(tmp_path, xspace(host)).memory.timeline
    assert timeline["op"].tolist() == [""]
    assert timeline["shape"].tolist() == [""]


def test_times_that_cannot_be_are_left_out_and_said(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("a:A", 2**63 - 1, 5),
            host.event("b:B", 0, 2**63 - 1),
            host.event("c:C", 10, 5, tag=9),
        ],
    )
    p = profile(tmp_path, xspace(host))
    assert p.ops.frame["op"].tolist() == ["c"]
    assert p.trace.events(args=("tag",))["tag"].tolist() == [9]
    assert p.receipt.dropped == 2
    assert any("more than a week from the start" in n.text for n in p.receipt.lines)


@pytest.mark.parametrize(
    "sidecar", [{"started": None}, {"elapsed_s": "x"}, {"notes": None}, {"notes": [3]}, [], "text"]
)
def test_a_damaged_sidecar_costs_only_itself(tmp_path, sidecar):
    (tmp_path / "a.xplane.pb").write_bytes(training_run(3))
    (tmp_path / "nbprof.json").write_text(json.dumps(sidecar))
    p = load(tmp_path)
    assert len(p.steps.frame) == 3
    assert p.payload()["meta"]["footer"]["events"] > 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x.pt.trace.json.gz", "a text file, not a profile"),
        ("op_summary_1.csv", "a timeline of Ascend"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, name, says):
    from nbprof.core.errors import ReadError

    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ReadError, match=says):
        load(tmp_path)


def test_a_gpu_run_still_reads_the_steps_line_where_there_is_one(tmp_path):
    assert profile(tmp_path, gpu_run()).steps.frame["name"].tolist() == ["train 5"]


@pytest.mark.parametrize(("test_ms", "averaged"), [(11, "train"), (41, "test")])
def test_the_averages_of_a_training_run_are_those_of_training(tmp_path, test_ms, averaged):
    """Validation may take somewhat longer; where next to nothing is training, the rest is what the
    run is about.
    """
    host = PlaneWriter("/host:CPU")
    events, at = [], 0
    for i in range(12):
        kind, length = ("test", test_ms) if i % 2 else ("train", 10)
        events.append(host.event(kind, at * MS, length * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", at * MS, length * MS // 2))
        at += length
    host.line("t", events)
    p = profile(tmp_path, xspace(host))
    assert p.steps.frame.groupby("kind")["counted"].all().to_dict() == {
        "train": averaged == "train",
        "test": averaged == "test",
    }


@pytest.mark.parametrize(("traced", "told"), [((6,), False), ((6, 8), True), ((6, 7, 8), True)])
def test_a_second_training_traces_functions_of_its_own(tmp_path, traced, told):
    """They are called as those of the first, and each is traced once; one that is made anew in
    later steps, too, is made for nothing.
    """
    host = PlaneWriter("/host:CPU")
    events, at = [], 0
    for i in range(12):
        length = 300 if i == 0 or i in traced else 10
        mode = "traced-nonXla" if length > 10 else "notTraced-nonXla"
        events.append(host.event("train", at * MS, length * MS, step_num=i, _r=1))
        events.append(
            host.event(
                "one_step", at * MS, (length - 4) * MS, tf_function_call=mode, tracing_count=1
            )
        )
        events.append(host.event("dense/MatMul:MatMul", at * MS, MS))
        at += length
    host.line("t", events)
    p = profile(tmp_path, xspace(host))
    assert ("tf_function" in p.advice["rule"].tolist()) == told
    assert p.steps.frame["warmup"].tolist() == [i == 0 or (i == 6 and not told) for i in range(12)]
    assert (p.overview["step_time_ms"] == pytest.approx(10)) == (not told)


def test_a_function_that_is_traced_in_warm_up_costs_the_other_steps_nothing(tmp_path):
    """Every first call traces: that is no reason for advice. A call that traces in the middle of
    training is, by its part of an average step.
    """
    for again in (False, True):
        host = PlaneWriter("/host:CPU")
        events, at = [], 0
        for i in range(11):
            length = 500 if i == 0 else 10
            traces = i == 0 or (again and i == 5)
            events.append(host.event("train", at * MS, length * MS, step_num=i, _r=1))
            mode = "traced-nonXla" if traces else "notTraced-nonXla"
            events.append(
                host.event(
                    "f",
                    at * MS,
                    (length - 4) * MS,
                    tf_function_call=mode,
                    tracing_count=1 + (again and i >= 5),
                )
            )
            events.append(host.event("dense/MatMul:MatMul", at * MS, MS))
            at += length
        host.line("t", events)
        (tmp_path / str(again)).mkdir()
        p = profile(tmp_path / str(again), xspace(host))
        row = p.overview["tf_functions"].iloc[0]
        assert row["expensive_percent"] > 80, "as XProf has it"
        assert row["expensive_ms_per_step"] == pytest.approx(0.6 if again else 0.0)
        rules = p.advice.set_index("rule")
        assert ("tf_function" in rules.index) == again
        assert (
            "None of it is in the steps"
            in p.overview["checks"].set_index("check").loc["tf_function", "statement"]
        ) == (not again)
        if again:
            assert rules.loc["tf_function", "gain_ms_per_step"] == pytest.approx(0.6), (
                "never more than a step takes"
            )


def test_training_and_validation_steps_are_not_averaged_together(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(12):
        kind, length = ("test", 2) if i % 3 == 2 else ("train", 10)
        at = i * 10 * MS
        events.append(host.event(kind, at, length * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", at, length * MS // 2))
    host.line("t", events)
    p = profile(tmp_path, xspace(host))
    assert len(p.steps.frame) == 12
    assert p.steps.summary.set_index("category").loc["step_time", "mean_ms"] == 10.0
    assert p.overview["step_time_sd_ms"] == 0.0
    assert any("4 test steps excluded" in text for _, text in p.overview["confidence_evidence"])
    steps = p.payload()["steps"]
    assert steps["warmup"].tolist() == [0, 0, 1] * 4
    assert steps["left_out"] == "Averages exclude 4 test steps."


def test_a_reused_address_belongs_to_its_last_allocation(tmp_path):
    host = PlaneWriter("/host:CPU")
    state = {
        "allocator_name": "a",
        "addr": 64,
        "allocation_bytes": 8,
        "bytes_allocated": 8,
        "bytes_available": 1,
    }
    events = []
    for i, op in enumerate(("one:A", "two:B")):
        events.append(host.event("MemoryAllocation", 10 * i, 0, tf_op=op, **state))
        events.append(host.event("MemoryDeallocation", 10 * i + 5, 0, **state))
    host.line("t", events)
    assert profile(tmp_path, xspace(host)).memory.timeline["op"].tolist() == [
        "one",
        "one",
        "two",
        "two",
    ]


def test_shares_of_input_work_add_up(tmp_path):
    p = profile(tmp_path, training_run(5))
    assert p.input_pipeline.frame["self_percent"].sum() == pytest.approx(100.0)
    assert p.input_pipeline.categories["percent"].sum() == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("name", "shape", "half"),
    [
        ("half_gemm", "", True),
        ("gemm_fp16", "", True),
        ("gemm_bf16", "", True),
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", "", True),
        ("sgemm", "", False),
        ("gemm_fp16", "(float[2])", False),
        ("sgemm", "(half[2])", True),
    ],
)
def test_16_bit_compute_is_told_by_the_shape_and_else_by_the_name(name, shape, half):
    from nbprof.activity.activity import DEVICE_COMPUTE_16
    from nbprof.dialects.xplane.device import classify

    assert (classify(name, shape) == DEVICE_COMPUTE_16) is half


@pytest.mark.parametrize(
    ("unknown_us", "half"), [(0, 50.0), (10, 100 * 100 / 210), (12, None), (2000, None)]
)
def test_kernels_that_do_not_say_how_wide_their_numbers_are_are_not_taken_for_32_bit(
    tmp_path, unknown_us, half
):
    gpu = PlaneWriter(
        "/device:GPU:0", {"device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0}
    )
    kernels = [("volta_h884gemm", 100), ("ampere_sgemm", 100), ("of_ours", unknown_us)]
    at, events = 0, []
    for name, us in kernels:
        events += (
            [
                gpu.event(
                    name,
                    at * MS,
                    us * MS,
                    correlation_id=at + 1,
                    tf_op="dense/MatMul:MatMul",
                    group_id=1,
                )
            ]
            if us
            else []
        )
        at += us
    gpu.line("Stream #7(Compute)", events, line_id=7)
    gpu.line(
        "Steps", [gpu.event("1", 0, at * MS, group_id=1, step_name="train 1")], line_id=-559038737
    )
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("train", 0, at * MS, step_num=1, group_id=1)], line_id=1)
    p = profile(tmp_path, xspace(gpu, host))
    assert p.overview["compute_16bit_percent"] == (pytest.approx(half) if half else None)
    row = p.overview["checks"].set_index("check").loc["precision"]
    assert row["level"] == ("no" if half else "unknown")
    if half is None:
        assert row["statement"] == "Unknown: neither the kernels nor their names state a data type."


def test_host_ops_that_overlap_partly_are_told(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("a/MatMul:MatMul", 0, 4 * MS),
            host.event("b/Relu:Relu", 2 * MS, 4 * MS),
            host.event("c/Add:Add", 8 * MS, MS),
        ],
    )
    p = profile(tmp_path, xspace(host))
    assert p.ops.frame[["op", "self_us"]].to_numpy().tolist() == [
        ["b/Relu", 4000.0],
        ["a/MatMul", 2000.0],
        ["c/Add", 1000.0],
    ]
    assert (
        "! 1 of 3 host ops partly overlap another op on their thread: that time is attributed to the later one."
        in str(p.receipt)
    )


def test_steps_without_recorded_compute_at_an_end_of_the_recording_are_told(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(5):
        events.append(host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1))
        events.append(host.event("IteratorGetNext", i * 10 * MS, 4 * MS))
        if 0 < i < 4:
            events.append(host.event("dense/MatMul:MatMul", i * 10 * MS + 4 * MS, 5 * MS))
    host.line("python", events)
    p = profile(tmp_path, xspace(host))
    assert p.steps.frame["step"].tolist() == [1, 2, 3]
    assert (
        "- Not shown: 2 marked steps at the start or end of the recording, as no compute was recorded in them."
        in str(p.receipt)
    )


@pytest.mark.parametrize(
    ("allocators", "peak"), [(["CPU", "GPU_0_bfc"], 10), (["gpu_host_bfc"], None)]
)
def test_peak_memory_of_a_run_on_a_gpu_is_that_of_the_gpu(tmp_path, allocators, peak):
    """A tensor of the host may be larger, or the only one that was recorded: it says nothing of the
    device.
    """
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    gpu.line("Stream #1(Compute)", [gpu.event("k", 0, MS, correlation_id=1)], line_id=1)
    events = []
    for i, name in enumerate(allocators):
        size = 10 if name == "GPU_0_bfc" else 999
        stats = {
            "allocator_name": name,
            "bytes_allocated": size,
            "allocation_bytes": size,
            "requested_bytes": size,
            "bytes_available": 90,
            "peak_bytes_in_use": size,
        }
        events.append(host.event("MemoryAllocation", i * MS, 0, **stats))
    host.line("python", events, line_id=2)
    p = profile(tmp_path, xspace(gpu, host, hostname="cpu-host-1"))
    assert len(p.memory.summary) == len(allocators)
    assert p.overview["peak_memory_bytes"] == peak
    assert p.overview["memory_capacity_bytes"] == (None if peak is None else 100)
    figure = {f["key"]: f for f in p.payload()["overview"]["figures"]}["peak_memory"]
    assert figure["value"] == peak


def test_thousands_of_steps_are_written_as_in_the_head_of_the_dashboard(tmp_path):
    (tmp_path / "a.xplane.pb").write_bytes(training_run(1200))
    told = [text for _, text in load(tmp_path).overview["confidence_evidence"]]
    assert any(text in ("1,200 steps", "1,199 steps") for text in told)


@pytest.mark.parametrize("recorded", [True, False])
def test_python_calls_that_were_recorded_are_not_asked_for(tmp_path, recorded):
    k = kineto.Kineto()
    for i in range(12):
        k.step(i, i * 1000.0, 1000.0)
        k.op("aten::mm", i * 1000.0 + 10, 100)
        if recorded:
            k.add("train.py(7): log", "python_function", i * 1000.0 + 200, 700)
    found = kineto.profile(tmp_path, k).advice.set_index("rule").loc["other"]
    assert ("with_stack=True" in found["fix"]) != recorded
    assert ("Python calls were recorded" in found["evidence"]) == recorded
    assert found["title"].startswith("Look at" if recorded else "Record")


def test_a_recording_in_which_nothing_of_pytorch_ran_is_no_plain_trace(tmp_path):
    k = kineto.Kineto()
    k.add("PyTorch Profiler (0)", "Trace", 0, 9000, pid="Spans", tid="PyTorch Profiler")
    k.add(
        "Iteration Start: PyTorch Profiler",
        "Trace",
        0,
        None,
        pid="Traces",
        tid="Trace PyTorch Profiler",
    )
    p = kineto.profile(tmp_path, k)
    assert p.overview["verdict"] == "No work recorded"
    assert "plain trace" not in str(p.receipt)


def test_what_lies_between_steps_need_not_be_input(tmp_path):
    k = kineto.Kineto()
    for i in range(12):
        k.step(i, i * 1000.0, 400.0)
        k.op("aten::mm", i * 1000.0 + 10, 380)
    told = [text for _, text in kineto.profile(tmp_path, k).overview["confidence_evidence"]]
    assert any(
        "is outside steps: validation, input or logging, for example; nbprof.steps(dataset) marks"
        in text
        for text in told
    )


def steps_of(times, cut=()):
    from nbprof.analysis.steps.warmup import about_warmup, warming

    made = pd.DataFrame(
        {"host": "a", "kind": "train", "step": range(1, len(times) + 1), "step_time_ms": times}
    )
    made["cut"] = [i in cut for i in range(len(times))]
    made["traces"] = False
    made["warmup"] = warming(made, None)
    return made["warmup"].tolist(), about_warmup(made, None)


def test_the_first_step_that_is_averaged_may_warm_up():
    """What ran before the first one was not recorded: it is cut. The second compiles."""
    warm, text = steps_of([11.0, 600.0, 9.0, 6.0, 6.0, 6.0, 7.0, 6.0], cut=[0])
    assert warm == [False, True] + 6 * [False]
    assert (
        text
        == "warm-up: step 2 is excluded from averages (over 4 times the median of the following ones)"
    )
    warm, text = steps_of([11.0, 600.0, 9.0, 6.0, 6.0, 6.0, 7.0, 6.0])
    assert not any(warm), "the first one is no warm-up: the second is in the averages"
    assert text.endswith("(no leading step takes over 4 times the median of the following ones)")


@pytest.mark.parametrize(
    ("times", "warm", "why"),
    [
        ([600.0, 6.0, 6.0, 6.0], True, "100.0 times the longest of the following ones"),
        ([134.4, 42.9, 42.8], True, "3.1 times the longest of the following ones"),
        ([600.0, 6.0], True, "100.0 times the longest of the following ones"),
        ([600.0, 100.0, 6.0], True, "6.0 times the longest of the following ones"),
        # With one step to compare it with, or with some that differ, three times as long says
        # little.
        (
            [134.4, 42.9],
            False,
            "too few to tell: the first takes 3.1 times the longest of the following ones",
        ),
        (
            [134.4, 42.9, 20.0],
            False,
            "too few to tell: the first takes 3.1 times the longest of the following ones",
        ),
        ([60.0, 42.9, 42.8], False, "the first takes less than 2 times the following ones"),
        ([60.0], False, "too few to tell: 2 or more are needed"),
    ],
)
def test_of_a_few_steps_the_first_may_be_warm_up(times, warm, why):
    which = "the first step is" if warm else "no step is"
    flags = [warm] + (len(times) - 1) * [False]
    assert steps_of(times) == (flags, f"warm-up: {which} excluded from averages ({why})")


def test_a_cut_step_is_not_compared_with():
    assert steps_of([600.0, 40.0, 41.0, 6.0], cut=[3])[0] == [True, False, False, False]
    assert not any(steps_of([90.0, 40.0, 20.0], cut=[2])[0]), "one step is left to compare with"


@pytest.mark.parametrize(
    ("first", "mean", "doubt"), [(3.1, 40.0, ""), (1.0, 40.0, ""), (2.5, 60.0, "takes 2.5 times")]
)
def test_three_steps_of_which_the_first_is_cold(tmp_path, first, mean, doubt):
    k = kineto.Kineto()
    at = 0.0
    times = [40.0 * first, 40.0, 40.0] if not doubt else [40.0 * first, 40.0]
    for i, time in enumerate(times):
        k.step(i, at, 1000 * time)
        k.op("aten::mm", at + 10, 1000 * time - 20)
        at += 1000 * time
    p = kineto.profile(tmp_path, k)
    expected = sum(times) / len(times) if doubt else mean
    assert p.overview["step_time_ms"] == pytest.approx(expected, abs=0.1)
    said = " ".join(text for _, text in p.overview["confidence_evidence"])
    assert ("too few steps to tell whether it is warm-up" in said) is bool(doubt)
    assert doubt in said


@pytest.mark.parametrize(
    ("iterator", "made"),
    [("Iterator::Root::Prefetch", True), ("Iterator::Root::Generator", False), ("", False)],
)
def test_time_in_which_a_pipeline_works_ahead_is_not_said_to_be_saved(tmp_path, iterator, made):
    """A callback of 7 ms, and a wait of 2 ms for what tf.data makes meanwhile: without the
    callback, the wait would be longer.
    """
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    for i in range(12):
        at = i * 10 * MS
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", at, 2 * MS))
        main.append(host.event("dense/MatMul:MatMul", at + 2 * MS, MS))
        if iterator:
            pool.append(host.event("Iterator::Root", at, 2 * MS, id=1))
            pool.append(host.event(iterator, at, 2 * MS, id=2, parent_id=1))
    host.line("python", main, line_id=1)
    if pool:
        host.line("pool", pool, line_id=2)
    p = profile(tmp_path, xspace(host))
    (tmp_path / "many").mkdir()
    for name in ("a", "b"):
        (tmp_path / "many" / f"{name}.xplane.pb").write_bytes(xspace(host, hostname=name))
    assert (
        nbprof.load(tmp_path / "many", executor=1).overview["verdict_detail"]
        == p.overview["verdict_detail"]
    )
    o = p.overview
    assert o["bound"] == "other"
    assert ("faster than now" in o["verdict_detail"]) is not made
    assert ("would wait longer" in o["verdict_detail"]) is made
    assert np.isnan(p.advice.set_index("rule").loc["other", "gain_ms_per_step"]), (
        "to record calls saves nothing"
    )


_NAMES = [
    {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "python"}},
    {"name": "thread_name", "ph": "M", "pid": 1, "tid": 3, "args": {"name": "main"}},
]
_SAMPLE = {"name": "load", "ph": "C", "pid": 1, "ts": 5, "args": {"percent": 7}}


@pytest.mark.parametrize(
    ("events", "why"),
    [([], "list of events is empty"), (_NAMES, "names of processes and threads, but no events")],
)
def test_a_trace_without_events_promises_none(tmp_path, events, why):
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": events}))
    p = load(tmp_path / "a.json")
    assert p.overview["verdict"] == "No events"
    assert why in str(p.receipt)
    for told in (str(p), p.brief(), str(p.receipt)):
        assert "shows them all" not in told
        assert "trace view" not in told


def test_a_trace_of_counters_alone_has_something_to_show(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [*_NAMES, _SAMPLE]}))
    p = load(tmp_path / "a.json")
    assert p.overview["verdict"] == "Plain trace"
    assert "no events" not in str(p.receipt)
