"""The critical path of a step: the chain of work, on host and devices, in which each segment waited
for the previous one.

The path is walked backwards from the end of the step. A work of a device waited for its launch
where that began after the work before it on the stream had ended; else for that work, or for one of
another stream that ended just before. A call of the host that stands still until a device has
caught up waited for the work that ended last in it. A thread without work waited for the thread
that worked last. The pieces follow each other without gap or overlap, so that their times add up to
the step.

Waits of one stream for another are inferred by time; no recording but one with CUDA's sync events
states them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import Launches, Spans
from nbprof.analysis.device_time.device_time import CLASS_NAMES, Work
from nbprof.analysis.device_time.idle import FOLLOWS_PS
from nbprof.analysis.ops.innermost import Innermost
from nbprof.core.intervals import Intervals, least_covering
from nbprof.core.runs import rows_by_value, run_starts
from nbprof.core.trace import Int64s, Trace
from nbprof.schema import frames

SEGMENTS = frames.names("device_time.critical_path_pieces")
PATH = ["kind", "name", "op", "pieces", "total_us", "percent", "longest_us", "_at_ms", "_for_ms"]
_SYNC = re.compile(
    r"(?:cuda|cu|hip)(?:Device|Ctx|Context|Stream|Event)Synchronize|urQueueFinish|urEventWait"
    r"|ze\w+Synchronize|aclrtSynchronize",
    re.IGNORECASE,
)
_SLACK_PS = 1_000_000
_ROUNDED_PS = 1000
"""Ends of steps are kept as ms."""
_NONE = -(2**62)


@dataclass
class _Thread:
    """One thread of the host: when it worked, and when a device released it."""

    start: list[int]
    end: list[int]
    released: list[int] = field(default_factory=list)
    by: list[int] = field(default_factory=list)


class _Last:
    """Lookup of the thread that worked last before a moment; of equal ones the first."""

    def __init__(self, threads: dict[int, _Thread]) -> None:
        self.lanes = list(threads)
        each = threads.values()
        index = np.repeat(np.arange(len(threads)), [len(thread.start) for thread in each])
        start = np.fromiter(chain.from_iterable(thread.start for thread in each), np.int64)
        end = np.fromiter(chain.from_iterable(thread.end for thread in each), np.int64)
        # np.unique, which hashes, takes 70 times as long on as many different values.
        moments = np.sort(np.concatenate([start, end]))
        moments = moments[run_starts(moments)]
        self.moments = moments.tolist()
        begin, stop = np.searchsorted(moments, start), np.searchsorted(moments, end)
        self.working = least_covering(begin, stop, index, len(moments)).tolist()
        """From each moment to the next, the first thread that works; -1 where none does."""
        by_start = np.lexsort((-index, end, start))
        self.start = start[by_start].tolist()
        by_end = np.lexsort((-index, end))
        place = np.empty(len(by_end), np.int64)
        place[by_end] = np.arange(len(by_end))
        last = by_end[np.maximum.accumulate(place[by_start])]
        self.ended, self.ended_on = end[last].tolist(), index[last].tolist()
        """The latest end of the spans that began until then, and its thread."""

    def before(self, time: int) -> tuple[int, int]:
        """The end of the thread's work, `time` at most, and its lane."""
        moment = bisect_left(self.moments, time) - 1
        if moment < 0:
            return _NONE, -1
        if self.working[moment] >= 0:
            return time, self.lanes[self.working[moment]]
        last = bisect_left(self.start, time) - 1
        return self.ended[last], self.lanes[self.ended_on[last]]


@dataclass
class Window:
    """Part of a recording: a step of a host. `lane` is the thread that marks it, -1 where none
    does.
    """

    host: int
    start: int
    end: int
    lane: int = -1


