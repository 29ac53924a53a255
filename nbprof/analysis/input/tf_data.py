"""tf.data bottleneck analysis: which iterator of which pipeline limits the input.

The calls of a pipeline's root are followed down through nesting on a thread, and through the
elements that iterators on other threads made ahead. From TensorFlow Profiler's tf.data bottleneck
analysis, which XProf 2.24 has but no longer shows:

* A pipeline is a root iterator (a name of two parts, `Iterator::Root`), its calls and all that they
  reach. It is a device pipeline when `Iterator::Prefetch::Generator` takes from its root, which
  only hands on what a host pipeline made; else it is a host pipeline.
* A call blocks when its span overlaps that of the blocking call above it; the root's calls block.
  What a producer made before it was asked for blocks nothing.
* The bottleneck of a call of the root is the blocking iterator with the largest self time in it.
* A call over 50 µs is slow; a program whose slowest host pipeline has one is limited by its input.

Two things differ. Self time of a call is its duration without the time in which any call directly
below it ran; TensorFlow Profiler takes away the overlap with each of them, which counts an instant
twice where several ran at once, and can go below zero. And what a call reaches in two ways counts
once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.advice import tf_data as tf_data_advice
from nbprof.analysis.advice.tf_data import SLOW_CALL_US
from nbprof.core import nesting
from nbprof.core.intervals import union_by_group
from nbprof.core.runs import expand, run_starts
from nbprof.core.trace import Int64s
from nbprof.schema import frames as schema

if TYPE_CHECKING:
    from nbprof.analysis.input.buffers import Buffered

SLOW_CALL_PS = int(SLOW_CALL_US * 1e6)
MAX_DEPTH = 100
# Of each pipeline the iterators of this many of its slowest calls are at hand; those of the others
# are made when they are asked for.
SLOWEST = 10

PIPELINES = schema.names("tf_data.pipelines")
NODES = schema.names("tf_data.nodes")
CALLS = schema.names("tf_data.calls")
_BUFFERED = ("buffered_elements", "buffered_bytes")

Flags = npt.NDArray[np.bool_]


@dataclass
class Calls:
    """The calls of all pipelines, and each iterator's part in each call.

    Attributes
    ----------
    nodes : one row an iterator: `host id parent_id parent name depth`; `parent` is a row of this
    table or -1
    pipelines : one row per pipeline: `host label root`; `root` is a row of `nodes`
    calls : one row per call of a root, by pipeline, the longest first: `pipeline rank start
    duration bottleneck latency`, times in ps
    parts : one row per call and iterator, by call: `call node total own count first blocking`
    """

    nodes: pd.DataFrame
    pipelines: pd.DataFrame
    calls: pd.DataFrame
    parts: pd.DataFrame


def frames(
    activity: Activity,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Pipelines, slowest first; their iterators, all calls together; their calls; and the iterators
    of the slowest calls of each.

    The first three are `p.tf_data.pipelines`, `.nodes` and `.calls`; `p.tf_data.call` selects from
    the last.
    """
    if not len(activity.iterators):
        nodes = pd.DataFrame(columns=NODES)
        listed = schema.empty("tf_data.calls")
        return pd.DataFrame(columns=PIPELINES), nodes, listed, nodes.assign(rank=listed["rank"])
    tables = calls(activity)
    pipelines = len(tables.pipelines)
    pipeline = tables.calls["pipeline"].to_numpy(np.int64)
    columns = _columns(tables.parts)
    merged = _together(columns, pipeline)
    begin = np.searchsorted(merged["pipeline"], np.arange(pipelines + 1)).tolist()
    graph = _Graphs(activity, tables)
    graphs = [
        graph(merged, slice(begin[number], begin[number + 1]), number)
        for number in range(pipelines)
    ]
    rank = tables.calls["rank"].to_numpy(np.int64)
    slow = np.flatnonzero(rank < SLOWEST)
    first, stop = (np.searchsorted(columns["call"], edge) for edge in (slow, slow + 1))
    slowest = [
        graph(columns, slice(low, high), number)
        for low, high, number in zip(
            first.tolist(), stop.tolist(), pipeline[slow].tolist(), strict=True
        )
    ]
    ranked = _frame(slowest)[NODES].assign(rank=np.repeat(rank[slow], stop - first))
    listed = _listed_calls(activity, tables)
    return _summary(activity, tables, graphs), _frame(graphs)[NODES], listed, ranked


