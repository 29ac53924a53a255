"""The rules of PyTorch's dialect, each on the smallest trace that shows it."""

from __future__ import annotations

import pytest

from nbprof.activity.unit import RECORDING
from tests.support.kineto import BACKWARD, MAIN, PID, Kineto, profile


def device_ops(p):
    table = p.ops.frame
    return table[table["where"] == "device"].set_index("op")["total_us"].to_dict()


def parts(p, row=0):
    frame = p.steps.frame.iloc[row]
    times = [
        c
        for c in frame.index
        if c.endswith("_ms")
        and c not in ("start_ms", "host_to_device_ms", "waiting_ms")
        and frame[c] > 0
    ]
    return {c.removesuffix("_ms"): round(1000 * frame[c]) for c in times}


def receipt(p):
    return " ".join(n.text for n in p.receipt.lines)


# Lanes.


def test_host_and_device_can_share_a_row_of_the_file(tmp_path):
    k = Kineto()
    k.add("main.py(1): f", "python_function", 0, 50, pid=0, tid=7, args={"Python id": 1})
    k.kernel("gemm", 10, 5, correlation=3, stream=7, device=0)
    k.add("forward", "gpu_user_annotation", 9.999, 5.002, pid=0, tid=7, args={"External id": 2})
    k.op("aten::mm", 1, 2)
    p = profile(tmp_path, k)
    lanes = p.trace.lanes.sort_values("lane")
    assert sorted(zip(lanes["kind"], lanes["process"], lanes["events"], strict=True)) == [
        ("derived", "GPU 0", 1),
        ("device", "GPU 0", 1),
        ("host", "Host", 1),
        ("host", "Host", 1),
    ]
    events = p.trace.events(args=("Python id", "correlation", "External id")).set_index("name")
    assert events.loc["main.py(1): f", "Python id"] == 1
    assert events.loc["gemm", "correlation"] == 3
    assert events.loc["forward", "External id"] == 2
    assert events["depth"].tolist() == [0] * 4


def test_lanes_are_named_and_in_order(tmp_path):
    k = Kineto()
    k.add("PyTorch Profiler (0)", "Trace", 0, 100, pid="Spans", tid="PyTorch Profiler")
    k.add("Buffer Flush", "overhead", 50, 1, pid=-1, tid=0)
    k.op("aten::mm", 1, 2, tid=BACKWARD)
    k.op("aten::mm", 1, 2)
    k.kernel("ncclDevKernel_AllReduce", 10, 1, stream=20)
    k.kernel("b", 10, 1, stream=7, device=1)
    k.kernel("c", 10, 1, stream=7)
    k.add("Stream Sync", "cuda_sync", 12, 1, pid=0, tid=7, args={"stream": 7, "device": 0})
    k.named(PID, tid=BACKWARD, thread="thread 108 (pt_autograd_0)")
    k.named(0, "GPU 0")
    lanes = profile(tmp_path, k).run.trace.lanes.sort_values("order")
    assert [f"{p} / {t}" for p, t in zip(lanes["process"], lanes["thread"], strict=True)] == [
        *("GPU 0 / Stream 7", "GPU 0 / Waits of stream 7", "GPU 0 / Stream 20", "GPU 1 / Stream 7"),
        *("Host / main thread", "Host / thread 108", "Profiler / recording", "Profiler / overhead"),
    ]
    assert lanes.set_index("thread").loc["thread 108", "note"] == "pt_autograd_0"
    assert lanes["note"].tolist()[:4] == ["compute", "", "collectives", "compute"]


def test_other_accelerators_keep_their_name(tmp_path):
    k = Kineto()
    k.kernel("gemm", 1, 1)
    k.named(0, "XPU 0")
    p = profile(tmp_path, k)
    assert p.trace.lanes["process"].tolist() == ["XPU 0"]
    assert p.devices[["kind", "device"]].to_numpy().tolist() == [["XPU", 0]]


def test_a_child_may_run_past_its_parent_by_a_nanosecond(tmp_path):
    k = Kineto()
    k.op("aten::linear", 0, 10)
    k.op("aten::addmm", 2, 8.001)
    k.op("aten::empty", 3, 7.0011)
    k.op("aten::relu", 10.5, 0.4)
    p = profile(tmp_path, k)
    assert p.trace.events()["depth"].tolist() == [0, 1, 2, 0]
    own = p.ops.frame.set_index("op")["self_us"].to_dict()
    assert own == pytest.approx(
        {"aten::linear": 2.0, "aten::addmm": 1.0, "aten::empty": 7.0, "aten::relu": 0.4}
    )
    assert "2 ops end up to 1 ns after the enclosing op" in receipt(p)


