"""Advice for PyTorch: each rule on a trace in which its cause is the largest cost."""

from __future__ import annotations

import pytest

from nbprof.analysis.ops.torch_runtime import Runtime
from tests.analysis.test_advice import found as found_of
from tests.support.kineto import Kineto, profile

V100 = {
    "id": 0,
    "name": "Tesla V100",
    "totalGlobalMem": 2**34,
    "computeMajor": 7,
    "computeMinor": 0,
}
A100 = {
    "id": 0,
    "name": "NVIDIA A100",
    "totalGlobalMem": 2**34,
    "computeMajor": 8,
    "computeMinor": 0,
}
MI300 = {
    "id": 0,
    "name": "AMD Instinct MI300X",
    "totalGlobalMem": 2**34,
    "computeMajor": 9,
    "computeMinor": 4,
}


def steps(k, body, count=4, length=100):
    for i in range(count):
        k.step(i, length * i, length)
        body(length * i)
    return k


def advice(tmp_path, k):
    return profile(tmp_path, k).advice.set_index("rule")


@pytest.mark.parametrize(
    ("loader", "rule", "code"),
    [
        ("_SingleProcessDataLoaderIter", "loader_in_process", "num_workers=1"),
        ("_MultiProcessingDataLoaderIter", "loader_workers", "num_workers=k + 1"),
    ],
)
def test_slow_loading(tmp_path, loader, rule, code):
    def body(start):
        k.note(f"enumerate(DataLoader)#{loader}.__next__", start, 60)
        k.op("aten::mm", start + 60, 40)

    k = Kineto()
    findings = advice(tmp_path, steps(k, body))
    assert findings.loc[rule, "gain_ms_per_step"] == pytest.approx(0.06)
    assert "**0.06 ms** of **0.10 ms**" in findings.loc[rule, "evidence"]
    assert code in findings.loc[rule, "fix"]
    assert findings.loc[rule, "severity"] == "high"


@pytest.mark.parametrize(
    ("loader", "rule"), [("loader", "loader_in_process"), ("iterator", "loader_none")]
)
@pytest.mark.parametrize("devices", [0, 1])
def test_memory_is_pinned_for_a_device_alone(loader, rule, devices):
    """On the CPU, PyTorch warns that it is of no use."""
    runtime = Runtime(**{f"{loader}_ms": 40.0})
    fix = found_of({"input": 40.0}, framework="PyTorch", runtime=runtime, devices=devices).loc[
        rule, "fix"
    ]
    assert ("pin_memory" in fix) == bool(devices)
    assert ("persistent_workers=True)" in fix) == (rule == "loader_in_process")


@pytest.mark.parametrize(("wait_us", "expected"), [(300, True), (150, False)])
def test_the_time_that_it_takes_to_time_an_iterator_is_no_wait_for_it(tmp_path, wait_us, expected):
    """Loops over a range have waits of 20 to 120 us in recordings of an H200."""
    k = Kineto()
    for i in range(12):
        k.step(i, 2000 * i, 2000)
        k.note("nbprof.steps: next item", 2000 * i, wait_us)
        k.op("aten::mm", 2000 * i + wait_us, 1000)
    assert ("loader_none" in profile(tmp_path, k).advice["rule"].tolist()) == expected


def test_a_dataloader_is_not_missed_as_tf_data(tmp_path):
    k = Kineto()
    findings = profile(
        tmp_path,
        steps(
            k,
            lambda start: k.note(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, 40
            ),
        ),
    ).tf_data.summary
    assert "a PyTorch DataLoader" in findings["statement"]
    assert findings["input_bound"] is None


def test_pageable_copies(tmp_path):
    def body(start):
        op = k.op("aten::copy_", start, 30)
        k.copy(
            "Memcpy HtoD (Pageable -> Device)",
            start + 2,
            20,
            k.call("cudaMemcpyAsync", start + 1, 25, op),
            bytes=2**20,
        )
        k.launched("gemm", start + 31, start + 35, 60, op=k.op("aten::mm", start + 30, 5))

    k = Kineto()
    findings = advice(tmp_path, steps(k, body))
    assert (
        "**1.00 MiB** per step are copied to the device from pageable memory"
        in findings.loc["pinned_memory", "evidence"]
    )
    assert "cudaMemcpyAsync blocks the host" in findings.loc["pinned_memory", "evidence"]
    assert "loader_in_process" not in findings.index


def test_pinned_copies_are_not_blamed(tmp_path):
    def body(start):
        op = k.op("aten::copy_", start, 30)
        k.copy(
            "Memcpy HtoD (Pinned -> Device)",
            start + 2,
            20,
            k.call("cudaMemcpyAsync", start + 1, 25, op),
            bytes=2**20,
        )

    k = Kineto()
    assert "pinned_memory" not in advice(tmp_path, steps(k, body)).index


