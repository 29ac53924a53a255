"""Whether two values are the same in all that a person could see: types, dtypes, missing values,
order, attrs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity

_PLAIN = frozenset({str, int, bool, type(None)})
"""Types whose values are the same where they are equal."""


def same(one, other, where="value"):
    if isinstance(one, Mapping):
        assert list(one) == list(other), where
        for key in one:
            same(one[key], other[key], f"{where}[{key!r}]")
        return
    if is_dataclass(one):
        # A column or a module out of the cache may be of a class derived from the one it stands
        # for.
        assert isinstance(other, type(one)) or type(other) is type(one), where
        for each in fields(one):
            same(getattr(one, each.name), getattr(other, each.name), f"{where}.{each.name}")
        return
    if isinstance(one, (list, tuple)) or (
        hasattr(one, "__getitem__") and hasattr(one, "__len__") and type(one).__name__ == "Texts"
    ):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            if type(a) is type(b) and type(a) in _PLAIN and a == b:
                continue
            same(a, b, f"{where}[{i}]")
        return
    assert type(one) is type(other), f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, pd.DataFrame):
        # Names of columns are of no dtype that somebody chose: where pyarrow is installed, they may
        # be Arrow's strings or Python's.
        pd.testing.assert_frame_equal(
            one,
            other,
            check_exact=True,
            check_column_type=False,
            check_index_type="exact",
            check_freq=True,
        )
        dtypes = list(one.dtypes)
        assert [str(d) for d in dtypes] == [str(d) for d in other.dtypes], where
        same(dict(one.attrs), dict(other.attrs), f"{where}.attrs")
        for column, dtype in enumerate(dtypes):
            if dtype.kind == "O":
                same(
                    one.iloc[:, column].tolist(),
                    other.iloc[:, column].tolist(),
                    f"{where}.{one.columns[column]}",
                )
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True, check_index_type="exact")
    elif isinstance(one, pd.api.extensions.ExtensionArray):
        same(pd.Series(one), pd.Series(other), where)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype == object:
            same(one.ravel().tolist(), other.ravel().tolist(), where)
        else:
            assert one.tobytes() == other.tobytes(), where
    elif isinstance(one, float):
        assert repr(one) == repr(other), where
    elif one is pd.NA or one is pd.NaT:
        assert other is one, where
    elif isinstance(one, Activity):
        # What it has made depends on what was asked for. What a person sees of it is in the values
        # that are compared.
        assert isinstance(other, Activity), where
    elif type(one).__module__.startswith("nbprof."):
        same(vars(one), vars(other), where)
    else:
        assert one == other, where
