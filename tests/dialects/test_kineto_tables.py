"""Kernels, copies, collectives, devices and memory of small PyTorch traces, and what the receipt
says of them.
"""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, load, profile
from tests.support.profiles import real

H100 = {
    "id": 0,
    "name": "NVIDIA H100",
    "totalGlobalMem": 80 * 2**30,
    "computeMajor": 9,
    "computeMinor": 0,
    "numSms": 132,
}


def receipt(p):
    return " ".join(n.text for n in p.receipt.lines)


def test_kernels_have_their_launch_shape(tmp_path):
    k = Kineto(deviceProperties=[H100, {**H100, "id": 1}])
    op = k.op("aten::mm", 0, 50, types=["c10::Half", "c10::Half"])
    shape = {
        "registers per thread": 32,
        "shared memory": 512,
        "grid": [4, 2, 1],
        "block": [128, 1, 1],
    }
    k.launched("gemm", 1, 10, 3, op=op, **shape, **{"est. achieved occupancy %": 25})
    k.launched("gemm", 2, 20, 5, op=op, **shape, **{"est. achieved occupancy %": 25})
    k.launched(
        "gemm", 3, 30, 1, op=op, **{**shape, "grid": [8, 2, 1]}, **{"est. achieved occupancy %": 0}
    )
    p = profile(tmp_path, k)
    first, second = p.kernels.frame.to_dict("records")
    assert (first["occurrences"], first["total_us"], first["min_us"], first["max_us"]) == (
        2,
        8.0,
        3.0,
        5.0,
    )
    assert (first["registers"], first["static_shared_bytes"], first["block"], first["grid"]) == (
        32,
        512,
        "128,1,1",
        "4,2,1",
    )
    assert first["occupancy_percent"] == 25.0
    assert second["grid"] == "8,2,1"
    # 0 is what the recorder writes for unknown. 16 blocks of 4 warps on 132 multiprocessors of 64
    # warps:
    assert second["occupancy_percent"] == pytest.approx(100 * 16 * 4 / 132 / 64)
    assert p.kernels.frame["occupancy_source"].tolist() == ["recorded", "computed"]
    assert p.kernels.frame["dynamic_shared_bytes"].isna().all(), (
        "the file has one number for both kinds"
    )
    assert p.devices[
        ["device", "name", "compute_capability", "memory_bytes", "cores"]
    ].to_numpy().tolist() == [[0, "NVIDIA H100", "9.0", 80 * 2**30, 132]], "the device that worked"


def test_rocm_states_shared_memory_at_the_launch(tmp_path):
    k = Kineto(hip_runtime_version=70253211)
    op = k.op("aten::convolution", 0, 50, types=["float"])
    correlation = k.call("hipExtModuleLaunchKernel", 1, 1, op)
    k.events[-1]["args"] |= {"shared memory": 4096, "grid": [256, 1, 1], "block": [64, 1, 1]}
    k.kernel(
        "Cijk_Ailk_Bljk_HHS_BH_MI16x16x16x1", 10, 3, correlation, grid=[256, 1, 1], block=[64, 1, 1]
    )
    row = profile(tmp_path, k).kernels.frame.iloc[0]
    assert row["static_shared_bytes"] == 4096
    assert row["uses_tensor_core"], "a matrix core by AMD's naming"


@pytest.mark.parametrize(
    ("op", "types", "eligible"),
    [
        ("aten::addmm", ["float", "float"], True),
        ("aten::addmm", ["long int", "long int"], False),
        ("aten::add", ["float"], False),
    ],
)
def test_tensor_core_eligible_ops(tmp_path, op, types, eligible):
    k = Kineto()
    k.launched("some_kernel", 1, 10, 3, op=k.op(op, 0, 5, types=types))
    assert profile(tmp_path, k).kernels.frame["op_tensor_core_eligible"].tolist() == [eligible]


