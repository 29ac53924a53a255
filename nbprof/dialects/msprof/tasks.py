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

    The type of an op follows from its name. As in op_summary, copies are left out.

    Parameters
    ----------
    trace : Trace
        With lanes that the dialect has named. Traces of other producers have no tasks, since they
        state no `Task Type`.
    """
    events, lanes = trace.events, trace.lanes
    arg = np.full(len(events), -1, np.int64)
    if "Task Type" in trace.args:
        arg = trace.text_arg("Task Type")
    texts = trace.strings[: int(arg.max(initial=-1)) + 1]
    kind = np.array([NO_WORK, *map(kind_of, map(str, texts))])[arg + 1]
    collective = (lanes["note"].astype(str) == "collectives").to_numpy(np.bool_)
    on_device = (lanes["kind"] == "device").to_numpy(np.bool_)[events.lane]
    of_collective = (collective[events.lane] & on_device) | (kind == COLLECTIVE)
    rows = np.flatnonzero(on_device & (of_collective | (kind == COMPUTE)))
    lane, of_collective = events.lane[rows], of_collective[rows]
    streams = lanes["thread"].astype(str).map(_stream_number).to_numpy(np.int64)
    stream = pd.Series(np.where(of_collective, -1, streams[lane]), dtype="Int64")
    names = pd.Series(trace.names[events.name[rows]], dtype=object)
    types = {name: op_type(str(name)) for name in names.unique()}
    task_type = np.array(trace.texts(arg[rows]), object)
    return pd.DataFrame(
        {
            "host": lanes["host"].to_numpy(object)[lane],
            "device": lanes["device"].to_numpy(np.int64)[lane],
            "model_id": _ids(trace, "Model Id", rows),
            "task_id": _ids(trace, "Task Id", rows),
            "stream_id": stream.mask(stream < 0),
            "op_name": names,
            "op_type": names.map(types).astype(object),
            "task_type": np.where(of_collective, "COMMUNICATION", task_type),
            "start_ps": pd.Series(events.start[rows], dtype="Int64"),
            "duration_us": events.duration[rows] / 1e6,
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
