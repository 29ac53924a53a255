"""Links of one event: its launch, its producers, the forward op of a backward op, its op and step.

Nothing is built beforehand. Each answer reads the columns of ids once, which takes a few
milliseconds with ten million events, and needs no memory between two answers.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import INT, TEXT, UINT, ArgColumn, Int64s, Trace
from nbprof.timeline.lanes import step_names

if TYPE_CHECKING:
    from nbprof.activity.tables import DeviceOps, HostOps
    from nbprof.timeline.drawable import Drawable
    from nbprof.timeline.tracks import Tracks

MOST = 50
"""Arrows of one kind listed per event."""

LAUNCHES = frozenset({"ac2g", "async", "async_cpu_to_gpu", "async_gpu", "launch"})
"""Categories of arrows of a file that lead from a launch to its work."""
FLOW_BITS = (1 << 56) - 1
OF_FILE = {"fwdbwd": "forward", "producer": "producer"}
"""The meaning of other arrow categories; the rest are flows."""
CORRELATED = ("correlation_id", "correlation")
"""Args that link a launch to its device work; the first that an event has counts."""
_PYTHON = "python_function"

Arrow = tuple[str, int, int]


_OF_HOST = -1
"""The device of the step marks of a host."""


class _StepMarks(NamedTuple):
    """Begin, end and group of step marks, in time order."""

    begin: Int64s
    end: Int64s
    group: Int64s


class Links:
    """Links from an event to others.

    Parameters
    ----------
    run : Drawable
    tracks : Tracks
        Events go by their ids there; of derived ones, only `feeds` is known.
    """

    def __init__(self, run: Drawable, tracks: Tracks) -> None:
        self.run, self.tracks = run, tracks
        self.trace: Trace = run.trace
        self.events = run.trace.events
        self.flows: FlowPoints | None = None
        if run.trace.flows is not None and len(run.trace.flows.phase):
            self.flows = FlowPoints(run.trace)

    def arrows(self, event: int) -> list[Arrow]:
        """Kind ("launch", "producer", "forward" or "flow"), begin and end of the arrows of an
        event; at most 50 of a kind.
        """
        return self._arrows(event)[0]

    def left_out(self, event: int) -> str:
        """A sentence about the arrows that `arrows` omits; empty if there are none."""
        more = self._arrows(event)[1]
        return f"{more:,} more arrows of this slice are not drawn." if more else ""

    def launch(self, event: int) -> tuple[int, int] | None:
        """The host call that launched device work, and the time from the start of the call to the
        start of that work (ps).
        """
        if not self._recorded(event) or not self.on_device[self.events.lane[event]]:
            return None
        calls, _ = self._sides(self._correlated(event))
        if not calls:
            for kind, start, finish in self._of_file(event):
                if kind == "launch" and finish == event:
                    calls.append(start)
        if not calls:
            return None
        # Of several with one id (the runtime and below it the driver) the last.
        call = max(calls, key=lambda e: (int(self.events.start[e]), e))
        return call, int(self.events.start[event] - self.events.start[call])

    def op(self, event: int) -> str:
        """The framework op that an event is or belongs to, as named in the ops table; "" if
        unknown.
        """
        if not self._recorded(event):
            return ""
        if self.on_device[self.events.lane[event]]:
            return self._of_table(event, "device_ops") or self._op_of_launch(event)
        return self._op_around(event)

    def stack(self, event: int) -> list[str]:
        """The call stack of an event, innermost first; for device work, that of its launch. Empty
        if none was recorded.
        """
        if not self._recorded(event):
            return []
        for current in self._outwards(event):
            stack = self._stack_in_args(current)
            if stack:
                return stack
        launched = self.launch(event)
        if launched is None:
            return self._frames(event)
        call, _ = launched
        return self._frames(call) or self.stack(call)

    def step(self, event: int) -> str:
        """The step that an event belongs to, as named in the steps table; "" if unknown."""
        if not self._recorded(event):
            start = int(self.tracks.extra.start[event - len(self.events)])
            return self._step_at(self._host_of_extra(event), start)
        host = int(self.host_of_lane[self.events.lane[event]])
        names = self._step_names
        group = self._number("group_id", event)
        if group is not None and group >= 0:
            return names.get((host, group), str(group))
        time, device = int(self.events.start[event]), int(self._device[self.events.lane[event]])
        if device < 0:
            return self._step_at(host, time)
        launched = self.launch(event)
        if launched is not None and (host, _OF_HOST) in self._marks:
            call, _ = launched
            step = self._step_at(host, int(self.events.start[call]))
            if step:
                return step
        return self._step_at(host, time, device)

    # Index of events.

    @cached_property
    def _step_names(self) -> dict[tuple[int, int], str]:
        return step_names(self.run)

    def _recorded(self, event: int) -> bool:
        return 0 <= event < len(self.events)

    def _outwards(self, event: int) -> Iterator[int]:
        """An event and those around it, innermost first."""
        while event >= 0:
            yield event
            event = int(self.events.parent[event])

    def _sides(self, events: list[int]) -> tuple[list[int], list[int]]:
        """Events on the host, and those on a device."""
        ids = np.array(events, np.int64)
        on_device = self.on_device[self.events.lane[ids]]
        return ids[~on_device].tolist(), ids[on_device].tolist()

    @cached_property
    def on_device(self) -> npt.NDArray[np.bool_]:
        """bool[lanes]"""
        is_kind = self.trace.lanes["kind"].isin(["device", "derived", "steps"]).to_numpy(np.bool_)
        return is_kind & (self._device >= 0)

    @cached_property
    def _device(self) -> Int64s:
        """int64[lanes]: ordinal of the device, -1 on a host."""
        result = np.full(len(self.trace.lanes), -1, np.int64)
        if "device" in self.trace.lanes:
            for lane, device in enumerate(self.trace.lanes["device"].tolist()):
                if isinstance(device, int):
                    result[lane] = device
        return result

    @cached_property
    def host_of_lane(self) -> Int64s:
        """int64[lanes]: index into the hosts."""
        hosts = self.trace.lanes["host"].tolist()
        return np.array([self._host_numbers.get(host, -1) for host in hosts], np.int64)

    @cached_property
    def _host_numbers(self) -> dict[str, int]:
        return {host: number for number, host in enumerate(self.run.hosts)}

    def _host_of_extra(self, event: int) -> int:
        lane_id = int(self.tracks.extra.lane[event - len(self.events)])
        for lane in self.tracks.lanes:
            if lane.id == lane_id:
                return self._host_numbers.get(lane.host, -1)
        return -1

    # Args of one event, and events by the value of an arg.

    def _row_of(self, column: ArgColumn | None, event: int) -> int:
        """The row of an event in a column, -1 where it has none."""
        if column is None:
            return -1
        index = bisect.bisect_left(column.event, event)
        if index < len(column) and column.event[index] == event:
            return index
        return -1

    def _number(self, key: str, event: int) -> int | None:
        column = self.trace.args.get(key)
        index = self._row_of(column, event)
        if column is None or index < 0 or kind_at(column, index) not in (INT, UINT):
            return None
        return int(np.asarray(column.value[index : index + 1]).astype(np.int64)[0])

    def _text(self, key: str, event: int) -> str:
        column = self.trace.args.get(key)
        index = self._row_of(column, event)
        if column is None or index < 0 or kind_at(column, index) != TEXT:
            text = self.trace.name_args.get(key, {}).get(int(self.events.name[event]), "")
            return text if isinstance(text, str) else ""
        return self.trace.strings[int(column.value[index])]

    def _having(self, key: str, value: int) -> Int64s:
        """The events with a number as an arg, ascending."""
        column = self.trace.args.get(key)
        if column is None:
            return np.zeros(0, np.int64)
        # Unsigned numbers of 2^63 and more are kept as their two's complement.
        typed = np.int64(value).astype(column.value.dtype)
        same = np.flatnonzero(column.value == typed)
        if not isinstance(column.kind, int):
            same = same[np.isin(column.kind[same], (INT, UINT))]
        return column.event[same].astype(np.int64)

    def _on_host_of(self, events: Int64s, event: int) -> Int64s:
        """Those on the host of an event, without itself."""
        host = self.host_of_lane[self.events.lane[event]]
        on_host = self.host_of_lane[self.events.lane[events]] == host
        return np.asarray(events[on_host & (events != event)], np.int64)

    # Arrows.

    def _arrows(self, event: int) -> tuple[list[Arrow], int]:
        if not self._recorded(event):
            return self._fed(event), 0
        arrows: dict[Arrow, None] = {}
        more = 0
        for linked in (
            self._launched(event),
            self._produced(event),
            self._backward(event),
            self._of_file(event),
            self._async(event),
            self._fed(event),
        ):
            new = [arrow for arrow in linked if arrow not in arrows]
            arrows.update(dict.fromkeys(new[:MOST]))
            more += max(len(new) - MOST, 0)
        return list(arrows), more

    def _correlated(self, event: int) -> list[int]:
        for key in CORRELATED:
            value = self._number(key, event)
            if value is not None and value > 0:
                correlated: list[int] = self._on_host_of(self._having(key, value), event).tolist()
                return correlated
        return []

    def _launched(self, event: int) -> list[Arrow]:
        work = [event]
        on_host = not self.on_device[self.events.lane[event]]
        if on_host:
            _, work = self._sides(self._correlated(event))
        result: list[Arrow] = []
        for launched in work:
            launch = self.launch(launched)
            if launch is None:
                continue
            call, _ = launch
            # A call of the runtime and that of the driver in it have the same id: the work belongs
            # to the last.
            if not on_host or call == event:
                result.append(("launch", call, launched))
        return result

    def _produced(self, event: int) -> list[Arrow]:
        result: list[Arrow] = []
        for kind, ident, other_kind, other_ident, sent in (
            ("_pt", "_p", "_ct", "_c", True),
            ("_ct", "_c", "_pt", "_p", False),
        ):
            kind_number, number = self._number(kind, event), self._number(ident, event)
            if kind_number is None or number is None:
                continue
            for other in self._on_host_of(self._having(other_ident, number), event).tolist():
                same_kind = self._number(other_kind, other) == kind_number
                if not same_kind or not self._same_process(event, other):
                    continue
                if sent:
                    result.append(("producer", event, other))
                else:
                    result.append(("producer", other, event))
        return result

    def _same_process(self, a: int, b: int) -> bool:
        pids = self._number("_pid", a), self._number("_pid", b)
        return pids[0] == pids[1] or None in pids

    def _backward(self, event: int) -> list[Arrow]:
        """Forward and backward by sequence number, where the file has no arrows for them."""
        number = self._number("Sequence number", event)
        if number is None or number < 0 or (self.flows is not None and self.flows.has("fwdbwd")):
            return []
        group = np.append(self._on_host_of(self._having("Sequence number", number), event), event)
        group = group[np.argsort(self.events.start[group], kind="stable")]
        thread = np.array([self._number("Fwd thread id", e) or 0 for e in group.tolist()])
        forward = group[thread == 0]
        backward = group[(thread != 0) & ~self.engine[self.events.name[group]]]
        if not len(forward) or not len(backward):
            return []
        # Ops inside a forward op have its number too, as have ops before the next differentiated
        # one: the number is that of the last to begin. The first backward op is around the others,
        # inside the engine's call of it.
        pair = int(forward[-1]), int(backward[0])
        return [("forward", *pair)] if event in pair else []

    @cached_property
    def engine(self) -> npt.NDArray[np.bool_]:
        """bool[names]: calls of the autograd engine, in which the backward op runs."""
        names = map(str, self.trace.names)
        is_engine = (name.startswith("autograd::engine::") for name in names)
        return np.fromiter(is_engine, np.bool_, len(self.trace.names))

    def _of_file(self, event: int) -> list[Arrow]:
        if self.flows is None:
            return []
        has_arrow = bool(self._correlated(event))
        result: list[Arrow] = []
        for category, start, finish in self.flows.arrows(event, MOST + 1):
            if category not in LAUNCHES:
                result.append((OF_FILE.get(category, "flow"), start, finish))
            elif not has_arrow:
                result.append(("launch", start, finish))
        return result

    def _fed(self, event: int) -> list[Arrow]:
        """From a derived event to the one that used its result."""
        rows, fed = self.tracks.feeds
        makers = rows + len(self.events)
        index = np.flatnonzero((makers == event) | (fed == event))
        return [
            ("producer", maker, used_by)
            for maker, used_by in zip(makers[index].tolist(), fed[index].tolist(), strict=True)
        ]

    def _async(self, event: int) -> list[Arrow]:
        """Flows in args of XSpace events: 56 bits of the flow's number; 1 for in, 2 for out."""
        value = self._number("flow", event)
        column = self.trace.args.get("flow")
        if value is None or column is None:
            return []
        ident = (value >> 2) & FLOW_BITS
        values = column.values
        same = np.flatnonzero(((values >> 2) & FLOW_BITS) == ident)
        same = same[np.argsort(self.events.start[column.event[same]], kind="stable")]
        chain = column.event[same].tolist()
        position, direction = chain.index(event), value & 3
        result: list[Arrow] = []
        if direction & 1 and position > 0:
            result.append(("flow", chain[position - 1], event))
        if direction & 2 and position + 1 < len(chain):
            result.append(("flow", event, chain[position + 1]))
        return result

    # Ops.

    def _of_table(self, event: int, name: str) -> str:
        """The op of an event in `device_ops` or `host_ops`; "" without one."""
        table: DeviceOps | HostOps = getattr(self.run.activity, name)
        rows = table.event
        index = bisect.bisect_left(rows, event)
        if index == len(rows) or rows[index] != event:
            return ""
        return str(self._op_names(len(self.run.activity.ops.codes))[int(table.op[index])])

    def _op_names(self, count: int) -> npt.NDArray[np.object_]:
        if len(self.__dict__.get("_ops", ())) != count:
            self._ops: npt.NDArray[np.object_] = self.run.activity.ops.values
        return self._ops

    def _op_of_launch(self, event: int) -> str:
        launched = self.launch(event)
        if launched is None:
            return ""
        call, _ = launched
        return self._op_around(call)

    def _op_around(self, event: int) -> str:
        """The innermost op from an event outwards."""
        for current in self._outwards(event):
            host_op = self._of_table(current, "host_ops")
            if host_op:
                return host_op
        return ""

    # Lines of code.

    def _stack_in_args(self, event: int) -> list[str]:
        """The stack in the args of an event."""
        lines = self._text("Call stack", event).split(";")
        if lines == [""]:
            # Outermost first in the file.
            lines = self._text("source_stack", event).splitlines()[::-1]
        if not lines:
            lines = [self._text("source", event)]
        return list(filter(None, map(str.strip, lines)))

    def _frames(self, event: int) -> list[str]:
        """Python frames around an event on its thread."""
        result = []
        for current in self._outwards(event):
            name = str(self.trace.names[self.events.name[current]])
            if name.startswith("$"):
                result.append(name[1:])
            elif self._text("cat", current).lower() == _PYTHON:
                result.append(name)
        return result

    # Steps.

    @cached_property
    def _marks(self) -> dict[tuple[int, int], _StepMarks]:
        """The step marks by host and device."""
        markers = self.run.activity.markers
        host, device, group = markers.host, markers.device, markers.group
        event, start, end = markers.event, markers.start, markers.end
        # Marks of a host are the program's time in a step, which may last until its device work
        # ends.
        on_host = device < 0
        begin = np.where(on_host, self.events.start[event], start)
        stop = np.where(on_host, self.events.end[event], end)
        result = {}
        for key in sorted(set(zip(host.tolist(), device.tolist(), strict=True))):
            rows = np.flatnonzero((host == key[0]) & (device == key[1]))
            rows = rows[np.argsort(begin[rows], kind="stable")]
            result[key] = _StepMarks(begin[rows], stop[rows], group[rows])
        return result

    def _step_at(self, host: int, time: int, device: int = _OF_HOST) -> str:
        """The name of the step around a time; "" outside of steps."""
        marks = self._marks.get((host, device))
        if marks is not None:
            index = int(np.searchsorted(marks.begin, time, side="right")) - 1
            if index >= 0 and time < marks.end[index]:
                group = int(marks.group[index])
                return self._step_names.get((host, group), str(group))
        steps = self.run.steps
        if not len(steps) or not 0 <= host < len(self.run.hosts):
            return ""
        start = steps["start_ms"].to_numpy(np.float64)
        in_step = (steps["host"] == self.run.hosts[host]).to_numpy(np.bool_) & (start <= time / 1e9)
        in_step &= time / 1e9 < start + steps["step_time_ms"].to_numpy(np.float64)
        names = steps["name"].to_numpy(object)[in_step]
        return str(names[-1]) if len(names) else ""


