"""Tables of typed columns, and the tables of an activity."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.activity import activity, tables
from nbprof.activity.tables import Extents, Kernels, Markers, Work
from nbprof.core.columns import Columns, float64, int32

TABLES = [
    table
    for table in vars(tables).values()
    if isinstance(table, type) and issubclass(table, Columns) and table is not Columns
]


class Points(Columns):
    """Points of a line."""

    x = int32("Place.")
    y = float64("Height.")
    label = int32("Code of a label.", optional=True)


def test_columns_have_the_declared_dtypes_and_scalars_fill_them():
    points = Points(x=[1, 2, 3], y=0)
    assert (points.x.dtype, points.y.dtype) == (np.int32, np.float64)
    assert points.y.tolist() == [0.0, 0.0, 0.0]
    assert len(points) == 3


def test_arrays_of_the_declared_dtype_are_not_copied():
    x = np.arange(3, dtype=np.int32)
    points = Points(x=x, y=[0, 1, 2])
    assert points.x is x
    assert np.shares_memory(points.frame()["x"].to_numpy(), x)


@pytest.mark.parametrize(
    ("arrays", "error"),
    [
        ({"x": [1]}, "Points needs the column y"),
        ({"x": [1], "y": [1.0], "z": [1]}, "Points has no column z; it has x, y, label"),
    ],
)
def test_missing_and_unknown_columns_are_errors(arrays, error):
    with pytest.raises(TypeError, match=error):
        Points(**arrays)


def test_columns_of_different_lengths_are_an_error():
    with pytest.raises(
        ValueError, match=r"Points.y has the shape \(1,\), other columns have 2 rows"
    ):
        Points(x=[1, 2], y=[1.0])


def test_optional_columns_may_be_absent():
    points = Points(x=[1], y=[2.0])
    assert "label" not in points
    assert list(points.frame()) == ["x", "y"]
    with pytest.raises(
        AttributeError, match="these Points have no column 'label': it was not recorded"
    ):
        _ = points.label
    assert points.with_(label=[7]).label.tolist() == [7]


def test_rows_cannot_be_changed():
    points = Points(x=[1], y=[2.0])
    with pytest.raises(AttributeError, match="Points cannot be changed"):
        points.x = np.array([2])
    assert points.with_(x=[5]).x.tolist() == [5]
    assert points.x.tolist() == [1]


@pytest.mark.parametrize("index", [np.array([True, False, True]), np.array([0, 2]), slice(0, 3, 2)])
def test_take_by_mask_position_and_slice(index):
    taken = Points(x=[1, 2, 3], y=[1, 2, 3]).take(index)
    assert (taken.x.tolist(), taken.y.tolist(), len(taken)) == ([1, 3], [1.0, 3.0], 2)


def test_concat_keeps_optional_columns_that_all_parts_have():
    plain, labelled = Points(x=[1], y=[1.0]), Points(x=[2], y=[2.0], label=[3])
    assert Points.concat([plain, labelled]).x.tolist() == [1, 2]
    assert "label" not in Points.concat([plain, labelled])
    assert Points.concat([labelled, labelled]).label.tolist() == [3, 3]
    assert len(Points.concat([])) == 0


def test_of_takes_the_declared_columns_of_frames():
    frame = pd.DataFrame({"y": [1, 2], "other": ["a", "b"], "x": [3, 4]})
    points = Points.of(frame)
    assert (points.x.tolist(), points.y.tolist()) == ([3, 4], [1.0, 2.0])
    assert Points.of(frame, frame).x.tolist() == [3, 4, 3, 4]
    assert len(Points.of()) == 0


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_tables_of_an_activity_are_declared_in_full(table):
    assert table.__doc__
    assert all(column.meaning.endswith((".", "…")) for column in table.columns.values())
    empty = table.empty()
    assert len(empty) == len(empty.frame()) == 0
    assert all(
        empty.arrays[name].dtype == column.dtype
        for name, column in table.columns.items()
        if not column.optional
    )


def test_what_no_dialect_registered_is_empty():
    recording = activity.Activity(["h"])
    for name in activity.Activity.__annotations__:
        value = getattr(recording, name)
        assert not isinstance(value, Columns) or len(value) == 0
    assert isinstance(recording.kernels, Kernels)
    assert isinstance(recording.xprof_work, Work)
    assert recording.work is recording.work


def test_work_is_a_kind_of_markers_with_a_class():
    assert list(Work.columns) == [*Markers.columns, "cls"]


def test_extents_by_host_and_device():
    int32s = [np.array(values, np.int32) for values in ([1, 0, 0, 1], [0, 3, 0, 0])]
    extents = tables.extents(*int32s, np.array([5, 6, 7, 2]), np.array([6, 9, 8, 4]))
    assert extents.frame().to_numpy().tolist() == [[0, 0, 7, 8], [0, 3, 6, 9], [1, 0, 2, 6]]
    assert len(tables.extents(*(np.zeros(0, np.int32),) * 2, *(np.zeros(0, np.int64),) * 2)) == 0
    assert isinstance(extents, Extents)
