"""Kernels find their op: stated by the kernel, or by the call that launched it."""

from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace

DETAIL = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"


def test_a_kernel_that_states_no_op_has_that_of_the_call_that_launched_it(tmp_path):
    gpu = PlaneWriter("/device:GPU:0", {"compute_cap_major": 8, "compute_cap_minor": 0})
    gpu.line(
        "Stream #7(Compute)",
        [
            gpu.event("gemm", 3 * MS, MS, correlation_id=1, kernel_details=DETAIL),
            gpu.event(
                "relu", 4 * MS, MS, correlation_id=2, kernel_details=DETAIL, tf_op="net/Relu:Relu"
            ),
            gpu.event("bare", 5 * MS, MS, correlation_id=3, kernel_details=DETAIL, tf_op=""),
        ],
        line_id=7,
    )
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("net/MatMul:MatMul", 0, 2 * MS),
            host.event("cuLaunchKernel", MS // 2, MS // 4, correlation_id=1),
            host.event("cuLaunchKernel", MS, MS // 4, correlation_id=2),
            host.event("cuLaunchKernel", 2 * MS + 1, MS // 4, correlation_id=3),
        ],
        line_id=1,
    )
    p = profile(tmp_path, xspace(gpu, host))
    assert dict(zip(p.kernels.frame["kernel"], p.kernels.frame["op"], strict=True)) == {
        "gemm": "net/MatMul",
        "relu": "net/Relu",
        "bare": "",
    }
    device = p.ops.frame[p.ops.frame["where"] == "device"]
    assert dict(zip(device["op"], device["total_us"], strict=True)) == {
        "net/MatMul": 1000.0,
        "net/Relu": 1000.0,
    }