def test_no_event_has_less_than_no_time_of_its_own(tmp_path):
    k = Kineto()
    k.op("outer", 10, 0.1)
    k.op("inner", 10.001, 0.15)
    events = profile(tmp_path, k).trace.events()
    assert events["depth"].tolist() == [0, 1]
    assert events["self_us"].tolist() == [0.001, 0.15]


def test_a_process_may_be_called_by_a_text(tmp_path):
    k = Kineto()
    k.add("aten::mm", "cpu_op", 1, 5, pid="trainer", tid="worker", args={"External id": 1})
    lanes = profile(tmp_path, k).trace.lanes
    assert lanes[["process", "thread"]].values.tolist() == [["Host", "worker"]]


def test_ops_that_end_together_all_count(tmp_path):
    k = Kineto()
    k.op("aten::linear", 0, 10)
    k.op("aten::addmm", 4, 6)
    assert profile(tmp_path, k).ops.frame.set_index("op")["self_us"].to_dict() == {
        "aten::linear": 4.0,
        "aten::addmm": 6.0,
    }


# Links.


def test_a_kernel_counts_for_the_innermost_op_that_launched_it(tmp_path):
    k = Kineto()
    k.op("aten::linear", 0, 20)
    inner = k.op("aten::addmm", 2, 15)
    k.launched("gemm", 5, 30, 40, op=inner)
    p = profile(tmp_path, k)
    assert device_ops(p) == {"aten::addmm": 40.0}
    assert p.kernels.frame["op"].tolist() == ["aten::addmm"]
    launch = p.run.activity.launches.frame().iloc[0]
    names = p.run.trace.names[p.run.trace.events.name]
    assert [names[launch[c]] for c in ("event", "target", "op")] == [
        "cudaLaunchKernel",
        "gemm",
        "aten::addmm",
    ]


@pytest.mark.parametrize(
    "external", [None, 900, "correlation"], ids=["no id", "id of nothing", "correlation as id"]
)
def test_without_a_useful_id_time_on_the_thread_links(tmp_path, external):
    k = Kineto()
    k.op("aten::mm", 0, 20)
    k.op("aten::mul", 0, 20, tid=BACKWARD)
    k.op("aten::copy_", 30, 20)
    correlation = k.call("hipLaunchKernel", 5, 1, tid=BACKWARD)
    k.kernel("gemm", 30, 40, correlation)
    if external is not None:
        for event in k.events[-2:]:
            event["args"]["External id"] = correlation if external == "correlation" else external
    # The correlation is 1, which is the id of the op that ran at that time on the other thread.
    assert device_ops(profile(tmp_path, k)) == {"aten::mul": 40.0}


def test_a_correlation_of_zero_on_all_calls_links_nothing(tmp_path):
    k = Kineto()
    for ts, name in ((0, "aten::mm"), (100, "aten::mul")):
        k.op(name, ts, 20)
        k.add("cudaLaunchKernel", "cuda_runtime", ts + 5, 2, args={"correlation": 0})
        k.kernel("gemm", ts + 10, 5, correlation=0)
    p = profile(tmp_path, k)
    assert device_ops(p) == {"gemm": 10.0}
    assert (p.run.activity.launches.frame()["target"] == -1).all()


def test_an_id_that_happens_to_be_another_ops_is_not_believed(tmp_path):
    k = Kineto()
    late = k.op("aten::late", 500, 20)
    k.op("aten::mm", 0, 20)
    k.kernel("gemm", 30, 40, k.call("cudaLaunchKernel", 5, 1, op=late), op=late)
    assert device_ops(profile(tmp_path, k)) == {"aten::mm": 40.0}


def test_work_without_a_launch_is_linked_by_its_own_id(tmp_path):
    k = Kineto()
    op = k.op("aten::mm", 0, 20)
    k.kernel("gemm", 30, 40, correlation=77, op=op)
    p = profile(tmp_path, k)
    assert device_ops(p) == {"aten::mm": 40.0}
    assert "no_runtime_calls" in set(p.receipt.notes["key"])


