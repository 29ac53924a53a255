"""Use of Tensor Cores (AMD: matrix cores) and width of numbers by names of kernels and ops.

Sources: the kernel names of cuBLAS, cuDNN, CUTLASS, FlashAttention, Tensile and Composable Kernel
as profiles show them. Up to Ampere they hold the shape of the matrix instruction, from Hopper on
the architecture and the instruction's family. The rule of XProf 2.24 was found on its own answers
to real profiles and to made-up names.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nbprof.core.late_pattern import late_pattern

YES, NO, UNKNOWN = 1, 0, -1

# Plain arithmetic in spite of what else the name says: "xmma" and "cutlass3x" also name kernels of
# the ordinary (SIMT) units, and the helpers of an attention only add up, clear or convert.
_NVIDIA_NO = late_pattern(
    r"_?simt_|MmaSimt|OpClassSimt|ffma|_f32f32_f32f32_f32|(?<!tensorop_)(?:^|"
    r"[^a-z0-9])[sdcz]gemm(?![a-z0-9])|scudnn|gemv|splitK?[rR]educe|flash_bwd_(?:dot_do_o|convert|"
    r"clear)|flash_fwd_splitkv_combine|FlashAttn\w*(?:Preprocess|Postprocess|Combine)|"
    r"FlashAttention\w*(?:Preprocess|Postprocess|Combine)|marlin_repack|"
    # CUTLASS's attention for inputs or devices without a matrix instruction.
    r"fmha_cutlass[FB]_\w*_sm50|fmha_cutlass[FB]_f32_\w*_sm7\d|"
    # Kernels of torch.compile for elementwise work and reductions.
    r"^triton_(?:poi|red|per|for|unk|split_scan)_|^triton_softmax"
)
_NVIDIA_YES = late_pattern(
    # Volta to Ampere: the shape of the instruction, as m8n8k4 is 884.
    r"[hsdic](?:884|1688|8816|16816|16832|161616|16864)|tf32gemm|16816|hmma|imma_|m(?:8|16)n8k\d|"
    r"m16nXk|tensor\d+x\d+x\d+|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv1x1|conv2d_c1_k1|"
    r"direct_group|"
    # cuBLAS and cuDNN from Ampere on; what is left of xmma without ffma.
    r"xmma_|nvjet_|cudnn_generated_fort_native_(?:sdpa|matmul|conv)|"
    # CUTLASS 2 and 3, CuTe.
    r"tensorop|[Tt]ensorOp|wgmma|[Gg]mma(?:WarpSpecialized|_)|GMMA|UMMA|Umma|utcmma|tcgen05|"
    r"SM(?:90|100|103|120)_[\w]*\d+x\d+x\d+|SM100_MMA|"
    # Attention and other known families.
    r"flash_(?:fwd|bwd)|FlashAttn(?:Fwd|Bwd)|FlashAttention(?:Forward|Backward)Sm|fmha|deep_gemm|"
    r"[Mm]arlin(?:_24)?<|sm(?:90|100|103|120)a?_(?:fp8|bf16|f16)\w*gemm|gemm_(?:bf16|fp8|f16)_|"
    r"mma_sync"
)
# Triton's kernels have the name of their Python function: it tells products, but not their unit
# (fp32 without TF32 does not run on Tensor Cores).
_COMPILED_PRODUCT = late_pattern(r"[A-Za-z_]\w*(?:\.kd)?\Z")
_PRODUCT = late_pattern(
    r"^triton_(?:tem|mm|bmm)_|gemm|matmul|attn|attention|(?:^|_)(?:moe|flash|bmm|mm)_|_fwd_kernel|"
    r"_bwd_kernel|flex_"
)

_AMD_YES = late_pattern(
    # `gemm_fusion` is XLA's Triton; the matrix cores of AMD take every type that it makes products
    # of.
    r"mfma|wmma|_xdl|xdlops|gtcx|gemm_fusion|miopenSp3AsmConvRage|Custom_Cijk_|_MI\d+x\d+x\d+|"
    r"ck_tile::\w*(?:Gemm|Fmha)|[Ff]mha_?(?:[Ff]wd|[Bb]wd)"
)
_AMD_NO = late_pattern(
    r"fmha_bwd_(?:dot_do_o|convert)|FmhaBwd(?:OGradDotO|ConvertQGrad)|FmhaFwdSplitKVCombine|"
    r"fmha_fwd_splitkv_combine"
)


@lru_cache(maxsize=1 << 18)
def uses_tensor_core(kernel: str, amd: bool = False) -> int:
    """YES if a kernel runs on Tensor Cores by its name, NO, or UNKNOWN for Triton's products.

    Parameters
    ----------
    kernel : str
        Demangled name.
    amd : bool
        Whether the device is AMD's.
    """
    if amd:
        no, yes = _AMD_NO, _AMD_YES
    else:
        no, yes = _NVIDIA_NO, _NVIDIA_YES
    if no.search(kernel):
        return NO
    if yes.search(kernel):
        return YES
    if kernel.startswith("Cijk_") or (amd and _NVIDIA_NO.search(kernel)):
        return NO
    if _COMPILED_PRODUCT.match(kernel) and _PRODUCT.search(kernel):
        return UNKNOWN
    return NO


_NAME_16 = late_pattern(
    r"[Hh]alf|bf16|[Bb][Ff]loat16|fp16|(?<![a-z0-9])f16|(?<![a-z0-9])f8|f8f8|fp8|[Ff]loat8|e4m3|"
    r"e5m2|nvjet_(?:sm\d+_)?[htq]|"
    # The matrix instruction of Volta takes nothing else.
    r"[_\W]h(?:884|1688|16816|gemm)|[_\W]s884|_HHS_|_BBS_|_HSS_|_BSS_|_HH_|_BB_",
)
_NAME_32 = late_pattern(
    r"(?<![a-z0-9_])float[234]?\b|\bdouble\b|tf32|f32f32|fp32|(?<![A-Za-z])[sdcz]gemm|scudnn|"
    r"nvjet_(?:sm\d+_)?[sd]|_SB_|_S_B|_DB_|dtype_(?:Float|Double)\b"
)
# As parameters of a template: what a function takes is often only a size.
_INTEGERS = late_pattern(r"<[^()]*(?<!\w)(?:bool|short|int|long|unsigned)\b")


@lru_cache(maxsize=1 << 18)
def kernel_precision(kernel: str) -> int:
    """16 (fp16, bf16, fp8) or 32 (wider, or integers) bits by a kernel's name; 0 if unknown."""
    if _NAME_16.search(kernel):
        return 16
    if _NAME_32.search(kernel) or _INTEGERS.search(kernel):
        return 32
    return 0


