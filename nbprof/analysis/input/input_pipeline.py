"""Time of the host on input: TensorFlow Profiler's input pipeline analyzer, and its counterpart for
PyTorch.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import ITERATIONS, WAITS, Activity
from nbprof.activity.unit import Unit
from nbprof.analysis.advice import checks, tf_data
from nbprof.analysis.figures import percent, ratio
from nbprof.analysis.steps.steps import counted, waiting_percent
from nbprof.analysis.table import stacked
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows, used_codes
from nbprof.core.trace import Int64s
from nbprof.frameworks.framework import Framework, Words
from nbprof.frameworks.register import JAX, PYTORCH, UNKNOWN

_FILES = ("TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "ArrayRecord")
# The kind, in `Activity.calls`, of a call that copies to a device.
COPY_TO_DEVICE = "copy H2D"
_AHEAD = ("::MemoryReader", "::MemoryWriter", "::Interleave", "::Prefetch", "::ParallelMap")

# category key: (label on screen, what helps)
CATEGORIES: dict[str, tuple[str, str]] = {
    "preprocessing": (
        "Data preprocessing",
        "map in parallel with num_parallel_calls=tf.data.AUTOTUNE, or preprocess offline",
    ),
    "demanded_file_read": (
        "Reading files on demand",
        "read ahead: prefetch, interleave, a larger reader buffer",
    ),
    "advanced_file_read": (
        "Reading files in advance",
        "tune the prefetch size, the interleave cycle_length, the reader buffer",
    ),
    "enqueue": ("Enqueuing data", "combine small chunks into fewer, larger ones"),
    "other": ("Other reading or processing", "use tf.data for data that is read without it"),
}

_NO_STAGES = (
    "not recorded. In a JAX profile, only stages of a pipeline such as tf.data are labelled."
)
_NO_COPIES = "not recorded. A JAX profile does not identify which host calls copy to a device."
_READ_AHEAD = "read it ahead: grain, tf.data or a prefetching thread"
"""The advice for a JAX program with input work of no known kind, perhaps without tf.data."""
_MAPS = {"ParallelMap", "MapAndBatch", "ParallelInterleave"}
_MAPPED = "make the mapped function cheaper, map whole batches, or preprocess offline"

# The same kinds of work, for PyTorch's DataLoader.
TORCH_CATEGORIES: dict[str, tuple[str, str]] = {
    "demanded_file_read": (
        "Loading in the training process",
        "load in worker processes: num_workers of the DataLoader, one for each free core",
    ),
    "preprocessing": (
        "Ops on samples in the training process",
        "transform and collate in worker processes (num_workers), or on the device",
    ),
    "advanced_file_read": (
        "Waiting for the worker processes",
        (
            "more num_workers while cores are free, a larger prefetch_factor,"
            " persistent_workers=True; cheaper transforms"
        ),
    ),
    "enqueue": (
        "Copying to the device",
        (
            "copy from pinned memory (pin_memory=True of a DataLoader, or tensor.pin_memory()),"
            " with non_blocking=True"
        ),
    ),
    "other": (
        "Other reading or processing",
        "iterate over a torch.utils.data.DataLoader, which loads ahead",
    ),
}


READING = ("preprocessing", "demanded_file_read", "advanced_file_read")
"""The categories of work that produces data, rather than copying it to a device."""

# Stages of input pipelines other than tf.data, by the work they state.
_STAGES = {"enqueue": "enqueue", "preprocessing": "preprocessing", "unknown": "other"}
_KINDS = frozenset({"Dataset", "read", *_STAGES})


def category(op: str, kind: str) -> str:
    """The input category of a host op; '' if it is not an input op.

    Ops of tf.data have the type `Dataset`, stages of other pipelines state their kind. Reads are in
    advance if the path of the op says so (prefetch, interleave, parallel map, memory reader or
    writer above it).
    """
    if kind.startswith("InfeedEnqueue") or op[:10].upper() == "MEMCPYHTOD":
        return "enqueue"
    stage = kind.strip().lower()
    if kind != "Dataset" and stage not in _KINDS:
        return ""
    if stage in _STAGES:
        return _STAGES[stage]
    if stage == "read" or (op.rpartition("::")[2] in _FILES and "::" in op):
        if any(part in op for part in _AHEAD):
            return "advanced_file_read"
        return "demanded_file_read"
    return "preprocessing"


def ops(activity: Activity, rows: pd.DataFrame) -> pd.DataFrame:
    """One row per input op, self time descending: the columns of `p.input_pipeline.frame`.

    `rows` are the host ops with their self time, from `analysis.ops.ops.host_self_times`. For
    PyTorch these are the batches that the loop requested from a DataLoader, the ops inside, and the
    calls that copy to the device.
    """
    if activity.framework is PYTORCH:
        return _shares(_torch_ops(activity, rows))
    loops = _loops(activity)
    names, types = activity.ops.values, activity.types.values
    # Few ops are of input, by their type or as copies: only these are grouped.
    has_type = np.array([_is_input_type(str(name)) for name in types], np.bool_)
    code = rows["op"].to_numpy(np.int64)
    may_be_input = np.isin(names.astype("U1"), ["M", "m"])
    may_be_input[code[has_type[rows["type"].to_numpy(np.int64)]]] = True
    rows = rows[may_be_input[code]]
    if len(loops):
        rows = pd.concat([rows, loops], ignore_index=True)
    code, start, end, self_ps = (
        rows[column].to_numpy(np.int64) for column in ("op", "start", "end", "own")
    )
    first, group = unique_rows(code)
    total, self_time = np.zeros((2, len(first)), np.int64)
    np.add.at(total, group, end - start)
    np.add.at(self_time, group, self_ps)
    op = [str(names[c]) for c in code[first].tolist()]
    is_stage = np.bincount(group[rows["dataset"].to_numpy(np.bool_)], minlength=len(first)) > 0
    type_of_first = rows["type"].to_numpy(np.int64)[first]
    categories = []
    for row, name in enumerate(op):
        kind = str(types[type_of_first[row]])
        # The type of another op may have the name of a kind of stage.
        if kind in _KINDS and not is_stage[row]:
            kind = ""
        categories.append(category(name, kind))
    table = pd.DataFrame(
        {
            "op": op,
            "category": categories,
            "occurrences": np.bincount(group, minlength=len(first)),
            "total_ms": total / 1e9,
            "self_ms": self_time / 1e9,
        }
    )
    return _shares(table[table["category"] != ""])


def _is_input_type(name: str) -> bool:
    return name.strip().lower() in _KINDS or name in _KINDS or name.startswith("InfeedEnqueue")


def _loops(activity: Activity) -> pd.DataFrame:
    """Iterators of loops over a dataset inside a function, which no table of ops has, with their
    self time among themselves.
    """
    rows = activity.iterators.frame()
    names = activity.ops.values
    durations = {
        code
        for code in rows["name"].unique().tolist()
        if not str(names[code]).startswith("Iterator::")
    }
    if not durations:
        return pd.DataFrame(
            {"op": [], "type": [], "start": [], "end": [], "own": [], "dataset": []}
        ).astype(np.int64)
    start, length = (
        rows["start"].to_numpy(np.int64),
        (rows["end"] - rows["start"]).to_numpy(np.int64),
    )
    self_ps = nesting.self_times(
        nesting.parents(rows["lane"].to_numpy(np.int32), start, length), length
    )
    kind = activity.types.code("Dataset")
    return rows.assign(op=rows["name"], type=kind, own=self_ps, dataset=True).loc[
        rows["name"].isin(durations), ["op", "type", "start", "end", "own", "dataset"]
    ]


def _torch_ops(activity: Activity, rows: pd.DataFrame) -> pd.DataFrame:
    dataset_ops = rows[rows["dataset"]]
    code, start, end, self_ps = (
        dataset_ops[column].to_numpy(np.int64) for column in ("op", "start", "end", "own")
    )
    first, of_op = unique_rows(code)
    total, self_time = np.zeros((2, len(first)), np.int64)
    np.add.at(total, of_op, end - start)
    np.add.at(self_time, of_op, self_ps)
    names, types, texts = activity.ops.values, activity.types.values, activity.texts.values
    op = [str(names[c]) for c in code[first].tolist()]
    of_first = dataset_ops["type"].to_numpy(np.int64)[first].tolist()
    kind = [_torch_category(o, str(types[c])) for o, c in zip(op, of_first, strict=True)]
    calls = activity.calls
    copies = calls.take(
        np.isin(calls.kind, [code for code, text in enumerate(texts) if text == COPY_TO_DEVICE])
    )
    first_call, of_call = unique_rows(copies.name.astype(np.int64))
    time = np.zeros(len(first_call), np.int64)
    np.add.at(time, of_call, copies.end - copies.start)
    # A call over several steps has a piece in each.
    first_piece, _ = unique_rows(of_call, copies.event)
    return pd.DataFrame(
        {
            "op": [*op, *(copy_name(texts[c]) for c in copies.name[first_call].tolist())],
            "category": [*kind, *["enqueue"] * len(first_call)],
            "occurrences": np.concatenate(
                [
                    np.bincount(of_op, minlength=len(first)),
                    np.bincount(of_call[first_piece], minlength=len(time)),
                ]
            ),
            "total_ms": np.concatenate([total, time]) / 1e9,
            "self_ms": np.concatenate([self_time, time]) / 1e9,
        }
    )


def copy_name(call: str) -> str:
    """The name of a copy to a device in the table."""
    return f"{call} (host to device)"


def _torch_category(op: str, kind: str) -> str:
    if kind == "iterator":
        return "other"
    if kind != "DataLoader":
        return "preprocessing"
    return "advanced_file_read" if "MultiProcessing" in op else "demanded_file_read"


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    # Shares are of the self time of all input ops, so total shares of nested iterators add up to
    # more than 100.
    total_ms, self_ms = (table[key].to_numpy(np.float64) for key in ("total_ms", "self_ms"))
    total = float(self_ms.sum()) or np.nan
    rank, _ = pd.factorize(table["op"].to_numpy(object), sort=True)
    order = np.lexsort((rank, -self_ms))
    return pd.DataFrame(
        {
            "op": table["op"].array[order],
            "category": table["category"].array[order],
            "occurrences": table["occurrences"].to_numpy()[order],
            "total_ms": total_ms[order],
            "total_percent": 100 * total_ms[order] / total,
            "self_ms": self_ms[order],
            "self_percent": 100 * self_ms[order] / total,
        }
    )


def added(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The input ops of several hosts together; of each host the result of `ops`."""
    rows = stacked(tables)
    # Categories of equal time have the order of the first host.
    by_op = rows.groupby(["op", "category"], sort=False)
    return _shares(by_op[["occurrences", "total_ms", "self_ms"]].sum().reset_index())