def test_many_small_kernels(tmp_path):
    def body(start):
        op = k.op("aten::add", start, 100)
        for i in range(20):
            k.launched("tiny", start + 5 * i, start + 5 * i + 2, 1, op=op)

    k = Kineto()
    findings = advice(tmp_path, steps(k, body))
    assert "**20** launches per step" in findings.loc["kernel_launch", "evidence"]
    assert 'mode="reduce-overhead"' in findings.loc["kernel_launch", "fix"]
    assert "torch.compile" in findings.loc["host_ops", "fix"]
    assert findings.loc["host_ops", "gain_ms_per_step"] == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("device", "variable"), [(A100, "PYTORCH_CUDA_ALLOC_CONF"), (MI300, "PYTORCH_HIP_ALLOC_CONF")]
)
def test_memory_from_the_driver(tmp_path, device, variable):
    def body(start):
        op = k.op("aten::empty", start, 70)
        k.call("hipMalloc", start + 1, 10, op)
        k.call("hipFree", start + 20, 40, op)
        k.launched("gemm", start + 71, start + 75, 20, op=op)

    k = Kineto(deviceProperties=[device])
    findings = advice(tmp_path, steps(k, body))
    assert "**2** calls per step" in findings.loc["allocator", "evidence"]
    assert (
        "mostly hipFree: **0.05 ms** (**50%** of step time)"
        in findings.loc["allocator", "evidence"]
    )
    assert variable in findings.loc["allocator", "fix"]


@pytest.mark.parametrize(
    ("device", "code", "cores"),
    [
        (V100, "GradScaler", "Tensor Cores"),
        (A100, "torch.bfloat16", "Tensor Cores"),
        (MI300, "torch.bfloat16", "matrix cores"),
    ],
)
def test_single_precision(tmp_path, device, code, cores):
    def body(start):
        k.launched(
            "ampere_sgemm",
            start + 1,
            start + 5,
            90,
            op=k.op("aten::mm", start, 5, types=["float", "float"]),
        )

    k = Kineto(deviceProperties=[device])
    findings = advice(tmp_path, steps(k, body))
    assert code in findings.loc["mixed_precision", "fix"]
    assert cores in findings.loc["mixed_precision", "evidence"]
    if device is V100:
        assert "tensor_cores" not in findings.index, (
            "numbers of 32 bits cannot use them: it is the same change"
        )
        return
    assert cores in findings.loc["tensor_cores", "title"]
    if device is A100:
        assert "set_float32_matmul_precision" in findings.loc["tensor_cores", "fix"]


def test_autocast_does_not_change_elementwise_ops(tmp_path):
    def body(start):
        k.launched(
            "vectorized_elementwise_kernel<4, sigmoid>",
            start + 1,
            start + 5,
            90,
            op=k.op("aten::sigmoid", start, 5, types=["float"]),
        )

    k = Kineto(deviceProperties=[A100])
    assert "mixed_precision" not in advice(tmp_path, steps(k, body)).index


_HAND_WRITTEN = "matmul_k(float*, float*, float*, int, int, int)"


def test_a_hand_written_kernel_follows_no_autocast(tmp_path):
    k = Kineto(deviceProperties=[A100])
    p = profile(
        tmp_path, steps(k, lambda start: k.launched(_HAND_WRITTEN, start + 1, start + 5, 90))
    )
    assert "mixed_precision" not in set(p.advice["rule"])
    check = p.overview["checks"].set_index("check").loc["precision"]
    assert check["level"] == "no"
    assert p.overview["compute_16bit_percent"] == 0


def test_beside_a_hand_written_kernel_the_others_are_judged(tmp_path):
    def body(start):
        k.launched(_HAND_WRITTEN, start + 1, start + 5, 60)
        k.launched(
            "ampere_sgemm",
            start + 4,
            start + 65,
            30,
            op=k.op("aten::mm", start + 3, 5, types=["float", "float"]),
        )

    k = Kineto(deviceProperties=[A100])
    findings = advice(tmp_path, steps(k, body)).loc["mixed_precision"]
    assert findings["gain_ms_per_step"] == pytest.approx(0.015)
    assert "67% of kernel time" in findings["evidence"]


def test_half_precision_needs_no_advice(tmp_path):
    def body(start):
        k.launched(
            "nvjet_hsh_128x256",
            start + 1,
            start + 5,
            94,
            op=k.op("aten::mm", start, 5, types=["c10::Half", "c10::Half"]),
        )

    k = Kineto(deviceProperties=[A100])
    p = profile(tmp_path, steps(k, body))
    assert p.advice.empty
    assert p.overview["verdict"] == "Device-bound"
    assert "as it should be" in p.overview["verdict_detail"]


def test_a_device_that_waits_for_much_of_a_step_is_not_called_the_limit(tmp_path):
    def body(start):
        k.launched(
            "nvjet_hsh_128x256",
            start + 1,
            start + 5,
            55,
            op=k.op("aten::mm", start, 5, types=["c10::Half", "c10::Half"]),
        )

    k = Kineto(deviceProperties=[A100])
    facts = profile(tmp_path, steps(k, body)).overview
    assert facts["verdict"] == "Device-bound"
    assert "as it should be" not in facts["verdict_detail"]
    assert facts["verdict_detail"].endswith(
        "Next is other with 40%, in which the device does not compute."
    )


