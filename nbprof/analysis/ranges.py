"""Time by range that the program names: on the host, on devices for what was launched in it, and of its part of the backward pass.

Ranges are instances on threads; a row is a path of names, as ranges lie in each other. Figures are those of the steps that averages use.
What a path has per step is summed up here as totals, which add up over hosts, and divided at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.sweep import covered, covered_before
from nbprof.core import nesting, stretches
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s, Trace
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.scopes import Scope

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MAIN, OTHER, PROGRAM = "main", "other", "ops"
"""Where ranges are: on the thread that marks the steps, on other threads, or in the names of ops."""
MOST = 500
"""Rows of a frame; of more the ones with the most time."""
SCOPES = "named_scope", "name_scope"
SEPARATOR = "\x1f"
_DIGITS = re.compile(r"\d+")
_SUMS = ("count", "host", "host_self", "sync", "device", "device_self", "kernels", "backward_host", "backward_device")
_KEYS = ("thread", "kind", "path")
_PS_PER_MS = 1e9


@dataclass(frozen=True)
class Totals:
    """What a host, or several, spent in ranges in the steps that count.

    Attributes
    ----------
    rows : DataFrame
        `thread kind path` (names, outermost first, parted by `SEPARATOR`), `first` (ps), and sums: instances, kernels, and times in ps; NaN
        where not known.
    ops : DataFrame
        `thread kind path side op own`: self time of each op within a path, in ps; `side` is host or device.
    places : DataFrame
        `thread kind path what own`: time in ps of what advice speaks of (`PLACES`), with the paths in it; path "" is that of all.
    steps : int
        Steps that were summed up.
    step_ps : float
        Their time.
    outside : dict
        Time in ps of no range: `host` of the thread that marks steps, `device` of what was launched; NaN where not known.
    """

    rows: pd.DataFrame
    ops: pd.DataFrame
    places: pd.DataFrame
    steps: int
    step_ps: float
    outside: dict[str, float]


def nothing() -> Totals:
    """The totals of a recording without ranges."""
    rows = pd.DataFrame({**dict.fromkeys(_KEYS, pd.Series(dtype=object)), **dict.fromkeys(("first", *_SUMS), pd.Series(dtype=float))})
    ops = pd.DataFrame({**dict.fromkeys((*_KEYS, "side", "op"), pd.Series(dtype=object)), "own": pd.Series(dtype=float)})
    places = ops.drop(columns=["side", "op"]).assign(what=pd.Series(dtype=object))
    return Totals(rows, ops, places, 0, 0.0, {"host": np.nan, "device": np.nan})


@dataclass
class Steps:
    """The steps that count, as stretches of each host."""

    low: list[Int64s]
    high: list[Int64s]

    @classmethod
    def of(cls, steps: pd.DataFrame, hosts: Sequence[str]) -> Steps:
        """Out of rows of `p.steps.frame`."""
        begin = np.round(steps["start_ms"].to_numpy(np.float64) * _PS_PER_MS).astype(np.int64)
        end = begin + np.round(steps["step_time_ms"].to_numpy(np.float64) * _PS_PER_MS).astype(np.int64)
        low, high = [], []
        for name in hosts:
            rows = (steps["host"] == name).to_numpy(np.bool_)
            first, last = covered(begin[rows], end[rows])
            low.append(first)
            high.append(last)
        return cls(low, high)

    def number(self, host: npt.NDArray[np.integer[Any]], time: Int64s) -> Int64s:
        """Which step of its host each moment lies in, -1."""
        result = np.full(len(time), -1, np.int64)
        for number, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            rows = np.flatnonzero(host == number) if len(self.low) > 1 else np.arange(len(time))
            if len(low) and len(rows):
                at = np.searchsorted(low, time[rows], side="right") - 1
                result[rows] = np.where((at >= 0) & (time[rows] < high[np.maximum(at, 0)]), at, -1)
        return result

    def within(self, host: npt.NDArray[np.integer[Any]], start: Int64s, end: Int64s) -> Int64s:
        """How much of each span lies in steps of its host, ps."""
        result = np.zeros(len(start), np.int64)
        for number, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            rows = np.flatnonzero(host == number) if len(self.low) > 1 else np.arange(len(start))
            result[rows] = covered_before(low, high, end[rows]) - covered_before(low, high, start[rows])
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
        table = activity.ranges
        self.activity = activity
        self.trace = trace
        self.steps = steps
        # By lane, start and descending end, as parents stand before what lies in them.
        order = np.lexsort((-table["end"].to_numpy(), table["start"].to_numpy(), table["lane"].to_numpy()))
        place = np.empty(len(order) + 1, np.int64)
        place[order], place[-1] = np.arange(len(order)), -1
        self.host, self.lane, self.start, self.end, parent, self.name, self.kind = (
            table[column].to_numpy(np.int64)[order] for column in ("host", "lane", "start", "end", "parent", "name", "kind")
        )
        self.parent = place[parent].astype(np.int32)
        self.step = steps.number(self.host, self.start)

    def at(self, lane: npt.NDArray[np.integer[Any]], time: Int64s) -> Int64s:
        """The innermost range around moments of lanes, -1."""
        result = np.full(len(time), -1, np.int64)
        edges = np.flatnonzero(np.append(True, self.lane[1:] != self.lane[:-1]))
        for first, last in zip(edges.tolist(), np.append(edges[1:], len(self.lane)).tolist(), strict=True):
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
        return pd.Index(self.activity.hosts).get_indexer(pd.Index(self.trace.lanes["host"].astype(str))).astype(np.int64)

    @cached_property
    def main(self) -> Int64s:
        """By host, the lane whose ranges divide the step: that of the marks of steps, else the one with the most time in ranges; -1."""
        result = np.full(len(self.activity.hosts), -1, np.int64)
        marks = self.activity.markers
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
        """By code of a name, the name; names that differ in numbers alone, each in a step of its own, are one: `log N`."""
        names = self.activity.texts.values.copy()
        used = np.unique(self.name)
        first, _ = unique_rows(self.name, self.host, self.step)
        times = np.bincount(self.name[first][self.step[first] >= 0], minlength=len(names))
        hosts = np.bincount(self.name[unique_rows(self.name, self.host)[0]], minlength=len(names))
        families: dict[str, list[int]] = {}
        for code in used.tolist():
            if times[code] <= hosts[code] and (text := _DIGITS.sub("N", str(names[code]))) != names[code]:
                families.setdefault(text, []).append(code)
        for text, codes in families.items():
            rows = np.flatnonzero(np.isin(self.name, codes) & (self.step >= 0))
            different = len(unique_rows(self.host[rows], self.step[rows])[0])
            if len(codes) > 1 and different == len(unique_rows(self.host[rows], self.step[rows], self.name[rows])[0]):
                names[codes] = text
        return names

    @cached_property
    def paths(self) -> tuple[Int64s, Int64s, list[tuple[str, str, str]]]:
        """The path of each range, the path around each path (-1), and what each is: thread, kind and names."""
        texts, names = pd.factorize(self.folded[self.name])
        kinds = self.activity.texts.values
        main = self.lane == self.main[self.host]
        path = np.full(len(self.name), -1, np.int64)
        above: list[Int64s] = []
        keys: list[tuple[str, str, str]] = []
        for level in nesting.levels(self.parent):
            outer = np.where(self.parent[level] >= 0, path[self.parent[level]], -1)
            first, code = unique_rows(outer, texts[level], self.kind[level], main[level].astype(np.int64))
            path[level] = len(keys) + code
            above.append(outer[first])
            for row, around in zip(level[first].tolist(), outer[first].tolist(), strict=True):
                name = str(names[texts[row]]).replace(SEPARATOR, " ")
                under = f"{keys[around][2]}{SEPARATOR}{name}" if around >= 0 else name
                keys.append((MAIN if main[row] else OTHER, str(kinds[self.kind[row]]), under))
        return path, np.concatenate(above) if above else np.zeros(0, np.int64), keys


def totals(activity: Activity, trace: Trace, steps: pd.DataFrame, self_times: Callable[[], pd.DataFrame]) -> Totals:
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
    if not len(steps) or not (len(activity.ranges) or activity.framework in _WITH_SCOPES):
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
    return _largest(Totals(rows, ops, places, len(steps), float(steps["step_time_ms"].sum()) * _PS_PER_MS, outside))


def _largest(found: Totals) -> Totals:
    """Without the paths that have the least time, where there are very many."""
    if len(found.rows) <= MOST:
        return found
    weight = found.rows[["host", "device"]].fillna(0.0).max(axis=1)
    # A path has at least the time of those in it, and stands before them.
    rows = found.rows.iloc[np.sort(np.argsort(-weight.to_numpy(), kind="stable")[:MOST])].reset_index(drop=True)
    return replace(found, rows=rows, ops=found.ops[found.ops["path"].isin(set(rows["path"]))].reset_index(drop=True))


def _of_instances(found: Instances, host_ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, float]]:
    activity, events = found.activity, found.trace.events
    path, above, keys = found.paths
    count = len(keys)
    host = found.steps.within(found.host, found.start, found.end)
    alone = np.maximum(nesting.self_times(found.parent, host), 0)
    sums = {
        "count": np.bincount(path, found.step >= 0, count),
        "host": np.bincount(path, host, count),
        "host_self": np.bincount(path, alone, count),
        **dict.fromkeys(("sync", "device", "device_self", "kernels", "backward_host", "backward_device"), np.full(count, np.nan)),
    }
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, path, found.start)
    pairs = [_ops_in(found, host_ops)]
    calls = activity.calls
    if len(calls):
        kinds = np.array([str(text) == "sync" for text in activity.texts.values], np.bool_)
        event = np.unique(calls["event"].to_numpy(np.int64)[kinds[calls["kind"].to_numpy(np.int64)]])
        sums["sync"] = _summed(found, above, event, events.duration[event].astype(np.float64))
    outside = {"host": np.nan, "device": np.nan}
    root = (found.parent < 0) & (found.lane == found.main[found.host])
    inside = float(host[root].sum())
    with_ranges = np.unique(found.host)
    total = sum(float((found.steps.high[number] - found.steps.low[number]).sum()) for number in with_ranges.tolist())
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
        pairs.append(pd.DataFrame({"at": at, "side": "device", "op": op[known], "own": length[known]}))
    if (backward := _backward(found)) is not None:
        row, own, device = backward
        sums["backward_host"] = _handed_up(above, np.bincount(path[row], own, count))
        if launched is not None:
            sums["backward_device"] = _handed_up(above, np.bincount(path[row], device, count))
    thread, kind, names = (list(values) for values in zip(*keys, strict=True))
    rows = pd.DataFrame({"thread": thread, "kind": kind, "path": names, "first": first.astype(np.float64), **sums})
    # Ranges that were in no step that counts are no part of them.
    some = rows["host"].to_numpy() > 0
    return rows[some].reset_index(drop=True), _top_ops(pairs, above, rows, some, found.trace.names), outside


def _places(found: Instances, host_ops: pd.DataFrame) -> pd.DataFrame:
    """Where in ranges what advice speaks of is, as `Totals.places`."""
    activity, events = found.activity, found.trace.events
    path, above, keys = found.paths
    values: dict[str, tuple[Int64s, Floats]] = {}
    calls = activity.calls
    if len(calls):
        event, first = np.unique(calls["event"].to_numpy(np.int64), return_index=True)
        kinds = activity.texts.values[calls["kind"].to_numpy(np.int64)[first]]
        for what, wanted in _CALLS.items():
            rows = event[np.isin(kinds, wanted)]
            values[what] = found.at_in_steps(events.lane[rows], events.start[rows]), events.duration[rows].astype(np.float64)
    loads = host_ops[host_ops["dataset"].to_numpy(np.bool_)]
    for what, rows in (("input", loads), ("ops", host_ops)):
        row = found.at_in_steps(rows["lane"].to_numpy(np.int64), rows["start"].to_numpy(np.int64))
        values[what] = row, rows["own"].to_numpy(np.float64)
    if (launched := _launched(found)) is not None:
        row, length, _, _, target = launched
        collective = np.isin(target, activity.collectives["event"].to_numpy(np.int64))
        values["collectives"] = np.where(row >= 0, row, _OUTSIDE)[collective], length[collective]
    tables = []
    for what, (row, length) in values.items():
        known = row >= 0
        sums = _handed_up(above, np.bincount(path[row[known]], length[known], len(keys)))
        tables.append(_placed(keys, what, sums, float(length[row != NOT_COUNTED].sum())))
    tables.append(_placed(keys, "other", *_unrecorded(found)))
    return pd.concat(tables, ignore_index=True)


_CALLS = {"launch": ("launch", "graph"), "wait": ("sync",), "allocate": ("allocate",), "copy": ("copy", "copy H2D", "copy D2H")}
PLACES = (*_CALLS, "input", "ops", "collectives", "other")
"""What advice speaks of: calls of the host by kind, its waits for input, its ops, collectives of devices, and time of no op or call."""
NOT_COUNTED, _OUTSIDE = -2, -1


def _placed(keys: list[tuple[str, str, str]], what: str, sums: Floats, total: float) -> pd.DataFrame:
    some = np.flatnonzero(sums > 0)
    rows = [(*keys[at], what, float(sums[at])) for at in some.tolist()]
    return pd.DataFrame([*rows, ("", "", "", what, total)], columns=[*_KEYS, "what", "own"])


def _unrecorded(found: Instances) -> tuple[Floats, float]:
    """Time of the paths of the main threads in which nothing was recorded of the host or its devices, and all such time, in ps."""
    work = found.activity.work
    host, start, end = (work[column].to_numpy(np.int64) for column in ("host", "start", "end"))
    path, _, keys = found.paths
    sums, total = np.zeros(len(keys)), 0.0
    for number in np.unique(found.host).tolist():
        low, high = covered(start[host == number], end[host == number])
        most = np.iinfo(np.int64).max // 2
        gap, stop = _both((np.append(-most, high), np.append(low, most)), (found.steps.low[number], found.steps.high[number]))
        rows = np.flatnonzero((found.host == number) & (found.lane == found.main[number]))
        total += float((stop - gap).sum())
        inside = covered_before(gap, stop, found.end[rows]) - covered_before(gap, stop, found.start[rows])
        np.add.at(sums, path[rows], inside)
    return sums, total


def _both(first: tuple[Int64s, Int64s], second: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    """The stretches that lie in those of both, of which each are in order and apart."""
    spans = stretches.inside(pd.DataFrame({"start": second[0], "end": second[1]}), *first)
    low, high = spans["start"].to_numpy(np.int64), spans["end"].to_numpy(np.int64)
    return low[high > low], high[high > low]


def _handed_up(above: Int64s, values: Floats) -> Floats:
    """Values of paths, each with those of the paths in it."""
    result = values.astype(np.float64)
    for level in reversed(nesting.levels(above.astype(np.int32))):
        inner = level[above[level] >= 0]
        np.add.at(result, above[inner], result[inner])
    return result


def _summed(found: Instances, above: Int64s, event: Int64s, values: Floats) -> Floats:
    """Values of events of threads, by path, each with those of the paths in it."""
    events = found.trace.events
    row = found.at(events.lane[event], events.start[event])
    used = (row >= 0) & (found.steps.number(found.host[row], events.start[event]) >= 0)
    return _handed_up(above, np.bincount(found.paths[0][row[used]], values[used], len(above)))


def _ops_in(found: Instances, host_ops: pd.DataFrame) -> pd.DataFrame:
    """Self time of ops of the host by the path that they ran in: `at side op own`; `op` is a code of the trace's names."""
    lane, start = host_ops["lane"].to_numpy(np.int64), host_ops["start"].to_numpy(np.int64)
    row = found.at(lane, start)
    used = np.flatnonzero(row >= 0)
    used = used[found.steps.number(found.host[row[used]], start[used]) >= 0]
    name = found.trace.events.name[host_ops["event"].to_numpy(np.int64)[used]]
    own = host_ops["own"].to_numpy(np.float64)[used]
    return pd.DataFrame({"at": found.paths[0][row[used]], "side": "host", "op": name.astype(np.int64), "own": own})