def unrecorded(table: pd.DataFrame, framework: Framework) -> dict[str, str]:
    """The kinds of input work that may have happened without being recorded, and why.

    JAX has no input pipeline. The work of tf.data or Grain, for example, is known by the labels of
    their stages; Python code between two steps, or in the wait of ``nbprof.steps``, is not. Nor
    does JAX record which calls of the host copy to a device.
    """
    if framework is not JAX:
        return {}
    recorded = set(table["category"])
    if recorded & set(READING):
        recorded |= set(READING)
    return {
        kind: _NO_COPIES if kind == "enqueue" else _NO_STAGES
        for kind in CATEGORIES
        if kind not in recorded
    }


def categories(
    table: pd.DataFrame, framework: Framework = UNKNOWN, why: tf_data.Cause = tf_data.NO_CAUSE
) -> pd.DataFrame:
    """The five kinds of input work with their time and what helps; the columns of
    `p.input_pipeline.categories`.

    Parameters
    ----------
    table : DataFrame
        The input ops, from `ops`.
    framework : Framework
    why : Cause
        Why steps wait for input: if not for this work, nothing of it needs help.
    """
    time = table.groupby("category")["self_ms"].sum()
    total = float(time.sum())
    kinds = {tf_data.base(str(op)) for op in table["op"]}
    rows = []
    categories = TORCH_CATEGORIES if framework is PYTORCH else CATEGORIES
    if framework is JAX:
        categories = {**categories, "other": (categories["other"][0], _READ_AHEAD)}
    maps_in_parallel = bool(kinds & _MAPS) and "Map" not in kinds
    unknown = unrecorded(table, framework)
    for key, (label, advice) in categories.items():
        time_ms = np.nan if key in unknown else float(time.get(key, 0.0))
        if key == "preprocessing" and maps_in_parallel:
            advice = _MAPPED
        rows.append(
            {
                "category": key,
                "label": label,
                "time_ms": time_ms,
                "percent": percent(time_ms, total),
                "advice": advice if time_ms > 0 and _waits_for(key, why) else "",
            }
        )
    return pd.DataFrame(rows).sort_values(
        "time_ms", ascending=False, kind="stable", ignore_index=True
    )


