"""A training of a small convolutional network on one GPU as TensorFlow records it, made up: large
enough for every part of the tabs.
"""

from __future__ import annotations

import random
from typing import Any

from tests.support.xspace import PlaneWriter, xspace

US = 1_000_000
MIB = 2**20
STEPS = 16
CAPACITY = 38 << 30
WEIGHTS = 410 * MIB

# Kernel, op, calls a step, µs of one, registers, shared memory, grid, block, and MiB that the op
# takes for its output.
_KERNELS: list[tuple[str, str, int, float, int, int, str, str, float]] = [
    ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3_warpsize2x2x1_g1_tensor16x8x16_kernel",
     "encoder/block_1/conv/Conv2D:Conv2D", 4, 309, 168, 49152, "196,2,1", "128,1,1", 24),
    ("EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<float>, Eigen::GpuDevice>, long>",
     "encoder/block_1/relu/Relu:Relu", 6, 24, 16, 0, "160,1,1", "1024,1,1", 12),
    ("BiasNHWCKernel<__half>", "encoder/block_1/conv/BiasAdd:BiasAdd", 6, 14, 16, 0, "80,1,1", "1024,1,1", 6),
    ("pooling_fw_4d_kernel<__half, float, cudnn::maxpooling_func<__half>, 1, false>",
     "encoder/pool/MaxPool:MaxPool", 2, 70, 61, 3888, "226,64,1", "256,1,1", 8),
    ("ampere_sgemm_128x64_nn", "head/dense/MatMul:MatMul", 2, 260, 122, 8448, "32,8,1", "128,1,1", 10),
    ("softmax_warp_forward<float, float, 10>", "head/Softmax:Softmax", 1, 9, 32, 0, "64,1,1", "128,1,1", 1),
    ("DeviceReduceSingleTileKernel<Policy600, float*, float*, int>", "loss/Sum:Sum", 2, 6, 38, 44, "1,1,1", "256,1,1", 1),
    ("layer_norm_grad_kernel<float, 256>", "gradient_tape/encoder/norm/LayerNormGrad:LayerNormGrad", 6, 95, 40, 2048, "512,1,1", "256,1,1", 9),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_kernel",
     "gradient_tape/encoder/block_1/conv/Conv2DBackpropFilter:Conv2DBackpropFilter", 4, 419, 128, 65536, "64,4,1", "128,1,1", 30),
    ("ApplyAdamKernel<float>", "Adam/ResourceApplyAdam:ResourceApplyAdam", 14, 18, 24, 0, "40,1,1", "1024,1,1", 0),
]  # fmt: skip


def write() -> bytes:
    """The XSpace file: 16 steps of about 6 ms, in which the host launches ahead and the GPU waits a
    little for its next batch.
    """
    rng = random.Random(16)
    gpu = PlaneWriter(
        "/device:GPU:0",
        {"device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0, "memory_size": 40 << 30, "core_count": 108, "clock_rate": 1_410_000},
    )  # fmt: skip
    host = PlaneWriter("/host:CPU")
    train: list[bytes] = []
    pool: list[bytes] = []
    memory: list[bytes] = []
    compute: list[bytes] = []
    copies: list[bytes] = []
    marks: list[bytes] = []
    correlation, address, now, peak = 0, 1 << 30, 0.0, WEIGHTS
    for step in range(STEPS):
        begin, group = now, {"group_id": step}
        waits = rng.uniform(250, 500)
        train.append(
            host.event(
                "IteratorGetNext:IteratorGetNext", round(begin * US), round(waits * US), **group
            )
        )
        correlation += 1
        copies.append(gpu.event("MemcpyH2D", round((begin + waits) * US), 180 * US, correlation_id=correlation, memcpy_details="kind_src:pinned kind_dst:device size:9633792 dest:0 async:1", **group))  # fmt: skip
        at, free = begin + waits + 40, begin + waits + 190
        used = WEIGHTS
        held: list[tuple[int, int, str]] = []
        for kernel, op, calls, each, registers, shared, grid, block, output in _KERNELS:
            for _ in range(calls):
                correlation += 1
                takes = each * rng.uniform(0.92, 1.08)
                pool.append(host.event(op, round(at * US), round(24 * US), **group))
                pool.append(
                    host.event(
                        "cuLaunchKernel",
                        round((at + 8) * US),
                        round(9 * US),
                        correlation_id=correlation,
                        **group,
                    )
                )
                free = max(free + 2, at + 20)
                compute.append(
                    gpu.event(
                        kernel, round(free * US), round(takes * US), correlation_id=correlation, tf_op=op,
                        kernel_details=f"regs:{registers} static_shared:{shared} dynamic_shared:0 grid:{grid} block:{block} occ_pct:0", **group,
                    )
                )  # fmt: skip
                if output:
                    size = round(output * MIB * rng.uniform(0.8, 1.1))
                    used, address = used + size, address + (1 << 26)
                    peak = max(peak, used)
                    held.append((size, address, op))
                    memory.append(
                        _call(
                            host, "MemoryAllocation", at + 2, size, address, used, peak, op, group
                        )
                    )
                free += takes
                at += 30
        end = free + 30
        for place, (size, where, op) in enumerate(reversed(held)):
            used -= size
            memory.append(
                _call(
                    host,
                    "MemoryDeallocation",
                    end - 400 + 6 * place,
                    size,
                    where,
                    used,
                    peak,
                    op,
                    group,
                )
            )
        train.append(
            host.event(
                "train", round(begin * US), round((end - begin) * US), step_num=step, **group
            )
        )
        marks.append(
            gpu.event(
                str(step),
                round((begin + waits) * US),
                round((end - begin - waits) * US),
                step_name=f"train {step}",
                **group,
            )
        )
        now = end
    gpu.line("Stream #14(Compute)", compute, line_id=14)
    gpu.line("Stream #15(MemcpyH2D)", copies, line_id=15)
    gpu.line("Steps", marks, line_id=-559038737)
    host.line("python", train, line_id=1)
    host.line("tf_Compute", pool, line_id=2)
    host.line("tf_Compute", memory, line_id=3)
    return xspace(gpu, host)


def _call(
    host: PlaneWriter,
    name: str,
    at: float,
    size: int,
    address: int,
    used: int,
    peak: int,
    op: str,
    group: dict[str, Any],
) -> bytes:
    return host.event(
        name, round(at * US), 0, allocator_name="GPU_0_bfc", bytes_reserved=0, bytes_allocated=used, bytes_available=CAPACITY - used,
        fragmentation=0.002 + 0.004 * (used % 97) / 97, peak_bytes_in_use=peak, requested_bytes=size, allocation_bytes=size, addr=address,
        tf_op=op.split(":")[0], region_type="output", data_type=19, shape=f"[64,{size // 57600},30,30]", **group,
    )  # fmt: skip
