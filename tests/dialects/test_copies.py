"""Copies and fills of device memory, by all the names that recorders give them."""

from __future__ import annotations

import pytest

from nbprof.activity import copies
from nbprof.profiles.load import load
from tests.support import kineto
from tests.support.build import profile
from tests.support.kineto import Kineto
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace

NAMES = {
    "MemcpyHToD": "H2D", "MemcpyH2D": "H2D", "Memcpy HtoD (Pageable -> Device)": "H2D", "CopyHostToDevice": "H2D",
    "MEMORY_COPY_HOST_TO_DEVICE": "H2D", "MemcpyDToH": "D2H", "CopyDeviceToHost": "D2H", "MEMORY_COPY_DEVICE_TO_HOST": "D2H",
    "MemcpyDToD": "D2D", "CopyDeviceToDevice": "D2D", "MEMORY_COPY_DEVICE_TO_DEVICE": "D2D", "MemcpyPtoP": "P2P", "Memset (Device)": "memset",
    "FillBuffer": "memset", "CopyBuffer": "other", "Memcpy": "other", "copy_kernel": "", "memory": "", "fill": "", "": "",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_names(name, kind):
    assert copies.kind(name) == kind
    assert not copies.blit(name)


def test_copies_of_rocm_are_no_compute(tmp_path):
    """XProf counts them as compute: there they have other names."""
    gpu = PlaneWriter(
        "/device:GPU:0", {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4}
    )
    detail = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1"

    def work(name, at, **stats):
        return gpu.event(name, at * MS, MS, correlation_id=at + 1, group_id=1, **stats)

    copied = {"memcpy_details": "kind:Unknown size:4096 dest:0 async:1"}
    gpu.line(
        "Stream #1(Kernel)",
        [
            work("Cijk_gemm", 3, kernel_details=detail),
            work("__amd_rocclr_copyBuffer.kd", 4, kernel_details=detail),
        ],
        line_id=1,
    )
    gpu.line(
        "Stream #8(MemcpyOther)",
        [
            work("CopyHostToDevice", 0, **copied),
            work("CopyDeviceToDevice", 1, **copied),
            work("CopyDeviceToHost", 2, **copied),
        ],
        line_id=8,
    )
    gpu.line(
        "Steps", [gpu.event("1", 0, 5 * MS, group_id=1, step_name="train 1")], line_id=-559038737
    )
    p = profile(tmp_path, xspace(gpu))
    step = p.steps.frame.iloc[0]
    parts = ["device_compute_ms", "device_to_device_ms", "input_ms", "output_ms"]
    assert step[parts].tolist() == [1.0, 2.0, 1.0, 1.0]
    moved = ["host_to_device_bytes", "device_to_host_bytes", "device_to_device_bytes"]
    assert step[moved].tolist() == [4096, 4096, 4096]
    time = p.device_time.frame.iloc[0]
    assert time[["compute_ms", "memory_ms"]].tolist() == [1.0, 4.0]
    assert p.steps.as_xprof()["device_compute_ms"].tolist() == [5.0]


def test_copies_of_rocm_in_kineto(tmp_path):
    k = Kineto()
    k.add("ProfilerStep#1", "user_annotation", 0, 100)
    for at, name in enumerate(("CopyHostToDevice", "CopyDeviceToHost")):
        k.copy(name, 10 + 20 * at, 10, k.call("hipMemcpyAsync", 5 + 20 * at, 2))
    k.kernel("__amd_rocclr_copyBuffer", 60, 10, k.call("hipLaunchKernel", 55, 2))
    p = kineto.profile(tmp_path, k)
    step = p.steps.frame.iloc[0]
    assert step[
        ["output_ms", "device_to_device_ms", "device_compute_ms"]
    ].tolist() == pytest.approx([0.01, 0.01, 0.0])
    assert p.run.activity.texts.values[p.run.activity.transfers.frame()["kind"]].tolist() == [
        "H2D",
        "D2H",
    ]


def test_copies_between_eight_gpus_of_amd():
    frame = load(real("findings/D8-copies/jax_conv_minimal_legacy")).steps.frame
    assert frame["device_to_device_ms"].gt(0.1).all()
    assert frame["device_to_device_bytes"].gt(0).all()
    assert frame["device_compute_ms"].tolist() == pytest.approx(
        [0.832749, 0.686693, 0.686414, 0.690459, 0.690178], abs=1e-5
    )
