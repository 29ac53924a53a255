"""Makes a `Trace` of columns: what readers of tables and messages (databases, Parquet, protobuf,
CSV) share.

A reader asks for codes of names and for lanes, adds events column by column, and takes the trace.
Times are ns as recorders state them, on one clock a host; the trace has picoseconds from the first
event on. What can't be (times and durations of more than a week) is left out and counted here, so
that every format says it in the same words.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.receipt import Receipt
from nbprof.core.trace import (
    COUNTER_COLUMNS,
    DOUBLE,
    INT,
    TEXT,
    UINT,
    ArgColumn,
    Events,
    Flows,
    Int32s,
    Int64s,
    Plane,
    Trace,
    no_counters,
)
from nbprof.formats import notes
from nbprof.formats.chrome.part import Rows, Texts
from nbprof.formats.chrome.values import LONGEST_PS

LANE_COLUMNS = [
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
LANE_COLUMNS += ["pid", "tid", "labels", "sort"]
_WEEK_NS = LONGEST_PS // 1000


@dataclass(frozen=True)
class Coded:
    """Texts of an arg as codes of `Builder.texts`; -1 for an event without one."""

    codes: npt.NDArray[np.integer]


Values = npt.NDArray[np.generic] | Coded | Rows | str | int
"""Values of an arg: integers, a masked array of integers where some events have none, floats (NaN:
none), texts, or one for all events; rows where only few events have it, or values are of several
kinds: of several rows of an event the last counts."""


@dataclass
class _Lane:
    host: str
    process: str
    thread: str
    pid: str
    tid: str
    labels: str
    process_sort: int
    sort: int


@dataclass
class _Chunk:
    lane: Int32s
    name: Int32s
    start: Int64s
    duration: Int64s
    args: dict[str, Rows]


class Builder:
    """Collects lanes, events, counters and flows; `trace` puts them in order.

    Attributes
    ----------
    texts : Texts
        Codes of all texts: `builder.texts["name"]` is that of one, of names of events as of args.
    planes : dict
        What is stated of a process, by (host, pid): goes to `Plane.stats`.
    """

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.texts = Texts()
        self.planes: dict[tuple[str, str], dict[str, object]] = {}
        self._lanes: dict[tuple[str, ...], int] = {}
        self._rows: list[_Lane] = []
        self._chunks: list[_Chunk] = []
        self._counters: list[tuple[int, str, Int64s, npt.NDArray[np.float64]]] = []
        self._flows: list[Flows] = []

    def __len__(self) -> int:
        return sum(len(chunk.start) for chunk in self._chunks)

    def codes(self, texts: Sequence[str]) -> Int32s:
        """The codes of several texts."""
        return np.fromiter((self.texts[text] for text in texts), np.int32, len(texts))

    def lane(
        self,
        host: str,
        process: str,
        thread: str,
        *,
        pid: str = "",
        tid: str = "",
        labels: str = "",
        process_sort: int = 0,
        sort: int = 0,
    ) -> int:
        """The number of a lane, the same for the same one; the trace numbers them anew.

        Lanes are ordered by host, `process_sort`, the first appearance of their process, `sort`,
        and their own first appearance.

        Parameters
        ----------
        host, process, thread : str
            Names; `process` and `thread` stand for pid and tid where these are not given.
        labels : str
            What the process is beside its name, `GPU 0` for a device.
        """
        key = (host, pid or process, tid or thread, thread, labels)
        number = self._lanes.get(key)
        if number is None:
            number = self._lanes[key] = len(self._rows)
            self._rows.append(
                _Lane(
                    host, process, thread, pid or process, tid or thread, labels, process_sort, sort
                )
            )
        return number

    def add(
        self,
        lane: int | npt.NDArray[np.integer],
        name: int | npt.NDArray[np.integer],
        start_ns: Int64s,
        duration_ns: Int64s,
        args: Mapping[str, Values] | None = None,
    ) -> None:
        """Adds events.

        Parameters
        ----------
        lane, name : int or integers[n]
            Numbers of `lane`, codes of `texts`.
        start_ns, duration_ns : int64[n]
            On a clock that all events of a host have in common. A negative duration counts as 0,
            and the receipt says so.
        args : dict of str to Values
        """
        count = len(start_ns)
        duration = np.asarray(duration_ns, np.int64)
        if (negative := int((duration < 0).sum())) > 0:
            self.receipt.add(notes.negative_durations(negative))
            duration = np.maximum(duration, 0)
        rows_by_arg = {key: self._arg(values, count) for key, values in (args or {}).items()}
        chunk = _Chunk(
            np.broadcast_to(np.asarray(lane, np.int32), count),
            np.broadcast_to(np.asarray(name, np.int32), count),
            np.asarray(start_ns, np.int64),
            duration,
            {key: rows for key, rows in rows_by_arg.items() if len(rows)},
        )
        long = duration > _WEEK_NS
        self.receipt.skip(notes.LONG_DURATIONS, int(long.sum()), key="long_durations")
        if count:
            self._chunks.append(_only(chunk, ~long) if long.any() else chunk)

    def counter(
        self, lane: int, series: str, time_ns: Int64s, values: npt.NDArray[np.float64]
    ) -> None:
        """Adds samples of a counter to the process of a lane."""
        if len(time_ns):
            self._counters.append(
                (lane, series, np.asarray(time_ns, np.int64), np.asarray(values, np.float64))
            )

    def flows(
        self,
        phase: npt.NDArray[np.uint8],
        ident: Int64s,
        category: str,
        lane: npt.NDArray[np.integer],
        time_ns: Int64s,
    ) -> None:
        """Adds points of arrows, each inside the event around it; `phase` is 0 for a start, 1 for a
        step, 2 for a finish.
        """
        if count := len(ident):
            code, lanes = np.full(count, self.texts[category], np.int32), np.asarray(lane, np.int32)
            visible = np.ones(count, np.bool_)
            self._flows.append(
                Flows(
                    np.asarray(phase, np.uint8),
                    ident,
                    code,
                    lanes,
                    np.asarray(time_ns, np.int64),
                    visible,
                )
            )

    def _arg(self, values: Values, count: int) -> Rows:
        if isinstance(values, Rows):
            return values
        rows, kind = np.arange(count, dtype=np.int32), INT
        column: npt.NDArray[Any]
        if isinstance(values, (int, str)):
            kind = TEXT if isinstance(values, str) else INT
            column = np.full(
                count, self.texts[values] if isinstance(values, str) else values, np.int64
            )
        elif isinstance(values, Coded):
            kind, column = TEXT, values.codes
            rows = np.flatnonzero(column >= 0).astype(np.int32)
            column = column[rows]
        elif isinstance(values, np.ma.MaskedArray):
            rows = np.flatnonzero(~np.ma.getmaskarray(values)).astype(np.int32)
            column = values.data[rows]
        else:
            column = values
        if kind == INT and column.dtype.kind == "f":
            there = ~np.isnan(column)
            rows, kind, column = (
                rows[there],
                DOUBLE,
                column[there].astype(np.float64).view(np.int64),
            )
        elif kind == INT and column.dtype == np.uint64:
            kind, column = UINT, column.view(np.int64)
        return Rows(
            rows, np.broadcast_to(np.uint8(kind), len(rows)), column.astype(np.int64, copy=False)
        )

    def trace(self, hosts: Sequence[str] = (), metadata: dict[str, object] | None = None) -> Trace:
        """The trace; the hosts in the order of `hosts`, then those of lanes alone. The builder is
        empty afterwards.
        """
        receipt = self.receipt
        hosts = list(dict.fromkeys([*hosts, *(row.host for row in self._rows)]))
        host_of = np.array([hosts.index(row.host) for row in self._rows], np.int32)
        self._near(host_of, len(hosts))
        epoch, moved, late = self._clock(host_of, hosts)
        lanes, planes, number = self._table(hosts)
        none32, none64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
        old = np.concatenate([none32, *(c.lane for c in self._chunks)])
        lane = number[old] if len(number) else none32
        name = np.concatenate([none32, *(c.name for c in self._chunks)])
        start = none64
        if len(moved):
            start = (np.concatenate([none64, *(c.start for c in self._chunks)]) - moved[old]) * 1000
        duration = np.concatenate([none64, *(c.duration for c in self._chunks)]) * 1000
        order = sort_events(lane, start, duration)
        position = np.empty(len(order), np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        used, code = used_names(list(self.texts), name)
        events = Events(lane[order], code[order], start[order], duration[order])
        lanes["events"] = np.bincount(events.lane, minlength=len(lanes)).astype(np.int64)
        receipt.events = len(events)
        args = self._args_by_event(position)
        flows = [_moved_flows(flow, number, moved) for flow in self._flows]
        counters = [
            (int(number[lane]), series, (time - moved[lane]) * 1000, value)
            for lane, series, time, value in self._counters
        ]
        names = np.array([*used, ""], object)[:-1]
        self._chunks, self._flows, self._counters = [], [], []
        return Trace(
            events=events,
            names=names,
            display=names,
            lanes=lanes,
            planes=planes,
            args=LazyArgs(args, len(events)),
            name_args={},
            strings=list(self.texts),
            modules=[],
            hosts=hosts,
            epoch_ns=epoch,
            receipt=receipt,
            metadata=metadata or {},
            late_ps=late,
            flows=joined_flows(flows),
            counters=counter_table(counters),
        )

    def _args_by_event(self, position: Int32s) -> dict[str, list[tuple[Rows, Int32s]]]:
        """The args of all chunks, each with the positions in the trace of its chunk's events."""
        result: dict[str, list[tuple[Rows, Int32s]]] = {}
        first = 0
        for chunk in self._chunks:
            positions = position[first : first + len(chunk.start)]
            first += len(chunk.start)
            for key, rows in chunk.args.items():
                result.setdefault(key, []).append((rows, positions))
        return result

    def _near(self, host_of: Int32s, hosts: int) -> None:
        """Leaves out events that lie more than a week from the middle one of their host."""
        for host in range(hosts):
            rows = [host_of[chunk.lane] == host for chunk in self._chunks]
            times = np.concatenate(
                [
                    np.zeros(0, np.int64),
                    *(c.start[m] for c, m in zip(self._chunks, rows, strict=True)),
                ]
            )
            if not len(times) or int(times.max()) - int(times.min()) <= _WEEK_NS:
                continue
            middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
            far = [
                m & (np.abs(c.start - middle) > _WEEK_NS)
                for c, m in zip(self._chunks, rows, strict=True)
            ]
            self.receipt.skip(notes.FAR_EVENTS, sum(int(f.sum()) for f in far), key="far_events")
            self._chunks = [_only(chunk, ~f) for chunk, f in zip(self._chunks, far, strict=True)]

    def _clock(self, host_of: Int32s, hosts: Sequence[str]) -> tuple[int, Int64s, list[int]]:
        """The moment 0 in ns, what is taken from the times of each lane, and how many ps after it
        the times of each host begin.
        """
        firsts: dict[int, int] = {}
        for lanes, times in (
            *((c.lane, c.start) for c in self._chunks),
            *((f.lane, f.time) for f in self._flows),
            *((np.full(len(time), lane), time) for lane, _, time, _ in self._counters),
        ):
            for host in range(len(hosts)):
                rows = times[host_of[lanes] == host]
                if len(rows):
                    firsts[host] = min(int(rows.min()), firsts.get(host, int(rows.min())))
        epoch, shifts = one_clock(list(firsts.values()), self.receipt)
        taken = {
            host: first - shift for (host, first), shift in zip(firsts.items(), shifts, strict=True)
        }
        late = dict(zip(firsts, shifts, strict=True))
        lanes_taken = np.array([taken.get(host, epoch) for host in host_of.tolist()], np.int64)
        return epoch, lanes_taken, [1000 * late.get(host, 0) for host in range(len(hosts))]

    def _table(self, hosts: Sequence[str]) -> tuple[pd.DataFrame, list[Plane], Int32s]:
        """The lanes in their order, the planes, and the new number of each lane."""
        seen: dict[tuple[str, str], int] = {}
        for row in self._rows:
            seen.setdefault((row.host, row.pid), len(seen))
        order = sorted(
            range(len(self._rows)),
            key=lambda i: (
                hosts.index((r := self._rows[i]).host),
                r.process_sort,
                seen[r.host, r.pid],
                r.sort,
                i,
            ),
        )
        number = np.zeros(len(order), np.int32)
        planes: list[Plane] = []
        plane_of: dict[tuple[str, str], int] = {}
        lanes: list[dict[str, object]] = []
        for i in order:
            row = self._rows[i]
            key = (row.host, row.pid)
            if key not in plane_of:
                plane_of[key] = len(planes)
                stats: dict[str, object] = {
                    "pid": row.pid,
                    "labels": row.labels,
                    "sort_index": row.process_sort,
                }
                planes.append(Plane(row.host, row.process, {**stats, **self.planes.get(key, {})}))
            number[i] = len(lanes)
            lanes.append(
                lane_row(
                    len(lanes),
                    row.host,
                    row.process,
                    row.thread,
                    row.pid,
                    row.tid,
                    row.labels,
                    row.sort,
                    plane=plane_of[key],
                )
            )
        return pd.DataFrame(lanes, columns=LANE_COLUMNS), planes, number


