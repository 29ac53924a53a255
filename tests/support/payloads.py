"""Payloads against their declared types, which the types of the page are written from."""

import re
import types
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from nbprof.display.codec import Delta
from nbprof.display.payload import Part

_LITERALS = re.compile(r'("[^"]*")( \| "[^"]*")*')
_ARRAYS = {
    "NumberArray": {"f8", "f4", "i4", "u4", "u2", "u1"},
    "Codes": {"u4", "u2", "u1"},
}


def check(part: Any, name: str) -> None:
    """Asserts that a part is of this class, and that everything in it has its declared type."""
    assert type(part).__name__ == name
    conforms(part, type(part), name)


def conforms(value: Any, hint: Any, path: str) -> None:
    """Asserts that a value has a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(value, arguments[0], arguments[1], path)
    if origin in (Union, types.UnionType):
        return _member(value, arguments, path)
    if origin is Literal:
        assert value in arguments, f"{path}: {value!r}"
    elif origin is list:
        assert type(value) is list, f"{path}: {type(value)}"
        for index, item in enumerate(value):
            conforms(item, arguments[0], f"{path}[{index}]")
    elif origin is tuple:
        assert isinstance(value, tuple), f"{path}: {type(value)}"
        assert len(value) == len(arguments), path
        for item, argument in zip(value, arguments, strict=True):
            conforms(item, argument, path)
    elif origin is dict:
        assert type(value) is dict, f"{path}: {type(value)}"
        for key, item in value.items():
            conforms(key, arguments[0], path)
            conforms(item, arguments[1], f"{path}.{key}")
    elif origin is np.ndarray:
        dtype = get_args(arguments[1])[0]
        assert isinstance(value, np.ndarray), f"{path}: {type(value)}"
        assert dtype is Any or value.dtype == dtype, f"{path}: {value.dtype}"
    elif isinstance(hint, type) and issubclass(hint, Part):
        assert type(value) is hint, f"{path}: {type(value)}"
        hints = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            conforms(getattr(value, field.name), hints[field.name], f"{path}.{field.name}")
    elif hint is float:
        assert type(value) in (float, int), f"{path}: {value!r}"
    elif hint is int:
        assert isinstance(value, (int, np.integer)), f"{path}: {value!r}"
    elif hint is not Any:
        assert isinstance(value, hint), f"{path}: {value!r}"
    return None


def _member(value: Any, hints: tuple[Any, ...], path: str) -> None:
    failures = []
    for hint in hints:
        try:
            conforms(value, hint, path)
            return
        except AssertionError as failure:
            failures.append(str(failure).partition("\n")[0])
    raise AssertionError(f"{path}: none of {failures}")


def _annotated(value: Any, hint: Any, typescript: str, path: str) -> None:
    """The type of Python, and as far as it says more the one of TypeScript."""
    conforms(value, hint, path)
    if _LITERALS.fullmatch(typescript):
        assert f'"{value}"' in typescript, f"{path}: {value!r}"
    if typescript in _ARRAYS and not isinstance(value, Delta):
        dtype = "u1" if value.dtype == np.bool_ else f"{value.dtype.kind}{value.dtype.itemsize}"
        assert dtype in _ARRAYS[typescript], f"{path}: {value.dtype}"
