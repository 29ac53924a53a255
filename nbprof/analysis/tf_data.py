"""tf.data bottleneck analysis: which iterator of which pipeline limits the input.

The calls of a pipeline's root are followed down through nesting, and through the elements that iterators on other threads made ahead.
Self time of a call is its duration less the overlap with its children; a child blocks when it runs within a blocking call.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nbprof.activity import Activity

SLOW_CALL_PS = 50_000_000
MAX_DEPTH = 100
_PARALLEL = ("Map", "Interleave")
_ASYNC = (
    "Prefetch",
    "ParallelInterleave",
    "ParallelMap",
    "ParseExample",
    "MapAndBatch",
    "DataService",
    "LegacyParallelInterleave",
    "ParallelBatch",
)
_SLOW_SOURCES = (
    "TFRecord",
    "SSTable",
    "RecordIO",
    "TextLine",
    "LMDB",
    "ExternalDataset",
    "FixedLengthRecordV2",
    "FixedLengthRecord",
    "FromTensor",
    "TensorSlice",
    "Generator",
)


@dataclass
class _Stat:
    duration: int = 0
    self_time: int = 0
    calls: int = 0
    first: int = 2**62
    blocking: bool = False


@dataclass
class _Pipeline:
    root: int
    calls: list[tuple[int, dict[int, _Stat]]] = field(default_factory=list)


def frames(activity: Activity) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Pipelines, slowest first, and their iterators: `p.tf_data.pipelines` and `p.tf_data.nodes`.

    Node times are those of all calls together; `critical` marks the path of largest self times from the root down, `bottleneck`
    the blocking iterator with the largest self time.
    """
    pipelines: list[dict[str, object]] = []
    nodes: list[dict[str, object]] = []
    for host, name in enumerate(activity.hosts):
        rows = activity.iterators[activity.iterators["host"] == host]
        if len(rows):
            _one_host(activity, name, rows, pipelines, nodes)
    columns = ["host", "pipeline", "calls", "slow_calls", "mean_us", "min_us", "max_us", "bottleneck", "advice"]
    table = pd.DataFrame(pipelines, columns=columns).sort_values("max_us", ascending=False, kind="stable", ignore_index=True)
    wanted = [
        "iterator",
        "long_name",
        "parent",
        "start_ms",
        "total_ms",
        "self_ms",
        "calls",
        "critical",
        "bottleneck",
        "pipeline",
        "host",
        "note",
        "id",
    ]
    return table, pd.DataFrame(nodes, columns=wanted)


def _one_host(
    activity: Activity,
    host: str,
    rows: pd.DataFrame,
    pipelines: list[dict[str, object]],
    nodes: list[dict[str, object]],
) -> None:
    names = activity.ops.values
    event_ids = rows["event"].tolist()
    iterator = dict(zip(event_ids, rows["iterator"].tolist(), strict=True))
    span = dict(zip(event_ids, zip(rows["start"].tolist(), rows["end"].tolist(), strict=True), strict=True))
    long_name = {i: str(names[c]) for i, c in zip(rows["iterator"].tolist(), rows["name"].tolist(), strict=True)}
    parent = dict(zip(rows["iterator"].tolist(), rows["parent"].tolist(), strict=True))
    children = _children(rows, activity.iterator_links, set(event_ids))
    roots = sorted(i for i, n in long_name.items() if n.count("::") == 1)
    counts = {"Host": 0, "Device": 0}
    for root in roots:
        device = any(parent[i] == root and n.startswith("Iterator::Prefetch::Generator") for i, n in long_name.items())
        side = "Device" if device else "Host"
        label = f"{side}:{counts[side]}"
        counts[side] += 1
        pipeline = _Pipeline(root)
        for event in event_ids:
            if iterator[event] == root:
                stats: dict[int, _Stat] = {}
                _walk(event, True, span[event], stats, iterator, span, children, 0)
                pipeline.calls.append((event, stats))
        _report(activity, host, label, pipeline, span, long_name, parent, pipelines, nodes)


def _children(rows: pd.DataFrame, links: list[tuple[int, int]], known: set[int]) -> dict[int, list[int]]:
    """Iterator calls below each iterator call, by nesting on the thread and by the elements made on other threads."""
    out: dict[int, list[int]] = {}
    events = rows["event"].tolist()
    end = rows["end"].tolist()
    lane = rows["lane"].tolist()
    stack: list[int] = []
    # Events of one lane follow each other sorted by start, so a stack over them finds the enclosing call.
    for i, event in enumerate(events):
        while stack and (lane[stack[-1]] != lane[i] or end[stack[-1]] < end[i]):
            stack.pop()
        if stack:
            out.setdefault(events[stack[-1]], []).append(event)
        stack.append(i)
    position = np.array(events, np.int64)
    for taker, made in links:
        # The consuming event lies inside an iterator call: the last one that began before it on its lane.
        at = int(np.searchsorted(position, taker)) - 1
        if at >= 0 and made in known:
            out.setdefault(int(position[at]), []).append(made)
    return out


def _walk(
    event: int,
    blocking: bool,
    above: tuple[int, int],
    stats: dict[int, _Stat],
    iterator: dict[int, int],
    span: dict[int, tuple[int, int]],
    children: dict[int, list[int]],
    depth: int,
) -> None:
    begin, end = span[event]
    overlap = min(end, above[1]) - max(begin, above[0])
    blocking = blocking and overlap > 0
    inner = 0
    if depth < MAX_DEPTH:
        for child in children.get(event, ()):
            a, b = span[child]
            inner += max(0, min(b, end) - max(a, begin))
            _walk(child, blocking, (begin, end), stats, iterator, span, children, depth + 1)
    stat = stats.setdefault(iterator[event], _Stat())
    stat.duration += end - begin
    stat.self_time += end - begin - inner
    stat.calls += 1
    stat.first = min(stat.first, begin)
    stat.blocking = stat.blocking or blocking


