"""Time by range that the program names: on the host, on devices for what was launched in it, and of
its part of the backward pass.

Ranges are instances on threads; a row is a path of names, as ranges lie in each other. Figures are
those of the steps that averages use. What a path has per step is summed up here as totals, which
add up over hosts, and divided at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import OpParts
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import Intervals
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int64s, Trace
from nbprof.frameworks.register import JAX
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.scopes import Scope

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MAIN, OTHER, PROGRAM = "main", "other", "ops"
"""Where ranges are: on the thread that marks the steps, on other threads, or in the names of
ops.
"""
MOST = 500
"""Rows of a frame; of more the ones with the most time."""
SCOPES = "named_scope", "name_scope"
SEPARATOR = "\x1f"
_DIGITS = re.compile(r"\d+")
_SUMS = (
    "count",
    "host",
    "host_self",
    "sync",
    "device",
    "device_self",
    "kernels",
    "backward_host",
    "backward_device",
)
_KEYS = ("thread", "kind", "path")
_PS_PER_MS = 1e9


@dataclass(frozen=True)
class Totals:
    """What a host, or several, spent in ranges in the steps that count.

    Attributes
    ----------
    rows : DataFrame
        `thread kind path` (names, outermost first, parted by `SEPARATOR`), `first` (ps), and sums:
        instances, kernels, and times in ps; NaN where not known.
    ops : DataFrame
        `thread kind path side op own`: self time of each op within a path, in ps; `side` is host or
        device.
    places : DataFrame
        `thread kind path what own`: time in ps of what advice speaks of (`PLACES`), with the paths
        in it; path "" is that of all.
    steps : int
        Steps that were summed up.
    step_ps : float
        Their time.
    outside : dict
        Time in ps of no range: `host` of the thread that marks steps, `device` of what was
        launched; NaN where not known.
    """

    rows: pd.DataFrame
    ops: pd.DataFrame
    places: pd.DataFrame
    steps: int
    step_ps: float
    outside: dict[str, float]


@cache
def nothing() -> Totals:
    """The totals of a recording without ranges."""
    rows = pd.DataFrame(
        {
            **dict.fromkeys(_KEYS, pd.Series(dtype=object)),
            **dict.fromkeys(("first", *_SUMS), pd.Series(dtype=float)),
        }
    )
    ops = pd.DataFrame(
        {
            **dict.fromkeys((*_KEYS, "side", "op"), pd.Series(dtype=object)),
            "own": pd.Series(dtype=float),
        }
    )
    places = ops.drop(columns=["side", "op"]).assign(what=pd.Series(dtype=object))
    return Totals(rows, ops, places, 0, 0.0, {"host": np.nan, "device": np.nan})


@dataclass
class Steps:
    """The steps that count, by host, ps; steps that touch remain separate."""

    by_host: list[Intervals]

    @classmethod
    def of(cls, steps: pd.DataFrame, hosts: Sequence[str]) -> Steps:
        """Out of rows of `p.steps.frame`."""
        begin, end = step_bounds(steps)
        of_host = [(steps["host"] == name).to_numpy(np.bool_) for name in hosts]
        return cls(
            [Intervals.union(begin[rows], end[rows], merge_touching=False) for rows in of_host]
        )

    def number(self, host: npt.NDArray[np.integer[Any]], time: Int64s) -> Int64s:
        """Which step of its host each moment lies in, -1."""
        result = np.full(len(time), -1, np.int64)
        for number, steps in enumerate(self.by_host):
            rows = np.flatnonzero(host == number) if len(self.by_host) > 1 else np.arange(len(time))
            result[rows] = steps.index_at(time[rows])
        return result

    def within(self, host: npt.NDArray[np.integer[Any]], start: Int64s, end: Int64s) -> Int64s:
        """How much of each span lies in steps of its host, ps."""
        result = np.zeros(len(start), np.int64)
        for number, steps in enumerate(self.by_host):
            rows = (
                np.flatnonzero(host == number) if len(self.by_host) > 1 else np.arange(len(start))
            )
            result[rows] = steps.covered_within(start[rows], end[rows])
        return result


class Instances:
    """Ranges of threads, with the row of each path, and what lies in which.

    Parameters
    ----------
    activity : Activity
    trace : Trace
    steps : Steps
    """

    def __init__(self, activity: Activity, trace: Trace, steps: Steps) -> None:
        table = activity.ranges.frame()
        self.activity = activity
        self.trace = trace
        self.steps = steps
        # By lane, start and descending end, as parents stand before what lies in them.
        order = np.lexsort(
            (-table["end"].to_numpy(), table["start"].to_numpy(), table["lane"].to_numpy())
        )
        place = np.empty(len(order) + 1, np.int64)
        place[order], place[-1] = np.arange(len(order)), -1
        self.host, self.lane, self.start, self.end, parent, self.name, self.kind = (
            table[column].to_numpy(np.int64)[order]
            for column in ("host", "lane", "start", "end", "parent", "name", "kind")
        )
        self.parent = place[parent].astype(np.int32)
        self.step = steps.number(self.host, self.start)

    def at(self, lane: npt.NDArray[np.integer[Any]], time: Int64s) -> Int64s:
        """The innermost range around moments of lanes, -1."""
        result = np.full(len(time), -1, np.int64)
        edges = run_starts(self.lane)
        for first, last in zip(
            edges.tolist(), np.append(edges[1:], len(self.lane)).tolist(), strict=True
        ):
            rows = np.flatnonzero(lane == self.lane[first])
            found = first + np.searchsorted(self.start[first:last], time[rows], side="right") - 1
            result[rows] = np.where(found >= first, found, -1)
        open_ = np.flatnonzero(result >= 0)
        while len(open_):
            open_ = open_[self.end[result[open_]] <= time[open_]]
            result[open_] = self.parent[result[open_]]
            open_ = open_[result[open_] >= 0]
        return result

    def at_in_steps(self, lane: npt.NDArray[np.integer[Any]], time: Int64s) -> Int64s:
        """The same of moments in steps that count; `NOT_COUNTED` of others."""
        row = self.at(lane, time)
        host = self.lane_host[lane]
        return np.where(self.steps.number(host, time) >= 0, row, NOT_COUNTED)

    @cached_property
    def lane_host(self) -> Int64s:
        """The host of each lane."""
        return (
            pd.Index(self.activity.hosts)
            .get_indexer(pd.Index(self.trace.lanes["host"].astype(str)))
            .astype(np.int64)
        )

    @cached_property
    def main(self) -> Int64s:
        """By host, the lane whose ranges divide the step: that of the marks of steps, else the one
        with the most time in ranges; -1.
        """
        result = np.full(len(self.activity.hosts), -1, np.int64)
        marks = self.activity.markers.frame()
        marks = marks[(marks["device"] < 0) & (marks["event"] >= 0)]
        marked = self.trace.events.lane[marks["event"].to_numpy(np.int64)]
        length = np.where(self.parent < 0, self.end - self.start, 0)
        for host in np.unique(self.host).tolist():
            of_marks = marked[marks["host"].to_numpy() == host]
            lanes, which = np.unique(self.lane[self.host == host], return_inverse=True)
            with_marks = lanes[np.isin(lanes, of_marks)]
            longest = lanes[np.argmax(np.bincount(which, length[self.host == host]))]
            result[host] = with_marks[0] if len(with_marks) else longest
        return result

    @cached_property
    def folded(self) -> npt.NDArray[np.object_]:
        """By code of a name, the name; names that differ in numbers alone, each in a step of its
        own, are one: `log N`.
        """
        names = self.activity.texts.values.copy()
        used = np.unique(self.name)
        first, _ = unique_rows(self.name, self.host, self.step)
        times = np.bincount(self.name[first][self.step[first] >= 0], minlength=len(names))
        hosts = np.bincount(self.name[unique_rows(self.name, self.host)[0]], minlength=len(names))
        families: dict[str, list[int]] = {}
        for code in used.tolist():
            if (
                times[code] <= hosts[code]
                and (text := _DIGITS.sub("N", str(names[code]))) != names[code]
            ):
                families.setdefault(text, []).append(code)
        for text, codes in families.items():
            rows = np.flatnonzero(np.isin(self.name, codes) & (self.step >= 0))
            different = len(unique_rows(self.host[rows], self.step[rows])[0])
            if len(codes) > 1 and different == len(
                unique_rows(self.host[rows], self.step[rows], self.name[rows])[0]
            ):
                names[codes] = text
        return names

    @cached_property
    def paths(self) -> tuple[Int64s, Int64s, list[tuple[str, str, str]]]:
        """The path of each range, the path around each path (-1), and what each is: thread, kind
        and names.
        """
        texts, names = pd.factorize(self.folded[self.name])
        kinds = self.activity.texts.values
        main = self.lane == self.main[self.host]
        path = np.full(len(self.name), -1, np.int64)
        above: list[Int64s] = []
        keys: list[tuple[str, str, str]] = []
        for level in nesting.levels(self.parent):
            outer = np.where(self.parent[level] >= 0, path[self.parent[level]], -1)
            first, code = unique_rows(
                outer, texts[level], self.kind[level], main[level].astype(np.int64)
            )
            path[level] = len(keys) + code
            above.append(outer[first])
            for row, around in zip(level[first].tolist(), outer[first].tolist(), strict=True):
                name = str(names[texts[row]]).replace(SEPARATOR, " ")
                under = f"{keys[around][2]}{SEPARATOR}{name}" if around >= 0 else name
                keys.append((MAIN if main[row] else OTHER, str(kinds[self.kind[row]]), under))
        return path, np.concatenate(above) if above else np.zeros(0, np.int64), keys


def totals(
    activity: Activity, trace: Trace, steps: pd.DataFrame, self_times: Callable[[], pd.DataFrame]
) -> Totals:
    """What was spent in ranges in some steps.

    Parameters
    ----------
    activity : Activity
    trace : Trace
    steps : DataFrame
        Rows of `p.steps.frame`: those that averages use.
    self_times : callable
        Gives ops of the host with their self time, as `ops.host_self_times` does.
    """
    if not len(steps) or not (len(activity.ranges) or activity.framework.has_scopes):
        return nothing()
    host_ops = self_times()
    of_host = Steps.of(steps, activity.hosts)
    parts = []
    outside, places = {"host": np.nan, "device": np.nan}, nothing().places
    if len(activity.ranges):
        found = Instances(activity, trace, of_host)
        rows, ops, outside = _of_instances(found, host_ops)
        places = _places(found, host_ops)
        parts.append((rows, ops))
    if (scoped := _of_scopes(activity, of_host, host_ops)) is not None:
        parts.append(scoped)
    if not parts:
        return nothing()
    rows = pd.concat([part for part, _ in parts], ignore_index=True)
    ops = pd.concat([part for _, part in parts], ignore_index=True)
    return _largest(
        Totals(
            rows, ops, places, len(steps), float(steps["step_time_ms"].sum()) * _PS_PER_MS, outside
        )
    )


def _largest(found: Totals) -> Totals:
    """Without the paths that have the least time, where there are very many."""
    if len(found.rows) <= MOST:
        return found
    weight = found.rows[["host", "device"]].fillna(0.0).max(axis=1)
    # A path has at least the time of those in it, and stands before them.
    rows = found.rows.iloc[
        np.sort(np.argsort(-weight.to_numpy(), kind="stable")[:MOST])
    ].reset_index(drop=True)
    return replace(
        found,
        rows=rows,
        ops=found.ops[found.ops["path"].isin(set(rows["path"]))].reset_index(drop=True),
    )


def _of_instances(
    found: Instances, host_ops: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, float]]:
    activity, events = found.activity, found.trace.events
    path, above, keys = found.paths
    count = len(keys)
    host = found.steps.within(found.host, found.start, found.end)
    alone = np.maximum(nesting.self_times(found.parent, host), 0)
    sums = {
        "count": np.bincount(path, found.step >= 0, count),
        "host": np.bincount(path, host, count),
        "host_self": np.bincount(path, alone, count),
        **dict.fromkeys(
            ("sync", "device", "device_self", "kernels", "backward_host", "backward_device"),
            np.full(count, np.nan),
        ),
    }
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, path, found.start)
    pairs = [_ops_in(found, host_ops)]
    calls = activity.calls.frame()
    if len(calls):
        kinds = np.array([str(text) == "sync" for text in activity.texts.values], np.bool_)
        event = np.unique(
            calls["event"].to_numpy(np.int64)[kinds[calls["kind"].to_numpy(np.int64)]]
        )
        sums["sync"] = _summed(found, above, event, events.duration[event].astype(np.float64))
    outside = {"host": np.nan, "device": np.nan}
    root = (found.parent < 0) & (found.lane == found.main[found.host])
    inside = float(host[root].sum())
    with_ranges = np.unique(found.host)
    total = sum(float(found.steps.by_host[number].total()) for number in with_ranges.tolist())
    outside["host"] = max(total - inside, 0.0)
    launched = _launched(found)
    if launched is not None:
        row, length, op, kernel, _ = launched
        known = row >= 0
        at = path[row[known]]
        sums["device_self"] = np.bincount(at, length[known], count)
        sums["device"] = _handed_up(above, sums["device_self"])
        sums["kernels"] = _handed_up(above, np.bincount(at, kernel[known], count))
        outside["device"] = float(length[~known].sum())
        pairs.append(_Ops(at, np.ones(len(at), np.int64), op[known], length[known]))
    if (backward := _backward(found)) is not None:
        row, own, device = backward
        sums["backward_host"] = _handed_up(above, np.bincount(path[row], own, count))
        if launched is not None:
            sums["backward_device"] = _handed_up(above, np.bincount(path[row], device, count))
    thread, kind, names = (list(values) for values in zip(*keys, strict=True))
    host_time = np.asarray(sums["host"])
    rows = pd.DataFrame(
        {"thread": thread, "kind": kind, "path": names, "first": first.astype(np.float64), **sums}
    )
    # Ranges that were in no step that counts are no part of them.
    some = host_time > 0
    tops = _Ops.joined(pairs).largest(above)
    tops = tops.take(some[tops.at])
    return rows[some].reset_index(drop=True), tops.frame(keys, found.trace.names), outside


def _places(found: Instances, host_ops: pd.DataFrame) -> pd.DataFrame:
    """Where in ranges what advice speaks of is, as `Totals.places`."""
    activity, events = found.activity, found.trace.events
    path, above, keys = found.paths
    values: dict[str, tuple[Int64s, Floats]] = {}
    calls = activity.calls.frame()
    if len(calls):
        event, first = np.unique(calls["event"].to_numpy(np.int64), return_index=True)
        kinds = activity.texts.values[calls["kind"].to_numpy(np.int64)[first]]
        for what, wanted in _CALLS.items():
            made = event[np.isin(kinds, wanted)]
            values[what] = (
                found.at_in_steps(events.lane[made], events.start[made]),
                events.duration[made].astype(np.float64),
            )
    loads = host_ops[host_ops["dataset"].to_numpy(np.bool_)]
    for what, ops in (("input", loads), ("ops", host_ops)):
        row = found.at_in_steps(ops["lane"].to_numpy(np.int64), ops["start"].to_numpy(np.int64))
        values[what] = row, ops["own"].to_numpy(np.float64)
    if (launched := _launched(found)) is not None:
        row, length, _, _, target = launched
        collective = np.isin(target, activity.collectives.event)
        values["collectives"] = np.where(row >= 0, row, _OUTSIDE)[collective], length[collective]
    rows = _placed(keys, "other", *_unrecorded(found))
    for what, (row, length) in values.items():
        known = row >= 0
        sums = _handed_up(above, np.bincount(path[row[known]], length[known], len(keys)))
        rows += _placed(keys, what, sums, float(length[row != NOT_COUNTED].sum()))
    return pd.DataFrame(rows, columns=[*_KEYS, "what", "own"])


_CALLS = {
    "launch": ("launch", "graph"),
    "wait": ("sync",),
    "allocate": ("allocate",),
    "copy": ("copy", "copy H2D", "copy D2H"),
}
PLACES = (*_CALLS, "input", "ops", "collectives", "other")
"""What advice speaks of: calls of the host by kind, its waits for input, its ops, collectives of
devices, and time of no op or call.
"""
NOT_COUNTED, _OUTSIDE = -2, -1


def _placed(
    keys: list[tuple[str, str, str]], what: str, sums: Floats, total: float
) -> list[tuple[Any, ...]]:
    """Rows of `Totals.places` for one kind of time, and last the one of all of it."""
    rows = [(*keys[at], what, float(sums[at])) for at in np.flatnonzero(sums > 0).tolist()]
    return [*rows, ("", "", "", what, total)]


def _unrecorded(found: Instances) -> tuple[Floats, float]:
    """Time of the paths of the main threads in which nothing was recorded of the host or its
    devices, and all such time, in ps.
    """
    work = found.activity.work.frame()
    host, start, end = (work[column].to_numpy(np.int64) for column in ("host", "start", "end"))
    path, _, keys = found.paths
    sums, total = np.zeros(len(keys)), 0.0
    for number in np.unique(found.host).tolist():
        recorded = Intervals.union(start[host == number], end[host == number])
        unrecorded = found.steps.by_host[number].difference(recorded)
        rows = np.flatnonzero((found.host == number) & (found.lane == found.main[number]))
        total += float(unrecorded.total())
        np.add.at(sums, path[rows], unrecorded.covered_within(found.start[rows], found.end[rows]))
    return sums, total


def _handed_up(above: Int64s, values: npt.NDArray[Any]) -> Floats:
    """Values of paths, each with those of the paths in it."""
    return nesting.totals(above, values.astype(np.float64))


def _summed(found: Instances, above: Int64s, event: Int64s, values: Floats) -> Floats:
    """Values of events of threads, by path, each with those of the paths in it."""
    events = found.trace.events
    row = found.at(events.lane[event], events.start[event])
    used = (row >= 0) & (found.steps.number(found.host[row], events.start[event]) >= 0)
    return _handed_up(above, np.bincount(found.paths[0][row[used]], values[used], len(above)))


def _ops_in(found: Instances, host_ops: pd.DataFrame) -> _Ops:
    """Self time of ops of the host by the path that they ran in."""
    row = found.at_in_steps(
        host_ops["lane"].to_numpy(np.int64), host_ops["start"].to_numpy(np.int64)
    )
    used = np.flatnonzero(row >= 0)
    name = found.trace.events.name[host_ops["event"].to_numpy(np.int64)[used]]
    return _Ops(
        found.paths[0][row[used]],
        np.zeros(len(used), np.int64),
        name.astype(np.int64),
        host_ops["own"].to_numpy(np.float64)[used],
    )


def _launched(found: Instances) -> tuple[Int64s, Floats, Int64s, Flags, Int64s] | None:
    """Device work launched in steps: range, ps, op as a code of the trace's names (-1), whether it
    is a kernel, event; None without.

    The range is the innermost one of the thread that launched. A thread of autograd has none of its
    own: it works for the thread that called it, and its work is that of the range there.
    """
    activity, events = found.activity, found.trace.events
    launches = activity.launches.frame()
    launches = launches[launches["target"].to_numpy() >= 0]
    if not activity.has_device or not len(launches):
        return None
    event, target = launches["event"].to_numpy(np.int64), launches["target"].to_numpy(np.int64)
    target, first = np.unique(target, return_index=True)
    event, host = event[first], launches["host"].to_numpy(np.int64)[first]
    time = events.start[event]
    in_step = found.steps.number(host, time) >= 0
    # The ranges of a host tell nothing of the work of another.
    in_step &= np.isin(host, found.host)
    event, target, host, time = event[in_step], target[in_step], host[in_step], time[in_step]
    came = launches["came_of" if "came_of" in launches else "op"].to_numpy(np.int64)[first][in_step]
    lane = events.lane[event].astype(np.int64)
    row = found.at(lane, time)
    away = np.flatnonzero((row < 0) & np.isin(lane, _autograd_lanes(found)))
    row[away] = found.at(found.main[host[away]], time[away])
    op = np.where(came >= 0, events.name[np.maximum(came, 0)], -1)
    kernel = np.isin(target, activity.kernels.event)
    return row, events.duration[target].astype(np.float64), op.astype(np.int64), kernel, target


def _autograd_lanes(found: Instances) -> Int64s:
    """Threads of PyTorch's autograd that work for another: lanes without a range around a call of
    its engine.
    """
    ops, types = found.activity.host_ops.frame(), found.activity.types.codes
    if "autograd" not in types:
        return np.zeros(0, np.int64)
    lanes = np.unique(ops["lane"].to_numpy(np.int64)[ops["type"].to_numpy() == types["autograd"]])
    return np.setdiff1d(lanes, found.main)


def _backward(found: Instances) -> tuple[Int64s, Floats, Floats] | None:
    """Ops of the backward pass in steps: the range of their op of the forward pass, self time and
    device time in ps; None where unknown.
    """
    table = found.activity.torch_ops.frame()
    forward = table["forward"].to_numpy(np.int64) if len(table) else np.zeros(0, np.int64)
    back = np.flatnonzero(forward >= 0)
    if not len(back):
        return None
    start = table["start"].to_numpy(np.int64)
    back = back[found.steps.number(table["host"].to_numpy(np.int64)[back], start[back]) >= 0]
    lane = found.trace.events.lane[table["event"].to_numpy(np.int64)]
    row = found.at(lane[forward[back]], start[forward[back]])
    back, row = back[row >= 0], row[row >= 0]
    return (
        row,
        table["own"].to_numpy(np.float64)[back],
        table["device_own"].to_numpy(np.float64)[back],
    )


@dataclass(frozen=True)
class _Ops:
    """Time of ops in paths: a number of a path, a place in `_SIDES`, a code of the op's name, and
    ps.
    """

    at: Int64s
    side: Int64s
    op: Int64s
    own: Floats

    @classmethod
    def joined(cls, parts: Sequence[_Ops]) -> _Ops:
        """Several, one behind the other."""
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("at", "side", "op", "own")
            )
        )

    def take(self, rows: npt.NDArray[Any]) -> _Ops:
        """Some of them."""
        return _Ops(self.at[rows], self.side[rows], self.op[rows], self.own[rows])

    def summed(self) -> _Ops:
        """Each op of a path and side once."""
        first, code = unique_rows(self.at, self.side, self.op)
        return replace(
            self.take(first), own=np.bincount(code, self.own, len(first)).astype(np.float64)
        )

    def largest(self, above: Int64s) -> _Ops:
        """The ops with the most time on each side of each path, with the paths in it, most time
        first.
        """
        level = self.take(self.op >= 0).summed()
        parts = [level]
        while len(level.at):
            outer = above[level.at]
            level = replace(level, at=outer).take(outer >= 0).summed()
            parts.append(level)
        every = _Ops.joined(parts).summed()
        every = every.take(np.lexsort((-every.own, every.side, every.at)))
        begins = np.flatnonzero(
            np.append(True, (every.at[1:] != every.at[:-1]) | (every.side[1:] != every.side[:-1]))
        )
        place = (
            np.arange(len(every.at)) - np.repeat(begins, np.diff(np.append(begins, len(every.at))))
            if len(every.at)
            else every.at
        )
        return every.take((place < _TOP) & (every.own > 0))

    def frame(
        self, keys: Sequence[tuple[str, str, str]], names: Sequence[Any] | npt.NDArray[np.object_]
    ) -> pd.DataFrame:
        """As `Totals.ops`."""
        rows = [
            (*keys[at], _SIDES[side], str(names[op]), own)
            for at, side, op, own in zip(
                self.at.tolist(),
                self.side.tolist(),
                self.op.tolist(),
                self.own.tolist(),
                strict=True,
            )
        ]
        return pd.DataFrame(rows, columns=[*_KEYS, "side", "op", "own"])


_SIDES = ("host", "device")
_TOP = 3
"""Ops of a path that are kept: hosts that are added up have much the same."""


def _of_scopes(
    activity: Activity, steps: Steps, host_ops: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Self time of ops by the scopes in their names, and these ops; None where no op has any."""
    if not activity.framework.has_scopes:
        return None
    names: dict[tuple[str, bool], int] = {}
    tables = []
    host, device = (_SIDES.index(side) for side in ("host", "device"))
    for side, runs, parts in (
        (device, activity.device_ops, activity.op_parts),
        (host, activity.cpu_ops, activity.cpu_parts),
    ):
        if len(runs):
            tables.append(_runs(activity, steps, runs.frame(), parts.frame(), names, side))
    plain = host_ops[~host_ops["dataset"].to_numpy(np.bool_)]
    if activity.framework is not JAX and len(plain):
        tables.append(_runs(activity, steps, plain, OpParts.empty().frame(), names, host))
    if not tables:
        return None
    # Late, as most profiles have no scopes.
    from nbprof.analysis import scopes

    found: dict[int, Scope] = {}
    for compiled in (True, False):
        texts = [
            (text, code) for (text, is_compiled), code in names.items() if is_compiled == compiled
        ]
        some = scopes.of_ops([text for text, _ in texts], compiled=compiled)
        found |= {code: scope for (_, code), scope in zip(texts, some, strict=True)}
    rows = _joined(tables)
    rows = rows.take(
        np.array([bool(found[code].path) for code in range(len(names))] or [False], np.bool_)[
            rows.name
        ]
    )
    return (
        _scope_rows(activity, rows, [text for text, _ in names], found) if len(rows.name) else None
    )