def test_what_communicates_is_no_product_whatever_op_it_ran_in(tmp_path):
    k = Kineto()
    op = k.op("aten::linear", 10, 50)
    k.launched("my_product", 12, 60, 5, op)
    k.launched("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 14, 70, 5, op)
    frame = profile(tmp_path, k).kernels.frame.set_index("kernel")["op_tensor_core_eligible"]
    assert frame.to_dict() == {
        "my_product": True,
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": False,
    }


def test_what_else_runs_in_an_op_that_launches_its_products_itself_is_no_product(tmp_path):
    """The gradient of the bias, in the backward pass of a convolution of PyTorch 2.11."""
    k = Kineto()
    convolution = k.op("aten::convolution_backward", 0, 100)
    k.launched("sm90_xmma_dgrad_bf16", 10, 200, 50, convolution)
    k.launched("at::native::reduce_kernel", 40, 300, 50, k.op("aten::sum", 30, 40))
    frame = profile(tmp_path, k).kernels.frame.set_index("kernel")["op_tensor_core_eligible"]
    assert frame.to_dict() == {"sm90_xmma_dgrad_bf16": True, "at::native::reduce_kernel": False}


def test_an_op_within_an_eligible_one_is_eligible(tmp_path):
    k = Kineto()
    k.op("aten::linear", 0, 20)
    k.launched("some_kernel", 6, 30, 3, op=k.op("my::gemm", 5, 5))
    k.launched("other_kernel", 26, 40, 3, op=k.op("my::gemm", 25, 5))
    frame = profile(tmp_path, k).kernels.frame.set_index("kernel")["op_tensor_core_eligible"]
    assert frame.to_dict() == {"some_kernel": True, "other_kernel": False}


@pytest.mark.parametrize(
    ("kernel", "types", "half"),
    [
        ("vectorized_kernel", ["c10::BFloat16", "Scalar"], 100.0),
        ("vectorized_kernel", ["float", "float"], 0.0),
        ("vectorized_kernel", ["double"], 0.0),
        ("vectorized_kernel", ["c10::Float8_e4m3fn", "float"], None),
        ("sm90_gemm_e4m3", ["c10::Float8_e4m3fn", "float"], 100.0),
        ("gemm_bf16", ["float"], 0.0),
        ("gemm_bf16", [], 100.0),
        ("ampere_sgemm_32x32", [], 0.0),
    ],
)
def test_16_bit_compute_is_told_by_the_tensors_and_else_by_the_name(tmp_path, kernel, types, half):
    k = Kineto()
    k.step(1, 0, 100)
    k.launched(kernel, 1, 10, 30, op=k.op("aten::mm", 0, 5, types=types))
    assert profile(tmp_path, k).overview["compute_16bit_percent"] == half


def test_a_device_is_idle_when_none_of_its_streams_works(tmp_path):
    k = Kineto()
    op = k.op("aten::mm", 1, 10)
    for at, stream in ((10, 7), (15, 8), (90, 7)):
        k.launched("gemm", 2, at, 10, op, stream=stream)
    table = profile(tmp_path, k).ops.with_idle
    on_device = table[table["where"] == "device"].set_index("op")["self_us"].to_dict()
    assert on_device == {"aten::mm": 30.0, "IDLE": 65.0}


def test_copies(tmp_path):
    k = Kineto()
    op = k.op("aten::copy_", 0, 90)
    for i, (name, size) in enumerate(
        [
            ("Memcpy HtoD (Pageable -> Device)", 10),
            ("Memcpy HtoD (Pinned -> Device)", 20),
            ("Memcpy DtoH (Device -> Pageable)", 30),
            ("Memcpy PtoP (Device -> Device)", 40),
            ("Memset (Device)", 50),
        ]
    ):
        k.copy(name, 10 * i + 5, 2, k.call("cudaMemcpyAsync", 10 * i, 1, op), bytes=size)
    a = profile(tmp_path, k).run.activity
    table = a.transfers.frame()
    assert a.texts.values[table["kind"]].tolist() == ["H2D", "H2D", "D2H", "P2P", "memset"]
    assert table["bytes"].tolist() == [10, 20, 30, 40, 50]
    assert table["pageable"].tolist() == [True, False, True, False, False]


def test_collectives(tmp_path):
    k = Kineto()
    op = k.op("record_param_comms", 0, 50)
    stated = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "dtype": "BFloat16",
        "Group size": 8,
        "Comms Id": 2**70,
    }
    k.launched("ncclDevKernel_Generic(x)", 1, 10, 5, op=op, stream=20, **stated)
    k.launched("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", 2, 20, 5, stream=20)
    k.launched("triton_fused_all_gather", 61, 30, 5, op=k.op("symm_mem::_c10d", 60, 5))
    k.launched("mscclpp_like", 71, 72, 5, op=k.op("c10d::allreduce_", 70, 5))
    p = profile(tmp_path, k)
    a = p.run.activity
    table = a.collectives.frame()
    assert a.texts.values[table["name"]].tolist() == ["allreduce", "ReduceScatter", "mscclpp_like"]
    assert table["bytes"].tolist() == [2000, -1, -1]
    assert table["group_size"].tolist() == [8, -1, -1]


