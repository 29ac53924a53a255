"""Where the time of an iteration goes on an NPU: the iteration trace that msprof writes for graphs
of TensorFlow and MindSpore.

msprof marks three moments of an iteration: the start of the forward pass (FP Start), the end of the
backward pass (BP End) and the end of the iteration. Its own column `Iteration Time` has had several
meanings, so everything is computed from the marks:

    time of an iteration = Data Aug Bound      end of the iteration before .. FP Start
                         + FP to BP Time       FP Start .. BP End
                         + Grad Refresh Bound  BP End .. end of the iteration
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend.ascend import (
    KEYS,
    NOT_TOLD,
    Floats,
    Int64s,
    floats,
    integers,
    moments,
    nullable,
)
from nbprof.core.intervals import union_by_group
from nbprof.schema import frames

WHOLE, OWN_START, FROM_FP, UNKNOWN = "end to end", "own start", "from FP Start", ""
"""What a file's `Iteration Time` counts: from the end of the iteration before; from a mark of its
own between that and FP Start; from FP Start; or something else."""
PARTS = ("data_aug_ms", "fp_to_bp_ms", "all_reduce_ms", "update_ms")
"""The parts of an iteration, in drawing order."""

_MODEL = [*KEYS, "model"]
_PS_OF_MS, _US_OF_MS = 1e9, 1e3
_LEAST, _NEAR = 0.002, 1e-4
"""Two times are equal if they differ by less than 2 us, or by less than 1e-4 of their value."""


def frame(steps: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row an iteration, by recording, device and model in time order; the columns of
    `SCHEMA["ascend.iterations.frame"]`.

    Parameters
    ----------
    steps : DataFrame
        The tables `step_trace`, gathered.

    Returns
    -------
    DataFrame, list of str
        And what of the marks cannot be, in sentences.
    """
    steps = _each_once(steps)
    end, ended = moments(steps, "iteration_end_ps")
    fp, has_fp = moments(steps, "fp_start_ps")
    bp, has_bp = moments(steps, "bp_end_ps")
    own_start, has_own = moments(steps, "iteration_start_ps")
    first = _first(steps)
    follows = _follows(integers(steps, "iteration_id"), first)
    before, had = (
        _shifted(end, first),
        follows & ended & _shifted(ended.astype(np.int64), first).astype(np.bool_),
    )
    reported = {
        name: floats(steps, f"{name}_us") / _US_OF_MS
        for name in ("iteration", "fp_to_bp", "iteration_refresh", "data_aug_bound")
    }

    gap = _between(before, fp, had & has_fp)
    backward = int((had & has_fp & (fp < before)).sum())
    # Of the first iteration the file states what went by since something else, and start-up is most
    # of it.
    gap = np.where(np.isnan(gap) & ~first & ~has_fp, reported["data_aug_bound"], gap)
    middle = np.where(has_fp & has_bp, _between(fp, bp, has_fp & has_bp), reported["fp_to_bp"])
    refresh = np.where(
        has_bp & ended, _between(bp, end, has_bp & ended), reported["iteration_refresh"]
    )
    lead_in = _between(own_start, fp, has_own & has_fp)
    begin, begun = np.where(has_own, own_start, fp), has_own | has_fp
    wall = np.where(had, _between(before, end, had), _between(begin, end, begun & ended))
    # Marks that a file leaves out, or states to a millisecond, are in its durations.
    parts = gap + middle + refresh
    wall = np.where((~has_fp | ~ended) & ~np.isnan(parts), parts, wall)
    wall = np.where(np.isnan(wall), reported["iteration"], wall)
    # Where a file leaves the marks out, they follow from the end and the durations.
    bp, has_bp = _back(bp, has_bp, end, ended, refresh)
    fp, has_fp = _back(fp, has_fp, bp, has_bp, middle)
    tail, hidden = _reduces(steps, fp, bp, end, has_fp & has_bp & ended)
    start = np.where(had, before, np.where(begun, begin, end))
    table = pd.DataFrame(
        {
            "host": steps["host"],
            "device": steps["device"],
            "model": nullable(integers(steps, "model_id")),
            "iteration": integers(steps, "iteration_id"),
            "start_ms": np.where(had | begun, start / _PS_OF_MS, np.nan),
            "iteration_ms": wall,
            "data_aug_ms": gap,
            "fp_to_bp_ms": middle,
            "grad_refresh_ms": refresh,
            "all_reduce_ms": tail,
            "update_ms": refresh - tail,
            "hidden_all_reduce_ms": hidden,
            "lead_in_ms": lead_in,
            "get_next_ms": floats(steps, "get_next_us") / _US_OF_MS,
            "reported_iteration_ms": reported["iteration"],
            "reported_data_aug_ms": reported["data_aug_bound"],
        }
    )
    table["warmup"] = _warming(table)
    table["main"] = _main(table)
    return table, _doubts(table, backward)