def test_work_without_a_launch_is_linked_by_the_arrow_to_it(tmp_path):
    k = Kineto()
    k.op("aten::mul", 0, 3)
    k.op("aten::mm", 5, 20)
    k.kernel("gemm", 30, 40, correlation=77)
    k.flow(77, (PID, MAIN, 6), (0, 7, 30))
    assert device_ops(profile(tmp_path, k)) == {"aten::mm": 40.0}


@pytest.mark.parametrize("ident", ["77", 77])
def test_an_arrow_may_state_its_number_as_a_text(tmp_path, ident):
    k = Kineto()
    k.op("aten::mm", 5, 20)
    k.kernel("gemm", 30, 40, correlation=77)
    k.flow(ident, (PID, MAIN, 6), (0, 7, 30))
    k.flow("0x4d", (PID, MAIN, 7), (0, 7, 31))
    assert device_ops(profile(tmp_path, k)) == {"aten::mm": 40.0}


def test_arrows_of_other_names_than_numbers_link_no_kernels(tmp_path):
    k = Kineto()
    k.op("aten::mm", 5, 20)
    for i in range(1, 40):
        k.kernel("gemm", 30 + 10 * i, 5, correlation=i)
        k.flow(f"arrow {i}", (PID, MAIN, 6), (0, 7, 30 + 10 * i))
    assert device_ops(profile(tmp_path, k)) == {"gemm": 195.0}


def test_work_of_no_op_is_linked_by_the_annotation_on_the_device(tmp_path):
    k = Kineto()
    k.add("ProfilerStep#3", "gpu_user_annotation", 20, 60, pid=0, tid=7)
    k.add("decode", "gpu_user_annotation", 29.999, 40.002, pid=0, tid=7)
    k.op("aten::unrelated", 90, 1)
    k.kernel("attention", 30, 40)
    k.kernel("sampling(int)", 75, 2)
    p = profile(tmp_path, k)
    assert device_ops(p) == {"decode": 40.0, "sampling(int)": 2.0}, (
        "the step is around everything and names nothing"
    )
    assert "1 device event of 2 (50 %) could not be linked to an op" in receipt(p)


def test_one_graph_launch_has_many_kernels(tmp_path):
    k = Kineto()
    k.note("replay", 0, 20)
    correlation = k.call("cudaGraphLaunch", 2, 10)
    for i in range(3):
        k.kernel(f"node{i}", 20 + 10 * i, 5, correlation)
    p = profile(tmp_path, k)
    assert device_ops(p) == {"replay": 15.0}
    assert len(p.run.activity.launches) == 3
    assert p.run.activity.launches.frame()["event"].nunique() == 1
    assert "lost_launches" not in set(p.receipt.notes["key"])


def test_files_of_2021_have_other_words(tmp_path):
    k = Kineto()
    k.add("aten::mm", "Operator", 0, 20, tid="100", args={"External id": 5})
    k.add("ProfilerStep#16", "Operator", 0, 90, tid="100", args={"External id": 4})
    k.add("cudaLaunchKernel", "Runtime", 5, 1, tid="100", args={"correlation": 9, "external id": 5})
    k.add(
        "sgemm",
        "Kernel",
        30,
        40,
        pid=0,
        tid="stream 7",
        args={"correlation": 9, "external id": 5, "device": 0, "grid": [2, 1, 1]},
    )
    k.add(
        "Memset (Device)",
        "Memset",
        72,
        3,
        pid=0,
        tid="stream 7",
        args={"device": 0, "bytes": 64, "correlation": 10},
    )
    p = profile(tmp_path, k)
    assert device_ops(p) == {"aten::mm": 40.0, "Memset (Device)": 3.0}
    assert p.ops.frame["op"].tolist().count("ProfilerStep#16") == 0
    assert p.steps.frame["step"].tolist() == [16]
    assert p.trace.lanes["thread"].tolist() == ["main thread", "Stream 7"]


def test_ranks_have_ids_of_their_own(tmp_path):
    files = []
    for rank, name in ((1, "aten::mm"), (0, "aten::mul")):
        k = Kineto(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 4})
        op = k.op(name, 0, 20)
        k.launched("gemm", 5, 30, 40 + rank, op=op, device=rank)
        files.append(k)
    p = profile(tmp_path, *files)
    assert p.hosts == ["rank 1", "rank 0"]
    assert device_ops(p) == {"aten::mm": 41.0, "aten::mul": 40.0}
    assert "The job had 4 ranks; only ranks 0, 1 are here" in receipt(p)


