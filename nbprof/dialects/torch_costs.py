"""What one call of an op of PyTorch computes and moves, from what was recorded of its inputs.

Bytes are those of its inputs and outputs, each read or written once, of an expanded tensor those
that are there. Operations of products are in `torch_flops`. Elsewhere they are counted as XLA's
cost analysis does: one per element of an elementwise result or of the input of a reduction, none
for a transcendental function; for norms and softmax those of their definition. What has no formula
here is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from nbprof.dialects import torch_flops as flops_of
from nbprof.dialects.torchnames import DTYPE_BYTES

Shape = tuple[int, ...]

MATMUL, CONVOLUTION, ATTENTION = "matrix product", "convolution", "attention"
ELEMENTWISE, REDUCTION, NORM, SOFTMAX, POOLING = (
    "elementwise",
    "reduction",
    "normalization",
    "softmax",
    "pooling",
)
GATHER, COPY, FILL, NOTHING = "gather", "copy", "fill", "no work"
PRODUCTS = (MATMUL, CONVOLUTION, ATTENTION)
"""What the operations of a model are counted of."""
KINDS = (*PRODUCTS, ELEMENTWISE, REDUCTION, NORM, SOFTMAX, POOLING, GATHER, COPY, FILL, NOTHING)


class Cost(NamedTuple):
    """Operations and bytes of a call, and the type of element that it computes with."""

    flops: float
    bytes: float
    dtype: str


class UnknownError(Exception):
    """What was recorded does not tell."""


_TYPES = {
    0: "unsigned char", 1: "signed char", 2: "short int", 3: "int", 4: "long int", 5: "c10::Half", 6: "float", 7: "double",
    8: "c10::complex<half>", 9: "c10::complex<float>", 10: "c10::complex<double>", 11: "bool", 15: "c10::BFloat16",
    23: "c10::Float8_e5m2", 24: "c10::Float8_e4m3fn", 25: "c10::Float8_e5m2fnuz", 26: "c10::Float8_e4m3fnuz",
}  # fmt: skip
"""Types as arguments have them: the numbers of `c10::ScalarType`."""
_FLOATS = ("c10::Half", "c10::BFloat16", "float", "double")
_WHOLE = ("unsigned char", "signed char", "short int", "int", "long int")


@dataclass(frozen=True)
class Call:
    """The inputs of a call by position; those that are no tensor have no shape.

    Raises
    ------
    UnknownError
        By every method: it was not recorded.
    """

    name: str
    dims: tuple[object, ...]
    types: tuple[str, ...]
    strides: tuple[object, ...] = ()
    values: tuple[str, ...] = ()

    def type(self, at: int) -> str:
        """Of the elements of a tensor; "" where it is none."""
        kind = self.types[at] if at < len(self.types) else ""
        return kind if kind.lower() in DTYPE_BYTES else ""

    def shape(self, at: int) -> Shape:
        """Of a tensor."""
        if not self.type(at):
            raise UnknownError
        return _numbers(self.dims[at])

    def read(self, *at: int) -> int:
        """Bytes of tensors; 0 of optional ones that were not given."""
        out = 0
        for i in at:
            if i < len(self.types) and self.types[i] == "":
                continue
            shape = self.shape(i)
            step = _numbers(self.strides[i]) if i < len(self.strides) else ()
            # What a stride of 0 repeats is there once.
            there = (
                [n for n, s in zip(shape, step, strict=True) if s]
                if len(step) == len(shape)
                else shape
            )
            out += prod(there) * width(self.type(i))
        return out

    def every(self, least: int = 0) -> int:
        """Bytes of all tensors."""
        if any(kind.endswith("List") and kind != "ScalarList" for kind in self.types):
            raise UnknownError
        return self.read(*(i for i in range(least, len(self.types)) if self.type(i)))

    def value(self, at: int) -> str:
        """An argument that is no tensor; "" where it was left out."""
        if not self.values:
            raise UnknownError
        return self.values[at] if at < len(self.values) else ""

    def numbers(self, at: int) -> Shape:
        """A list of whole numbers."""
        value = self.value(at)
        return _numbers(json.loads(value) if value.startswith("[") else [int(value)])

    def flags(self, at: int) -> list[bool]:
        """A list of truth values."""
        return [word.strip() == "True" for word in self.value(at).strip("[]").split(",")]

    def flag(self, at: int) -> bool:
        """A truth value."""
        value = self.value(at)
        if value not in ("True", "False"):
            raise UnknownError
        return value == "True"

    def out_type(self, at: int, otherwise: str) -> str:
        """A type among the arguments."""
        value = self.value(at)
        if not value:
            return otherwise
        return _TYPES[int(value)]


def width(kind: str) -> int:
    """Bytes of an element."""
    return DTYPE_BYTES[kind.lower()]


def _numbers(value: object) -> Shape:
    if not isinstance(value, list | tuple) or not all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    ):
        raise UnknownError
    return tuple(value)


Formula = Callable[[Call], Cost]


def _product(
    of: Callable[[Shape, Shape], int],
    a: int,
    b: int,
    out: Callable[[Shape, Shape], Shape],
    *more: int,
) -> Formula:
    """A matrix product of two inputs; `more` are further ones that are read."""

    def cost(call: Call) -> Cost:
        left, right = call.shape(a), call.shape(b)
        kind = call.type(a)
        made = width(
            "int"
            if call.name == "_int_mm"
            else call.out_type(6, kind)
            if call.name == "_scaled_mm"
            else kind
        )
        flops = of(left, right)
        return Cost(flops, call.read(a, b, *more) + prod(out(left, right)) * made, kind)

    return cost


def _mm_out(a: Shape, b: Shape) -> Shape:
    return (*a[:-1], b[-1])


def _summed_out(a: Shape, b: Shape) -> Shape:
    return a[1], b[2]


class _Places(NamedTuple):
    """Where the arguments of a convolution stand; `transposed` is a place, or what it is."""

    bias: int
    stride: int
    padding: int
    dilation: int
    transposed: int | bool = False
    output_padding: int = -1
    groups: int = -1


_FORWARD = _Places(2, 3, 4, 5, 6, 7, 8)
_CUDNN = _Places(-1, 3, 2, 4)
_DILATED = _Places(3, 4, 5, 6)
_CONVOLUTIONS = {
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _FORWARD),
    "cudnn_convolution": _CUDNN,
    "cudnn_convolution_relu": _Places(2, 3, 4, 5),
    **dict.fromkeys(
        ("miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution"),
        _Places(2, 4, 3, 5),
    ),
    **dict.fromkeys(
        ("_slow_conv2d_forward", "thnn_conv2d", "slow_conv3d_forward"), _Places(3, 4, 5, -1)
    ),
    **dict.fromkeys(
        ("_conv_depthwise2d", "conv_depthwise3d", "slow_conv_dilated2d", "slow_conv_dilated3d"),
        _DILATED,
    ),
    "cudnn_convolution_transpose": _Places(-1, 4, 2, 5, True, 3, 6),
    "miopen_convolution_transpose": _Places(2, 5, 3, 6, True, 4, 7),
}


def _convolution(places: _Places) -> Formula:
    def cost(call: Call) -> Cost:
        x, weight = call.shape(0), call.shape(1)
        if len(x) != len(weight) or len(x) < 3:
            raise UnknownError
        transposed = (
            places.transposed
            if isinstance(places.transposed, bool)
            else call.flag(places.transposed)
        )
        rank = len(x) - 2

        def of(place: int, default: int) -> Shape:
            given = call.numbers(place) if place >= 0 else (default,)
            return given * rank if len(given) == 1 else given

        stride, padding, dilation = (
            of(places.stride, 1),
            of(places.padding, 0),
            of(places.dilation, 1),
        )
        if transposed:
            more, groups = of(places.output_padding, 0), call.numbers(places.groups)[0]
            made = tuple(
                (n - 1) * s - 2 * p + d * (k - 1) + m + 1
                for n, k, s, p, d, m in zip(
                    x[2:], weight[2:], stride, padding, dilation, more, strict=True
                )
            )
            out = (x[0], weight[1] * groups, *made)
        else:
            made = tuple(
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, k, s, p, d in zip(x[2:], weight[2:], stride, padding, dilation, strict=True)
            )
            out = (x[0], weight[0], *made)
        _numbers(out)
        kind = call.type(0)
        read = call.read(0, 1, *([places.bias] if places.bias >= 0 else []))
        return Cost(
            flops_of.convolution(x, weight, out, transposed=transposed),
            read + prod(out) * width(kind),
            kind,
        )

    return cost


def _convolution_backward(call: Call) -> Cost:
    out, x, weight = (call.shape(i) for i in range(3))
    mask, kind = call.flags(10), call.type(0)
    made = prod(x) * mask[0] + prod(weight) * mask[1] + out[1] * mask[2]
    flops = flops_of.convolution_backward(
        out, x, weight, mask, call.numbers(9)[0], transposed=call.flag(7)
    )
    return Cost(flops, call.read(0, 1, 2) + made * width(kind), kind)


def _heads_first(shape: Shape) -> Shape:
    """(batch, length, heads, depth) as (batch, heads, length, depth)."""
    b, length, heads, depth = shape
    return b, heads, length, depth


def _attention(
    *, lengths_first: bool = False, ragged: tuple[int, ...] = (), more: tuple[int, ...] = ()
) -> Formula:
    """Query, key and value are the first inputs; where those of `ragged` are given, the lengths are
    not in the shapes.
    """

    def cost(call: Call) -> Cost:
        _dense(call, ragged)
        q, k, v = (call.shape(i) for i in range(3))
        if lengths_first:
            q, k, v = _heads_first(q), _heads_first(k), _heads_first(v)
        kind = call.type(0)
        return Cost(
            flops_of.attention(q, k, v),
            call.read(0, 1, 2, *more) + prod((*q[:3], v[3])) * width(kind),
            kind,
        )

    return cost


def _attention_backward(
    *, lengths_first: bool = False, ragged: tuple[int, ...] = (), rest: int = 4
) -> Formula:
    """The gradient of the output comes first, then query, key, value; from `rest` on what else is
    read.
    """

    def cost(call: Call) -> Cost:
        _dense(call, ragged)
        shapes = [call.shape(i) for i in range(4)]
        if lengths_first:
            shapes = [_heads_first(shape) for shape in shapes]
        kind = call.type(1)
        made = sum(prod(shape) for shape in shapes[1:]) * width(kind)
        return Cost(
            flops_of.attention_backward(*shapes),
            call.read(0, 1, 2, 3) + call.every(rest) + made,
            kind,
        )

    return cost


def _dense(call: Call, ragged: Sequence[int]) -> None:
    if any(call.type(i) for i in ragged):
        raise UnknownError


_ATTENTION = {
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_attention_math_for_mps",
        ),
        _attention(),
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
        _attention(more=(3,)),
    ),
    "_cudnn_attention_forward": _attention(ragged=(4, 5), more=(3,)),
    "_flash_attention_forward": _attention(lengths_first=True, ragged=(3, 4)),
    "_efficient_attention_forward": _attention(lengths_first=True, ragged=(4, 5), more=(3,)),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        _attention_backward(),
    ),
    "_cudnn_attention_backward": _attention_backward(ragged=(9, 10)),
    "_flash_attention_backward": _attention_backward(lengths_first=True, ragged=(6, 7)),
    "_efficient_attention_backward": _attention_backward(lengths_first=True, ragged=(6, 7)),
}

_UNARY = """
abs acos acosh angle asin asinh atan atanh bitwise_not ceil celu conj_physical cos cosh deg2rad
digamma elu erf erfc erfinv exp exp2 expm1 floor frac gelu hardshrink hardsigmoid hardswish hardtanh
i0 isfinite isinf isnan isneginf isposinf leaky_relu lgamma log log10 log1p log2 logical_not logit
mish nan_to_num neg positive rad2deg reciprocal relu relu6 round rsqrt rsub selu sgn sigmoid sign
signbit silu sin sinc sinh softplus softshrink sqrt square tan tanh threshold trunc log_sigmoid
"""
_BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clamp_max
clamp_min copysign div elu_backward eq fmax fmin floor_divide fmod ge gelu_backward glu_backward gt
hardsigmoid_backward hardswish_backward hardtanh_backward heaviside hypot le leaky_relu_backward
logaddexp logaddexp2 logical_and logical_or logical_xor lt masked_fill maximum minimum mish_backward
mul native_dropout_backward ne nextafter pow remainder sigmoid_backward silu_backward
softplus_backward sub tanh_backward threshold_backward true_divide xlogy __and__ __or__ __xor__
"""
_TERNARY = "addcdiv addcmul clamp lerp where"
_POINTWISE = {
    **dict.fromkeys(_UNARY.split(), 1),
    **dict.fromkeys(_BINARY.split(), 2),
    **dict.fromkeys(_TERNARY.split(), 3),
}
"""Elementwise ops, and how many of their first arguments may be tensors: one behind them is the
output (`out=`).
"""
_TRUTHS = (
    "isfinite isinf isnan isneginf isposinf logical_not logical_and logical_or logical_xor signbit"  # noqa: SIM905
    " eq ge gt le lt ne".split()
)
_KEEPS_WHOLE = frozenset(
    """
    abs add bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    clamp clamp_max clamp_min floor_divide fmod masked_fill maximum minimum mul neg positive pow
    relu remainder rsub sgn sign square sub where __and__ __or__ __xor__ threshold
    """.split()  # noqa: SIM905 - a list of words reads better without a hundred quotes
)
"""Elementwise ops that make whole numbers of whole numbers; most others make float32 of them."""


