"""Framework op names: how `tf_op` stats and host event names are read.

Source: reproduced on real profiles against TensorFlow Profiler's tables, both of TensorFlow 2.3/2.4 and of XProf 2.24.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_TF_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*\Z")
_TF_TYPE = re.compile(r"[A-Z_][a-zA-Z0-9_]*\Z")
_JAX_TYPE = re.compile(r"[a-z_][a-z0-9_]*(\[.*\])?\Z")
_COPIES = ("MEMCPYHTOD", "MEMCPYDTOH", "MEMCPYDTOD", "MEMCPYHTOH")
_COPY_NAMES = {
    "MEMCPYHTOD": "MemcpyHToD",
    "MEMCPYDTOH": "MemcpyDToH",
    "MEMCPYDTOD": "MemcpyDToD",
    "MEMCPYHTOH": "MemcpyHToH",
}


class OpName(NamedTuple):
    """A full op name taken apart. `category` is tf, dataset, jax, copy or '' where it is no framework op."""

    category: str
    name: str
    type: str


@lru_cache(maxsize=65536)
def parse(full: str) -> OpName:
    """The name and type in `scope/name:Type`.

    Returns
    -------
    OpName
        `category` '' when the text is not the name of a framework op; `name` is then the whole text.
    """
    name, colon, kind = full.partition(":")
    if not colon:
        head = full[:10].upper()
        if head in _COPIES:
            return OpName("copy", full, _COPY_NAMES[head])
        return OpName("", full, "")
    if name == "Iterator":
        return OpName("dataset", full, "Dataset")
    if _TF_NAME.match(name) and _TF_TYPE.match(kind):
        return OpName("tf", name, kind)
    given = kind or re.sub(r"_\d+\Z", "", name.rpartition("/")[2])
    if _JAX_TYPE.match(given):
        return OpName("jax", name, given.partition("[")[0])
    if not kind:
        return OpName("tf", name, given)
    return OpName("", full, "")


def dataset_label(long_name: str) -> str:
    """The last component of an iterator's name: `Iterator::Root::Map` is a `Map`."""
    return long_name.rpartition("::")[2]


# Names of kernels that run on NVIDIA TensorCores, as the profiler of TensorFlow recognises them.
_TENSOR_CORE = (
    "16816",
    "c1688",
    "conv1x1",
    "conv2d_c1_k1",
    "dgrad_1x1_stride_2x2",
    "direct_group",
    "first_layer_wgrad_kernel",
    "h1688",
    "h884",
    "hmma",
    "i16832",
    "i8816",
    "s884",
    "s1688",
    "xmma_gemm",
    "xmma_implicit_gemm",
    "xmma_sparse_conv",
    "xmma_sparse_gemm",
    "xmma_warp_specialized_implicit_gemm",
)
_AMD_MATRIX_CORE = ("mfma", "wmma", "_xdl", "gtcx", "gemm_fusion", "miopenSp3AsmConvRage", "Custom_Cijk_")
_AMD_TILE = re.compile(r"_MI\d+x\d+x\d+")
_ELIGIBLE_END = (
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "Conv3D",
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput",
    "/MatMul",
    "FusedMatMul",
    "/CudnnRNN",
    "XlaDot",
    "XlaDotV2",
)
_ELIGIBLE_PART = (
    "BatchMatMul",
    "CudnnRNNV",
    "CudnnRNNForward",
    "CudnnRNNBackprop",
    "dot_general",
    "conv_general_dilated",
)


@lru_cache(maxsize=65536)
def uses_tensor_core(kernel: str, vendor: str) -> bool:
    """Whether a kernel runs on TensorCores (AMD: matrix cores), by its name.

    Files of TensorFlow 2.3/2.4 state no vendor; they come from NVIDIA devices.
    """
    if vendor == "AMD":
        return any(part in kernel for part in _AMD_MATRIX_CORE) or bool(_AMD_TILE.search(kernel))
    return any(part in kernel for part in _TENSOR_CORE)


@lru_cache(maxsize=65536)
def tensor_core_eligible(op: str) -> bool:
    """Whether an op could run on TensorCores, by its name."""
    return op.endswith(_ELIGIBLE_END) or any(part in op for part in _ELIGIBLE_PART)