def test_a_file_called_as_the_rank_of_another_is_a_host_of_its_own(tmp_path):
    files = [Kineto(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2}), Kineto()]
    for k, name in zip(files, ("aten::mm", "aten::mul"), strict=True):
        k.step(0, 1, 100)
        k.launched("gemm", 5, 30, 40, op=k.op(name, 2, 20))
    p = profile(tmp_path, *files, names=("x.pt.trace.json", "rank 0.pt.trace.json"))
    assert p.hosts == ["rank 0, x", "rank 0"]
    assert device_ops(p) == {"aten::mm": 40.0, "aten::mul": 40.0}
    assert len(p.steps.frame) == 2


def test_copies_of_a_file_are_told(tmp_path):
    k = Kineto(distributedInfo={"rank": 0, "world_size": 2})
    k.op("aten::mm", 0, 20)
    p = profile(tmp_path, k, k)
    assert "host1 has the same events as host0" in receipt(p)
    assert "Several files have rank 0: host0, host1" in receipt(p)
    assert p.hosts == ["rank 0, host0", "rank 0, host1"]


def test_many_copies_are_one_line(tmp_path):
    k = Kineto(distributedInfo={"rank": 0, "world_size": 2})
    k.op("aten::mm", 0, 20)
    lines = str(profile(tmp_path, *[k] * 12).receipt).splitlines()
    (copies,) = (line for line in lines if line.startswith("! 11 files"))
    assert copies.startswith(
        "! 11 files have the same events as host0: host1, host2, host3, host4, host5, host6, host7, host8 and 3 more."
    )
    assert len([line for line in lines if "Several files have rank 0" in line]) == 1


# Steps.


def test_a_step_lasts_until_the_work_launched_in_it_is_done(tmp_path):
    k = Kineto()
    for i in range(3):
        k.step(7 + i, 100 * i, 90)
        op = k.op("aten::mm", 100 * i + 10, 20)
        k.launched("gemm", 100 * i + 15, 100 * i + 40, 80, op=op)
    p = profile(tmp_path, k)
    steps = p.steps.frame
    assert steps["step"].tolist() == [7, 8, 9]
    assert steps["name"].tolist() == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]
    assert steps["kind"].tolist() == ["ProfilerStep"] * 3
    # The second begins when the device has done the first, the third likewise.
    assert (1000 * steps["step_time_ms"]).round().tolist() == [120, 100, 100]
    assert parts(p, 1) == {"step_time": 100, "device_compute": 80, "host_compute": 10, "other": 10}


def test_a_step_without_time_of_its_own_is_told(tmp_path):
    k = Kineto()
    for i in range(4):
        k.step(i, 100 * i + 1, 90)
        if i != 2:
            k.launched("gemm", 100 * i + 5, 100 * i + (20 if i < 2 else 90), 270 if i == 1 else 30)
    p = profile(tmp_path, k)
    assert p.steps.frame["step"].tolist() == [0, 1, 3]
    assert "no time of its own and is not listed (ProfilerStep#2)" in receipt(p)


def test_steps_that_the_host_ran_ahead_of_are_steps(tmp_path):
    k = Kineto()
    for i in range(5):
        k.step(i, 10 * i + 1, 9)
        k.launched("gemm", 10 * i + 3, 10 + 100 * i, 100, op=k.op("aten::mm", 10 * i + 2, 5))
    frame = profile(tmp_path, k).steps.frame
    assert frame["step"].tolist() == [0, 1, 2, 3, 4]
    assert (1000 * frame["step_time_ms"]).round().tolist() == [109, 100, 100, 100, 100]
    assert (1000 * frame["device_compute_ms"]).round().tolist() == [100] * 5


def test_work_counts_in_the_step_in_which_it_runs(tmp_path):
    k = Kineto()
    k.step(1, 0, 50)
    k.op("aten::long", 40, 30)
    k.step(2, 60, 40)
    p = profile(tmp_path, k)
    assert parts(p, 0) == {"step_time": 50, "host_compute": 10, "other": 40}
    assert parts(p, 1) == {"step_time": 40, "host_compute": 10, "other": 30}