@dataclass(frozen=True)
class _Runs:
    """Runs of ops: the name that states the scopes as a code, a place in `_SIDES`, self time (ps)
    and begin.
    """

    name: Int64s
    side: Int64s
    own: Floats
    start: Int64s

    def take(self, rows: npt.NDArray[Any]) -> _Runs:
        """Some of them."""
        return _Runs(self.name[rows], self.side[rows], self.own[rows], self.start[rows])


def _joined(parts: Sequence[_Runs]) -> _Runs:
    return _Runs(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("name", "side", "own", "start")
        )
    )


def _runs(
    activity: Activity,
    steps: Steps,
    ops: pd.DataFrame,
    parts: pd.DataFrame,
    names: dict[tuple[str, bool], int],
    side: int,
) -> _Runs:
    """Runs in steps of ops of a side; names that were not seen before are added to `names`."""
    start = ops["start"].to_numpy(np.int64)
    used = np.flatnonzero(steps.number(ops["host"].to_numpy(np.int64), start) >= 0)
    op = ops["op"].to_numpy(np.int64)[used]
    part = (
        ops["part"].to_numpy(np.int64)[used] if "part" in ops else np.full(len(used), -1, np.int64)
    )
    first, code = unique_rows(part, op)
    stated, compiled = parts["framework_op"].tolist(), parts["hlo"].tolist()
    texts = activity.ops.values
    numbers = np.zeros(len(first), np.int64)
    for at, (row, of_op) in enumerate(zip(part[first].tolist(), op[first].tolist(), strict=True)):
        is_compiled = 0 <= row < len(compiled) and bool(compiled[row])
        text = str((stated[row] if is_compiled else texts[of_op]) or "")
        numbers[at] = names.setdefault((text, is_compiled), len(names))
    own = ops["own"].to_numpy(np.float64)[used]
    return _Runs(numbers[code], np.full(len(used), side), own, start[used])


