"""Links in a Kineto trace: device work, the runtime call that launched it, the op of the call.

A device event and its launch share a correlation id, unique within a process only. The launch names
its op by `External id`; files without it, or with one that belongs to no op, are linked by time:
the innermost op around the launch on its thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.core.trace import Flows, Int32s, Int64s, Trace
from nbprof.dialects import torchnames
from nbprof.dialects.gpu import engines
from nbprof.dialects.gpu.captures import Capture, Originate
from nbprof.dialects.gpu.graphs import Graphs
from nbprof.dialects.gpu.lanes import (
    ANNOTATION,
    CALL,
    COPY,
    DEVICE_NOTE,
    FILL,
    HOST,
    KERNEL,
    NOTES,
    OP,
    SLACK_PS,
    STREAM,
    Kinds,
)
from nbprof.dialects.gpu.nest import Nest
from nbprof.dialects.iterations import Spans, computed_items
from nbprof.dialects.lookups import host_of_lanes, names_that, rows_that
from nbprof.formats.chrome.graph_annotations import Said

Flags = npt.NDArray[np.bool_]

_LAUNCH_FLOWS = ("ac2g", "async", "async_cpu_to_gpu", "cpu_to_cuda")
"""Categories of the arrows from calls or ops to device work."""


def _is_step(name: str) -> bool:
    return bool(torchnames.STEP.match(name)) or engines.annotated(name) is not None


def _capture_sign(name: str) -> int:
    """1 for a call that begins the capture of a graph, -1 for one that ends it, 0 for others."""
    match = torchnames.CAPTURE.match(name)
    if match is None:
        return 0
    return 1 if match[1] == "Begin" else -1


class Links:
    """The links between events of a Kineto trace with split lanes.

    Each column is computed once, when it is first needed.

    Parameters
    ----------
    trace : Trace
    kind : uint8[events]
    originate : callable
        Finds the origins of calls of a trace.
    graph_captures : sequence of Capture
        Captures of graphs in other traces.
    annotations : mapping of int to mapping of int to Said
        Annotations of nodes of graphs in files next to the trace, by host and by node.
    """

    def __init__(
        self,
        trace: Trace,
        kind: Kinds,
        originate: Originate,
        graph_captures: Sequence[Capture] = (),
        annotations: Mapping[int, Mapping[int, Said]] | None = None,
        unusable_kernels: int = 0,
    ) -> None:
        self.trace = trace
        self.unusable_kernels = unusable_kernels
        self.kind = kind
        self._originate = originate
        self._graph_captures = graph_captures
        self._annotations = annotations

    @cached_property
    def waits_for_input(self) -> Flags:
        """bool[names]: events in which a loop waits for its next batch, unless the program computes
        it there.
        """
        waits = names_that(torchnames.is_input, self.trace.names)
        marked = self.trace.names == act.NEXT_ITEM
        rows = self.rows(ANNOTATION)
        rows = rows[marked[self.trace.events.name[rows]]]
        if len(rows) and computed_items(self.trace, rows, self.products):
            waits &= ~marked
        return waits

    @cached_property
    def products(self) -> Spans:
        """Matrix products, convolutions and attention on the host."""
        rows = rows_that(self.trace, self.ops.rows, torchnames.tensor_core_eligible)
        return Spans.of_rows(self.trace, rows)

    @cached_property
    def lane_host(self) -> Int32s:
        """int32[lanes]: index into `trace.hosts`."""
        return host_of_lanes(self.trace)

    @cached_property
    def host(self) -> Int32s:
        """int32[events]: index into `trace.hosts`."""
        return self.lane_host[self.trace.events.lane]

    @cached_property
    def device(self) -> Int32s:
        """int32[events]: ordinal of the device, -1 on a host."""
        return self.trace.lanes["device"].to_numpy(np.int32)[self.trace.events.lane]

    def rows(self, *kinds: int) -> Int64s:
        """Events of some kinds, ascending."""
        is_kind = np.zeros(256, np.bool_)
        is_kind[list(kinds)] = True
        return np.flatnonzero(is_kind[self.kind])

    @cached_property
    def ops(self) -> Nest:
        """The framework ops, nested."""
        return Nest(self.trace, self.rows(OP))

    @cached_property
    def annotations(self) -> Nest:
        """The program's annotations on its threads, without step markers."""
        rows = self.rows(ANNOTATION)
        return Nest(self.trace, rows[~self.step_names[self.trace.events.name[rows]]])

    @cached_property
    def step_names(self) -> Flags:
        """bool[names]: names of step markers."""
        return names_that(_is_step, self.trace.names)

    @cached_property
    def work(self) -> Int64s:
        """int64[w]: kernels, copies and fills on devices."""
        return self.rows(KERNEL, COPY, FILL)

    @cached_property
    def calls(self) -> Int64s:
        """int64[c]: calls into the runtime or driver."""
        return self.rows(CALL)

    @cached_property
    def correlation(self) -> Int64s:
        """int64[events]: id of the launch that an event is or comes from, -1.

        A 0 that several calls of a host state is not an id.
        """
        ids = self.trace.arg("correlation")
        if (ids[self.calls] == 0).sum() > len(self.trace.hosts):
            ids[ids == 0] = -1
        return ids

    @cached_property
    def external(self) -> Int64s:
        """int64[events]: `External id`, as files of any age write it, -1."""
        ids = self.trace.arg("External id")
        if "external id" not in self.trace.args:
            return ids
        return np.where(ids < 0, self.trace.arg("external id"), ids)

    @cached_property
    def launch(self) -> Int64s:
        """int64[w]: the call that launched each piece of device work, -1.

        One graph launch has many kernels.
        """
        calls = self.calls[self.correlation[self.calls] >= 0]
        if not len(calls):
            return np.full(len(self.work), -1, np.int64)
        keys = self._key(self.correlation, calls)
        position = _look_up(keys, self._key(self.correlation, self.work))
        return np.where(position >= 0, calls[position], -1)

    @cached_property
    def earlier(self) -> Flags:
        """bool[w]: device work that was launched before the recording began.

        Its launch is not in the file, and its id is below those of all calls there, which a process
        counts up. Without ids, it began before anything else was recorded. Work whose launch was
        lost within the recording does not count.
        """
        result = np.zeros(len(self.work), np.bool_)
        events, calls = self.trace.events, self.calls
        ids = self.correlation[self.work]
        host_events = self.rows(OP, ANNOTATION, CALL)
        for host in range(len(self.trace.hosts)):
            host_calls = calls[self.host[calls] == host]
            if not len(host_calls):
                continue
            on_host = self.host[self.work] == host
            idents = self.correlation[host_calls]
            # Ids by which nothing is linked may count something else.
            linked = bool((self.launch[on_host] >= 0).any())
            begun = events.start[host_events[self.host[host_events] == host]].min()
            before = events.start[self.work] < begun
            if linked:
                lowest = int(idents[idents >= 0].min())
                before = np.where(ids >= 0, ids < lowest, before)
            result |= on_host & (self.launch < 0) & before
        return result & ~self._after_launched

    @property
    def _after_launched(self) -> Flags:
        """bool[w]: work that began after work launched within the recording, on the same lane."""
        lane, start = self.trace.events.lane[self.work], self.trace.events.start[self.work]
        first = np.full(len(self.trace.lanes), np.iinfo(np.int64).max)
        linked = self.launch >= 0
        np.minimum.at(first, lane[linked], start[linked])
        return np.asarray(start > first[lane], np.bool_)

    @cached_property
    def captures(self) -> tuple[Int64s, Int64s, Int64s]:
        """Captures of graphs: the call that begins each, its begin and its end.

        The call is the one that ends the capture if it began before the recording. Begin and end
        need not be calls of one thread. Captures of a host that overlap are one; one that never
        ends lasts to the end of the host's calls.
        """
        events = self.trace.events
        sign = np.array(list(map(_capture_sign, map(str, self.trace.names))), np.int64)
        rows = self.calls[sign[events.name[self.calls]] != 0]
        spans = [np.zeros((3, 0), np.int64)]
        for host in np.unique(self.host[rows]).tolist():
            host_calls = self.calls[self.host[self.calls] == host]
            capture_calls = rows[self.host[rows] == host]
            capture_calls = capture_calls[np.argsort(events.start[capture_calls], kind="stable")]
            steps = sign[events.name[capture_calls]]
            # Open captures after each call; a first end belongs to one begun before the recording.
            before = max(0, -int(np.cumsum(steps).min()))
            opened = before + np.cumsum(steps)
            begins = capture_calls[(opened > 0) & (np.append(before, opened[:-1]) == 0)]
            start = events.start[begins]
            if before:
                begins = np.append(capture_calls[0], begins)
                start = np.append(events.start[host_calls].min(), start)
            end = events.end[capture_calls[opened == 0]]
            if opened[-1]:
                end = np.append(end, events.end[host_calls].max())
            spans.append(np.stack([begins, start, end]))
        begins, start, end = np.concatenate(spans, axis=1)
        return begins, start, end

    @cached_property
    def captured(self) -> Flags:
        """bool[c]: calls that would have started device work, but were captured into a graph.

        A capture takes the launches of every thread on its streams. Calls do not state their
        stream: a call during a capture that has device work was of another stream.
        """
        result = np.zeros(len(self.calls), np.bool_)
        rows, start, end = self.captures
        if not len(rows):
            return result
        starting = names_that(torchnames.starts_work, self.trace.names)
        starts = starting[self.trace.events.name[self.calls]]
        starts[np.searchsorted(self.calls, self.launch[self.launch >= 0])] = False
        time, host = self.trace.events.start[self.calls], self.host[self.calls]
        for row, begin, stop in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
            result |= starts & (host == self.host[row]) & (time >= begin) & (time < stop)
        return result

    def _key(self, ident: Int64s, rows: Int64s) -> Int64s:
        """Ids made unique over hosts; -1 stays."""
        value = ident[rows]
        if len(self.trace.hosts) == 1:
            return value
        of_host = value + (self.host[rows].astype(np.int64) << 48)
        return np.where((value >= 0) & (value < 1 << 48), of_host, -1)

    @cached_property
    def call_op(self) -> Int64s:
        """int64[c]: position in `ops` of the op that made each call, -1."""
        return self._by_external(self.calls, self.ops.around(self.calls))

    def _by_external(self, rows: Int64s, around: Int64s) -> Int64s:
        """The op that each event names if it was running at that time; else the one around it."""
        ops = self.ops
        if not len(ops.rows) or not len(rows):
            return around
        position = _look_up(self._key(self.external, ops.rows), self._key(self.external, rows))
        # Some recorders write the correlation id there, which may by chance be the id of an op.
        # Time and thread decide.
        events = self.trace.events
        time = events.start[rows]
        within = (
            (position >= 0)
            & (ops.start[position] <= time + SLACK_PS)
            & (events.end[ops.rows][position] + SLACK_PS >= time)
        )
        return np.where(
            within & ((ops.lane[position] == events.lane[rows]) | (around < 0)), position, around
        )

    @cached_property
    def graphs(self) -> Graphs:
        """Replays of graphs."""
        # A weak reference: a cycle would keep both in memory until the garbage collector runs.
        return Graphs(weakref.proxy(self), self._originate, self._graph_captures, self._annotations)

    @cached_property
    def origin_call(self) -> Int64s:
        """int64[w]: the call that each piece of device work comes from, -1.

        For a node of a graph it is the captured call, else the launch.
        """
        return np.where(self.graphs.call >= 0, self.graphs.call, self.launch)

    @cached_property
    def work_op(self) -> Int64s:
        """int64[w]: position in `ops` of the op that each piece of device work comes from, -1."""
        result = np.full(len(self.work), -1, np.int64)
        has_call = np.flatnonzero(self.origin_call >= 0)
        if len(has_call):
            result[has_call] = self.call_op[np.searchsorted(self.calls, self.origin_call[has_call])]
        lost = np.flatnonzero((result < 0) & (self.launch < 0))
        if len(lost):
            result[lost] = self._named(lost)
            lost = lost[result[lost] < 0]
        if len(lost) and self.trace.flows is not None:
            result[lost] = self._by_flow(lost)
        return result

    def _named(self, work: Int64s) -> Int64s:
        """The op that device work without a launch names by `External id`, if it began earlier."""
        ops, rows = self.ops, self.work[work]
        if not len(ops.rows):
            return np.full(len(work), -1, np.int64)
        position = _look_up(self._key(self.external, ops.rows), self._key(self.external, rows))
        good = (position >= 0) & (self.external[rows] != self.correlation[rows])
        return np.where(
            good & (ops.start[position] <= self.trace.events.start[rows] + SLACK_PS), position, -1
        )

    def _by_flow(self, work: Int64s) -> Int64s:
        """The op around the start of the arrow that ends in device work without a launch."""
        flows = self.trace.flows
        result = np.full(len(work), -1, np.int64)
        if flows is None:
            return result
        begins, lane = self._launch_arrows(flows)
        if not len(begins):
            return result
        key = flows.id[begins]
        if len(self.trace.hosts) > 1:
            key = key + (self.lane_host[lane].astype(np.int64) << 48)
        position = _look_up(key, self._key(self.correlation, self.work[work]))
        linked = np.flatnonzero(position >= 0)
        arrow = position[linked]
        result[linked] = self.ops.around_times(lane[arrow], flows.time[begins[arrow]])
        return result

    def _launch_arrows(self, flows: Flows) -> tuple[Int64s, Int32s]:
        """Starts of the arrows from calls or ops to device work, and their lanes."""
        categories = np.unique(flows.category).astype(np.int64)
        of_launch = names_that(_LAUNCH_FLOWS.__contains__, self.trace.texts(categories))
        # Ids that are not numbers are not correlation ids.
        is_id = (flows.id >= 0) & (flows.id < 1 << 48)
        starts = (flows.phase == 0) & np.isin(flows.category, categories[of_launch]) & is_id
        begins = np.flatnonzero(starts)
        # A flow knows its row; the host side of a row is a lane, if there is one.
        lanes = self.trace.lanes
        row = lanes["row"].to_numpy(np.int64)
        on_host = np.flatnonzero((lanes["side"] == HOST).to_numpy(np.bool_))
        count = max(row.max(initial=-1), flows.lane.max(initial=-1)) + 1
        lane_of_row = np.full(count + 1, -1, np.int32)
        lane_of_row[row[on_host]] = on_host
        lane = lane_of_row[flows.lane[begins]]
        return begins[lane >= 0], lane[lane >= 0]

    @cached_property
    def work_name(self) -> Int64s:
        """int64[w]: code in `names` of the op of each piece of device work.

        Without an op it is the annotation around it, else -1.
        """
        names = self.trace.events.name
        result = np.full(len(self.work), -1, np.int64)
        has_op = self.work_op >= 0
        result[has_op] = names[self.ops.rows[self.work_op[has_op]]]
        lost = np.flatnonzero(~has_op)
        if len(lost):
            result[lost] = self._by_device_note(lost)
            rest = lost[(result[lost] < 0) & (self.origin_call[lost] >= 0)]
            around = self.annotations.around(self.origin_call[rest])
            result[rest[around >= 0]] = names[self.annotations.rows[around[around >= 0]]]
        code = self._node_name
        return np.where(code >= 0, code, result)

    @cached_property
    def _node_name(self) -> Int64s:
        """int64[w]: code in `names` of the op or annotation of a graph's node without call, -1."""
        result = np.full(len(self.work), -1, np.int64)
        result[self.graphs.positions] = self._node_names[0]
        return result

    @cached_property
    def _node_names(self) -> tuple[Int64s, list[str]]:
        """`_node_name` of the work of replays, and the names to be added.

        It is the op of a capture in another trace, else PyTorch's annotation.
        """
        graphs, trace = self.graphs, self.trace
        codes = {"": -1}
        added: list[str] = []

        def code(text: str) -> int:
            if text not in codes:
                rows = np.flatnonzero(trace.names == text)
                if len(rows):
                    codes[text] = int(rows[0])
                else:
                    codes[text] = len(trace.names) + len(added)
                    added.append(text)
            return codes[text]

        op_codes = np.array([code(origin.op) for origin in graphs.origin], np.int64)[graphs.node]
        annotation, texts = graphs.annotated
        noted = np.array([code(text.name) for text in texts], np.int64)
        unnamed = (op_codes < 0) & (graphs.call[graphs.positions] < 0)
        return np.where(unnamed, noted[annotation], op_codes), added

    @cached_property
    def names(self) -> npt.NDArray[np.object_]:
        """object[...]: the names of the trace, and behind them those that only `work_name` has."""
        added = self._node_names[1]
        if not added:
            return self.trace.names
        return np.concatenate([self.trace.names, np.array(added, object)])

    def _by_device_note(self, work: Int64s) -> Int64s:
        """Name code of the innermost annotation that the device shows around work, -1."""
        events, lanes = self.trace.events, self.trace.lanes
        rows = self.rows(DEVICE_NOTE)
        notes = Nest(self.trace, rows[~self.step_names[events.name[rows]]])
        result = np.full(len(work), -1, np.int64)
        if not len(notes.rows):
            return result
        side, row = lanes["side"].to_numpy(), lanes["row"].to_numpy(np.int64)
        note_lanes = np.flatnonzero(side == NOTES)
        note_lane_of_row = np.full(int(row.max(initial=-1)) + 1, -1, np.int32)
        note_lane_of_row[row[note_lanes]] = note_lanes
        note_lane = np.where(side == STREAM, note_lane_of_row[row], -1)
        lane = note_lane[events.lane[self.work[work]]]
        position = notes.around_times(lane, events.start[self.work[work]])
        result[position >= 0] = events.name[notes.rows[position[position >= 0]]]
        return result


def _look_up(keys: Int64s, queries: Int64s) -> Int64s:
    """Position of the last of `keys` that equals each of `queries`, -1 if none or negative."""
    if not len(keys):
        return np.full(len(queries), -1, np.int64)
    low, high = int(keys.min()), int(keys.max())
    good = (queries >= max(low, 0)) & (queries <= high)
    if high - low < 8 * (len(keys) + len(queries)) + 1024:
        # Ids are counted up: a table by id is small, and far faster than sorting.
        table = np.full(high - low + 1, -1, np.int64)
        table[keys - low] = np.arange(len(keys))
        return np.where(good, table[np.where(good, queries - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys[order], queries, side="right") - 1
    position = np.maximum(position, 0)
    return np.where(good & (keys[order][position] == queries), order[position], -1)
