"""Names in PyTorch's traces: ops, annotations, runtime calls, kernels, and their meaning.

Names are classified once per name code, never per event. A generated program can have a million
names: prefixes rule out most of them before any pattern is tried.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nbprof.activity import activity as act
from nbprof.activity import copies
from nbprof.core.late_pattern import late_pattern

STEP = late_pattern(r"(?:ProfilerStep[#*]|nbprof\.step: .*#)(\d+)")
OTHER_STEP = "nbprof.step: "
"""Prefix of nbprof's steps of other kinds than training: `nbprof.step: test#12`."""
OPTIMIZER = late_pattern(r"Optimizer\.step#(.+)")
LOADER = late_pattern(r"enumerate\((?:DataLoader|DataPipe|DataLoader2)\)#")
_ITEMS = "|".join(map(re.escape, act.WAITS_FOR_ITEMS))
INPUT = late_pattern(rf"{LOADER.pattern}|(?:{_ITEMS})\Z")
_INPUT_STARTS = ("enumerate(", *act.WAITS_FOR_ITEMS)


def is_input(name: str) -> bool:
    """True for events in which a loop waits for its next batch: DataLoader or marked iterator."""
    return name.startswith(_INPUT_STARTS) and bool(INPUT.match(name))


# Annotations that old files list among the operators: they hold ops, and would hide them.
_ANNOTATION = late_pattern(
    r"ProfilerStep[#*]|Optimizer\.(?:step|zero_grad)#|enumerate\((?:DataLoader|DataPipe)|"
    r"DistributedDataParallel\.|FullyShardedDataParallel\.|DataParallel\.forward|nccl:|gloo:|mpi:|"
    r"ucc:|##"
)
_OTHER_SPACES = ("autograd", "torch", "triton_")
_AUTOGRAD = late_pattern(
    r"(?:autograd::|torch::autograd::|\w+(?:Backward|Backward\d+|BackwardHook)\Z)|AccumulateGrad\Z"
)


def is_annotation(name: str) -> bool:
    """True if an event that the file calls an operator is an annotation around ops."""
    return bool(_ANNOTATION.match(name))


@lru_cache(maxsize=1 << 18)
def op_type(name: str) -> str:
    """The family of an op: its namespace (`aten`, `c10d`, `fbgemm`), or what it is for.

    Ops without a namespace are `autograd`, `triton`, `DataLoader`, `iterator`, or `function`.
    """
    space, colons, _ = name.partition("::")
    spaced = bool(colons) and _is_word(space)
    if spaced and not space.startswith(_OTHER_SPACES):
        return space
    if is_input(name):
        if name in act.WAITS_FOR_ITEMS:
            return "iterator"
        return "DataLoader"
    if _AUTOGRAD.match(name):
        return "autograd"
    if name.startswith("triton_"):
        return "triton"
    if name == "record_param_comms":
        return "c10d"
    return space if spaced else "function"


def _is_word(text: str) -> bool:
    """True if a text consists of letters, digits and underscores."""
    return text.replace("_", "0").isalnum()


# Kinds of host calls into the CUDA, HIP, XPU, NPU and MTIA runtimes; the first matching pattern
# wins.
LAUNCH, COPY, FILL, SYNC = "launch", "copy", "fill", "sync"
ALLOCATE, GRAPH, OTHER_CALL = "allocate", "graph", "other"
COPY_H2D, COPY_D2H = "copy H2D", "copy D2H"
# A call that would start something on the device, but was captured into a graph.
CAPTURED = "captured"
CALL_KINDS = (LAUNCH, COPY, FILL, SYNC, ALLOCATE, GRAPH, OTHER_CALL, COPY_H2D, COPY_D2H, CAPTURED)
STARTS_WORK = (LAUNCH, GRAPH, COPY, FILL)
CAPTURE = late_pattern(r"(?:cuda|cu|hip)Stream(Begin|End)Capture")
"""Calls that begin and end the capture of a graph."""
_WAITS_FOR_DEVICE = late_pattern(r"(?:cuda|cu|hip)(?:Device|Ctx)Synchronize")
_CALLS = {
    GRAPH: late_pattern(r"(?:cuda|cu|hip)GraphLaunch"),
    SYNC: late_pattern(
        r"(?:cuda|cu|hip)(?:Device|Ctx|Context|Stream|Event)Synchronize|urQueueFinish|urEventWait|"
        r"ze\w+Synchronize|aclrtSynchronize"
    ),
    COPY: late_pattern(
        r"(?:cuda|cu|hip)\w*Memcpy|urEnqueueUSMMemcpy|zeCommandListAppendMemoryCopy|aclrtMemcpy"
    ),
    FILL: late_pattern(
        r"(?:cuda|cu|hip)\w*Memset|urEnqueueUSMFill|zeCommandListAppendMemoryFill|aclrtMemset"
    ),
    ALLOCATE: late_pattern(
        r"(?:cuda|cu|hip)(?:Ext)?(?:Malloc|Free|Mem(?:Alloc|Free|Create|Map|Unmap)|"
        r"Host(?:Alloc|Free|Malloc|Register|Unregister))"
    ),
    LAUNCH: late_pattern(
        r"(?:cuda|cu|hip)\w*Launch|urEnqueueKernelLaunch|zeCommandListAppendLaunchKernel|"
        r"Launch\w*Kernel|launchKernel|runFunction\b"
    ),
}
_CALL_STARTS = ("cu", "hip", "ur", "ze", "aclrt", "Launch", "launch", "runFunction")


