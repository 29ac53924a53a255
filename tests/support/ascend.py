"""Tables of Ascend's profilers made by hand, and a run that has nothing but them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core.receipt import Receipt
from nbprof.core.trace import Events, Trace
from nbprof.run.run import Run
from nbprof.run.source import RunSource

US, MS = 1_000_000, 1_000_000_000
"""In ps, in which tables state moments."""


def table(kind: str, device: int | None = 0, host: int = 0, **columns: Any) -> Any:
    """A table as the reader gives it: moments and ids as nullable integers, durations as floats,
    texts as categories.
    """
    frame = pd.DataFrame(columns)
    for name in frame.columns:
        whole = name.endswith(("_ps", "_id", "_num", "count"))
        if whole:
            frame[name] = frame[name].astype("Int64")
        elif pd.api.types.is_string_dtype(frame[name].dtype) or frame[name].dtype == object:
            frame[name] = frame[name].astype("category")
    return SimpleNamespace(
        kind=kind,
        device=device,
        host=host,
        rank=None,
        frame=frame,
        header=list(columns),
        source=f"{kind}.csv",
        doubts=[],
    )


def steps(
    count: int = 6,
    data_aug: float = 5.0,
    compute: float = 3.0,
    refresh: float = 2.0,
    reduce: float | None = 1.5,
    **more: Any,
) -> dict[str, Any]:
    """Columns of a step_trace: iterations of these parts in ms, one after the other from 10 ms on;
    the first has no gap before it.

    `reduce` are ms of all-reduce that begin with BP End; None: none is recorded.
    """
    period = round((data_aug + compute + refresh) * MS)
    fp = 10 * MS + np.arange(count) * period
    bp, end = fp + round(compute * MS), fp + round((compute + refresh) * MS)
    columns: dict[str, Any] = {
        "iteration_id": np.arange(1, count + 1),
        "fp_start_ps": fp,
        "bp_end_ps": bp,
        "iteration_end_ps": end,
        "iteration_us": np.full(count, (data_aug + compute + refresh) * 1000),
        "fp_to_bp_us": np.full(count, compute * 1000),
        "iteration_refresh_us": np.full(count, refresh * 1000),
        "data_aug_bound_us": np.full(count, data_aug * 1000),
        "model_id": np.full(count, 2),
    }
    if reduce is not None:
        columns |= {"reduce_0_start_ps": bp, "reduce_0_us": np.full(count, reduce * 1000)}
    return columns | more


def tasks(rows: Sequence[tuple[Any, ...]], **more: Any) -> dict[str, Any]:
    """Columns of an op_summary from rows of (name, type, task type, stream, start in us, duration
    in us).
    """
    name, kind, task_type, stream, start, duration = (
        list(column) for column in zip(*rows, strict=True)
    )
    return {
        "model_id": [2] * len(rows),
        "task_id": list(range(len(rows))),
        "stream_id": stream,
        "op_name": name,
        "op_type": kind,
        "task_type": task_type,
        "start_ps": [None if at is None else round(at * US) for at in start],
        "duration_us": duration,
    } | more


def run(tables: Mapping[str, Sequence[Any]], hosts: Sequence[str] = ("rank 0",)) -> Run:
    """A run without events that has these tables."""
    none = np.zeros(0, np.int64)
    events = Events(
        start=none, duration=none, lane=none.astype(np.int32), name=none.astype(np.int32)
    )
    lanes = pd.DataFrame(
        columns=[
            "lane",
            "host",
            "process",
            "thread",
            "line_id",
            "plane",
            "kind",
            "device",
            "note",
            "events",
            "order",
        ]
    )
    names = np.zeros(0, object)
    trace = Trace(
        events,
        names,
        names,
        lanes,
        [],
        {},
        {},
        [],
        [],
        list(hosts),
        0,
        Receipt(),
        tables={k: list(v) for k, v in tables.items()},
    )
    return Run(
        trace,
        lambda made: Activity(made.hosts),
        RunSource(path="", name="PROF_1", file="", bytes=None, created=""),
    )