# Compilers write no return type before a function that is not a template. Libraries of kernels
# consist of templates over the types that they take, in their namespaces.
_SIGNATURE = late_pattern(
    r"(?:void )?(?P<name>[\w:]+)(?P<template><[^()]*>)?\((?P<taken>.*)\)(?: \[clone .*\])?"
)
_POINTER_32 = late_pattern(r"\b(?:float|double)[234]?(?: const)?\*")
_POINTER_16 = late_pattern(r"(?i)half|bfloat|fp8|float8")
_LIBRARY = late_pattern(r"(?i)cu(?:blas|dnn|tlass|fft|sparse)|[sdczh]gemm|convolve|\w::\w")


@lru_cache(maxsize=1 << 18)
def takes_only_32_bit(kernel: str) -> bool:
    """True for hand-written kernels that take pointers to `float` or `double`, by the signature.

    No setting of a framework changes its types: `matmul_k(float*, float*, float*, int)`. Functions
    in namespaces and templates over types are those of libraries, which have others for 16 bits.
    """
    signature = _SIGNATURE.fullmatch(kernel)
    if signature is None or _LIBRARY.search(signature["name"]) or _POINTER_16.search(kernel):
        return False
    template = signature["template"] or ""
    if template and not re.fullmatch(r"<[\d\s,]*>", template):
        return False
    return bool(_POINTER_32.search(signature["taken"]))


