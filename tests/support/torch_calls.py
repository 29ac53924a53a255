"""What PyTorch's recorder writes of the inputs of an op, for calls that a test makes itself."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TYPES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.int64: "long int",
    torch.int32: "int", torch.bool: "bool", torch.uint8: "unsigned char", torch.int8: "signed char", torch.float8_e4m3fn: "c10::Float8_e4m3fn",
}  # fmt: skip
_NUMBERS = {
    torch.float32: 6,
    torch.float64: 7,
    torch.float16: 5,
    torch.bfloat16: 15,
    torch.int64: 4,
    torch.int32: 3,
    torch.float8_e4m3fn: 24,
}


def recorded(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str, str, str]:
    """`Input Dims`, `Input type`, `Input Strides` and `Concrete Inputs` of a call, as JSON."""
    dims, types, strides, values = [], [], [], []
    for at, arg in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(arg.name, arg.default_value)
        tensor = isinstance(value, torch.Tensor)
        tensors = isinstance(value, (list, tuple)) and any(
            isinstance(one, torch.Tensor) for one in value
        )
        dims.append(
            list(value.shape) if tensor else [list(one.shape) for one in value] if tensors else []
        )
        strides.append(list(value.stride()) if tensor else [])
        if tensor:
            types.append(TYPES[value.dtype])
            values.append("")
        elif (
            value is None
            or tensors
            or isinstance(value, (str, torch.device, torch.layout, torch.memory_format))
        ):
            types.append("TensorList" if tensors else "")
            values.append("")
        else:
            types.append("ScalarList" if isinstance(value, (list, tuple)) else "Scalar")
            values.append(
                str(
                    _NUMBERS[value]
                    if isinstance(value, torch.dtype)
                    else list(value)
                    if isinstance(value, tuple)
                    else value
                )
            )
    return tuple(json.dumps(part) for part in (dims, types, strides, values))


class Calls(TorchDispatchMode):
    """Every op that runs: its name, what a recorder writes of its inputs, and the bytes of the
    tensors that it read and made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[str, str, str, str], int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        said = recorded(func, args, kwargs)
        read = sum(
            _there(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)
        )
        out = func(*args, **kwargs)
        made = sum(
            one.numel() * one.element_size()
            for one in tree_leaves(out)
            if isinstance(one, torch.Tensor)
        )
        self.seen.append((func._schema.name, said, read, made))
        return out


def _there(tensor: torch.Tensor) -> int:
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else 1
    return count
