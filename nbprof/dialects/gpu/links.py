"""Links in a Kineto trace: device work, the runtime call that launched it, the op that made the
call.

A device event and its launch share a correlation id, unique within a process only. The launch names
its op by `External id`; files that state none, or one that is no op's, are linked by time: the
innermost op around the launch on its thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s, Trace
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
from nbprof.formats.chrome.graph_annotations import Said

Flags = npt.NDArray[np.bool_]

_LAUNCH_FLOWS = ("ac2g", "async", "async_cpu_to_gpu", "cpu_to_cuda")
"""Categories of the arrows from calls or ops to device work."""


class Links:
    """A Kineto trace with split lanes, and how its events hang together. Each column is made once,
    when it is first needed.

    Parameters
    ----------
    trace : Trace
    kind : uint8[events]
    originate : callable
        Finds where calls of a trace come from.
    graph_captures : sequence of Capture
        Captures of graphs in other traces.
    annotations : mapping of int to mapping of int to Said
        What files beside the trace say of nodes of graphs, by host and by node.
    """

    def __init__(
        self,
        trace: Trace,
        kind: Kinds,
        originate: Originate,
        graph_captures: Sequence[Capture] = (),
        annotations: Mapping[int, Mapping[int, Said]] | None = None,
    ) -> None:
        self.trace = trace
        self.kind = kind
        self._originate = originate
        self._graph_captures = graph_captures
        self._annotations = annotations

    @cached_property
    def lane_host(self) -> Int32s:
        """int32[lanes]: index into `trace.hosts`."""
        return np.asarray(
            self.trace.lanes["host"].map({h: i for i, h in enumerate(self.trace.hosts)}), np.int32
        )

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
        wanted = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        return np.flatnonzero(wanted[self.kind])

    @cached_property
    def ops(self) -> Nest:
        """The framework ops, nested."""
        return Nest(self.trace, self.rows(OP))

    @cached_property
    def annotations(self) -> Nest:
        """What the program annotated on its threads, without step markers, which hold
        everything.
        """
        rows = self.rows(ANNOTATION)
        return Nest(self.trace, rows[~self.step_names[self.trace.events.name[rows]]])

    @cached_property
    def step_names(self) -> Flags:
        """bool[names]: names of step markers."""
        names = self.trace.names
        return np.fromiter(
            (
                bool(torchnames.STEP.match(n)) or engines.annotated(str(n)) is not None
                for n in names
            ),
            np.bool_,
            len(names),
        )

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
        """int64[events]: the launch that an event is or comes from, -1. A 0 that several calls of a
        host state is none.
        """
        out = self.trace.arg("correlation")
        if (out[self.calls] == 0).sum() > len(self.trace.hosts):
            out[out == 0] = -1
        return out

    @cached_property
    def external(self) -> Int64s:
        """int64[events]: `External id`, as files of any age write it, -1."""
        out = self.trace.arg("External id")
        old = self.trace.arg("external id") if "external id" in self.trace.args else None
        return out if old is None else np.where(out < 0, old, out)

    @cached_property
    def launch(self) -> Int64s:
        """int64[w]: the call that launched each piece of device work, -1. One graph launch has many
        kernels.
        """
        calls = self.calls[self.correlation[self.calls] >= 0]
        at = _look_up(self._key(self.correlation, calls), self._key(self.correlation, self.work))
        return (
            np.where(at >= 0, calls[at], -1)
            if len(calls)
            else np.full(len(self.work), -1, np.int64)
        )

    @cached_property
    def earlier(self) -> Flags:
        """bool[w]: whether a piece of device work was launched before the recording began.

        Its launch is not in the file, and its id is below those of all calls there, which a process
        counts up. Where no id tells, it began before anything else was recorded. Work whose launch
        was lost within the recording is none of it.
        """
        out = np.zeros(len(self.work), np.bool_)
        events, calls = self.trace.events, self.calls
        given = self.correlation[self.work]
        known = self.rows(OP, ANNOTATION, CALL)
        for host in range(len(self.trace.hosts)):
            mine = calls[self.host[calls] == host]
            if not len(mine):
                continue
            on_host = self.host[self.work] == host
            idents = self.correlation[mine]
            # Ids by which nothing is linked may count something else.
            linked = bool((self.launch[on_host] >= 0).any())
            lowest = int(idents[idents >= 0].min()) if linked else -1
            before = events.start[self.work] < events.start[known[self.host[known] == host]].min()
            out |= (
                on_host
                & (self.launch < 0)
                & np.where((given >= 0) & linked, given < lowest, before)
            )
        return out & ~self._after_launched

    @property
    def _after_launched(self) -> Flags:
        """bool[w]: whether work that was launched within the recording began before each on its
        lane: what is older comes before that.
        """
        lane, start = self.trace.events.lane[self.work], self.trace.events.start[self.work]
        first = np.full(len(self.trace.lanes), np.iinfo(np.int64).max)
        linked = self.launch >= 0
        np.minimum.at(first, lane[linked], start[linked])
        return np.asarray(start > first[lane], np.bool_)

    @cached_property
    def captures(self) -> tuple[Int64s, Int64s, Int64s]:
        """Captures of graphs: the call that begins (or, before the recording, ends) each, its begin
        and its end.

        Begin and end need not be calls of one thread. Captures of a host that overlap are one; one
        that never ends lasts to the end of the host's calls.
        """
        events, names = (
            self.trace.events,
            [torchnames.CAPTURE.match(str(name)) for name in self.trace.names],
        )
        sign = np.array(
            [0 if found is None else 1 if found[1] == "Begin" else -1 for found in names], np.int64
        )
        rows = self.calls[sign[events.name[self.calls]] != 0]
        out: list[tuple[int, int, int]] = []
        for host in np.unique(self.host[rows]).tolist():
            own = self.calls[self.host[self.calls] == host]
            mine = rows[self.host[rows] == host]
            mine = mine[np.argsort(events.start[mine], kind="stable")]
            steps = sign[events.name[mine]]
            # How many are open after each call; what ends first had begun before the recording.
            before = max(0, -int(np.cumsum(steps).min()))
            opened = before + np.cumsum(steps)
            begins = np.flatnonzero((opened > 0) & (np.append(before, opened[:-1]) == 0)).tolist()
            ends = np.flatnonzero(opened == 0).tolist()
            low = ([(int(mine[0]), int(events.start[own].min()))] if before else []) + [
                (int(mine[i]), int(events.start[mine[i]])) for i in begins
            ]
            high = [int(events.end[mine[i]]) for i in ends] + (
                [int(events.end[own].max())] if opened[-1] else []
            )
            out += [(row, start, end) for (row, start), end in zip(low, high, strict=True)]
        columns = np.array(out, np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]

    @cached_property
    def captured(self) -> Flags:
        """bool[c]: calls that would have started something on the device, but were captured into a
        graph: nothing ran for them.

        A capture takes what every thread launches on its streams. Calls do not state their stream:
        those during a capture that something on the device came of were of another one.
        """
        out = np.zeros(len(self.calls), np.bool_)
        rows, start, end = self.captures
        if not len(rows):
            return out
        names = [
            torchnames.call_kind(str(name)) in torchnames.STARTS_WORK for name in self.trace.names
        ]
        starts = np.array(names, np.bool_)[self.trace.events.name[self.calls]]
        starts[np.searchsorted(self.calls, self.launch[self.launch >= 0])] = False
        time, host = self.trace.events.start[self.calls], self.host[self.calls]
        for row, begin, stop in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
            out |= starts & (host == self.host[row]) & (time >= begin) & (time < stop)
        return out

    def _key(self, ident: Int64s, rows: Int64s) -> Int64s:
        """Ids made unique over hosts; -1 stays."""
        value = ident[rows]
        if len(self.trace.hosts) == 1:
            return value
        return np.where(
            (value >= 0) & (value < 1 << 48), value + (self.host[rows].astype(np.int64) << 48), -1
        )

    @cached_property
    def call_op(self) -> Int64s:
        """int64[c]: position in `ops` of the op that made each call, -1."""
        return self._by_external(self.calls, self.ops.around(self.calls))

    def _by_external(self, rows: Int64s, around: Int64s) -> Int64s:
        """The op that each event names, where it was running at that time; else the one around
        it.
        """
        ops = self.ops
        if not len(ops.rows) or not len(rows):
            return around
        at = _look_up(self._key(self.external, ops.rows), self._key(self.external, rows))
        # Some recorders write the correlation id there, which may by chance be the id of some op:
        # time and thread decide.
        events = self.trace.events
        time = events.start[rows]
        within = (
            (at >= 0)
            & (ops.start[at] <= time + SLACK_PS)
            & (events.end[ops.rows][at] + SLACK_PS >= time)
        )
        return np.where(within & ((ops.lane[at] == events.lane[rows]) | (around < 0)), at, around)

    @cached_property
    def graphs(self) -> Graphs:
        """Replays of graphs."""
        # Held by what they hold, both would stay in memory until Python looks for circles.
        return Graphs(weakref.proxy(self), self._originate, self._graph_captures, self._annotations)

    @cached_property
    def made_by(self) -> Int64s:
        """int64[w]: the call that each piece of device work comes from, -1: its launch, or what was
        captured as its node of a graph.
        """
        return np.where(self.graphs.call >= 0, self.graphs.call, self.launch)

    @cached_property
    def work_op(self) -> Int64s:
        """int64[w]: position in `ops` of the op that each piece of device work comes from, -1."""
        out = np.full(len(self.work), -1, np.int64)
        known = np.flatnonzero(self.made_by >= 0)
        if len(known):
            out[known] = self.call_op[np.searchsorted(self.calls, self.made_by[known])]
        lost = np.flatnonzero((out < 0) & (self.launch < 0))
        if len(lost):
            out[lost] = self._named(lost)
            lost = lost[out[lost] < 0]
        if len(lost) and self.trace.flows is not None:
            out[lost] = self._by_flow(lost)
        return out

    def _named(self, which: Int64s) -> Int64s:
        """The op that device work without a launch names itself by `External id`; it can't have
        begun before the op did.
        """
        ops, rows = self.ops, self.work[which]
        if not len(ops.rows):
            return np.full(len(which), -1, np.int64)
        at = _look_up(self._key(self.external, ops.rows), self._key(self.external, rows))
        good = (at >= 0) & (self.external[rows] != self.correlation[rows])
        return np.where(good & (ops.start[at] <= self.trace.events.start[rows] + SLACK_PS), at, -1)

    def _by_flow(self, which: Int64s) -> Int64s:
        """The op around the start of the arrow that ends in device work without a launch."""
        flows = self.trace.flows
        out = np.full(len(which), -1, np.int64)
        if flows is None or not len(flows.phase):
            return out
        names = [
            c
            for c in np.unique(flows.category).tolist()
            if c >= 0 and self.trace.strings[c] in _LAUNCH_FLOWS
        ]
        # Ids that are no numbers are no correlation ids.
        begins = np.flatnonzero(
            (flows.phase == 0)
            & np.isin(flows.category, names)
            & (flows.id >= 0)
            & (flows.id < 1 << 48)
        )
        if not len(begins):
            return out
        lanes = self.trace.lanes
        # A flow knows its row; the first lane of a row is its host side, where there is one.
        lane_of_row = {
            int(r): i
            for i, (r, s) in enumerate(zip(lanes["row"], lanes["side"], strict=True))
            if s == HOST
        }
        lane = np.array([lane_of_row.get(r, -1) for r in flows.lane[begins].tolist()], np.int32)
        begins, lane = begins[lane >= 0], lane[lane >= 0]
        several = len(self.trace.hosts) > 1
        key = flows.id[begins] + (self.lane_host[lane].astype(np.int64) << 48 if several else 0)
        at = _look_up(key, self._key(self.correlation, self.work[which]))
        found = np.flatnonzero(at >= 0)
        out[found] = self.ops.at(lane[at[found]], flows.time[begins][at[found]])
        return out

    @cached_property
    def work_name(self) -> Int64s:
        """int64[w]: code in `names` of what each piece of device work is counted for: its op, else
        the annotation around it, else -1.
        """
        names = self.trace.events.name
        out = np.full(len(self.work), -1, np.int64)
        known = self.work_op >= 0
        out[known] = names[self.ops.rows[self.work_op[known]]]
        lost = np.flatnonzero(~known)
        if len(lost):
            out[lost] = self._by_device_note(lost)
            rest = lost[(out[lost] < 0) & (self.made_by[lost] >= 0)]
            around = self.annotations.around(self.made_by[rest])
            out[rest[around >= 0]] = names[self.annotations.rows[around[around >= 0]]]
        code = self._node_name
        return np.where(code >= 0, code, out)

    @cached_property
    def _node_name(self) -> Int64s:
        """int64[w]: code in `names` of what a node of a graph is known to be for beside its call,
        -1.
        """
        out = np.full(len(self.work), -1, np.int64)
        out[self.graphs.at] = self._node_names[0]
        return out

    @cached_property
    def _node_names(self) -> tuple[Int64s, list[str]]:
        """The same of the work of replays: the op of a capture in another trace, else PyTorch's
        annotation; and the names to be added.
        """
        graphs, trace = self.graphs, self.trace
        known: dict[str, int] = {}
        added: list[str] = []

        def code(text: str) -> int:
            if text not in known:
                at = np.flatnonzero(trace.names == text)
                known[text] = int(at[0]) if len(at) else len(trace.names) + len(added)
                added.extend([] if len(at) else [text])
            return known[text]

        of_node = np.array(
            [code(origin.op) if origin.op else -1 for origin in graphs.origin], np.int64
        )
        out = of_node[graphs.node] if len(graphs.at) else np.zeros(0, np.int64)
        said, texts = graphs.annotated
        noted = np.array([code(one.name) if one.name else -1 for one in texts], np.int64)[said]
        return np.where((out < 0) & (graphs.call[graphs.at] < 0), noted, out), added

    @cached_property
    def names(self) -> npt.NDArray[np.object_]:
        """object[...]: the names of the trace, and behind them those that only `work_name` has."""
        added = self._node_names[1]
        return (
            np.concatenate([self.trace.names, np.array(added, object)])
            if added
            else self.trace.names
        )

    def _by_device_note(self, which: Int64s) -> Int64s:
        """Name code of the innermost annotation that the device shows around work, -1."""
        events, lanes = self.trace.events, self.trace.lanes
        rows = self.rows(DEVICE_NOTE)
        notes = Nest(self.trace, rows[~self.step_names[events.name[rows]]])
        out = np.full(len(which), -1, np.int64)
        if not len(notes.rows):
            return out
        stream = lanes[lanes["side"] == STREAM]
        beside = lanes[lanes["side"] == NOTES]
        by_row = {int(r): i for i, r in zip(beside.index, beside["row"], strict=True)}
        to = np.full(len(lanes), -1, np.int32)
        for i, row in zip(stream.index, stream["row"], strict=True):
            to[i] = by_row.get(int(row), -1)
        lane = to[events.lane[self.work[which]]]
        at = notes.at(lane, events.start[self.work[which]])
        out[at >= 0] = events.name[notes.rows[at[at >= 0]]]
        return out


def _look_up(keys: Int64s, wanted: Int64s) -> Int64s:
    """Position of the last of `keys` that equals each of `wanted`, -1 where there is none or it is
    negative.
    """
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    low, high = int(keys.min()), int(keys.max())
    good = (wanted >= max(low, 0)) & (wanted <= high)
    if high - low < 8 * (len(keys) + len(wanted)) + 1024:
        # Ids are counted up, so that a table by id is small, and far faster than sorting.
        table = np.full(high - low + 1, -1, np.int64)
        table[keys - low] = np.arange(len(keys))
        return np.where(good, table[np.where(good, wanted - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted, side="right") - 1
    at = np.maximum(at, 0)
    return np.where(good & (keys[order][at] == wanted), order[at], -1)