_XPROF_NVIDIA = (
    "16816", "c1688", "conv1x1", "conv2d_c1_k1", "dgrad_1x1_stride_2x2", "direct_group",
    "first_layer_wgrad_kernel", "h1688", "h884", "hmma", "i16832", "i8816", "s884", "s1688",
    "xmma_gemm", "xmma_implicit_gemm", "xmma_sparse_conv", "xmma_sparse_gemm",
    "xmma_warp_specialized_implicit_gemm",
)  # fmt: skip
_XPROF_AMD = (
    *("mfma", "wmma", "_xdl", "gtcx", "gemm_fusion", "miopenSp3AsmConvRage", "Custom_Cijk_"),
    # The shapes of tiles in ck_tile's templates: its helpers have none.
    *(
        "TileGemmShape<",
        "TileFlatmmShape<",
        "TileFmhaShape<",
        "TileFmhaBwdShape<",
        "TileSageAttnShape<",
    ),
)
_AMD_TILE = late_pattern(r"_MI\d+x\d+x\d+")


def uses_tensor_core_in_xprof(kernel: str, vendor: str) -> bool:
    """XProf 2.24.2's answer: by lists that end with Ampere, False without a stated vendor."""
    if vendor == "AMD":
        return any(part in kernel for part in _XPROF_AMD) or bool(_AMD_TILE.search(kernel))
    return vendor == "Nvidia" and any(part in kernel for part in _XPROF_NVIDIA)


_ELIGIBLE_END = (
    "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "/MatMul",
    "FusedMatMul", "/CudnnRNN", "XlaDot", "XlaDotV2",
)  # fmt: skip
_ELIGIBLE_PART = (
    "BatchMatMul",
    "CudnnRNNV",
    "CudnnRNNForward",
    "CudnnRNNBackprop",
    "dot_general",
    "conv_general_dilated",
)
_ELIGIBLE_TYPE = late_pattern(
    r"_?(?:Fused)?(?:Conv[23]D(?:Backprop(?:Filter|Input)(?:V2)?)?|"
    r"(?:Sparse)?(?:Batch)?MatMul(?:V[23])?|MatMulGrad)\Z|"
    r"DepthwiseConv2dNative(?:Backprop(?:Filter|Input))?\Z|_Fused(?:Conv2D|Conv3D|MatMul|"
    r"DepthwiseConv2dNative)\Z|XlaDot(?:V2)?\Z|XlaConv(?:V2)?\Z|Xla(?:Einsum)\Z|Einsum\Z|"
    r"CudnnRNN(?:V[23])?(?:Backprop(?:V[23])?)?\Z|dot_general|conv_general_dilated|ragged_dot|"
    r"scaled_matmul|dot_product_attention"
)


@lru_cache(maxsize=1 << 18)
def op_is_eligible(name: str, kind: str = "") -> bool:
    """True for ops of TensorFlow or JAX that Tensor Cores can run, by name or type.

    The type tells more than XProf's rule, which knows names alone: a convolution that was fused
    bears the name of what it was fused with, as `conv2d/Relu` of type `_FusedConv2D`.
    """
    return (
        op_is_eligible_in_xprof(name)
        or bool(_ELIGIBLE_TYPE.match(kind))
        or name in ("MatMul", "CudnnRNN")
    )


_ELIGIBLE_CALL = late_pattern(
    r"__(?:cublas|hipblas|cudnn\$(?:conv|fmha)|onednn\$(?:matmul|conv))|__triton_gemm|.*fmha"
)


def hlo_is_eligible(opcode: str, target: str) -> bool:
    """True for matrix products, convolutions and attention, by opcode or custom call target."""
    return opcode in ("dot", "convolution", "ragged-dot", "scaled-dot") or (
        opcode == "custom-call" and bool(_ELIGIBLE_CALL.match(target))
    )


def op_is_eligible_in_xprof(name: str) -> bool:
    """XProf 2.24.2's answer for an op's name."""
    return name.endswith(_ELIGIBLE_END) or any(part in name for part in _ELIGIBLE_PART)


def einsum_of_two(equation: str) -> bool:
    """True if an einsum's `equation` has two inputs, which makes it a matrix product."""
    left, arrow, _ = equation.partition("->")
    return bool(arrow) and equation.count("->") == 1 and left.count(",") == 1
