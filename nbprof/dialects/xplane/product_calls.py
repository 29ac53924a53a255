"""Calls of a program's thread that compute matrix products, convolutions or attention."""

from __future__ import annotations

import numpy as np

from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.lookups import rows_that
from nbprof.dialects.tensorcores import op_is_eligible
from nbprof.dialects.xplane.programs import EAGER_CALL, LAUNCH, called, function_of, plain

_FUNCTION = "__inference_"
"""How TensorFlow names a traced `tf.function`."""
_PRODUCTS = (
    b"\x12\x03dot",
    b"\x12\x0bconvolution",
    b"\x12\x0aragged-dot",
    b"\x12\x0ascaled-dot",
    b"__cublas$",
    b"__cudnn$",
    b"__triton_gemm",
)
"""Instructions and targets of calls, as they stand in the bytes of a program."""


def find(trace: Trace, rows: Int64s) -> Int64s:
    """The calls among some events: of eager ops, and of functions that were compiled or traced.

    JAX's functions count where their program is in the file and has such an instruction; what is
    in TensorFlow's functions is not looked at.
    """
    with_products = {
        plain(function_of(module.name.partition("(")[0]))
        for module in trace.modules
        if _has_product(module.data)
    }

    def computes(name: str) -> bool:
        if name.startswith(LAUNCH):
            return called(name) in with_products
        if not name.startswith(EAGER_CALL):
            return False
        op = name.removeprefix(EAGER_CALL)
        return op.startswith(_FUNCTION) or op_is_eligible(op, op)

    return np.sort(rows_that(trace, rows, computes))


def _has_product(program: bytes) -> bool:
    """True if a serialized program has such an instruction."""
    return any(text in program for text in _PRODUCTS)
