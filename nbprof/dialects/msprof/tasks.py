"""The tasks of an NPU as a table from its timeline, for exports without op_summary."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.msprof.work import COLLECTIVE, COMPUTE, NO_WORK, kind_of, op_type

_NONE = 4294967295
"""How msprof writes an id that is none."""


def tasks(trace: Trace) -> pd.DataFrame:
    """One row per task, in the columns of `op_summary` with `host` and `device`.

    The type of an op follows from its name.

    As in op_summary copies are not in it.

    Parameters
    ----------
    trace : Trace
        With lanes that the dialect has named. One of another producer has no task, as none states a
        `Task Type`.
    """
    events, lanes = trace.events, trace.lanes
    arg = np.full(len(events), -1, np.int64)
    if "Task Type" in trace.args:
        arg = trace.text_arg("Task Type")
    note, thread = (
        lanes["note"].astype(str).to_numpy(object),
        lanes["thread"].astype(str).to_numpy(object),
    )
    on_device = (lanes["kind"] == "device").to_numpy(np.bool_)
    kinds = np.array(
        [
            kind_of(str(trace.strings[code])) if code >= 0 else NO_WORK
            for code in range(-1, int(arg.max(initial=-1)) + 1)
        ]
    )
    collective = on_device & (note == "collectives")
    first_event = np.zeros(0, np.int64)
    if len(events):
        first_event = np.flatnonzero(
            (np.isin(kinds[arg + 1], (COMPUTE, COLLECTIVE)) & on_device[events.lane])
            | collective[events.lane]
        )
    lane = events.lane[first_event]
    of_collective = collective[lane] | (kinds[arg[first_event] + 1] == COLLECTIVE)
    stream = np.array(
        [_stream_number(name) for name in thread],
        np.int64,
    )
    names = pd.Series(trace.names[events.name[first_event]], dtype=object)
    types = {name: op_type(str(name)) for name in names.unique()}
    return pd.DataFrame(
        {
            "host": lanes["host"].to_numpy(object)[lane],
            "device": lanes["device"].to_numpy(np.int64)[lane],
            "model_id": _ids(trace, "Model Id", first_event),
            "task_id": _ids(trace, "Task Id", first_event),
            "stream_id": pd.Series(np.where(of_collective, -1, stream[lane]), dtype="Int64").mask(
                lambda ids: ids < 0
            ),
            "op_name": names,
            "op_type": names.map(types).astype(object),
            "task_type": np.where(
                of_collective, "COMMUNICATION", np.array(trace.texts(arg[first_event]), object)
            ),
            "start_ps": pd.Series(events.start[first_event], dtype="Int64"),
            "duration_us": events.duration[first_event] / 1e6,
        }
    )


def of_table(task_time: pd.DataFrame) -> pd.DataFrame:
    """The same table from the tables `task_time`, which state no types of ops."""
    types = pd.Series("", task_time.index)
    if "kernel_type" in task_time:
        types = task_time["kernel_type"].astype(object)
    kinds = {kind: kind_of(str(kind)) for kind in types.unique()}
    rows = task_time[types.map(kinds).isin((COMPUTE, COLLECTIVE)).to_numpy(np.bool_)]
    result = rows.rename(columns={"kernel_name": "op_name", "kernel_type": "task_type"})
    names = pd.Series("", result.index)
    if "op_name" in result:
        names = result["op_name"].astype(object).where(result["op_name"].notna(), "")
    return result.assign(
        op_type=names.map({name: op_type(str(name)) for name in names.unique()}).astype(object)
    ).reset_index(drop=True)


def _stream_number(thread: str) -> int:
    """The number of a stream by the name of its thread, -1 for other threads."""
    match = re.search(r"Stream (\d{1,9})$", thread)
    return int(match[1]) if match else -1


def _ids(trace: Trace, name: str, events: Int64s) -> pd.Series:
    values = trace.arg(name)[events]
    return pd.Series(values, dtype="Int64").mask((values < 0) | (values == _NONE))