def _elementwise(tensors: int) -> Formula:
    def cost(call: Call) -> Cost:
        base = call.name.removesuffix("_") if not call.name.endswith("__") else call.name
        given = [i for i in range(min(tensors, len(call.types))) if call.type(i)]
        behind = [i for i in range(tensors, len(call.types)) if call.type(i)]
        out = _broadcast([call.shape(i) for i in given])
        values = given[1:] if base == "where" else given
        if call.name != base:
            kind = call.type(0)
        elif behind:
            kind, out = call.type(behind[-1]), call.shape(behind[-1])
        elif base in _TRUTHS:
            kind = "bool"
        elif base == "masked_fill":
            kind = call.type(0)
        else:
            kind = _promoted(call, values, tensors)
            if (kind in _WHOLE or kind == "bool") and base not in _KEEPS_WHOLE:
                raise UnknownError
        return Cost(prod(out), call.read(*given) + prod(out) * width(kind), kind)

    return cost


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    if not shapes:
        raise UnknownError
    rank = max(map(len, shapes))
    out = []
    for column in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        sizes = {n for n in column if n != 1} or {1}
        if len(sizes) > 1:
            raise UnknownError
        out.append(sizes.pop())
    return tuple(out)


def _promoted(call: Call, given: Sequence[int], tensors: int) -> str:
    """The type that PyTorch computes with: of the tensors with dimensions, where those without and
    numbers are of no higher kind.

    Source: "Type promotion" of PyTorch's documentation (tensor attributes).
    """
    full = [call.type(i) for i in given if call.shape(i)]
    kinds = full or [call.type(i) for i in given]
    if not kinds:
        raise UnknownError
    out = kinds[0]
    for kind in kinds[1:]:
        out = _wider(out, kind)
    rest = [call.type(i) for i in given if not call.shape(i)]
    rest += [
        "float"
        for i in range(1, tensors)
        if call.types[i : i + 1] == ("Scalar",) and not call.value(i).lstrip("-").isdigit()
    ]
    if max((_level(kind) for kind in rest), default=0) > _level(out):
        if any(kind == "double" for kind in rest if _level(kind) > _level(out)):
            # A number of Python, or a tensor of one: float32 or float64.
            raise UnknownError
        return next(kind for kind in rest if _level(kind) == max(map(_level, rest)))
    return out


