"""Values as JSON and blocks of bytes, and back exactly: numbers, texts, arrays, frames, and lists,
tuples and dicts of them.

No pickle: what lies on a disk may have been put there by somebody else, and must not be able to run
anything. What the JSON says only ever becomes data of the types below. A value of any other type is
`Unstorable`, and is then computed again each time.

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

from nbprof.display.payload import CLASSES, Part

Octets = npt.NDArray[np.uint8]
Put = Callable[[Octets], int]
Get = Callable[[int], Octets]

_SHORT = 16
_INT64 = range(-(2**63), 2**63)
_KINDS = "biufcmMSU"
_RECORDS: dict[str, type[Any]] = {}


class Unstorable(Exception):  # noqa: N818 -- never shown: the value is computed again
    """A value that would not come back exactly."""


def kind(
    cls: type[Any],
    tag: str,
    writer: Callable[[Any, Put], dict[str, Any]],
    reader: Callable[[dict[str, Any], Get], Any],
) -> None:
    """Lets values of a type (not of those derived from it) be stored."""
    _WRITERS[cls] = lambda value, put: {"t": tag, **writer(value, put)}
    _READERS[tag] = reader


def record(cls: type[Any]) -> type[Any]:
    """Lets a dataclass of plain fields be stored, under the name of its class; a decorator."""
    _RECORDS[cls.__name__] = cls
    return cls


def encode(value: Any, put: Put) -> Any:
    """The JSON that describes a value; `put` stores a block of bytes and says its number.

    Raises
    ------
    Unstorable
        Something in it is of a type that is not stored.
    """
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is float:
        return value if math.isfinite(value) else {"t": "float", "v": str(value)}
    writer = _WRITERS.get(cls)
    if writer is not None:
        return writer(value, put)
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return {"t": "scalar", "d": value.dtype.str, "v": value.tobytes().hex()}
    if value is pd.NA:
        return {"t": "NA"}
    if value is pd.NaT:
        return {"t": "NaT"}
    if isinstance(value, Part):
        return {
            "t": "part",
            "c": cls.__name__,
            "v": {field.name: encode(getattr(value, field.name), put) for field in fields(cls)},
        }
    if _RECORDS.get(cls.__name__) is cls:
        return {
            "t": "record",
            "c": cls.__name__,
            "v": {f.name: encode(getattr(value, f.name), put) for f in fields(value) if f.init},
        }
    raise Unstorable(f"a {cls.__name__}")


def decode(tree: Any, get: Get) -> Any:
    """The value that `encode` described; `get` gives the bytes of a block, which become the array's
    own.
    """
    return _READERS[tree["t"]](tree, get) if type(tree) is dict else tree


# Lists and dicts. A long list of one type is a block; one that JSON can hold as it is, is left as
# it is.


def _list(value: list[Any], put: Put) -> Any:
    if len(value) >= _SHORT:
        found = set(map(type, value))
        if found == {str}:
            return {"t": "texts", **texts(value, put)}
        if found == {bytes}:
            lengths = np.array([len(item) for item in value], np.int64)
            return {
                "t": "strips",
                "l": _array(lengths, put),
                "b": put(np.frombuffer(b"".join(value), np.uint8)),
            }
        if found == {float}:
            return {"t": "list", "v": _array(np.array(value, np.float64), put)}
        if found == {int} and min(value) in _INT64 and max(value) in _INT64:
            return {"t": "list", "v": _array(np.array(value, np.int64), put)}
    if _plain(value):
        return {"t": "json", "v": value}
    return {"t": "items", "v": [encode(item, put) for item in value]}


def _dict(value: dict[Any, Any], put: Put) -> Any:
    if _plain(value):
        return {"t": "json", "v": value}
    return {"t": "dict", "k": encode(list(value), put), "v": encode(list(value.values()), put)}


def _plain(value: Any) -> bool:
    """Whether JSON gives back exactly this."""
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return True
    if cls is float:
        return math.isfinite(value)
    if cls is list:
        return all(map(_plain, value))
    return (
        cls is dict and all(type(key) is str for key in value) and all(map(_plain, value.values()))
    )


# Texts.


def texts(values: Sequence[str], put: Put) -> dict[str, Any]:
    """Texts as one block of UTF-8 with a zero byte between each two, or with their lengths where a
    text holds such a byte.
    """
    joined = "\0".join(values)
    data = joined.encode("utf-8", "surrogatepass")
    out: dict[str, Any] = {"n": len(values), "b": put(np.frombuffer(data, np.uint8))}
    if joined.count("\0") != max(len(values) - 1, 0):
        out["l"] = _array(np.array([len(text) for text in values], np.int64), put)
    return out


def read_texts(tree: dict[str, Any], get: Get) -> list[str]:
    """The texts that `texts` stored."""
    joined = get(tree["b"]).tobytes().decode("utf-8", "surrogatepass")
    if "l" not in tree:
        return joined.split("\0") if tree["n"] else []
    out: list[str] = []
    at = 0
    for length in decode(tree["l"], get).tolist():
        out.append(joined[at : at + length])
        at += length + 1
    return out


# Arrays.


def _array(value: npt.NDArray[Any], put: Put) -> Any:
    if value.dtype == object:
        return {"t": "objects", "s": list(value.shape), "v": encode(value.ravel().tolist(), put)}
    if value.dtype.kind not in _KINDS or value.dtype.names:
        raise Unstorable(f"an array of {value.dtype}")
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return {"t": "array", "d": value.dtype.str, "s": list(value.shape), "b": put(data)}


def _read_array(tree: dict[str, Any], get: Get) -> npt.NDArray[Any]:
    out: npt.NDArray[Any] = get(tree["b"]).view(tree["d"]).reshape(tree["s"])
    return out


def _read_objects(tree: dict[str, Any], get: Get) -> npt.NDArray[np.object_]:
    items = decode(tree["v"], get)
    out: npt.NDArray[np.object_] = np.empty(len(items), object)
    out[:] = items
    shaped: npt.NDArray[np.object_] = out.reshape(tree["s"])
    return shaped


def _bytes(value: bytes, put: Put) -> Any:
    return {"t": "bytes", "b": put(np.frombuffer(value, np.uint8))}


def _read_strips(tree: dict[str, Any], get: Get) -> list[bytes]:
    data = get(tree["b"]).tobytes()
    ends = np.cumsum(decode(tree["l"], get)).tolist()
    return [data[at:end] for at, end in zip([0, *ends[:-1]], ends, strict=True)]


def _read_part(tree: dict[str, Any], get: Get) -> Part:
    return CLASSES[tree["c"]](**{name: decode(item, get) for name, item in tree["v"].items()})


def _read_record(tree: dict[str, Any], get: Get) -> Any:
    return _RECORDS[tree["c"]](**{name: decode(item, get) for name, item in tree["v"].items()})


_WRITERS: dict[type[Any], Callable[[Any, Put], Any]] = {
    list: _list,
    dict: _dict,
    tuple: lambda value, put: {"t": "tuple", "v": encode(list(value), put)},
    bytes: _bytes,
    np.ndarray: _array,
}
_READERS: dict[str, Callable[[dict[str, Any], Get], Any]] = {
    "float": lambda tree, _: float(tree["v"]),
    "json": lambda tree, _: tree["v"],
    "items": lambda tree, get: [decode(item, get) for item in tree["v"]],
    "list": lambda tree, get: decode(tree["v"], get).tolist(),
    "texts": read_texts,
    "strips": _read_strips,
    "dict": lambda tree, get: dict(
        zip(decode(tree["k"], get), decode(tree["v"], get), strict=True)
    ),
    "tuple": lambda tree, get: tuple(decode(tree["v"], get)),
    "bytes": lambda tree, get: get(tree["b"]).tobytes(),
    "array": _read_array,
    "objects": _read_objects,
    "scalar": lambda tree, _: np.frombuffer(bytes.fromhex(tree["v"]), tree["d"])[0],
    "NA": lambda *_: pd.NA,
    "NaT": lambda *_: pd.NaT,
    "record": _read_record,
    "part": _read_part,
}
