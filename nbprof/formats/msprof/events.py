"""Links the rows of Ascend's tables to the events of the timeline, and makes events of what only
the tables have.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Events, Int64s, Table, Trace
from nbprof.formats.build import lane_row, sort_events
from nbprof.formats.msprof.iterations import STEPS, spans

HARDWARE, COMMUNICATION = "Ascend Hardware", "Communication"
_NEAR_PS = 1_000_000
"""Timelines of old versions round times to a quarter of a microsecond."""
_SHARED = re.compile(r"HCCL|COMMUNICATION", re.IGNORECASE)
_WORK = re.compile(r"Ascend Hardware|HCCL|COMMUNICATION|Communication", re.IGNORECASE)


class _New:
    """Lanes and events that are put behind those of the timeline, so that these keep their
    numbers.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lanes: dict[tuple[str, str, str, str], int] = {}
        self.names = {str(name): i for i, name in enumerate(trace.names.tolist())}
        self.parts: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
        self.tables_of_parts: list[tuple[Table, npt.NDArray[np.bool_]]] = []

    def lane(self, host: str, process: str, thread: str, labels: str) -> int:
        return self.lanes.setdefault(
            (host, process, thread, labels), len(self.trace.lanes) + len(self.lanes)
        )

    def code(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def add(
        self,
        table: Table,
        rows: npt.NDArray[np.bool_],
        lane: Int64s,
        name: Int64s,
        start: Int64s,
        duration: Int64s,
    ) -> None:
        """Events of the marked rows of a table, whose column `event` is filled in the end."""
        if not rows.any():
            return
        self.parts.append((lane, name, start, duration))
        self.tables_of_parts.append((table, rows))

    def done(self) -> None:
        if not self.parts:
            return
        trace = self.trace
        columns = zip(*self.parts, strict=True)
        lane, name, start, duration = (np.concatenate(column) for column in columns)
        order = sort_events(lane.astype(np.int32), start, duration)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order)) + len(trace.events)
        first = 0
        for table, rows in self.tables_of_parts:
            event = table.frame["event"].to_numpy(np.int64).copy()
            event[rows] = number[first : first + int(rows.sum())]
            table.frame["event"] = event
            first += int(rows.sum())
        old = trace.events
        trace.events = Events(
            np.concatenate([old.lane, lane[order].astype(np.int32)]),
            np.concatenate([old.name, name[order].astype(np.int32)]),
            np.concatenate([old.start, start[order]]),
            np.concatenate([old.duration, duration[order]]),
        )
        shared = trace.display is trace.names
        trace.names = np.array([*self.names, ""], object)[:-1]
        if shared or len(trace.display) != len(trace.names):
            trace.display = trace.names
        counts = np.bincount(lane, minlength=len(trace.lanes) + len(self.lanes))
        lane_rows = []
        for (host, process, thread, labels), i in self.lanes.items():
            row = lane_row(i, host, process, thread, process, thread, labels)
            lane_rows.append({**row, "line_id": i, "events": int(counts[i])})
        new_lanes = pd.DataFrame(lane_rows)
        if len(trace.lanes):
            new_lanes = pd.concat([trace.lanes, new_lanes], ignore_index=True)
        trace.lanes = new_lanes


def add(trace: Trace, tables: dict[str, list[Table]]) -> None:
    """Gives `op_summary`, `task_time` and `step_trace` the column `event`: the event of each row in
    `trace.events`, -1 for none.
    """
    new = _New(trace)
    work = _work(trace)
    for table in tables.get("op_summary", []):
        _link(trace, new, work, table, "op_name", "task_type")
    done = set(work["host"])
    done.update(table.host for table in tables.get("op_summary", []) if len(table))
    for table in tables.get("task_time", []):
        # The other table describes kernels better; this one also has events that are not kernels.
        fresh = None if table.host in done else new
        _link(trace, fresh, work, table, "kernel_name", "kernel_type")
    for table in tables.get("step_trace", []):
        _iterations(trace, new, table)
    new.done()


def _work(trace: Trace) -> pd.DataFrame:
    """The events of the devices: `host name start event`."""
    events, lanes = trace.events, trace.lanes
    if not len(events):
        return pd.DataFrame({"host": [], "name": [], "start": [], "event": []}, dtype=np.int64)
    on = lanes["process"].astype(str).str.fullmatch(_WORK).to_numpy(np.bool_)
    host = pd.Index(trace.hosts).get_indexer(pd.Index(lanes["host"]))
    rows = np.flatnonzero(on[events.lane])
    return pd.DataFrame(
        {
            "host": host[events.lane[rows]],
            "name": events.name[rows].astype(np.int64),
            "start": events.start[rows],
            "event": rows,
        }
    )


