"""Where the longest call of each op and kernel is: from the row of a table to its place in the
timeline.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.input.input_pipeline import COPY_TO_DEVICE, copy_name
from nbprof.core.trace import Int64s

Floats = npt.NDArray[np.float64]


def ops(activity: Activity, start: Int64s) -> pd.DataFrame:
    """The longest run of each op on each side; of equally long ones the first.

    A device may count its ops by a clock of its own, as a TPU does: then the op that is longest by
    it, and so in the tables, is taken, and where the timeline has it.

    Parameters
    ----------
    activity : Activity
    start : int64[events]
        ps.

    Returns
    -------
    DataFrame
        `where`, "device", "host", or "input" for iterators and copies that are no ops of the host;
        `op`; `at_ms`, its start in the timeline after that of the profile; `for_ms`, its duration
        as the tables have it.
    """
    # Names get their codes as the tables are made: these first.
    tables = activity.device_ops, activity.host_ops, activity.iterators, activity.calls
    device, host, iterators, calls = (table.frame() for table in tables)
    names, texts = activity.ops.values, activity.texts.values
    copies = (
        calls[np.isin(calls["kind"], np.flatnonzero(texts == COPY_TO_DEVICE))]
        if len(calls)
        else calls
    )
    parts = [
        _named("device", names, device, "op", start),
        _named("host", names, host, "op", start),
        _named("input", names, iterators, "name", start),
        _named(
            "input", np.array([copy_name(text) for text in texts], object), copies, "name", start
        ),
    ]
    return pd.concat(parts, ignore_index=True)


def _named(
    side: str, names: npt.NDArray[np.object_], rows: pd.DataFrame, column: str, start: Int64s
) -> pd.DataFrame:
    code, time, event = (rows[key].to_numpy(np.int64) for key in (column, "start", "event"))
    length = rows["end"].to_numpy(np.int64) - time
    first = longest(code, length)
    used = np.flatnonzero(first >= 0)
    # In the order of the calls: codes are given in the order in which tables are asked for.
    used = used[np.argsort(first[used])]
    row = first[used]
    op = names[used] if len(used) else np.zeros(0, object)
    # What was made of several events is no event itself.
    longest_time = time[row]
    has_event = np.flatnonzero(event[row] >= 0)
    longest_time[has_event] = start[event[row][has_event]]
    return pd.DataFrame(
        {"where": side, "op": op, "at_ms": longest_time / 1e9, "for_ms": length[row] / 1e9}
    )


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

    A row's longest launch is the first of its kernel and op that takes as long as the row says.
    `start` int64[events] is in ps.
    """
    start_us, length = np.full(len(frame), np.nan), np.full(len(frame), np.nan)
    launches = activity.kernels
    if not len(frame) or not len(launches):
        return start_us, length
    kernel_codes, op_codes = activity.kernel_names.codes, activity.ops.codes
    wanted = [
        (kernel_codes.get(kernel, -1), op_codes.get(op, -1), round(longest * 1000))
        for kernel, op, longest in zip(
            frame["kernel"].tolist(), frame["op"].tolist(), frame["max_us"].tolist(), strict=True
        )
    ]
    took = launches.duration // 1000
    rows = np.flatnonzero(np.isin(took, [time for _, _, time in wanted]))[::-1]
    keys = zip(
        launches.kernel[rows].tolist(), launches.op[rows].tolist(), took[rows].tolist(), strict=True
    )
    # Of several the first stays.
    first = dict(zip(keys, rows.tolist(), strict=True))
    launch = np.array([first.get(key, -1) for key in wanted], np.int64)
    launched = np.flatnonzero(launch >= 0)
    start_us[launched] = start[launches.event[launch[launched]]] / 1e9
    length[launched] = launches.duration[launch[launched]] / 1e9
    return start_us, length
