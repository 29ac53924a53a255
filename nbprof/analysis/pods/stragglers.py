"""Which rank holds the others up, what that costs them, whether it is chance, and why.

A rank is compared by its own time (see own_time.py) with the median of the others, step by step.
Two tests, with a correction for the number of ranks: how often it is the slowest, by the tail of
the binomial distribution, and how far it is behind on average, by Student's t, which tells several
slow ranks as well. A step counts once, and less where steps resemble their neighbours. A pause in a
few steps is told by its length, since chance alone is far shorter.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.compare.welch import t_probability
from nbprof.analysis.pods.chance import LEVEL, NORMAL, Floats, of_others, tail
from nbprof.analysis.pods.clocks import LEAVING
from nbprof.analysis.pods.own_time import COLLECTIVES, OwnTime
from nbprof.core.trace import Int64s
from nbprof.display import wording
from nbprof.schema import frames

LATE = 0.01
"""A straggler takes more than this fraction of the step longer than the others, on average."""
PAUSE, DEVIATIONS = 0.1, 8.0
"""A pause is a step that takes more than this fraction, and so many deviations of all ranks and
steps, longer than the others'.
"""
EXPLAINS = 0.5
"""What is named as the reason makes up at least this part of the delay."""
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
    own : OwnTime, optional
    each, steps, clocks, devices : DataFrame
        As `p.device_time.each_collective`, `run.steps`, of `clocks.clocks`, and `run.devices`.
    table : DataFrame
        Of `sums.a_step`.
    memory : DataFrame
        Of `memory.calls`, the rows of all hosts.
    """
    if own_times is None:
        return frames.empty("pods.stragglers")
    beyond = own_times.own - of_others(own_times.own)
    is_known = ~np.isnan(beyond)
    count = is_known.sum(axis=0)
    slowest = slowest_of(beyond)
    often = np.bincount(slowest[slowest >= 0], minlength=beyond.shape[1])
    excess = _mean(beyond)
    typical = own_times.measured
    pauses = _pauses(beyond, typical)
    chance = _chance(beyond, often)
    # Own time is of one clock. But ranks that do not leave a collective together are not known to
    # be behind by less than that.
    offsets = (
        clocks.set_index("host")[LEAVING] if LEAVING in clocks else pd.Series(dtype=np.float64)
    )
    limit = np.fmax(LATE * typical, own_times.ranks["host"].map(offsets).to_numpy(np.float64))
    in_pauses = np.nansum(np.where(pauses, beyond, 0.0), axis=0) / np.maximum(count, 1)
    steady = (excess > limit) & (chance <= LEVEL)
    many = pauses.sum(axis=0)
    rare = [
        bool(k)
        and (k == many.sum() or tail(int(k), int(many.sum()), 1 / len(many)) * len(many) <= LEVEL)
        for k in many.tolist()
    ]
    paused = (excess > limit) & (in_pauses > limit) & np.array(rare, np.bool_)
    straggler = steady | paused
    # Without communication it is unknown whether the others wait, and so whether steps would be
    # shorter.
    saved = (
        gains(own_times) if own_times.by == COLLECTIVES else np.full(len(own_times.ranks), np.nan)
    )
    worst = np.where(is_known, beyond, -np.inf).argmax(axis=0)
    out = own_times.ranks.assign(
        by=own_times.by,
        steps=count,
        own_ms=_mean(own_times.own),
        excess_ms=excess,
        slowest_in=often,
        chance=chance,
        pauses=pauses.sum(axis=0),
        worst_step=pd.array(
            [own_times.step[s] if n else pd.NA for s, n in zip(worst, count, strict=True)], "Int64"
        ),
        worst_ms=np.where(count > 0, beyond[worst, np.arange(len(worst))], np.nan),
        cost_ms=costs(own_times, slowest),
        saved_ms=saved,
        step_time_ms=typical - saved,
        straggler=straggler,
        pattern=np.where(steady, "steady", np.where(paused, "pauses", "")),
    )
    out = out.merge(_last(each), on=["host", "device"], how="left")
    reasons = [
        (
            _reason(own_times, r, steady[r], pauses[:, r], steps, table, devices, memory)
            if straggler[r]
            else ("", np.nan, "")
        )
        for r in range(len(out))
    ]
    out["cause"], out["cause_ms"], out["why"] = zip(*reasons, strict=True)
    order = ["straggler", "excess_ms", "host", "device"]
    return frames.shaped(
        "pods.stragglers",
        out.sort_values(
            order, ascending=[False, False, True, True], kind="stable", ignore_index=True
        ),
    )


