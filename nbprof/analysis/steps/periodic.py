"""Every k-th step slower than the others: found by a test against chance, with what runs in these
steps and not in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.core.factorize import used_codes
from nbprof.core.trace import Int64s, Trace

CHANCE = 0.01
"""A rhythm that steps in random order have more often than this is none."""
_LEAST = 3
"""Fewer slow steps are no rhythm."""
MOST_PERIOD = 100
_MOST_CELLS = 1 << 24
"""Of a table of steps by names."""
# A step that updates after several batches is slower by design.
_UPDATE = re.compile(r"optimi[sz]er|zero_grad|apply_gradients", re.IGNORECASE)


@dataclass(frozen=True)
class Periodic:
    """Slow steps at equal distances, on the host where chance explains them least.

    Attributes
    ----------
    every : int
        The distance from one slow step to the next.
    slow, steps : int
        How many steps are slow, of how many.
    chance : float
        How likely steps in random order have such a rhythm, of any distance.
    extra_ms : float
        By how much a slow step takes longer than another, of the medians.
    category : str
        The category with most of that time; of it are `category_ms`.
    category_ms : float
    what : str
        The event that runs more often in each slow step than in any other one, and takes most time;
        empty where there is none.
    what_ms : float
        Its time in a slow step above that in others.
    more, fewer : float
        How often it runs in a slow step, and in another.
    """

    every: int
    slow: int
    steps: int
    chance: float
    extra_ms: float
    category: str
    category_ms: float
    what: str = ""
    what_ms: float = 0.0
    more: float = 0.0
    fewer: float = 0.0

    @property
    def per_step_ms(self) -> float:
        """The cost of the slow steps per step, on average."""
        return self.extra_ms * self.slow / self.steps

    @property
    def unrecorded_ms(self) -> float:
        """The part of that in no recorded event."""
        if self.category == "other":
            return self.category_ms * self.slow / self.steps
        return 0.0

    @property
    def updates(self) -> bool:
        """True if the optimizer runs in these steps."""
        return bool(_UPDATE.search(self.what))


class RunRhythm(NamedTuple):
    """The rhythm of all steps of the run by the clock; see `Periodic`.

    Attributes
    ----------
    numbers : Int64s
        The numbers of the slow steps that were recorded.
    every, slow, steps, chance :
        Of all steps of the run.
    """

    numbers: Int64s
    every: int
    slow: int
    steps: int
    chance: float


def find(steps: pd.DataFrame, trace: Trace, by_clock: RunRhythm | None = None) -> Periodic | None:
    """The rhythm of the steps in the averages; None if chance explains it.

    Where too few of them are slow to tell, that is the rhythm of the run, if it is given.
    """
    best: tuple[float, int, int, pd.DataFrame] | None = None
    for _, host_steps in counted(steps).groupby("host", sort=False):
        in_time = host_steps.sort_values("start_ms")
        pattern = rhythm(in_time["step_time_ms"].to_numpy(float))
        if pattern is not None and pattern[0] <= CHANCE and (best is None or pattern[0] < best[0]):
            best = (*pattern, in_time)
    if best is None:
        return _found_again(steps, trace, by_clock) if by_clock is not None else None
    chance, every, first, host_steps = best
    times = host_steps["step_time_ms"].to_numpy(float)
    if _stands_apart(times, first, every):
        first += every
    since = np.arange(len(host_steps)) - first
    slow = (since >= 0) & (since % every == 0)
    return _described((every, int(slow.sum()), len(host_steps), chance), host_steps, slow, trace)


def _found_again(steps: pd.DataFrame, trace: Trace, by_clock: RunRhythm) -> Periodic | None:
    """The rhythm of the run, with the events of its recorded steps."""
    host_steps = counted(steps).sort_values("start_ms")
    slow = host_steps["step"].isin(by_clock.numbers.tolist()).to_numpy(np.bool_)
    if not slow.any() or slow.all() or host_steps["host"].nunique() > 1:
        return None
    of_run = by_clock.every, by_clock.slow, by_clock.steps, by_clock.chance
    return _described(of_run, host_steps, slow, trace)


def _described(
    rhythm_of_run: tuple[int, int, int, float],
    host_steps: pd.DataFrame,
    slow: npt.NDArray[np.bool_],
    trace: Trace,
) -> Periodic:
    extra = {
        name: _more(host_steps[f"{name}_ms"].to_numpy(float), slow)
        for name in ("step_time", *CATEGORIES)
    }
    category = max(CATEGORIES, key=lambda name: extra[name])
    every, count, steps, chance = rhythm_of_run
    return Periodic(
        every,
        count,
        steps,
        chance,
        extra["step_time"],
        category,
        extra[category],
        *_only_there(host_steps, slow, trace),
    )


def _stands_apart(times: npt.NDArray[np.float64], first: int, every: int) -> bool:
    """True if the first slow step is slow for a different reason, such as a warm-up: its period is
    less than half of the later ones.
    """
    slow = times[first::every]
    usual = float(np.median(np.delete(times, np.arange(first, len(times), every))))
    return len(slow) > _LEAST and slow[0] - usual < (float(np.median(slow[1:])) - usual) / 2


def _more(values: npt.NDArray[np.float64], slow: npt.NDArray[np.bool_]) -> float:
    values = np.nan_to_num(values)
    return float(np.median(values[slow]) - np.median(values[~slow]))


def rhythm(times: npt.NDArray[np.float64]) -> tuple[float, int, int] | None:
    """The chance, the distance and the first of the slow steps that chance explains least; None for
    fewer than six steps.
    """
    longest = min(len(times) // _LEAST, MOST_PERIOD)
    if longest < 2:
        return None
    return chance_of(times, range(2, longest + 1), longest)


def chance_of(
    times: npt.NDArray[np.float64], distances: Iterable[int], longest: int
) -> tuple[float, int, int]:
    """The same of some distances, of those up to `longest` that may have been tried.

    If steps came in random order, any m of n would be among the t slowest with probability C(t, m)
    / C(n, m); that, times the number of rhythms that were tried, bounds the chance of finding one.
    """
    count = len(times)
    position = np.empty(count, np.int64)
    position[np.argsort(-times, kind="stable")] = np.arange(1, count + 1)
    factorial = np.append(0.0, np.cumsum(np.log(np.arange(1, count + 1))))
    best = (np.inf, 0, 0)
    for every in distances:
        rounds = np.append(position, np.zeros(-count % every, np.int64)).reshape(-1, every)
        # Also without the first of them: what is done behind step 0, 8, 16 … is often skipped at 0.
        for skipped in (0, 1):
            last, number = rounds[skipped:].max(axis=0), (rounds[skipped:] > 0).sum(axis=0)
            log = (
                factorial[last]
                - factorial[last - number]
                - factorial[count]
                + factorial[count - number]
            )
            log[number < _LEAST] = np.inf
            phase = int(np.argmin(log))
            best = min(best, (float(log[phase]), every, phase + skipped * every))
    tried = longest * (longest + 1) - 2
    return min(float(np.exp(best[0])) * tried, 1.0), best[1], best[2]


def _only_there(
    steps: pd.DataFrame, slow: npt.NDArray[np.bool_], trace: Trace
) -> tuple[str, float, float, float]:
    """The event that runs more often in each slow step than in any other: its name, ms more, and
    how often it runs in both.
    """
    begin, end = step_bounds(steps)
    events = trace.events
    on_host = trace.lanes["host"].to_numpy(object) == steps["host"].iloc[0]
    step = np.searchsorted(begin, events.start, side="right") - 1
    rows = np.flatnonzero((step >= 0) & (on_host.all() or on_host[events.lane]))
    rows = rows[events.start[rows] < end[step[rows]]]
    step = step[rows]
    names, code = used_codes(events.name[rows], len(trace.names))
    # A single slow step is the only one with the name of its marker.
    marks = np.isin(trace.names[names].astype(object), steps["name"].to_numpy(object))
    # Events that run more often in each slow step do so on average, and at least once in each: most
    # names do not, and need no count by step.
    in_slow, in_all = (
        np.bincount(code[slow[step]], minlength=len(names)),
        np.bincount(code, minlength=len(names)),
    )
    likely = (
        ~marks
        & (in_slow >= slow.sum())
        & (in_slow * (~slow).sum() > (in_all - in_slow) * slow.sum())
    )
    retained = np.flatnonzero(likely[code])
    rows, step, code, names = (
        rows[retained],
        step[retained],
        (np.cumsum(likely) - 1)[code[retained]],
        names[likely],
    )
    if not len(names) or len(names) * len(steps) > _MOST_CELLS:
        return "", 0.0, 0.0, 0.0
    often = np.bincount(step * len(names) + code, minlength=len(steps) * len(names)).reshape(
        len(steps), len(names)
    )
    separated = often[slow].min(axis=0) > often[~slow].max(axis=0)
    if not separated.any():
        return "", 0.0, 0.0, 0.0
    retained = np.flatnonzero(separated[code])
    rows, step, code = rows[retained], step[retained], (np.cumsum(separated) - 1)[code[retained]]
    names, often = names[separated], often[:, separated].T
    start = events.start[rows]
    time = np.minimum(start + events.duration[rows], end[step]) - start
    took = (
        np.bincount(code * len(steps) + step, time.astype(np.float64), often.size).reshape(
            often.shape
        )
        / 1e9
    )
    more = took[:, slow].mean(axis=1) - took[:, ~slow].mean(axis=1)
    # Of nested events the outermost takes as long or longer.
    largest = int(np.argmax(more))
    mean = often[largest, slow].mean(), often[largest, ~slow].mean()
    return str(trace.names[names[largest]]), float(more[largest]), float(mean[0]), float(mean[1])
