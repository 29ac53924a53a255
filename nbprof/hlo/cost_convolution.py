"""Floating-point operations of a convolution, with its strides, padding, dilations and groups."""

from __future__ import annotations

from math import gcd

import numpy as np

from nbprof.hlo.details import ConvolutionDimensions, Details, WindowDimension
from nbprof.hlo.shapes import Shape

_FMA = 2


def convolution_flops(lhs: Shape, rhs: Shape, out: Shape, details: Details) -> float:
    """Two operations for each input feature, output feature, picture, and place of the kernel that lies on the input and not on padding."""
    dims = details.convolution
    kernel = [rhs.dimensions[d] for d in dims.kernel_spatial]
    windows = details.window or tuple(WindowDimension(length) for length in kernel)
    places = 1
    for axis, (window, length) in enumerate(zip(windows, kernel, strict=False)):
        places *= _places(window, length, lhs.dimensions[dims.input_spatial[axis]], out.dimensions[dims.output_spatial[axis]])
    return float(_FMA * places * _channels(dims, details, lhs, out))


def _channels(dims: ConvolutionDimensions, details: Details, lhs: Shape, out: Shape) -> int:
    features = lhs.dimensions[dims.input_feature] // details.feature_groups
    return features * out.dimensions[dims.output_feature] * (lhs.dimensions[dims.input_batch] // details.batch_groups)


def _places(window: WindowDimension, kernel: int, length: int, out: int) -> int:
    """Pairs of a place of the kernel and one of the output that meet on an element of the input, along one dimension."""
    base, stride = window.base_dilation, window.stride
    offset = np.arange(kernel, dtype=np.int64) * window.window_dilation - window.low
    # 0 <= o * stride + offset < length' of the input with its holes; a hole is no element.
    first = np.maximum(-(offset // stride), 0)
    last = np.minimum(((length - 1) * base - offset) // stride, out - 1)
    period = base // gcd(stride, base)
    found = 0
    for start in range(period):
        # Of each residue of o all or none meet an element.
        meets = (start * stride + offset) % base == 0
        low = first + (start - first) % period
        count = np.where(low <= last, (last - low) // period + 1, 0)
        found += int(count[meets].sum())
    return found
