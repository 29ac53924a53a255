"""Operations of PyTorch's matrix products, convolutions and attention, by their shapes.

Source: the formulas of `torch.utils.flop_counter` of PyTorch 2.13, a multiplication and an addition
as two; causal attention counts as full. They differ in one point: the weight gradient of a
convolution in g groups is a g-th there of what all pairs of channels would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Shape = Sequence[int]


def mm(a: Shape, b: Shape) -> int:
    """Of (m, k) by (k, n)."""
    (m, k), (inner, n) = a, b
    _same(k == inner)
    return 2 * m * n * k


def bmm(a: Shape, b: Shape) -> int:
    """Of (b, m, k) by (b, k, n)."""
    (batch, m, k), (other, inner, n) = a, b
    _same(batch == other and k == inner)
    return batch * 2 * m * n * k


def linear(x: Shape, weight: Shape) -> int:
    """Of (..., k) by a weight (n, k)."""
    _same(len(x) > 0 and len(weight) == 2)
    return mm((prod(x[:-1]), x[-1]), (weight[1], weight[0]))


def mv(a: Shape, x: Shape) -> int:
    """Of (m, k) by (k)."""
    return mm(a, (*x, 1))


def dot(x: Shape, y: Shape) -> int:
    """Of (k) by (k)."""
    return mm((1, *x), (*y, 1))


def convolution(x: Shape, weight: Shape, output: Shape, *, transposed: bool) -> int:
    """Operations of a convolution: the filter at each position of the output.

    For a transposed one, at each position of the input.
    """
    return prod((x if transposed else output)[2:]) * prod(weight) * x[0] * 2


def convolution_backward(
    output: Shape, x: Shape, weight: Shape, mask: Sequence[bool], groups: int, *, transposed: bool
) -> int:
    """Operations of the gradients that `mask` asks for (input, weight); `output` is a gradient."""
    flops = 0
    if mask[0]:
        flops += convolution(output, weight, x, transposed=not transposed)
    if mask[1]:
        places = prod(weight[2:]) * prod((x if transposed else output)[2:])
        flops += places * x[0] * x[1] * output[1] * 2 // groups
    return flops


def attention(query: Shape, key: Shape, value: Shape) -> int:
    """Operations of the scores and their product with the values; keys may have fewer heads."""
    (b, heads, length, depth), (b_k, heads_k, keys, depth_k), (b_v, heads_v, values, depth_v) = (
        query,
        key,
        value,
    )
    _same(
        b == b_k == b_v
        and heads_k == heads_v
        and depth == depth_k
        and keys == values
        and heads >= heads_k
        and heads % heads_k == 0
    )
    return 2 * b * heads * length * keys * (depth + depth_v)


def attention_backward(output: Shape, query: Shape, key: Shape, value: Shape) -> int:
    """Of the scores once more, and of the gradients of value, scores, query and key."""
    attention(query, key, value)
    (b, heads, length, depth), keys, depth_v = query, key[2], value[3]
    _same(tuple(output) == (b, heads, length, depth_v))
    return 2 * b * heads * length * keys * (3 * depth + 2 * depth_v)


def _same(fits: bool) -> None:
    if not fits:
        raise ValueError("these shapes do not fit")
