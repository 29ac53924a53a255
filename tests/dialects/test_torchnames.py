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
        *((n, "launch") for n in ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel")),
        *(
            (n, "launch")
            for n in ("hipExtModuleLaunchKernel", "hipExtLaunchKernel", "cudaLaunchCooperativeKernel", "urEnqueueKernelLaunch")
        ),
        *((n, "graph") for n in ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")),
        *((n, "copy") for n in ("cudaMemcpyAsync", "cudaMemcpy", "hipMemcpyWithStream", "cudaMemcpyPeerAsync", "cuMemcpyHtoDAsync_v2")),
        *((n, "fill") for n in ("cudaMemsetAsync", "hipMemsetAsync", "cuMemsetD8Async")),
        *((n, "sync") for n in ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize")),
        *(
            (n, "allocate")
            for n in ("cudaMalloc", "cudaFree", "hipFree", "cudaHostAlloc", "hipHostMalloc", "cuMemCreate", "hipExtMallocWithFlags")
        ),
        *(
            (n, "other")
            for n in ("cudaEventRecord", "cudaStreamIsCapturing", "cudaStreamWaitEvent", "cudaEventQuery", "cudaFuncGetAttributes")
        ),
        ("cudaMemGetInfo", "other"),
    ],
)
def test_kinds_of_runtime_calls(name, kind):
    assert torchnames.call_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", True),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", True),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nn_align8>(...)", True),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(Flash_fwd_params)", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", True),
        ("sm100_gemm_tcgen05_bf16", True),
        ("deep_gemm::fp8_gemm_kernel", True),
        ("ampere_sgemm_128x64_tn", False),
        ("volta_scudnn_128x128_relu_interior_nn_v1", False),
        ("void at::native::vectorized_elementwise_kernel<4>", False),
        ("triton_poi_fused_add_0", False),
        ("Cijk_Ailk_Bljk_MI16x16x16x1_SN", False),
    ],
)
def test_tensor_cores(name, uses):
    assert torchnames.uses_tensor_core(name) is uses


def test_matrix_cores():
    assert torchnames.uses_tensor_core("Cijk_Ailk_Bljk_MI16x16x16x1_SN", True)
    assert not torchnames.uses_tensor_core("volta_fp16_s884gemm", True)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("indexSelectLargeIndex<c10::BFloat16, long>", 16),
        ("vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>>", 16),
        ("nvjet_tst_192x192", 16),
        ("nvjet_sm100_qqtst_128x256", 16),
        ("nvjet_sss_128x64", 32),
        ("cutlass_80_tensorop_s1688gemm_tf32_128x128", 32),
        ("reduce_kernel<512, 1, float>", 32),
        ("unknown_kernel_0f8a", 0),
    ],
)
def test_precision_by_name(name, bits):
    assert torchnames.kernel_precision(name) == bits


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