def waits_for_device(name: str) -> bool:
    """True if a call waits until the device has done all of its work."""
    return _WAITS_FOR_DEVICE.match(name) is not None


def call_kind(name: str) -> str:
    """The purpose of a runtime or driver call."""
    if not name.startswith(_CALL_STARTS):
        return OTHER_CALL
    return _call_kind(name)


@lru_cache(maxsize=4096)
def _call_kind(name: str) -> str:
    for kind, pattern in _CALLS.items():
        if pattern.match(name):
            return kind
    return OTHER_CALL


def launches_graph(name: str) -> bool:
    """True for a call that launches a graph."""
    return call_kind(name) == GRAPH


def launches_work(name: str) -> bool:
    """True for a call that launches a kernel or a graph."""
    return call_kind(name) in (LAUNCH, GRAPH)


def copies_or_fills(name: str) -> bool:
    """True for a call that copies or fills memory."""
    return call_kind(name) in (COPY, FILL)


def starts_work(name: str) -> bool:
    """True for a call that starts something on the device, copies and fills included."""
    return call_kind(name) in STARTS_WORK


_COLLECTIVE = late_pattern(
    r"(?:nccl|rccl|hccl|oneccl|msccl)(?:Dev|Sym|Kernel|_)|nvshmem|deep_ep|"
    r"cross_device_reduce|\ball_?reduce_|(?:one|two)_shot_all|multimem_all"
)
_COLLECTIVE_PARTS = ("ccl", "reduce", "_shot_all", "shmem", "deep_ep", "multimem")
"""Every name that `_COLLECTIVE` matches has one of these."""


def is_collective(kernel: str) -> bool:
    """True if a kernel is communication between devices, by its name."""
    candidate = any(part in kernel for part in _COLLECTIVE_PARTS)
    return candidate and bool(_COLLECTIVE.search(kernel))


_COLLECTIVE_OP = late_pattern(
    r"(?:nccl|gloo|mpi|ucc|xccl|hccl):(\w+)|c10d::_?(\w+)|_c10d_functional::(\w+)|"
    r"record_param_comms\Z"
)


def collective_op(op: str) -> bool:
    """True if an op or annotation stands for a collective: kernels in it are communication."""
    return bool(_COLLECTIVE_OP.match(op))


_VERBS = (
    "AllReduce", "AllGather", "ReduceScatter", "AllToAll", "SendRecv", "Broadcast", "Reduce",
)  # fmt: skip
_VERB_BY_LOWER_CASE = {verb.lower(): verb for verb in _VERBS}
_KERNEL_VERB = late_pattern("|".join(_VERBS), re.IGNORECASE)


@lru_cache(maxsize=4096)
def collective_name(kernel: str) -> str:
    """`AllReduce` for `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)`; else the kernel's name."""
    match = _KERNEL_VERB.search(kernel.replace("_", ""))
    if not match:
        return kernel.partition("(")[0]
    return _VERB_BY_LOWER_CASE[match.group().lower()]


MTIA_COPY = "dma_request"
"""The name of copies of MTIA devices; their direction is an arg."""
_DIRECTIONS = {"HOST_TO_DEVICE": "H2D", "DEVICE_TO_HOST": "D2H", "DEVICE_TO_DEVICE": "D2D"}


def transfer_kind(name: str, direction: str = "") -> str:
    """`H2D` for "Memcpy HtoD (Pageable -> Device)"; `other` for a copy without a direction."""
    if direction:
        return _DIRECTIONS.get(direction, copies.OTHER)
    return copies.kind(name) or copies.OTHER


DTYPE_BYTES: dict[str, int] = {
    **dict.fromkeys(("float", "int", "float32", "int32", "uint32", "c10::complex<half>"), 4),
    **dict.fromkeys(
        (
            "double",
            "long int",
            "long",
            "float64",
            "int64",
            "uint64",
            "c10::complex<float>",
            "complexfloat",
        ),
        8,
    ),
    **dict.fromkeys(
        (
            "half",
            "bfloat16",
            "c10::half",
            "c10::bfloat16",
            "short int",
            "short",
            "float16",
            "int16",
        ),
        2,
    ),
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "int8", "uint8"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(
        ("c10::float8_e5m2", "c10::float8_e4m3fn", "c10::float8_e5m2fnuz", "c10::float8_e4m3fnuz"),
        1,
    ),
    **dict.fromkeys(("c10::complex<double>", "complexdouble"), 16),
}
"""Bytes per element, by PyTorch's lower-case name of the type."""