def _each_once(steps: pd.DataFrame) -> pd.DataFrame:
    """Older exports repeat an iteration in the file of each; sorted by device, model and time."""
    model, iteration = integers(steps, "model_id"), integers(steps, "iteration_id")
    steps = steps.assign(
        model=model, _iteration=iteration, _end=moments(steps, "iteration_end_ps")[0]
    )
    steps = steps.drop_duplicates([*_MODEL, "_iteration", "_end"])
    return steps.sort_values([*_MODEL, "_end", "_iteration"], kind="stable", ignore_index=True)


def _first(steps: pd.DataFrame) -> Any:
    """Which rows begin a model on a device."""
    return ~steps.duplicated(_MODEL).to_numpy(np.bool_)


def _follows(iteration: Int64s, first: Any) -> Any:
    """True if the iteration before is that of the row before, which a file that was cut or filtered
    may not have.
    """
    return ~first & ((iteration == _shifted(iteration, first) + 1) | (iteration == NOT_TOLD))


def _back(
    mark: Int64s, recorded: Any, end: Int64s, ended: Any, length_ms: Floats
) -> tuple[Int64s, Any]:
    """A mark, from what follows it where it is not known."""
    other = ~recorded & ended & np.isfinite(length_ms)
    return (
        np.where(other, end - np.nan_to_num(length_ms * _PS_OF_MS).astype(np.int64), mark),
        recorded | other,
    )


def _shifted(values: Int64s, first: Any) -> Int64s:
    """The value of the row before; 0 for the first of a model."""
    return np.where(first, 0, np.append(0, values[:-1]) if len(values) else values)


def _between(start: Int64s, end: Int64s, recorded: Any) -> Floats:
    """Time in ms from one mark to another; NaN if unknown or negative."""
    length = end - start
    return np.where(recorded & (length >= 0), length / _PS_OF_MS, np.nan)


def _reduces(
    steps: pd.DataFrame, fp: Int64s, bp: Int64s, end: Int64s, recorded: Any
) -> tuple[Floats, Floats]:
    """Time in ms of the gradients' all-reduce after BP End, and before it, behind the backward
    pass. Several at a time count once.
    """
    found = sorted(
        (int(match[1]), name)
        for name in steps.columns
        if (match := re.fullmatch(r"reduce_(\d+)_start_ps", str(name)))
    )
    nothing = np.full(len(steps), np.nan)
    if not found:
        return nothing, nothing
    starts, ends = [], []
    for number, name in found:
        moment, has = moments(steps, name)
        length = floats(steps, f"reduce_{number}_us")
        has = has & (length >= 0)
        moment = np.where(has, moment, 0)
        starts.append(moment)
        ends.append(np.where(has, moment + np.nan_to_num(length * 1e6).astype(np.int64), moment))
    start, stop = np.stack(starts, 1), np.stack(ends, 1)
    return tuple(
        np.where(recorded, _covered(start, stop, low, high) / _PS_OF_MS, np.nan)
        for low, high in ((bp, end), (fp, bp))
    )  # type: ignore[return-value]


def _covered(start: Int64s, stop: Int64s, low: Int64s, high: Int64s) -> Int64s:
    """Time in ps of each row that its spans cover between two moments."""
    start, stop = np.maximum(start, low[:, None]), np.minimum(stop, high[:, None])
    row = np.repeat(np.arange(len(start)), start.shape[1])
    return union_by_group(row, start.ravel(), stop.ravel()).totals(len(start))


def _warming(table: pd.DataFrame) -> Any:
    """The first iterations of a model: they compile and fill queues. Two of four or more, one of
    fewer, none of one.
    """
    groups = table.groupby(_MODEL, sort=False, dropna=False)["iteration"]
    position, count = groups.cumcount(), groups.transform("size")
    return (position < np.where(count >= 4, 2, np.where(count >= 2, 1, 0))).to_numpy(np.bool_)