class _Walk:
    """A walk from the end of a window to its begin."""

    def __init__(self, done: Work, activity: Activity, trace: Trace, window: Window) -> None:
        self.window = window
        of_host = (
            (done.host == window.host)
            & (done.end > window.start)
            & (done.start < window.end)
            & (done.end > done.start)
        )
        self.rows = np.flatnonzero(of_host)
        self.start, self.end = (column[self.rows].tolist() for column in (done.start, done.end))
        self.before = _previous(done.lane[self.rows]).tolist()
        call = done.launch[self.rows]
        events = trace.events
        self.called = np.where(call >= 0, events.start[call], _NONE).tolist()
        self.returned = np.where(
            call >= 0, events.start[call] + events.duration[call], _NONE
        ).tolist()
        self.caller = np.where(call >= 0, events.lane[call], -1).tolist()
        by_end = np.argsort(done.end[self.rows], kind="stable")
        self.by_end: list[int] = by_end.tolist()
        self.ends: list[int] = done.end[self.rows][by_end].tolist()
        self.threads = self._threads(done, activity, trace)
        self.pieces: list[tuple[str, int, int, int]] = []
        """(device | delay | gap | host | unknown, work or lane, start, end)."""

    def _threads(self, done: Work, activity: Activity, trace: Trace) -> dict[int, _Thread]:
        """The threads of the window's host that ran ops or made calls, by lane."""
        events, lanes = trace.events, trace.lanes
        on_host = (lanes["kind"] == "host") & (lanes["host"] == done.hosts[self.window.host])
        ops, calls, launches = (
            _events_in_window(table, trace, self.window, on_host.to_numpy())
            for table in (activity.host_ops, activity.calls, activity.launches)
        )
        event = np.concatenate([ops, pd.unique(np.concatenate([calls, launches]))])
        lane, start = events.lane[event], events.start[event]
        end = start + events.duration[event]
        threads: dict[int, _Thread] = {}
        for rows in rows_by_value(lane):
            # Touching ops are merged: a thread waits for nothing between them.
            working = Intervals.union(start[rows], end[rows])
            threads[int(lane[rows[0]])] = _Thread(working.start.tolist(), working.end.tolist())
        waits = [*self._sync_calls(event, trace), *self._blocking_launches(done, trace)]
        for on_lane, released, work in sorted(waits, key=lambda wait: wait[1]):
            if on_lane in threads:
                threads[on_lane].released.append(released)
                threads[on_lane].by.append(work)
        return threads

    def _sync_calls(self, event: Int64s, trace: Trace) -> Iterator[tuple[int, int, int]]:
        """Lane, end and awaited work of the calls that state that they wait for a device."""
        events = trace.events
        code, names = pd.factorize(events.name[event])
        is_sync = [bool(_SYNC.match(str(trace.names[name]))) for name in names.tolist()]
        for call in event[np.array(is_sync, np.bool_)[code]].tolist():
            begin, end = int(events.start[call]), int(events.start[call] + events.duration[call])
            index = bisect_right(self.ends, end + _SLACK_PS) - 1
            if index >= 0 and self.ends[index] > begin:
                yield int(events.lane[call]), min(self.ends[index], end), self.by_end[index]

    def _blocking_launches(self, done: Work, trace: Trace) -> Iterator[tuple[int, int, int]]:
        """Lane, end and work of the launches that returned after their work was done."""
        call, end = done.launch[self.rows], done.end[self.rows]
        returned = np.array(self.returned, np.int64)
        for row in np.flatnonzero((call >= 0) & (end <= returned)).tolist():
            yield int(trace.events.lane[call[row]]), int(end[row]), row

    @cached_property
    def last(self) -> _Last:
        return _Last(self.threads)

    def piece(self, kind: str, lane: int, start: int, end: int) -> None:
        start = max(start, self.window.start)
        if end > start:
            self.pieces.append((kind, lane, start, end))

    def latest(self, moment: int) -> int:
        """The work that ended last, not after a given time; -1 if there is none."""
        index = bisect_right(self.ends, moment) - 1
        return self.by_end[index] if index >= 0 else -1

    def run(self) -> None:
        time, begin = self.window.end, self.window.start
        lane = self._main()
        work = self.latest(time + _ROUNDED_PS)
        if work < 0 or (self.end[work] < time - _ROUNDED_PS and lane >= 0):
            work = -1
        elif self.end[work] < time:
            self.piece("unknown", -1, self.end[work], time)
            time = self.end[work]
        while time > begin:
            if work >= 0:
                time, work, lane = self._device(work, time, lane)
            elif lane >= 0:
                time, work, lane = self._host(lane, time)
            else:
                self.piece("unknown", -1, begin, time)
                return

    def _main(self) -> int:
        # If nothing connects host and devices, the path can only be that of the devices.
        if (
            self.rows.size
            and max(self.caller, default=-1) < 0
            and not any(thread.released for thread in self.threads.values())
        ):
            return -1
        if self.window.lane in self.threads:
            return self.window.lane
        launched: list[int] = [lane for lane in self.caller if lane in self.threads]
        if launched:
            return max(set(launched), key=launched.count)
        return next(iter(self.threads), -1)

    def _device(self, work: int, time: int, lane: int) -> tuple[int, int, int]:
        """One segment back from the end of a work, or a moment in it, to the work or call that it
        waited for.
        """
        start = min(self.start[work], time)
        self.piece("device", work, start, time)
        before = self.before[work]
        ready = min(self.end[before], start) if before >= 0 else _NONE
        if self.caller[work] >= 0 and self.called[work] > ready:
            returned = min(self.returned[work], start)
            self.piece("delay", work, returned, start)
            return returned, -1, self.caller[work]
        # The work that ended last before this one began, on any stream; the one before on the same
        # stream if none came between.
        other = self.latest(start)
        has_caller = self.caller[work] >= 0
        if (
            other >= 0
            and other != before
            and self.end[other] > ready
            and (start - self.end[other] < FOLLOWS_PS or not has_caller)
        ):
            before, ready = other, self.end[other]
        if before >= 0:
            # For a work without a known launch, after a long gap, the cause of the wait is unknown.
            waited = has_caller or start - ready < FOLLOWS_PS
            self.piece("gap" if waited else "unknown", work, ready, start)
            return ready, before, lane
        if self.caller[work] >= 0:
            returned = min(self.returned[work], start)
            self.piece("delay", work, returned, start)
            return returned, -1, self.caller[work]
        self.piece("unknown", -1, self.window.start, start)
        return self.window.start, -1, lane

    def _host(self, lane: int, time: int) -> tuple[int, int, int]:
        """One segment back from a moment on a thread to the device work that it waited for, or to
        the start of its work.
        """
        thread = self.threads.get(lane)
        index = bisect_left(thread.start, time) - 1 if thread else -1
        if thread and index >= 0 and thread.end[index] >= time:
            low = thread.start[index]
            sync = bisect_right(thread.released, time) - 1
            if sync >= 0 and thread.released[sync] > low:
                self.piece("host", lane, thread.released[sync], time)
                return thread.released[sync], thread.by[sync], lane
            self.piece("host", lane, low, time)
            return low, -1, lane
        thread_end = thread.end[index] if thread and index >= 0 else _NONE
        best, to = self.last.before(time)
        if best <= thread_end:
            best, to = thread_end, lane
        if best == _NONE:
            best = self.window.start
        self.piece("host", lane, best, time)
        return best, -1, to