def test_memory(tmp_path):
    k = Kineto(deviceProperties=[H100])
    k.step(1, 0, 100)
    k.op("aten::empty", 5, 10)
    k.memory(6, 1000, 0xA0, 5000, 8000, device=0)
    k.op("aten::mm", 20, 10)
    k.memory(21, 3000, 0xB0, 8000, 9000, device=0)
    k.memory(22, 16, 0xC0, 16)
    k.memory(50, -1000, 0xA0, 7000, 9000, device=0)
    p = profile(tmp_path, k)
    timeline = p.memory.timeline
    gpu = timeline[timeline["memory_id"] == "GPU 0"]
    assert gpu["event"].tolist() == ["allocation", "allocation", "deallocation"]
    assert gpu["allocated_bytes"].tolist() == [1000, 3000, -1000]
    assert gpu["op"].tolist() == ["aten::empty", "aten::mm", "aten::empty"], (
        "a deallocation has the op of its allocation"
    )
    assert gpu["free_bytes"].tolist() == [3000, 1000, 2000]
    summary = p.memory.summary.set_index("memory_id")
    assert summary.loc["GPU 0", ["peak_bytes", "capacity_bytes", "peak_free_bytes"]].tolist() == [
        8000,
        80 * 2**30,
        1000,
    ]
    for column in ("lifetime_peak_bytes", "peak_stack_bytes", "peak_fragmentation"):
        assert summary[column].isna().all(), f"{column} is not recorded, so it is not 0"
    assert summary["capacity_bytes"].isna()["CPU"]
    peak = p.memory.peak
    rows = peak[peak["memory_id"] == "GPU 0"].set_index("op")["allocated_bytes"].to_dict()
    assert rows == {"allocated before the recording": 4000, "aten::mm": 3000, "aten::empty": 1000}
    figures = {f["key"]: f["value"] for f in p.payload()["memory"]["ids"][0]["figures"]}
    assert figures["reserved"] == pytest.approx(9000 / 1024)
    assert "lifetime_peak" not in figures


def test_an_event_without_a_total_counts_on_from_the_one_before(tmp_path):
    k = Kineto()
    k.op("aten::mm", 1, 50)
    for ts, size, total in (
        (10, 50, None),
        (20, 100, 1000),
        (30, 300, None),
        (40, -100, None),
        (50, 100, 1300),
    ):
        k.memory(ts, size, 64 * ts, total or 0, 0 if total is None else 5000, device=0)
        if total is None:
            del k.events[-1]["args"]["Total Allocated"], k.events[-1]["args"]["Total Reserved"]
    assert profile(tmp_path, k).memory.timeline["heap_bytes"].tolist() == [
        900,
        1000,
        1300,
        1200,
        1300,
    ]


def test_memory_of_the_cpu_holds_nothing_of_earlier_recordings(tmp_path):
    k = Kineto()
    k.op("aten::mm", 1, 50)
    for ts, size, address, total in (
        (10, 50, 64, 7050),
        (20, 100, 128, 7150),
        (30, -100, 128, 7050),
        (40, -50, 64, 7000),
    ):
        k.memory(ts, size, address, total)
    assert profile(tmp_path, k).memory.timeline["heap_bytes"].tolist() == [50, 150, 50, 0]


