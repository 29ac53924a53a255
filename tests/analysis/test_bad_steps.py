"""Steps of recordings in which something is odd: a right answer, or an absent one with a sentence;
never NaN on screen or a made-up 0.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.display.codec import pack, unpack
from nbprof.profiles.load import load
from nbprof.profiles.report.static import static_html
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, gpu_run, xspace

STEPS_LINE = -559038737
DETAILS = "regs:1 static_shared:0 dynamic_shared:0 grid:1,1,1 block:1,1,1"


def host_steps(*spans, name="train", work=True, hostname="host-a", first=0, timestamp_ns=0):
    """Steps at (start, length) in ms on a host, each with one op over its first half."""
    host = PlaneWriter("/host:CPU")
    events = []
    for i, (start, length) in enumerate(spans):
        events.append(host.event(name, start * MS, length * MS, step_num=first + i, _r=1))
        if work:
            events.append(host.event("dense/MatMul:MatMul", start * MS, length * MS // 2))
    host.line("python", events, line_id=1, timestamp_ns=timestamp_ns)
    return xspace(host, hostname=hostname)


def gpu_plane(number, kernels, steps=()):
    """A GPU with kernels and steps at (group, start, end) in ms."""
    gpu = PlaneWriter(f"/device:GPU:{number}")
    events = [
        gpu.event(
            "sgemm",
            a * MS,
            (b - a) * MS,
            group_id=g,
            correlation_id=100 * number + i + 1,
            kernel_details=DETAILS,
        )
        for i, (g, a, b) in enumerate(kernels)
    ]
    gpu.line("Stream #1(Compute)", events, line_id=1)
    if steps:
        gpu.line(
            "Steps",
            [gpu.event(str(g), a * MS, (b - a) * MS, group_id=g) for g, a, b in steps],
            line_id=STEPS_LINE,
        )
    return gpu


def marked_host(steps):
    """Host markers of groups at (group, start, end) in ms."""
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("train", a * MS, (b - a) * MS, group_id=g, step_name=f"train {g}")
            for g, a, b in steps
        ],
        line_id=1,
    )
    return host


def shown(p):
    """The plain and the static report have no NaN in them, and the dashboard's data can be sent."""
    payload = p.payload()
    unpack(pack(payload))
    text = p.text() + static_html(payload)
    return not re.search(r"\b(nan|none|inf)\b", re.sub(r"<[^>]*>", " ", text), re.IGNORECASE)


def whole(steps):
    """The categories that were measured add up to the step time."""
    parts = steps[[f"{c}_ms" for c in CATEGORIES]].fillna(0.0)
    assert parts.sum(axis=1).to_numpy(float) == pytest.approx(
        steps["step_time_ms"].to_numpy(float), abs=1e-9
    )
    assert (parts >= 0).all(axis=None)


def test_no_steps(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("dense/MatMul:MatMul", 0, MS)])
    p = profile(tmp_path, xspace(host))
    assert p.steps.frame["name"].tolist() == ["recording"]
    assert p.overview["step_time_ms"] == pytest.approx(1.0)
    assert not len(p.steps.as_xprof())
    assert "figures are for the whole recording" in str(p.receipt)
    assert shown(p)