def _main(table: pd.DataFrame) -> Any:
    """True if the row is of the model of most iterations of its device, of equal ones the longest:
    others initialise or validate.
    """
    size = (
        table.assign(model=table["model"].fillna(NOT_TOLD))
        .groupby(_MODEL)["iteration_ms"]
        .agg(["size", "sum"])
        .reset_index()
    )
    best = size.sort_values(
        [*KEYS, "size", "sum"], ascending=[True, True, False, False], kind="stable"
    ).drop_duplicates(KEYS)
    chosen = (
        best.set_index(KEYS)["model"]
        .reindex(pd.MultiIndex.from_frame(table[KEYS]))
        .to_numpy(np.int64)
    )
    return chosen == table["model"].fillna(NOT_TOLD).to_numpy(np.int64)


def convention(rows: pd.DataFrame) -> str:
    """What `Iteration Time` of the file counts, by what most iterations of a model agree with."""
    rows = rows[rows["data_aug_ms"].notna() & rows["reported_iteration_ms"].notna()]
    reported, end_to_end = (
        rows["reported_iteration_ms"].to_numpy(np.float64),
        rows["iteration_ms"].to_numpy(np.float64),
    )
    inner = (rows["fp_to_bp_ms"] + rows["grad_refresh_ms"]).to_numpy(np.float64)
    lead = rows["lead_in_ms"].to_numpy(np.float64)
    fits = {
        WHOLE: _same(reported, end_to_end),
        OWN_START: _same(reported, inner + lead) & ~_same(reported, inner),
        FROM_FP: _same(reported, inner),
    }
    # A CSV does not tell its own start; it lies before FP Start and after the iteration before.
    fits[OWN_START] |= (
        np.isnan(lead)
        & (reported > inner)
        & (reported < end_to_end)
        & ~fits[WHOLE]
        & ~fits[FROM_FP]
    )
    for name, fit in fits.items():
        if fit.sum() * 2 > len(rows):
            return name
    return UNKNOWN


def _same(a: Floats, b: Floats) -> Any:
    return np.abs(a - b) <= np.maximum(_LEAST, _NEAR * np.abs(b))


def summary(iterations: pd.DataFrame) -> pd.DataFrame:
    """One row per model of a device; the columns of `SCHEMA["ascend.iterations.summary"]`. Means
    leave warm-up out.
    """
    rows = []
    for key, group in iterations.groupby(_MODEL, sort=False, dropna=False):
        counted = group[~group["warmup"]]
        means = counted[
            [
                "iteration_ms",
                *PARTS,
                "grad_refresh_ms",
                "hidden_all_reduce_ms",
                "reported_iteration_ms",
            ]
        ].mean()
        iteration_ms = float(means["iteration_ms"])
        rows.append(
            {
                "host": key[0],
                "device": key[1],
                "model": key[2],
                "main": bool(group["main"].iloc[0]),
                "iterations": len(group),
                "counted": len(counted),
                "iteration_ms": iteration_ms,
                "sd_ms": float(counted["iteration_ms"].std()),
                **{
                    name: float(means[name])
                    for name in (
                        *PARTS,
                        "grad_refresh_ms",
                        "hidden_all_reduce_ms",
                        "reported_iteration_ms",
                    )
                },
                **{
                    f"{name[:-3]}_fraction": float(means[name]) / iteration_ms
                    if iteration_ms > 0
                    else np.nan
                    for name in (*PARTS, "grad_refresh_ms")
                },
                "convention": convention(group),
            }
        )
    result = pd.DataFrame(rows, columns=SUMMARY)
    return result.astype({"model": "Int64"}) if len(result) else result


SUMMARY = frames.names("ascend.iterations.summary")


def _doubts(table: pd.DataFrame, backward: int) -> list[str]:
    sentences = []
    if backward:
        phrase = "iteration starts" if backward == 1 else "iterations start"
        sentences.append(
            f"{backward:,} {phrase} before the previous one ends: the Data Aug Bound is unknown"
            " there."
        )
    if lost := int((table["fp_to_bp_ms"].isna() & table["iteration_ms"].notna()).sum()):
        phrase = "iteration has" if lost == 1 else "iterations have"
        sentences.append(
            f"{lost:,} {phrase} no FP Start or BP End, as in inference: only the total time is"
            " known."
        )
    return sentences
