"""Assigns events to steps: the groups that TensorFlow Profiler calls `group_id`.

A host whose file already carries `group_id` is taken as it is. On the others events are linked by
nesting on their thread, by producer and consumer ids, by the ids of requests and programs, by
launch correlation and by tf.data element ids, and every root event (a step marker, a function run,
an iteration of a loop) gives its group to all that hangs below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.factorize import ending, heads, starting
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.lookups import host_of_lanes
from nbprof.dialects.xplane import tpu as xplane_tpu
from nbprof.dialects.xplane.event_links import Links, above, outermost
from nbprof.dialects.xplane.event_links import match as match

THREADPOOL_CONTEXT = 15
IMPLICIT_ROOTS = frozenset({"FunctionRun", "SessionRun", "RunGraph", "ExecutorState::Process"})
# Roots by name, where the event does not say that it is one.
_LEVELS = {
    "TraceContext": 1,
    "BatchingSessionRun": 1,
    "ProcessBatch": 2,
    "OrbaxServing::ProcessBatch": 2,
}
# A program that loops on its own is not to be cut into steps by what it runs inside.
_LOOP_OPS = frozenset(
    {"WhileOp-EvalCond", "WhileOp-StartBody", "ForOp", "ParallelForOp", "ForeverOp"}
)
_OF_EXECUTOR = frozenset(
    {"IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute", "TpuExecuteOp"}
)
_REQUESTS = frozenset((
    "RunProgramRequest", "HostCallbackRequest", "TransferH2DRequest",
    "TransferPreprocessedH2DRequest", "TransferD2HRequest", "OnDeviceSendRequest",
    "OnDeviceRecvRequest",
))  # fmt: skip
CALLED_BY_DATASET = "InstantiatedCapturedFunction::"
"""Names of calls by which tf.data runs a function begin with this."""
_RUN_ID_BITS = (1 << 27) - 1
_BUSY_KEY = 64


@dataclass
class Groups:
    """The group of every event (-1: none), and names and root events by (host, group)."""

    group: Int32s
    links: Int64s
    """int64[links, 2]: parent and child, of tf.data iterators on different threads."""
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    roots: dict[tuple[int, int], int] = field(default_factory=dict)
    over_loops: frozenset[int] = frozenset()
    """Hosts that loop inside a graph, and whose steps are those that the program marked; XProf
    leaves the marks out.
    """


def inherit(
    parent: Int32s, depth: npt.NDArray[np.uint16], values: Int64s, missing: int = -1
) -> Int64s:
    """Each event's own value, or that of its nearest ancestor on the lane that has one."""
    result = values.copy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero((depth == level) & (result == missing))
        result[rows] = result[parent[rows]]
    return result


def nearest(parent: Int32s, rows: Int64s, has: npt.NDArray[np.bool_]) -> Int64s:
    """Each event itself, or the innermost event around it on its lane with `has`; -1 for none."""
    result = rows.copy()
    open_ = np.flatnonzero(result >= 0)
    while len(open_ := open_[~has[result[open_]]]):
        result[open_] = parent[result[open_]]
        open_ = open_[result[open_] >= 0]
    return result


def of_calls(trace: Trace, host: Int64s, calls: Int64s, rows: Int64s) -> npt.NDArray[np.bool_]:
    """Return which of some events have the step id of one of the calls on their host.

    Parameters
    ----------
    trace : Trace
    host : int64[events]
    calls, rows : int64[…]
        Events.
    """
    if not len(calls) or not len(rows):
        return np.zeros(len(rows), np.bool_)
    step = trace.arg("id")
    both = np.concatenate([rows, calls[step[calls] != -1]])
    key = pd.factorize(step[both])[0] * len(trace.hosts) + host[both]
    return np.asarray(np.isin(key[: len(rows)], key[len(rows) :]) & (step[rows] != -1), np.bool_)


def group(trace: Trace, names: npt.NDArray[np.object_], *, elements: bool = True) -> Groups:
    """Groups of a trace; `names` are event names by code.

    Without `elements`, elements of tf.data are not followed to the events that produced them.
    """
    links = np.zeros((0, 2), np.int64)
    if elements:
        links = _iterator_links(trace, names)
    host = host_of_lanes(trace)[trace.events.lane].astype(np.int64)
    groups = Groups(np.full(len(trace.events), -1, np.int32), links)
    open_hosts = np.ones(len(trace.hosts), np.bool_)
    if "group_id" in trace.args:
        groups.group = trace.arg("group_id").astype(np.int32)
        open_hosts[host[trace.args["group_id"].event]] = False
    looping = _coded(names, _LOOP_OPS.__contains__)
    if looping.any():
        loops = np.unique(host[looping[trace.events.name]])
        marked = np.isin(loops, _marked(trace, host))
        open_hosts[loops[~marked]] = False
        groups.over_loops = frozenset(loops[marked].tolist())
    if open_hosts.any():
        _Grouping(trace, names, links, host).run(open_hosts[host], groups)
    _on_cores(trace, host, groups)
    _fill(trace, groups.group)
    return groups


