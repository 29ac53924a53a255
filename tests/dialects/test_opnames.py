from __future__ import annotations

import pytest

from nbprof.dialects.opnames import parse, tensor_core_eligible, uses_tensor_core


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ("sequential/conv2d/Conv2D:Conv2D", ("tf", "sequential/conv2d/Conv2D", "Conv2D")),
        ("a-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose", ("tf", "a-0-TransposeNHWCToNCHW-LayoutOptimizer", "Transpose")),
        ("Iterator::Root::Map", ("dataset", "Iterator::Root::Map", "Dataset")),
        ("jit(f)/jit(main)/dot_general:", ("jax", "jit(f)/jit(main)/dot_general", "dot_general")),
        ("jit(f)/reduce_sum_3:", ("jax", "jit(f)/reduce_sum_3", "reduce_sum")),
        ("MemcpyHToD", ("copy", "MemcpyHToD", "MemcpyHToD")),
        ("TFE_Py_Execute", ("", "TFE_Py_Execute", "")),
        ("what ever:is this", ("", "what ever:is this", "")),
    ],
)
def test_op_names(full, expected):
    assert tuple(parse(full)) == expected


def test_tensor_cores_by_vendor():
    assert uses_tensor_core("volta_fp16_s884gemm", "")
    assert uses_tensor_core("volta_fp16_s884gemm", "Nvidia")
    assert not uses_tensor_core("volta_fp16_s884gemm", "AMD")
    assert uses_tensor_core("Cijk_Ailk_MI16x16x16x1_SN", "AMD")
    assert tensor_core_eligible("model/dense/MatMul")
    assert not tensor_core_eligible("MatMulish")