def _level(kind: str) -> int:
    return 0 if kind == "bool" else 1 if kind in _WHOLE else 2 if kind in _FLOATS else 3


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    if _level(a) != _level(b):
        return a if _level(a) > _level(b) else b
    if {a, b} == {"c10::Half", "c10::BFloat16"}:
        return "float"
    known = (
        _FLOATS
        if a in _FLOATS and b in _FLOATS
        else _WHOLE
        if "unsigned char" not in (a, b)
        else ()
    )
    if a not in known or b not in known:
        raise UnknownError
    return known[max(known.index(a), known.index(b))]


def _reduction(
    dims: int, *, dtype: int = -1, to: str = "", whole: str = "", two: bool = False
) -> Formula:
    """Over the dimensions in one argument, all of them where it is left out.

    Parameters
    ----------
    dims, dtype : int
        Where the dimensions and the type of the result stand; -1 for nowhere.
    to : str
        The type of the result, where it is no number of the input's type.
    whole : str
        The type of the result of whole numbers.
    two : bool
        Whether there is a second result: where the first was found, int64.
    """

    def cost(call: Call) -> Cost:
        shape, kind = call.shape(0), call.type(0)
        made = to or (whole if whole and (kind in _WHOLE or kind == "bool") else kind)
        behind = [i for i in range(1, len(call.types)) if call.type(i)]
        if behind and two:
            # Of two tensors, or with two outputs.
            raise UnknownError
        if behind:
            left, made = prod(call.shape(behind[-1])), call.type(behind[-1])
        else:
            given = call.value(dims) if dims < len(call.types) else ""
            if dtype >= 0 and dtype < len(call.types):
                made = call.out_type(dtype, made)
            elif dims < len(call.types) and len(call.types) == 2 and dtype >= 0 and given.isdigit():
                # The overload without dimensions: the type stands in their place.
                made, given = _TYPES[int(given)], ""
            over = {n % len(shape) for n in _signed(given)} if given and shape else set()
            left = prod(n for i, n in enumerate(shape) if over and i not in over)
            if not over:
                left = 1
        size = left * width(made) + (left * 8 if two and dims < len(call.types) else 0)
        return Cost(prod(shape), call.read(0) + size, kind)

    return cost