def slowest_of(beyond: Floats) -> Int64s:
    """int64[steps]: the rank that is furthest behind the others; -1 where none is behind, or all
    are alike.
    """
    filled = np.where(np.isnan(beyond), -np.inf, beyond)
    slowest = filled.argmax(axis=1).astype(np.int64)
    return np.where(filled.max(axis=1) > _NOTHING, slowest, -1)


def gains(own_times: OwnTime) -> Floats:
    """How much shorter steps were, on average and in ms, if a rank were as fast as the median of
    the others.
    """
    # Then the next slowest is what counts, which is no faster than the median.
    values = np.where(np.isnan(own_times.own), -np.inf, own_times.own)
    if values.shape[1] < 2 or not len(values):
        return np.full(values.shape[1], np.nan)
    top = np.sort(values, axis=1)[:, -2:]
    with np.errstate(invalid="ignore"):
        ahead = np.where(values == top[:, 1:], values - top[:, :1], 0.0)
    return np.asarray(np.where(np.isfinite(ahead), ahead, 0.0).mean(axis=0))


def costs(own_times: OwnTime, slowest: Int64s) -> Floats:
    """What a rank costs the others in ms a step: their waiting where it is the slowest, summed,
    each at most as far as it is slower.

    NaN where waiting is not known.
    """
    ranks = own_times.own.shape[1]
    if np.isnan(own_times.waited).all():
        return np.full(ranks, np.nan)
    rows = np.flatnonzero(slowest >= 0)
    behind = own_times.own[rows, slowest[rows]][:, None] - own_times.own[rows]
    cost = np.nansum(np.clip(np.minimum(own_times.waited[rows], behind), 0, None), axis=1)
    return np.asarray(np.bincount(slowest[rows], cost, ranks) / max(len(slowest), 1))


def _mean(values: Floats) -> Floats:
    count = (~np.isnan(values)).sum(axis=0)
    return np.asarray(
        np.divide(
            np.nansum(values, axis=0), count, out=np.full(values.shape[1], np.nan), where=count > 0
        )
    )


def _chance(beyond: Floats, often: Int64s) -> Floats:
    """The probability that equal ranks would have one that is the slowest as often, or as far
    behind on average.
    """
    is_known = ~np.isnan(beyond)
    steps, ranks = is_known.sum(axis=0), beyond.shape[1]
    mean, worth = _mean(beyond), _worth(beyond)
    spread = np.array(
        [np.nanvar(beyond[:, r], ddof=1) if n > 1 else np.nan for r, n in enumerate(steps.tolist())]
    )
    # A rank that pauses varies more than the others; that others pause does not make it vary.
    spread = np.fmax(spread, np.nanmedian(spread) if (steps > 1).any() else np.nan)
    result = np.full(ranks, np.nan)
    for rank, count in enumerate(steps.tolist()):
        if not count:
            continue
        times = count * worth
        tails = [tail(int(often[rank] * worth), int(times), 1 / ranks)]
        if times >= 2 and spread[rank] > 0:
            far = float(mean[rank] / np.sqrt(spread[rank] / times))
            # Of a probability that is closer to 1 than floats are the rest is not 0, and not known
            # any closer.
            tails += (
                [max(1 - t_probability(far, (times - 1) * (ranks - 1)), _FLOAT)] if far > 0 else []
            )
        result[rank] = min(1.0, 2 * ranks * min(tails))
    return result


