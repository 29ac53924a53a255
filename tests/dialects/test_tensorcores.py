"""Kernel names as profiles of NVIDIA's and AMD's libraries show them, and whether Tensor Cores run
them.
"""

import pytest

from nbprof.dialects.tensorcores import (
    NO,
    UNKNOWN,
    YES,
    einsum_of_two,
    hlo_is_eligible,
    kernel_precision,
    op_is_eligible,
    op_is_eligible_in_xprof,
    takes_only_32_bit,
    uses_tensor_core,
    uses_tensor_core_in_xprof,
)
from nbprof.dialects.torchnames import tensor_core_eligible

# Volta to Blackwell: cuBLAS, cuDNN, CUTLASS, FlashAttention, DeepGEMM, Marlin.
TENSOR = """
volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn
volta_h884gemm_64x64_ldg8_nn
turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1
turing_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1
ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn
ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nt
ampere_h16816gemm_128x64_ldg8_stages_64x3_tn
ampere_i16832gemm_int8_128x64_ldg16_relu_stages_64x4_tn
sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel
sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_stage4_warpsize4x1x1_g1_tensor16x8x16_execute_kernel__5x_cudnn
sm86_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn
void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1>(cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1::Params)
cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1
cutlass_80_tensorop_d884gemm_64x128_16x3_nt_align1
void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_tn_align8>(cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_tn_align8::Params)
void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x256_32x3_unity_stride>
cutlass3x_sm90_tensorop_h64x128x16gemm_f16_f16_f16_void_f16_128x128x64_1x1x1_0_nnn_align8_warpspecialized_cooperative
cutlass3x_sm100_tensorop_s128x64x8tf32gemm_f32_f32_f32_f32_f32_128x64x32_0_tnn_align4_2sm_
cutlass3x_sm120_bstensorop_s16864gemm_block_scaled
nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT
nvjet_tst_256x256_64x3_2x1_2cta_v_bz_TNN
nvjet_sm90_hss_320x128
nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitk
nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN
cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_kernel0_0
cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7
cudnn_generated_fort_native_sdpa_sm100_flash_bprop_f16_knob_2_128x128x256_1x4x1_cga2x1x1_kernel2_0
void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(pytorch_flash::Flash_fwd_params)
void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8>>(pytorch_flash::Flash_bwd_params)
void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::half_t>>(Flash_fwd_params)
void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>
flash::FlashAttentionForwardSm100
fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 128>::Params)
fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80, true, 64, 64>::Params)
fmha_cutlassF_f16_aligned_64x64_rf_sm75
fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_sm90_kernel_nl
void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u>
void deep_gemm::sm100_fp8_gemm_1d1d_impl<0u>
void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 4>
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7>>>>
void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM<2>>
""".strip().splitlines()
# Plain arithmetic units, among them the fp32 kernels that are called xmma and cutlass3x, and the
# helpers of attention kernels.
PLAIN = """
volta_sgemm_128x64_nt
ampere_sgemm_32x128_tn
volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
volta_scudnn_128x64_relu_xregs_large_nn_v1
sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3
void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm_128x64_8x5_nn_align1::Params)
cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_tnn_align1_bias_f32_relu
void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const>>
void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>
void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, false, false>
void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>, float const*)
void pytorch_flash::flash_bwd_dot_do_o_kernel<true, pytorch_flash::Flash_bwd_kernel_traits<64, 128>>
void pytorch_flash::flash_bwd_convert_dq_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128>>
void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>
void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>>>
void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>>>
fmha_cutlassF_f32_aligned_64x64_rf_sm75
fmha_cutlassF_f16_aligned_64x64_rf_sm50
void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>
void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>
void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>
void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >
ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
triton_poi_fused_add_mul_native_layer_norm_3
triton_red_fused__native_batch_norm_mm_5
triton_per_fused_flash_attention_2
loop_convert_fusion
void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*)
generatedNativePointwise
sgemm
void cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)
CatArrayBatchedCopy
void marlin::gptq_marlin_repack_kernel<256, 4, false>
""".strip().splitlines()
# Triton: the name of a Python function.
OPEN = """
triton_tem_fused_mm_0
gemm_fusion_dot_general_1
triton_gemm_dot_5
matmul_kernel
_attn_fwd
fused_moe_kernel
_w8a8_block_fp8_matmul
_fwd_kernel
""".strip().splitlines()
MATRIX = """
Cijk_Ailk_Bljk_BBS_BH_MT256x128x32_MI16x16x16x1_SN_1LDSB1.kd
Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1_SN_LDSB1
Custom_Cijk_Alik_Bljk_F8BS_BH_MT256x256x128
igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1_1x4x1x64_tb1x8x2x1_1x4x1x64
_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmMultiD_xdl_cshuffle_v3I
gemm_fusion_dot_general_1.kd
void ck_tile::kentry<256, 1, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync>>
""".strip().splitlines()
VECTOR = """
Cijk_Ailk_Bljk_SB_MT128x64x16_SE_K1
miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1
__amd_rocclr_copyBuffer.kd
Im3d2Col.kd
loop_convert_fusion.kd
""".strip().splitlines()


@pytest.mark.parametrize(
    ("kernel", "uses"),
    [*((k, YES) for k in TENSOR), *((k, NO) for k in PLAIN), *((k, UNKNOWN) for k in OPEN)],
)
def test_tensor_cores_by_name(kernel, uses):
    assert uses_tensor_core(kernel) == uses