def _previous(lane: Int64s | Any) -> Int64s:
    """Of works in time order, the one before on the same lane, -1."""
    callers = np.full(len(lane), -1, np.int64)
    order = np.argsort(lane, kind="stable")
    same = lane[order][1:] == lane[order][:-1]
    callers[order[1:][same]] = order[:-1][same]
    return callers


def _events_in_window(
    table: Spans | Launches, trace: Trace, window: Window, on_host: npt.NDArray[np.bool_]
) -> Int64s:
    """The events of a table that overlap a window, on lanes of its host."""
    events = trace.events
    start = events.start[table.event]
    overlaps = (start + events.duration[table.event] > window.start) & (start < window.end)
    return table.event[overlaps & on_host[events.lane[table.event]]]


def segments(done: Work, activity: Activity, trace: Trace, window: Window) -> pd.DataFrame:
    """The path through a window, in time order: the columns of
    `p.device_time.critical_path_pieces`.
    """
    walk = _Walk(done, activity, trace, window)
    walk.run()
    parts = [_of_devices(walk, done, activity, trace), _of_threads(walk, activity, trace)]
    parts.append(_plain([p for p in walk.pieces if p[0] == "unknown"]))
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame(columns=SEGMENTS)
    table = pd.concat(parts, ignore_index=True).sort_values(
        "_start", kind="stable", ignore_index=True
    )
    table["start_ms"] = table["_start"] / 1e9
    table["duration_us"] = (table["_end"] - table["_start"]) / 1e6
    return table[SEGMENTS]


_BARE = ["kind", "name", "op", "where", "_start", "_end"]


def _plain(pieces: list[tuple[str, int, int, int]]) -> pd.DataFrame:
    return pd.DataFrame(
        [("unknown", "", "", "", start, end) for _, _, start, end in pieces], columns=_BARE
    )


def _of_devices(walk: _Walk, done: Work, activity: Activity, trace: Trace) -> pd.DataFrame:
    device_pieces = [p for p in walk.pieces if p[0] in ("device", "delay", "gap")]
    if not device_pieces:
        return pd.DataFrame(columns=_BARE)
    row = walk.rows[np.array([p[1] for p in device_pieces], np.int64)]
    kind = np.array(
        [{"delay": "launch_delay", "gap": "kernel_wait"}.get(p[0], "") for p in device_pieces],
        object,
    )
    on = kind == ""
    kind[on] = [CLASS_NAMES[c] for c in done.cls[row[on]].tolist()]
    launches = activity.launches.frame()
    # The last place is that of no launch; of equal events the first counts.
    of_call = np.full(len(trace.events) + 1, -1, np.int32)
    of_call[launches["event"].to_numpy(np.int64)[::-1]] = launches["op"].to_numpy(np.int64)[::-1]
    op = of_call[done.launch[row]]
    names = trace.names
    lanes = trace.lanes
    lane = done.lane[row]
    thread_names = (lanes["process"].astype(str) + " · " + lanes["thread"].astype(str)).to_numpy(
        object
    )
    return pd.DataFrame(
        {
            "kind": kind,
            "name": trace.display[done.name[row]],
            "op": np.where(op >= 0, names[trace.events.name[np.maximum(op, 0)]], ""),
            "where": thread_names[lane],
            "_start": [p[2] for p in device_pieces],
            "_end": [p[3] for p in device_pieces],
        }
    )