def _worth(beyond: Floats) -> float:
    """How many independent steps a step is worth: (1 - r) / (1 + r), with r the correlation of
    neighbours over all ranks.

    It comes out too small of short series, by (1 + 3 r) / n. (M. H. Quenouille, Biometrika 36
    (1949) 38.)
    """
    steps = len(beyond)
    if steps < _LEAST_FOR_MEMORY:
        return 1.0
    off = np.nan_to_num(beyond - _mean(beyond))
    square = (off * off).sum(axis=0)
    # Each rank counts the same: one that pauses is not all there is.
    used = square > steps * _NOTHING**2
    if not used.any():
        return 1.0
    r = float(((off[:-1] * off[1:]).sum(axis=0)[used] / square[used]).mean())
    r = min((r + 1 / steps) / (1 - 3 / steps), 0.99)
    return (1 - r) / (1 + r) if r > 0 else 1.0


def _pauses(beyond: Floats, typical: float) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """bool[steps, ranks]: steps in which a rank was behind by more than the ranks vary, and than it
    usually is.
    """
    is_known = ~np.isnan(beyond).all(axis=0)
    usual = np.zeros(beyond.shape[1])
    usual[is_known] = np.clip(np.nanmedian(beyond[:, is_known], axis=0), 0, None)
    sigma = NORMAL * float(np.nanmedian(np.abs(beyond))) if is_known.any() else 0.0
    return np.nan_to_num(beyond - usual) > max(PAUSE * typical, DEVIATIONS * sigma)


def _last(each: pd.DataFrame) -> pd.DataFrame:
    """How often each rank was the last into a collective."""
    matched = each[each["match"] >= 0] if len(each) else each
    if not len(matched):
        return pd.DataFrame(
            {
                "host": [],
                "device": pd.array([], "Int64"),
                "collectives": pd.array([], "Int64"),
                "last_in": pd.array([], "Int64"),
            }
        )
    # All of equal ones came last, or none.
    came = matched["last"] & (matched["late_us"] > 0)
    sums = (
        came.groupby([matched["host"], matched["device"]], sort=False)
        .agg(["size", "sum"])
        .reset_index()
    )
    return sums.rename(columns={"size": "collectives", "sum": "last_in"}).astype(
        {"device": "Int64", "collectives": "Int64", "last_in": "Int64"}
    )


def _reason(
    own_times: OwnTime,
    rank: int,
    steady: bool,
    paused: np.ndarray[tuple[int], np.dtype[np.bool_]],
    steps: pd.DataFrame,
    table: pd.DataFrame,
    devices: pd.DataFrame,
    memory: pd.DataFrame,
) -> tuple[str, float, str]:
    """What makes a rank slow: the cause, how many ms a step it is, and a sentence."""
    host = str(own_times.ranks["host"].iloc[rank])
    counted = steps[steps["counted"].astype(bool)]
    if not steady:
        numbers = own_times.numbers[
            own_times.numbers["number"].isin(own_times.step[paused].tolist())
        ]
        counted = counted.merge(numbers[["host", "start_ms"]], on=["host", "start_ms"])
    delay = own_times.own[:, rank] - of_others(own_times.own)[:, rank]
    delay_ms = float(np.nanmean(delay if steady else delay[paused]))
    columns = [f"{name}_ms" for name in CATEGORIES if name in _CALLED]
    means = (
        counted[counted["host"].isin(own_times.ranks["host"])]
        .groupby("host", sort=False)[columns]
        .mean()
    )
    if host not in means.index:
        return "", np.nan, "The recording does not show what it does differently."
    values = means.to_numpy(np.float64).T
    usual = of_others(values)[:, means.index.get_loc(host)]
    host_values = values[:, means.index.get_loc(host)]
    more = np.nan_to_num(host_values - usual)
    largest = int(more.argmax())
    if more[largest] < EXPLAINS * delay_ms:
        return (
            "",
            np.nan,
            f"No part of its steps explains {'the delay' if steady else 'the pause'} alone.",
        )
    cause = columns[largest].removesuffix("_ms")
    when = "a step" if steady else "in " + ("that step" if paused.sum() == 1 else "those steps")
    text = (
        f"{_CALLED[cause]}: {wording.millis(host_values[largest])} {when}; the median of the others is"
        f" {wording.millis(usual[largest])}"
    )
    largest_cause = cause, float(more[largest]), text[0].upper() + text[1:] + "."
    if cause == "device_compute" and steady:
        return _kernels(host, table, devices) or largest_cause
    if cause == "host_compute":
        return (
            _memory(
                host,
                counted[counted["host"].isin(own_times.ranks["host"])],
                memory,
                EXPLAINS * delay_ms,
                when,
            )
            or largest_cause
        )
    return largest_cause