def _marked(trace: Trace, host: Int64s) -> Int64s:
    """Hosts on which a program marked steps with their numbers."""
    if "_r" not in trace.args or "step_num" not in trace.args:
        return np.zeros(0, np.int64)
    return np.unique(host[(trace.arg("_r") > 0) & (trace.arg("step_num") >= 0)])


def _on_cores(trace: Trace, host: Int64s, groups: Groups) -> None:
    """Groups the remaining steps of TPU cores and the events in them, in place."""
    of_lane = xplane_tpu.grouping_lanes(trace)
    if not (of_lane >= 0).any():
        return
    for key, event in xplane_tpu.lock_step(trace, of_lane, host, groups.group).items():
        name = str(trace.names[trace.events.name[event]])
        groups.names[key] = f"step {name if name.isdigit() else key[1]}"
    rows, carrier = xplane_tpu.carriers(trace, of_lane)
    open_ = (groups.group[rows] < 0) & (carrier >= 0)
    groups.group[rows[open_]] = groups.group[carrier[open_]]


def _fill(trace: Trace, group: Int32s) -> None:
    """Gives ungrouped events of a GPU the group of the event before on their plane, in place.

    Planes on which the recorder derived lines were filled by it.
    """
    lanes, events = trace.lanes, trace.events
    kind = lanes["kind"].to_numpy()
    if not (kind == "device").any():
        return
    derived = set(lanes["plane"][np.isin(kind, ["steps", "derived"])].tolist())
    gpu = np.array([plane.name.startswith("/device:GPU:") for plane in trace.planes], np.bool_)
    gpu[list(derived)] = False
    plane = lanes["plane"].to_numpy(np.int64)
    rows = events.of_lanes((kind == "device") & gpu[plane])
    if not (group[rows] < 0).any() or not (group[rows] >= 0).any():
        return
    of_row = plane[events.lane[rows]]
    order = np.lexsort((-events.duration[rows], events.start[rows], of_row))
    rows, of_row = rows[order], of_row[order]
    last = np.maximum.accumulate(np.where(group[rows] >= 0, np.arange(len(rows)), -1))
    filled = (last >= 0) & (of_row[last] == of_row)
    group[rows[filled]] = group[rows[last[filled]]]


def of_callers(trace: Trace, groups: Groups, host: Int64s) -> Int32s:
    """The groups, with GPU work of ungrouped calls in that of their thread's last call or mark.

    JAX hands copies of a batch to a thread that starts them when it has done what it was handed,
    outside of any event. XProf then takes them to be of the step before (`_fill`), which so seems
    to last until the next batch is copied, and to have waited for it.
    """
    group, events = groups.group, trace.events
    if not groups.roots:
        return group
    up, down = _launched(trace, host)
    # Groups of the recorder stay.
    lost = (group[up] < 0) & np.isin(host[up], [host_index for host_index, _ in groups.roots])
    up, down = up[lost], down[lost]
    if not len(up):
        return group
    # Events are in order of lanes and of time.
    before = np.maximum.accumulate(np.where(group >= 0, np.arange(len(group)), -1))[up]
    of_thread = np.where(
        (before >= 0) & (events.lane[before] == events.lane[up]), group[before], -1
    )
    # Steps follow each other: what was launched later is of no earlier step.
    filled = group[down]
    chosen = np.where(
        of_thread > filled, of_thread, np.maximum(_around(trace, groups, host, up), filled)
    )
    result = group.copy()
    result[down] = chosen
    return result


def _around(trace: Trace, groups: Groups, host: Int64s, rows: Int64s) -> Int64s:
    """Group of the last root before the start of each event on its host; -1 if that is over."""
    result = np.full(len(rows), -1, np.int64)
    for host_index in np.unique(host[rows]).tolist():
        marks = [(root, group) for (on, group), root in groups.roots.items() if on == host_index]
        if not marks:
            continue
        root, ident = np.array(marks, np.int64).T
        order = np.argsort(trace.events.start[root], kind="stable")
        root, ident = root[order], ident[order]
        on_host = np.flatnonzero(host[rows] == host_index)
        start = trace.events.start[rows[on_host]]
        last = np.searchsorted(trace.events.start[root], start, side="right") - 1
        in_root = (last >= 0) & (start < trace.events.end[root[last]])
        result[on_host[in_root]] = ident[last[in_root]]
    return result


