"""Ops that keep other tensors on a GPU than on the CPU.

Models are traced with tensors of the CPU, as a PyTorch without CUDA has no others. Four things
differ on a GPU by much, and are done here as there (PyTorch's sources):

- dropout keeps a mask of a byte per element, not of the size of an element (`native_dropout`, in
  aten/src/ATen/native/Dropout.cpp);
- attention with dropout does not materialize the matrix of weights
  (`sdp_utils.cpp` in native/transformers/cuda);
- autocast computes losses, norms, exponentials and the like in float32 (`AT_FORALL_FP32` in
  aten/src/ATen/autocast_mode.h);
- optimizers update all parameters at once (`foreach`, `_default_to_fused_or_foreach`).
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_LOW_PRECISION = (torch.float16, torch.bfloat16)
_TO_FLOAT32 = frozenset(["cumprod", "cumsum", "log_softmax", "prod", "softmax", "sum"])
"""Ops that autocast computes in float32, and whose kernels read low precision."""
_IN_FLOAT32 = frozenset(
    [
        "__pow__",
        "__rdiv__",
        "__rpow__",
        "__rtruediv__",
        "acos",
        "asin",
        "binary_cross_entropy_with_logits",
        "cdist",
        "cosh",
        "cosine_embedding_loss",
        "cosine_similarity",
        "cross_entropy_loss",
        "dist",
        "erfinv",
        "exp",
        "expm1",
        "group_norm",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "layer_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "nll_loss",
        "nll_loss2d",
        "norm",
        "nuclear_norm",
        "poisson_nll_loss",
        "pow",
        "reciprocal",
        "renorm",
        "rms_norm",
        "rsqrt",
        "sinh",
        "smooth_l1_loss",
        "soft_margin_loss",
        "softplus",
        "tan",
        "triplet_margin_loss",
    ]
)
"""Those whose arguments it converts before."""
_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class GpuOps(TorchFunctionMode):  # type: ignore[misc]
    """While it is active, ops keep for the backward pass what they keep on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._inlined: dict[Any, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _calls_others(func):
            with self:
                return self._without_checks(func)(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name == "to":
            args, kwargs = _without_gpu(args, kwargs)
            if len(args) == 1 and not kwargs:
                return args[0]
        elif _names_gpu(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        if name in ("dropout", "dropout_"):
            return _dropout(func, args, kwargs)
        if name == "scaled_dot_product_attention":
            args, kwargs = _without_dropout(args, kwargs)
        elif name in _TO_FLOAT32 and torch.is_autocast_enabled("cpu"):
            if args[0].dtype in _LOW_PRECISION and kwargs.get("dtype") is None:
                kwargs = {**kwargs, "dtype": torch.float32}
        elif name in _IN_FLOAT32 and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map_only(torch.Tensor, _float32, (args, kwargs))
        return func(*args, **kwargs)

    def _without_checks(self, func: Any) -> Any:
        """The same function, which does not hand itself to this mode a second time."""
        inlined = self._inlined.get(func)
        if inlined is None:
            names = {**func.__globals__, **dict.fromkeys(_CHECKS, lambda *_: False)}
            inlined = FunctionType(
                func.__code__, names, func.__name__, func.__defaults__, func.__closure__
            )
            inlined.__kwdefaults__ = func.__kwdefaults__
            self._inlined[func] = inlined
        return inlined


def _calls_others(func: Any) -> bool:
    """True for functions in Python whose calls matter: those of
    `multi_head_attention_forward`, or those of checkpoints in the backward pass.
    """
    if func is torch.Tensor.backward:
        return True
    names = getattr(func, "__globals__", None)
    return names is vars(functional) or names is vars(torch.autograd)


def _float32(tensor: Any) -> Any:
    if tensor.dtype in _LOW_PRECISION:
        return tensor.float()
    return tensor


def _dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.dropout(input, p, train)`, as native_dropout where it drops anything."""
    names = ("input", "p", "train")
    values = dict(zip(names, args, strict=False)) | kwargs
    rate = values.get("p", 0.5)
    if not values.get("train") or not 0 < rate < 1 or func.__name__ == "dropout_":
        return func(*args, **kwargs)
    return torch.native_dropout(values["input"], rate, True)[0]


def _without_dropout(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of attention, whose fused kernels draw their dropout anew."""
    kwargs = {key: value for key, value in kwargs.items() if key != "dropout_p"}
    if len(args) > 4:
        args = (*args[:4], 0.0, *args[5:])
    return args, kwargs


def _names_gpu(device: Any) -> bool:
    if not isinstance(device, int | str | torch.device) or isinstance(device, bool):
        return False
    return not str(device).startswith(("cpu", "meta"))


def _without_gpu(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of `Tensor.to`, without a device that the tensor is on already."""
    kwargs = {key: value for key, value in kwargs.items() if not _names_gpu(value)}
    return tuple(value for value in args if not _names_gpu(value)), kwargs