def _report(
    activity: Activity,
    host: str,
    label: str,
    pipeline: _Pipeline,
    span: dict[int, tuple[int, int]],
    long_name: dict[int, str],
    parent: dict[int, int],
    pipelines: list[dict[str, object]],
    nodes: list[dict[str, object]],
) -> None:
    durations = np.array([span[e][1] - span[e][0] for e, _ in pipeline.calls], np.int64)
    merged: dict[int, _Stat] = {}
    for _, stats in pipeline.calls:
        for ident, stat in stats.items():
            into = merged.setdefault(ident, _Stat())
            into.duration += stat.duration
            into.self_time += stat.self_time
            into.calls += stat.calls
            into.first = min(into.first, stat.first)
            into.blocking = into.blocking or stat.blocking
    blocking = [i for i, s in merged.items() if s.blocking]
    bottleneck = max(blocking, key=lambda i: merged[i].self_time) if blocking else pipeline.root
    critical = _path(bottleneck, pipeline.root, parent) | _heavier(bottleneck, merged, parent)
    pipelines.append(
        {
            "host": host,
            "pipeline": label,
            "calls": len(durations),
            "slow_calls": int((durations > SLOW_CALL_PS).sum()),
            "mean_us": float(durations.mean()) / 1e6,
            "min_us": float(durations.min()) / 1e6,
            "max_us": float(durations.max()) / 1e6,
            "bottleneck": long_name[bottleneck].rpartition("::")[2],
            "advice": advice(
                long_name[bottleneck],
                float(durations.max()) / 1e6,
                _note(activity.iterator_params.get(bottleneck, {}), long_name[bottleneck]),
            ),
        }
    )
    for ident in sorted(merged, key=lambda i: (long_name[i].count("::"), merged[i].first)):
        stat = merged[ident]
        above = parent.get(ident)
        nodes.append(
            {
                "iterator": long_name[ident].rpartition("::")[2],
                "long_name": long_name[ident],
                "parent": str(above) if above in merged and ident != pipeline.root else None,
                "start_ms": stat.first / 1e9,
                "total_ms": stat.duration / 1e9,
                "self_ms": stat.self_time / 1e9,
                "calls": stat.calls,
                "critical": ident in critical,
                "bottleneck": ident == bottleneck,
                "pipeline": label,
                "host": host,
                "note": _note(activity.iterator_params.get(ident, {}), long_name[ident]),
                "id": str(ident),
            }
        )


def _path(at: int, root: int, parent: dict[int, int]) -> set[int]:
    out = {at}
    while at != root and parent.get(at) in parent and parent[at] not in out:
        at = parent[at]
        out.add(at)
    return out


def _heavier(at: int, stats: dict[int, _Stat], parent: dict[int, int]) -> set[int]:
    """Below the bottleneck the path follows the child with the most time, down to a source."""
    out: set[int] = set()
    while True:
        below = [i for i in stats if parent.get(i) == at and i not in out and i != at]
        if not below:
            return out
        at = max(below, key=lambda i: stats[i].duration)
        out.add(at)


def _note(params: dict[str, object], long_name: str) -> str:
    texts = []
    kind = long_name.rpartition("::")[2]
    if "parallelism" in params:
        count = params["parallelism"]
        texts.append("1 thread" if count == 1 else f"{count} threads")
    elif kind in _PARALLEL:
        texts.append("1 thread")
    if "batch_size" in params:
        texts.append(f"batch {params['batch_size']}")
    if "buffer_size" in params:
        texts.append(f"buffer {params['buffer_size']}")
    return ", ".join(texts)


def advice(long_name: str, max_us: float, note: str = "") -> str:
    """What helps a pipeline with this bottleneck, by the type of the iterator; `note` is what its node says of its threads."""
    kind = long_name.rpartition("::")[2].partition("[")[0]
    base = kind.removesuffix("V2").removesuffix("V3").removesuffix("V4")
    head = f"The slowest call took **{max_us:,.1f} µs**"
    if max_us * 1e6 <= SLOW_CALL_PS:
        return f"{head}; calls up to 50 µs are no bottleneck."
    head += f", most of it in **{kind}**."
    if base in _SLOW_SOURCES:
        return f"{head} Keep the data close, shard it and read in parallel with interleave; avoid Python generators."
    if base in ("DataService",):
        return f"{head} Add workers to the tf.data service."
    if base in _PARALLEL or (base in _ASYNC and note.startswith("1 thread")):
        return f"{head} It runs on one thread: set num_parallel_calls=tf.data.AUTOTUNE."
    if base in ("Filter", "Batch", "Unbatch"):
        return f"{head} It runs on one thread: move it, vectorise it, or put the work into a parallel map."
    if base in _ASYNC:
        return f"{head} Raise its parallelism, make its function cheaper, or end the pipeline with prefetch so that it overlaps."
    if base == "Shuffle":
        return f"{head} A smaller shuffle buffer fills faster; shuffle file names or indices instead of decoded elements."
    return f"{head} See the tf.data performance guide for this iterator."