def _launched(trace: Trace, host: Int64s) -> tuple[Int64s, Int64s]:
    """Calls on hosts, and what GPUs ran for each."""
    correlation = trace.arg("correlation_id")
    device = trace.lanes["kind"].isin(["device", "derived", "steps"]).to_numpy()[trace.events.lane]
    up = np.flatnonzero((correlation > 0) & ~device)
    down = np.flatnonzero((correlation > 0) & device)
    # Several launches of one id on a host: the last wins.
    up = up[np.lexsort((correlation[up], host[up]))]
    again = (correlation[up][1:] == correlation[up][:-1]) & (host[up][1:] == host[up][:-1])
    if len(up):
        up = up[~np.append(again, False)]
    return match(up, [correlation[up], host[up]], down, [correlation[down], host[down]])


class _Grouping:
    def __init__(
        self, trace: Trace, names: npt.NDArray[np.object_], links: Int64s, host: Int64s
    ) -> None:
        self.trace = trace
        self.names = names
        self.links = links
        self.host = host
        events = trace.events
        self.count = len(events)
        self.parent = events.parent.copy()
        asynchronous = trace.above("_a", 0)
        if asynchronous.any():
            self.parent[asynchronous] = -1
        self.heads = heads(names)
        self.pool = starting(self.heads, "ThreadpoolListener::")[events.name]
        self.parent[self.pool] = -1
        # On a TPU core the event of the grouping line stands for all that happens in it.
        self.stands_for: tuple[Int64s, Int64s] | None = None
        of_lane = xplane_tpu.grouping_lanes(trace)
        if (of_lane >= 0).any():
            self.stands_for = xplane_tpu.carriers(trace, of_lane)
            self.parent[self.stands_for[0]] = -1

    def run(self, open_: npt.NDArray[np.bool_], groups: Groups) -> None:
        """Groups the events of ungrouped hosts (`open_`, by event); ids of a host count from 0."""
        trace = self.trace
        loops, again = self._loops()
        if len(loops):
            # Steps that the program marked may have loops inside: several batches in one call, or
            # the time steps of an RNN.
            marked = np.intersect1d(_marked(trace, self.host), self.host[loops])
            loops = loops[~np.isin(self.host[loops], marked)]
            again = again[~np.isin(self.host[again[:, 0]], marked)]
            groups.over_loops |= frozenset(marked.tolist())
        level = np.maximum(trace.arg("_r", 0), 0)
        named = np.array([_LEVELS.get(str(n), 0) for n in self.names], np.int64)
        if named.any():
            of_event = named[trace.events.name]
            level = np.where(of_event > 0, of_event, level)
        if len(loops):
            # If a program without marks loops in its graph, only the iterations are steps.
            looping = np.zeros(len(trace.hosts), np.bool_)
            looping[self.host[loops]] = True
            level[looping[self.host]] = 0
            level[loops] = 1
        level[~open_] = 0
        roots = np.flatnonzero(level)
        roots = roots[~self._of_datasets(roots)]
        if not len(roots):
            return
        # Roots in the order in which they take what hangs below them: the highest level first, then
        # the earliest.
        order = roots[np.lexsort((trace.events.start[roots], -level[roots]))]
        up, down = self._edges()
        if len(again):
            up, down = np.concatenate([up, again[:, 0]]), np.concatenate([down, again[:, 1]])
        links = Links(up, down, self.count)
        order, label = outermost(links, order, level[order])
        # A root that an earlier one reached opens no group.
        opened = order[label[order] == np.arange(len(order))]
        ident = np.zeros(len(opened), np.int32)
        for host in np.unique(self.host[opened]).tolist():
            on_host = self.host[opened] == host
            ident[on_host] = np.arange(on_host.sum())
        group_of_rank = np.full(len(order) + 1, -1, np.int32)
        group_of_rank[label[opened]] = ident
        group = group_of_rank[np.minimum(label, len(order))]
        groups.group[open_] = group[open_]
        texts = self._names(opened, ident, up, down)
        for root, host, text in zip(opened.tolist(), ident.tolist(), texts, strict=True):
            key = (int(self.host[root]), host)
            groups.names[key], groups.roots[key] = text, root

    def _called(self, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        return np.asarray(_coded(self.names, test)[self.trace.events.name], np.bool_)

    def _of_datasets(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """True for events with the step id of a function of tf.data: they are not steps."""
        table = starting(self.heads, CALLED_BY_DATASET)
        calls = np.flatnonzero(table[self.trace.events.name])
        return of_calls(self.trace, self.host, calls, rows)

    def _loops(self) -> tuple[Int64s, Int64s]:
        """Loops inside a graph: first events of iterations, and pairs of them and the others."""
        nothing = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
        if "iter_num" not in self.trace.args:
            return nothing
        step, turn = self.trace.arg("id"), self.trace.arg("iter_num")
        rows = np.flatnonzero(
            self._called("ExecutorState::Process".__eq__) & (step != -1) & (turn >= 0)
        )
        rows = rows[~self._of_datasets(rows)]
        if not len(rows):
            return nothing
        of_run = pd.factorize(
            pd.factorize(step[rows])[0] * len(self.trace.hosts) + self.host[rows]
        )[0]
        last = np.zeros(int(of_run.max()) + 1, np.int64)
        np.maximum.at(last, of_run, turn[rows])
        # A function that has the iteration 0 alone does not loop.
        keep = last[of_run] > 0
        rows, of_run = rows[keep], of_run[keep]
        if not len(rows):
            return nothing
        order = np.lexsort((self.trace.events.start[rows], turn[rows], of_run))
        rows, of_run = rows[order], of_run[order]
        begins = np.append(True, (np.diff(of_run) != 0) | (np.diff(turn[rows]) != 0))
        first = rows[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
        return rows[begins], np.column_stack([first, rows])[~begins]

    def _edges(self) -> tuple[Int64s, Int64s]:
        """Parent and child of every link."""
        nested = np.flatnonzero(self.parent >= 0)
        pairs: list[tuple[Int64s, Int64s]] = [(self.parent[nested].astype(np.int64), nested)]
        pairs.append(self._producers())
        pairs.append(_launched(self.trace, self.host))
        pairs.append(self._equal("ExecutorState::Process", _OF_EXECUTOR, ("id", "iter_num")))
        pairs.append(self._equal("EnqueueRequestLocked", _REQUESTS, ("request_id", "queue_addr")))
        pairs.append(self._programs())
        pairs.append((self.links[:, 0], self.links[:, 1]))
        up, down = map(np.concatenate, zip(*pairs, strict=True))
        if self.stands_for is None:
            return up, down
        node = np.arange(self.count)
        node[self.stands_for[0]] = self.stands_for[1]
        up, down = node[up], node[down]
        keep = (up >= 0) & (down >= 0) & (up != down)
        return up[keep], down[keep]

    def _process(self, rows: Int64s) -> Int64s:
        """The process that ids of producers and consumers hold in, 0 where none is stated."""
        trace = self.trace
        of_plane = np.array([_number(p.stats.get("process_id")) for p in trace.planes], np.int64)
        if "_pid" not in trace.args and len(np.unique(of_plane)) < 2:
            return np.zeros(len(rows), np.int64)
        of_event = of_plane[trace.lanes["plane"].to_numpy(np.int64)][trace.events.lane[rows]]
        pid = trace.arg("_pid", rows=rows)
        return np.asarray(np.where(pid != -1, pid, of_event), np.int64)

    def _producers(self) -> tuple[Int64s, Int64s]:
        trace = self.trace
        up, makes = self._contexts("_pt")
        down, takes = self._contexts("_ct")
        if not len(up) or not len(down):
            return _no_links()
        produced, taken = trace.arg("_p", rows=up), trace.arg("_c", rows=down)
        above = [makes, produced, self.host[up], self._process(up)]
        below = [takes, taken, self.host[down], self._process(down)]
        return match(up, above, down, below, limit=_BUSY_KEY)

    def _contexts(self, kind: str) -> tuple[Int64s, Int64s]:
        """Events that state a context, but for that of thread pools, and the context."""
        rows = np.flatnonzero(self.trace.above(kind, -1) & ~self.pool)
        context = self.trace.arg(kind, rows=rows)
        used = context != THREADPOOL_CONTEXT
        return rows[used], context[used]

    def _equal(
        self, parent: str, children: frozenset[str], keys: tuple[str, ...]
    ) -> tuple[Int64s, Int64s]:
        """Links events of two names on a host with equal args; the first arg must exist."""
        if (
            not _coded(self.names, parent.__eq__).any()
            or not _coded(self.names, children.__contains__).any()
        ):
            return _no_links()
        above, below = self._called(parent.__eq__), self._called(children.__contains__)
        values = [*map(self.trace.arg, keys), self.host]
        has_key = values[0] != -1
        return _matched(np.flatnonzero(above & has_key), np.flatnonzero(below & has_key), values)

    def _programs(self) -> tuple[Int64s, Int64s]:
        """Links from the call that enqueues a program to its run on a TPU core and callbacks."""
        above = self._called("DoEnqueueProgram".__eq__)
        if not above.any():
            return _no_links()
        trace, lanes = self.trace, self.trace.lanes
        on_core = xplane_tpu.is_core(trace)[lanes["plane"].to_numpy(np.int64)]
        modules = (on_core & (lanes["line"].to_numpy() == xplane_tpu.MODULES))[trace.events.lane]
        run = trace.arg("run_id")
        device = np.where(
            modules,
            lanes["device"].to_numpy(np.int64)[trace.events.lane],
            trace.arg("device_ordinal"),
        )
        keys = [
            device,
            trace.arg("queue_id"),
            run & _RUN_ID_BITS,
            trace.arg("core_type", 0),
            self.host,
        ]
        below = modules | self._called("CompleteCallbacks".__eq__)
        has_run = run != -1
        up, down = np.flatnonzero(above & has_run), np.flatnonzero(below & has_run)
        return _matched(up, down, keys, limit=_BUSY_KEY)

    def _names(self, opened: Int64s, ident: Int32s, up: Int64s, down: Int64s) -> list[str]:
        """Name of each group: kind and number of its root, stated there or above."""
        trace = self.trace
        number, graph = np.full(len(opened), -1, np.int64), np.full(len(opened), -1, np.int64)
        # Upwards, made when a root does not state it itself.
        links: list[Links] = []
        for key in ("step_num", "iter_num", "graph_type"):
            if key not in trace.args:
                continue
            values = trace.text_arg(key) if key == "graph_type" else trace.arg(key)
            event = np.where(values[opened] >= 0, opened, -1)
            if (event < 0).any():
                links = links or [Links(down, up, self.count)]
                event = above(links[0], opened, values >= 0)
            if key == "graph_type":
                graph = np.where(event >= 0, values[event], -1)
            else:
                number = np.where(event >= 0, values[event], number)
        names = []
        for root, number_in_host, stated_number, text in zip(
            opened.tolist(), ident.tolist(), number.tolist(), graph.tolist(), strict=True
        ):
            prefix = str(self.names[trace.events.name[root]])
            if text >= 0:
                prefix = trace.strings[text]
            elif prefix in IMPLICIT_ROOTS:
                prefix = ""
            if stated_number >= 0:
                number_in_host = stated_number
            names.append(f"{prefix} {number_in_host}".strip())
        return names


def _number(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else 0


def _matched(
    up: Int64s, down: Int64s, keys: Sequence[Int64s], limit: int = 0
) -> tuple[Int64s, Int64s]:
    """Links events with equal keys, which are given for all events."""
    return match(up, [key[up] for key in keys], down, [key[down] for key in keys], limit=limit)


def _no_links() -> tuple[Int64s, Int64s]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _coded(names: npt.NDArray[np.object_], test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    return np.fromiter(map(test, names.tolist()), np.bool_, len(names))


def _iterator_links(trace: Trace, names: npt.NDArray[np.object_]) -> Int64s:
    """Links of tf.data elements: the iterator that took one, and that made it on another thread."""
    element = trace.args.get("element_id")
    if element is None:
        return np.zeros((0, 2), np.int64)
    events = trace.events
    iterator = starting(heads(names), "Iterator::")
    produces = ending(names, events.name[element.event], "Produce")
    consumes = ending(names, events.name[element.event], "Consume")
    ident, parent_id = trace.arg("id"), trace.arg("parent_id")
    made_element = element.dense(len(events))
    rows = element.event
    is_maker = np.zeros(len(events), np.bool_)
    is_maker[rows[produces[events.name[rows]]]] = True
    nested = np.flatnonzero((events.parent >= 0) & iterator[events.name])
    nested = nested[is_maker[events.parent[nested]]]
    # Of the iterators in a maker the first in time is the one that made the element.
    makers, first = np.unique(events.parent[nested], return_index=True)
    child = nested[first]
    takers = rows[consumes[events.name[rows]]].astype(np.int64)
    takers = takers[events.parent[takers] >= 0]
    above = events.parent[takers]
    codes = trace.lanes["host"].astype("category").cat.codes.to_numpy(np.int64)
    host: Int64s = np.asarray(codes[events.lane], np.int64)
    made_by, taken_by = match(
        child,
        [parent_id[child], made_element[makers], host[child]],
        takers,
        [ident[above], made_element[takers], host[takers]],
    )
    return np.column_stack([taken_by, made_by])
