"""Input time: kinds of work, the tf.data graph, the input ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import SERVING
from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.input import input_pipeline
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.tools.common import (
    by_keras,
    by_tensorflow,
    by_torch,
    figure,
    fix_lines,
    has_device,
    percent_figure,
    unit_of,
    unknown,
)
from nbprof.tools.input.loaders import loader_pipelines
from nbprof.tools.input.parts import Input, InputCategory, Pipeline, PipelineNode, TfDataCall
from nbprof.tools.parts import Empty, Figure, Table, no_table
from nbprof.tools.steps import serving
from nbprof.tools.tables import floats, hidden, longest, table

if TYPE_CHECKING:
    from nbprof.run.run import Run

_COLUMNS = (
    "op",
    "category",
    "occurrences",
    "total_ms",
    "total_percent",
    "self_ms",
    "self_percent",
    "us_per_call",
)
MOST_NODES = 400
MOST_PIPELINES = 64
MOST_CALLS = 5
MOST_LISTED = 500
"""Calls of each pipeline in the table of calls, the longest."""


_LEAST_PERCENT = 0.5
"""The largest share of a step from which on a range with one decimal is worth stating."""


_KEYS = ["host", "pipeline"]
_OF_PIPELINES = (
    "host",
    "pipeline",
    "calls",
    "slow_calls",
    "mean_us",
    "min_us",
    "max_us",
    "bottleneck",
    "bottleneck_us",
)
_OF_CALLS = ("host", "pipeline", "start_ms", "duration_us", "bottleneck")


def payload(run: Run) -> Input:
    """Kinds of input work, pipelines, and input ops."""
    ops = run.input_ops
    torch = by_torch(run)
    total = float(np.nansum(floats(ops["self_ms"])))
    per_step = None
    if len(run.steps) and len(ops) and not _evaluates(run):
        per_step = total / len(run.steps)
    categories = _categories(run)
    share = _input_share(run)
    listed = _listed(ops, torch)
    return Input(
        empty=_empty(run) if ops.empty and run.tf_data.pipelines.empty else None,
        total_ms=total,
        per_step_ms=per_step,
        categories=categories,
        missing=_missing(run, categories),
        statement=share.statement,
        next_step=share.next_step,
        share=share.figures,
        pipelines=pipelines(run),
        pipeline_table=_pipeline_table(run),
        call_table=_call_table(run),
        loaders=loader_pipelines(run),
        transforms=_of_workers(run.input_transforms, "input_pipeline.transforms"),
        workers=_of_workers(run.input_workers, "input_pipeline.workers"),
        ops=hidden(listed, *longest(ops, run.longest_calls, ("host", "input"))),
        bottleneck=_bottleneck(run),
        noun="op" if torch else "iterator",
        serving=serving.payload(run) if _serves(run) else None,
    )


def _evaluates(run: Run) -> bool:
    """True if batches were also made for evaluations, which are not steps: then the input work of a
    step is unknown.
    """
    if run.capture is None:
        return False
    return any(boundary["kind"] == "evaluation" for boundary in run.capture.boundaries)


def _serves(run: Run) -> bool:
    """True if steps are iterations of an inference engine."""
    return SERVING in run.stated["traits"]


def _listed(ops: pd.DataFrame, torch: bool) -> Table:
    """The ops as a table; iterators are those of tf.data."""
    if not torch:
        return table(_with_cost(ops, _CATEGORIES), "input_pipeline.frame", _COLUMNS)
    listed = table(_with_cost(ops, _TORCH_CATEGORIES), "input_pipeline.frame", _COLUMNS)
    listed.columns[0] = replace(listed.columns[0], label="Op", help="Input op.")
    return listed


def nothing() -> Input:
    """The part without input."""
    return Input(
        empty=None,
        total_ms=0.0,
        per_step_ms=None,
        categories=[],
        missing=[],
        statement="",
        next_step="",
        share=[],
        pipelines=[],
        ops=no_table(),
        bottleneck=np.zeros(0, np.uint8),
    )


def _empty(run: Run) -> Empty:
    if _serves(run):
        return Empty(title="No input pipeline in this run", text=run.missing["input"])
    if plain := unknown(run, "input", "No input ops in this run"):
        return plain
    if by_keras(run) and not by_tensorflow(run):
        return _NO_KERAS_INPUT
    if by_torch(run):
        return _NO_TORCH_INPUT
    if by_tensorflow(run):
        unit = unit_of(run)
        reader = "recording reads" if unit.is_recording else f"recorded {unit.plural} read"
        return Empty(
            title="No input ops in this run",
            text=(
                f"The {reader} no tf.data pipeline. A tf.data.Dataset shows each of its stages"
                " here."
            ),
            code=(
                "ds = tf.data.Dataset.from_tensor_slices((x,"
                " y)).batch(64).prefetch(tf.data.AUTOTUNE)\nmodel.fit(ds)"
            ),
        )
    return Empty(
        title="No input ops in this run",
        text="The profile has no events of a data loader or an input pipeline.",
    )


_NO_KERAS_INPUT = Empty(
    title="No input work in this run",
    text=(
        "During the recording, nothing was copied to a device, and no work of an input pipeline was"
        " recorded. A keras.utils.PyDataset can prepare batches in worker processes:"
    ),
    code="""\
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return len(x) // n
    def __getitem__(self, i):
        return x[i * n : (i + 1) * n], y[i * n : (i + 1) * n]