def _of_threads(walk: _Walk, activity: Activity, trace: Trace) -> pd.DataFrame:
    """Pieces on threads, divided by the innermost event."""
    by_lane: dict[int, list[tuple[int, int]]] = {}
    for kind, lane, first, last in walk.pieces:
        if kind == "host":
            by_lane.setdefault(lane, []).append((first, last))
    if not by_lane:
        return pd.DataFrame(columns=_BARE)
    innermost, names = Innermost(activity, trace), trace.lanes["thread"].tolist()
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _BARE}
    for lane, spans in by_lane.items():
        # In time order: the walk went backwards.
        begin, end = (np.array(times, np.int64)[::-1] for times in zip(*spans, strict=True))
        pieces = innermost.pieces(lane, begin, end)
        pieces["where"] = np.full(len(pieces["kind"]), str(names[lane]), object)
        for name, arrays in columns.items():
            arrays.append(pieces[name])
    return pd.DataFrame({name: np.concatenate(arrays) for name, arrays in columns.items()})


def summary(pieces: pd.DataFrame) -> pd.DataFrame:
    """One row per kind, name and op, most time first: the columns of `p.device_time.critical_path`;
    the percents add up to 100.
    """
    if not len(pieces):
        return pd.DataFrame(columns=PATH)
    keys = ["kind", "name", "op"]
    grouped = pieces.groupby(keys, sort=False)["duration_us"]
    row, time = grouped.ngroup().to_numpy(np.int64), pieces["duration_us"].to_numpy(np.float64)
    total = grouped.sum().to_numpy(np.float64)
    # The first of the longest pieces of each row.
    order = np.lexsort((-time, row))
    longest = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
    table = pieces[keys].iloc[longest].reset_index(drop=True)
    table = table.assign(
        pieces=np.bincount(row),
        total_us=total,
        longest_us=time[longest],
        _at_ms=pieces["start_ms"].to_numpy()[longest],
        _for_ms=time[longest] / 1e3,
        percent=100 * total / total.sum(),
    )
    return table.sort_values(
        ["total_us", "name"], ascending=[False, True], kind="stable", ignore_index=True
    )[PATH]


def choose(
    steps: pd.DataFrame, hosts: list[str], step: int | None = None, host: str | None = None
) -> pd.Series | None:
    """The row of a step; by default, the step of median length among those in the averages, on the
    first host that has any.
    """
    host_of_step = steps["host"].to_numpy(object)
    if host is None:
        with_steps = set(host_of_step.tolist())
        host = next((name for name in hosts if name in with_steps), "")
    rows = np.flatnonzero(host_of_step == host)
    if step is not None:
        rows = rows[steps["step"].to_numpy(np.int64)[rows] == step]
    elif "counted" in steps.columns:
        is_counted = steps["counted"].to_numpy(np.bool_)[rows]
        rows = rows[is_counted] if is_counted.any() else rows
    if not len(rows):
        return None
    order = np.argsort(steps["step_time_ms"].to_numpy(np.float64)[rows], kind="stable")
    chosen: pd.Series = steps.iloc[rows[order[(len(rows) - 1) // 2]]]
    return chosen


def window(done: Work, activity: Activity, trace: Trace, row: pd.Series | None) -> Window:
    """The window of a step, or the whole recording of the first host with work."""
    if row is None:
        host = int(done.host[0])
        of_host = done.host == host
        called = done.launch[of_host]
        events = trace.events
        first = int(done.start[of_host].min())
        if (called >= 0).any():
            first = min(first, int(events.start[called[called >= 0]].min()))
        return Window(host, first, int(done.end[of_host].max()))
    host = done.hosts.index(str(row["host"]))
    start = round(float(row["start_ms"]) * 1e9)
    marks = activity.markers.frame()
    marks = marks[
        (marks["host"] == host) & (marks["group"] == row["group"]) & (marks["device"] < 0)
    ]
    lane = -1
    if len(marks) and int(marks["event"].iloc[0]) >= 0:
        lane = int(trace.events.lane[int(marks["event"].iloc[0])])
    return Window(host, start, start + round(float(row["step_time_ms"]) * 1e9), lane)
