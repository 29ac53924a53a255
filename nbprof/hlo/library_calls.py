"""What a custom call of a compiled program computes and moves, where it says so: XLA knows of a
call into a library nothing but its shapes.

Counted are attention of cuDNN, whose products XLA's own configuration describes, and kernels of
Pallas whose author stated a `pl.CostEstimate`. Everything else is not known, which is not 0:
whoever adds up takes such calls out, with their time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nbprof.hlo.shapes import Shape

NOTHING = frozenset((
    "AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "MoveToHost", "MoveToDevice",
    "annotate_device_placement", "PinToDevice", "X64Combine", "X64SplitHigh", "X64SplitLow",
))  # fmt: skip
"""Targets that only tell the compiler something."""
_ATTENTION = "__cudnn$fmha"
_CAUSAL, _ANY = "CAUSAL", ("", "NO_MASK", "ALIBI", "CAUSAL")
"""Masks by which it is known how many pairs of positions count; of padding it depends on the
data.
"""
_FMA = 2
_FORWARD, _BACKWARD = (1, 1), (3, 2)
"""Products as long as the head of keys, and of values: forward Q·K and P·V; backward Q·K again, dQ
and dK; dV and dP.
"""


def attention_flops(target: str, config: bytes, operands: Sequence[Shape]) -> float | None:
    """Floating-point operations of the products of attention; None where it is no attention of
    cuDNN, or is not described.

    Softmax, scaling and masks are not counted, as in the literature; of a causal mask and of a
    window only the pairs that it lets through.

    Parameters
    ----------
    target : str
    config : bytes
        The call's backend config.
    operands : sequence of Shape
        Queries, keys and values come first.
    """
    if not target.startswith(_ATTENTION) or len(operands) < 3:
        return None
    attention: Any = _json(config).get("cudnn_fmha_backend_config")
    try:
        scores = [int(size) for size in attention["intermediate_tensor_shape"]["dimensions"]]
        batch, heads, queries, keys = scores
        window = int(attention.get("sliding_window_length") or 0)
        mask = str(attention.get("mask_type") or "")
        packed = int(attention.get("max_seg_per_batch") or 1) > 1 or bool(
            attention.get("is_paged_attention")
        )
        if mask not in _ANY or (window > 0 and mask != _CAUSAL) or packed:
            return None
        head, of_values = operands[0].dimensions[3], operands[2].dimensions[3]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    each_key, each_value = _BACKWARD if "Backward" in target else _FORWARD
    pairs = _pairs(queries, keys, mask == _CAUSAL, window)
    return float(_FMA * batch * heads * pairs * (each_key * head + each_value * of_values))


def _pairs(queries: int, keys: int, causal: bool, window: int) -> int:
    """Pairs of a query and a key that count: under a causal mask query i sees keys 0 to i, in a
    window the last of them.
    """
    if not causal:
        return queries * keys
    visible = min(keys, window) if window > 0 else keys
    grows = min(queries, visible)
    return grows * (grows + 1) // 2 + (queries - grows) * visible


def estimate(config: bytes) -> tuple[float, float] | None:
    """FLOPs and bytes that the author of a kernel stated (`pl.CostEstimate` of Pallas); None where
    nothing is stated.
    """
    settings = _json(config)
    inner = settings.get("custom_call_config")
    for mapping in (inner if isinstance(inner, dict) else {}, settings):
        attention = mapping.get("cost_estimate")
        if isinstance(attention, dict):
            try:
                return float(attention["flops"]), float(attention["bytes_accessed"])
            except (KeyError, TypeError, ValueError):
                return None
    return None


def _json(config: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(config)
    except (ValueError, RecursionError):
        # Calls of other interfaces write attributes of MLIR there.
        return {}
    return settings if isinstance(settings, dict) else {}