def _signed(value: str) -> list[int]:
    found = json.loads(value) if value.startswith("[") else [int(value)]
    return [int(n) for n in found]


_REDUCTIONS = {
    "sum": _reduction(1, dtype=3, whole="long int"),
    "nansum": _reduction(1, dtype=3, whole="long int"),
    "mean": _reduction(1, dtype=3),
    "amax": _reduction(1),
    "amin": _reduction(1),
    "max": _reduction(1, two=True),
    "min": _reduction(1, two=True),
    "argmax": _reduction(1, to="long int"),
    "argmin": _reduction(1, to="long int"),
    "any": _reduction(1, to="bool"),
    "all": _reduction(1, to="bool"),
    "linalg_vector_norm": _reduction(2, dtype=4),
}


def _per_element(operations: int, main: int = 0, *, out: int | None = None) -> Formula:
    """What reads all its tensors and writes one like an input: `operations` for each element of the
    `main` one.
    """

    def cost(call: Call) -> Cost:
        kind = call.type(main)
        made = call.shape(main if out is None else out)
        return Cost(
            operations * prod(call.shape(main)), call.every() + prod(made) * width(kind), kind
        )

    return cost


def _softmax(operations: int) -> Formula:
    def cost(call: Call) -> Cost:
        kind = call.type(0)
        made = "float" if call.flag(2) else kind
        return Cost(
            operations * prod(call.shape(0)), call.read(0) + prod(call.shape(0)) * width(made), kind
        )

    return cost