def _moved_flows(flows: Flows, number: Int32s, moved: Int64s) -> Flows:
    """Flows on the lanes of the trace, in ps of its clock."""
    time = (flows.time - moved[flows.lane]) * 1000
    return Flows(flows.phase, flows.id, flows.category, number[flows.lane], time, flows.enclosing)


def _only(chunk: _Chunk, keep: npt.NDArray[np.bool_]) -> _Chunk:
    position = np.cumsum(keep, dtype=np.int32) - np.int32(1)
    args = {}
    for key, rows in chunk.args.items():
        chosen = keep[rows.event]
        if chosen.any():
            args[key] = Rows(position[rows.event[chosen]], rows.kind[chosen], rows.value[chosen])
    return _Chunk(chunk.lane[keep], chunk.name[keep], chunk.start[keep], chunk.duration[keep], args)


def lane_row(
    number: int,
    host: str,
    process: str,
    thread: str,
    pid: str,
    tid: str,
    labels: str,
    sort: int = 0,
    *,
    plane: int = -1,
    unnumbered: int | None = None,
) -> dict[str, object]:
    """One row of `Trace.lanes`; `line_id` is the thread's number where it has one that fits int64,
    else `unnumbered`.
    """
    otherwise = number if unnumbered is None else unnumbered
    return {
        "lane": number,
        "host": host,
        "process": process,
        "thread": thread,
        "line_id": int(tid) if len(tid) <= 18 and tid.removeprefix("-").isdecimal() else otherwise,
        "plane": plane,
        "kind": "",
        "device": -1,
        "note": "",
        "events": 0,
        "order": number,
        "pid": pid,
        "tid": tid,
        "labels": labels,
        "sort": sort,
    }


