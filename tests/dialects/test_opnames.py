from __future__ import annotations

import pytest

from nbprof.dialects.xplane.opnames import parse


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ("sequential/conv2d/Conv2D:Conv2D", ("tf", "sequential/conv2d/Conv2D", "Conv2D")),
        (
            "a-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose",
            ("tf", "a-0-TransposeNHWCToNCHW-LayoutOptimizer", "Transpose"),
        ),
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