def test_no_work(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("python", [])
    p = profile(tmp_path, xspace(host))
    assert not len(p.steps.frame)
    assert p.steps.summary["mean_ms"].isna().all()
    assert [len(f) for f in (p.pods.frame, p.pods.summary, p.steps.as_xprof())] == [0, 0, 0]
    assert p.overview["step_time_ms"] is None
    assert p.overview["verdict"] == "No work recorded"
    assert shown(p)


def test_one_step(tmp_path):
    p = profile(tmp_path, host_steps((0, 10)))
    row = p.steps.summary.set_index("category").loc["step_time"]
    assert (row["mean_ms"], row["min_ms"], row["max_ms"]) == (10.0, 10.0, 10.0)
    assert np.isnan(row["sd_ms"]), "a single step cannot show the spread"
    assert p.overview["step_time_sd_ms"] is None
    assert p.pods.summary["spread_percent"].isna().all()
    assert shown(p)


def test_steps_that_overlap(tmp_path):
    host = PlaneWriter("/host:CPU")
    for line, start in enumerate((0, 5, 8)):
        host.line(
            f"worker {line}",
            [
                host.event("train", start * MS, 10 * MS, step_num=line, _r=1),
                host.event("dense/MatMul:MatMul", start * MS, 4 * MS),
            ],
            line_id=line + 1,
        )
    steps = profile(tmp_path, xspace(host)).steps.frame
    assert steps["step_time_ms"].tolist() == [10.0] * 3
    assert steps["host_compute_ms"].tolist() == [4.0] * 3, "each has its own work"
    whole(steps)


def test_a_step_without_device_activity(tmp_path):
    spans = [(g, 10 * g, 10 * g + 10) for g in range(4)]
    kernels = [(g, a + 2, a + 6) for g, a, _ in spans if g != 2]
    device = [(g, a, b) for g, a, b in kernels]
    p = profile(tmp_path, xspace(gpu_plane(0, kernels, device), marked_host(spans)))
    steps = p.steps.frame
    assert steps["name"].tolist() == ["train 0", "train 1", "train 2", "train 3"]
    assert steps["device_compute_ms"].tolist() == [4.0, 4.0, 0.0, 4.0], (
        "it was measured, and there was none"
    )
    assert steps["step_time_ms"].tolist() == [10.0] * 4
    assert p.steps.as_xprof()["step"].tolist() == [0, 1, 3]
    whole(steps)


def test_an_empty_device_plane(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(4):
        events.append(host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1))
        events.append(host.event("ExecutorState::Process", i * 10 * MS, 8 * MS, id=i))
    host.line("python", events)
    p = profile(tmp_path, xspace(PlaneWriter("/device:GPU:0"), host))
    steps = p.steps.frame
    assert len(steps) == 4
    assert steps["host_compute_ms"].tolist() == [8.0] * 4, (
        "nothing was launched, so the executor ran ops of the host"
    )
    assert steps[["device_compute_ms", "kernel_launch_ms", "output_ms"]].isna().all(axis=None)
    assert "no kernels with launch details were recorded" in p.run.missing["kernels"]
    assert p.overview["device_busy_percent"] is None
    assert shown(p)


def test_two_devices_with_unequal_steps(tmp_path):
    first, second = [(0, 0, 10), (1, 10, 20)], [(0, 0, 6), (1, 10, 24), (2, 24, 30)]
    p = profile(tmp_path, xspace(gpu_plane(0, first, first), gpu_plane(1, second, second)))
    steps = p.steps.frame
    # The GPUs of a host are united: a step lasts as long as on the device where it is longest.
    assert steps["step_time_ms"].tolist() == [10.0, 14.0, 6.0]
    assert steps["device_compute_ms"].tolist() == [10.0, 14.0, 6.0]
    whole(steps)


def test_steps_without_time(tmp_path):
    p = profile(tmp_path, host_steps((0, 10), (12, 0), (14, 10)))
    steps = p.steps.frame
    assert steps["step_time_ms"].tolist() == [10.0, 10.0]
    assert steps["step"].tolist() == [0, 2]
    assert "1 marked step has no time: not shown." in str(p.receipt)
    only = profile(tmp_path, host_steps((0, 0)), "host-b")
    assert not len(only.steps.frame)
    assert only.overview["step_time_ms"] is None
    assert shown(only)


def test_a_clock_that_runs_backwards(tmp_path):
    """The thread that comes second in the file began first, and a worker's clock stands before the
    start of the profile.
    """
    host = PlaneWriter("/host:CPU")
    late = [
        host.event("train", 0, 10 * MS, step_num=1, _r=1),
        host.event("dense/MatMul:MatMul", 0, 5 * MS),
    ]
    early = [
        host.event("train", 0, 10 * MS, step_num=0, _r=1),
        host.event("dense/MatMul:MatMul", 0, 5 * MS),
    ]
    host.line("late", late, line_id=1, timestamp_ns=20_000_000)
    host.line("early", early, line_id=2, timestamp_ns=0)
    host.line("wrong", [host.event("sleep", -5 * MS, MS)], line_id=3, timestamp_ns=1)
    p = profile(tmp_path, xspace(host))
    steps = p.steps.frame
    assert steps["step"].tolist() == [0, 1]
    assert steps["start_ms"].diff().iloc[1] == 20.0
    whole(steps)
    assert shown(p)


def test_events_of_a_line_in_any_order(tmp_path):
    host = PlaneWriter("/host:CPU")
    marks = [host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1) for i in range(4)]
    ops = [host.event("dense/MatMul:MatMul", i * 10 * MS, 5 * MS) for i in range(4)]
    host.line("python", [*ops[::-1], *marks[::-1]])
    steps = profile(tmp_path, xspace(host)).steps.frame
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["host_compute_ms"].tolist() == [5.0] * 4


def hosts(tmp_path, *recordings):
    for name, data in recordings:
        (tmp_path / f"{name}.xplane.pb").write_bytes(data)
    return load(tmp_path)


def spans(count, start=0, length=10):
    return [(start + i * length, length) for i in range(count)]


