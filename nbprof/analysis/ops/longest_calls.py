"""The longest call of each op and kernel, for links from rows of a table to the timeline."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import Spans
from nbprof.analysis.input.input_pipeline import COPY_TO_DEVICE, copy_name
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s

Floats = npt.NDArray[np.float64]


def ops(activity: Activity, start: Int64s) -> pd.DataFrame:
    """The longest run of each op on each side; of equally long ones the first.

    Where a device counts its ops by its own clock, as a TPU does, the op is the longest by that
    clock, as in the tables; its start is that of the timeline.

    Parameters
    ----------
    activity : Activity
    start : int64[events]
        ps.

    Returns
    -------
    DataFrame
        `where`, "device", "host", or "input" for iterators and copies that are not ops of the host;
        `op`; `at_ms`, its start in the timeline after that of the profile; `for_ms`, its duration
        as the tables have it.
    """
    # Names get their codes when the tables are built: these first.
    device, host = activity.device_ops, activity.host_ops
    iterators, calls = activity.iterators, activity.calls
    names, texts = activity.ops.values, activity.texts.values
    copies = calls.take(np.isin(calls.kind, np.flatnonzero(texts == COPY_TO_DEVICE)))
    copy_names = np.array([copy_name(text) for text in texts], object)
    parts = [
        _longest_of_each(names, device, device.op, start),
        _longest_of_each(names, host, host.op, start),
        _longest_of_each(names, iterators, iterators.name, start),
        _longest_of_each(copy_names, copies, copies.name, start),
    ]
    sides = ["device", "host", "input", "input"]
    return pd.DataFrame(
        {
            "where": np.repeat(np.array(sides, object), [len(part.op) for part in parts]),
            "op": np.concatenate([part.op for part in parts]),
            "at_ms": np.concatenate([part.at_ms for part in parts]),
            "for_ms": np.concatenate([part.for_ms for part in parts]),
        }
    )


class _Longest(NamedTuple):
    """The longest calls: their names, when they began, and how long they took."""

    op: npt.NDArray[np.object_]
    at_ms: Floats
    for_ms: Floats


def _longest_of_each(
    names: npt.NDArray[np.object_],
    spans: Spans,
    name: npt.NDArray[np.integer],
    start: Int64s,
) -> _Longest:
    """The longest of the spans of each name, a code into `names`."""
    length = spans.end - spans.start
    first = longest(name.astype(np.int64), length)
    used = np.flatnonzero(first >= 0)
    # In the order of the calls: codes are given in the order in which tables are asked for.
    used = used[np.argsort(first[used])]
    row = first[used]
    op = names[used] if len(used) else np.zeros(0, object)
    start_ps = spans.start[row]
    # A span that was put together from several events has no event.
    has_event = np.flatnonzero(spans.event[row] >= 0)
    start_ps[has_event] = start[spans.event[row][has_event]]
    return _Longest(op, start_ps / 1e9, length[row] / 1e9)


def longest(code: Int64s, length: Int64s) -> Int64s:
    """By code: the first row of the greatest length, -1 where no row has the code."""
    size = int(code.max(initial=-1)) + 1
    maximum = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(maximum, code, length)
    rows = np.flatnonzero(length == maximum[code])
    result = np.full(size, -1, np.int64)
    # The last assignment wins.
    result[code[rows][::-1]] = rows[::-1]
    return result


def kernels(activity: Activity, frame: pd.DataFrame, start: Int64s) -> tuple[Floats, Floats]:
    """Start (after that of the profile) and duration of the longest launch of each row of the
    kernels' frame, in ms; NaN where unknown.

    A row's longest launch is the first of its kernel and op whose duration is the maximum of the
    row. `start` int64[events] is in ps.
    """
    start_us, length = np.full(len(frame), np.nan), np.full(len(frame), np.nan)
    launches = activity.kernels
    if not len(frame) or not len(launches):
        return start_us, length
    kernel, op = (
        np.array([codes.get(text, -1) for text in frame[column].tolist()], np.int64)
        for column, codes in (("kernel", activity.kernel_names.codes), ("op", activity.ops.codes))
    )
    max_ns = np.rint(frame["max_us"].to_numpy(np.float64) * 1000).astype(np.int64)
    took = launches.duration // 1000
    rows = np.flatnonzero(np.isin(took, max_ns))
    first, code = unique_rows(
        np.append(launches.kernel[rows], kernel),
        np.append(launches.op[rows], op),
        np.append(took[rows], max_ns),
    )
    # Launches come before the rows of the frame, so the first row of a key is its first launch.
    launch = np.append(rows, np.full(len(frame), -1))[first[code[len(rows) :]]]
    launched = np.flatnonzero(launch >= 0)
    start_us[launched] = start[launches.event[launch[launched]]] / 1e9
    length[launched] = launches.duration[launch[launched]] / 1e9
    return start_us, length
