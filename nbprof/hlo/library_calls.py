"""FLOPs and bytes of custom calls that state them: of others, XLA knows only the shapes.

Attention of cuDNN is counted by the products that XLA's configuration describes, kernels of Pallas
by the `pl.CostEstimate` of their author. Everything else is unknown, which is not 0: sums exclude
such calls together with their time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nbprof.hlo.shapes import Shape

NOTHING = frozenset((
    "AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape",
    "LayoutConstraint", "MoveToHost", "MoveToDevice", "annotate_device_placement", "PinToDevice",
    "X64Combine", "X64SplitHigh", "X64SplitLow",
))  # fmt: skip
"""Targets that are hints for the compiler."""
_ATTENTION = "__cudnn$fmha"
_CAUSAL, _ANY = "CAUSAL", ("", "NO_MASK", "ALIBI", "CAUSAL")
"""Masks for which the number of pairs is known; with padding it depends on the data."""
_FMA = 2
_FORWARD, _BACKWARD = (1, 1), (3, 2)
"""Numbers of products over the head of keys, and over that of values.

Forward Q·K, and P·V; backward Q·K again, dQ and dK, and dV and dP.
"""


def attention_flops(target: str, config: bytes, operands: Sequence[Shape]) -> float | None:
    """Floating-point operations of the products of cuDNN's attention.

    Softmax, scaling and masks are not counted, as in the literature; pairs that a causal mask or a
    window masks are not, either. None for other calls, and if the call does not state it.

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
        batch, heads, queries, keys = map(int, attention["intermediate_tensor_shape"]["dimensions"])
        window = int(attention.get("sliding_window_length") or 0)
        mask = str(attention.get("mask_type") or "")
        packed = int(attention.get("max_seg_per_batch") or 1) > 1
        if packed or attention.get("is_paged_attention"):
            return None
        if mask not in _ANY or (window > 0 and mask != _CAUSAL):
            return None
        head, of_values = operands[0].dimensions[3], operands[2].dimensions[3]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    each_key, each_value = _BACKWARD if "Backward" in target else _FORWARD
    pairs = _pairs(queries, keys, mask == _CAUSAL, window)
    return float(_FMA * batch * heads * pairs * (each_key * head + each_value * of_values))


def _pairs(queries: int, keys: int, causal: bool, window: int) -> int:
    """Pairs of a query and a key that are not masked.

    Under a causal mask, query i sees keys 0 to i; in a window, only the last of them.
    """
    if not causal:
        return queries * keys
    visible = keys
    if window > 0:
        visible = min(keys, window)
    growing = min(queries, visible)
    return growing * (growing + 1) // 2 + (queries - growing) * visible


def estimate(config: bytes) -> tuple[float, float] | None:
    """FLOPs and bytes by the `pl.CostEstimate` of a Pallas kernel; None without one."""
    settings = _json(config)
    for mapping in (settings.get("custom_call_config"), settings):
        cost = mapping.get("cost_estimate") if isinstance(mapping, dict) else None
        if isinstance(cost, dict):
            try:
                return float(cost["flops"]), float(cost["bytes_accessed"])
            except (KeyError, TypeError, ValueError):
                return None
    return None


def _json(config: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(config)
    except (ValueError, RecursionError):
        # Calls of other interfaces have attributes of MLIR instead.
        return {}
    return settings if isinstance(settings, dict) else {}
