"""What some events say is what the column of all events says of them."""

import numpy as np
import pytest

from nbprof.core.receipt import Receipt
from nbprof.core.trace import DOUBLE, INT, TEXT, UINT, ArgColumn, Events, Trace, no_counters

COUNT = 100
EVENT = np.array([3, 10, 10, 41, 99], np.int32)


@pytest.fixture(scope="module")
def trace():
    columns = {
        "id": ArgColumn(EVENT, INT, np.array([0, -5, 7, 1, 2], np.int8)),
        "large": ArgColumn(EVENT, UINT, np.array([1, 2, 3, 4, 2**64 - 2], np.uint64)),
        "text": ArgColumn(EVENT, TEXT, np.array([0, 1, 2, 0, 1], np.uint8)),
        "mixed": ArgColumn(
            EVENT,
            np.array([INT, TEXT, DOUBLE, TEXT, UINT], np.uint8),
            np.array([4, 1, 5, 0, 9], np.int64),
        ),
    }
    events = Events(
        np.zeros(COUNT, np.int32),
        np.zeros(COUNT, np.int32),
        np.arange(COUNT),
        np.zeros(COUNT, np.int64),
    )
    names = np.array(["event"], object)
    return Trace(
        events,
        names,
        names,
        no_counters(),
        [],
        columns,
        {},
        ["", "a", "b"],
        [],
        ["host"],
        0,
        Receipt(),
    )


@pytest.mark.parametrize("name", ["id", "large", "text", "mixed", "absent"])
@pytest.mark.parametrize("rows", [[], [99, 3, 0, 10], [0], range(COUNT)])
def test_some_rows_are_those_of_the_whole_column(trace, name, rows):
    rows = np.array(rows, np.int64)
    assert trace.arg(name, -7, rows).tolist() == trace.arg(name, -7)[rows].tolist()
    assert trace.text_arg(name, rows).tolist() == trace.text_arg(name)[rows].tolist()


@pytest.mark.parametrize("name", ["id", "large", "text", "mixed", "absent"])
def test_above_is_asked_of_the_whole_column(trace, name):
    lowest = np.iinfo(np.int64).min
    assert trace.above(name, 0).tolist() == (trace.arg(name, lowest) > 0).tolist()
    assert trace.above(name, 0, text=True).tolist() == (trace.text_arg(name) > 0).tolist()


def test_of_an_arg_that_an_event_has_twice_the_last_counts(trace):
    assert trace.arg("id")[10] == trace.arg("id", rows=np.array([10]))[0] == 7
    assert trace.arg("large")[99] == -2
