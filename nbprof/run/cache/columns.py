"""Frames, series and indexes, beside what `nbprof.run.cache.values` stores: dtypes, missing values,
categories and attrs stay exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.run.cache import values
from nbprof.run.cache.values import Get, Put, Unstorable, decode, encode

_MASKED = (
    pd.arrays.IntegerArray,
    pd.arrays.FloatingArray,
    pd.arrays.BooleanArray,
)
_NUMPY_DTYPES = "biufcmM"


def frame(value: pd.DataFrame, put: Put) -> dict[str, Any]:
    """A frame as its columns."""
    return {
        "columns": encode(value.columns, put),
        "index": encode(value.index, put),
        "v": [_column(column, put) for _, column in value.items()],
        "attrs": encode(dict(value.attrs), put),
    }


def read_frame(tree: dict[str, Any], get: Get) -> pd.DataFrame:
    """The frame that `frame` stored."""
    index = decode(tree["index"], get)
    columns = [_read_column(column, get) for column in tree["v"]]
    # Arrays that say their dtype need not be a series before they are a column.
    made = {
        i: _one(column, index) if column.dtype == object else column
        for i, column in enumerate(columns)
    }
    out = pd.DataFrame(made, index=index, copy=False)
    out.columns = decode(tree["columns"], get)
    out.attrs.update(decode(tree["attrs"], get))
    return out


def series(value: pd.Series, put: Put) -> dict[str, Any]:
    """A series."""
    return {
        "name": encode(value.name, put),
        "index": encode(value.index, put),
        "v": _column(value, put),
        "attrs": encode(dict(value.attrs), put),
    }


def read_series(tree: dict[str, Any], get: Get) -> pd.Series:
    """The series that `series` stored."""
    out = _one(_read_column(tree["v"], get), decode(tree["index"], get))
    out.name = decode(tree["name"], get)
    out.attrs.update(decode(tree["attrs"], get))
    return out


def _one(column: Any, index: pd.Index) -> pd.Series:
    # With its dtype said: pandas would take objects that are all texts for a column of texts.
    out: pd.Series = pd.Series(column, index, dtype=column.dtype, copy=False)
    return out


def index(value: pd.Index, put: Put) -> dict[str, Any]:
    """An index: a range, one column, or the columns of a MultiIndex."""
    names = encode(list(value.names), put)
    if type(value) is pd.RangeIndex:
        return {"names": names, "range": [value.start, value.stop, value.step]}
    if isinstance(value, pd.MultiIndex):
        levels = [value.get_level_values(i) for i in range(value.nlevels)]
        return {"names": names, "levels": [_column(level, put) for level in levels]}
    if type(value) not in (pd.Index, pd.CategoricalIndex):
        # Dates carry a frequency, which an array of them does not.
        raise Unstorable(f"a {type(value).__name__}")
    return {"names": names, "v": _column(value, put)}


def read_index(tree: dict[str, Any], get: Get) -> pd.Index:
    """The index that `index` stored."""
    names = decode(tree["names"], get)
    if "range" in tree:
        start, stop, step = tree["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    if "levels" in tree:
        return pd.MultiIndex.from_arrays(
            [_read_column(level, get) for level in tree["levels"]], names=names
        )
    column = _read_column(tree["v"], get)
    out: pd.Index = pd.Index(column, name=names[0], dtype=column.dtype, copy=False)
    return out


def _column(column: pd.Series | pd.Index, put: Put) -> dict[str, Any]:
    array: Any = column.array
    dtype = column.dtype
    if isinstance(array, pd.Categorical):
        return {
            "k": "category",
            "v": encode(array.codes, put),
            "c": encode(array.categories, put),
            "o": bool(array.ordered),
        }
    if isinstance(array, _MASKED):
        data, mask = _masked(array)
        return {"k": "masked", "d": str(dtype), "v": encode(data, put), "m": encode(mask, put)}
    if isinstance(dtype, pd.StringDtype):
        missing = "NA" if dtype.na_value is pd.NA else "nan"
        return {
            "k": "string",
            "storage": dtype.storage,
            "na": missing,
            "v": _objects(np.asarray(array, object), put),
        }
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return {"k": "object", "v": _objects(array.to_numpy(), put)}
    if isinstance(dtype, np.dtype) and dtype.kind in _NUMPY_DTYPES:
        return {"k": "numpy", "v": encode(array.to_numpy(), put)}
    raise Unstorable(f"a column of {dtype}")


def _read_column(tree: dict[str, Any], get: Get) -> Any:
    kind = tree["k"]
    if kind == "category":
        dtype = pd.CategoricalDtype(decode(tree["c"], get), tree["o"])
        return pd.Categorical.from_codes(decode(tree["v"], get), dtype=dtype)
    if kind == "masked":
        data, mask = decode(tree["v"], get), decode(tree["m"], get)
        by_name = {
            "I": pd.arrays.IntegerArray,
            "U": pd.arrays.IntegerArray,
            "F": pd.arrays.FloatingArray,
            "b": pd.arrays.BooleanArray,
        }
        return by_name[tree["d"][0]](data, mask)
    if kind == "string":
        return _read_strings(tree, get)
    if kind == "object":
        return _read_objects(tree["v"], get)
    return decode(tree["v"], get)


def _masked(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    mask = np.asarray(array.isna(), np.bool_)
    kind = array.dtype.numpy_dtype
    return array.to_numpy(dtype=kind, na_value=kind.type(0)), mask


# Columns of texts: few distinct ones in long columns (ops, hosts, types), so each is stored once
# where that pays. What is missing is a kind of its own: None, NaN and NA are not the same.

_MISSING: list[Any] = [None, float("nan"), pd.NA]


def _missing(value: object) -> int:
    if value is None:
        return -1
    if value is pd.NA:
        return -3
    if type(value) is float and value != value:
        return -2
    raise Unstorable("a mixed column")


def _objects(data: npt.NDArray[Any], put: Put) -> Any:
    items = data.tolist()
    codes: dict[str, int] = {}
    try:
        if set(map(type, items)) <= {str}:
            codes = {text: number for number, text in enumerate(dict.fromkeys(items))}
            coded = np.fromiter(map(codes.__getitem__, items), np.int64, len(items))
        else:
            coded = np.array(
                [codes.setdefault(x, len(codes)) if type(x) is str else _missing(x) for x in items],
                np.int64,
            )
    except Unstorable:
        return {"mixed": encode(items, put)}
    narrow = np.int8 if len(codes) < 2**7 else np.int16 if len(codes) < 2**15 else np.int32
    return {"codes": encode(coded.astype(narrow), put), "texts": values.texts(list(codes), put)}


def _read_objects(tree: dict[str, Any], get: Get) -> npt.NDArray[np.object_]:
    if "mixed" in tree:
        items = decode(tree["mixed"], get)
        out: npt.NDArray[np.object_] = np.empty(len(items), object)
        out[:] = items
        return out
    objects: npt.NDArray[np.object_] = _table(tree, get)[decode(tree["codes"], get)]
    return objects


def _table(tree: dict[str, Any], get: Get) -> npt.NDArray[np.object_]:
    """The texts by code, and behind them, for codes -3, -2 and -1, what stands for missing."""
    texts = values.read_texts(tree["texts"], get)
    table: npt.NDArray[np.object_] = np.empty(len(texts) + 3, object)
    table[: len(texts)] = texts
    table[-1], table[-2], table[-3] = _MISSING
    return table


def _read_strings(tree: dict[str, Any], get: Get) -> Any:
    dtype = pd.StringDtype(tree["storage"], na_value=pd.NA if tree["na"] == "NA" else np.nan)
    content = tree["v"]
    if "mixed" in content:
        raise ValueError("a text column that holds something else")
    texts = pd.array(values.read_texts(content["texts"], get), dtype=dtype)
    codes = decode(content["codes"], get).astype(np.intp)
    return texts.take(np.maximum(codes, -1), allow_fill=True)


values.kind(pd.DataFrame, "frame", frame, read_frame)
values.kind(pd.Series, "series", series, read_series)
for _index in (pd.Index, pd.RangeIndex, pd.MultiIndex, pd.CategoricalIndex):
    values.kind(_index, "index", index, read_index)