def test_hosts_that_began_at_different_steps_are_laid_on_one_another(tmp_path):
    p = hosts(
        tmp_path,
        ("a", host_steps(*spans(5, 0), hostname="a", first=100)),
        ("b", host_steps(*[(s + 1, 12) for s, _ in spans(4, 10)], hostname="b", first=101)),
    )
    pods, summary = p.pods.frame, p.pods.summary
    assert summary["step"].tolist() == [101, 102, 103, 104]
    assert summary["workers"].tolist() == [2] * 4
    assert summary["slowest"].tolist() == ["b"] * 4
    assert (summary["slowest_ms"].tolist(), summary["fastest_ms"].tolist()) == (
        [12.0] * 4,
        [10.0] * 4,
    )
    assert summary["spread_percent"].tolist() == pytest.approx([100 * 2 / 12] * 4)
    assert pods["bottleneck"].tolist() == ["host_compute"] * 8
    assert "1 step is excluded from the comparison of hosts: not all of them recorded it." in str(
        p.receipt
    )


def test_hosts_with_disjoint_steps(tmp_path):
    p = hosts(
        tmp_path,
        ("a", host_steps(*spans(4, 0), hostname="a", first=0)),
        ("b", host_steps(*spans(4, 1000), hostname="b", first=50)),
    )
    assert len(p.steps.frame) == 8
    assert p.pods.frame["worker"].unique().tolist() == ["a"]
    assert "steps_do_not_match" in set(p.receipt.notes["key"])
    assert p.pods.summary["spread_percent"].isna().all()
    assert shown(p)


def test_hosts_whose_clocks_differ_are_compared_by_the_numbers_of_their_steps(tmp_path):
    p = hosts(
        tmp_path,
        ("a", host_steps(*spans(4, 0), hostname="a", first=7)),
        ("b", host_steps(*spans(4, 1000), hostname="b", first=8)),
    )
    assert p.pods.summary["step"].tolist() == [8, 9, 10]
    assert p.pods.summary["workers"].tolist() == [2] * 3
    assert "steps_matched_by_number" in set(p.receipt.notes["key"])


def test_a_host_that_only_coordinates_is_no_worker(tmp_path):
    p = hosts(
        tmp_path,
        ("a", host_steps(*spans(4), hostname="a")),
        ("b", gpu_run().replace(b"host-a", b"host-b")),
    )
    steps = p.steps.frame
    assert steps.loc[steps["host"] == "a", "device_compute_ms"].isna().all(), "not measured there"
    assert p.pods.frame["worker"].unique().tolist() == ["host-b"]
    assert "uncompared_hosts" in set(p.receipt.notes["key"])
    mean = p.steps.summary.set_index("category")["mean_ms"]
    assert not np.isnan(mean["device_compute"])


def test_hosts_with_and_without_stored_groups(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(3):
        events.append(host.event("train", i * 10 * MS, 10 * MS, step_num=40 + i, group_id=40 + i))
        events.append(host.event("dense/MatMul:MatMul", i * 10 * MS, 5 * MS, group_id=40 + i))
    host.line("python", events, line_id=1)
    p = hosts(
        tmp_path,
        ("a", xspace(host, hostname="a")),
        ("b", host_steps(*spans(3), hostname="b", first=40)),
    )
    steps = p.steps.frame
    assert steps.groupby("host").size().to_dict() == {"a": 3, "b": 3}
    assert steps["host_compute_ms"].tolist() == [5.0] * 6
    assert set(steps.loc[steps["host"] == "b", "name"]) == {"train 40", "train 41", "train 42"}
    assert p.pods.summary["workers"].tolist() == [2] * 3


def test_a_group_in_several_stretches_of_a_gpu_is_as_long_as_the_longest(tmp_path):
    kernels = [(0, 0, 4), (1, 5, 6), (0, 7, 9), (1, 10, 18)]
    p = profile(tmp_path, xspace(gpu_plane(0, kernels)))
    assert sorted(p.run.activity.markers.frame()["group"].tolist()) == [0, 0, 1, 1]
    steps = p.steps.frame
    assert steps["step_time_ms"].tolist() == [4.0, 8.0]
    assert steps["device_compute_ms"].tolist() == [4.0, 8.0], (
        "what lies outside of the step time counts for none"
    )


def test_events_of_a_gpu_without_a_group_follow_the_one_before(tmp_path):
    gpu = PlaneWriter("/device:GPU:0")
    events = [gpu.event("sgemm", 0, 2 * MS, group_id=3, correlation_id=1, kernel_details=DETAILS)]
    events.append(gpu.event("MemcpyDToH", 2 * MS, MS, correlation_id=2))
    gpu.line("Stream #1(Compute)", events, line_id=1)
    steps = profile(tmp_path, xspace(gpu)).steps.frame
    assert steps["step_time_ms"].tolist() == [3.0]
    assert (steps["device_compute_ms"].tolist(), steps["output_ms"].tolist()) == ([2.0], [1.0])
    assert steps[["host_compute_ms", "kernel_launch_ms"]].isna().all(axis=None), (
        "no host was recorded"
    )