def _softmax_backward(operations: int) -> Formula:
    def cost(call: Call) -> Cost:
        return Cost(
            operations * prod(call.shape(0)),
            call.read(0, 1) + prod(call.shape(1)) * width(call.out_type(3, call.type(0))),
            call.type(0),
        )

    return cost


def _norm(statistics: Callable[[Call], int], operations: int) -> Formula:
    """Norms of their first input, which leave statistics in float32 (float64 of float64) for the
    backward pass.
    """

    def cost(call: Call) -> Cost:
        shape, kind = call.shape(0), call.type(0)
        kept = statistics(call) * max(4, width(kind))
        return Cost(operations * prod(shape), call.every() + prod(shape) * width(kind) + kept, kind)

    return cost


def _rows(call: Call) -> int:
    """Means and deviations of a layer norm."""
    shape = call.shape(0)
    return 2 * prod(shape[: len(shape) - len(call.numbers(1))])


def _norm_backward(x: int, operations: int, more: Callable[[Call], int]) -> Formula:
    """The gradient of the input, and `more` elements of the gradients of weight and bias."""

    def cost(call: Call) -> Cost:
        kind, shape = call.type(x), call.shape(x)
        return Cost(
            operations * prod(shape), call.every() + (prod(shape) + more(call)) * width(kind), kind
        )

    return cost