def test_what_is_freed_without_having_been_allocated_was_there_before(tmp_path):
    """Less is never in use than the blocks that are known to be live: 300 bytes in the end, of
    which a sum from 0 would have 200.
    """
    k = Kineto()
    k.op("aten::mm", 1, 50)
    for ts, size, address in ((10, 200, 64), (20, -100, 128), (30, 100, 192)):
        k.memory(ts, size, address, 0)
    p = profile(tmp_path, k)
    assert p.memory.timeline["heap_bytes"].tolist() == [300, 200, 300]
    live = p.memory.peak
    assert (
        (live["allocated_bytes"] * live["occurrences"]).sum()
        == p.memory.summary["peak_bytes"].item()
        == 300
    )


@pytest.mark.parametrize(
    ("device", "card", "figure"),
    [
        (
            -1,
            "lower bound: earlier allocations are not included",
            "sum of recorded events; excludes memory allocated earlier",
        ),
        (0, "GPU 0", "at 0.0 ms"),
    ],
)
def test_a_peak_without_what_was_allocated_before_the_recording_says_so(
    tmp_path, device, card, figure
):
    """On the CPU PyTorch's total is of what it saw allocated while it recorded; on a device it is
    the allocator's own.
    """
    k = Kineto()
    k.op("aten::mm", 1, 50)
    for ts, size, total in ((10, 50, 7050), (20, 100, 7150), (30, -150, 7000)):
        k.memory(ts, size, 64 * ts, total, device=device)
    payload = profile(tmp_path, k).payload()
    assert {f["key"]: f["note"] for f in payload["overview"]["figures"]}["peak_memory"] == card
    figures = {f["key"]: f for f in payload["memory"]["ids"][0]["figures"]}
    assert figures["peak"]["note"] == figure
    assert ("peak_at" in figures) == (device < 0), (
        "where the note is not the time of the peak, that is a figure of its own"
    )


def test_a_device_of_unknown_memory_beside_a_known_one(tmp_path):
    files = []
    for properties in ([], [H100]):
        k = Kineto(deviceProperties=properties)
        op = k.op("aten::empty", 5, 10)
        k.launched("gemm", 6, 20, 5, op=op)
        k.memory(7, 1000, 0xA0, 5000, 8000, device=0)
        files.append(k)
    p = profile(tmp_path, *files)
    capacity = p.memory.summary.set_index("memory_id")["capacity_bytes"]
    assert capacity.isna().to_dict() == {"host0 GPU 0": True, "host1 GPU 0": False}
    assert "nan" not in str(p.overview["run_facts"])


def test_running_out_of_memory_is_told(tmp_path):
    k = Kineto()
    k.op("aten::empty", 5, 10)
    k.memory(6, 1000, 0xA0, 5000, 8000, device=0)
    k.add(
        "[OutOfMemory]",
        "cpu_instant_event",
        7,
        None,
        args={"Device Type": 1, "Device Id": 0, "Bytes": 2**40},
    )
    p = profile(tmp_path, k)
    assert "ran out of memory 1 time" in receipt(p)
    assert len(p.memory.timeline) == 1


def test_lost_kernels_are_told_and_empty_fills_are_not(tmp_path):
    k = Kineto()
    op = k.op("aten::mm", 0, 90)
    for i in range(9):
        k.launched("gemm", i, 100 + 10 * i, 5, op=op)
    k.call("cudaLaunchKernel", 50, 1, op)
    for i in range(5):
        k.call("cudaMemsetAsync", 60 + i, 1, op)
    text = receipt(profile(tmp_path, k))
    assert "1 of 10 launches (10 %) have no device activity" in text
    assert "5 calls that copy or fill have no device activity" in text


def test_a_profile_of_the_device_alone_says_what_it_lacks(tmp_path):
    k = Kineto()
    for i in range(3):
        k.kernel("gemm", 10 * i, 5, k.call("cudaLaunchKernel", 10 * i, 1))
    p = profile(tmp_path, k)
    assert "steps" not in p.run.missing, "the recording stands in for them"
    assert p.steps.frame["name"].tolist() == ["recording"]
    assert "without ProfilerActivity.CPU" in p.run.missing["ops"]
    assert p.ops.frame[["where", "type", "op", "total_us"]].to_numpy().tolist() == [
        ["device", "kernel", "gemm", 15.0]
    ]
    assert "work_without_op" not in set(p.receipt.notes["key"]), "there are no ops to link to"


