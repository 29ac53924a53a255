"""Values as JSON and blocks of bytes, and back exactly: numbers, texts, arrays, dataclasses, and
lists, tuples and dicts of them; `nbprof.core.codec.frames` adds what pandas has.

Nothing is pickled: another user or machine may have written the bytes, and reading them must not
be able to run code. A value of any other type is `Unstorable`.

In the JSON, null, true, false, integers, finite floats and texts stand for themselves; everything
else is an object with its type in "t".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.codec.records import record_class, record_name

Octets = npt.NDArray[np.uint8]
Put = Callable[[Octets], int]
"""Stores a block of bytes and returns its number."""
Get = Callable[[int], Octets]
"""The bytes of a block, in memory that belongs to the caller."""
Tree = dict[str, Any]

_SHORT_LIST = 16
_INT64 = range(-(2**63), 2**63)
_ARRAY_KINDS = "biufcmMSU"


class Unstorable(Exception):  # noqa: N818 -- never shown: the value is computed again
    """A value that would not come back exactly."""


def register(
    cls: type[Any],
    tag: str,
    write: Callable[[Any, Put], Tree],
    read: Callable[[Tree, Get], Any],
) -> None:
    """Let values of a class be stored, without those of classes derived from it."""
    _WRITERS[cls] = lambda value, put: {"t": tag, **write(value, put)}
    _READERS[tag] = read


def encode(value: Any, put: Put) -> Any:
    """The JSON that describes a value, whose large parts go into blocks.

    Raises
    ------
    Unstorable
        A part of the value has a type that is not stored.
    """
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is float:
        return value if math.isfinite(value) else {"t": "float", "v": str(value)}
    writer = _WRITERS.get(cls)
    if writer is not None:
        return writer(value, put)
    if isinstance(value, np.generic) and value.dtype.kind in _ARRAY_KINDS:
        return {"t": "scalar", "d": value.dtype.str, "v": value.tobytes().hex()}
    if value is pd.NA:
        return {"t": "NA"}
    if value is pd.NaT:
        return {"t": "NaT"}
    if record_class(record_name(cls)) is cls:
        return _write_record(value, put)
    raise Unstorable(f"a {cls.__name__}")


def decode(tree: Any, get: Get) -> Any:
    """The value that `encode` described."""
    return _READERS[tree["t"]](tree, get) if type(tree) is dict else tree


# Lists and dicts. A long list of one type becomes a block; what JSON gives back exactly stays JSON.


def _write_list(items: list[Any], put: Put) -> Tree:
    if len(items) >= _SHORT_LIST:
        types = set(map(type, items))
        if types == {str}:
            return {"t": "texts", **write_texts(items, put)}
        if types == {bytes}:
            lengths = np.array([len(item) for item in items], np.int64)
            joined = np.frombuffer(b"".join(items), np.uint8)
            return {"t": "strips", "l": _write_array(lengths, put), "b": put(joined)}
        if types == {float}:
            return {"t": "list", "v": _write_array(np.array(items, np.float64), put)}
        if types == {int} and min(items) in _INT64 and max(items) in _INT64:
            return {"t": "list", "v": _write_array(np.array(items, np.int64), put)}
    if _is_json(items):
        return {"t": "json", "v": items}
    return {"t": "items", "v": [encode(item, put) for item in items]}


def _write_dict(value: dict[Any, Any], put: Put) -> Tree:
    if _is_json(value):
        return {"t": "json", "v": value}
    return {"t": "dict", "k": encode(list(value), put), "v": encode(list(value.values()), put)}


def _read_dict(tree: Tree, get: Get) -> dict[Any, Any]:
    return dict(zip(decode(tree["k"], get), decode(tree["v"], get), strict=True))


def _is_json(value: Any) -> bool:
    """True if JSON gives back exactly this value."""
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return True
    if cls is float:
        return math.isfinite(value)
    if cls is list:
        return all(map(_is_json, value))
    if cls is dict:
        return set(map(type, value)) <= {str} and all(map(_is_json, value.values()))
    return False


# Texts.


def write_texts(texts: Sequence[str], put: Put) -> Tree:
    """Texts as one block of UTF-8 separated by zero bytes, with their lengths if a text has a zero
    byte itself.
    """
    joined = "\0".join(texts)
    data = joined.encode("utf-8", "surrogatepass")
    tree: Tree = {"n": len(texts), "b": put(np.frombuffer(data, np.uint8))}
    if joined.count("\0") != max(len(texts) - 1, 0):
        tree["l"] = _write_array(np.array([len(text) for text in texts], np.int64), put)
    return tree


def read_texts(tree: Tree, get: Get) -> list[str]:
    """The texts that `write_texts` stored."""
    joined = get(tree["b"]).tobytes().decode("utf-8", "surrogatepass")
    if "l" not in tree:
        return joined.split("\0") if tree["n"] else []
    texts: list[str] = []
    offset = 0
    for length in decode(tree["l"], get).tolist():
        texts.append(joined[offset : offset + length])
        offset += length + 1
    return texts


def _read_strips(tree: Tree, get: Get) -> list[bytes]:
    data = get(tree["b"]).tobytes()
    ends = np.cumsum(decode(tree["l"], get)).tolist()
    return [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


# Arrays.


def _write_array(array: npt.NDArray[Any], put: Put) -> Tree:
    shape = list(array.shape)
    if array.dtype == object:
        return {"t": "objects", "s": shape, "v": encode(array.ravel().tolist(), put)}
    if array.dtype.kind not in _ARRAY_KINDS or array.dtype.names:
        raise Unstorable(f"an array of {array.dtype}")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return {"t": "array", "d": array.dtype.str, "s": shape, "b": put(data)}


def _read_array(tree: Tree, get: Get) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = get(tree["b"]).view(tree["d"]).reshape(tree["s"])
    return array


def object_array(items: list[Any]) -> npt.NDArray[np.object_]:
    """A one-dimensional array of objects, also of lists of equal length."""
    array: npt.NDArray[np.object_] = np.empty(len(items), object)
    array[:] = items
    return array


# Dataclasses.


def _write_record(value: Any, put: Put) -> Tree:
    names = [field.name for field in fields(value) if field.init]
    content = {name: encode(getattr(value, name), put) for name in names}
    return {"t": "record", "c": record_name(type(value)), "v": content}


def _read_record(tree: Tree, get: Get) -> Any:
    cls = record_class(tree["c"])
    if cls is None:
        raise ValueError(f"{tree['c']} is not a stored class")
    return cls(**{name: decode(field, get) for name, field in tree["v"].items()})


_WRITERS: dict[type[Any], Callable[[Any, Put], Tree]] = {
    list: _write_list,
    dict: _write_dict,
    tuple: lambda value, put: {"t": "tuple", "v": encode(list(value), put)},
    bytes: lambda value, put: {"t": "bytes", "b": put(np.frombuffer(value, np.uint8))},
    np.ndarray: _write_array,
}
_READERS: dict[str, Callable[[Tree, Get], Any]] = {
    "NA": lambda *_: pd.NA,
    "NaT": lambda *_: pd.NaT,
    "array": _read_array,
    "bytes": lambda tree, get: get(tree["b"]).tobytes(),
    "dict": _read_dict,
    "float": lambda tree, _: float(tree["v"]),
    "items": lambda tree, get: [decode(item, get) for item in tree["v"]],
    "json": lambda tree, _: tree["v"],
    "list": lambda tree, get: decode(tree["v"], get).tolist(),
    "objects": lambda tree, get: object_array(decode(tree["v"], get)).reshape(tree["s"]),
    "record": _read_record,
    "scalar": lambda tree, _: np.frombuffer(bytes.fromhex(tree["v"]), tree["d"])[0],
    "strips": _read_strips,
    "texts": read_texts,
    "tuple": lambda tree, get: tuple(decode(tree["v"], get)),
}
