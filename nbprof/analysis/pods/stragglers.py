"""Ranks that hold the others up: the cost, whether it may be chance, and the cause.

A rank is compared by its own time (see own_time.py) with the median of the others, step by step.
Two tests, with a correction for the number of ranks: how often it is the slowest, by the tail of
the binomial distribution, and how far it is behind on average, by Student's t, which detects
several slow ranks as well. A step counts once, and less if steps resemble their neighbours. A pause
in a few steps is detected by its length, since chance alone is far shorter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.compare.welch import t_probability
from nbprof.analysis.pods.chance import LEVEL, NORMAL, Floats, of_others, tail
from nbprof.analysis.pods.clocks import LEAVING
from nbprof.analysis.pods.own_time import COLLECTIVES, OwnTime
from nbprof.core.trace import Int64s
from nbprof.display import wording
from nbprof.schema import frames

Flags = npt.NDArray[np.bool_]

LATE = 0.01
"""A straggler takes more than this fraction of the step longer than the others, on average."""
PAUSE, DEVIATIONS = 0.1, 8.0
"""A pause is a step that takes more than this fraction, and so many deviations of all ranks and
steps, longer than the others'.
"""
EXPLAINS = 0.5
"""A cause is at least this fraction of the delay."""
EVEN = 0.9
"""All kernels are slow if kernels of this part of the time are, each by at least half as much as
all together.
"""
_LEAST_FOR_MEMORY = 8
_NOTHING = 1e-6
"""Rounding, in ms."""
_FLOAT = 2.0**-53
_CALLED = {
    "device_compute": "device compute",
    "device_to_device": "copies between devices",
    "host_compute": "host compute",
    "kernel_launch": "kernel launch",
    "input": "input",
    "output": "output",
    "compile": "compilation",
    "other": "time in which nothing was recorded",
}


def stragglers(
    own_times: OwnTime | None,
    each: pd.DataFrame,
    steps: pd.DataFrame,
    table: pd.DataFrame,
    clocks: pd.DataFrame,
    devices: pd.DataFrame,
    memory: pd.DataFrame,
) -> pd.DataFrame:
    """One row per rank, slowest first: the columns of `p.pods.stragglers`.

    Parameters
    ----------
    own_times : OwnTime, optional
    each, steps, clocks, devices : DataFrame
        As `p.device_time.each_collective`, `run.steps`, of `clocks.clocks`, and `run.devices`.
    table : DataFrame
        Of `sums.a_step`.
    memory : DataFrame
        Of `memory.calls`, the rows of all hosts.
    """
    if own_times is None:
        return frames.empty("pods.stragglers")
    beyond = own_times.own_ms - of_others(own_times.own_ms)
    count = (~np.isnan(beyond)).sum(axis=0)
    slowest = slowest_of(beyond)
    often = np.bincount(slowest[slowest >= 0], minlength=beyond.shape[1])
    excess = _mean(beyond)
    typical = own_times.measured
    pauses = _pauses(beyond, typical)
    chance = _chance(beyond, often)
    limit = _limit(own_times, clocks)
    in_pauses = np.nansum(np.where(pauses, beyond, 0.0), axis=0) / np.maximum(count, 1)
    steady = (excess > limit) & (chance <= LEVEL)
    paused = (excess > limit) & (in_pauses > limit) & _pauses_more(pauses)
    straggler = steady | paused
    # Without communication it is unknown whether the others wait, and so whether steps would be
    # shorter.
    saved = np.full(len(own_times.ranks), np.nan)
    if own_times.by == COLLECTIVES:
        saved = gains(own_times)
    worst, worst_ms = _worst_steps(own_times, beyond)
    rows = own_times.ranks.assign(
        by=own_times.by,
        steps=count,
        own_ms=_mean(own_times.own_ms),
        excess_ms=excess,
        slowest_in=often,
        chance=chance,
        pauses=pauses.sum(axis=0),
        worst_step=worst,
        worst_ms=worst_ms,
        cost_ms=costs(own_times, slowest),
        saved_ms=saved,
        step_time_ms=typical - saved,
        straggler=straggler,
        pattern=np.select([steady, paused], ["steady", "pauses"], ""),
    )
    rows = rows.merge(_last(each), on=["host", "device"], how="left")
    evidence = _Evidence(own_times, steps, table, devices, memory)
    causes = [_Cause("", np.nan, "")] * len(rows)
    for rank in np.flatnonzero(straggler).tolist():
        causes[rank] = _cause(evidence, rank, None if steady[rank] else pauses[:, rank])
    rows["cause"] = [cause.name for cause in causes]
    rows["cause_ms"] = [cause.ms for cause in causes]
    rows["why"] = [cause.text for cause in causes]
    order = ["straggler", "excess_ms", "host", "device"]
    rows = rows.sort_values(
        order, ascending=[False, False, True, True], kind="stable", ignore_index=True
    )
    return frames.shaped("pods.stragglers", rows)


def _limit(own_times: OwnTime, clocks: pd.DataFrame) -> Floats:
    """By rank, the ms that it has to be behind to be a straggler.

    Own time is of one clock. But ranks that do not leave a collective together are not known to be
    behind by less than that.
    """
    offsets = pd.Series(dtype=np.float64)
    if LEAVING in clocks:
        offsets = clocks.set_index("host")[LEAVING]
    leaving = own_times.ranks["host"].map(offsets).to_numpy(np.float64)
    return np.asarray(np.fmax(LATE * own_times.measured, leaving), np.float64)


def _pauses_more(pauses: Flags) -> Flags:
    """Flags of the ranks with more pauses than chance gives, if all ranks pause alike."""
    counts = pauses.sum(axis=0)
    total, ranks = int(counts.sum()), len(counts)
    flags = []
    for count in counts.tolist():
        alone = count == total
        flags.append(count > 0 and (alone or tail(count, total, 1 / ranks) * ranks <= LEVEL))
    return np.array(flags, np.bool_)


def _worst_steps(own_times: OwnTime, beyond: Floats) -> tuple[Any, Floats]:
    """By rank, the number of the step in which it was furthest behind, and by how many ms."""
    is_known = ~np.isnan(beyond)
    worst = np.where(is_known, beyond, -np.inf).argmax(axis=0)
    has_step = np.asarray(is_known.any(axis=0), np.bool_)
    numbers = [
        own_times.step[step] if flag else pd.NA
        for step, flag in zip(worst.tolist(), has_step.tolist(), strict=True)
    ]
    ms = np.where(has_step, beyond[worst, np.arange(len(worst))], np.nan)
    return pd.array(numbers, "Int64"), ms


def slowest_of(beyond: Floats) -> Int64s:
    """int64[steps]: the rank that is furthest behind the others; -1 where none is behind, or all
    are alike.
    """
    filled = np.where(np.isnan(beyond), -np.inf, beyond)
    slowest = filled.argmax(axis=1).astype(np.int64)
    return np.where(filled.max(axis=1) > _NOTHING, slowest, -1)


def gains(own_times: OwnTime) -> Floats:
    """By rank, how much shorter steps would be on average, in ms, if it were as fast as the median
    of the others.
    """
    # The next slowest rank then counts; it is never faster than the median.
    values = np.where(np.isnan(own_times.own_ms), -np.inf, own_times.own_ms)
    if values.shape[1] < 2 or not len(values):
        return np.full(values.shape[1], np.nan)
    top = np.sort(values, axis=1)[:, -2:]
    with np.errstate(invalid="ignore"):
        ahead = np.where(values == top[:, 1:], values - top[:, :1], 0.0)
    return np.asarray(np.where(np.isfinite(ahead), ahead, 0.0).mean(axis=0))


def costs(own_times: OwnTime, slowest: Int64s) -> Floats:
    """The cost of each rank to the others in ms per step: their waiting in steps where it is the
    slowest, summed, each at most as far as it is slower; NaN if waiting is unknown.
    """
    ranks = own_times.own_ms.shape[1]
    if np.isnan(own_times.waited).all():
        return np.full(ranks, np.nan)
    rows = np.flatnonzero(slowest >= 0)
    behind = own_times.own_ms[rows, slowest[rows]][:, None] - own_times.own_ms[rows]
    cost = np.nansum(np.clip(np.minimum(own_times.waited[rows], behind), 0, None), axis=1)
    return np.asarray(np.bincount(slowest[rows], cost, ranks) / max(len(slowest), 1))


def _mean(values: Floats) -> Floats:
    count = (~np.isnan(values)).sum(axis=0)
    mean = np.full(values.shape[1], np.nan)
    return np.asarray(np.divide(np.nansum(values, axis=0), count, out=mean, where=count > 0))


def _chance(beyond: Floats, often: Int64s) -> Floats:
    """The probability that equal ranks would have one that is the slowest as often, or as far
    behind on average.
    """
    steps, ranks = (~np.isnan(beyond)).sum(axis=0), beyond.shape[1]
    mean, worth = _mean(beyond), _worth(beyond)
    spread = np.full(ranks, np.nan)
    for rank in np.flatnonzero(steps > 1).tolist():
        spread[rank] = np.nanvar(beyond[:, rank], ddof=1)
    # A rank that pauses varies more than the others; pauses of the others do not make it vary.
    spread = np.fmax(spread, np.nanmedian(spread) if (steps > 1).any() else np.nan)
    result = np.full(ranks, np.nan)
    for rank, count in enumerate(steps.tolist()):
        if not count:
            continue
        times = count * worth
        tails = [tail(int(often[rank] * worth), int(times), 1 / ranks)]
        far = 0.0
        if times >= 2 and spread[rank] > 0:
            far = float(mean[rank] / np.sqrt(spread[rank] / times))
        if far > 0:
            # A probability closer to 1 than floats can be leaves a rest that is not 0.
            tails.append(max(1 - t_probability(far, (times - 1) * (ranks - 1)), _FLOAT))
        result[rank] = min(1.0, 2 * ranks * min(tails))
    return result


def _worth(beyond: Floats) -> float:
    """The number of independent steps that a step is worth: (1 - r) / (1 + r), with r the
    correlation of neighbours over all ranks.

    For short series r is estimated too small, by (1 + 3 r) / n. (M. H. Quenouille, Biometrika 36
    (1949) 38.)
    """
    steps = len(beyond)
    if steps < _LEAST_FOR_MEMORY:
        return 1.0
    off = np.nan_to_num(beyond - _mean(beyond))
    square = (off * off).sum(axis=0)
    # Each rank counts the same, also one that pauses.
    used = square > steps * _NOTHING**2
    if not used.any():
        return 1.0
    r = float(((off[:-1] * off[1:]).sum(axis=0)[used] / square[used]).mean())
    r = min((r + 1 / steps) / (1 - 3 / steps), 0.99)
    return (1 - r) / (1 + r) if r > 0 else 1.0


def _pauses(beyond: Floats, typical: float) -> Flags:
    """bool[steps, ranks]: steps in which a rank was behind by more than the ranks vary, and than it
    usually is.
    """
    is_known = ~np.isnan(beyond).all(axis=0)
    usual = np.zeros(beyond.shape[1])
    usual[is_known] = np.clip(np.nanmedian(beyond[:, is_known], axis=0), 0, None)
    sigma = NORMAL * float(np.nanmedian(np.abs(beyond))) if is_known.any() else 0.0
    return np.nan_to_num(beyond - usual) > max(PAUSE * typical, DEVIATIONS * sigma)


def _last(each: pd.DataFrame) -> pd.DataFrame:
    """By rank, its collectives, and in how many of them it was the last."""
    matched = each[each["match"] >= 0] if len(each) else each
    if not len(matched):
        counts = dict.fromkeys(("device", "collectives", "last_in"), pd.array([], "Int64"))
        return pd.DataFrame({"host": [], **counts})
    # If several came at the same time, none was the last.
    came_last = matched["last"] & (matched["late_us"] > 0)
    by_rank = came_last.groupby([matched["host"], matched["device"]], sort=False)
    sums = by_rank.agg(["size", "sum"]).reset_index()
    return sums.rename(columns={"size": "collectives", "sum": "last_in"}).astype(
        {"device": "Int64", "collectives": "Int64", "last_in": "Int64"}
    )


class _Evidence(NamedTuple):
    """The tables that the causes of stragglers are found in, as in `stragglers`."""

    own_times: OwnTime
    steps: pd.DataFrame
    table: pd.DataFrame
    devices: pd.DataFrame
    memory: pd.DataFrame


class _Cause(NamedTuple):
    """The cause of a delay, its ms per step, and a sentence."""

    name: str
    ms: float
    text: str


def _cause(evidence: _Evidence, rank: int, paused: Flags | None) -> _Cause:
    """The cause of the delay of a rank in all steps, or in those in which it `paused`."""
    own_times = evidence.own_times
    host = str(own_times.ranks["host"].iloc[rank])
    steps = evidence.steps[evidence.steps["counted"].astype(bool)]
    delay = own_times.own_ms[:, rank] - of_others(own_times.own_ms)[:, rank]
    when = "a step"
    if paused is not None:
        in_pauses = own_times.numbers["number"].isin(own_times.step[paused].tolist())
        numbers = own_times.numbers[in_pauses]
        steps = steps.merge(numbers[["host", "start_ms"]], on=["host", "start_ms"])
        delay = delay[paused]
        when = "in that step" if paused.sum() == 1 else "in those steps"
    least_ms = EXPLAINS * float(np.nanmean(delay))
    columns = [f"{name}_ms" for name in CATEGORIES if name in _CALLED]
    steps = steps[steps["host"].isin(own_times.ranks["host"])]
    means = steps.groupby("host", sort=False)[columns].mean()
    if host not in means.index:
        return _Cause("", np.nan, "The recording does not show what it does differently.")
    values = means.to_numpy(np.float64).T
    column = means.index.get_loc(host)
    usual, of_host = of_others(values)[:, column], values[:, column]
    more = np.nan_to_num(of_host - usual)
    largest = int(more.argmax())
    if more[largest] < least_ms:
        delayed = "the delay" if paused is None else "the pause"
        return _Cause("", np.nan, f"No part of its steps explains {delayed} alone.")
    category = columns[largest].removesuffix("_ms")
    called = _CALLED[category]
    text = (
        f"{called[0].upper()}{called[1:]}: {wording.millis(of_host[largest])} {when}; the median of"
        f" the others is {wording.millis(usual[largest])}."
    )
    by_category = _Cause(category, float(more[largest]), text)
    if category == "device_compute" and paused is None:
        return _kernels(host, evidence.table, evidence.devices) or by_category
    if category == "host_compute":
        return _memory(host, steps, evidence.memory, least_ms, when) or by_category
    return by_category


def _memory(
    host: str, steps: pd.DataFrame, memory: pd.DataFrame, least_ms: float, when: str
) -> _Cause | None:
    """Allocating and freeing device memory as the cause of a delay; None if it is not."""
    rows = memory.merge(steps[["host", "group"]].drop_duplicates(), on=["host", "group"])
    host_rows = rows[rows["host"] == host]
    if host_rows.empty:
        return None
    # Hosts without such calls spend no time in them.
    often = steps.groupby("host", sort=False).size()
    total_ms = rows.groupby("host")["ms"].sum().reindex(often.index).fillna(0.0)
    means = (total_ms / often).to_numpy(np.float64)
    index = often.index.get_loc(host)
    usual = float(of_others(means[None, :])[0, index])
    more = float(means[index]) - usual
    if not more >= least_ms:
        return None
    name = host_rows.groupby("name")["ms"].sum().idxmax()
    calls = host_rows["calls"].sum() / often[host]
    text = (
        f"Driver calls that allocate or free device memory, mostly {name}:"
        f" {wording.millis(means[index])} in {calls:.3g} calls {when}; the median of the others is"
        f" {wording.millis(usual)}."
    )
    return _Cause("memory", more, text)


def _kernels(host: str, table: pd.DataFrame, devices: pd.DataFrame) -> _Cause | None:
    """The cause of slow device compute: a lower clock, all kernels, or one kernel (an op if there
    are no kernels); None if it is neither.
    """
    if not len(table) or host not in table.columns:
        return None
    rows = _device_rows(table, "kernel")
    if not len(rows):
        rows = _device_rows(table, "op")
    if not len(rows):
        return None
    column = list(table.columns).index(host)
    values = rows.to_numpy(np.float64)
    time, usual = values[:, column], of_others(values)[:, column]
    more = time - usual
    total, is_used = float(more.sum()), usual > 0
    if not total > 0 or not is_used.any():
        return None
    ratio = float(time[is_used].sum() / usual[is_used].sum())
    slow = time[is_used] >= (1 + (ratio - 1) / 2) * usual[is_used]
    if is_used.sum() > 1 and usual[is_used][slow].sum() >= EVEN * usual[is_used].sum():
        return _every_kernel(host, devices, total, ratio)
    top = int(more.argmax())
    if more[top] < EXPLAINS * total:
        return None
    name = str(rows.index.get_level_values("name")[top])
    text = (
        f"{name}: {wording.millis(time[top])} a step; the median of the others is"
        f" {wording.millis(usual[top])}."
    )
    return _Cause("kernel", float(more[top]), text)


def _device_rows(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    on_device = table.index.get_level_values("where") == "device"
    return table[on_device & (table.index.get_level_values("kind") == kind)]


def _every_kernel(host: str, devices: pd.DataFrame, total: float, ratio: float) -> _Cause:
    text = f"All kernels take {ratio:.2f} times as long as the median of the others"
    if "clock_khz" in devices.columns:
        clock = devices.groupby("host", sort=False)["clock_khz"].mean()
        usual = float(clock.drop(host, errors="ignore").median()) if len(clock) else np.nan
        if host in clock.index and clock[host] < usual * 0.99:
            own_ghz, usual_ghz = clock[host] / 1e6, usual / 1e6
            text += f": its clock is {own_ghz:.2f} GHz, theirs {usual_ghz:.2f} GHz."
            return _Cause("clock", total, text)
    return _Cause("every_kernel", total, f"{text}, as with a lower clock or power limit.")
