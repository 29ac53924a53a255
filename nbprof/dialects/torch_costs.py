"""Operations and bytes of a call of a PyTorch op, from the recorded inputs.

Each input and output is read or written once; of an expanded tensor only the stored elements count.
Operations of products are in `torch_flops`. Elsewhere they are counted as XLA's cost analysis does:
one per element of an elementwise result or of the input of a reduction, none for a transcendental
function; for norms and softmax those of their definition. The cost of an op without a formula is
unknown.
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
ELEMENTWISE, REDUCTION, NORM = "elementwise", "reduction", "normalization"
SOFTMAX, POOLING = "softmax", "pooling"
GATHER, COPY, FILL, NOTHING = "gather", "copy", "fill", "no work"
PRODUCTS = (MATMUL, CONVOLUTION, ATTENTION)
"""Kinds whose operations are counted as those of a model."""
KINDS = (*PRODUCTS, ELEMENTWISE, REDUCTION, NORM, SOFTMAX, POOLING, GATHER, COPY, FILL, NOTHING)


class Cost(NamedTuple):
    """Operations and bytes of a call, and the type of element that it computes with."""

    flops: float
    bytes: float
    dtype: str


class UnknownError(Exception):
    """The recorded inputs do not determine the cost."""


_TYPES = {
    0: "unsigned char",
    1: "signed char",
    2: "short int",
    3: "int",
    4: "long int",
    5: "c10::Half",
    6: "float",
    7: "double",
    8: "c10::complex<half>",
    9: "c10::complex<float>",
    10: "c10::complex<double>",
    11: "bool",
    15: "c10::BFloat16",
    23: "c10::Float8_e5m2",
    24: "c10::Float8_e4m3fn",
    25: "c10::Float8_e5m2fnuz",
    26: "c10::Float8_e4m3fnuz",
}
"""Element types by their number in `c10::ScalarType`, as arguments state them."""
_FLOATS = ("c10::Half", "c10::BFloat16", "float", "double")
_INTEGERS = ("unsigned char", "signed char", "short int", "int", "long int")


@dataclass(frozen=True)
class Call:
    """The inputs of a call by position; inputs that are not tensors have no shape.

    Every method raises `UnknownError` if what it reads was not recorded.
    """

    name: str
    dims: tuple[object, ...]
    types: tuple[str, ...]
    strides: tuple[object, ...] = ()
    values: tuple[str, ...] = ()

    def type(self, index: int) -> str:
        """Element type of a tensor; "" if the argument is not a tensor."""
        if index < len(self.types) and self.types[index].lower() in DTYPE_BYTES:
            return self.types[index]
        return ""

    def tensors(self, first: int, behind: int | None = None) -> list[int]:
        """Positions of the tensors from one position up to another."""
        positions = range(len(self.types))[first:behind]
        return [position for position in positions if self.type(position)]

    def shape(self, index: int) -> Shape:
        """Sizes of the dimensions of a tensor."""
        if not self.type(index):
            raise UnknownError
        return _numbers(self.dims[index])

    def read(self, *indices: int) -> int:
        """Bytes of tensors; 0 for optional ones that were left out."""
        total = 0
        for i in indices:
            if i < len(self.types) and self.types[i] == "":
                continue
            total += prod(self._stored(i)) * width(self.type(i))
        return total

    def _stored(self, index: int) -> Sequence[int]:
        """Dimensions of the stored elements: a dimension of stride 0 repeats them."""
        shape = self.shape(index)
        if index >= len(self.strides):
            return shape
        strides = _numbers(self.strides[index])
        if len(strides) != len(shape):
            return shape
        return [size for size, stride in zip(shape, strides, strict=True) if stride]

    def every(self, least: int = 0) -> int:
        """Bytes of all tensors."""
        if any(kind.endswith("List") and kind != "ScalarList" for kind in self.types):
            raise UnknownError
        return self.read(*self.tensors(least))

    def value(self, index: int) -> str:
        """An argument that is not a tensor; "" if it was left out."""
        if not self.values:
            raise UnknownError
        return self.values[index] if index < len(self.values) else ""

    def numbers(self, index: int) -> Shape:
        """A list of integers."""
        value = self.value(index)
        if value.startswith("["):
            return _numbers(json.loads(value))
        return _numbers([int(value)])

    def flags(self, index: int) -> list[bool]:
        """A list of booleans."""
        words = self.value(index).strip("[]").split(",")
        return [word.strip() == "True" for word in words]

    def flag(self, index: int) -> bool:
        """A boolean."""
        value = self.value(index)
        if value not in ("True", "False"):
            raise UnknownError
        return value == "True"

    def out_type(self, index: int, otherwise: str) -> str:
        """An element type that is an argument; `otherwise` if it was left out."""
        value = self.value(index)
        if not value:
            return otherwise
        return _TYPES[int(value)]


def width(kind: str) -> int:
    """Bytes of an element."""
    return DTYPE_BYTES[kind.lower()]


def _numbers(value: object) -> Shape:
    """A list of sizes or positions."""
    if not isinstance(value, list | tuple):
        raise UnknownError
    for number in value:
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise UnknownError
    return tuple(value)


Formula = Callable[[Call], Cost]


def _product(
    flops: Callable[[Shape, Shape], int],
    a: int,
    b: int,
    output: Callable[[Shape, Shape], Shape],
    *more: int,
) -> Formula:
    """A matrix product of the inputs `a` and `b`; the inputs `more` are read as well."""

    def cost(call: Call) -> Cost:
        left, right = call.shape(a), call.shape(b)
        kind = call.type(a)
        written = prod(output(left, right)) * width(_product_type(call, kind))
        return Cost(flops(left, right), call.read(a, b, *more) + written, kind)

    return cost


def _product_type(call: Call, kind: str) -> str:
    """Element type of the result of a matrix product."""
    if call.name == "_int_mm":
        return "int"
    if call.name == "_scaled_mm":
        return call.out_type(6, kind)
    return kind


def _mm_out(a: Shape, b: Shape) -> Shape:
    return (*a[:-1], b[-1])


def _summed_out(a: Shape, b: Shape) -> Shape:
    return a[1], b[2]


class _Positions(NamedTuple):
    """Positions of the arguments of a convolution; `transposed` may be the value itself."""

    bias: int
    stride: int
    padding: int
    dilation: int
    transposed: int | bool = False
    output_padding: int = -1
    groups: int = -1


_FORWARD = _Positions(2, 3, 4, 5, 6, 7, 8)
_CUDNN = _Positions(-1, 3, 2, 4)
_DILATED = _Positions(3, 4, 5, 6)
_CONVOLUTIONS = {
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _FORWARD),
    "cudnn_convolution": _CUDNN,
    "cudnn_convolution_relu": _Positions(2, 3, 4, 5),
    **dict.fromkeys(
        ("miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution"),
        _Positions(2, 4, 3, 5),
    ),
    **dict.fromkeys(
        ("_slow_conv2d_forward", "thnn_conv2d", "slow_conv3d_forward"), _Positions(3, 4, 5, -1)
    ),
    **dict.fromkeys(
        ("_conv_depthwise2d", "conv_depthwise3d", "slow_conv_dilated2d", "slow_conv_dilated3d"),
        _DILATED,
    ),
    "cudnn_convolution_transpose": _Positions(-1, 4, 2, 5, True, 3, 6),
    "miopen_convolution_transpose": _Positions(2, 5, 3, 6, True, 4, 7),
}


def _convolution(positions: _Positions) -> Formula:
    def cost(call: Call) -> Cost:
        x, weight = call.shape(0), call.shape(1)
        if len(x) != len(weight) or len(x) < 3:
            raise UnknownError
        transposed = positions.transposed
        if not isinstance(transposed, bool):
            transposed = call.flag(transposed)
        rank = len(x) - 2

        def argument(position: int, default: int) -> Shape:
            if position < 0:
                return (default,) * rank
            values = call.numbers(position)
            return values * rank if len(values) == 1 else values

        sizes = (
            x[2:],
            weight[2:],
            argument(positions.stride, 1),
            argument(positions.padding, 0),
            argument(positions.dilation, 1),
        )
        output: Shape
        if transposed:
            spatial = _transposed_sizes(*sizes, argument(positions.output_padding, 0))
            output = (x[0], weight[1] * call.numbers(positions.groups)[0], *spatial)
        else:
            output = (x[0], weight[0], *_window_counts(*sizes))
        _numbers(output)
        kind = call.type(0)
        read = call.read(0, 1)
        if positions.bias >= 0:
            read += call.read(positions.bias)
        return Cost(
            flops_of.convolution(x, weight, output, transposed=transposed),
            read + prod(output) * width(kind),
            kind,
        )

    return cost


def _window_counts(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape
) -> Shape:
    """Size of the output of a convolution or a pooling in each dimension."""
    counts = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        counts.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
    return tuple(counts)


def _transposed_sizes(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, extra: Shape
) -> Shape:
    """Size of the output of a transposed convolution in each dimension."""
    sizes = []
    for n, k, s, p, d, e in zip(size, kernel, stride, padding, dilation, extra, strict=True):
        sizes.append((n - 1) * s - 2 * p + d * (k - 1) + e + 1)
    return tuple(sizes)


def _convolution_backward(call: Call) -> Cost:
    output, x, weight = map(call.shape, range(3))
    mask, kind = call.flags(10), call.type(0)
    gradients = prod(x) * mask[0] + prod(weight) * mask[1] + output[1] * mask[2]
    flops = flops_of.convolution_backward(
        output, x, weight, mask, call.numbers(9)[0], transposed=call.flag(7)
    )
    return Cost(flops, call.read(0, 1, 2) + gradients * width(kind), kind)


def _heads_first(shape: Shape) -> Shape:
    """(batch, length, heads, depth) as (batch, heads, length, depth)."""
    b, length, heads, depth = shape
    return b, heads, length, depth


def _attention(
    *, lengths_first: bool = False, ragged: tuple[int, ...] = (), more: tuple[int, ...] = ()
) -> Formula:
    """Attention whose first inputs are query, key and value.

    The cost is unknown if an input of `ragged` is there: shapes then do not state the lengths.
    """

    def cost(call: Call) -> Cost:
        _dense(call, ragged)
        q, k, v = map(call.shape, range(3))
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
    """The gradient of attention: inputs are that of the output, then query, key and value.

    The tensors from position `rest` on are read as well.
    """

    def cost(call: Call) -> Cost:
        _dense(call, ragged)
        shapes = list(map(call.shape, range(4)))
        if lengths_first:
            shapes = list(map(_heads_first, shapes))
        kind = call.type(1)
        gradients = sum(map(prod, shapes[1:])) * width(kind)
        return Cost(
            flops_of.attention_backward(*shapes),
            call.read(0, 1, 2, 3) + call.every(rest) + gradients,
            kind,
        )

    return cost


def _dense(call: Call, ragged: Sequence[int]) -> None:
    if any(map(call.type, ragged)):
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
"""Elementwise ops with the number of their tensor inputs: a tensor behind these is `out=`."""
_BOOLEAN_RESULT = frozenset(
    """
    isfinite isinf isnan isneginf isposinf logical_not logical_and logical_or logical_xor signbit
    eq ge gt le lt ne
    """.split()  # noqa: SIM905 - a list of words reads better without a hundred quotes
)
_KEEPS_INTEGERS = frozenset(
    """
    abs add bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    clamp clamp_max clamp_min floor_divide fmod masked_fill maximum minimum mul neg positive pow
    relu remainder rsub sgn sign square sub where __and__ __or__ __xor__ threshold
    """.split()  # noqa: SIM905 - a list of words reads better without a hundred quotes
)
"""Elementwise ops of integers with integer results; most other ops return float32."""


def _elementwise(tensors: int) -> Formula:
    def cost(call: Call) -> Cost:
        base = _out_of_place(call.name)
        inputs, behind = call.tensors(0, tensors), call.tensors(tensors)
        shape = _broadcast(list(map(call.shape, inputs)))
        values = inputs
        if base == "where":
            # The first one is the condition.
            values = inputs[1:]
        if call.name != base:
            kind = call.type(0)
        elif behind:
            kind, shape = call.type(behind[-1]), call.shape(behind[-1])
        elif base in _BOOLEAN_RESULT:
            kind = "bool"
        elif base == "masked_fill":
            kind = call.type(0)
        else:
            kind = _promoted(call, values, tensors)
            if (kind in _INTEGERS or kind == "bool") and base not in _KEEPS_INTEGERS:
                raise UnknownError
        return Cost(prod(shape), call.read(*inputs) + prod(shape) * width(kind), kind)

    return cost


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    if not shapes:
        raise UnknownError
    rank = max(map(len, shapes))
    output: list[int] = []
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for column in zip(*padded, strict=True):
        sizes = {*column} - {1} or {1}
        if len(sizes) > 1:
            raise UnknownError
        output.append(sizes.pop())
    return tuple(output)


def _promoted(call: Call, inputs: Sequence[int], tensors: int) -> str:
    """The element type that PyTorch computes with.

    Tensors with dimensions decide, unless tensors without dimensions or Python numbers are of a
    higher kind. Source: "Type promotion" of PyTorch's documentation (tensor attributes).
    """
    full = [call.type(i) for i in inputs if call.shape(i)]
    kinds = full or list(map(call.type, inputs))
    if not kinds:
        raise UnknownError
    widest = kinds[0]
    for kind in kinds[1:]:
        widest = _wider(widest, kind)
    rest = [call.type(i) for i in inputs if not call.shape(i)]
    for i in range(1, tensors):
        if call.types[i : i + 1] == ("Scalar",) and not call.value(i).lstrip("-").isdigit():
            rest.append("float")
    higher = [kind for kind in rest if _level(kind) > _level(widest)]
    if not higher:
        return widest
    if "double" in higher:
        # A Python number, or a tensor that holds one: float32 or float64.
        raise UnknownError
    return max(higher, key=_level)


def _level(kind: str) -> int:
    """Rank of an element type in type promotion: booleans, integers, floats, complex numbers."""
    if kind == "bool":
        return 0
    if kind in _INTEGERS:
        return 1
    if kind in _FLOATS:
        return 2
    return 3


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    if _level(a) != _level(b):
        return max(a, b, key=_level)
    if {a, b} == {"c10::Half", "c10::BFloat16"}:
        return "float"
    for ranks in (_FLOATS, _INTEGERS):
        if a in ranks and b in ranks and "unsigned char" not in (a, b):
            return ranks[max(ranks.index(a), ranks.index(b))]
    raise UnknownError


def _reduction(
    dims: int, *, dtype: int = -1, to: str = "", of_integers: str = "", two: bool = False
) -> Formula:
    """Over the dimensions that an argument lists, or all of them if it is left out.

    Parameters
    ----------
    dims, dtype : int
        Positions of the dimensions and of the result's element type; -1 for none.
    to : str
        Element type of the result, if it always is the same.
    of_integers : str
        Element type of the result of integers.
    two : bool
        There is a second, int64 result: the index of the first.
    """

    def cost(call: Call) -> Cost:
        shape, kind = call.shape(0), call.type(0)
        output_kind = to or kind
        if not to and of_integers and _level(kind) <= 1:
            output_kind = of_integers
        behind = call.tensors(1)
        if behind and two:
            # Of two tensors, or with two outputs.
            raise UnknownError
        if behind:
            left, output_kind = prod(call.shape(behind[-1])), call.type(behind[-1])
        else:
            stated_dims = call.value(dims) if dims < len(call.types) else ""
            if 0 <= dtype < len(call.types):
                output_kind = call.out_type(dtype, output_kind)
            elif len(call.types) == 2 > dims and dtype >= 0 and stated_dims.isdigit():
                # The overload without dimensions has the type in their place.
                output_kind, stated_dims = _TYPES[int(stated_dims)], ""
            left = _elements_left(shape, stated_dims)
        size = left * width(output_kind)
        if two and dims < len(call.types):
            size += left * 8
        return Cost(prod(shape), call.read(0) + size, kind)

    return cost


def _elements_left(shape: Shape, dims: str) -> int:
    """Elements of a reduction over the listed dimensions; "" for all."""
    if not dims or not shape:
        return 1
    over = {n % len(shape) for n in _signed(dims)}
    if not over:
        return 1
    return prod(n for i, n in enumerate(shape) if i not in over)


def _signed(value: str) -> list[int]:
    if value.startswith("["):
        return list(map(int, json.loads(value)))
    return [int(value)]


_REDUCTIONS = {
    "sum": _reduction(1, dtype=3, of_integers="long int"),
    "nansum": _reduction(1, dtype=3, of_integers="long int"),
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


def _per_element(operations: int, main: int = 0, *, output: int | None = None) -> Formula:
    """Reads all its tensors and writes one like the input `output` (default: `main`).

    It does `operations` for each element of the input `main`.
    """
    like = main if output is None else output

    def cost(call: Call) -> Cost:
        kind = call.type(main)
        written = prod(call.shape(like)) * width(kind)
        return Cost(operations * prod(call.shape(main)), call.every() + written, kind)

    return cost


def _softmax(operations: int) -> Formula:
    def cost(call: Call) -> Cost:
        kind = call.type(0)
        output_kind = "float" if call.flag(2) else kind
        return Cost(
            operations * prod(call.shape(0)),
            call.read(0) + prod(call.shape(0)) * width(output_kind),
            kind,
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
    """Norms of the first input, with statistics in float32 (float64 for float64) for backward."""

    def cost(call: Call) -> Cost:
        shape, kind = call.shape(0), call.type(0)
        statistics_bytes = statistics(call) * max(4, width(kind))
        return Cost(
            operations * prod(shape),
            call.every() + prod(shape) * width(kind) + statistics_bytes,
            kind,
        )

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
    x, kernel = call.shape(0), call.numbers(1)
    rank = len(kernel)
    stride = kernel
    if call.value(2) not in ("", "[]"):
        stride = call.numbers(2)
    padding, dilation = call.numbers(3), call.numbers(4)
    if call.flag(5) or len(x) <= rank:
        raise UnknownError
    output = (*x[:-rank], *_window_counts(x[-rank:], kernel, stride, padding, dilation))
    kind = call.type(0)
    _numbers(output)
    return Cost(prod(output) * prod(kernel), call.read(0) + prod(output) * (width(kind) + 8), kind)


def _gathered(table: int, index: int) -> Formula:
    """Rows of a table: the indices and the rows are read, and the rows are written."""

    def cost(call: Call) -> Cost:
        shape, kind = call.shape(table), call.type(table)
        dimension = 0
        if call.name == "index_select":
            dimension = _signed(call.value(1))[0] % max(len(shape), 1)
        row = prod(shape[:dimension]) * prod(shape[dimension + 1 :])
        size = prod(call.shape(index)) * row * width(kind)
        return Cost(0.0, call.read(index) + 2 * size, kind)

    return cost


def _embedding_backward(call: Call) -> Cost:
    grad = call.shape(0)
    table_bytes = call.numbers(2)[0] * grad[-1] * width(call.type(0))
    # Each element of the gradient is added to one of the table's.
    return Cost(prod(grad), call.read(0, 1) + table_bytes, call.type(0))


def _squared_error(call: Call) -> Cost:
    shape, kind = call.shape(0), call.type(0)
    elements = prod(shape)
    is_reduced = call.numbers(2)[0]
    written = width(kind)
    if not is_reduced:
        written *= elements
    return Cost(3 * elements, call.read(0, 1) + written, kind)


def _copied(call: Call) -> Cost:
    return Cost(0.0, prod(call.shape(0)) * width(call.type(0)) + call.read(1), call.type(0))


def _filled(call: Call) -> Cost:
    return Cost(0.0, prod(call.shape(0)) * width(call.type(0)), call.type(0))


def _dropped(call: Call) -> Cost:
    size, kind = prod(call.shape(0)), call.type(0)
    return Cost(size, call.read(0) + size * (width(kind) + 1), kind)


def _no_work(_call: Call) -> Cost:
    return Cost(0.0, 0.0, "")


def _affine(weight: int, mask: int) -> Callable[[Call], int]:
    """Elements of the gradients of weight and bias that the output mask of a norm asks for."""

    def count(call: Call) -> int:
        requested = call.flags(mask)
        if not call.type(weight):
            return 0
        return prod(call.shape(weight)) * sum(requested[1:])

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
"""Ops that only call others: the cost is that of the ops inside."""


def _of_kind(kind: str, formulas: dict[str, Formula]) -> dict[str, tuple[str, Formula]]:
    return {name: (kind, formula) for name, formula in formulas.items()}


_FORMULAS: dict[str, tuple[str, Formula]] = {
    **_of_kind(ELEMENTWISE, {name: _elementwise(count) for name, count in _POINTWISE.items()}),
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
    **_of_kind(
        CONVOLUTION, {name: _convolution(positions) for name, positions in _CONVOLUTIONS.items()}
    ),
    "convolution_backward": (CONVOLUTION, _convolution_backward),
    **_of_kind(ATTENTION, _ATTENTION),
    **_of_kind(REDUCTION, _REDUCTIONS),
    **_of_kind(NORM, _NORMS),
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
    **dict.fromkeys((_FREE + _COMPOSED).split(), (NOTHING, _no_work)),
}
_ATEN = "aten::"


def kind(name: str) -> str:
    """Kind of work of an op, one of `KINDS`; "" for an op without a formula."""
    entry = _formula(name)
    return entry[0] if entry else ""


def _formula(name: str) -> tuple[str, Formula] | None:
    if not name.startswith(_ATEN):
        return None
    base = name[len(_ATEN) :]
    return _FORMULAS.get(base) or _FORMULAS.get(_out_of_place(base))


def _out_of_place(name: str) -> str:
    """The name of an op without the `_` of its in-place variant."""
    return name if name.endswith("__") else name.removesuffix("_")


def cost(name: str, dims: str, types: str, strides: str = "", values: str = "") -> Cost | None:
    """Operations and bytes of a call of an op; None if they are unknown.

    Parameters
    ----------
    name : str
    dims, types, strides, values : str
        `Input Dims`, `Input type`, `Input Strides` and `Concrete Inputs` of the trace, as JSON; ""
        if they were not recorded.
    """
    entry = _formula(name)
    if entry is None:
        return None
    if entry[0] == NOTHING:
        return Cost(0.0, 0.0, "")
    try:
        recorded = [tuple(json.loads(text or "[]")) for text in (dims, types, strides, values)]
        call = Call(name[len(_ATEN) :], *recorded)
        computed, moved, dtype = entry[1](call)
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
        # A call that does not fit the formula is another overload, or damaged.
        return None
