"""Parts of an iteration on an NPU, from the trace that msprof writes for graphs.

msprof writes it for graphs of TensorFlow and MindSpore.

msprof marks three moments of an iteration: the start of the forward pass (FP Start), the end of the
backward pass (BP End) and the end of the iteration. Its own column `Iteration Time` has had several
meanings, so everything is computed from the marks:

    time of an iteration = Data Aug Bound      end of the iteration before .. FP Start
                         + FP to BP Time       FP Start .. BP End
                         + Grad Refresh Bound  BP End .. end of the iteration
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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
from nbprof.analysis.figures import ratio
from nbprof.core.intervals import union_by_group
from nbprof.schema import frames

WHOLE, OWN_START, FROM_FP, UNKNOWN = "end to end", "own start", "from FP Start", ""
"""The start of a file's `Iteration Time`: the end of the iteration before, another mark between
that and FP Start, FP Start, or unknown."""
PARTS = ("data_aug_ms", "fp_to_bp_ms", "all_reduce_ms", "update_ms")
"""The parts of an iteration, in drawing order."""

Flags = npt.NDArray[np.bool_]

_MODEL = [*KEYS, "model"]
_PS_OF_MS, _US_OF_MS = 1e9, 1e3
_LEAST, _NEAR = 0.002, 1e-4
"""Two times are equal if they differ by less than 2 us, or by less than 1e-4 of their value."""


class Mark(NamedTuple):
    """A moment of each iteration in ps, and whether it is known."""

    time: Int64s
    recorded: Flags

    def until(self, later: Mark) -> Floats:
        """Time in ms to a later mark; NaN if unknown or negative."""
        length = later.time - self.time
        is_known = self.recorded & later.recorded & (length >= 0)
        return np.where(is_known, length / _PS_OF_MS, np.nan)

    def or_else(self, other: Mark) -> Mark:
        """The mark itself; if unknown, another one."""
        time = np.where(self.recorded, self.time, other.time)
        return Mark(time, self.recorded | other.recorded)

    def or_before(self, later: Mark, length_ms: Floats) -> Mark:
        """The mark itself; if unknown, the moment that is a time before a later mark."""
        derived = ~self.recorded & later.recorded & np.isfinite(length_ms)
        earlier = later.time - np.nan_to_num(length_ms * _PS_OF_MS).astype(np.int64)
        return Mark(np.where(derived, earlier, self.time), self.recorded | derived)


def frame(steps: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row per iteration, by recording, device and model in time order; the columns of
    `SCHEMA["ascend.iterations.frame"]`.

    Parameters
    ----------
    steps : DataFrame
        The tables `step_trace`, gathered.

    Returns
    -------
    DataFrame, list of str
        And marks that are impossible, in sentences.
    """
    steps = _each_once(steps)
    end = Mark(*moments(steps, "iteration_end_ps"))
    fp = Mark(*moments(steps, "fp_start_ps"))
    bp = Mark(*moments(steps, "bp_end_ps"))
    own_start = Mark(*moments(steps, "iteration_start_ps"))
    first = _first(steps)
    previous_end = _previous_end(steps, end, first)
    reported = {
        name: floats(steps, f"{name}_us") / _US_OF_MS
        for name in ("iteration", "fp_to_bp", "iteration_refresh", "data_aug_bound")
    }
    gap = previous_end.until(fp)
    overlaps = previous_end.recorded & fp.recorded & (fp.time < previous_end.time)
    # For the first iteration the file has the time since another moment, mostly start-up.
    gap = np.where(np.isnan(gap) & ~first & ~fp.recorded, reported["data_aug_bound"], gap)
    middle = np.where(fp.recorded & bp.recorded, fp.until(bp), reported["fp_to_bp"])
    refresh = np.where(bp.recorded & end.recorded, bp.until(end), reported["iteration_refresh"])
    lead_in = own_start.until(fp)
    begin = own_start.or_else(fp)
    wall = np.where(previous_end.recorded, previous_end.until(end), begin.until(end))
    # Marks that a file omits, or rounds to a millisecond, are in its durations.
    parts = gap + middle + refresh
    wall = np.where((~fp.recorded | ~end.recorded) & ~np.isnan(parts), parts, wall)
    wall = np.where(np.isnan(wall), reported["iteration"], wall)
    # Missing marks follow from the end and the durations.
    bp = bp.or_before(end, refresh)
    fp = fp.or_before(bp, middle)
    exposed, hidden = _all_reduce(steps, fp, bp, end)
    start = previous_end.or_else(begin)
    table = pd.DataFrame(
        {
            "host": steps["host"],
            "device": steps["device"],
            "model": nullable(integers(steps, "model_id")),
            "iteration": integers(steps, "iteration_id"),
            "start_ms": np.where(start.recorded, start.time / _PS_OF_MS, np.nan),
            "iteration_ms": wall,
            "data_aug_ms": gap,
            "fp_to_bp_ms": middle,
            "grad_refresh_ms": refresh,
            "all_reduce_ms": exposed,
            "update_ms": refresh - exposed,
            "hidden_all_reduce_ms": hidden,
            "lead_in_ms": lead_in,
            "get_next_ms": floats(steps, "get_next_us") / _US_OF_MS,
            "reported_iteration_ms": reported["iteration"],
            "reported_data_aug_ms": reported["data_aug_bound"],
        }
    )
    table["warmup"] = _is_warmup(table)
    table["main"] = _is_main_model(table)
    return table, _doubts(table, int(overlaps.sum()))


