"""Tasks that carry other work: of a kernel's type, but not listed as an operator.

A collective is carried by a task of its stream, and an operator of several parts by the task that
its parts run in. Such a task takes as long as what it carries, which is recorded by itself: counted
as a kernel it would hide a collective and count an operator twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Int64s, Trace

Flags = npt.NDArray[np.bool_]

_NO_ID = 4294967295
"""How msprof writes an id that is none."""
_AROUND_PS = 10_000_000
"""A carrier starts and ends at most 10 µs before and after its collective; in recordings 1 to 3
µs.
"""


class Spans(NamedTuple):
    """Events, each with a number of its device that no other device of any host has.

    Attributes
    ----------
    rows : int64[n]
        Indices of the events.
    device : int64[n]
    """

    rows: Int64s
    device: Int64s


def carriers(trace: Trace, tasks: Spans, collectives: Spans, on_streams: Int64s) -> Int64s:
    """The tasks that carry a collective or the parts of an operator.

    Parameters
    ----------
    trace : Trace
    tasks : Spans
        Tasks whose type is that of a kernel, and that are no operators.
    collectives : Spans
    on_streams : int64[k]
        All tasks on streams, among them the parts of operators.
    """
    if not len(tasks.rows):
        return tasks.rows
    carries = _has_parts(trace, tasks.rows, on_streams)
    if len(collectives.rows):
        carries |= _shares_connection(trace, tasks, collectives)
        carries |= _encloses(trace, tasks, collectives)
    carrying: Int64s = tasks.rows[carries]
    return carrying


def _has_parts(trace: Trace, rows: Int64s, on_streams: Int64s) -> Flags:
    """True for tasks with parts: tasks of their stream and number that start within them."""
    events, number, part = trace.events, trace.arg("Task Id"), trace.arg("Subtask Id")
    is_part = (part >= 0) & (part != _NO_ID)
    parts = on_streams[is_part[on_streams]]
    lane = events.lane.astype(np.int64)
    following = _following(
        {"time": events.start[rows], "lane": lane[rows], "task": number[rows]},
        {"time": events.start[parts], "lane": lane[parts], "task": number[parts]},
    )
    starts = np.append(events.start[parts], 0)[following]
    started = (following >= 0) & (starts < events.end[rows])
    is_carrier: Flags = started & ~is_part[rows] & (number[rows] >= 0)
    return is_carrier


def _shares_connection(trace: Trace, tasks: Spans, collectives: Spans) -> Flags:
    """True for tasks that overlap a collective of the same call."""
    events, ident = trace.events, trace.arg("connection_id")
    rows = collectives.rows
    following = _following(
        {"time": events.start[tasks.rows], "device": tasks.device, "id": ident[tasks.rows]},
        {"time": events.end[rows], "device": collectives.device, "id": ident[rows]},
    )
    starts = np.append(events.start[rows], 0)[following]
    has_ident: Flags = (ident[tasks.rows] >= 0) & (ident[tasks.rows] != _NO_ID)
    return has_ident & (following >= 0) & (starts < events.end[tasks.rows])


def _encloses(trace: Trace, tasks: Spans, collectives: Spans) -> Flags:
    """True for tasks that start shortly before and end shortly after a collective."""
    events = trace.events
    rows = collectives.rows
    following = _following(
        {"time": events.start[tasks.rows], "device": tasks.device},
        {"time": events.start[rows], "device": collectives.device},
    )
    before = np.append(events.start[rows], 0)[following] - events.start[tasks.rows]
    after = events.end[tasks.rows] - np.append(events.end[rows], 0)[following]
    is_carrier: Flags = (
        (following >= 0) & (before <= _AROUND_PS) & (after >= 0) & (after <= _AROUND_PS)
    )
    return is_carrier


def _following(each: dict[str, Int64s], candidates: dict[str, Int64s]) -> Int64s:
    """Index of the first of `candidates` at or after `time` with equal keys, -1 for none."""
    keys = [name for name in each if name != "time"]
    left = pd.DataFrame(each).assign(place=np.arange(len(each["time"])))
    right = pd.DataFrame(candidates).assign(index=np.arange(len(candidates["time"])))
    merged = pd.merge_asof(
        left.sort_values("time", kind="stable"),
        right.sort_values("time", kind="stable"),
        on="time",
        by=keys,
        direction="forward",
    )
    following = np.full(len(left), -1, np.int64)
    following[merged["place"].to_numpy(np.int64)] = merged["index"].fillna(-1).to_numpy(np.int64)
    return following