def _waits_for(key: str, why: tf_data.Cause) -> bool:
    """True if steps may wait for input work of a kind."""
    if why.kind == tf_data.HARDLY:
        return False
    return why.kind != tf_data.ELSEWHERE or key not in READING


# Percent of the time of all input work that copies to the device.
_DOMINANT, _SIGNIFICANT = 90.0, 10.0


def summary(
    activity: Activity,
    steps: pd.DataFrame,
    table: pd.DataFrame,
    enqueued: Enqueued,
    overhead_percent: float = 0.0,
) -> dict[str, Any]:
    """The mapping `p.input_pipeline.summary`: the share of input in a step, its kinds, and what to
    do next.

    Parameters
    ----------
    activity : Activity
    steps : DataFrame
        `Run.steps`.
    table : DataFrame
        The input ops, from `ops`.
    enqueued : tuple
        The result of `enqueues`.
    overhead_percent : float
        Percent of the steps in which nothing but the profiler's own work was recorded.
    """
    used = counted(steps)
    explained = waiting_percent(steps) + overhead_percent
    classification = _classification(activity, used, table, explained)
    self_ms = table.groupby("category")["self_ms"].sum()
    time = {str(kind): float(us) for kind, us in (self_ms * 1000).items()}
    enqueue_ratio, source = _enqueue_ratio(used, enqueued)
    parts = scaled(time, enqueue_ratio)
    total = sum(parts.values())
    count = len(steps)
    us = np.array(list(parts.values()), np.float64)
    breakdown = pd.DataFrame(
        {
            "category": list(parts),
            "us": us,
            "us_per_step": ratio(us, count),
            "percent": percent(us, total),
        }
    )
    copy_percent = None
    if total and "enqueue" not in unrecorded(table, activity.framework):
        copy_percent = 100 * parts["enqueue"] / total
    return {
        "steps": len(used),
        **_shares_of_steps(used),
        **classification,
        "enqueue_ratio": enqueue_ratio,
        "enqueue_ratio_from": source,
        "breakdown": breakdown,
        "copy_percent": copy_percent,
        "copy_level": None if copy_percent is None else copy_level(copy_percent),
        "next_step": _advice(activity, used, str(classification["bound"]), total, parts["enqueue"]),
    }


