"""Times of NPU tasks that cannot be, in timelines, tables and databases of Ascend's profilers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s, Table, Trace
from nbprof.dialects import durations
from nbprof.dialects.corrupt import Mender
from nbprof.dialects.durations import Spans
from nbprof.dialects.msprof import lanes as on
from nbprof.dialects.msprof import notes
from nbprof.dialects.msprof.work import COLLECTIVE, COMPUTE, NO_WORK, Work, plain

_NO_ID = 4294967295
"""How msprof writes an id that is none."""
_TABLES = ("op_summary", "task_time")
_NEVER = np.iinfo(np.int64).max // 4
_MAGNITUDE = 10
"""How far a table may be from the timeline, which rounds."""


def mend(trace: Trace, work: Work) -> tuple[Int64s, list[Note]]:
    """Replaces impossible times of tasks; returns events without usable times, and warnings.

    `work` is that of the times as they are stated.
    """
    mender = _Mender(trace, work)
    for host in range(len(trace.hosts)):
        mender.device(host)
    warnings = [*mender.about_clocks(), *mender.about_unusable(), *mender.notes()]
    recorded = trace.events.duration
    mender.apply()
    misplaced = np.sort(np.array(mender.misplaced, np.int64))
    changed, tables = 0, dict(trace.tables)
    for kind in _TABLES:
        for nth, table in enumerate(trace.tables.get(kind, [])):
            new, count = _as_events(trace, table, recorded, misplaced, mender.unmeasured)
            if new is not table:
                tables[kind] = [*tables[kind][:nth], new, *tables[kind][nth + 1 :]]
                changed += count
    trace.tables = tables
    if changed:
        warnings.append(notes.contradicted_tables(changed))
    return mender.unusable, warnings


class _Mender(Mender):
    """Tasks on streams, and collectives."""

    correlation = "connection_id"
    too_long = "later work of its stream or the whole recording had ended by then"
    too_far = (
        "long before {their} launch, or long after later work of the stream or the whole recording"
    )

    def __init__(self, trace: Trace, work: Work) -> None:
        super().__init__(trace)
        self._work = work
        thread = trace.lanes["thread"].astype(str)
        # Lanes of several streams or groups say nothing of the order.
        in_turn = thread.str.fullmatch(r"Stream \d+|Group \d+ .*").to_numpy(np.bool_)
        self.in_order = in_turn & np.isin(work.lane_kinds, (on.STREAM, on.COMMUNICATION))
        self.recorded_on_device = np.isin(work.lane_kinds, (on.STREAM, on.COMMUNICATION))

    def _of_host(self, rows: Int64s, host: int) -> Int64s:
        on_host: Int64s = rows[self.lane_host[self.trace.events.lane[rows]] == host]
        return on_host

    def work(self, host: int) -> Int64s:
        """Tasks of cores, copies and collectives."""
        return self._of_host(np.flatnonzero(self._work.stated_kind != NO_WORK), host)

    def _host_end(self, host: int) -> int:
        """End of the last call or op of a host; unknown without any."""
        lanes = np.isin(self._work.lane_kinds, (on.CANN, on.PYTHON))
        rows = self._of_host(np.flatnonzero(lanes[self.trace.events.lane]), host)
        return int(self.trace.events.end[rows].max()) if len(rows) else _NEVER

    def calls(self, host: int) -> Int64s:
        """Calls into CANN."""
        rows = np.flatnonzero((self._work.lane_kinds == on.CANN)[self.trace.events.lane])
        ident = self.trace.arg(self.correlation, rows=rows)
        return self._of_host(rows[(ident >= 0) & (ident != _NO_ID)], host)

    def is_kernel(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n]: tasks of cores."""
        is_compute: npt.NDArray[np.bool_] = self._work.stated_kind[rows] == COMPUTE
        return is_compute

    def launched_alike(self, rows: Int64s, name: Int64s) -> Int64s:
        """A code for each combination of name and shapes of inputs, which the tables have."""
        shapes = np.full(len(self.trace.events), -1, np.int64)
        codes: dict[str, int] = {}
        for table in self.trace.tables.get("op_summary", []):
            if {"event", "input_shapes"} <= set(table.frame.columns):
                event = table.frame["event"].to_numpy(np.int64)
                listed = event >= 0
                texts = table.frame["input_shapes"][listed].astype(str)
                shapes[event[listed]] = [codes.setdefault(text, len(codes)) for text in texts]
        _, code = np.unique(np.array([name, shapes[rows]]), axis=1, return_inverse=True)
        return code.ravel()

    def spans(
        self, rows: Int64s, name: Int64s | None = None, launch: Int64s | None = None
    ) -> Spans:
        """Spans of tasks; collectives are compared by their operation, since names are unique."""
        codes = self.trace.events.name[rows].astype(np.int64) if name is None else name.copy()
        shared = self._work.stated_kind[rows] == COLLECTIVE
        texts: dict[str, int] = {}
        for code in np.unique(codes[shared]).tolist():
            kind = texts.setdefault(plain(str(self.trace.names[code])), -1 - len(texts))
            codes[shared & (codes == code)] = kind
        return super().spans(rows, codes, launch)

    def together(self, rows: Int64s, ident: Int64s) -> Int64s:  # noqa: ARG002
        """The task of each part: a call launches a graph whose tasks run in turn, parts in
        parallel.
        """
        number = self.trace.arg("Task Id", rows=rows)
        return np.where(number == _NO_ID, -1, number)


def _as_events(
    trace: Trace, table: Table, recorded: Int64s, misplaced: Int64s, unmeasured: list[int]
) -> tuple[Table, int]:
    """A table with the times of its events, and the number of rows that contradict these."""
    frame, nothing = table.frame, 0
    if not len(frame) or not {"event", "duration_us"} <= set(frame.columns):
        return table, nothing
    event = frame["event"].to_numpy(np.int64)
    rows = np.flatnonzero(event >= 0)
    now = trace.events.duration[event[rows]]
    took = frame["duration_us"].to_numpy(np.float64, copy=True)
    stated_ps = np.nan_to_num(took[rows]) * 1e6
    larger = (stated_ps - now >= durations.SLACK_PS) & (
        stated_ps >= _MAGNITUDE * now.astype(np.float64)
    )
    # The table may have durations that the timeline lacks.
    larger &= ~np.isin(event[rows], unmeasured)
    wrong = np.isin(event[rows], misplaced)
    replaced = (now != recorded[event[rows]]) | larger
    if not (replaced | wrong).any():
        return table, nothing
    took[rows[replaced]] = now[replaced] / 1e6
    took[rows[wrong]] = np.nan
    number = event.copy()
    number[rows[wrong]] = -1
    frame = frame.assign(duration_us=took, event=number)
    if "start_ps" in frame:
        start = frame["start_ps"].copy()
        start.iloc[rows[wrong]] = pd.NA
        frame["start_ps"] = start
    return replace(table, frame=frame), int(
        (larger & (now == recorded[event[rows]]) & ~wrong).sum()
    )