# The next slice, to which a finish belongs, may begin this much later, ps: times of arrows and
# slices are rounded separately.
_NEAR_PS = 1_000_000


def kind_at(column: ArgColumn, index: int) -> int:
    """The kind of one value of a column."""
    if isinstance(column.kind, int):
        return column.kind
    return int(column.kind[index])


class FlowPoints:
    """The points of arrows, and the slices that they belong to.

    A point belongs to the innermost slice around it on its row; a finish that does not say
    "enclosing" to the next slice that begins. In a trace whose rows were split, a row is several
    lanes.
    """

    def __init__(self, trace: Trace) -> None:
        assert trace.flows is not None
        self.trace, self.events, self.flows = trace, trace.events, trace.flows
        self.row_of: Int64s = np.arange(len(trace.lanes))
        if "row" in trace.lanes:
            self.row_of = trace.lanes["row"].to_numpy(np.int64)
        self._categories: set[str] | None = None

    @cached_property
    def number(self) -> Int64s:
        """int64[points]: the number of each arrow, from 0 on.

        It is the id in the file, unless that is a text or there are several hosts, which number
        their arrows separately.
        """
        ids = self.flows.id
        host_of_lane = np.append(pd.factorize(self.trace.lanes["host"])[0], -1)
        host = host_of_lane[self.flows.lane].astype(np.int64)
        if not len(ids) or (ids.min() >= 0 and (host == host[0]).all()):
            return ids
        inverse = np.unique(ids, return_inverse=True)[1].ravel()
        return np.asarray(inverse * (int(host.max()) + 2) + host + 1, np.int64)

    def has(self, category: str) -> bool:
        """True if there are arrows of a category."""
        if self._categories is None:
            self._categories = {self._name(c) for c in np.unique(self.flows.category).tolist()}
        return category in self._categories

    def _name(self, category: int) -> str:
        return self.trace.strings[category] if category >= 0 else ""

    def arrows(self, event: int, limit: int) -> list[tuple[str, int, int]]:
        """Category, begin and end of arrows of a slice, in the order of the file."""
        events, flows = self.events, self.flows
        row = self.row_of[events.lane[event]]
        first = int(events.start[event]) - _NEAR_PS
        last = int(events.start[event] + events.duration[event]) + _NEAR_PS
        near = np.flatnonzero((flows.lane == row) & (flows.time >= first) & (flows.time <= last))
        result: list[tuple[str, int, int]] = []
        for point in near[self.slices(near) == event].tolist():
            chain = np.flatnonzero(
                (self.number == self.number[point]) & (flows.category == flows.category[point])
            )
            chain = self._part(chain, point)
            slices = self.slices(chain)
            category = self._name(int(flows.category[point]))
            position = int(np.flatnonzero(chain == point)[0])
            for a, b in ((position - 1, position), (position, position + 1)):
                if a < 0 or b >= len(chain) or flows.phase[chain[a]] == 2:
                    continue
                if slices[a] >= 0 and slices[b] >= 0:
                    result.append((category, int(slices[a]), int(slices[b])))
            if len(result) >= limit:
                break
        return list(dict.fromkeys(result))

    def _part(self, chain: Int64s, point: int) -> Int64s:
        """The points of one arrow in the order of time: a later arrow may have the same id."""
        flows = self.flows
        chain = chain[np.lexsort((flows.phase[chain], flows.time[chain]))]
        number = np.cumsum(flows.phase[chain] == 0)
        return np.asarray(chain[number == number[np.flatnonzero(chain == point)[0]]], np.int64)

    def slices(self, points: Int64s) -> Int64s:
        """int64[points]: the slice that each belongs to, -1 where there is none."""
        result = np.full(len(points), -1, np.int64)
        events, flows = self.events, self.flows
        reach = np.full(len(points), np.iinfo(np.int64).min)
        for row in np.unique(flows.lane[points]).tolist():
            row_points = np.flatnonzero(flows.lane[points] == row)
            on_row = points[row_points]
            time = flows.time[on_row]
            following = (flows.phase[on_row] == 2) & ~flows.enclosing[on_row]
            for lane in np.flatnonzero(self.row_of == row).tolist():
                first, stop = np.searchsorted(
                    events.lane, np.array([lane, lane + 1], events.lane.dtype)
                )
                starts = events.start[first:stop]
                index = first + np.searchsorted(starts, time, side="right") - 1
                index = np.where(index >= first, index, -1)
                open_ = np.flatnonzero(index >= 0)
                while len(open_):
                    end = events.start[index[open_]] + events.duration[index[open_]]
                    open_ = open_[end < time[open_]]
                    index[open_] = events.parent[index[open_]]
                    open_ = open_[index[open_] >= 0]
                behind = first + np.searchsorted(starts, time, side="left")
                near = index >= 0
                if stop > first:
                    next_start = events.start[np.minimum(behind, stop - 1)]
                    near = (behind < stop) & (next_start <= time + _NEAR_PS)
                index = np.where((following | (index < 0)) & near, behind, index)
                # Of the lanes of a row the one whose slice began last, which is the innermost.
                began = np.where(index >= 0, events.start[index], np.iinfo(np.int64).min)
                better = (index >= 0) & (began >= reach[row_points])
                result[row_points[better]], reach[row_points[better]] = index[better], began[better]
        return result