def _link(
    trace: Trace, new: _New | None, work: pd.DataFrame, table: Table, name: str, kind: str
) -> None:
    frame = table.frame
    frame["event"] = np.full(len(frame), -1, np.int64)
    if not len(frame) or "start_ps" not in frame or name not in frame:
        return
    codes = {str(text): i for i, text in enumerate(trace.names.tolist())}
    code = _titles(frame, name, kind, lambda text: codes.get(text, -1), -1)
    valid = frame["start_ps"].notna().to_numpy(np.bool_)
    start = frame["start_ps"].fillna(0).to_numpy(np.int64)
    event = np.full(len(frame), -1, np.int64)
    host_rows = work[work["host"] == table.host]
    rows = np.flatnonzero(valid & (code >= 0))
    if len(host_rows) and len(rows):
        left = pd.DataFrame({"name": code[rows], "start": start[rows], "row": rows})
        near = pd.merge_asof(
            left.sort_values("start", kind="stable"),
            host_rows[["name", "start", "event"]].sort_values("start", kind="stable"),
            on="start",
            by="name",
            direction="nearest",
            tolerance=_NEAR_PS,
        )
        # An event is one row's.
        matched = near.dropna(subset=["event"]).drop_duplicates("event")
        event[matched["row"].to_numpy(np.int64)] = matched["event"].to_numpy(np.int64)
    frame["event"] = event
    lost = valid & (event < 0)
    if new is None or not lost.any():
        return
    _make(new, table, lost, name, kind, start)


def _make(
    new: _New, table: Table, lost: npt.NDArray[np.bool_], name: str, kind: str, start: Int64s
) -> None:
    frame = table.frame
    host = new.trace.hosts[table.host]
    code = _titles(frame, name, kind, new.code, new.code("task"))[lost]
    stream, device = _ids(frame, "stream_id", -1)[lost], _ids(frame, "device_id", 0)[lost]
    # Communication runs on streams that the table does not name; at the lowest level it names none
    # at all.
    other = frame[kind if kind in frame else name].array
    is_shared = [_SHARED.fullmatch(str(text)) is not None for text in other.categories]
    shared = np.array([*is_shared, False])[other.codes][lost]
    triples, inverse = np.unique(np.stack([device, stream, shared]), axis=1, return_inverse=True)
    lanes = []
    for device_id, stream_id, at_once in triples.T.tolist():
        process, thread = _lane(stream_id, at_once=bool(at_once))
        lanes.append(new.lane(host, process, thread, f"NPU {device_id}"))
    length = frame["duration_us"].to_numpy(np.float64)[lost]
    new.add(
        table,
        lost,
        np.array(lanes, np.int64)[inverse.ravel()],
        code,
        start[lost],
        np.rint(np.nan_to_num(np.maximum(length, 0)) * 1e6).astype(np.int64),
    )


def _titles(
    frame: pd.DataFrame, name: str, kind: str, code: Callable[[str], int], nameless: int
) -> Int64s:
    """The codes of the names of tasks; a task without a name is called as what it is."""
    names = frame[name].array
    kinds = frame[kind].array if kind in frame else names
    by_name = [code(str(text)) for text in names.categories]
    by_kind = [code(str(text)) for text in kinds.categories]
    result: Int64s = np.array([*by_name, nameless], np.int64)[names.codes]
    unnamed = names.codes < 0
    result[unnamed] = np.array([*by_kind, nameless], np.int64)[kinds.codes[unnamed]]
    return result


def _ids(frame: pd.DataFrame, name: str, missing: int) -> Int64s:
    """A column of ids; `missing` where there is none."""
    if name not in frame:
        return np.full(len(frame), missing, np.int64)
    return frame[name].fillna(missing).to_numpy(np.int64)


def _lane(stream: int, *, at_once: bool) -> tuple[str, str]:
    """Process and thread of work that only a table tells of."""
    if at_once:
        return COMMUNICATION, COMMUNICATION
    return HARDWARE, f"Stream {stream}" if stream >= 0 else "Tasks"


def _iterations(trace: Trace, new: _New, table: Table) -> None:
    """A lane of iterations for each model and device, each from the end of the one before; of the
    first from its own begin.
    """
    frame = table.frame
    frame["event"] = np.full(len(frame), -1, np.int64)
    if not len(frame) or "iteration_end_ps" not in frame:
        return
    begin, end = spans(frame)
    good = (end > begin) & frame["iteration_id"].notna().to_numpy(np.bool_)
    host = trace.hosts[table.host]
    columns = np.stack(
        [_ids(frame, "iteration_id", 0), _ids(frame, "model_id", -1), _ids(frame, "device_id", 0)]
    )
    name, lane = [], []
    for ident, model, device in columns[:, good].T.tolist():
        name.append(new.code(f"Iteration {ident}"))
        thread = STEPS if model < 0 else f"Model {model}"
        lane.append(new.lane(host, STEPS, thread, f"NPU {device}"))
    new.add(
        table,
        good,
        np.array(lane, np.int64),
        np.array(name, np.int64),
        begin[good],
        (end - begin)[good],
    )
