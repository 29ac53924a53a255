"""Devices of one process: which of them ran anything, and whether they receive their data at the
same time.
"""

from __future__ import annotations

import pytest

from nbprof.analysis.advice import devices_used
from tests.support import kineto
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace


def run_of(folder, *, devices, planes):
    """A profile of some devices, of which the first ones ran a kernel in each of 12 steps of 10
    ms.
    """
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [host.event("train", 10 * i * MS, 10 * MS, step_num=i, _r=1) for i in range(12)],
        line_id=1,
    )
    gpus = [PlaneWriter(f"/device:GPU:{i}") for i in range(planes)]
    kernel = {
        "kernel_details": "regs:32 static_shared:0 dynamic_shared:0 grid:8,1,1 block:64,1,1 occ_pct:50"
    }
    for gpu in gpus[:devices]:
        gpu.line(
            "Stream #1(Compute)",
            [gpu.event("gemm", (10 * i + 8) * MS, 2 * MS, **kernel) for i in range(12)],
            line_id=1,
        )
    return profile(folder, xspace(host, *gpus))


def copies_of(folder, copies):
    """PyTorch's steps of 10 ms, each with copies to devices for (start, end) in ms, for which the
    host waits, and a kernel.
    """
    k = kineto.Kineto()
    for i in range(12):
        at = 10_000.0 * i
        k.step(i, at, 10_000.0)
        for device, (start, end) in enumerate(copies):
            begin, length = at + 1000 * start, 1000.0 * (end - start)
            number = k.call("cudaMemcpyAsync", begin, length)
            k.copy(
                "Memcpy HtoD (Pageable -> Device)",
                begin,
                length,
                number,
                device=device,
                bytes=1_000_000,
            )
        k.launched("gemm", at + 7000, at + 8000, 1500.0)
    return kineto.profile(folder, k)


def test_copies_one_after_the_other(tmp_path):
    p = copies_of(tmp_path, [(0, 3), (3, 6)])
    found = devices_used.in_turn(p.run.activity, p.run.steps)
    assert (found.devices, found.ms, found.overlap) == (2, pytest.approx(6.0), pytest.approx(0.0))
    row = p.advice.set_index("rule").loc["copied_in_turn"]
    assert row["gain_ms_per_step"] == pytest.approx(3.0)
    assert "**2** devices one after the other: **6.00 ms**" in row["evidence"]


@pytest.mark.parametrize("copies", [[(0, 6), (0, 6)], [(0, 6)]])
def test_copies_at_the_same_time_or_to_one_device(tmp_path, copies):
    p = copies_of(tmp_path, copies)
    found = devices_used.in_turn(p.run.activity, p.run.steps)
    assert found is None or found.overlap == pytest.approx(0.5)
    assert "copied_in_turn" not in p.advice["rule"].tolist()


def test_devices_that_ran_nothing(tmp_path):
    p = run_of(tmp_path, devices=2, planes=4)
    assert devices_used.idle(p.run.activity) == devices_used.Idle("GPU", 4, 2)
    assert "**2** of the **4** GPUs" in p.advice.set_index("rule").loc["idle_devices", "evidence"]


@pytest.mark.parametrize("devices", [1, 2])
def test_no_device_is_idle_where_all_run(tmp_path, devices):
    p = run_of(tmp_path, devices=devices, planes=devices)
    assert devices_used.idle(p.run.activity) is None