def _launched(found: Instances) -> tuple[Int64s, Floats, Int64s, Flags, Int64s] | None:
    """Device work launched in steps: range, ps, op as a code of the trace's names (-1), whether it is a kernel, event; None without.

    The range is the innermost one of the thread that launched. A thread of autograd has none of its own: it works for the thread that
    called it, and its work is that of the range there.
    """
    activity, events = found.activity, found.trace.events
    launches = activity.launches
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
    kernel = np.isin(target, activity.kernels["event"].to_numpy(np.int64))
    return row, events.duration[target].astype(np.float64), op.astype(np.int64), kernel, target


def _autograd_lanes(found: Instances) -> Int64s:
    """Threads of PyTorch's autograd that work for another: lanes without a range around a call of its engine."""
    ops, types = found.activity.host_ops, found.activity.types.codes
    if "autograd" not in types:
        return np.zeros(0, np.int64)
    lanes = np.unique(ops["lane"].to_numpy(np.int64)[ops["type"].to_numpy() == types["autograd"]])
    return np.setdiff1d(lanes, found.main)


def _backward(found: Instances) -> tuple[Int64s, Floats, Floats] | None:
    """Ops of the backward pass in steps: the range of their op of the forward pass, self time and device time in ps; None where unknown."""
    table = found.activity.torch_ops
    forward = table["forward"].to_numpy(np.int64) if len(table) else np.zeros(0, np.int64)
    back = np.flatnonzero(forward >= 0)
    if not len(back):
        return None
    start = table["start"].to_numpy(np.int64)
    back = back[found.steps.number(table["host"].to_numpy(np.int64)[back], start[back]) >= 0]
    lane = found.trace.events.lane[table["event"].to_numpy(np.int64)]
    row = found.at(lane[forward[back]], start[forward[back]])
    back, row = back[row >= 0], row[row >= 0]
    return row, table["own"].to_numpy(np.float64)[back], table["device_own"].to_numpy(np.float64)[back]


