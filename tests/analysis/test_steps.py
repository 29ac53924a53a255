from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.steps.steps import summary
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run, xspace


def test_a_cpu_step_is_input_and_host_compute(tmp_path):
    steps = profile(tmp_path, training_run(6)).steps.frame
    assert steps["step"].tolist() == list(range(6))
    assert steps["name"].tolist() == [f"train {i}" for i in range(6)]
    assert steps["step_time_ms"].tolist() == [10.0] * 6
    assert steps["input_ms"].tolist() == [4.0] * 6
    assert steps["host_compute_ms"].tolist() == [5.0] * 6
    assert steps["other_ms"].tolist() == [1.0] * 6
    assert steps["device_compute_ms"].isna().all(), "no device: not measured, not 0"


def test_a_gpu_step_has_every_part(tmp_path):
    p = profile(tmp_path, gpu_run())
    step = p.steps.frame.iloc[0]
    assert (step["name"], step["step"]) == ("train 5", 5)
    assert step["step_time_ms"] == 10.0, "the host marker includes the device's"
    parts = {c: step[f"{c}_ms"] for c in CATEGORIES if step[f"{c}_ms"]}
    assert parts == pytest.approx(
        {
            "input": 1.0,
            "kernel_launch": 2.0,
            "device_compute": 4.0,
            "output": 1.0,
            "other": 2.0,
            "compile": np.nan,
        },
        nan_ok=True,
    )
    assert p.overview["compute_16bit_percent"] == pytest.approx(50.0)
    assert p.overview["device_busy_percent"] == pytest.approx(60.0), (
        "copies keep a device busy as well"
    )


@pytest.mark.parametrize("make", [lambda: training_run(9), gpu_run])
def test_the_parts_of_a_step_add_up(tmp_path, make):
    steps = profile(tmp_path, make()).steps.frame
    total = steps[[f"{c}_ms" for c in CATEGORIES]].sum(axis=1)
    assert total.to_numpy() == pytest.approx(steps["step_time_ms"].to_numpy(), abs=1e-9)


def test_the_summary_uses_the_sample_deviation():
    steps = pd.DataFrame(
        {
            "step_time_ms": [10.0, 12.0, 14.0],
            "warmup": False,
            "counted": True,
            **{f"{c}_ms": 0.0 for c in CATEGORIES},
        }
    )
    row = summary(steps).iloc[0]
    assert (row["mean_ms"], row["sd_ms"], row["min_ms"], row["max_ms"]) == (12.0, 2.0, 10.0, 14.0)
    assert np.isnan(summary(steps.head(1)).iloc[0]["sd_ms"]), (
        "one step has no spread: not measured, not 0"
    )


def test_a_long_first_step_is_kept_but_not_averaged():
    from nbprof.analysis.steps.warmup import _warmup

    no = np.zeros(6, bool)
    assert _warmup(np.array([900.0, 10, 11, 9, 10, 10]), no, no).tolist() == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]
    assert not _warmup(np.array([10.0, 900, 11, 9, 10, 10]), no, no).any()
    assert not _warmup(np.array([30.0, 10, 11, 9, 10, 10]), no, no).any()


@pytest.mark.parametrize(
    ("traced", "warm"),
    [
        ((0,), (0,)),
        ((0, 10), (0, 10)),
        ((0, 10, 20), (0, 10, 20)),
        ((10,), (10,)),
        # A function that is made anew every few steps, or in each of many epochs.
        ((0, 10, 12), (0,)),
        ((0, 6, 12, 18), (0,)),
        # What follows says nothing of the last ones.
        ((0, 27), (0,)),
    ],
)
def test_the_first_step_of_a_second_training_warms_up(traced, warm):
    from nbprof.analysis.steps.warmup import _warmup

    traces = np.isin(np.arange(30), traced)
    assert np.flatnonzero(
        _warmup(np.where(traces, 900.0, 10.0), np.zeros(30, bool), traces)
    ).tolist() == list(warm)
    assert not _warmup(np.where(traces, 30.0, 10.0), np.zeros(30, bool), traces).any(), (
        "no step takes far longer"
    )


@pytest.mark.parametrize("size", ["size", "num_bytes"])
def test_bytes_of_copies_count_for_their_step(tmp_path, size):
    gpu = PlaneWriter("/device:GPU:0")
    copies = [
        ("MemcpyHToD", 0, 100),
        ("MemcpyH2D", 0, 28),
        ("MemcpyDToH", 0, 7),
        ("MemcpyDToD", 1, 5),
        ("MemcpyHToD", 1, 64),
    ]
    events = [
        gpu.event(
            name,
            (10 * g + i) * MS,
            MS,
            group_id=g,
            correlation_id=i + 1,
            memcpy_details=f"kind_src:a kind_dst:b {size}:{n} dest:0 async:1",
        )
        for i, (name, g, n) in enumerate(copies)
    ]
    kernels = [
        gpu.event("sgemm", (10 * g + 6) * MS, MS, group_id=g, correlation_id=90 + g) for g in (0, 1)
    ]
    gpu.line("Stream #1(Compute)", [*events, *kernels], line_id=1)
    steps = profile(tmp_path, xspace(gpu)).steps.frame
    assert steps["host_to_device_bytes"].tolist() == [128, 64]
    assert steps["device_to_host_bytes"].tolist() == [7, 0]
    assert steps["device_to_device_bytes"].tolist() == [0, 5]


def test_without_known_sizes_there_are_no_columns_of_bytes(tmp_path):
    assert not [c for c in profile(tmp_path, gpu_run()).steps.frame.columns if c.endswith("_bytes")]