def _classification(
    activity: Activity, used: pd.DataFrame, table: pd.DataFrame, explained: float
) -> dict[str, Any]:
    """The side that steps wait for, how much, and a sentence: `bound`, `level`, `statement`; and
    the shares of input as None if these are unknown.

    Of time without any event, `explained` percent of the steps are no wait for input.
    """
    waits, other = _ratio(used, "input_ms"), _ratio(used, "other_ms")
    if other is not None:
        other = max(other - explained, 0.0)
    bound, level = checks.input_class(waits, other)
    classification = {
        "bound": bound,
        "level": level,
        "statement": checks.input_statement(waits, other, activity.unit),
    }
    unknown = {"bound": "unknown", "level": "unknown"}
    input_percent = _shares_of_steps(used)["input_percent"]
    if input_percent is not None and not traced(activity, used, table):
        no_shares = dict.fromkeys(_SHARES)
        if level == "potential":
            return {**no_shares, **classification}
        return {**no_shares, **unknown, "statement": checks.UNTRACED}
    if level == "no" and not waits_traced(activity, table):
        return {**unknown, "statement": checks.copies_statement(waits or 0.0, activity.unit)}
    return classification


def traced(activity: Activity, steps: pd.DataFrame, table: pd.DataFrame) -> bool:
    """True if the profile can tell how long steps wait for input.

    A Python generator leaves no event: the input of a step without any is unknown, unless input
    work was recorded somewhere (`table`), or a device states its infeed.
    """
    return bool(_states_input(activity) or len(table) or steps["input_ms"].sum() > 0)