model.fit(Batches(workers=1, use_multiprocessing=True))  # more where more cores are free""",
)


_NO_TORCH_INPUT = Empty(
    title="No input work in this run",
    text=(
        "During the recording, no DataLoader was asked for a batch and nothing was copied to a"
        " device. A DataLoader can prefetch in worker processes:"
    ),
    code="""\
loader = DataLoader(dataset, batch_size=64, num_workers=1)  # more where more cores are free
for batch in loader:
    train_step(batch)""",
)


class _InputShare(NamedTuple):
    """The share of input in the steps: the sentence, the next step, and the figures behind it."""

    statement: str
    next_step: str
    figures: list[Figure]


def _input_share(run: Run) -> _InputShare:
    if _serves(run):
        return _InputShare("", "", [])
    summary = run.input_summary
    figures = []
    if summary.get("input_percent") is not None:
        figures.append(_share(summary, unit_of(run)))
    ratio, source = wording.real(summary.get("enqueue_ratio")), summary.get("enqueue_ratio_from")
    if ratio and source:
        note = f"from {source}; the other kinds are scaled to what remains"
        figures.append(figure("enqueuing", "Enqueuing", 100 * ratio, "%", 1, note))
    # The cost of copying on the host is recorded only for enqueues; 0 means nothing.
    copied = wording.real(summary.get("copy_percent"))
    if copied and has_device(run):
        note = f"of input time: {summary.get('copy_level')}"
        figures.append(figure("copies", "Copies to device", copied, "%", 1, note))
    statement, next_step = summary.get("statement"), summary.get("next_step")
    return _InputShare(str(statement or ""), str(next_step or ""), figures)


def _share(summary: Mapping[str, Any], unit: Unit = MARKED) -> Figure:
    """The figure of the overview, with the range and XProf's mean of single steps in its note."""
    percent = wording.real(summary.get("input_percent"))
    # Of one step there is neither a spread nor a range.
    note = "of the recording" if unit.is_recording else f"of one {unit.noun}"
    if (spread := wording.real(summary.get("sd_percent"))) is not None:
        note = f"of {unit.time}; {_range_text(summary, spread, unit)}"
    return percent_figure("input", "Waiting for input", percent, note, "input")


def _range_text(summary: Mapping[str, Any], spread: float, unit: Unit) -> str:
    """`by step 2.0–9.1, mean 4.0 ± 1.2`."""
    highest = wording.real(summary.get("max_percent"))
    if highest is not None and highest < _LEAST_PERCENT:
        # In these digits the range would be "0.0–0.1, mean 0.0 ± 0.0", next to a "< 0.1%".
        percent = wording.percent(highest, 2)
        if percent.startswith("<"):
            return f"less than{percent[1:]} of {unit.a}"
        return f"at most {percent} of {unit.a}"
    low, high, mean = (
        wording.number(summary.get(f"{key}_percent"), 1) for key in ("min", "max", "mean")
    )
    return f"by {unit.noun} {low}–{high}, mean {mean} ± {wording.number(spread, 1)}"