def test_waiting_for_the_device_is_no_compute(tmp_path):
    k = Kineto()
    k.step(1, 0, 100)
    op = k.op("aten::item", 0, 60)
    k.launched("gemm", 1, 2, 10, op=op)
    k.copy("Memcpy DtoH (Device -> Pinned)", 20, 5, k.call("cudaMemcpyAsync", 10, 20, op), bytes=4)
    k.call("cudaStreamSynchronize", 30, 25, op)
    k.call("cudaMalloc", 70, 5)
    k.call("cudaEventRecord", 80, 1)
    # 0–60 the op: compute 0–1, launch 1–2, device 2–12, waiting 12–20, copy 20–25, waiting 25–55,
    # compute 55–60.
    assert parts(profile(tmp_path, k)) == {
        "step_time": 100,
        "device_compute": 10,
        "output": 5,
        "kernel_launch": 1,
        "host_compute": 1 + 5 + 5 + 1,
        "other": 100 - 10 - 5 - 1 - 12,
    }


def _stalled(tmp_path, python_us):
    """Five steps of `python_us` and 60 µs more, 50 of them in a wait during which a graph that was
    launched has not begun.
    """
    k = Kineto()
    for i in range(5):
        at = 1000 * i
        k.step(i, at, 60 + python_us)
        op = k.op("aten::to", at, 60)
        k.launched("gemm", at + 1, at + 52, 5, op=op)
        k.call("cudaStreamSynchronize", at + 2, 55, op)
    return profile(tmp_path, k)


def test_a_wait_while_the_device_runs_nothing_is_no_python(tmp_path):
    p = _stalled(tmp_path, 0)
    # The op before the launch, the launch, and what is left of it behind the wait.
    assert parts(p) == {
        "step_time": 60,
        "device_compute": 5,
        "kernel_launch": 1,
        "host_compute": 1 + 3,
        "other": 50,
    }
    assert p.steps.frame["waiting_ms"].tolist() == pytest.approx([0.05] * 5)
    assert p.overview["verdict"] == "Stalled"
    assert (
        p.overview["verdict_text"]
        == "for 83% of step time the host waits for a device that runs nothing"
    )
    assert "0.05 ms of the 0.06 ms" in p.overview["verdict_detail"]
    assert "other" not in p.advice["rule"].tolist()
    checks = p.overview["checks"].set_index("check")
    assert checks.loc["all_others", "percent"] == pytest.approx(0)


def test_python_is_still_blamed_for_what_is_no_wait(tmp_path):
    p = _stalled(tmp_path, 140)
    assert parts(p)["other"] == 190
    assert p.steps.frame["waiting_ms"].tolist() == pytest.approx([0.05] * 5)
    assert p.overview["verdict_text"] == "70% of step time is outside any recorded op, often Python"
    assert "0.14 ms of the 0.20 ms" in p.overview["verdict_detail"]
    assert p.advice.set_index("rule")["evidence"]["other"].startswith(
        "**70%** of step time (**0.14 ms**) is outside"
    )


def test_waits_are_unknown_without_calls_of_a_runtime(tmp_path):
    k = Kineto()
    k.step(0, 0, 100)
    k.op("aten::mm", 0, 60)
    assert profile(tmp_path, k).steps.frame["waiting_ms"].isna().all()


def test_every_part_of_a_step(tmp_path):
    k = Kineto()
    k.step(1, 0, 200)
    k.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 20)
    k.op("aten::stack", 5, 10)
    up = k.op("aten::copy_", 20, 10)
    k.copy(
        "Memcpy HtoD (Pageable -> Device)", 24, 8, k.call("cudaMemcpyAsync", 21, 8, up), bytes=4096
    )
    k.note("_compile.compile_inner (dynamo_timed)", 40, 10)
    mm = k.op("aten::mm", 50, 10, types=["float", "float"])
    k.launched("sgemm", 52, 60, 20, op=mm)
    k.copy("Memcpy DtoD (Device -> Device)", 80, 5, k.call("cudaMemcpyAsync", 55, 1, mm), bytes=64)
    k.launched(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        57,
        85,
        15,
        op=mm,
    )
    k.copy(
        "Memcpy DtoH (Device -> Pageable)", 100, 5, k.call("cudaMemcpyAsync", 58, 1, mm), bytes=64
    )
    assert parts(profile(tmp_path, k)) == {
        "step_time": 200,
        # The loader, the op's copy call from 21 on and the copy itself until 32.
        "input": 20 + 11,
        "compile": 10,
        "device_compute": 20,
        "device_to_device": 5,
        "device_collectives": 15,
        "output": 5,
        "kernel_launch": 3,
        "host_compute": 1 + 10 - 4,
        "other": 200 - 31 - 10 - 20 - 5 - 15 - 5 - 3 - 7,
    }