def _hosts(activity: Activity, pipelines: pd.DataFrame) -> npt.NDArray[np.object_]:
    """The name of the host of each pipeline."""
    if not len(pipelines):
        return np.zeros(0, object)
    names = [activity.hosts[host] for host in pipelines["host"].tolist()]
    return np.array(names, object)


def _listed_calls(activity: Activity, tables: Calls) -> pd.DataFrame:
    """The calls as `p.tf_data.calls`."""
    calls = tables.calls
    pipeline = calls["pipeline"].to_numpy(np.int64)
    bottleneck = calls["bottleneck"].to_numpy(np.int64)
    path = tables.nodes["name"].to_numpy(object)[bottleneck]
    return pd.DataFrame(
        {
            "host": _hosts(activity, tables.pipelines)[pipeline],
            "pipeline": tables.pipelines["label"].to_numpy(object)[pipeline],
            "rank": calls["rank"],
            "start_ms": calls["start"] / 1e9,
            "duration_us": calls["duration"] / 1e6,
            "bottleneck": [name.rpartition("::")[2] for name in path],
            "bottleneck_path": path,
            "bottleneck_us": calls["latency"] / 1e6,
        },
        columns=CALLS,
    )


def _summary(activity: Activity, tables: Calls, graphs: list[dict[str, Any]]) -> pd.DataFrame:
    """The pipelines as `p.tf_data.pipelines`; `graphs` are those of all their calls."""
    calls, nodes = tables.calls, tables.nodes
    path, ident = nodes["name"].to_numpy(object), nodes["id"].to_numpy(np.int64)
    bottleneck, duration, latency = (
        calls[name].to_numpy(np.int64) for name in ("bottleneck", "duration", "latency")
    )
    hosts = _hosts(activity, tables.pipelines)
    pipeline = calls["pipeline"].to_numpy(np.int64)
    begin = np.searchsorted(pipeline, np.arange(len(hosts) + 1)).tolist()
    rows = []
    for number, label in enumerate(tables.pipelines["label"].tolist()):
        first, stop = begin[number], begin[number + 1]
        time = duration[first:stop]
        name = str(path[bottleneck[first]])
        long_names = graphs[number]["long_name"]
        of_arrays = any(re.search(tf_data_advice.OF_ARRAYS, text) for text in long_names)
        params = activity.iterator_params.get(int(ident[bottleneck[first]]), {})
        text, fix = tf_data_advice.advice(
            name,
            float(time[0]) / 1e6,
            params,
            of_arrays,
            tf_data_advice.over_generator(name, long_names),
        )
        rows.append(
            {
                "host": hosts[number],
                "pipeline": label,
                "calls": len(time),
                "slow_calls": int((time > SLOW_CALL_PS).sum()),
                "mean_us": float(time.mean()) / 1e6,
                "min_us": float(time[-1]) / 1e6,
                "max_us": float(time[0]) / 1e6,
                "bottleneck": name.rpartition("::")[2],
                "advice": text,
                "bottleneck_path": name,
                "bottleneck_us": float(latency[first]) / 1e6,
                "fix": fix,
            }
        )
    return pd.DataFrame(rows, columns=PIPELINES).sort_values(
        "max_us", ascending=False, kind="stable", ignore_index=True
    )


def one_call(activity: Activity, tables: Calls, call: int) -> pd.DataFrame:
    """The iterators that one call reached, as in `p.tf_data.nodes`; `call` is a row of
    `tables.calls`.
    """
    columns = _columns(tables.parts)
    first, stop = np.searchsorted(columns["call"], [call, call + 1]).tolist()
    pipeline = int(tables.calls["pipeline"].to_numpy(np.int64)[call])
    graph = _Graphs(activity, tables)
    return _frame([graph(columns, slice(first, stop), pipeline)])


