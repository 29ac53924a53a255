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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from nbprof.formats.times import LONGEST_NS, far_from_middle

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
    "pid",
    "tid",
    "labels",
    "sort",
]


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
    args: dict[str, Rows] = field(default_factory=dict)

    def only(self, keep: npt.NDArray[np.bool_]) -> _Chunk:
        """Some of the events, and their args."""
        position = np.cumsum(keep, dtype=np.int32) - np.int32(1)
        args = {}
        for key, rows in self.args.items():
            chosen = keep[rows.event]
            if chosen.any():
                event = position[rows.event[chosen]]
                args[key] = Rows(event, rows.kind[chosen], rows.value[chosen])
        return _Chunk(self.lane[keep], self.name[keep], self.start[keep], self.duration[keep], args)


class _Samples(NamedTuple):
    lane: int
    series: str
    time: Int64s
    value: npt.NDArray[np.float64]


class _Clock(NamedTuple):
    """The moment 0 in ns, the ns that are taken from the times of each lane, and the ps after the
    moment 0 at which each host begins.
    """

    epoch_ns: int
    taken_ns: Int64s
    late_ps: list[int]


class _Lanes(NamedTuple):
    table: pd.DataFrame
    planes: list[Plane]
    number: Int32s
    """The row of each lane in `table`."""


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
        self._counters: list[_Samples] = []
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
        if not count:
            return
        duration = np.asarray(duration_ns, np.int64)
        negative = int((duration < 0).sum())
        if negative:
            self.receipt.add(notes.negative_durations(negative))
            duration = np.maximum(duration, 0)
        chunk = _Chunk(
            np.broadcast_to(np.asarray(lane, np.int32), count),
            np.broadcast_to(np.asarray(name, np.int32), count),
            np.asarray(start_ns, np.int64),
            duration,
        )
        for key, values in (args or {}).items():
            rows = self._arg(values, count)
            if len(rows):
                chunk.args[key] = rows
        long = duration > LONGEST_NS
        if long.any():
            self.receipt.skip(notes.LONG_DURATIONS, int(long.sum()), key="long_durations")
            chunk = chunk.only(~long)
        self._chunks.append(chunk)

    def counter(
        self, lane: int, series: str, time_ns: Int64s, values: npt.NDArray[np.float64]
    ) -> None:
        """Adds samples of a counter to the process of a lane."""
        if len(time_ns):
            time = np.asarray(time_ns, np.int64)
            self._counters.append(_Samples(lane, series, time, np.asarray(values, np.float64)))

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
        count = len(ident)
        if count:
            self._flows.append(
                Flows(
                    phase=np.asarray(phase, np.uint8),
                    id=ident,
                    category=np.full(count, self.texts[category], np.int32),
                    lane=np.asarray(lane, np.int32),
                    time=np.asarray(time_ns, np.int64),
                    enclosing=np.ones(count, np.bool_),
                )
            )

    def _arg(self, values: Values, count: int) -> Rows:
        if isinstance(values, Rows):
            return values
        if isinstance(values, str):
            return _rows(np.full(count, self.texts[values], np.int64), TEXT)
        if isinstance(values, int):
            return _rows(np.full(count, values, np.int64), INT)
        if isinstance(values, Coded):
            return _rows(values.codes, TEXT, values.codes >= 0)
        if isinstance(values, np.ma.MaskedArray):
            return _numbers(values.data, ~np.ma.getmaskarray(values))
        return _numbers(values)

    def trace(self, hosts: Sequence[str] = (), metadata: dict[str, object] | None = None) -> Trace:
        """The trace; the hosts in the order of `hosts`, then those of lanes alone. The builder is
        empty afterwards.
        """
        lane_hosts = [row.host for row in self._rows]
        hosts = list(dict.fromkeys([*hosts, *lane_hosts]))
        host_of = np.array(list(map(hosts.index, lane_hosts)), np.int32)
        chunk = self._near_events(host_of, len(hosts))
        clock = self._clock(chunk, host_of, len(hosts))
        lanes = self._table(hosts)
        lane = lanes.number[chunk.lane]
        start = (chunk.start - clock.taken_ns[chunk.lane]) * 1000
        duration = chunk.duration * 1000
        order = sort_events(lane, start, duration)
        position = np.empty(len(order), np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        used, code = used_names(list(self.texts), chunk.name)
        events = Events(lane[order], code[order], start[order], duration[order])
        count = np.bincount(events.lane, minlength=len(lanes.table))
        lanes.table["events"] = count.astype(np.int64)
        self.receipt.events = len(events)
        args = self._args_by_event(position)
        flows = [_moved_flows(flow, lanes.number, clock.taken_ns) for flow in self._flows]
        counters = []
        for samples in self._counters:
            time = (samples.time - clock.taken_ns[samples.lane]) * 1000
            number = int(lanes.number[samples.lane])
            counters.append((number, samples.series, time, samples.value))
        names = np.array([*used, ""], object)[:-1]
        self._chunks, self._flows, self._counters = [], [], []
        return Trace(
            events=events,
            names=names,
            display=names,
            lanes=lanes.table,
            planes=lanes.planes,
            args=LazyArgs(args, len(events)),
            name_args={},
            strings=list(self.texts),
            modules=[],
            hosts=hosts,
            epoch_ns=clock.epoch_ns,
            receipt=self.receipt,
            metadata=metadata or {},
            late_ps=clock.late_ps,
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

    def _near_events(self, host_of: Int32s, hosts: int) -> _Chunk:
        """All events but those that are more than a week from the middle one of their host; the
        chunks lose these, too.
        """
        chunk = _joined(self._chunks)
        far = np.zeros(len(chunk.start), np.bool_)
        for host in range(hosts):
            rows = np.flatnonzero(host_of[chunk.lane] == host)
            if len(rows):
                far[rows] = far_from_middle(chunk.start[rows])
        if not far.any():
            return chunk
        self.receipt.skip(notes.FAR_EVENTS, int(far.sum()), key="far_events")
        near, first = [], 0
        for chunk in self._chunks:
            stop = first + len(chunk.start)
            near.append(chunk.only(~far[first:stop]))
            first = stop
        self._chunks = near
        return _joined(near)

    def _clock(self, chunk: _Chunk, host_of: Int32s, hosts: int) -> _Clock:
        never = np.iinfo(np.int64).max
        first = np.full(hosts, never)
        np.minimum.at(first, host_of[chunk.lane], chunk.start)
        for flow in self._flows:
            np.minimum.at(first, host_of[flow.lane], flow.time)
        for samples in self._counters:
            host = host_of[samples.lane]
            first[host] = min(first[host], samples.time.min())
        begun = np.flatnonzero(first != never)
        epoch, shifts = one_clock(first[begun].tolist(), self.receipt)
        late = np.zeros(hosts, np.int64)
        late[begun] = shifts
        taken = np.full(hosts, epoch)
        taken[begun] = first[begun] - late[begun]
        return _Clock(epoch, taken[host_of], (1000 * late).tolist())

    def _table(self, hosts: Sequence[str]) -> _Lanes:
        """The lanes in their order, and their planes."""
        appeared: dict[tuple[str, str], int] = {}
        for row in self._rows:
            appeared.setdefault((row.host, row.pid), len(appeared))

        def rank(lane: int) -> tuple[int, int, int, int]:
            row = self._rows[lane]
            host = hosts.index(row.host)
            return host, row.process_sort, appeared[row.host, row.pid], row.sort

        number = np.zeros(len(self._rows), np.int32)
        planes: list[Plane] = []
        plane_of: dict[tuple[str, str], int] = {}
        rows: list[dict[str, object]] = []
        for lane in sorted(range(len(self._rows)), key=rank):
            row = self._rows[lane]
            key = (row.host, row.pid)
            if key not in plane_of:
                plane_of[key] = len(planes)
                stats = {"pid": row.pid, "labels": row.labels, "sort_index": row.process_sort}
                stats |= self.planes.get(key, {})
                planes.append(Plane(row.host, row.process, stats))
            number[lane] = len(rows)
            rows.append(
                lane_row(
                    len(rows),
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
        return _Lanes(pd.DataFrame(rows, columns=LANE_COLUMNS), planes, number)


def _rows(
    column: npt.NDArray[Any], kind: int, present: npt.NDArray[np.bool_] | None = None
) -> Rows:
    """Values of one kind as rows, those of some events if a mask is given."""
    rows = np.arange(len(column), dtype=np.int32)
    if present is not None:
        rows = np.flatnonzero(present).astype(np.int32)
        column = column[rows]
    kinds = np.broadcast_to(np.uint8(kind), len(rows))
    return Rows(rows, kinds, column.astype(np.int64, copy=False))


def _numbers(column: npt.NDArray[np.generic], present: npt.NDArray[np.bool_] | None = None) -> Rows:
    if column.dtype.kind == "f":
        values = column.astype(np.float64)
        valid = ~np.isnan(values)
        if present is not None:
            valid &= present
        return _rows(values.view(np.int64), DOUBLE, valid)
    if column.dtype == np.uint64:
        return _rows(column.view(np.int64), UINT, present)
    return _rows(column, INT, present)


def _joined(chunks: Sequence[_Chunk]) -> _Chunk:
    """The events of all chunks, without their args."""
    if not chunks:
        none32, none64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
        return _Chunk(none32, none32, none64, none64)
    return _Chunk(
        _column(chunks, "lane"),
        _column(chunks, "name"),
        _column(chunks, "start"),
        _column(chunks, "duration"),
    )


def _column(parts: Sequence[object], name: str) -> npt.NDArray[Any]:
    """The arrays of one name of several objects, one behind the other."""
    return np.concatenate([getattr(part, name) for part in parts])


def _moved_flows(flows: Flows, number: Int32s, moved: Int64s) -> Flows:
    """Flows on the lanes of the trace, in ps of its clock."""
    time = (flows.time - moved[flows.lane]) * 1000
    return Flows(flows.phase, flows.id, flows.category, number[flows.lane], time, flows.enclosing)


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
    line_id = number if unnumbered is None else unnumbered
    if len(tid) <= 18 and tid.removeprefix("-").isdecimal():
        line_id = int(tid)
    return {
        "lane": number,
        "host": host,
        "process": process,
        "thread": thread,
        "line_id": line_id,
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
    if max(firsts) - epoch > LONGEST_NS:
        receipt.add(notes.unrelated_clocks())
        return epoch, [0] * len(firsts)
    return epoch, [first - epoch for first in firsts]


def used_names(texts: Sequence[str], codes: Int32s) -> tuple[list[str], Int32s]:
    """The texts that are names of events, and codes into them; a code of -1 is the empty text."""
    present = np.zeros(len(texts) + 1, bool)
    present[codes] = True
    table = (np.cumsum(present) - 1).astype(np.int32)
    every = [*texts, ""]
    return [every[code] for code in np.flatnonzero(present).tolist()], table[codes]


def joined_flows(flows: Sequence[Flows]) -> Flows | None:
    """Flows one behind the other; None where there are none."""
    if not any(len(part.id) for part in flows):
        return None
    return Flows(
        phase=_column(flows, "phase"),
        id=_column(flows, "id"),
        category=_column(flows, "category"),
        lane=_column(flows, "lane"),
        time=_column(flows, "time"),
        enclosing=_column(flows, "enclosing"),
    )


def counter_table(
    parts: Sequence[tuple[int, str, Int64s, npt.NDArray[np.float64]]],
) -> pd.DataFrame:
    """`Trace.counters` of samples by series: lane, name, times in ps, values."""
    if not parts:
        return no_counters()
    lane, series, time, value = zip(*parts, strict=True)
    # One frame, not one a series: there may be thousands.
    counts = list(map(len, time))
    result = pd.DataFrame(
        {
            "lane": np.repeat(np.array(lane, np.int32), counts),
            "series": np.repeat(np.array(series, object), counts),
            "time": np.concatenate(time),
            "value": np.concatenate(value),
        }
    )
    ordered = result.sort_values(["lane", "series", "time"], kind="stable", ignore_index=True)
    return ordered[list(COUNTER_COLUMNS)]


def stable_order(codes: npt.NDArray[np.integer]) -> Int64s:
    """The order of codes from 0 on; equal ones stay in their order."""
    if codes.max(initial=0) < 1 << 16:
        # NumPy sorts numbers of 16 bits by radix.
        codes = codes.astype(np.uint16)
    return np.argsort(codes, kind="stable")


def sort_events(lane: Int32s, start: Int64s, duration: Int64s) -> Int64s:
    """The order by (lane, start, -duration); equal ones keep that of the file. Quick where lanes
    are nearly sorted already.
    """
    if not len(lane):
        return np.zeros(0, np.int64)
    order = stable_order(lane)
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
        every = [rows for rows, _ in groups]
        kind, value = _column(every, "kind"), _column(every, "value")
        # The last one that names an event wins: an end's args go over those of its begin, args over
        # fields.
        last = np.full(self._events + 1, -1, np.int64)
        last[event] = np.arange(len(event))
        order = last[:-1][last[:-1] >= 0]
        kind, value = kind[order], value[order]
        if not len(kind) or (kind != kind[0]).any():
            return ArgColumn(event[order], kind, value)
        if kind[0] in (INT, TEXT) and value.min() >= -(1 << 31) and value.max() < 1 << 31:
            value = value.astype(np.int32)
        return ArgColumn(event[order], int(kind[0]), value)