def _scope_rows(
    activity: Activity, runs: _Runs, names: list[str], found: dict[int, Scope]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    number: dict[tuple[str, ...], int] = {(): -1}
    above: list[int] = []
    of_name = np.full(len(names), -1, np.int64)
    # Prefixes first, so that each path stands behind the one around it.
    for code in np.unique(runs.name).tolist():
        path = found[code].path
        for length in range(1, len(path) + 1):
            if path[:length] not in number:
                number[path[:length]] = len(above)
                above.append(number[path[: length - 1]])
        of_name[code] = number[path]
    around, at = np.array(above, np.int64), of_name[runs.name]
    backward = np.array([found[code].backward for code in range(len(names))], np.bool_)[runs.name]
    columns: dict[str, Any] = dict.fromkeys(_SUMS, np.nan)
    for place, side in enumerate(_SIDES):
        rows = runs.side == place
        if not rows.any():
            continue
        forward, back = rows & ~backward, rows & backward
        columns[f"{side}_self"] = np.bincount(at[forward], runs.own[forward], len(above))
        columns[side] = _handed_up(around, columns[f"{side}_self"])
        columns[f"backward_{side}"] = _handed_up(
            around, np.bincount(at[back], runs.own[back], len(above))
        )
    # In the order of the forward pass, which is that of the program.
    first = np.full(len(above), np.inf)
    np.minimum.at(first, at, runs.start + np.where(backward, _LATER, 0.0))
    for level in reversed(nesting.levels(around.astype(np.int32))):
        inner = level[around[level] >= 0]
        np.minimum.at(first, around[inner], first[inner])
    kind = SCOPES[0] if activity.framework is JAX else SCOPES[1]
    keys = [(PROGRAM, kind, SEPARATOR.join(path)) for path in list(number)[1:]]
    texts, codes = np.unique(
        [name.rstrip(":").rpartition("/")[2] for name in names], return_inverse=True
    )
    tops = _Ops(at, runs.side, codes[runs.name].astype(np.int64), runs.own).largest(around)
    rows_of = pd.DataFrame(keys, columns=list(_KEYS)).assign(first=first, **columns)
    return rows_of, tops.frame(keys, texts.tolist())


_LATER = 1e18
"""Behind all moments of a trace, in ps."""


def added(parts: Sequence[Totals]) -> Totals:
    """The totals of several hosts together; NaN where none knows."""
    known = [part for part in parts if len(part.rows)]
    if not known:
        return nothing()
    rows = pd.concat([part.rows for part in known], ignore_index=True)
    grouped = rows.groupby(list(_KEYS), sort=False)
    sums = grouped[list(_SUMS)].sum(min_count=1).join(grouped["first"].min()).reset_index()
    ops = (
        pd.concat([part.ops for part in known], ignore_index=True)
        .groupby([*_KEYS, "side", "op"], sort=False)["own"]
        .sum()
        .reset_index()
    )
    outside = {}
    for key in ("host", "device"):
        values = [part.outside[key] for part in known if not np.isnan(part.outside[key])]
        outside[key] = float(sum(values)) if values else np.nan
    # Steps of hosts without ranges are steps without these.
    steps, step_ps = sum(part.steps for part in parts), sum(part.step_ps for part in parts)
    places = (
        pd.concat([part.places for part in known], ignore_index=True)
        .groupby([*_KEYS, "what"], sort=False)["own"]
        .sum()
        .reset_index()
    )
    return _largest(Totals(sums[[*_KEYS, "first", *_SUMS]], ops, places, steps, step_ps, outside))


def frame(found: Totals) -> pd.DataFrame:
    """The columns of `p.ranges.frame`: a tree of ranges in the order in which they first began."""
    if not len(found.rows) or not found.steps:
        return frames.empty("ranges.frame")
    rows = found.rows.iloc[_preorder(found.rows)].reset_index(drop=True)
    per_step = {name: rows[name].to_numpy(np.float64) / found.steps for name in _SUMS}
    parts = [str(path).split(SEPARATOR) for path in rows["path"].tolist()]
    tops = found.ops.sort_values("own", ascending=False, kind="stable").drop_duplicates(
        [*_KEYS, "side"]
    )
    top = {
        key: (op, own)
        for *key_, op, own in tops[[*_KEYS, "side", "op", "own"]].itertuples(index=False)
        for key in [tuple(key_)]
    }
    keys = list(rows[list(_KEYS)].itertuples(index=False, name=None))
    columns: dict[str, Any] = {
        "range": ["/".join(names) for names in parts],
        "name": [names[-1] for names in parts],
        "depth": [len(names) - 1 for names in parts],
        "kind": rows["kind"],
        "thread": rows["thread"],
        "calls_per_step": per_step["count"],
        "percent": 100 * rows["host"].to_numpy(np.float64) / found.step_ps
        if found.step_ps
        else np.nan,
        "kernels_per_step": per_step["kernels"],
    }
    for name, sums in _TIMES.items():
        columns[name] = per_step[sums] / _PS_PER_MS
    for side in ("host", "device"):
        picked = [top.get((*key, side)) for key in keys]
        columns[f"top_{side}_op"] = [one[0] if one is not None else None for one in picked]
        times = [one[1] if one is not None else np.nan for one in picked]
        columns[f"top_{side}_op_ms_per_step"] = np.array(times) / found.steps / _PS_PER_MS
    return frames.shaped("ranges.frame", pd.DataFrame(columns))


_TIMES = {
    "host_ms_per_step": "host",
    "host_self_ms_per_step": "host_self",
    "wait_ms_per_step": "sync",
    "device_ms_per_step": "device",
    "device_self_ms_per_step": "device_self",
    "backward_host_ms_per_step": "backward_host",
    "backward_device_ms_per_step": "backward_device",
}
_PLACES = {MAIN: 0, OTHER: 1, PROGRAM: 2}


def _preorder(rows: pd.DataFrame) -> list[int]:
    """Rows so that each stands below the path around it, those of one path by their first begin;
    the main thread first.
    """
    keys = list(rows[list(_KEYS)].itertuples(index=False, name=None))
    # A range may lie in one of another kind: NVTX in record_function.
    place = {(thread, path): at for at, (thread, _, path) in enumerate(keys)}
    children: dict[int, list[int]] = {}
    first = rows["first"].tolist()
    for at, (thread, _, path) in enumerate(keys):
        above = path.rpartition(SEPARATOR)[0]
        children.setdefault(place.get((thread, above), -1) if above else -1, []).append(at)
    result: list[int] = []
    open_ = sorted(
        children.get(-1, []), key=lambda at: (_PLACES[keys[at][0]], first[at]), reverse=True
    )
    while open_:
        at = open_.pop()
        result.append(at)
        open_ += sorted(children.get(at, []), key=lambda inner: first[inner], reverse=True)
    return result


def outside_ms(found: Totals) -> dict[str, float]:
    """Time per step that is in no range, in ms: `host_ms_per_step` of the thread that marks steps,
    `device_ms_per_step`.
    """
    return {
        f"{key}_ms_per_step": value / found.steps / _PS_PER_MS if found.steps else np.nan
        for key, value in found.outside.items()
    }