def _top_ops(pairs: list[pd.DataFrame], above: Int64s, rows: pd.DataFrame, some: Flags, names: npt.NDArray[np.object_]) -> pd.DataFrame:
    """The op with the most time on each side of each path, with the paths in it, as `Totals.ops`."""
    table = pd.concat(pairs, ignore_index=True)
    table = table[table["op"] >= 0].groupby(["at", "side", "op"], sort=False)["own"].sum().reset_index()
    level = table
    while len(level):
        outer = above[level["at"].to_numpy(np.int64)]
        level = level.assign(at=outer)[outer >= 0]
        level = level.groupby(["at", "side", "op"], sort=False)["own"].sum().reset_index()
        table = pd.concat([table, level], ignore_index=True)
    table = table.groupby(["at", "side", "op"], sort=False)["own"].sum().reset_index()
    table = table.sort_values("own", ascending=False, kind="stable").groupby(["at", "side"], sort=False).head(_TOP)
    table = table[some[table["at"].to_numpy(np.int64)] & (table["own"].to_numpy() > 0)]
    keys = rows.iloc[table["at"].to_numpy(np.int64)][list(_KEYS)].reset_index(drop=True)
    texts = np.array([str(name) for name in names[table["op"].to_numpy(np.int64)]], object)
    return keys.assign(side=table["side"].to_numpy(), op=texts, own=table["own"].to_numpy(np.float64))