def _columns(parts: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    return {str(name): column.to_numpy() for name, column in parts.items()}


def _together(parts: dict[str, npt.NDArray[Any]], pipeline: Int64s) -> dict[str, npt.NDArray[Any]]:
    """The parts of all calls of a pipeline as those of one, by pipeline and node; `pipeline` is
    that of each call.
    """
    pipeline_of, node = pipeline[parts["call"]], parts["node"]
    order = np.lexsort((node, pipeline_of))
    pipeline_of, node = pipeline_of[order], node[order]
    begin = run_starts(pipeline_of, node)
    columns = {
        "total": np.add,
        "own": np.add,
        "count": np.add,
        "first": np.minimum,
        "blocking": np.logical_or,
    }
    sums = {name: how.reduceat(parts[name][order], begin) for name, how in columns.items()}
    return {"pipeline": pipeline_of[begin], "node": node[begin], **sums}


def _frame(graphs: list[dict[str, Any]]) -> pd.DataFrame:
    """Graphs one below the other: one frame of many costs much less than many frames."""
    if not graphs:
        return pd.DataFrame(columns=NODES)
    columns = {
        name: list(chain.from_iterable(graph[name] for graph in graphs)) for name in graphs[0]
    }
    typed = {
        "parent": pd.Series(columns["parent"], dtype=object),
    }
    for name in _BUFFERED:
        typed[name] = pd.Series(columns[name], dtype="Int64")
    return pd.DataFrame({**columns, **typed})


class _Graphs:
    """Builds graphs of iterators with their times, the columns of `p.tf_data.nodes`, from the rows
    of a graph in a table of parts.
    """

    def __init__(self, activity: Activity, tables: Calls) -> None:
        nodes, pipelines = tables.nodes, tables.pipelines
        self._depth, self._parent, self._ident = (
            nodes[name].to_numpy(np.int64) for name in ("depth", "parent", "id")
        )
        self._name = nodes["name"].to_numpy(object)
        self._root = pipelines["root"].to_numpy(np.int64)
        self._label = pipelines["label"].tolist()
        self._hosts = [activity.hosts[number] for number in pipelines["host"].tolist()]
        self._params = activity.iterator_params

    def __call__(
        self, parts: dict[str, npt.NDArray[Any]], rows: slice, pipeline: int
    ) -> dict[str, Any]:
        node, first = parts["node"][rows], parts["first"][rows]
        order = np.lexsort((first, self._depth[node]))
        node = node[order]
        total, self_ps, blocking = (
            parts[name][rows][order] for name in ("total", "own", "blocking")
        )
        root = int(self._root[pipeline])
        time = dict(zip(node.tolist(), total.tolist(), strict=True))
        parent = {
            n: p
            for n, p in zip(node.tolist(), self._parent[node].tolist(), strict=True)
            if n != root and p in time
        }
        # Of equal ones that nearest to the root, then that with the smallest id.
        bottleneck = int(
            node[np.lexsort((self._ident[node], self._depth[node], -self_ps, ~blocking))[0]]
        )
        critical = _path(bottleneck, parent) | _heavier(bottleneck, time, parent)
        name, ident = self._name[node].tolist(), self._ident[node].tolist()
        held = self._buffered(ident, name)
        return {
            "iterator": [n.rpartition("::")[2] for n in name],
            "long_name": name,
            "parent": [str(self._ident[parent[n]]) if n in parent else None for n in node.tolist()],
            "start_ms": (first[order] / 1e9).tolist(),
            "total_ms": (total / 1e9).tolist(),
            "self_ms": (self_ps / 1e9).tolist(),
            "calls": parts["count"][rows][order].tolist(),
            "critical": [n in critical for n in node.tolist()],
            "bottleneck": (node == bottleneck).tolist(),
            "pipeline": [self._label[pipeline]] * len(node),
            "host": [self._hosts[pipeline]] * len(node),
            "note": [
                tf_data_advice.note(self._params.get(i, {}), n)
                for i, n in zip(ident, name, strict=True)
            ],
            "id": [str(i) for i in ident],
            "blocking": blocking.tolist(),
            "buffered_elements": [each.elements for each in held],
            "buffered_bytes": [each.bytes for each in held],
        }

    def _buffered(self, ids: list[int], long_names: list[str]) -> list[Buffered]:
        from nbprof.analysis.input.buffers import buffered

        return buffered(ids, long_names, self._params)


def _path(node: int, parent: dict[int, int]) -> set[int]:
    path = {node}
    while node in parent and parent[node] not in path:
        node = parent[node]
        path.add(node)
    return path


def _heavier(node: int, total: dict[int, int], parent: dict[int, int]) -> set[int]:
    """The path below the bottleneck: at each level the child with the most time, down to a
    source.
    """
    path: set[int] = set()
    while True:
        below = [n for n, above in parent.items() if above == node and n not in path and n != node]
        if not below:
            return path
        node = max(below, key=lambda n: total[n])
        path.add(node)


def calls(activity: Activity) -> Calls:
    """All calls of all pipelines, and each iterator's part in each."""
    rows = activity.iterators.frame()
    event = rows["event"].to_numpy(np.int64)
    start, end = rows["start"].to_numpy(np.int64), rows["end"].to_numpy(np.int64)
    nodes, node = _nodes(activity, rows)
    up, down = _pairs(rows, event, start, end, activity.iterator_links)
    low, high = np.maximum(start[up], start[down]), np.minimum(end[up], end[down])
    self_ps = end - start - union_by_group(up, low, high).totals(len(event))
    pipelines = _pipelines(nodes)
    pipeline_of = np.full(len(nodes), -1, np.int64)
    pipeline_of[pipelines["root"].to_numpy(np.int64)] = np.arange(len(pipelines))
    roots = np.flatnonzero(pipeline_of[node] >= 0)
    # By pipeline, the longest call first.
    roots = roots[
        np.lexsort(
            (
                start[roots],
                start[roots] - end[roots],
                pipeline_of[node[roots]],
            )
        )
    ]
    pipeline = pipeline_of[node[roots]]
    first = np.searchsorted(pipeline, pipeline)
    call, row = _reached(up, down, roots, len(event))
    overlap = high > low
    blocking_call, blocking_row = _reached(up[overlap], down[overlap], roots, len(event))
    blocks = _among(call * len(event) + row, blocking_call * len(event) + blocking_row)
    parts = _parts(
        call, node[row], end[row] - start[row], self_ps[row], start[row], blocks, len(nodes)
    )
    bottleneck, latency = _bottlenecks(parts, nodes, len(roots))
    table = pd.DataFrame(
        {
            "pipeline": pipeline,
            "rank": np.arange(len(roots)) - first,
            "start": start[roots],
            "duration": end[roots] - start[roots],
            "bottleneck": bottleneck,
            "latency": latency,
        }
    )
    return Calls(nodes, pipelines, table, parts)


def _nodes(activity: Activity, rows: pd.DataFrame) -> tuple[pd.DataFrame, Int64s]:
    """The distinct iterators of each host, and which one each call is of; a number that two hosts
    use stands for two iterators.
    """
    host, ident = rows["host"].to_numpy(np.int64), rows["iterator"].to_numpy(np.int64)
    code, _ = pd.factorize(ident)
    node, seen = pd.factorize(code * (len(activity.hosts) + 1) + host)
    count = len(seen)
    first = np.full(count, len(rows), np.int64)
    np.minimum.at(first, node, np.arange(len(rows)))
    names = activity.ops.values
    name = names[rows["name"].to_numpy(np.int64)[first]] if count else np.zeros(0, object)
    table = pd.DataFrame(
        {
            "host": host[first],
            "id": ident[first],
            "parent_id": rows["parent"].to_numpy(np.int64)[first],
            "name": name,
            "parent": -1,
        }
    )
    order_of = {
        pair: i
        for i, pair in enumerate(zip(table["host"].tolist(), table["id"].tolist(), strict=True))
    }
    table["parent"] = [
        order_of.get(pair, -1)
        for pair in zip(table["host"].tolist(), table["parent_id"].tolist(), strict=True)
    ]
    table["depth"] = [str(n).count("::") for n in name]
    return table, np.asarray(node, np.int64)


def _pipelines(nodes: pd.DataFrame) -> pd.DataFrame:
    """The roots in the order of their hosts and ids, with the names of their pipelines."""
    roots = nodes[nodes["depth"] == 1].sort_values(["host", "id"], kind="stable")
    takes = nodes["name"].astype(str).str.startswith("Iterator::Prefetch::Generator")
    device = set(nodes.loc[takes, "parent"].tolist())
    counts: dict[tuple[int, str], int] = {}
    labels = []
    for root, host in zip(roots.index.tolist(), roots["host"].tolist(), strict=True):
        side = "Device" if root in device else "Host"
        number = counts.get((host, side), 0)
        labels.append(f"{side}:{number}")
        counts[host, side] = number + 1
    return pd.DataFrame(
        {
            "host": roots["host"].to_numpy(),
            "label": np.array(labels, object),
            "root": roots.index.to_numpy(np.int64),
        }
    )


def _pairs(
    rows: pd.DataFrame, event: Int64s, start: Int64s, end: Int64s, links: npt.NDArray[np.int64]
) -> tuple[Int64s, Int64s]:
    """Pairs of calls, as rows, of which the second is directly below the first: by nesting on the
    thread, and by elements produced on other threads; each pair once.
    """
    above = nesting.parents(rows["lane"].to_numpy(np.int32), start, end - start)
    inner = np.flatnonzero(above >= 0)
    up, down = above[inner].astype(np.int64), inner
    if len(links):
        position = np.searchsorted(event, links)
        position[position == len(event)] = 0
        position = position[(event[position] == links).all(axis=1) & (links[:, 0] != links[:, 1])]
        up, down = np.concatenate([up, position[:, 0]]), np.concatenate([down, position[:, 1]])
        # Sorting is faster here than the hashing of np.unique.
        key = np.sort(up * len(event) + down)
        key = key[run_starts(key)]
        up, down = key // len(event), key % len(event)
    return up, down


def _among(values: Int64s, members: Int64s) -> Flags:
    """Flags of the values that are members."""
    if not len(members):
        return np.zeros(len(values), np.bool_)
    members = np.sort(members)
    position = np.searchsorted(members, values)
    position[position == len(members)] = 0
    return np.asarray(members[position] == values, np.bool_)


def _reached(up: Int64s, down: Int64s, starts: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The calls that each of some calls reaches over at most `MAX_DEPTH` links, itself included:
    pairs (index in `starts`, row), each once.
    """
    order = np.argsort(up, kind="stable")
    child = down[order]
    many = np.bincount(up, minlength=count)
    first = np.cumsum(many) - many
    above = np.bincount(down, minlength=count)
    # In a forest that hangs below the starts nothing is met twice.
    forest = not len(down) or (above.max() <= 1 and not above[starts].any())
    call, row = np.arange(len(starts)), starts
    calls, rows = [call], [row]
    seen = np.sort(call * count + row)
    for _ in range(MAX_DEPTH):
        above_row, position = expand(first[row], many[row])
        if not len(position):
            break
        call, row = call[above_row], child[position]
        if not forest:
            key = np.setdiff1d(call * count + row, seen)
            seen = np.union1d(seen, key)
            call, row = key // count, key % count
        calls.append(call)
        rows.append(row)
    return np.concatenate(calls), np.concatenate(rows)


def _parts(
    call: Int64s,
    node: Int64s,
    total: Int64s,
    self_ps: Int64s,
    start: Int64s,
    blocking: Flags,
    nodes: int,
) -> pd.DataFrame:
    """The runs of each iterator in each call together."""
    key = call * max(nodes, 1) + node
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = run_starts(key)
    if not len(key):
        return pd.DataFrame(
            {c: np.zeros(0, np.int64) for c in ("call", "node", "total", "own", "count", "first")}
            | {"blocking": np.zeros(0, bool)}
        )
    return pd.DataFrame(
        {
            "call": key[first] // nodes,
            "node": key[first] % nodes,
            "total": np.add.reduceat(total[order], first),
            "own": np.add.reduceat(self_ps[order], first),
            "count": np.diff(np.append(first, len(key))),
            "first": np.minimum.reduceat(start[order], first),
            "blocking": np.logical_or.reduceat(blocking[order], first),
        }
    )


def _bottlenecks(parts: pd.DataFrame, nodes: pd.DataFrame, count: int) -> tuple[Int64s, Int64s]:
    """By call the iterator that is its bottleneck, and its self time in the call."""
    blocking_parts = parts[parts["blocking"].to_numpy(np.bool_)]
    node = blocking_parts["node"].to_numpy(np.int64)
    depth, ident = nodes["depth"].to_numpy(np.int64)[node], nodes["id"].to_numpy(np.int64)[node]
    call, self_ps = (
        blocking_parts["call"].to_numpy(np.int64),
        blocking_parts["own"].to_numpy(np.int64),
    )
    order = np.lexsort((ident, depth, -self_ps, call))
    # Each call reaches its own root, which blocks, so that each has a first.
    first = order[np.searchsorted(call[order], np.arange(count))] if count else order[:0]
    return node[first], self_ps[first]