_TYPE_16 = late_pattern(r"half|bfloat16|float16|float8|fp8", re.IGNORECASE)
_TYPE_32 = late_pattern(r"(?:^|::)(?:float|double|float32|float64)\Z|complex", re.IGNORECASE)
_WHOLE = late_pattern(r"(?:long|int|short|char|byte|bool|unsigned|signed)\b", re.IGNORECASE)
_TYPE_TEXT = late_pattern(r'"((?:[^"\\]|\\.)*)"')


def input_precision(types: str) -> int:
    """16 or 32 (also for 64) if all tensors of an op's `Input type` (JSON) are; 0 if unclear."""
    type_names = _TYPE_TEXT.findall(types)
    half = any(map(_TYPE_16.search, type_names))
    full = any(map(_TYPE_32.search, type_names))
    if half == full:
        return 0
    return 16 if half else 32


def whole_numbers(types: str) -> bool:
    """True if all tensors of an op are integers: it cannot run on Tensor Cores."""
    type_names = _TYPE_TEXT.findall(types)
    if any(map(_TYPE_16.search, type_names)) or any(map(_TYPE_32.search, type_names)):
        return False
    return any(map(_WHOLE.match, type_names))


_ELIGIBLE_NAMES = """
conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution
_convolution slow_conv3d thnn_conv2d convolution_overrideable convolution_backward
convolution_backward_overrideable _slow_conv2d_forward _slow_conv2d_backward cudnn_convolution
cudnn_convolution_transpose cudnn_convolution_relu cudnn_convolution_add_relu
cudnn_convolution_backward cudnn_convolution_backward_input cudnn_convolution_backward_weight
miopen_convolution miopen_convolution_transpose miopen_depthwise_convolution
miopen_convolution_backward miopen_convolution_backward_input miopen_convolution_backward_weight
addmm addmm_ addmv addmv_ addr matmul mm mv linear addbmm baddbmm baddbmm_ bmm chain_matmul
linalg_multi_dot linalg_matmul einsum bilinear _trilinear tensordot _addmm_activation _scaled_mm
_grouped_mm _scaled_grouped_mm linear_backward matmul_backward lstm gru rnn_tanh rnn_relu
lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _cudnn_rnn _cudnn_rnn_backward
_thnn_fused_lstm_cell _thnn_fused_gru_cell _thnn_fused_lstm_cell_backward
_thnn_fused_gru_cell_backward scaled_dot_product_attention _scaled_dot_product_flash_attention
_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention
_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention
_scaled_dot_product_cudnn_attention_backward _flash_attention_forward _flash_attention_backward
_efficient_attention_forward _efficient_attention_backward _scaled_dot_product_attention_math
_scaled_dot_product_fused_attention_overrideable _cudnn_attention_forward
_cudnn_attention_backward _native_multi_head_attention _int_mm _weight_int4pack_mm
_weight_int8pack_mm _scaled_mm_v2 _scaled_grouped_mm_v2 _cslt_sparse_mm
_sparse_semi_structured_linear _sparse_semi_structured_mm _sparse_semi_structured_addmm
miopen_rnn miopen_rnn_backward miopen_convolution_relu miopen_convolution_add_relu
_conv_depthwise2d conv_depthwise3d
"""
_ELIGIBLE = frozenset("aten::" + name for name in _ELIGIBLE_NAMES.split())


# Ops of other libraries that are products or attention.
_ELIGIBLE_ELSEWHERE = late_pattern(
    r"triton_(?:tem|mm|bmm)_|(?:flash_attn(?:_\d)?|xformers\w*|vllm|sglang|sgl_kernel|_C|"
    r"_vllm_fa\w*_C|fbgemm|transformer_engine\w*|aiter|torchao|bitsandbytes)::\w*(?:flash_attn|"
    r"attention|varlen_fwd|scaled_mm|gemm|matmul|f8f8bf16|fp8_mm|moe_wna16|fmha|mha_)"
)


def tensor_core_eligible(op: str) -> bool:
    """True for matrix products, convolutions and attention, which Tensor Cores could run."""
    return op in _ELIGIBLE or bool(_ELIGIBLE_ELSEWHERE.match(op))


_COMPILED = late_pattern(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|triton_|Call"
    r" CompiledFxGraph|inductor::"
)
_COMPILING = (
    "CachingAutotuner.benchmark",
    "_compile.compile_inner",
    "AOTDispatcher.",
    "convert_frame.",
)


def is_compiled(name: str) -> bool:
    """True if torch.compile compiled the code inside events of this name."""
    return bool(_COMPILED.match(name))


def is_compiling(name: str) -> bool:
    """True if events of this name are compilation itself."""
    return name.endswith("(dynamo_timed)") or name.startswith(_COMPILING)
