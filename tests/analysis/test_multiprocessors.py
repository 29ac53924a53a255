"""GPU utilisation and the estimate of SM efficiency, against sums over a grid of instants."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.analysis.multiprocessors import sweep
from nbprof.profiles.load import load
from nbprof.schema import frames
from tests.support.kineto import Kineto, profile
from tests.support.profiles import real


def gpu(tmp_path, sms=10):
    """One step of 100 µs: 5 blocks for 20 µs, with 8 more for the second 10 of these; 40 blocks for
    10 µs, half of it after the step.
    """
    k = Kineto(
        deviceProperties=[
            {
                "id": 0,
                "name": "GPU",
                **({"numSms": sms} if sms else {}),
                "computeMajor": 7,
                "computeMinor": 0,
            }
        ]
    )
    k.step(1, 0, 100)
    for stream, name, at, dur, grid, occupancy in (
        (7, "a", 20, 20, [5, 1, 1], 50),
        (8, "volta_fp16_s884gemm", 30, 10, [2, 2, 2], 20),
        (7, "c", 95, 10, [40, 1, 1], 100),
    ):
        op = k.op(f"aten::{name}", at - 15, 5)
        k.launched(
            name,
            at - 14,
            at,
            dur,
            op=op,
            stream=stream,
            grid=grid,
            **{"est. achieved occupancy %": occupancy},
        )
    return profile(tmp_path, k)


def test_a_gpu_of_ten_multiprocessors(tmp_path):
    p = gpu(tmp_path)
    row = p.kernels.devices.iloc[0]
    # The step ends with its last kernel.
    assert row["window_ms"] == pytest.approx(0.105)
    assert row["utilization_percent"] == pytest.approx(100 * 30 / 105)
    assert row["sm_efficiency_percent"] == pytest.approx(100 * (0.5 * 10 + 1 * 10 + 1 * 10) / 105)
    assert row["occupancy_percent"] == pytest.approx((50 * 20 + 20 * 10 + 100 * 10) / 40)
    assert row["tensor_core_percent"] == pytest.approx(25)
    assert (row["device"], row["name"], row["kernels"]) == (0, "GPU", 3)
    table = p.kernels.devices
    assert {c: str(t) for c, t in table.dtypes.items()} == frames.dtypes("kernels.devices")


def test_without_the_number_of_multiprocessors_it_is_not_known(tmp_path):
    row = gpu(tmp_path, sms=0).kernels.devices.iloc[0]
    assert np.isnan(row["sm_efficiency_percent"])
    assert row["utilization_percent"] == pytest.approx(100 * 30 / 105)


def test_the_cpu_has_none(tmp_path):
    k = Kineto()
    k.step(1, 0, 100)
    k.op("aten::mm", 10, 20)
    assert profile(tmp_path, k).kernels.devices.empty


def test_the_sweep_is_what_a_look_at_each_instant_gives():
    random = np.random.default_rng(5)
    start = random.integers(0, 300, 60)
    end, weight = start + random.integers(1, 40, 60), random.random(60)
    busy, working = sweep(start, end, weight)
    level = np.zeros(400)
    for a, b, w in zip(start, end, weight, strict=True):
        level[a:b] += w
    assert busy == np.count_nonzero(level)
    assert working == pytest.approx(np.minimum(level, 1).sum())


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("kineto/v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz", 20, 60),
        ("kineto/h100-bert/h100_bert.pt.trace.json.gz", 0, 60),
    ],
)
def test_real_gpus(name, low, high):
    p = load(real(name))
    row = p.kernels.devices.iloc[0]
    assert low < row["sm_efficiency_percent"] <= row["utilization_percent"] < 100
    assert low < row["utilization_percent"] < high
