from __future__ import annotations

import pytest

from nbprof.dialects import torchnames


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "aten"),
        ("fbgemm::permute_2D_sparse_data", "fbgemm"),
        ("autograd::engine::evaluate_function: MmBackward0", "autograd"),
        ("MmBackward0", "autograd"),
        ("torch::autograd::AccumulateGrad", "autograd"),
        ("torch::autograd::CppNode<SplitLookupFunction>", "autograd"),
        ("record_param_comms", "c10d"),
        ("triton_red_fused_mean_3", "triton"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DataLoader"),
        ("forward", "function"),
        ("a b::c", "function"),
    ],
)
def test_types_of_ops(name, kind):
    assert torchnames.op_type(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (n, "launch")
            for n in (
                "cudaLaunchKernel",
                "cudaLaunchKernelExC",
                "cuLaunchKernel",
                "cuLaunchKernelEx",
                "hipLaunchKernel",
            )
        ),
        *(
            (n, "launch")
            for n in (
                "hipExtModuleLaunchKernel",
                "hipExtLaunchKernel",
                "cudaLaunchCooperativeKernel",
                "urEnqueueKernelLaunch",
            )
        ),
        *((n, "graph") for n in ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")),
        *(
            (n, "copy")
            for n in (
                "cudaMemcpyAsync",
                "cudaMemcpy",
                "hipMemcpyWithStream",
                "cudaMemcpyPeerAsync",
                "cuMemcpyHtoDAsync_v2",
            )
        ),
        *((n, "fill") for n in ("cudaMemsetAsync", "hipMemsetAsync", "cuMemsetD8Async")),
        *(
            (n, "sync")
            for n in (
                "cudaDeviceSynchronize",
                "cudaStreamSynchronize",
                "cudaEventSynchronize",
                "hipDeviceSynchronize",
            )
        ),
        *(
            (n, "allocate")
            for n in (
                "cudaMalloc",
                "cudaFree",
                "hipFree",
                "cudaHostAlloc",
                "hipHostMalloc",
                "cuMemCreate",
                "hipExtMallocWithFlags",
            )
        ),
        *(
            (n, "other")
            for n in (
                "cudaEventRecord",
                "cudaStreamIsCapturing",
                "cudaStreamWaitEvent",
                "cudaEventQuery",
                "cudaFuncGetAttributes",
            )
        ),
        ("cudaMemGetInfo", "other"),
    ],
)
def test_kinds_of_runtime_calls(name, kind):
    assert torchnames.call_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", True),
        ("ncclDevKernel_AllGather_RING_LL", True),
        ("ncclSymDevKernel_AllReduce_Sum", True),
        ("rcclGenericKernel", False),
        ("void vllm::cross_device_reduce_1stage<half, 2>", True),
        ("nvshmem_barrier_kernel", True),
        ("triton_dma_kernel", False),
        ("void reduce_kernel<128>", False),
    ],
)
def test_collective_kernels(name, is_one):
    assert torchnames.is_collective(name) is is_one