def _pooled(call: Call) -> Cost:
    x, kernel, stride = call.shape(0), call.numbers(1), call.value(2)
    rank = len(kernel)
    step = call.numbers(2) if stride not in ("", "[]") else kernel
    padding, dilation = call.numbers(3), call.numbers(4)
    if (
        call.flag(5)
        or len(x) <= rank
        or not len(kernel) == len(step) == len(padding) == len(dilation)
    ):
        raise UnknownError
    sizes = zip(x[-rank:], kernel, step, padding, dilation, strict=True)
    out = (*x[:-rank], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes))
    kind = call.type(0)
    _numbers(out)
    return Cost(prod(out) * prod(kernel), call.read(0) + prod(out) * (width(kind) + 8), kind)


def _gathered(table: int, index: int) -> Formula:
    """Rows of a table: those that are read, the indices, and what they make."""

    def cost(call: Call) -> Cost:
        shape, kind = call.shape(table), call.type(table)
        dimension = (
            _signed(call.value(1))[0] % max(len(shape), 1) if call.name == "index_select" else 0
        )
        size = (
            prod(call.shape(index))
            * prod(shape[:dimension])
            * prod(shape[dimension + 1 :])
            * width(kind)
        )
        return Cost(0.0, call.read(index) + 2 * size, kind)

    return cost


def _embedding_backward(call: Call) -> Cost:
    grad = call.shape(0)
    made = call.numbers(2)[0] * grad[-1] * width(call.type(0))
    # Each element of the gradient is added to one of the table's.
    return Cost(prod(grad), call.read(0, 1) + made, call.type(0))


def _squared_error(call: Call) -> Cost:
    shape, kind = call.shape(0), call.type(0)
    return Cost(
        3 * prod(shape),
        call.read(0, 1) + (1 if call.numbers(2)[0] else prod(shape)) * width(kind),
        kind,
    )


def _copied(call: Call) -> Cost:
    return Cost(0.0, prod(call.shape(0)) * width(call.type(0)) + call.read(1), call.type(0))


def _filled(call: Call) -> Cost:
    return Cost(0.0, prod(call.shape(0)) * width(call.type(0)), call.type(0))


