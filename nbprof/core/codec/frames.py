"""Frames, series and indexes as stored values, with exact dtypes, missing values, categories and
attrs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.codec.values import (
    Get,
    Put,
    Tree,
    Unstorable,
    decode,
    encode,
    object_array,
    read_texts,
    register,
    write_texts,
)

_MASKED = {
    "I": pd.arrays.IntegerArray,
    "U": pd.arrays.IntegerArray,
    "F": pd.arrays.FloatingArray,
    "b": pd.arrays.BooleanArray,
}
"""Arrays with a mask of missing values, by the first letter of their dtype."""
_NUMPY_KINDS = "biufcmM"
_INDEXES = (pd.Index, pd.RangeIndex, pd.MultiIndex, pd.CategoricalIndex)
_MISSING: list[Any] = [pd.NA, float("nan"), None]
"""Missing values of text columns, by their codes -3, -2 and -1."""


def _write_frame(frame: pd.DataFrame, put: Put) -> Tree:
    return {
        "columns": encode(frame.columns, put),
        "index": encode(frame.index, put),
        "v": [_write_column(column, put) for _, column in frame.items()],
        "attrs": encode(dict(frame.attrs), put),
    }


def _read_frame(tree: Tree, get: Get) -> pd.DataFrame:
    index = decode(tree["index"], get)
    columns: dict[int, Any] = {}
    for number, column_tree in enumerate(tree["v"]):
        column = _read_column(column_tree, get)
        columns[number] = _series(column, index) if column.dtype == object else column
    frame = pd.DataFrame(columns, index=index, copy=False)
    frame.columns = decode(tree["columns"], get)
    frame.attrs.update(decode(tree["attrs"], get))
    return frame


def _write_series(series: pd.Series, put: Put) -> Tree:
    return {
        "name": encode(series.name, put),
        "index": encode(series.index, put),
        "v": _write_column(series, put),
        "attrs": encode(dict(series.attrs), put),
    }


def _read_series(tree: Tree, get: Get) -> pd.Series:
    series = _series(_read_column(tree["v"], get), decode(tree["index"], get))
    series.name = decode(tree["name"], get)
    series.attrs.update(decode(tree["attrs"], get))
    return series


def _series(column: Any, index: pd.Index) -> pd.Series:
    # With an explicit dtype: pandas would infer a text column from objects that are all texts.
    series: pd.Series = pd.Series(column, index, dtype=column.dtype, copy=False)
    return series


def _write_index(index: pd.Index, put: Put) -> Tree:
    names = encode(list(index.names), put)
    if type(index) is pd.RangeIndex:
        return {"names": names, "range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.MultiIndex):
        levels = [index.get_level_values(level) for level in range(index.nlevels)]
        return {"names": names, "levels": [_write_column(level, put) for level in levels]}
    if type(index) not in (pd.Index, pd.CategoricalIndex):
        # Dates carry a frequency, which an array of them does not have.
        raise Unstorable(f"a {type(index).__name__}")
    return {"names": names, "v": _write_column(index, put)}


def _read_index(tree: Tree, get: Get) -> pd.Index:
    names = decode(tree["names"], get)
    if "range" in tree:
        start, stop, step = tree["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    if "levels" in tree:
        levels = [_read_column(level, get) for level in tree["levels"]]
        return pd.MultiIndex.from_arrays(levels, names=names)
    column = _read_column(tree["v"], get)
    index: pd.Index = pd.Index(column, name=names[0], dtype=column.dtype, copy=False)
    return index


def _write_column(column: pd.Series | pd.Index, put: Put) -> Tree:
    array: Any = column.array
    dtype = column.dtype
    if isinstance(array, pd.Categorical):
        codes, categories = encode(array.codes, put), encode(array.categories, put)
        return {"k": "category", "v": codes, "c": categories, "o": bool(array.ordered)}
    if isinstance(array, tuple(_MASKED.values())):
        data, mask = _data_and_mask(array)
        return {"k": "masked", "d": str(dtype), "v": encode(data, put), "m": encode(mask, put)}
    if isinstance(dtype, pd.StringDtype):
        missing = "NA" if dtype.na_value is pd.NA else "nan"
        texts = _write_objects(np.asarray(array, object), put)
        return {"k": "string", "storage": dtype.storage, "na": missing, "v": texts}
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return {"k": "object", "v": _write_objects(array.to_numpy(), put)}
    if isinstance(dtype, np.dtype) and dtype.kind in _NUMPY_KINDS:
        return {"k": "numpy", "v": encode(array.to_numpy(), put)}
    raise Unstorable(f"a column of {dtype}")


def _read_column(tree: Tree, get: Get) -> Any:
    kind = tree["k"]
    if kind == "category":
        dtype = pd.CategoricalDtype(decode(tree["c"], get), tree["o"])
        return pd.Categorical.from_codes(decode(tree["v"], get), dtype=dtype)
    if kind == "masked":
        return _MASKED[tree["d"][0]](decode(tree["v"], get), decode(tree["m"], get))
    if kind == "string":
        return _read_strings(tree, get)
    if kind == "object":
        return _read_objects(tree["v"], get)
    return decode(tree["v"], get)


def _data_and_mask(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    mask = np.asarray(array.isna(), np.bool_)
    dtype = array.dtype.numpy_dtype
    return array.to_numpy(dtype=dtype, na_value=dtype.type(0)), mask


# Columns of texts are dictionary coded: long columns (ops, hosts, types) have few distinct texts.
# None, NaN and NA are different missing values, so they have different codes.


def _write_objects(array: npt.NDArray[Any], put: Put) -> Tree:
    items = array.tolist()
    code_of: dict[str, int] = {}
    codes: npt.NDArray[np.int64] = np.empty(len(items), np.int64)
    if set(map(type, items)) <= {str}:
        code_of = {text: code for code, text in enumerate(dict.fromkeys(items))}
        codes[:] = np.fromiter(map(code_of.__getitem__, items), np.int64, len(items))
    else:
        for row, item in enumerate(items):
            code = code_of.setdefault(item, len(code_of)) if type(item) is str else _missing(item)
            if code is None:
                return {"mixed": encode(items, put)}
            codes[row] = code
    return {
        "codes": encode(codes.astype(np.min_scalar_type(-len(code_of) - 1)), put),
        "texts": write_texts(list(code_of), put),
    }


def _missing(value: object) -> int | None:
    if value is None:
        return -1
    if value is pd.NA:
        return -3
    if type(value) is float and value != value:
        return -2
    return None


def _read_objects(tree: Tree, get: Get) -> npt.NDArray[np.object_]:
    if "mixed" in tree:
        return object_array(decode(tree["mixed"], get))
    table = object_array(read_texts(tree["texts"], get) + _MISSING)
    column: npt.NDArray[np.object_] = table[decode(tree["codes"], get)]
    return column


def _read_strings(tree: Tree, get: Get) -> Any:
    dtype = pd.StringDtype(tree["storage"], na_value=pd.NA if tree["na"] == "NA" else np.nan)
    content = tree["v"]
    if "mixed" in content:
        raise ValueError("a text column that holds something else")
    texts = pd.array(read_texts(content["texts"], get), dtype=dtype)
    codes = decode(content["codes"], get).astype(np.intp)
    return texts.take(np.maximum(codes, -1), allow_fill=True)


register(pd.DataFrame, "frame", _write_frame, _read_frame)
register(pd.Series, "series", _write_series, _read_series)
for _index_class in _INDEXES:
    register(_index_class, "index", _write_index, _read_index)