def _categories(run: Run) -> list[InputCategory]:
    """The kinds of work: self time as recorded, and that of a step, scaled where the host is
    enqueuing.
    """
    breakdown = run.input_summary.get("breakdown")
    scaled: dict[Any, Any] = {}
    if isinstance(breakdown, pd.DataFrame) and len(breakdown):
        scaled = breakdown.set_index("category").to_dict("index")
    categories = []
    for row in run.input_categories.to_dict("records"):
        category = _category(row)
        categories.append(category)
        # Unknown kinds are 0 in the breakdown, as in XProf's.
        if category.time_ms is None or row["category"] not in scaled:
            continue
        per_step = wording.real(scaled[row["category"]].get("us_per_step"))
        percent = wording.real(scaled[row["category"]].get("percent"))
        if per_step is not None and not _evaluates(run):
            category.per_step_ms = per_step / 1000
        if percent is not None:
            category.percent = percent
    return categories


def _missing(run: Run, categories: list[InputCategory]) -> list[str]:
    """Why the time of some kinds of work is unknown, one sentence per reason."""
    reasons = input_pipeline.unrecorded(run.input_ops, run.activity.framework)
    labels: dict[str, list[str]] = {}
    for category in categories:
        if category.time_ms is None and category.key in reasons:
            labels.setdefault(reasons[category.key], []).append(category.label)
    return [f"{', '.join(names)}: {reason}" for reason, names in labels.items()]


def _category(row: dict[Any, Any]) -> InputCategory:
    advice = row.get("advice")
    return InputCategory(
        key=str(row["category"]),
        label=str(row.get("label") or row["category"]),
        time_ms=wording.real(row.get("time_ms")),
        percent=wording.real(row.get("percent")),
        advice=advice if isinstance(advice, str) else "",
        per_step_ms=None,
    )


_CATEGORIES = {
    "preprocessing": "Preprocessing",
    "demanded_file_read": "Read on demand",
    "advanced_file_read": "Read in advance",
    "enqueue": "Enqueue",
}
_TORCH_CATEGORIES = {
    "preprocessing": "Ops on samples",
    "demanded_file_read": "In the training process",
    "advanced_file_read": "Waiting for workers",
    "enqueue": "Copy to device",
}


