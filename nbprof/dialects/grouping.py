"""Which events belong to which step: the groups that TensorFlow Profiler calls `group_id`.

A file that already carries `group_id` is taken as it is. Otherwise events are linked by nesting on their thread, by
producer and consumer ids, by launch correlation and by tf.data element ids, and every root event (a step marker, a function run)
gives its group to all that hangs below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.trace import Int32s, Int64s, Trace

THREADPOOL_CONTEXT = 15
IMPLICIT_ROOTS = frozenset({"FunctionRun", "SessionRun", "RunGraph", "ExecutorState::Process"})
_BUSY_KEY = 64
_NONE = np.iinfo(np.int64).max


@dataclass
class Groups:
    """The group of every event (-1: none), the name of each group and the event that is its root."""

    group: Int32s
    names: dict[int, str]
    roots: dict[int, int]
    links: Int64s
    """int64[links, 2]: parent and child, of tf.data iterators on different threads."""


def inherit(parent: Int32s, depth: npt.NDArray[np.uint16], own: Int64s, missing: int = -1) -> Int64s:
    """Each event's own value, or that of its nearest ancestor on the lane that has one."""
    out = own.copy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero((depth == level) & (out == missing))
        out[rows] = out[parent[rows]]
    return out


def group(trace: Trace, names: npt.NDArray[np.object_]) -> Groups:
    """Groups of a trace; `names` is the event name by name code."""
    links = _iterator_links(trace, names)
    if "group_id" in trace.args:
        stored = trace.arg("group_id").astype(np.int32)
        return Groups(stored, {}, {}, links)
    return _Grouping(trace, names, links).run()


class _Grouping:
    def __init__(self, trace: Trace, names: npt.NDArray[np.object_], links: Int64s) -> None:
        self.trace = trace
        self.names = names
        self.links = links
        events = trace.events
        self.count = len(events)
        self.parent = events.parent.copy()
        asynchronous = trace.arg("_a") > 0
        if asynchronous.any():
            self.parent[asynchronous] = -1
        self.pool = _coded(names, lambda n: n.startswith("ThreadpoolListener::"))[events.name]
        self.parent[self.pool] = -1
        codes = trace.lanes["host"].astype("category").cat.codes.to_numpy(np.int64)
        self.host: Int64s = np.asarray(codes[events.lane], np.int64)

    def run(self) -> Groups:
        trace = self.trace
        roots = self._roots()
        if not len(roots):
            return Groups(np.full(self.count, -1, np.int32), {}, {}, self.links)
        level = trace.arg("_r", 0)
        level[_coded(self.names, lambda n: n == "TraceContext")[trace.events.name]] = 1
        # Roots in the order in which they take what hangs below them: the highest level first, then the earliest.
        order = roots[np.lexsort((trace.events.start[roots], -level[roots]))]
        links = _Links(*self._edges(), self.count)
        order = order[~_below_an_equal(links, order, level[order])]
        label = np.full(self.count, _NONE, np.int64)
        label[order] = np.arange(len(order))
        links.spread(label, order)
        # A root that an earlier one reached opens no group.
        opened = order[label[order] == np.arange(len(order))]
        group_of_rank = np.full(len(order) + 1, -1, np.int32)
        group_of_rank[label[opened]] = np.arange(len(opened))
        group = group_of_rank[np.minimum(label, len(order))]
        names = {ident: self._name(root, ident) for ident, root in enumerate(opened.tolist())}
        return Groups(group, names, dict(enumerate(opened.tolist())), self.links)

    def _roots(self) -> Int64s:
        """Events that open a group: `_r`, or a TraceContext; function runs of tf.data are none."""
        trace = self.trace
        is_root = trace.arg("_r", 0) > 0
        is_root |= _coded(self.names, lambda n: n == "TraceContext")[trace.events.name]
        data_run = _coded(self.names, lambda n: n.startswith("InstantiatedCapturedFunction::"))[trace.events.name]
        step = trace.arg("id")
        inside = np.unique(step[data_run & (step != -1)])
        is_root &= ~(np.isin(step, inside) & (step != -1))
        return np.flatnonzero(is_root)

    def _edges(self) -> tuple[Int64s, Int64s]:
        """Parent and child of every link."""
        nested = np.flatnonzero(self.parent >= 0)
        pairs: list[tuple[Int64s, Int64s]] = [(self.parent[nested].astype(np.int64), nested)]
        pairs.append(self._producers())
        pairs.append(self._launches())
        pairs.append(self._executor())
        pairs.append((self.links[:, 0], self.links[:, 1]))
        return np.concatenate([p for p, _ in pairs]), np.concatenate([c for _, c in pairs])

    def _producers(self) -> tuple[Int64s, Int64s]:
        trace = self.trace
        makes, takes = trace.arg("_pt"), trace.arg("_ct")
        up = np.flatnonzero((makes >= 0) & (makes != THREADPOOL_CONTEXT) & ~self.pool)
        down = np.flatnonzero((takes >= 0) & (takes != THREADPOOL_CONTEXT) & ~self.pool)
        host = self.host
        made, taken = trace.arg("_p"), trace.arg("_c")
        return match(
            up,
            [makes[up], made[up], host[up]],
            down,
            [takes[down], taken[down], host[down]],
            limit=_BUSY_KEY,
        )

    def _launches(self) -> tuple[Int64s, Int64s]:
        trace = self.trace
        correlation, host = trace.arg("correlation_id"), self.host
        device = trace.lanes["kind"].isin(["device", "derived", "steps"]).to_numpy()[trace.events.lane]
        up = np.flatnonzero((correlation > 0) & ~device)
        down = np.flatnonzero((correlation > 0) & device)
        # Several launches of one id on a host: the last wins.
        up = up[np.lexsort((correlation[up], host[up]))]
        again = (correlation[up][1:] == correlation[up][:-1]) & (host[up][1:] == host[up][:-1])
        up = up[~np.append(again, False)] if len(up) else up
        return match(up, [correlation[up], host[up]], down, [correlation[down], host[down]])

    def _executor(self) -> tuple[Int64s, Int64s]:
        trace, host = self.trace, self.host
        name = trace.events.name
        step, turn = trace.arg("id"), trace.arg("iter_num")
        gets = {"IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute"}
        known = step != -1
        up = np.flatnonzero(_coded(self.names, lambda n: n == "ExecutorState::Process")[name] & known)
        down = np.flatnonzero(_coded(self.names, lambda n: n in gets)[name] & known)
        return match(up, [step[up], turn[up], host[up]], down, [step[down], turn[down], host[down]])

    def _name(self, root: int, ident: int) -> str:
        trace = self.trace
        name = str(self.names[trace.events.name[root]])
        number = -1
        for key in ("iter_num", "step_num"):
            column = trace.args.get(key)
            if column is None:
                continue
            at = np.searchsorted(column.event, root)
            if at < len(column.event) and column.event[at] == root:
                number = int(column.value[at])
                break
        suffix = str(number if number >= 0 else ident)
        return suffix if name in IMPLICIT_ROOTS else f"{name} {suffix}"