def _memory(
    host: str, steps: pd.DataFrame, memory: pd.DataFrame, least_ms: float, when: str
) -> tuple[str, float, str] | None:
    """Whether what the host does more than others in these steps is to allocate and free device
    memory.
    """
    rows = memory.merge(steps[["host", "group"]].drop_duplicates(), on=["host", "group"])
    host_rows = rows[rows["host"] == host]
    if host_rows.empty:
        return None
    # Hosts without such calls spend no time in them.
    often = steps.groupby("host", sort=False).size()
    means = (rows.groupby("host")["ms"].sum().reindex(often.index).fillna(0.0) / often).to_numpy(
        np.float64
    )
    index = often.index.get_loc(host)
    usual = float(of_others(means[None, :])[0, index])
    more = float(means[index]) - usual
    if not more >= least_ms:
        return None
    name = host_rows.groupby("name")["ms"].sum().idxmax()
    calls = host_rows["calls"].sum() / often[host]
    text = (
        f"Driver calls that allocate or free device memory, mostly {name}:"
        f" {wording.millis(means[index])} in {calls:.3g} calls {when}"
    )
    return "memory", more, f"{text}; the median of the others is {wording.millis(usual)}."


def _kernels(
    host: str, table: pd.DataFrame, devices: pd.DataFrame
) -> tuple[str, float, str] | None:
    """What of device compute is slow: all of it, as with a lower clock, or one kernel (an op where
    there are no kernels).
    """
    if not len(table) or host not in table.columns:
        return None
    for kind in ("kernel", "op"):
        rows = table[
            (table.index.get_level_values("where") == "device")
            & (table.index.get_level_values("kind") == kind)
        ]
        if len(rows):
            break
    else:
        return None
    column = list(table.columns).index(host)
    host_sums, usual = (
        rows.to_numpy(np.float64)[:, column],
        of_others(rows.to_numpy(np.float64))[:, column],
    )
    more = host_sums - usual
    total, least = float(more.sum()), usual > 0
    if not total > 0 or not least.any():
        return None
    times = float(host_sums[least].sum() / usual[least].sum())
    slow = host_sums[least] >= (1 + (times - 1) / 2) * usual[least]
    if least.sum() > 1 and usual[least][slow].sum() >= EVEN * usual[least].sum():
        text = f"All kernels take {times:.2f} times as long as the median of the others"
        clock = (
            devices.groupby("host", sort=False)["clock_khz"].mean()
            if "clock_khz" in devices.columns
            else pd.Series(dtype="f8")
        )
        usual_clock = float(clock.drop(host, errors="ignore").median()) if len(clock) else np.nan
        if host in clock.index and clock[host] < usual_clock * 0.99:
            return (
                "clock",
                total,
                f"{text}: its clock is {clock[host] / 1e6:.2f} GHz, theirs {usual_clock / 1e6:.2f} GHz.",
            )
        return "every_kernel", total, f"{text}, as with a lower clock or power limit."
    top = int(more.argmax())
    if more[top] < EXPLAINS * total:
        return None
    name = str(rows.index.get_level_values("name")[top])
    return (
        "kernel",
        float(more[top]),
        (
            f"{name}: {wording.millis(host_sums[top])} a step; the median of the others is"
            f" {wording.millis(usual[top])}."
        ),
    )