def one_clock(firsts: Sequence[int], receipt: Receipt) -> tuple[int, list[int]]:
    """The moment 0 in ns, and how many ns after it the times of each file or host begin, given the
    first moment of each.
    """
    if not firsts:
        return 0, []
    epoch = min(firsts)
    if max(firsts) - epoch > _WEEK_NS:
        receipt.add(notes.unrelated_clocks())
        return epoch, [0] * len(firsts)
    return epoch, [first - epoch for first in firsts]


def used_names(texts: Sequence[str], codes: Int32s) -> tuple[list[str], Int32s]:
    """The texts that are names of events, and codes into them; a code of -1 is the empty text."""
    present = np.zeros(len(texts) + 1, bool)
    present[codes] = True
    table = (np.cumsum(present) - 1).astype(np.int32)
    used = [texts[i] if i < len(texts) else "" for i in np.flatnonzero(present).tolist()]
    return used, table[codes]


def joined_flows(flows: Sequence[Flows]) -> Flows | None:
    """Flows one behind the other; None where there are none."""
    if not any(len(f.id) for f in flows):
        return None
    return Flows(
        phase=np.concatenate([part.phase for part in flows]),
        id=np.concatenate([part.id for part in flows]),
        category=np.concatenate([part.category for part in flows]),
        lane=np.concatenate([part.lane for part in flows]),
        time=np.concatenate([part.time for part in flows]),
        enclosing=np.concatenate([part.enclosing for part in flows]),
    )