@pytest.mark.parametrize(
    ("kernel", "uses"), [*((k, YES) for k in MATRIX), *((k, NO) for k in VECTOR)]
)
def test_matrix_cores_by_name(kernel, uses):
    assert uses_tensor_core(kernel, amd=True) == uses


def test_xprof_goes_by_the_vendor_and_by_older_names():
    assert uses_tensor_core_in_xprof("volta_fp16_s884gemm", "Nvidia")
    assert not uses_tensor_core_in_xprof("volta_fp16_s884gemm", "")
    assert not uses_tensor_core_in_xprof("volta_fp16_s884gemm", "nvidia")
    assert not uses_tensor_core_in_xprof("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", "Nvidia")
    assert uses_tensor_core_in_xprof(
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma", "Nvidia"
    )
    assert uses_tensor_core_in_xprof("Cijk_Ailk_MI16x16x16x1_SN", "AMD")
    assert not uses_tensor_core_in_xprof("Cijk_Ailk_MI16x16_SN", "AMD")


@pytest.mark.parametrize(
    ("name", "kind", "ours", "xprof"),
    [
        ("model/dense/MatMul", "MatMul", True, True),
        ("MatMul", "MatMul", True, False),
        ("MatMulish", "MatMulish", False, False),
        ("conv2d/Relu", "_FusedConv2D", True, False),
        ("dense/BiasAdd", "_FusedMatMul", True, False),
        ("dense/BiasAdd", "BiasAdd", False, False),
        ("attention/einsum/Einsum", "Einsum", True, False),
        ("jit(f)/jit(main)/dot_general", "dot_general", True, True),
        ("jit(f)/conv_general_dilated", "conv_general_dilated", True, True),
        ("lstm/CudnnRNNV3", "CudnnRNNV3", True, True),
        ("", "", False, False),
    ],
)
def test_ops_that_could_use_them(name, kind, ours, xprof):
    assert op_is_eligible(name, kind) is ours
    assert op_is_eligible_in_xprof(name) is xprof


def test_an_einsum_of_two_is_a_product():
    assert einsum_of_two("ab,bc->ac")
    assert not einsum_of_two("ab->ba")
    assert not einsum_of_two("ab,bc,cd->ad")
    assert not einsum_of_two("ab,bc")


@pytest.mark.parametrize(
    ("opcode", "target", "eligible"),
    [
        ("dot", "", True),
        ("convolution", "", True),
        ("fusion", "", False),
        ("custom-call", "__cublas$lt$matmul", True),
        ("custom-call", "__cudnn$convForward", True),
        ("custom-call", "__cudnn$fmhaSoftmax", True),
        ("custom-call", "__cudnn$norm", False),
        ("custom-call", "__cub$DeviceRadixSort", False),
        ("add", "__cublas$gemm", False),
    ],
)
def test_ops_of_compiled_programs(opcode, target, eligible):
    assert hlo_is_eligible(opcode, target) is eligible


def test_ops_of_pytorch_beside_its_own():
    for op in (
        "aten::_scaled_mm",
        "triton_tem_fused_mm_0",
        "flash_attn::_flash_attn_forward",
        "vllm::unified_attention",
        "fbgemm::f8f8bf16_rowwise",
    ):
        assert tensor_core_eligible(op), op
    for op in (
        "aten::add",
        "triton_poi_fused_mm_0",
        "vllm::rms_norm",
        "my::gemm_like",
        "fbgemm::permute_2D_sparse_data",
    ):
        assert not tensor_core_eligible(op), op


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
        ("volta_s884gemm_128x64_ldg8_nn", 16),
        (
            "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3",
            16,
        ),
        ("volta_scudnn_128x64_relu_interior_nn_v1", 32),
        ("volta_cgemm_32x32_tn", 32),
        ("ampere_sgemm_128x64_nn", 32),
        ("fc-dtype_Float", 32),
        ("cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1", 0),
        ("batchedgemm_of_ours", 0),
        ("void BlockReduceKernel<bool*, bool*, 256, And>(bool*, bool*, int)", 32),
        ("void of_ours(int, void*)", 0),
        ("unknown_kernel_0f8a", 0),
    ],
)
def test_precision_by_name(name, bits):
    assert kernel_precision(name) == bits


@pytest.mark.parametrize(
    "kernel",
    [
        "my_matmul(float*, float*, float*, int, int, int)",
        "matmul_k(float const*, float const*, float*, int)",
        "saxpy(int, double, double const*, double*)",
        "reduce4(float4 const*, float*, int)",
        "void matmul_tiled<32>(float*, float*, float*, int, int)",
        "vector_add(float const*, float*, int) [clone .kd]",
    ],
)
def test_hand_written_kernels_of_32_bit_numbers(kernel):
    assert takes_only_32_bit(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_sgemm_128x64_nn",
        "triton_poi_fused_add_0",
        "matmul_k(__half*, __half*, float*, int)",
        "copy_indices(int*, long, int)",
        "void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*, float const*, float const*, int, int)",
        "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3>(int, int, int, float const*, int, float*)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float*)",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct, float*, float)",
        "void tensorflow::BiasNHWCKernel<float>(int, float const*, float const*, float*, int)",
        "void fft2d_r2c_16x16<float>(float2*, float const*, int, int)",
    ],
)
def test_kernels_whose_types_a_setting_may_change(kernel):
    assert not takes_only_32_bit(kernel)