def _each_once(steps: pd.DataFrame) -> pd.DataFrame:
    """Older exports repeat an iteration in the file of each; sorted by device, model and time."""
    model, iteration = integers(steps, "model_id"), integers(steps, "iteration_id")
    steps = steps.assign(
        model=model, _iteration=iteration, _end=moments(steps, "iteration_end_ps")[0]
    )
    steps = steps.drop_duplicates([*_MODEL, "_iteration", "_end"])
    return steps.sort_values([*_MODEL, "_end", "_iteration"], kind="stable", ignore_index=True)


def _first(steps: pd.DataFrame) -> Any:
    """True for rows that begin a model on a device."""
    return ~steps.duplicated(_MODEL).to_numpy(np.bool_)


def _previous_end(steps: pd.DataFrame, end: Mark, first: Any) -> Mark:
    """The end of the iteration before; unknown unless the row before is that iteration, which it
    need not be in a truncated or filtered file.
    """
    iteration = integers(steps, "iteration_id")
    next_number = iteration == _shifted(iteration, first) + 1
    follows = ~first & (next_number | (iteration == NOT_TOLD))
    previous_known = _shifted(end.recorded.astype(np.int64), first).astype(np.bool_)
    return Mark(_shifted(end.time, first), follows & end.recorded & previous_known)


def _shifted(values: Int64s, first: Any) -> Int64s:
    """The value of the row before; 0 for the first of a model."""
    previous = np.append(0, values[:-1]) if len(values) else values
    return np.where(first, 0, previous)


def _all_reduce(steps: pd.DataFrame, fp: Mark, bp: Mark, end: Mark) -> tuple[Floats, Floats]:
    """Time in ms of the gradients' all-reduce after BP End, and before it, hidden by the backward
    pass. Several at a time count once.
    """
    starts, ends = [], []
    for number, name in _all_reduce_columns(steps):
        moment, recorded = moments(steps, name)
        length = floats(steps, f"reduce_{number}_us")
        recorded = recorded & (length >= 0)
        moment = np.where(recorded, moment, 0)
        starts.append(moment)
        duration = np.nan_to_num(length * 1e6).astype(np.int64)
        ends.append(np.where(recorded, moment + duration, moment))
    if not starts:
        unknown = np.full(len(steps), np.nan)
        return unknown, unknown
    start, stop = np.stack(starts, 1), np.stack(ends, 1)
    exposed = _covered(start, stop, bp.time, end.time) / _PS_OF_MS
    hidden = _covered(start, stop, fp.time, bp.time) / _PS_OF_MS
    is_known = fp.recorded & bp.recorded & end.recorded
    return np.where(is_known, exposed, np.nan), np.where(is_known, hidden, np.nan)


def _all_reduce_columns(steps: pd.DataFrame) -> list[tuple[int, str]]:
    """The columns of start times, by number."""
    columns = []
    for name in map(str, steps.columns):
        match = re.fullmatch(r"reduce_(\d+)_start_ps", name)
        if match:
            columns.append((int(match[1]), name))
    return sorted(columns)


def _covered(start: Int64s, stop: Int64s, low: Int64s, high: Int64s) -> Int64s:
    """Time in ps of each row that its spans cover between two moments."""
    start, stop = np.maximum(start, low[:, None]), np.minimum(stop, high[:, None])
    row = np.repeat(np.arange(len(start)), start.shape[1])
    return union_by_group(row, start.ravel(), stop.ravel()).totals(len(start))