def test_steps_cut_by_the_end_of_the_recording_are_shown_and_not_averaged(tmp_path):
    k = Kineto()
    for i in range(4):
        k.step(i, 100 * i, 100)
        op = k.op("aten::mm", 100 * i, 90)
        for j in range(10 if i < 3 else 7):
            k.launched("gemm", 100 * i + 5 * j, 100 * i + 5 * j + 2, 2, op=op)
    p = profile(tmp_path, k)
    assert p.steps.frame["cut"].tolist() == [False, False, False, True]
    assert p.steps.frame["counted"].tolist() == [True, True, True, False]
    assert (
        p.payload()["steps"]["left_out"]
        == "Averages exclude step 3 (cut off by the end of the recording)."
    )
    assert (
        "The last step was cut off by the end of the recording (7 device events against 10 in the previous step)"
        in receipt(p)
    )


def test_optimizer_steps_end_steps_where_nothing_else_marks_them(tmp_path):
    k = Kineto()
    for i in range(3):
        k.op("aten::mm", 100 * i + 5, 50)
        k.note("Optimizer.step#Adam.step", 100 * i + 60, 20)
        k.note("Optimizer.step#EMA.step", 100 * i + 85, 5)
    p = profile(tmp_path, k)
    assert (1000 * p.steps.frame["step_time_ms"]).round().tolist() == [85, 100, 100]
    assert p.steps.frame["step"].tolist() == [0, 1, 2]
    assert "steps are taken from the 3 optimizer steps" in receipt(p)


def test_batches_begin_steps_where_not_even_an_optimizer_does(tmp_path):
    k = Kineto()
    for i in range(3):
        k.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 100 * i, 20)
        k.op("aten::mm", 100 * i + 30, 50)
    p = profile(tmp_path, k)
    assert (1000 * p.steps.frame["step_time_ms"]).round().tolist() == [100, 100, 80]
    assert "the 3 batches that the loop requested from its DataLoader" in receipt(p)


def test_without_any_marker_the_recording_is_the_unit_and_a_sentence_says_how_to_get_steps(
    tmp_path,
):
    k = Kineto()
    k.op("aten::mm", 0, 50)
    p = profile(tmp_path, k)
    assert p.overview["unit"]["kind"] == RECORDING
    assert (1000 * p.steps.frame["step_time_ms"]).round().tolist() == [50]
    assert "steps" not in p.run.missing
    assert (
        "nothing repeats, so figures are for the whole recording. `for batch in nbprof.steps(batches):` marks the steps"
        in receipt(p)
    )
    assert p.overview["verdict"] == "Compute-bound"


def test_without_any_work_a_sentence_says_how_to_get_steps(tmp_path):
    k = Kineto()
    k.add("main.py(1): f", "python_function", 0, 50, args={"Python id": 1})
    p = profile(tmp_path, k)
    assert p.steps.frame.empty
    assert "prof.step()" in p.run.missing["steps"]
    assert p.overview["verdict"] == "No work recorded"


def test_a_loop_in_a_step_opens_no_steps_of_its_own(tmp_path):
    k = Kineto()
    k.step(1, 0, 100)
    k.step(50, 20, 10)
    k.step(2, 100, 100)
    k.op("aten::mm", 0, 200)
    assert profile(tmp_path, k).steps.frame["step"].tolist() == [1, 2]


def test_several_processes_in_one_file_are_told_apart(tmp_path):
    k = Kineto()
    k.op("aten::mm", 0, 10)
    k.add("aten::mm", "cpu_op", 0, 10, pid=200, tid=200, args={"External id": 9})
    assert profile(tmp_path, k).trace.lanes["process"].tolist() == ["Process 100", "Process 200"]


# Batches.


@pytest.mark.parametrize(
    ("batches", "said"),
    [([4, 4, 4, 4, 5], False), ([4] * 10 + [5], True), ([1] * 6, False), ([2, 3, 2, 3], False)],
)
def test_steps_that_take_several_batches_say_so(tmp_path, batches, said):
    k = Kineto()
    for number, count in enumerate(batches):
        k.step(number, 1000 * number, 900)
        for batch in range(count):
            k.note(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                1000 * number + 100 * batch,
                50,
            )
        k.op("aten::mm", 1000 * number + 600, 100)
    p = profile(tmp_path, k)
    assert ("batches_per_step" in set(p.receipt.notes["key"])) == said
    assert (f"each step takes {batches[0]} batches from DataLoaders" in receipt(p)) == said
