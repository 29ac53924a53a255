"""Every value comes back as it was, or is not stored at all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.core.codec.container import Writer
from nbprof.core.codec.values import Unstorable
from nbprof.display.codec import Delta
from nbprof.run.cache.part import Part
from nbprof.tools import dashboard as payload  # noqa: F401 -- lets a Delta be stored
from tests.cache.same import same


def back(value, tmp_path):
    path = tmp_path / "a.part"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.add("it", value)
        writer.close()
        assert writer.size == file.tell()
    part = Part(path)
    out = part.load("it")
    part.close()
    return out


ODD = ["a", "", None, "é", "zero \0 byte", "\ud800 alone", float("nan"), pd.NA]
FRAME = pd.DataFrame(
    {
        "text": ["a", "b", None],
        "object": pd.Series(["a", None, float("nan")], dtype=object),
        "NA": pd.Series(["a", pd.NA, "x"], dtype=object),
        "mixed": pd.Series([1, "a", (2.5, None)], dtype=object),
        "lists": pd.Series([[1], [], {"a": b"x"}], dtype=object),
        "Int64": pd.array([1, None, 2**62 + 1], dtype="Int64"),
        "UInt8": pd.array([1, None, 255], dtype="UInt8"),
        "Float32": pd.array([0.1, None, -0.0], dtype="Float32"),
        "boolean": pd.array([True, None, False], dtype="boolean"),
        "bool": [True, False, True],
        "float": [1.5, np.nan, -0.0],
        "half": np.array([1.5, np.nan, -0.0], np.float16),
        "uint64": np.array([2**64 - 1, 0, 2**53 + 1], np.uint64),
        "category": pd.Categorical(["x", None, "y"], categories=["y", "x", "never"], ordered=True),
        "numbers": pd.Categorical([3, 1, 3], categories=[3, 1]),
        "time": pd.to_datetime(["2026-01-01", None, "2027-01-01"]),
        "length": pd.to_timedelta([1, None, 3], unit="us"),
        "string": pd.array(["é", None, ""], dtype=pd.StringDtype("python", na_value=pd.NA)),
    }
)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.head(0),
        FRAME.iloc[[2, 0]],
        pd.DataFrame(),
        pd.DataFrame(columns=["a", "b"]),
        pd.DataFrame(index=[3, 4]),
        pd.DataFrame({"a": []}),
        pd.DataFrame({"text": pd.Series([None, None], dtype="str")}),
        pd.DataFrame({"text": pd.Series([], dtype="str"), "object": pd.Series([], dtype=object)}),
        pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", None], name="name")),
        pd.DataFrame({"a": [1, 2]}, index=pd.Index([1.5, np.nan])),
        pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], dtype=object)),
        pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(5, 1, -2, name="r")),
        pd.DataFrame({"a": [1, 2]}, index=pd.CategoricalIndex(["x", "y"], categories=["y", "x"])),
        pd.DataFrame([[1, 2.0], [3, 4.0]], columns=["same", "same"]),
        pd.DataFrame({("a", 1): [1, 2], ("b", 2): [3, 4]}),
        pd.DataFrame({"k": [1, 1, 2], "v": [1, 2, 3]}).groupby("k").agg(["sum", "max"]),
        pd.DataFrame({1: [1], 2: ["x"]}),
    ],
    ids=range(18),
)
def test_frames(frame, tmp_path):
    same(frame, back(frame, tmp_path))


def test_attrs_and_series(tmp_path):
    frame = FRAME.copy()
    frame.attrs = {"unit": "ms", "nested": {"a": [1, (2, 3)]}, 5: None}
    same(frame, back(frame, tmp_path))
    series = pd.Series([1, None], index=["x", "y"], name=("a", 1), dtype="Int64")
    same(series, back(series, tmp_path))


def test_what_came_back_may_be_written_to(tmp_path):
    out = back({"frame": pd.DataFrame({"a": [1, 2]}), "array": np.arange(3)}, tmp_path)
    out["frame"].loc[0, "a"] = 9
    out["array"][0] = 9
    assert out["frame"]["a"].tolist() == [9, 2]
    assert out["array"].tolist() == [9, 1, 2]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**80,
        -(2**63),
        -0.0,
        float("inf"),
        float("nan"),
        "\ud800",
        b"",
        b"x" * 1000,
        [1] * 100,
        [2**63] * 20,
        [2**63 - 1, -(2**63)] * 20,
        [-(2**63) - 1] * 20,
        [True] * 30,
        [1, True, 1.0] * 20,
        ["zero \0 byte"] * 20,
        ["\0"] * 20,
        ["two \0\0 bytes", *["a"] * 19],
        [""] * 20,
        ["ü\ud800"] * 20,
        [b"", b"\0", b"abc"] * 10,
        [0.1, float("nan"), -0.0] * 10,
        ODD * 5,
        {"a": {1: (2, 3)}, "": None},
        {(0, 1): "x", None: [()]},
        {"t": "json", "v": [1]},
        {i: f"name {i}" for i in range(100)},
        (1, [2, (3,)], {}),
        np.int16(3),
        np.float32(0.1),
        np.bool_(True),
        np.datetime64("2026-01-01T00:00:00.123", "ms"),
        np.zeros((2, 3), np.complex64),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(5),
        np.array(["a", "éé"]),
        np.arange(5, dtype=">i4"),
        np.arange(10)[::3],
        np.array(ODD, object),
        np.array([[1, "a"], [None, 2**70]], object),
        np.zeros((0, 4), np.int8),
        Delta(np.arange(5)),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_values(value, tmp_path):
    same(value, back(value, tmp_path))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner, max_size=20)
        | st.tuples(inner, inner)
    ),
    max_leaves=60,
)


@settings(max_examples=150, deadline=None)
@given(value=PLAIN)
def test_any_value(value, tmp_path_factory):
    same(value, back(value, tmp_path_factory.getbasetemp()))


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=())) | st.none(), max_size=40))
def test_any_texts(texts, tmp_path_factory):
    column = pd.DataFrame({"o": pd.Series(texts, dtype=object)})
    same(column, back(column, tmp_path_factory.getbasetemp()))


class Whatever:
    pass


class Int(int):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Whatever(),
        [1] * 20 + [Whatever()],
        {"a": {1, 2}},
        Int(3),
        [Int(3)] * 20,
        np.str_("a"),
        np.zeros(2, [("a", "i4")]),
        np.array([Whatever()], object),
        pd.DataFrame({"a": pd.period_range("2026", periods=2, freq="D")}),
        pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2026", periods=2, freq="D")),
        pd.DataFrame({"a": pd.Series([Whatever()], dtype=object)}),
        type("Sub", (pd.DataFrame,), {})({"a": [1]}),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_would_not_come_back_exactly_is_not_stored(value, tmp_path):
    if isinstance(value, np.str_):
        same(value, back(value, tmp_path))
        return
    with pytest.raises(Unstorable):
        back(value, tmp_path)


def test_codes_of_long_columns_keep_few_texts(tmp_path):
    frame = pd.DataFrame(
        {
            "op": [f"operation number {i % 300}" for i in range(40_000)],
            "type": pd.Series(["x"] * 40_000, dtype=object),
        }
    )
    same(frame, back(frame, tmp_path))
    assert (tmp_path / "a.part").stat().st_size < 40_000 * 4