def waits_traced(activity: Activity, table: pd.DataFrame) -> bool:
    """True if the profile can tell more of input than copies to the device, which is all that some
    recorders include.
    """
    return bool(
        _states_input(activity)
        or "input" not in activity.missing
        or (table["category"] != "enqueue").any()
    )


def _states_input(activity: Activity) -> bool:
    """True if waits for input were recorded for every kind of pipeline.

    An NPU states them by its iterations, a TPU whose programs read from an infeed, and the recorder
    of a notebook's loops.
    """
    return ITERATIONS in activity.traits or WAITS in activity.traits or activity.reads_infeed


def copy_level(percent: float) -> str:
    """The level of the share of input work that is copying to the device: dominant, significant or
    small.
    """
    if percent >= _DOMINANT:
        return "dominant"
    return "significant" if percent >= _SIGNIFICANT else "small"


def scaled(time: dict[str, float], ratio: float) -> dict[str, float]:
    """The five kinds of input work in µs, from the self times of the input ops by kind.

    The host works on input also while nobody waits for it. If it enqueues to the device, `ratio` is
    the fraction of that in the time between two enqueues, and how much of that time is input: the
    rest is divided among the other kinds by their self times. With a ratio of 0 (nothing was
    enqueued) the self times stand as they are. Source: TensorFlow Profiler's input pipeline
    analyzer.
    """
    enqueue = float(time.get("enqueue", 0.0))
    reading = {kind: float(time.get(kind, 0.0)) for kind in READING}
    total = sum(reading.values())
    rest = enqueue * (1 - ratio) / ratio if ratio else total
    parts = {"enqueue": enqueue}
    for kind, us in reading.items():
        parts[kind] = rest * us / total if total else 0.0
    other = 0.0 if ratio else float(time.get("other", 0.0))
    # The last bits of a float are not input work.
    left = rest - sum(parts[kind] for kind in READING)
    parts["other"] = (left if left > 1e-9 * rest else 0.0) + other
    return parts


Enqueued = tuple[int, int, bool]


def enqueues(activity: Activity, rows: pd.DataFrame) -> Enqueued:
    """The time in which the host enqueued to devices and the time from one enqueue to the next, ps;
    and whether it enqueued or copied at all.

    `rows` are the host ops.
    """
    infeed = _rows_with(activity.types.values, rows["type"], _IS_ENQUEUE)
    if len(infeed):
        lane, start, end = (
            rows[key].to_numpy(np.int64)[infeed] for key in ("lane", "start", "end")
        )
        order = np.lexsort((start, lane))
        lane, start, end = lane[order], start[order], end[order]
        same = lane[1:] == lane[:-1]
        between = int((start[1:] - start[:-1])[same].sum())
        if between:
            return int((end - start)[:-1][same].sum()), between, True
    copies = _rows_with(activity.ops.values, rows["op"], _IS_COPY)
    return 0, 0, bool(len(infeed) or len(copies))