def _coded(names: npt.NDArray[np.object_], test: object) -> npt.NDArray[np.bool_]:
    assert callable(test)
    return np.array([bool(test(n)) for n in names], np.bool_)


def match(up: Int64s, up_keys: list[Int64s], down: Int64s, down_keys: list[Int64s], limit: int = 0) -> tuple[Int64s, Int64s]:
    """All pairs of rows whose keys are equal; a key that is busy on both sides is left out."""
    if not len(up) or not len(down):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    code = np.zeros(len(up) + len(down), np.int64)
    for one, other in zip(up_keys, down_keys, strict=True):
        # Codes stay below the number of rows, so that the product of two fits.
        part, seen = pd.factorize(np.concatenate([one, other]))
        code = pd.factorize(code * len(seen) + part)[0]
    a, b = code[: len(up)], code[len(up) :]
    kinds = int(code.max()) + 1
    in_a, in_b = np.bincount(a, minlength=kinds), np.bincount(b, minlength=kinds)
    if limit:
        busy = (in_a >= limit) & (in_b >= limit)
        up, a = up[~busy[a]], a[~busy[a]]
        down, b = down[~busy[b]], b[~busy[b]]
        in_a = np.bincount(a, minlength=kinds)
    order = np.argsort(a, kind="stable")
    first = np.cumsum(in_a) - in_a
    rows, at = _spread_out(first[b], in_a[b])
    return up[order][at], down[rows]


def _spread_out(first: Int64s, many: Int64s) -> tuple[Int64s, Int64s]:
    """For runs of consecutive numbers (the first, and how many): the run that each number is of, and the numbers."""
    run = np.repeat(np.arange(len(first)), many)
    return run, np.arange(len(run)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)


def _once(values: Int64s) -> Int64s:
    """Each value once, ascending; sorting is faster here than the hashing of np.unique."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


class _Links:
    """Links from parent to child, gone along from many events at once."""

    def __init__(self, up: Int64s, down: Int64s, count: int) -> None:
        order = np.argsort(up, kind="stable")
        self.child = down[order]
        self.many = np.bincount(up, minlength=count)
        self.first = np.cumsum(self.many) - self.many

    def below(self, events: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs (index into `events`, child)."""
        run, at = _spread_out(self.first[events], self.many[events])
        return run, self.child[at]

    def spread(self, label: Int64s, start: Int64s) -> None:
        """Gives each event the smallest label of what it hangs below, in place."""
        front = start
        while len(front):
            run, child = self.below(front)
            given = label[front][run]
            better = given < label[child]
            child = child[better]
            np.minimum.at(label, child, given[better])
            front = _once(child)


def _below_an_equal(links: _Links, roots: Int64s, level: Int64s) -> npt.NDArray[np.bool_]:
    """Which roots hang below another root of their level."""
    out = np.zeros(len(roots), np.bool_)
    for value in np.unique(level).tolist():
        at = np.flatnonzero(level == value)
        mine = roots[at]
        run, child = links.below(mine)
        # The first and the last root above each event: one that has none but itself (links may run in a circle) is free.
        for sign in (1, -1):
            label = np.full(len(links.many), _NONE, np.int64)
            np.minimum.at(label, child, sign * run)
            links.spread(label, _once(child))
            above = label[mine]
            out[at] |= (above != _NONE) & (above != sign * np.arange(len(mine)))
    return out


def _iterator_links(trace: Trace, names: npt.NDArray[np.object_]) -> Int64s:
    """tf.data iterators that ran ahead on another thread, linked by the element that they made: who took it, who made it."""
    element = trace.args.get("element_id")
    if element is None:
        return np.zeros((0, 2), np.int64)
    events = trace.events
    iterator = _coded(names, lambda n: n.startswith("Iterator::"))
    produces = _coded(names, lambda n: n.endswith("Produce"))
    consumes = _coded(names, lambda n: n.endswith("Consume"))
    ident, parent_id = trace.arg("id"), trace.arg("parent_id")
    made = element.dense(len(events))
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
    made_by, taken_by = match(child, [parent_id[child], made[makers], host[child]], takers, [ident[above], made[takers], host[takers]])
    return np.column_stack([taken_by, made_by])
