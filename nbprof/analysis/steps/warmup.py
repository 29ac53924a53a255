"""The steps in averages: training steps, without the first ones, which compile and warm up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.core.factorize import unique_rows
from nbprof.core.runs import rows_by_code
from nbprof.core.trace import Int64s
from nbprof.core.warmup_limits import ALIKE, FEW_FACTOR, FOLLOWING, MOST_WARMUP, WARMUP_FACTOR

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# A cell trains once more, or twice, to compare models; what is traced more often is made anew in a
# loop.
_MOST_TRAININGS = 2


# Where other steps take no more than this many times the time of training, training is what
# averages are of. Steps that are runs of a program have the name of its function, as `train_step`.
TRAINING, TRAINING_FACTOR = ("train", "ProfilerStep"), 4.0


def number_between(stated_numbers: npt.NDArray[np.float64]) -> Int64s:
    """Step numbers, with missing ones (NaN) counted on from the previous step, or back from the
    next.

    Where no step states a number, steps are counted from 0.
    """
    if np.isnan(stated_numbers).all():
        return np.arange(len(stated_numbers))
    is_known = ~np.isnan(stated_numbers)
    row = np.arange(len(stated_numbers))
    # Of each step, the last one up to it that states its number, or the first of all.
    nearest = np.maximum.accumulate(np.where(is_known, row, int(np.argmax(is_known))))
    return (stated_numbers[nearest] + (row - nearest)).astype(np.int64)


def averaged(time: pd.Series) -> str:
    """The kind of step that averages are of, from the time by kind: the one with the most, but
    training where validation takes little more.

    Else the figures of a training run would be those of its validation when that happens to take
    longer.
    """
    main_kind = str(time.idxmax())
    training = [str(kind) for kind in time.index if str(kind).startswith(TRAINING)]
    if training:
        longest_training = max(training, key=time.__getitem__)
        if TRAINING_FACTOR * time[longest_training] >= time[main_kind]:
            return longest_training
    return main_kind


_CROWD, _CROWD_FACTOR = 3, 2


def crowded(steps: pd.DataFrame) -> pd.Series:
    """Flags of the steps that asked for several times the batches of the other steps of their host
    and kind, as a step with a validation does.

    The call that finds a loader at its end counts as well, so that the first step of an epoch has
    one more.
    """
    if "batches" not in steps or not len(steps):
        return pd.Series(np.zeros(len(steps), np.bool_), steps.index)
    # Of two steps, the one with fewer batches is the usual one.
    _, of_step = unique_rows(*(pd.factorize(steps[key])[0] for key in ("host", "kind")))
    usual = _lower_median(of_step, steps["batches"].to_numpy(np.float64))[of_step]
    return (steps["batches"] >= _CROWD) & (steps["batches"] > _CROWD_FACTOR * usual + 1)


def _lower_median(group: Int64s, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The median of the values of each group, the lower of two; NaN where none is known."""
    is_known = np.flatnonzero(~np.isnan(values))
    order = is_known[np.lexsort((values[is_known], group[is_known]))]
    count = np.bincount(group[is_known], minlength=int(group.max(initial=-1)) + 1)
    first = np.cumsum(count) - count
    return np.where(
        count > 0, np.append(values[order], np.nan)[first + np.maximum(count - 1, 0) // 2], np.nan
    )


def about_crowded(steps: pd.DataFrame, unit: Unit = MARKED) -> str:
    """The steps that hold the batches of several, as a sentence; empty without any."""
    full = crowded(steps)
    if not full.any():
        return ""
    numbers = list(dict.fromkeys(steps.loc[full, "step"].tolist()))
    listed = ", ".join(map(str, numbers[:_MOST_NUMBERS]))
    if len(numbers) > _MOST_NUMBERS:
        listed += " …"
    low, high = int(steps.loc[full, "batches"].min()), int(steps.loc[full, "batches"].max())
    held = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    noun = unit.noun if len(numbers) == 1 else unit.plural
    usual = steps.loc[~full & steps["kind"].isin(steps.loc[full, "kind"]), "batches"].median()
    return (
        f"{noun} {listed} ({held} requests to DataLoaders where others make {usual:,.0f}, as with a"
        " validation in between)"
    )


_MOST_NUMBERS = 4


def warming(steps: pd.DataFrame, warmup: int | None) -> pd.Series:
    """Flags of the warm-up steps: the first `warmup` of each host, or, for None, those detected."""
    if warmup is not None:
        first = steps.groupby("host", sort=False).cumcount() < warmup
        if not first.all():
            return first
    flags = np.zeros(len(steps), np.bool_)
    _, of_step = unique_rows(*(pd.factorize(steps[key])[0] for key in ("host", "kind")))
    time = steps["step_time_ms"].to_numpy(np.float64)
    truncated, traces = steps["cut"].to_numpy(np.bool_), steps["traces"].to_numpy(np.bool_)
    for rows in rows_by_code(of_step):
        flags[rows] = _warmup(time[rows], truncated[rows], traces[rows])
    return pd.Series(flags, steps.index)


def starting(steps: pd.DataFrame) -> pd.Series:
    """Flags of the first iterations of each graph, as in `p.ascend.iterations`: two of four or
    more, one of fewer.
    """
    groups = steps.groupby("host", sort=False)["step"]
    count = groups.transform("size")
    return groups.cumcount() < np.where(count >= 4, 2, np.where(count >= 2, 1, 0))


def about_warmup(steps: pd.DataFrame, warmup: int | None, unit: Unit = MARKED) -> str:
    """A sentence on which steps are warm-up, and why; empty if there are no steps, or if the
    recording is the only one.
    """
    if not len(steps) or unit.is_recording:
        return ""
    warm = steps["warmup"].astype(bool)
    count = int(steps[warm].groupby("host").size().max()) if warm.any() else 0
    subject = {0: f"no {unit.noun} is", 1: f"the first {unit.noun} is"}.get(
        count, f"the first {count} {unit.plural} are"
    )
    if count and (warm & ~warm.groupby(steps["host"], sort=False).cummin()).any():
        # A step that is cut leads, and is not averaged either.
        numbers = steps["step"][warm].drop_duplicates().tolist()
        if len(numbers) == 1:
            subject = f"{unit.noun} {numbers[0]} is"
        else:
            subject = f"{unit.plural} {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} are"
    if warmup is not None and warmup < int(steps.groupby("host").size().min()):
        return f"warm-up: {subject} excluded from averages, as requested by --warmup {warmup}"
    why = f"over {WARMUP_FACTOR:g} times the median of the following ones"
    if steps.groupby(["host", "kind"]).size().max() <= FOLLOWING:
        why = _why_of_few(steps, count)
    elif not count:
        why = f"no leading {unit.noun} takes {why}"
    none_left = f"; --warmup {warmup} would leave no {unit.noun}" if warmup is not None else ""
    return f"warm-up: {subject} excluded from averages ({why}){none_left}"


def _why_of_few(steps: pd.DataFrame, excluded: int) -> str:
    """Why the first of a few steps is warm-up, or why that is not known; of several hosts the one
    where it takes the longest.
    """
    of_hosts = [first_factor(rows) for _, rows in steps.groupby(["host", "kind"])]
    factors = [factor for factor in of_hosts if factor is not None]
    if not factors:
        return "too few to tell: 2 or more are needed"
    if excluded:
        return f"{max(factors):.1f} times the longest of the following ones"
    if max(factors) > FEW_FACTOR:
        return (
            f"too few to tell: the first takes {max(factors):.1f} times the longest of the"
            " following ones"
        )
    return f"the first takes less than {FEW_FACTOR:g} times the following ones"


def first_factor(steps: pd.DataFrame) -> float | None:
    """How many times as long the first step is as the longest of the following ones, except cut
    ones; None for fewer than two, or for many.
    """
    times = steps["step_time_ms"].to_numpy(np.float64)[~steps["cut"].to_numpy(np.bool_)]
    if len(steps) > FOLLOWING or len(times) < 2 or not times[1:].max() > 0:
        return None
    return float(times[0] / times[1:].max())


def _first_of_few(times: Floats, is_cut: Flags) -> Flags:
    """The first of two to four steps, if it takes far longer than each other, or longer than all
    others, which are alike.
    """
    result = np.zeros(len(times), np.bool_)
    used = np.flatnonzero(~is_cut)
    if len(used) < 2:
        return result
    first, rest = times[used[0]], times[used[1:]]
    alike = len(rest) > 1 and rest.max() <= ALIKE * rest.min()
    result[used[0]] = first > (FEW_FACTOR if alike else WARMUP_FACTOR) * rest.max() > 0
    return result


def _warmup(times: Floats, is_cut: Flags, traces: Flags) -> Flags:
    """The leading steps that take far longer than the rest; a cut step is in no average, and does
    not decide on the step after it.

    So does the first step of a further training, which traces functions of its own; where they are
    traced more often than a cell trains, or again a few steps later, that is what the loop costs.
    """
    if len(times) <= FOLLOWING:
        return _first_of_few(times, is_cut)
    flags = np.zeros(len(times), np.bool_)
    compared = len(times) - FOLLOWING

    def long(i: int) -> bool:
        return bool(times[i] > WARMUP_FACTOR * float(np.median(times[i + 1 :])))

    for i in range(min(MOST_WARMUP, compared)):
        flags[i] = long(i)
        if not (flags[i] or is_cut[i]):
            break
    later = [
        i
        for i in np.flatnonzero(traces).tolist()
        if not flags[: i + 1].all() and (i >= compared or long(i))
    ]
    if len(later) <= _MOST_TRAININGS and all(np.diff([*later, len(times)]) > FOLLOWING):
        for i in later:
            flags[i] = long(i)
    return flags
