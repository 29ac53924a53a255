"""The time of devices against plain loops over the events, and each defect of HTA that the analyses
must not have.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbprof.core.errors import NbprofError
from nbprof.profiles.load import load as load_any
from tests.support.frames import below, public
from tests.support.kineto import Kineto, Plain, length, load, profile, union, without
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace

KINETO = {
    "v100": "kineto/v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz",
    "h100": "kineto/h100-bert/h100_bert.pt.trace.json.gz",
    "mi300": "kineto/mi300-ddp-resnet18/train_resnet18.json.gz",
    "a100": "kineto/a100-nccl-ranks/sampled_rank-0.json.gz",
}


@cache
def both(name):
    path = real(KINETO[name])
    return load(path), Plain(path)


def kind(event):
    if str(event["cat"]).lower() in ("gpu_memcpy", "gpu_memset", "memcpy", "memset"):
        return "memory"
    return "communication" if event["name"].startswith("nccl") else "compute"


def stream_of(tid):
    """What we call the stream of a row that is called 7 or "stream 7"."""
    return f"Stream {str(tid).removeprefix('stream ')}"


def spans(events):
    return [(e["ts"], e["ts"] + e["dur"]) for e in events]


@pytest.mark.parametrize("name", KINETO)
def test_each_moment_of_a_device_counts_once(name):
    p, plain = both(name)
    by = {
        k: union(spans([e for e in plain.work if kind(e) == k]))
        for k in ("compute", "communication", "memory")
    }
    whole = p.device_time.frame.iloc[0]
    every = union([s for part in by.values() for s in part])
    time = every[-1][1] - every[0][0]
    exposed = without(by["communication"], by["compute"])
    copies = without(by["memory"], [*by["compute"], *by["communication"]])
    expected = {
        "time_ms": time,
        "compute_ms": length(by["compute"]),
        "communication_ms": length(exposed),
        "memory_ms": length(copies),
        "idle_ms": time - length(every),
    }
    for column, value in expected.items():
        assert whole[column] == pytest.approx(float(value) / 1000, abs=1e-6), column
    both_at_once = float(length(by["communication"]) - length(exposed)) / 1000
    overlap = p.device_time.overlap.iloc[0]
    assert overlap["compute_communication_ms"] == pytest.approx(both_at_once, abs=1e-6)
    if by["communication"]:
        percent = 100 * both_at_once / float(length(by["communication"]) / 1000)
        assert overlap["communication_overlap_percent"] == pytest.approx(percent)
    else:
        # HTA divides by zero.
        assert np.isnan(overlap["communication_overlap_percent"])


@pytest.mark.parametrize("name", KINETO)
def test_the_parts_of_every_step_add_up(name):
    p, _ = both(name)
    frame = p.device_time.frame
    parts = frame[["compute_ms", "communication_ms", "memory_ms", "idle_ms"]]
    assert (parts >= 0).all(axis=None)
    np.testing.assert_allclose(parts.sum(axis=1), frame["time_ms"], atol=1e-6)
    steps = frame[frame["step"].notna()]
    assert steps["step"].tolist() == p.steps.frame["step"].tolist()
    np.testing.assert_allclose(steps["time_ms"], p.steps.frame["step_time_ms"], atol=1e-6)
    # Computation does not depend on the steps that it is cut into, where they hold all of it.
    if name in ("v100", "h100", "mi300"):
        assert steps["compute_ms"].sum() == pytest.approx(frame["compute_ms"].iloc[0], rel=1e-6)


@pytest.mark.parametrize("name", KINETO)
def test_gaps_of_streams(name):
    p, plain = both(name)
    by_stream = defaultdict(list)
    for event in plain.work:
        by_stream[event["tid"]].append(event)
    expected = {}
    for tid, events in by_stream.items():
        sums = dict.fromkeys(("host_wait", "kernel_wait", "other"), 0)
        reach = None
        for event in sorted(events, key=lambda e: (e["ts"], e["ts"] + e["dur"])):
            if reach is not None and event["ts"] > reach:
                call = plain.calls.get(event["args"]["correlation"])
                gap = event["ts"] - reach
                waits = (
                    "host_wait"
                    if call and call["ts"] > reach
                    else "kernel_wait"
                    if gap < 30
                    else "other"
                )
                sums[waits] += gap
            reach = max(reach or 0, event["ts"] + event["dur"])
        expected[stream_of(tid)] = sums
    idle = p.device_time.idle
    mine = idle[idle["stream"] != ""]
    assert set(mine["stream"]) == set(expected)
    for row in mine.itertuples():
        assert row.idle_ms == pytest.approx(
            float(expected[row.stream][row.category]) / 1000, abs=1e-6
        ), (row.stream, row.category)


@pytest.mark.parametrize("name", KINETO)
def test_kernels_have_the_figures_of_their_runs(name):
    # HTA puts the sum in place of mean, least and largest where there are more kernels than it
    # lists.
    p, plain = both(name)
    runs = defaultdict(list)
    for event in plain.work:
        runs[event["name"]].append(float(event["dur"]))
    frame = p.device_time.kernels.set_index("kernel")
    assert set(frame.index) == set(runs)
    for kernel, values in runs.items():
        row = frame.loc[kernel]
        found = [
            row[c] for c in ("occurrences", "total_us", "avg_us", "min_us", "median_us", "max_us")
        ]
        assert found == pytest.approx(
            [
                len(values),
                sum(values),
                np.mean(values),
                min(values),
                np.median(values),
                max(values),
            ],
            abs=1e-6,
        )
        assert row["sd_us"] == pytest.approx(
            np.std(values, ddof=1) if len(values) > 1 else np.nan, nan_ok=True, abs=1e-6
        )
    assert frame["cumulative_percent"].iloc[-1] == pytest.approx(100)


@pytest.mark.parametrize("name", KINETO)
def test_launches_and_queues(name):
    p, plain = both(name)
    pairs = [
        (plain.calls[e["args"]["correlation"]], e)
        for e in plain.work
        if e["args"]["correlation"] in plain.calls
    ]
    each = p.device_time.each_launch
    assert len(each) == len({id(call) for call, _ in pairs})
    delays = sorted(max(0.0, float(e["ts"] - c["ts"] - c["dur"])) for c, e in pairs)
    if len(pairs) == len(each):
        assert sorted(each["delay_us"]) == pytest.approx(delays, abs=1e-6)
        assert each["short"].sum() == sum(e["dur"] < c["dur"] for c, e in pairs)
    changes = defaultdict(list)
    for call, event in pairs:
        changes[stream_of(event["tid"])] += [
            (call["ts"], -1, 1),
            (max(event["ts"], call["ts"]), 0, -1),
        ]
    queue = p.device_time.queue.set_index("stream")
    for stream, moves in changes.items():
        most = now = 0
        area = last = 0
        moves.sort()
        for time, _, step in moves:
            area += now * (time - last)
            now, last = now + step, time
            most = max(most, now)
        assert (queue.loc[stream, "max_length"], queue.loc[stream, "works"]) == (
            most,
            len(moves) // 2,
        )
        assert queue.loc[stream, "mean_length"] == pytest.approx(
            float(area / (moves[-1][0] - moves[0][0]))
        )
    series = p.device_time.queue_series
    assert (series["queue_length"] >= 0).all()
    assert (series.groupby("stream")["queue_length"].last() == 0).all()


def test_bandwidth_is_what_the_file_states_of_each_copy():
    p, plain = both("v100")
    stated = defaultdict(list)
    for event in plain.of("memcpy", "gpu_memcpy"):
        stated["host to device"].append(float(event["args"]["memory bandwidth (GB/s)"]))
    frame = p.device_time.bandwidth.set_index("copy")
    for copy, values in stated.items():
        row = frame.loc[copy]
        assert [
            row["copies"],
            row["min_gb_per_second"],
            row["max_gb_per_second"],
            row["median_gb_per_second"],
        ] == pytest.approx([len(values), min(values), max(values), np.median(values)])
    series = p.device_time.bandwidth_series
    assert series.groupby("copy")["gb_per_second"].last().eq(0).all()


def made(tmp_path, *files, **options):
    return profile(tmp_path, *files, **options)


def test_times_below_a_microsecond_stay_what_they_are(tmp_path):
    file = Kineto()
    for i in range(10):
        file.launched("k", 10.0 * i, 10.0 * i + 1.8, 0.4)
    p = made(tmp_path, file)
    assert p.device_time.frame["compute_ms"].iloc[0] == pytest.approx(0.004)
    assert p.device_time.each_launch["delay_us"].tolist() == pytest.approx([0.8] * 10)
    assert p.device_time.kernels["avg_us"].tolist() == pytest.approx([0.4])


def test_waits_drawn_on_streams_are_no_work(tmp_path):
    file = Kineto()
    file.launched("k", 0, 10, 10)
    file.add("Stream Sync", "cuda_sync", 20, 60, pid=0, tid=7, args={"stream": 7, "device": 0})
    file.launched("k", 50, 90, 10)
    whole = made(tmp_path, file).device_time.frame.iloc[0]
    assert (whole["compute_ms"], whole["idle_ms"]) == (0.02, 0.07)


def test_classes_follow_what_a_kernel_is_not_letters_in_its_name(tmp_path):
    file = Kineto()
    names = {
        "triton_poi_fused_dma_0": "compute",
        "triton_red_fused_Memcpy_1": "compute",
        "ncclDevKernel_AllGather_RING_LL(x)": "communication",
        "ncclSymDevKernel_ReduceScatter": "communication",
        "void cross_device_reduce_1stage<half, 8>(x)": "communication",
        "Memset (Device)": "memory",
    }
    for i, name in enumerate(names):
        if name.startswith("Mem"):
            file.copy(name, 100 * i, 10, file.call("cudaMemsetAsync", 100 * i - 5, 2))
        else:
            file.launched(name, 100 * i - 5, 100 * i, 10)
    found = made(tmp_path, file).device_time.kernels.set_index("kernel")["class"].to_dict()
    assert found == names


def test_graphs_are_launches_of_all_their_kernels(tmp_path):
    file = Kineto()
    op = file.op("graph", 0, 100)
    call = file.call("cudaGraphLaunch", 10, 5, op)
    for i in range(4):
        file.kernel(f"k{i}", 20 + 10 * i, 8, call, op)
    p = made(tmp_path, file)
    (row,) = p.device_time.each_launch.to_dict("records")
    assert (row["kernel"], row["kernels"], row["kernel_us"], row["delay_us"]) == ("k0", 4, 32, 5)
    assert p.device_time.queue["max_length"].tolist() == [4]
    # The gaps between its kernels are no fault of the host.
    idle = p.device_time.idle
    assert idle[(idle["stream"] == "")].set_index("category")["idle_ms"].to_dict() == pytest.approx(
        {"host_wait": 0, "kernel_wait": 0.006, "other": 0}
    )


def test_every_stream_with_a_full_queue_is_told(tmp_path):
    file = Kineto()
    for stream in (7, 8):
        for i in range(1100):
            call = file.call("cudaLaunchKernel", 0.01 * i, 0.005)
            file.kernel("k", 100 + 2 * i, 1, call, stream=stream)
    queue = made(tmp_path, file).device_time.queue
    assert len(queue) == 2
    assert (queue["full_ms"] > 0).all()
    assert (queue["max_length"] == 1100).all()


def test_copies_without_a_duration_have_no_bandwidth(tmp_path):
    file = Kineto()
    for i, dur in enumerate((0, 10)):
        file.copy(
            "Memcpy HtoD (Pinned -> Device)",
            100 * i,
            dur,
            file.call("cudaMemcpyAsync", 100 * i - 5, 2),
            bytes=10_000,
        )
    (row,) = made(tmp_path, file).device_time.bandwidth.to_dict("records")
    assert (row["copies"], row["unknown"], row["bytes"]) == (2, 1, 20_000)
    assert row["max_gb_per_second"] == row["gb_per_second"] == pytest.approx(1.0)


def test_copies_of_unknown_size_do_not_count_for_the_rate_of_all(tmp_path):
    file = Kineto()
    for i, facts in enumerate(
        ({"bytes": 10_000, "memory bandwidth (GB/s)": 0.25}, {"memory bandwidth (GB/s)": 5.0})
    ):
        file.copy(
            "Memcpy HtoD (Pinned -> Device)",
            100 * i,
            40,
            file.call("cudaMemcpyAsync", 100 * i - 5, 2),
            **facts,
        )
    file.copy(
        "Memcpy HtoD (Pinned -> Device)",
        300,
        40,
        file.call("cudaMemcpyAsync", 295, 2),
        **{"memory bandwidth (GB/s)": 1e250},
    )
    p = made(tmp_path, file)
    (row,) = p.device_time.bandwidth.to_dict("records")
    assert row["gb_per_second"] == pytest.approx(0.25)
    assert (row["bytes"], row["unknown"], row["median_gb_per_second"]) == (10_000, 0, 5.0)
    # What no link can be is drawn as the most there is.
    assert p.device_time.bandwidth_series["gb_per_second"].tolist() == pytest.approx(
        [0.25, 0, 5, 0, 1e6, 0]
    )


def test_what_the_host_did_while_the_device_waited(tmp_path):
    file = Kineto()
    file.launched("k", 0, 10, 10)
    file.note("enumerate(DataLoader)#_X.__next__", 20, 40)
    op = file.op("aten::mm", 70, 20)
    file.launched("k", 85, 100, 10, op)
    causes = made(tmp_path, file).device_time.idle_causes.set_index("cause")["idle_ms"].to_dict()
    assert causes == pytest.approx(
        {
            "waiting for input": 0.040,
            "in an op": 0.019,
            "in a launch": 0.001,
            "outside any recorded op or call": 0.020,
        }
    )


def test_frames_have_the_columns_that_the_schema_declares(tmp_path):
    file = Kineto()
    file.step(3, 0, 200)
    file.launched("k", 0, 10, 10)
    file.copy(
        "Memcpy HtoD (Pinned -> Device)", 100, 10, file.call("cudaMemcpyAsync", 95, 2), bytes=10
    )
    file.launched("ncclDevKernel_AllReduce(x)", 110, 120, 10)
    p = made(
        tmp_path,
        file,
        file.encode().replace(
            b'"schemaVersion": 1', b'"schemaVersion": 1, "distributedInfo": {"rank": 1}'
        ),
    )
    for name, columns in below("device_time.").items():
        frame = public(p, f"device_time.{name}")
        assert frame.columns.tolist() == [c.name for c in columns], name
        assert len(frame), name
        for column in columns:
            found = str(frame[column.name].dtype)
            assert found == column.dtype or (
                column.dtype == "object" and found in ("str", "object")
            ), (name, column.name, found)


def test_without_a_device_a_sentence_says_so(tmp_path):
    file = Kineto()
    file.op("aten::mm", 0, 10)
    p = made(tmp_path, file)
    assert "CPU" in p.device_time.missing
    assert p.device_time.missing in repr(p.device_time)
    for name in (
        "frame",
        "idle",
        "kernels",
        "queue",
        "launches",
        "bandwidth",
        "collectives",
        "stragglers",
        "critical_path",
    ):
        assert not len(getattr(p.device_time, name)), name
    with pytest.raises(NbprofError, match="CPU"):
        p.device_time.figure()


@pytest.mark.parametrize("name", ["jax/tpu-v6e-inference", "tf-gpu/rtx5000-cnn-batch64"])
def test_xspace_profiles_have_it_too(name):
    p = load_any(real(name))
    frame = p.device_time.frame
    parts = frame[["compute_ms", "communication_ms", "memory_ms", "idle_ms"]]
    np.testing.assert_allclose(parts.sum(axis=1), frame["time_ms"], rtol=1e-9)
    # Of the first step, by hand.
    row = frame[frame["step"].notna()].iloc[0]
    events, activity = p.run.trace.events, p.run.activity
    if name.startswith("tf"):
        event = np.concatenate(
            [activity.kernels.frame()["event"], activity.transfers.frame()["event"]]
        ).astype(np.int64)
        start, end = events.start[event], events.start[event] + events.duration[event]
    else:
        mine = activity.core_spans.frame()[activity.core_spans.frame()["device"] == row["device"]]
        start, end = mine["start"].to_numpy(), mine["end"].to_numpy()
        # Nothing says when a TPU's ops were launched, so nothing is said of waiting for the host.
        assert set(p.device_time.idle["category"]) == {"kernel_wait", "other"}
        assert not len(p.device_time.launches)
    low, high = row["start_ms"] * 1e9, (row["start_ms"] + row["time_ms"]) * 1e9
    cut = [
        (max(a, low), min(b, high))
        for a, b in zip(start.tolist(), end.tolist(), strict=True)
        if b > low and a < high
    ]
    busy = sum(b - a for a, b in union(cut)) / 1e9
    assert row["time_ms"] - row["idle_ms"] == pytest.approx(busy, abs=1e-6)


def test_launches_of_xspace_profiles_are_causes_too():
    p = load_any(real("tf-gpu/rtx5000-cnn-batch64"))
    causes = p.device_time.idle_causes
    waited = p.device_time.idle.set_index(["stream", "category"])["idle_ms"]["", "host_wait"]
    assert causes["idle_ms"].sum() == pytest.approx(waited)
    found = causes.set_index("cause")["idle_ms"]
    # The profile has no table of calls, but a launch for each kernel.
    assert 0.1 * waited < found["in a launch"] < 0.9 * waited


def test_figures_are_drawn(tmp_path):
    file = Kineto()
    file.launched("k", 0, 10, 10)
    file.launched("k", 40, 50, 10)
    p = made(tmp_path, file)
    for what in ("frame", "idle", "queue", "critical_path"):
        assert p.device_time.figure(what) is not None
    with pytest.raises(NbprofError, match="'queue'"):
        p.device_time.figure("nothing")
    with pytest.raises(NbprofError, match="collective"):
        p.device_time.figure("stragglers")


def test_a_wait_that_is_not_known_is_no_0_on_the_card_of_its_bar(tmp_path):
    """No launch was recorded, so nothing is known of waiting for the host."""
    file = Kineto()
    for i in range(3):
        file.kernel("k", 40 * i, 10)
    plot = made(tmp_path, file).device_time.figure("idle")
    (hover,) = (tool for tool in plot.tools if type(tool).__name__ == "HoverTool")
    said = {label: column.partition("{")[0][1:] for label, column in hover.tooltips}
    data = plot.renderers[0].data_source.data
    assert np.isnan(data[said["Host wait"]]).all()
    assert data[said["Other"]].tolist() == pytest.approx([0.06])
    assert all(column.endswith("{custom}") for label, column in hover.tooltips if label)


def test_ranks_are_taken_from_the_file_or_from_its_name(tmp_path):
    file = Kineto()
    file.launched("k", 0, 10, 10)
    p = made(
        tmp_path,
        file,
        file.encode().replace(b'"k"', b'"other"'),
        names=("job_rank-12.json", "worker.json"),
    )
    frame = p.device_time.frame
    ranks = frame[frame["step"].isna()].set_index("host")["rank"]
    assert ranks["job_rank-12"] == 12
    assert pd.isna(ranks["worker"])


def test_no_path_outside_of_it(tmp_path):
    # What is not a name of a step is an error that says which there are.
    file = Kineto()
    file.step(3, 0, 200)
    file.launched("k", 0, 10, 10)
    p = made(tmp_path, file)
    with pytest.raises(NbprofError, match="steps 3"):
        p.device_time.critical_path_of(step=9)
    assert Path(p.path) == tmp_path


def test_calls_for_memory_within_ops_are_told_as_that(tmp_path):
    file = Kineto()
    file.step(1, 0, 120)
    file.launched("k", 1, 10, 10)
    op = file.op("aten::conv", 20, 80)
    file.call("hipFree", 30, 60, op)
    file.launched("k", 95, 100, 10, op)
    p = made(tmp_path, file).device_time
    causes = p.idle_causes.set_index("cause")["idle_ms"].to_dict()
    assert causes["in a call that allocates or frees memory"] == pytest.approx(0.060)
    assert causes["in an op"] == pytest.approx(0.019)
    path = p.critical_path.set_index("kind")
    assert path.loc["allocate", ["name", "op"]].tolist() == ["hipFree", "aten::conv"]
    assert path.loc["allocate", "total_us"] == pytest.approx(60.0)
    assert "mostly in a call that allocates or frees memory" in repr(p)


def test_figures_leave_room_for_the_plot_and_tell_kinds_apart(tmp_path):
    file = Kineto()
    file.step(1, 0, 4000)
    for stream in range(8):
        op = file.op("aten::mm", 100 + 200 * stream, 40)
        file.launched("k" * 90, 120 + 200 * stream, 160 + 200 * stream, 100, op, stream=stream)
    p = made(tmp_path, file).device_time
    queue = p.figure("queue")
    assert len(queue.right[-1].items) == 8
    assert not [one for one in queue.below if one.__class__.__name__ == "Legend"]
    assert {item.label.value for item in queue.right[-1].items} == {
        f"device 0: Stream {stream}" for stream in range(8)
    }
    path = p.figure("critical_path").renderers[0].data_source.data
    assert len(set(path["colour"])) > 1
    assert {"Launch", "Host op"} <= set(path["kind"])
    assert all(len(name) < 70 for name in path["name"])
    assert not [name for name in path["name"] if name.endswith(". host")]


def test_idle_causes_know_what_the_breakdown_of_steps_knows(tmp_path) -> None:
    """Between two kernels TensorFlow's executor runs for 5 ms, launches for 1 ms at its end, and
    before it 2 ms are compute of no op.
    """
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    stated = {"group_id": 1, "kernel_details": "regs:32 grid:4,1,1 block:128,1,1"}
    kernels = [
        gpu.event(name, at * MS, MS, correlation_id=ident, **stated)
        for name, at, ident in (("a", 1, 1), ("b", 12, 2))
    ]
    gpu.line("Stream #7(Compute)", kernels, line_id=7)
    events = [
        host.event("train", 0, 15 * MS, step_num=5, group_id=1),
        host.event("cuLaunchKernel", 0, MS, correlation_id=1, group_id=1),
        host.event("SomethingOfTheRuntime", 3 * MS, 2 * MS, group_id=1),
        host.event("ExecutorState::Process", 6 * MS, 5 * MS, group_id=1),
        host.event("cuLaunchKernel", 10 * MS, MS, correlation_id=2, group_id=1),
    ]
    host.line("python", events, line_id=1)
    (tmp_path / "a.xplane.pb").write_bytes(xspace(gpu, host))
    p = load_any(tmp_path / "a.xplane.pb")
    causes = p.device_time.idle_causes.set_index("cause")["idle_ms"].to_dict()
    assert causes == pytest.approx(
        {
            "preparing launches": 4,
            "outside any recorded op or call": 3,
            "in other host work": 2,
            "in a launch": 1,
        }
    )
    assert p.steps.frame["kernel_launch_ms"].tolist() == [5 + 1]