_TOP = 3
"""Ops of a path that are kept: hosts that are added up have much the same."""


def _of_scopes(activity: Activity, steps: Steps, host_ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Self time of ops by the scopes in their names, and these ops; None where no op has any."""
    if activity.framework not in _WITH_SCOPES:
        return None
    names: dict[tuple[str, bool], int] = {}
    tables = []
    sides = [("device", activity.device_ops, activity.op_parts), ("host", activity.cpu_ops, activity.cpu_parts)]
    for side, runs, parts in sides:
        if len(runs):
            tables.append(_runs_by_name(activity, steps, runs, parts, names).assign(side=side))
    plain = host_ops[~host_ops["dataset"].to_numpy(np.bool_)]
    if activity.framework != "JAX" and len(plain):
        tables.append(_runs_by_name(activity, steps, plain.assign(part=-1), activity.op_parts.head(0), names).assign(side="host"))
    if not tables:
        return None
    # Late, as most profiles have no scopes.
    from nbprof.analysis import scopes

    found: dict[int, Scope] = {}
    for compiled in (True, False):
        texts = [(text, code) for (text, is_compiled), code in names.items() if is_compiled == compiled]
        some = scopes.of_ops([text for text, _ in texts], compiled=compiled)
        found |= {code: scope for (_, code), scope in zip(texts, some, strict=True) if scope.path}
    table = pd.concat(tables, ignore_index=True)
    table = table[table["name"].isin(list(found)) & (table["own"] > 0)]
    return _scope_rows(activity, table, names, found) if len(table) else None


_WITH_SCOPES = ("JAX", "TensorFlow", "")


def _runs_by_name(
    activity: Activity, steps: Steps, runs: pd.DataFrame, parts: pd.DataFrame, names: dict[tuple[str, bool], int]
) -> pd.DataFrame:
    """Self time in steps by the name that states the scopes of an op: `name own count first`; `name` is a number of `names`."""
    start = runs["start"].to_numpy(np.int64)
    used = np.flatnonzero(steps.number(runs["host"].to_numpy(np.int64), start) >= 0)
    part, op = (runs[column].to_numpy(np.int64)[used] for column in ("part", "op"))
    first, code = unique_rows(part, op)
    stated, compiled = parts["framework_op"].tolist(), parts["hlo"].tolist()
    texts = activity.ops.values
    numbers = np.empty(len(first), np.int64)
    for at, (row, of_op) in enumerate(zip(part[first].tolist(), op[first].tolist(), strict=True)):
        is_compiled = row >= 0 and bool(compiled[row])
        text = str((stated[row] if is_compiled else texts[of_op]) or "")
        numbers[at] = names.setdefault((text, is_compiled), len(names))
    out = pd.DataFrame({"name": numbers[code], "own": runs["own"].to_numpy(np.float64)[used], "first": start[used]})
    return out.groupby("name", sort=False).agg(own=("own", "sum"), count=("own", "size"), first=("first", "min")).reset_index()


_LATER = 1e18
"""Behind all moments of a trace, in ps."""


def _scope_rows(
    activity: Activity, table: pd.DataFrame, names: dict[tuple[str, bool], int], found: dict[int, Scope]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    kind = SCOPES[0] if activity.framework == "JAX" else SCOPES[1]
    on_host, on_device = (bool((table["side"] == side).any()) for side in ("host", "device"))
    zero = dict.fromkeys(("first", *_SUMS), np.nan)
    known = {f"{back}{side}": 0.0 for side, there in (("host", on_host), ("device", on_device)) for back in ("", "backward_") if there}
    known |= {f"{side}_self": 0.0 for side, there in (("host", on_host), ("device", on_device)) if there}
    sums: dict[tuple[str, ...], dict[str, float]] = {}
    text_of = {code: text for (text, _), code in names.items()}
    ops: dict[tuple[tuple[str, ...], str, str], float] = {}
    for row in table.to_dict("records"):
        scope = found[row["name"]]
        for length in range(1, len(scope.path) + 1):
            path = scope.path[:length]
            values = sums.setdefault(path, {**zero, **known, "first": np.inf})
            # The order of the forward pass, which is that of the program.
            begun = row["first"] + (_LATER if scope.backward else 0.0)
            values["first"] = min(values["first"], begun)
            values[f"backward_{row['side']}" if scope.backward else row["side"]] += row["own"]
            if length == len(scope.path) and not scope.backward:
                values[f"{row['side']}_self"] += row["own"]
            key = path, row["side"], text_of[row["name"]].rstrip(":").rpartition("/")[2]
            ops[key] = ops.get(key, 0.0) + row["own"]
    order = sorted(sums, key=len)
    rows = pd.DataFrame([{"thread": PROGRAM, "kind": kind, "path": SEPARATOR.join(path), **sums[path]} for path in order])
    tops = [{"path": SEPARATOR.join(path), "side": side, "op": op, "own": own} for (path, side, op), own in ops.items()]
    listed = pd.DataFrame(tops).assign(thread=PROGRAM, kind=kind).sort_values("own", ascending=False, kind="stable")
    return rows, listed.groupby(["path", "side"], sort=False).head(_TOP).reset_index(drop=True)


def added(parts: Sequence[Totals]) -> Totals:
    """The totals of several hosts together; NaN where none knows."""
    known = [part for part in parts if len(part.rows)]
    if not known:
        return nothing()
    rows = pd.concat([part.rows for part in known], ignore_index=True)
    grouped = rows.groupby(list(_KEYS), sort=False)
    sums = grouped[list(_SUMS)].sum(min_count=1).join(grouped["first"].min()).reset_index()
    ops = pd.concat([part.ops for part in known], ignore_index=True).groupby([*_KEYS, "side", "op"], sort=False)["own"].sum().reset_index()
    outside = {}
    for key in ("host", "device"):
        values = [part.outside[key] for part in known if not np.isnan(part.outside[key])]
        outside[key] = float(sum(values)) if values else np.nan
    # Steps of hosts without ranges are steps without these.
    steps, step_ps = sum(part.steps for part in parts), sum(part.step_ps for part in parts)
    places = pd.concat([part.places for part in known], ignore_index=True).groupby([*_KEYS, "what"], sort=False)["own"].sum().reset_index()
    return _largest(Totals(sums[[*_KEYS, "first", *_SUMS]], ops, places, steps, step_ps, outside))


def frame(found: Totals) -> pd.DataFrame:
    """The columns of `p.ranges.frame`: a tree of ranges in the order in which they first began."""
    if not len(found.rows) or not found.steps:
        return frames.empty("ranges.frame")
    rows = found.rows.iloc[_preorder(found.rows)].reset_index(drop=True)
    per_step = {name: rows[name].to_numpy(np.float64) / found.steps for name in _SUMS}
    parts = [str(path).split(SEPARATOR) for path in rows["path"].tolist()]
    tops = found.ops.sort_values("own", ascending=False, kind="stable").drop_duplicates([*_KEYS, "side"])
    top = {key: (op, own) for *key_, op, own in tops[[*_KEYS, "side", "op", "own"]].itertuples(index=False) for key in [tuple(key_)]}
    keys = list(rows[list(_KEYS)].itertuples(index=False, name=None))
    columns: dict[str, Any] = {
        "range": ["/".join(names) for names in parts],
        "name": [names[-1] for names in parts],
        "depth": [len(names) - 1 for names in parts],
        "kind": rows["kind"],
        "thread": rows["thread"],
        "calls_per_step": per_step["count"],
        "percent": 100 * rows["host"].to_numpy(np.float64) / found.step_ps if found.step_ps else np.nan,
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
    """Rows so that each stands below the path around it, those of one path by their first begin; the main thread first."""
    keys = list(rows[list(_KEYS)].itertuples(index=False, name=None))
    # A range may lie in one of another kind: NVTX in record_function.
    place = {(thread, path): at for at, (thread, _, path) in enumerate(keys)}
    children: dict[int, list[int]] = {}
    first = rows["first"].tolist()
    for at, (thread, _, path) in enumerate(keys):
        above = path.rpartition(SEPARATOR)[0]
        children.setdefault(place.get((thread, above), -1) if above else -1, []).append(at)
    result: list[int] = []
    open_ = sorted(children.get(-1, []), key=lambda at: (_PLACES[keys[at][0]], first[at]), reverse=True)
    while open_:
        at = open_.pop()
        result.append(at)
        open_ += sorted(children.get(at, []), key=lambda inner: first[inner], reverse=True)
    return result


def outside_ms(found: Totals) -> dict[str, float]:
    """Time per step that is in no range, in ms: `host_ms_per_step` of the thread that marks steps, `device_ms_per_step`."""
    return {f"{key}_ms_per_step": value / found.steps / _PS_PER_MS if found.steps else np.nan for key, value in found.outside.items()}
