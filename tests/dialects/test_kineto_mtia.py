"""Work of MTIA devices: kernels and copies, as of any other accelerator."""

from __future__ import annotations

import pytest

from tests.support.kineto import MAIN, Kineto, load, profile
from tests.support.profiles import real

DEVICE, STREAM, DMA = 3, 4, 801


def training() -> Kineto:
    """Two steps of 100 µs: a copy to the device, a kernel of 50 µs with a copy inside, and one back."""
    k = Kineto()
    k.named(DEVICE, "MTIA 3", STREAM, "Stream 1 FW")
    k.named(DEVICE, tid=DMA, thread="DMA_REQUEST")
    for i in range(2):
        at = 100.0 * i
        k.step(i, at, 100)
        op = k.op("aten::mm", at + 5, 20)
        ident = 18 + i
        call = {"correlation": ident}
        k.add("runFunction - job_prep_and_submit_for_execution", "mtia_runtime", at + 8, 10, tid=MAIN, args=call)
        assert op
        for name, begin, length, tid, args in (
            ("dma_request", 6, 4, STREAM, {"stream": 1, "direction": "HOST_TO_DEVICE", "size": 4096}),
            ("fc-dtype_Float", 20, 50, STREAM, {"stream": 1, **call}),
            ("dma_request", 65, 8, STREAM, {"stream": 1, "direction": "HOST_TO_DEVICE", "size": 512}),
            ("dma_request", 75, 5, DMA, {"direction": "DEVICE_TO_HOST", "size": 64}),
        ):
            k.add(name, "mtia_ccp_events", at + begin, length, pid=DEVICE, tid=tid, args=args)
    return k


def test_its_kernels_and_copies_are_work_of_a_device(tmp_path):
    p = profile(tmp_path, training())
    assert p.devices[["kind", "name", "device"]].values.tolist() == [["MTIA", "MTIA", 3]]
    lanes = p.trace.lanes
    on_device = lanes[lanes["kind"] == "device"]
    assert on_device[["process", "thread"]].values.tolist() == [["MTIA 3", "Stream 1 FW"], ["MTIA 3", "DMA_REQUEST"]]
    steps = p.steps.frame
    assert steps["device_compute_ms"].tolist() == pytest.approx([0.050] * 2)
    assert steps["output_ms"].tolist() == pytest.approx([0.005] * 2)
    # What a kernel runs at the same time counts as the kernel's.
    assert steps["input_ms"].tolist() == pytest.approx([0.005] * 2)
    assert steps["kernel_launch_ms"].tolist() == pytest.approx([0.010] * 2)
    assert steps["host_to_device_bytes"].tolist() == [4608] * 2


def test_its_kernels_are_of_their_ops(tmp_path):
    p = profile(tmp_path, training())
    kernel = p.kernels.frame.iloc[0]
    assert (kernel["kernel"], kernel["op"], kernel["occurrences"]) == ("fc-dtype_Float", "aten::mm", 2)
    copies = p.device_time.bandwidth.set_index("copy")["copies"]
    assert copies.to_dict() == {"host to device": 4, "device to host": 2}


def test_nothing_is_said_that_only_holds_for_gpus(tmp_path):
    k = training()
    k.note("gloo:barrier", 90, 2)
    p = profile(tmp_path, k)
    assert p.overview["device_kind"] == "MTIA"
    assert p.kernels.frame["uses_tensor_core"].isna().all()
    assert not p.kernels.frame["op_tensor_core_eligible"].any()
    assert not set(p.advice["rule"]) & {"tensor_cores", "mixed_precision", "gloo"}
    receipt = str(p.receipt)
    for wrong in ("no launch in this profile", "CPU only", "before the one before"):
        assert wrong not in receipt
    assert "6 copies of MTIA devices state no launch: each belongs to the step in which it started." in receipt
    assert p.payload()["kernels"]["chip"] == "MTIA"


def test_a_real_recording():
    p = load(real("findings/D3-mtia/mtia_rank_0.json.gz"))
    assert p.devices["kind"].tolist() == ["MTIA"]
    assert (len(p.run.activity.kernels), len(p.run.activity.transfers)) == (3453, 22361)
    assert p.steps.frame["device_compute_ms"].tolist() == pytest.approx([7309.06], abs=0.01)
    assert "CPU only" not in str(p.receipt)