def _dropped(call: Call) -> Cost:
    size, kind = prod(call.shape(0)), call.type(0)
    return Cost(size, call.read(0) + size * (width(kind) + 1), kind)


def _nothing(_call: Call) -> Cost:
    return Cost(0.0, 0.0, "")


def _affine(weight: int, mask: int) -> Callable[[Call], int]:
    """Elements of the gradients of weight and bias, of a norm that states which it was asked
    for.
    """

    def count(call: Call) -> int:
        asked = call.flags(mask)
        return prod(call.shape(weight)) * sum(asked[1:]) if call.type(weight) else 0

    return count


_NORMS = {
    "native_layer_norm": _norm(_rows, 7),
    "native_batch_norm": _norm(lambda call: 2 * call.shape(0)[1], 7),
    "cudnn_batch_norm": _norm(lambda call: 2 * call.shape(0)[1], 7),
    "miopen_batch_norm": _norm(lambda call: 2 * call.shape(0)[1], 7),
    "native_group_norm": _norm(lambda call: 2 * call.numbers(3)[0] * call.numbers(6)[0], 7),
    "native_layer_norm_backward": _norm_backward(1, 13, _affine(5, 7)),
    "native_batch_norm_backward": _norm_backward(1, 13, _affine(2, 9)),
    "cudnn_batch_norm_backward": _norm_backward(0, 13, lambda call: 2 * prod(call.shape(2))),
    "miopen_batch_norm_backward": _norm_backward(0, 13, lambda call: 2 * prod(call.shape(2))),
    "native_group_norm_backward": _norm_backward(1, 13, _affine(4, 9)),
}
_FILLS = "fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_"
_FREE = """
view reshape _reshape_alias _unsafe_view t transpose transpose_ permute expand expand_as as_strided
as_strided_ unsqueeze unsqueeze_ squeeze squeeze_ select slice narrow split split_with_sizes chunk
unbind detach detach_ alias view_as movedim swapaxes unfold diagonal numpy_T empty empty_like
empty_strided new_empty new_empty_strided resize_ resize_as_ set_ resolve_conj resolve_neg
lift_fresh result_type is_nonzero can_cast cudnn_is_acceptable size stride view_as_real
view_as_complex
"""
_COMPOSED = """
matmul einsum conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
scaled_dot_product_attention _scaled_dot_product_attention_math lstm gru batch_norm
_batch_norm_impl_index layer_norm group_norm rms_norm softmax log_softmax _safe_softmax
cross_entropy_loss nll_loss nll_loss_nd dropout embedding_backward max_pool2d adaptive_avg_pool2d to
_to_copy type_as contiguous flatten zeros ones full zeros_like ones_like full_like new_zeros
new_ones new_full scalar_tensor rand randn randint rand_like randn_like stack
"""
"""Ops that only call others, which have formulas of their own or are unknown themselves."""