def test_waiting_for_the_device(tmp_path):
    def body(start):
        op = k.op("aten::item", start, 60)
        k.launched("gemm", start + 1, start + 5, 30, op=op)
        k.call("cudaStreamSynchronize", start + 10, 40, op)

    k = Kineto()
    findings = advice(tmp_path, steps(k, body))
    assert "synchronizes with the device **once** per step" in findings.loc["waits", "evidence"]
    assert "loss.detach()" in findings.loc["waits", "fix"]


def test_communication(tmp_path):
    def body(start):
        op = k.op("record_param_comms", start, 5)
        k.launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start + 1, start + 5, 50, op=op)
        k.launched(
            "gemm",
            start + 6,
            start + 55,
            44,
            op=k.op("aten::mm", start + 5, 5, types=["c10::Half"]),
        )

    def trains(start):
        k.note("DistributedDataParallel.forward", start, 4)
        k.op("autograd::engine::evaluate_function: MmBackward0", start + 90, 1)
        body(start)

    k = Kineto()
    (tmp_path / "ddp").mkdir()
    (tmp_path / "bare").mkdir()
    findings = advice(tmp_path / "ddp", steps(k, trains))
    assert findings.loc["collectives", "gain_ms_per_step"] == pytest.approx(0.05)
    assert "no_sync" in findings.loc["collectives", "fix"]
    k = Kineto()
    findings = advice(tmp_path / "bare", steps(k, body))
    assert "no_sync" not in findings.loc["collectives", "fix"], (
        "that is a method of DistributedDataParallel"
    )
    assert "async_op=True" in findings.loc["collectives", "fix"]


def test_full_memory_and_data_parallel(tmp_path):
    def body(start):
        k.op("DataParallel.forward", start, 90)
        op = k.op("aten::mm", start + 1, 5)
        k.memory(start + 2, 2**30, 0xA0 + start, 2**34 - 2**20, 2**34, device=0)
        for device in (0, 1):
            k.launched("gemm", start + 3, start + 10, 80, op=op, device=device)

    k = Kineto(deviceProperties=[A100, {**A100, "id": 1}])
    findings = advice(tmp_path, steps(k, body))
    assert "**100%** of device memory" in findings.loc["memory_full", "evidence"]
    assert "DistributedDataParallel" in findings.loc["data_parallel", "fix"]


def test_python_between_ops(tmp_path):
    k = Kineto()
    findings = advice(tmp_path, steps(k, lambda start: k.op("aten::mm", start, 30)))
    assert "**70%** of step time" in findings.loc["other", "evidence"]
    assert "may also be input" in findings.loc["other", "evidence"]


def test_time_that_nothing_explains_is_no_input_where_the_wait_for_it_was_recorded(tmp_path):
    def body(start):
        k.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, 1)
        k.op("aten::mm", start + 1, 30)

    k = Kineto()
    findings = advice(tmp_path, steps(k, body))
    assert "**69%** of step time" in findings.loc["other", "evidence"]
    assert "may also be input" not in findings.loc["other", "evidence"]


def test_one_kernel_is_no_plural_and_a_device_that_hardly_works_no_small_batch(tmp_path):
    def body(start, length):
        k.launched(
            "gemm",
            start + 1,
            start + 5,
            length,
            op=k.op("aten::mm", start, 20),
            grid=[1, 1, 1],
            block=[128, 1, 1],
        )

    k = Kineto(deviceProperties=[{**A100, "numSms": 108}])
    findings = advice(tmp_path, steps(k, lambda start: body(start, 5)))
    text = findings.loc["small_batch", "evidence"]
    assert "with **1** kernel of **5.0 µs** on average" in text
    assert text.endswith("with **1** block.")
    k = Kineto(deviceProperties=[{**A100, "numSms": 108}])
    findings = advice(tmp_path, steps(k, lambda start: body(start, 5), length=10_000))
    assert "small_batch" not in findings.index


def queued(early):
    """Steps of 100 µs whose second kernel starts 64 µs behind the first; it was launched at once,
    or when the first had ended.
    """

    def body(start):
        op = k.op("aten::mm", start, 99)
        k.launched("gemm", start + 1, start + 3, 15, op=op)
        k.launched("gemm", start + (2 if early else 60), start + 82, 17, op=op)
        k.call("cudaStreamSynchronize", start + 4, 30, op)

    k = Kineto()
    return steps(k, body)


@pytest.mark.parametrize("early", [True, False])
def test_the_host_is_not_blamed_for_idle_time_of_work_that_it_had_launched(tmp_path, early):
    p = profile(tmp_path, queued(early))
    assert p.overview["device_idle_percent"] > 40
    assert p.steps.frame["host_compute_ms"].mean() > 0.03
    blamed = {"host_ops", "waits"} & set(p.advice["rule"])
    assert blamed == (set() if early else {"host_ops", "waits"})
