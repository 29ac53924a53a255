"""Operations per element of elementwise ops of compiled programs on a GPU, by element type.

As XProf 2.24 answers for programs of one op each; `tests/parity/test_hlo_cost.py` asks it again for
all of them.
"""

from __future__ import annotations

NOTHING = frozenset((
    "add-dependency", "after-all", "async-done", "async-start", "async-update", "bitcast",
    "constant", "custom-call", "domain", "get-tuple-element", "parameter", "tuple",
))  # fmt: skip
"""Ops that compute nothing and move nothing."""

ELEMENTWISE = frozenset((
    "abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan2", "atanh", "bitcast-convert",
    "cbrt", "ceil", "clamp", "clz", "compare", "complex", "convert", "cosh", "cosine",
    "count-leading-zeros", "divide", "erf", "exponential", "exponential-minus-one", "floor", "imag",
    "is-finite", "log", "log-plus-one", "logistic", "maximum", "minimum", "multiply", "negate",
    "not", "or", "popcnt", "power", "real", "reduce-precision", "remainder", "round-nearest-afz",
    "round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic",
    "shift-right-logical", "sign", "sine", "sinh", "sqrt", "stochastic-convert", "subtract", "tan",
    "tanh", "xor",
))  # fmt: skip

MOVING = frozenset((
    "all-gather", "all-gather-done", "all-gather-start", "all-reduce-done", "all-to-all",
    "batch-norm-grad", "batch-norm-inference", "batch-norm-training", "broadcast",
    "collective-broadcast", "collective-permute", "collective-permute-done",
    "collective-permute-start", "copy", "copy-done", "copy-start", "dynamic-reshape",
    "dynamic-slice", "dynamic-update-slice", "gather", "get-dimension-size", "infeed", "iota",
    "map", "opt-barrier", "optimization-barrier", "outfeed", "pad", "partition-id",
    "ragged-all-to-all", "ragged-dot", "recv", "recv-done", "reduce", "reduce-window", "replica-id",
    "reshape", "reverse", "rng", "rng-bit-generator", "rng-get-and-update-state", "scaled-dot",
    "scan", "scatter", "select-and-scatter", "send", "send-done", "set-dimension-size", "slice",
    "topk", "transpose",
))  # fmt: skip
"""Ops that count as no operations: most move values; XLA does not count the others."""

DEFAULT = 3
"""For ops and types that are not listed."""

FLOPS: dict[str, dict[str, int]] = {
    "add": {"f64": 97, "c128": 97},
    "atan2": {"f16": 482, "f32": 486, "f64": 3747, "c64": 5353, "c128": 39027},
    "cbrt": {"f16": 925, "f32": 867, "f64": 6339},
    "cosine": {"f16": 691, "f32": 662, "f64": 1717, "c128": 6613},
    "divide": {
        "s8": 370,
        "s16": 367,
        "s32": 306,
        "s64": 918,
        "u8": 306,
        "u16": 302,
        "u32": 115,
        "u64": 838,
        "f64": 2016,
        "c64": 687,
        "c128": 7941,
    },
    "exponential": {"f16": 108, "f32": 86, "f64": 1652, "c64": 1360, "c128": 4028},
    "exponential-minus-one": {"f16": 396, "f32": 381, "f64": 1900, "c64": 1400, "c128": 4161},
    "log": {"f16": 266, "f32": 244, "f64": 608, "c64": 950, "c128": 7599},
    "log-plus-one": {"f16": 284, "f32": 262, "f64": 2073, "c64": 842, "c128": 6962},
    "logistic": {"f16": 226, "f32": 176, "f64": 2412},
    "multiply": {"f64": 97, "c128": 270},
    "power": {
        "s8": 392,
        "s16": 396,
        "s64": 601,
        "u8": 388,
        "u16": 399,
        "u64": 604,
        "f16": 975,
        "f32": 925,
        "f64": 5511,
        "c64": 3351,
        "c128": 18205,
    },
    "rsqrt": {"f16": 97, "f32": 75, "f64": 698, "c64": 2383, "c128": 11318},
    "sine": {"f32": 662, "f64": 1789, "c128": 5878},
    "sqrt": {"f16": 97, "f32": 75, "f64": 986, "c64": 3193, "c128": 15606},
    "subtract": {"f64": 97, "c128": 97},
    "tanh": {"f16": 212, "f32": 190, "f64": 1609, "c128": 9939},
}
