"""Held against what TensorFlow 2.3/2.4 itself wrote beside real GPU profiles (the tools that the
TensorFlow guide describes).
"""

from __future__ import annotations

import pytest

from nbprof.profiles.load import load
from tests.support.profiles import real

OPS = {
    "rtx5000-cnn-batch8": (90, 73, 66921.078, 536140.665),
    "rtx5000-cnn-batch64": (172, 152, 74889.265, 400056.408),
    "rtx5000-cnn-batch512": (173, None, 147717.594, 3007098.918),
    "t4-one-step": (132, None, 4841.779, None),
}
KERNELS = {
    "rtx5000-cnn-batch8": (100, 2101, 10645.449),
    "rtx5000-cnn-batch64": (176, 3676, 30802.289),
    "rtx5000-cnn-batch512": (181, 3781, 110400.339),
    "t4-one-step": (147, 148, 6035.734),
}
# Of equal peaks the step is that of the one whose time is shown; the tool of that time took the
# step of the last.
MEMORY = {
    "rtx5000-cnn-batch8": (1303, 6118656, 60028672, 6, 0.000122056),
    "rtx5000-cnn-batch64": (2650, 12383488, 45504512, 16, 0.000255615),
    "rtx5000-cnn-batch512": (2710, 80176384, 110070016, 18, 0.000867016),
}
INPUT = {
    "rtx5000-cnn-batch8": 941.631,
    "rtx5000-cnn-batch64": 1435.612,
    "rtx5000-cnn-batch512": 3017.349,
    "t4-one-step": 132.654,
}


def profile(name):
    return load(real(f"tf-gpu/{name}"))


@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    rows, device, device_idle, host_idle = OPS[name]
    table = profile(name).ops.with_idle
    assert len(table) == rows
    if device:
        assert ((table["where"] == "device") & (table["op"] != "IDLE")).sum() == device
    idle = table[table["op"] == "IDLE"].set_index("where")["self_us"]
    assert idle["device"] == pytest.approx(device_idle, abs=1e-3)
    if host_idle:
        assert idle["host"] == pytest.approx(host_idle, abs=1e-3)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    rows, launches, total = KERNELS[name]
    table = profile(name).kernels.frame
    assert table["occurrences"].sum() == launches
    assert table["total_us"].sum() == pytest.approx(total, abs=1e-3)
    # The tools of that time could not read grid and block, so their rows are kernel x op.
    assert table.groupby(["kernel", "op"]).ngroups == rows


@pytest.mark.parametrize("name", MEMORY)
def test_memory(name):
    events, peak, lifetime, step, fragmentation = MEMORY[name]
    row = profile(name).run.memory_summary.set_index("memory_id").loc["GPU_0_bfc"]
    assert (row["allocations"], row["deallocations"]) == (events, events)
    assert (row["peak_bytes"], row["lifetime_peak_bytes"], row["peak_group"]) == (
        peak,
        lifetime,
        step,
    )
    assert row["peak_fragmentation"] == pytest.approx(fragmentation, abs=1e-9)


@pytest.mark.parametrize("name", INPUT)
def test_input_pipeline(name):
    table = profile(name).input_pipeline.categories.set_index("category")
    assert table.loc["preprocessing", "time_ms"] * 1000 == pytest.approx(INPUT[name], abs=1e-3)