_FORMULAS: dict[str, tuple[str, Formula]] = {
    **{name: (ELEMENTWISE, _elementwise(count)) for name, count in _POINTWISE.items()},
    "mm": (MATMUL, _product(flops_of.mm, 0, 1, _mm_out)),
    "_scaled_mm": (MATMUL, _product(flops_of.mm, 0, 1, _mm_out, 2, 3, 4)),
    "_int_mm": (MATMUL, _product(flops_of.mm, 0, 1, _mm_out)),
    "addmm": (MATMUL, _product(flops_of.mm, 1, 2, _mm_out, 0)),
    "_addmm_activation": (MATMUL, _product(flops_of.mm, 1, 2, _mm_out, 0)),
    "bmm": (MATMUL, _product(flops_of.bmm, 0, 1, _mm_out)),
    "baddbmm": (MATMUL, _product(flops_of.bmm, 1, 2, _mm_out, 0)),
    "addbmm": (MATMUL, _product(flops_of.bmm, 1, 2, _summed_out, 0)),
    "linear": (MATMUL, _product(flops_of.linear, 0, 1, lambda x, w: (*x[:-1], w[0]), 2)),
    "mv": (MATMUL, _product(flops_of.mv, 0, 1, lambda a, _x: a[:1])),
    "addmv": (MATMUL, _product(flops_of.mv, 1, 2, lambda a, _x: a[:1], 0)),
    "dot": (MATMUL, _product(flops_of.dot, 0, 1, lambda _x, _y: ())),
    **{name: (CONVOLUTION, _convolution(places)) for name, places in _CONVOLUTIONS.items()},
    "convolution_backward": (CONVOLUTION, _convolution_backward),
    **{name: (ATTENTION, formula) for name, formula in _ATTENTION.items()},
    **{name: (REDUCTION, formula) for name, formula in _REDUCTIONS.items()},
    **{name: (NORM, formula) for name, formula in _NORMS.items()},
    "_softmax": (SOFTMAX, _softmax(4)),
    "_log_softmax": (SOFTMAX, _softmax(4)),
    "_softmax_backward_data": (SOFTMAX, _softmax_backward(4)),
    "_log_softmax_backward_data": (SOFTMAX, _softmax_backward(3)),
    "max_pool2d_with_indices": (POOLING, _pooled),
    "max_pool2d_with_indices_backward": (POOLING, _per_element(1, 1)),
    "avg_pool2d_backward": (POOLING, _per_element(1, 1)),
    "_adaptive_avg_pool2d_backward": (POOLING, _per_element(1, 1)),
    "mse_loss": (REDUCTION, _squared_error),
    "mse_loss_backward": (ELEMENTWISE, _per_element(3, 1)),
    "embedding": (GATHER, _gathered(0, 1)),
    "index_select": (GATHER, _gathered(0, 2)),
    "embedding_dense_backward": (GATHER, _embedding_backward),
    "cumsum": (REDUCTION, _per_element(1)),
    "tril": (COPY, _per_element(0)),
    "triu": (COPY, _per_element(0)),
    "flip": (COPY, _per_element(0)),
    "roll": (COPY, _per_element(0)),
    "clone": (COPY, _per_element(0)),
    "copy_": (COPY, _copied),
    "native_dropout": (ELEMENTWISE, _dropped),
    **dict.fromkeys(_FILLS.split(), (FILL, _filled)),
    **dict.fromkeys((_FREE + _COMPOSED).split(), (NOTHING, _nothing)),
}
_ATEN = "aten::"


def kind(name: str) -> str:
    """What an op does, one of the words above; "" where it has no formula."""
    found = _formula(name)
    return found[0] if found else ""


def _formula(name: str) -> tuple[str, Formula] | None:
    if not name.startswith(_ATEN):
        return None
    base = name[len(_ATEN) :]
    # What an op does in place it does otherwise, too.
    return _FORMULAS.get(base) or (
        _FORMULAS.get(base[:-1]) if base.endswith("_") and not base.endswith("__") else None
    )


def cost(name: str, dims: str, types: str, strides: str = "", values: str = "") -> Cost | None:
    """What a call of an op computes and moves; None where that is unknown.

    Parameters
    ----------
    name : str
    dims, types, strides, values : str
        `Input Dims`, `Input type`, `Input Strides` and `Concrete Inputs` of the trace, as JSON; ""
        where they were not recorded.
    """
    found = _formula(name)
    if found is None:
        return None
    if found[0] == NOTHING:
        return Cost(0.0, 0.0, "")
    try:
        call = Call(
            name[len(_ATEN) :],
            *(tuple(json.loads(text)) if text else () for text in (dims, types, strides, values)),
        )
        computed, moved, dtype = found[1](call)
        return Cost(float(computed), float(moved), dtype)
    except (
        UnknownError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        ZeroDivisionError,
        RecursionError,
    ):
        # What does not fit its formula may be an overload that has another one, or damaged: nobody
        # knows.
        return None