def _with_cost(ops: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    if ops.empty:
        return ops
    calls = floats(ops["occurrences"])
    cost = np.divide(
        floats(ops["self_ms"]) * 1000, calls, out=np.full(len(ops), np.nan), where=calls > 0
    )
    named = ops["category"].map(lambda key: names.get(str(key), str(key)))
    return ops.assign(us_per_call=cost, category=named)


def _bottleneck(run: Run) -> npt.NDArray[np.uint8]:
    if by_torch(run):
        return _dominant(run.input_ops)
    nodes = run.tf_data.nodes
    if nodes.empty or run.input_ops.empty or run.tf_data.cause.excuses:
        return np.zeros(len(run.input_ops), np.uint8)
    worst = nodes[nodes["bottleneck"].fillna(False).astype(bool)]
    names = set(worst["long_name"]) | set(worst["iterator"])
    return np.asarray(run.input_ops["op"].isin(names)).astype(np.uint8)


def _dominant(ops: pd.DataFrame) -> npt.NDArray[np.uint8]:
    """Marks the op with the most self time, if it makes up more than half of the input."""
    marks = np.zeros(len(ops), np.uint8)
    share = floats(ops["self_percent"]) if len(ops) else np.zeros(0)
    if len(share) and np.nanmax(share, initial=0.0) > 50:
        marks[int(np.nanargmax(share))] = 1
    return marks


def pipelines(run: Run) -> list[Pipeline]:
    """The tf.data pipelines in the order of the frame, each with its nodes."""
    listed = run.tf_data.pipelines.head(MOST_PIPELINES)
    nodes = _rows(run.tf_data.nodes, listed, _KEYS)
    calls = run.tf_data.calls
    drawn_calls = _rows(calls[calls["rank"] < MOST_CALLS], listed, _KEYS)
    slowest = _rows(run.tf_data.slowest, listed, [*_KEYS, "rank"])
    result = [_pipeline(row, nodes, slowest, drawn_calls) for row in listed.to_dict("records")]
    cause = run.tf_data.cause
    if cause.excuses:
        return [_excused(pipeline, cause.text) for pipeline in result]
    return result


def _excused(pipeline: Pipeline, reason: str) -> Pipeline:
    """A pipeline that nobody waits for: no iterator is a bottleneck, and nothing needs a change."""
    nodes = [replace(node, bottleneck=False) for node in pipeline.nodes]
    return replace(pipeline, advice=reason, fix=[], nodes=nodes)


def _of_workers(rows: pd.DataFrame, name: str) -> Table | None:
    """A table on the workers of loaders; None without rows."""
    if rows.empty:
        return None
    return table(rows, name, [column.name for column in frames.SCHEMA[name]])


def _pipeline_table(run: Run) -> Table | None:
    """The pipelines, where there are several."""
    listed = run.tf_data.pipelines.head(MOST_PIPELINES)
    if len(listed) > 1:
        return table(listed, "tf_data.pipelines", _OF_PIPELINES)
    return None


def _call_table(run: Run) -> Table | None:
    """The calls of the pipelines, the longest of each first."""
    if not len(run.tf_data.pipelines):
        return None
    calls = run.tf_data.calls
    return table(calls[calls["rank"] < MOST_LISTED], "tf_data.calls", _OF_CALLS)


_Rows = dict[tuple[Any, ...], list[dict[Any, Any]]]


def _rows(frame: pd.DataFrame, listed: pd.DataFrame, keys: list[str]) -> _Rows:
    """The rows of the listed pipelines by some columns: selecting those of each pipeline from the
    frame would cost more than everything else.
    """
    result: _Rows = {}
    if len(listed) == MOST_PIPELINES:
        frame = frame[frame["pipeline"].isin(listed["pipeline"])]
    for row in frame.to_dict("records"):
        result.setdefault(tuple(row[key] for key in keys), []).append(row)
    return result


def _pipeline(row: dict[Any, Any], nodes: _Rows, slowest: _Rows, calls: _Rows) -> Pipeline:
    advice, key = row.get("advice"), (row["host"], row["pipeline"])
    graph = _graph(nodes.get(key, []))
    slowest_calls = []
    for call in calls.get(key, []):
        nodes_of_call = slowest.get((*key, call["rank"]))
        if nodes_of_call is not None:
            slowest_calls.append(_call(call, nodes_of_call))
    return Pipeline(
        name=str(row["pipeline"]),
        host=str(row.get("host", "")),
        calls=int(row["calls"]),
        slow_calls=int(row["slow_calls"]),
        mean_us=wording.real(row["mean_us"]),
        min_us=wording.real(row["min_us"]),
        max_us=wording.real(row["max_us"]),
        advice=advice if isinstance(advice, str) else "",
        fix=fix_lines(row.get("fix")),
        critical_ms=graph.critical_ms,
        nodes=graph.nodes,
        slowest=slowest_calls,
    )


def _call(call: dict[Any, Any], nodes: list[dict[Any, Any]]) -> TfDataCall:
    """A call with the times of its iterators in it alone."""
    graph = _graph(nodes)
    return TfDataCall(
        start_ms=float(call["start_ms"]),
        duration_us=float(call["duration_us"]),
        critical_ms=graph.critical_ms,
        nodes=graph.nodes,
    )


class _Graph(NamedTuple):
    """The iterators of a graph, and the self time of those on the critical path."""

    critical_ms: float
    nodes: list[PipelineNode]


def _graph(nodes: list[dict[Any, Any]]) -> _Graph:
    """The iterators of a graph, each with its share of their self time."""
    self_ms = np.array([wording.real(node["self_ms"]) or 0.0 for node in nodes], np.float64)
    on_path = np.array([node["critical"] is True for node in nodes], np.bool_)
    total = self_ms.sum()
    percents = 100 * self_ms / total if total > 0 else np.full(len(self_ms), np.nan)
    drawn = zip(nodes[:MOST_NODES], percents[:MOST_NODES].tolist(), strict=True)
    parts = [_node(node, wording.real(percent)) for node, percent in drawn]
    return _Graph(float(self_ms[on_path].sum()), parts)


def _node(row: dict[Any, Any], percent: float | None) -> PipelineNode:
    parent, note = row.get("parent"), row.get("note")
    return PipelineNode(
        id=str(row["id"]),
        parent=str(parent) if pd.notna(parent) and parent != "" else None,
        name=str(row["iterator"]),
        long_name=str(row["long_name"]),
        note=note if isinstance(note, str) else "",
        start_ms=wording.real(row["start_ms"]),
        total_ms=wording.real(row["total_ms"]) or 0.0,
        self_ms=wording.real(row["self_ms"]) or 0.0,
        calls=int(row["calls"]),
        critical=bool(row["critical"]),
        bottleneck=bool(row["bottleneck"]),
        percent=percent,
    )