def counter_table(
    parts: Sequence[tuple[int, str, Int64s, npt.NDArray[np.float64]]],
) -> pd.DataFrame:
    """`Trace.counters` of samples by series: lane, name, times in ps, values."""
    if not parts:
        return no_counters()
    lane, series, time, value = zip(*parts, strict=True)
    # One frame, not one a series: there may be thousands.
    counts = [len(times) for times in time]
    columns = {"lane": np.array(lane, np.int32), "series": np.array(series, object)}
    repeated = {key: np.repeat(column, counts) for key, column in columns.items()}
    result = pd.DataFrame(
        {**repeated, "time": np.concatenate(time), "value": np.concatenate(value)}
    )
    return result.sort_values(["lane", "series", "time"], kind="stable", ignore_index=True)[
        list(COUNTER_COLUMNS)
    ]


def sort_events(lane: Int32s, start: Int64s, duration: Int64s) -> Int64s:
    """The order by (lane, start, -duration); equal ones keep that of the file. Quick where lanes
    are nearly sorted already.
    """
    order = np.argsort(
        lane.astype(np.uint16) if len(lane) and lane.max() < 1 << 16 else lane, kind="stable"
    )
    if not len(order):
        return order
    by_lane = lane[order]
    bounds = np.flatnonzero(np.diff(by_lane)) + 1
    times = start[order]
    falls = np.flatnonzero((np.diff(times) < 0) & (np.diff(by_lane) == 0))
    edges = np.concatenate([[0], bounds, [len(order)]])
    for i in np.unique(np.searchsorted(edges, falls, side="right") - 1).tolist():
        low, high = int(edges[i]), int(edges[i + 1])
        inner = np.argsort(times[low:high], kind="stable")
        order[low:high] = order[low:high][inner]
        times[low:high] = times[low:high][inner]
    # Among equal starts the longer one is the outer one.
    lengths = duration[order]
    tie = (np.diff(times) == 0) & (np.diff(by_lane) == 0)
    wrong = tie & (np.diff(lengths) > 0)
    if wrong.any():
        group = np.concatenate([[0], np.cumsum(~tie)])
        rows = np.flatnonzero(np.isin(group, group[1:][wrong]))
        inner = np.lexsort((-lengths[rows], group[rows]))
        order[rows] = order[rows][inner]
    return order