_IS_ENQUEUE = re.compile("InfeedEnqueue")
_IS_COPY = re.compile("MEMCPYHTOD", re.IGNORECASE)


def _rows_with(
    texts: npt.NDArray[np.object_], codes: pd.Series, pattern: re.Pattern[str]
) -> Int64s:
    """The rows whose texts begin with a pattern."""
    code, row_code = used_codes(codes.to_numpy(np.int64), len(texts))
    matches = np.array([bool(pattern.match(str(text))) for text in texts[code]], np.bool_)
    return np.flatnonzero(matches[row_code])


def _enqueue_ratio(used: pd.DataFrame, enqueued: Enqueued) -> tuple[float, str | None]:
    """The fraction of enqueuing in the time from one enqueue to the next, at most 1, and its
    source; 0 if nothing enqueues.
    """
    time, between, copies = enqueued
    if between:
        return min(1.0, time / between), "enqueue starts"
    mean = _ratio(used, "host_to_device_ms")
    if copies and mean:
        return min(1.0, mean / 100), "copies of a step"
    return 0.0, None


def _ratio(used: pd.DataFrame, column: str) -> float | None:
    """A column's sum in percent of all step time; None where it was not measured."""
    values = used[column].to_numpy(np.float64)
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    return 100 * float(np.nansum(values)) / float(used["step_time_ms"].to_numpy(np.float64).sum())


_SHARES = ("input_percent", "mean_percent", "sd_percent", "min_percent", "max_percent")


def _shares_of_steps(used: pd.DataFrame) -> dict[str, float | None]:
    """Input in percent of step time: of all steps together, and over the steps."""
    waits = used["input_ms"].to_numpy(np.float64)
    if not len(used) or np.isnan(waits).any():
        return dict.fromkeys(_SHARES)
    share = 100 * waits / used["step_time_ms"].to_numpy(np.float64)
    return {
        "input_percent": _ratio(used, "input_ms"),
        "mean_percent": float(share.mean()),
        "sd_percent": float(share.std(ddof=1)) if len(share) > 1 else None,
        "min_percent": float(share.min()),
        "max_percent": float(share.max()),
    }


_OF_GRAPH = (
    "On an NPU only the wait per iteration is recorded, as Data Aug Bound; the input pipeline"
    " itself is not in the profile. Read and decode in parallel, prefetch, and sink the data queue"
    " to the device."
)


def _advice(
    activity: Activity, used: pd.DataFrame, bound: str, total: float, enqueue: float
) -> str:
    """The advice on what to do next; `total` is the time of all input work, `enqueue` that of
    copies to the device in it.
    """
    unit = activity.unit
    copied, waited = used["host_to_device_ms"].sum(), used["input_ms"].sum()
    if bound in ("host", "both") and not total and copied > waited / 2:
        subject, when = f"{unit.plural.capitalize()} wait", f"{unit.the} needs them"
        if unit.is_recording:
            subject, when = "The program waits", "they are needed"
        return (
            f"{subject} for arrays copied from host memory to the device: keep in device memory"
            f" what fits, and start the other copies before {when}."
        )
    if ITERATIONS in activity.traits and bound not in ("unknown", "device") and not total:
        return _OF_GRAPH
    return _next_step(bound, total, enqueue, activity.framework.words, unit)


def _next_step(bound: str, total: float, enqueue: float, words: Words, unit: Unit) -> str:
    """The advice by the times of input work alone; parameters as of `_advice`."""
    if bound == "unknown":
        return "Loop over nbprof.steps(data): the wait for each batch then counts as input."
    if bound == "device":
        return f"The input keeps up: look at the rest of {unit.the}."
    if total > enqueue:
        return "See below which input work takes time, and what helps."
    hint = f"The work of {words.loader} would be shown here."
    if not total:
        return f"No input work was recorded. {hint}"
    ahead = f" {words.copy_ahead}" if words.copy_ahead else ""
    return f"Only copies to the device were recorded as input work.{ahead} {hint}"
