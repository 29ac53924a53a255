"""Work of MTIA devices: kernels and copies, as of any other accelerator."""

from __future__ import annotations

import pytest

from tests.support.kineto import MAIN, Kineto, load, profile
from tests.support.profiles import real

DEVICE, STREAM, DMA = 3, 4, 801


def training() -> Kineto:
    """Two steps of 100 µs: a copy to the device, a kernel of 50 µs with a copy inside, and one
    back.
    """
    k = Kineto()
    k.named(DEVICE, "MTIA 3", STREAM, "Stream 1 FW")
    k.named(DEVICE, tid=DMA, thread="DMA_REQUEST")
    for i in range(2):
        at = 100.0 * i
        k.step(i, at, 100)
        op = k.op("aten::mm", at + 5, 20)
        ident = 18 + i
        call = {"correlation": ident}
        k.add(
            "runFunction - job_prep_and_submit_for_execution",
            "mtia_runtime",
            at + 8,
            10,
            tid=MAIN,
            args=call,
        )
        assert op
        for name, begin, length, tid, args in (
            (
                "dma_request",
                6,
                4,
                STREAM,
                {"stream": 1, "direction": "HOST_TO_DEVICE", "size": 4096},
            ),
            ("fc-dtype_Float", 20, 50, STREAM, {"stream": 1, **call}),
            (
                "dma_request",
                65,
                8,
                STREAM,
                {"stream": 1, "direction": "HOST_TO_DEVICE", "size": 512},
            ),
            ("dma_request", 75, 5, DMA, {"direction": "DEVICE_TO_HOST", "size": 64}),
        ):
            k.add(name, "mtia_ccp_events", at + begin, length, pid=DEVICE, tid=tid, args=args)
    return k


def test_its_kernels_and_copies_are_work_of_a_device(tmp_path):
    p = profile(tmp_path, training())
    assert p.devices[["kind", "name", "device"]].values.tolist() == [["MTIA", "MTIA", 3]]
    lanes = p.trace.lanes
    on_device = lanes[lanes["kind"] == "device"]
    assert on_device[["process", "thread"]].values.tolist() == [
        ["MTIA 3", "Stream 1 FW"],
        ["MTIA 3", "DMA_REQUEST"],
    ]
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
    assert (kernel["kernel"], kernel["op"], kernel["occurrences"]) == (
        "fc-dtype_Float",
        "aten::mm",
        2,
    )
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
    assert not {"unlaunched_work", "overlapping_events"} & set(p.receipt.notes["key"])
    assert (
        "6 copies of MTIA devices state no launch: each belongs to the step in which it started."
        in receipt
    )
    assert p.payload()["kernels"]["chip"] == "MTIA"


def test_a_real_recording():
    p = load(real("findings/D3-mtia/mtia_rank_0.json.gz"))
    assert p.devices["kind"].tolist() == ["MTIA"]
    assert (len(p.run.activity.kernels), len(p.run.activity.transfers)) == (3453, 22361)
    assert p.steps.frame["device_compute_ms"].tolist() == pytest.approx([7309.06], abs=0.01)
    assert "CPU only" not in str(p.receipt)


def other_vendor(label: str = "HPU 0", **args: int) -> Kineto:
    """A device of a vendor that no list has: 3 kernels, a copy, a fill and a note in categories of
    its own.
    """
    k = Kineto()
    if label:
        k.named(0, label)
    k.step(0, 0, 100)
    k.op("aten::mm", 5, 20)
    for cat, name, begin, length in (
        *(("hpu_op", "gemm_f32", 10 + 12 * i, 10) for i in range(3)),
        ("hpu_op", "Memcpy HtoD", 50, 4),
        ("hpu_memset", "zero_fill", 55, 2),
        ("hpu_user_annotation", "forward", 10, 50),
    ):
        k.add(name, cat, begin, length, pid=0, tid=5, args=args)
    # What states no place on a device is none of its work.
    k.add("counting", "hpu_counters", 20, 30)
    return k


@pytest.mark.parametrize(
    ("label", "args", "kind"), [("HPU 0", {}, "HPU"), ("", {"device": 0, "stream": 5}, "Device")]
)
def test_device_work_is_found_whatever_the_vendor(tmp_path, label, args, kind):
    p = profile(tmp_path, other_vendor(label, **args))
    assert p.devices["kind"].tolist() == [kind]
    assert p.kernels.frame[["kernel", "occurrences", "total_us"]].values.tolist() == [
        ["gemm_f32", 3, 30.0]
    ]
    assert p.device_time.bandwidth.set_index("copy")["copies"].to_dict() == {
        "host to device": 1,
        "fill": 1,
    }
    step = p.steps.frame.iloc[0]
    assert (step["device_compute_ms"], step["input_ms"]) == (
        pytest.approx(0.030),
        pytest.approx(0.004),
    )
    receipt = str(p.receipt)
    assert "CPU" not in receipt
    assert "4 events of category hpu_op are on device lanes" in receipt
    assert "hpu_counters" not in receipt


def test_a_trace_that_is_not_of_pytorch_stays_plain(tmp_path):
    k = Kineto()
    k.named(0, "GPU 0")
    k.add("draw", "render", 0, 10, pid=0, tid=5)
    assert profile(tmp_path, k).kernels.frame.empty