class LazyArgs(Mapping[str, ArgColumn]):
    """Arg columns that are put in the order of the events when they are first asked for."""

    def __init__(self, rows: dict[str, list[tuple[Rows, Int32s]]], events: int) -> None:
        self._rows = rows
        self._events = events
        self._done: dict[str, ArgColumn] = {}
        # A thread that writes to the cache asks for columns too.
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> ArgColumn:
        """The column of one arg."""
        with self._lock:
            column = self._done.get(key)
            if column is None:
                column = self._done[key] = self._column(self._rows[key])
                del self._rows[key][:]
            return column

    def __iter__(self) -> Iterator[str]:
        """Names of the args."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Number of args."""
        return len(self._rows)

    def _column(self, groups: list[tuple[Rows, Int32s]]) -> ArgColumn:
        event = np.concatenate([position[rows.event] for rows, position in groups])
        kind = np.concatenate([rows.kind for rows, _ in groups])
        value = np.concatenate([rows.value for rows, _ in groups])
        # The last one that names an event wins: an end's args go over those of its begin, args over
        # fields.
        last = np.full(self._events + 1, -1, np.int64)
        last[event] = np.arange(len(event))
        order = last[:-1][last[:-1] >= 0]
        kind, value = kind[order], value[order]
        same = len(kind) > 0 and bool((kind == kind[0]).all())
        if same and kind[0] in (INT, TEXT) and value.min() >= -(1 << 31) and value.max() < 1 << 31:
            value = value.astype(np.int32)
        return ArgColumn(event[order], int(kind[0]) if same else kind, value)
