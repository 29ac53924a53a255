"""Which steps averages include: training steps, without the first ones, which compile and warm up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

# A leading step that takes this many times the median of the others compiles or warms up.
WARMUP_FACTOR = 4.0


# Where other steps take no more than this many times the time of training, training is what averages are of. Steps that are runs of a
# program have the name of its function, as `train_step`.
TRAINING, TRAINING_FACTOR = "train", 4.0


def number_between(numbers: pd.Series) -> pd.Series:
    """Step numbers, with missing ones (NaN) counted on from the previous step, or back from the next.

    Where no step states a number, steps are counted from 0.
    """
    stated = numbers.to_numpy(np.float64)
    if np.isnan(stated).all():
        return pd.Series(np.arange(len(stated)), numbers.index)
    out = stated.copy()
    first = int(np.argmax(~np.isnan(stated)))
    for i in range(first - 1, -1, -1):
        out[i] = out[i + 1] - 1
    for i in range(first + 1, len(out)):
        if np.isnan(out[i]):
            out[i] = out[i - 1] + 1
    return pd.Series(out.astype(np.int64), numbers.index)


def averaged(time: pd.Series) -> str:
    """The kind of step that averages are of, from the time by kind: the one with the most, but training where validation takes little more.

    Else the figures of a training run would be those of its validation when that happens to take longer.
    """
    most = str(time.idxmax())
    training = [str(kind) for kind in time.index if str(kind).startswith(TRAINING)]
    longest_training = max(training, key=time.__getitem__, default="")
    return longest_training if training and TRAINING_FACTOR * time[longest_training] >= time[most] else most


def warming(steps: pd.DataFrame, warmup: int | None) -> pd.Series:
    """Whether each step is warm-up: one of the first `warmup` of its host, or, for None, one that is found to be."""
    if warmup is not None:
        first = steps.groupby("host", sort=False).cumcount() < warmup
        if not first.all():
            return first
    return steps.groupby(["host", "kind"], sort=False)["step_time_ms"].transform(_warmup).astype(bool)


def starting(steps: pd.DataFrame) -> pd.Series:
    """Whether each step is among the first iterations of its graph, as in `p.ascend.iterations`: two of four or more, one of fewer."""
    groups = steps.groupby("host", sort=False)["step"]
    count = groups.transform("size")
    return groups.cumcount() < np.where(count >= 4, 2, np.where(count >= 2, 1, 0))


def about_warmup(steps: pd.DataFrame, warmup: int | None) -> str:
    """A sentence on which steps are warm-up, and why; empty if there are no steps."""
    if not len(steps):
        return ""
    count = int(steps[steps["warmup"].astype(bool)].groupby("host").size().max()) if steps["warmup"].any() else 0
    which = {0: "no step is", 1: "the first step is"}.get(count, f"the first {count} steps are")
    if warmup is not None and warmup < int(steps.groupby("host").size().min()):
        return f"warm-up: {which} excluded from averages, as requested by --warmup {warmup}"
    why = (
        f"none of the first three steps takes over {WARMUP_FACTOR:g} times the median of the following ones"
        if not count
        else (f"over {WARMUP_FACTOR:g} times the median of the following ones")
    )
    none_left = f"; --warmup {warmup} would leave no step" if warmup is not None else ""
    return f"warm-up: {which} excluded from averages ({why}){none_left}"


def _warmup(series: pd.Series) -> npt.NDArray[np.bool_]:
    """The leading steps that take far longer than the rest."""
    times = np.asarray(series, np.float64)
    out = np.zeros(len(times), np.bool_)
    for i in range(min(3, len(times) - 4)):
        if times[i] > WARMUP_FACTOR * float(np.median(times[i + 1 :])):
            out[i] = True
        else:
            break
    return out