def _is_warmup(table: pd.DataFrame) -> Any:
    """True for the first iterations of a model, which compile and fill queues: two of four or more,
    one of fewer, none of one.
    """
    groups = table.groupby(_MODEL, sort=False, dropna=False)["iteration"]
    count = groups.transform("size")
    warmup = np.select([count >= 4, count >= 2], [2, 1], 0)
    return (groups.cumcount() < warmup).to_numpy(np.bool_)


def _is_main_model(table: pd.DataFrame) -> Any:
    """True for rows of the model with the most iterations of its device, of equal ones the longest:
    other models initialise or validate.
    """
    model = table["model"].fillna(NOT_TOLD)
    times = table.assign(model=model).groupby(_MODEL)["iteration_ms"]
    sizes = times.agg(["size", "sum"]).reset_index()
    order = [*KEYS, "size", "sum"]
    sizes = sizes.sort_values(order, ascending=[True, True, False, False], kind="stable")
    main = sizes.drop_duplicates(KEYS).set_index(KEYS)["model"]
    main_of_row = main.reindex(pd.MultiIndex.from_frame(table[KEYS])).to_numpy(np.int64)
    return main_of_row == model.to_numpy(np.int64)


def convention(rows: pd.DataFrame) -> str:
    """The start of the file's `Iteration Time`, as most iterations of a model agree."""
    rows = rows[rows["data_aug_ms"].notna() & rows["reported_iteration_ms"].notna()]
    reported = rows["reported_iteration_ms"].to_numpy(np.float64)
    end_to_end = rows["iteration_ms"].to_numpy(np.float64)
    inner = (rows["fp_to_bp_ms"] + rows["grad_refresh_ms"]).to_numpy(np.float64)
    lead = rows["lead_in_ms"].to_numpy(np.float64)
    is_end_to_end, is_from_fp = _same(reported, end_to_end), _same(reported, inner)
    is_own_start = _same(reported, inner + lead) & ~is_from_fp
    # A CSV does not have the own start, which is between the iteration before and FP Start.
    between = np.isnan(lead) & (reported > inner) & (reported < end_to_end)
    is_own_start |= between & ~is_end_to_end & ~is_from_fp
    fits = {WHOLE: is_end_to_end, OWN_START: is_own_start, FROM_FP: is_from_fp}
    for name, fit in fits.items():
        if fit.sum() * 2 > len(rows):
            return name
    return UNKNOWN


def _same(a: Floats, b: Floats) -> Any:
    return np.abs(a - b) <= np.maximum(_LEAST, _NEAR * np.abs(b))


def summary(iterations: pd.DataFrame) -> pd.DataFrame:
    """One row per model of a device; the columns of `SCHEMA["ascend.iterations.summary"]`.

    Means exclude warm-up.
    """
    rows = []
    times = ["iteration_ms", *PARTS, "grad_refresh_ms", "hidden_all_reduce_ms"]
    times.append("reported_iteration_ms")
    for key, group in iterations.groupby(_MODEL, sort=False, dropna=False):
        counted = group[~group["warmup"]]
        means = counted[times].mean()
        row: dict[str, Any] = dict(zip(("host", "device", "model"), key, strict=True))
        row |= {
            "main": bool(group["main"].iloc[0]),
            "iterations": len(group),
            "counted": len(counted),
            "sd_ms": float(counted["iteration_ms"].std()),
            "convention": convention(group),
        }
        iteration_ms = float(means["iteration_ms"])
        for name in times:
            row[name] = float(means[name])
        for name in (*PARTS, "grad_refresh_ms"):
            fraction = ratio(row[name], iteration_ms)
            row[f"{name.removesuffix('_ms')}_fraction"] = fraction
        rows.append(row)
    result = pd.DataFrame(rows, columns=SUMMARY)
    return result.astype({"model": "Int64"}) if len(result) else result


SUMMARY = frames.names("ascend.iterations.summary")


def _doubts(table: pd.DataFrame, overlapping: int) -> list[str]:
    """Sentences on impossible and missing marks."""
    sentences = []
    if overlapping:
        starts = "iteration starts" if overlapping == 1 else "iterations start"
        sentences.append(
            f"{overlapping:,} {starts} before the previous one ends: the Data Aug Bound is unknown"
            " there."
        )
    unmarked = int((table["fp_to_bp_ms"].isna() & table["iteration_ms"].notna()).sum())
    if unmarked:
        have = "iteration has" if unmarked == 1 else "iterations have"
        sentences.append(
            f"{unmarked:,} {have} no FP Start or BP End, as in inference: only the total time is"
            " known."
        )
    return sentences