def test_kernels_that_overlap_on_a_stream_are_kept_and_told(tmp_path):
    k = Kineto()
    k.kernel("a", 0, 10)
    k.kernel("b", 8, 10)
    k.kernel("c", 12, 30, stream=9)
    p = profile(tmp_path, k)
    assert (
        "1 device event starts before the previous one on the same stream ends, by up to 2.0 µs"
        in receipt(p)
    )
    assert p.kernels.frame["total_us"].sum() == 50.0


def test_what_the_recorder_says_of_itself(tmp_path):
    k = Kineto(WARNING=["CUPTI dropped 12 activity records"], ERROR="overflow")
    k.op("aten::mm", 0, 90)
    k.add("Activity Buffer Request", "overhead", 10, 30, pid=-1, tid=0)
    p = profile(tmp_path, k)
    text = receipt(p)
    assert "The profiler warned: CUPTI dropped 12 activity records" in text
    assert "The profiler warned: overflow" in text
    assert "took 0.03 ms of the profile: Activity Buffer Request 0.03 ms in 1" in text
    assert sum(n.level == "warning" for n in p.receipt.lines) == 3


def test_a_cpu_profile_has_no_device_figures(tmp_path):
    k = Kineto()
    k.step(1, 0, 100)
    k.op("aten::mm", 0, 90)
    p = profile(tmp_path, k)
    frame = p.steps.frame
    assert frame[["device_compute_ms", "kernel_launch_ms", "output_ms"]].isna().all(axis=None)
    assert frame["host_compute_ms"].tolist() == [0.09]
    assert p.overview["device_busy_percent"] is None
    assert p.devices.empty
    assert p.payload()["kernels"]["empty"]["code"] == "torch.cuda.is_available()"


def test_compiled_ops_are_not_eager(tmp_path):
    k = Kineto()
    k.op("Torch-Compiled Region: 0/0", 0, 50)
    k.op("aten::mm", 10, 20)
    k.op("triton_poi_fused_add_0", 32, 5)
    k.op("aten::item", 60, 5)
    table = profile(tmp_path, k).ops.frame.set_index("op")
    assert table["eager"].to_dict() == {
        "Torch-Compiled Region: 0/0": False,
        "aten::mm": False,
        "triton_poi_fused_add_0": False,
        "aten::item": True,
    }
    assert table["type"].to_dict()["triton_poi_fused_add_0"] == "triton"


def test_only_what_makes_the_product_of_an_op_could_use_tensor_cores(tmp_path):
    k = Kineto(
        deviceProperties=[{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}]
    )
    k.step(0, 0, 100)
    # Attention that leaves its products to two ops, and computes a softmax between them.
    k.op("aten::_native_multi_head_attention", 0, 60)
    for i, (op, kernel) in enumerate(
        (
            ("aten::bmm", "xmma_gemm_tf32"),
            ("aten::_softmax", "softmax_warp_forward"),
            ("aten::bmm", "sgemm"),
        )
    ):
        k.launched(kernel, 2 + 10 * i, 10 + 10 * i, 5, op=k.op(op, 1 + 10 * i, 8))
    # One that does them in an op of a name of its own.
    k.op("aten::linear", 60, 20)
    k.launched("my_product", 63, 70, 5, op=k.op("mylib::product", 62, 8))
    eligible = profile(tmp_path, k).kernels.frame.set_index("kernel")["op_tensor_core_eligible"]
    assert eligible.to_dict() == {
        "xmma_gemm_tf32": True,
        "softmax_warp_forward": False,
        "sgemm": True,
        "my_product": True,
    }


def test_a_real_model_that_uses_tensor_cores_throughout():
    p = load(real("findings/D7-tensor-cores/dc3b0e7228dd_851.1752215573993169006.pt.trace.json"))
    kernels = p.kernels.frame
    assert kernels.loc[kernels["op_tensor_core_eligible"], "uses_tensor_core"].all()
    assert "tensor_cores" not in set(p.advice["rule"])


def test_a_gpu_that_is_not_named_may_have_no_tensor_cores():
    p = load(real("findings/D7-tensor-cores/worker0.pt.trace.json.gz"))
    assert not set(p.advice["rule"]) & {"tensor_cores", "mixed_precision"}
