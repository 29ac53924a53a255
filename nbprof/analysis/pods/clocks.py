"""Offsets between the clocks of hosts, measured by collectives: all ranks leave one at nearly the
same time.

With its offset and drift, the collectives of a host end when those of the others do; the rest is
the residual. If no collectives can be matched, steps are aligned: hosts that wait for each other
are in the same step at once, but no more is known, so the residual is a step; if the numbers of
steps contradict their times, as many steps more.

Collectives are matched by their sequence numbers, or by their position in a step without one. Hosts
of two runs have the same numbers and positions, so the times have to show that it was the same
collective: from one to the next, hosts that waited for each other took the same time, to a fraction
of its differences from step to step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.pods.chance import Floats, of_others
from nbprof.analysis.pods.collectives import members
from nbprof.analysis.table import positions
from nbprof.core.trace import Int64s
from nbprof.schema import frames

WITHIN = 95
"""Percent of the ends that lie within the residual."""
_LEAST_FOR_DRIFT = 10
_MOST_PPM = 200
"""No quartz is further off: a larger drift has another cause, such as ranks that leave one after
the other.
"""
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Of other collectives, such as a broadcast, a rank may leave before another has arrived."""
_CERTAIN = 5.0
"""Standard errors from 0 that make a drift."""
_ROUNDS = 4
_LEAST_STEPS, _LAGS, _ALIKE = 10, (1, 2), 0.25
"""By so many times between collectives (one a step or more), a host differs from the others by less
than this part of what it does with the steps laid so many places apart."""
_MOST = 70
"""Percent of the differences that lie within the one that counts: a step that is long in every run,
as one that compiles, is beyond.
"""
LEAVING, AHEAD = "_leaving_ms", "_ahead_ms"
_UNNUMBERED = (
    "Its collectives have no sequence number, and their times do not show that they match those of"
    " the other hosts."
)
_UNVERIFIED = (
    "Its collectives have the sequence numbers of those of other hosts, but their times do not show"
    " that they are the same: the files may be of two jobs, or have too few steps."
)
_UNCONNECTED = "Neither collectives nor steps connect it with the first host."


def clocks(
    hosts: list[str], each: pd.DataFrame, pods: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """One row per host, by the clock of the first; unknown values are NA. No rows for a single
    host.

    Besides the columns of `p.pods.clocks`, `LEAVING` is the residual of all collectives that were
    matched, verified or not, and `AHEAD` the offset that aligns those with equal numbers: it
    determines which steps to compare, if the job is one.

    Parameters
    ----------
    hosts : list of str
    each, pods, steps : DataFrame
        As `p.device_time.each_collective`, `run.pods` and `run.steps`.
    """
    if len(hosts) < 2:
        return frames.empty("pods.clocks")
    number = positions(hosts)
    ends = _ends(each, number)
    verified = _verified(ends)
    fit = _fit(ends, len(hosts))
    ahead, leaving = fit.offset.copy(), fit.residual.copy()
    if not verified.all():
        ahead = _fit(ends[verified | ends["numbered"].to_numpy(np.bool_)], len(hosts)).offset
        fit = _fit(ends[verified], len(hosts))
    by = np.where(np.isnan(fit.offset), "", "collectives").astype(object)
    # Collectives without a number are matched by their position: unmatched ones may be the same.
    unnumbered = set(each.loc[each["sequence"].isna(), "host"].map(number)) if len(each) else set()
    if len(unnumbered) < 2:
        unnumbered = set()
    unverified = set(ends["host"][~verified])
    if len(pods) and np.isnan(fit.offset).all() and not (unnumbered | unverified):
        _fit_by_steps(fit, pods, steps, number)
        by[~np.isnan(fit.offset)] = "steps"
    lacking = np.isnan(fit.offset)
    reason = np.full(len(hosts), "", object)
    for host in np.flatnonzero(lacking).tolist():
        if host in unnumbered:
            reason[host] = _UNNUMBERED
        else:
            reason[host] = _UNVERIFIED if host in unverified else _UNCONNECTED
    rows = {
        "host": hosts,
        "offset_ms": fit.offset,
        "drift_ppm": fit.drift,
        "residual_ms": fit.residual,
        "by": by,
        "matched": np.where(lacking, 0, fit.matched),
        "reason": reason,
    }
    table = frames.shaped("pods.clocks", pd.DataFrame(rows))
    return table.assign(**{LEAVING: leaving, AHEAD: ahead})


class _Fit(NamedTuple):
    """Offset (ms), drift (ppm) and residual (ms) of each host, NaN if unknown, and the number of
    collectives or steps that they follow from.
    """

    offset: Floats
    drift: Floats
    residual: Floats
    matched: Int64s


def _fit_by_steps(
    fit: _Fit, pods: pd.DataFrame, steps: pd.DataFrame, number: dict[str, int]
) -> None:
    """Offsets and residuals of hosts by their aligned steps, in place."""
    start = pods.groupby([pods["host"].map(number), "step"])["start_ms"].min().unstack(level=0)
    away = start.sub(start[0], axis=0) if 0 in start.columns else start * np.nan
    host = away.columns.to_numpy(np.int64)
    fit.offset[host] = away.median().to_numpy(np.float64)
    off = (away - away.median()).abs().quantile(WITHIN / 100).to_numpy(np.float64)
    contradicted = _misnumbered(pods, steps, number, len(number))[host]
    fit.residual[host] = off + float(pods["step_time_ms"].median()) * (1 + contradicted)
    fit.matched[host] = away.notna().sum().to_numpy(np.int64)
    fit.residual[np.isnan(fit.offset)] = np.nan


def _ends(each: pd.DataFrame, number: dict[str, int]) -> pd.DataFrame:
    """The time at which each host left each of the matched collectives: `host match end step
    numbered`, hosts as numbers.
    """
    columns = ["host", "match", "start_ms", "time_us", "step", "sequence"]
    matched = each[each["match"] >= 0] if len(each) else pd.DataFrame(columns=columns)
    kind = matched.get("collective", pd.Series(dtype=object))
    together = kind.isin(_TOGETHER)
    if together.any():
        matched = matched[together]
    start_ms = matched["start_ms"].to_numpy(np.float64)
    rows = pd.DataFrame(
        {
            "host": matched["host"].map(number).to_numpy(np.int64),
            "match": matched["match"].to_numpy(np.int64),
            "end": start_ms + matched["time_us"].to_numpy(np.float64) / 1e3,
            "step": matched["step"].astype("float64").to_numpy(np.float64),
            "numbered": matched["sequence"].notna().to_numpy(np.bool_),
        }
    )
    # One end per host: the devices of a host have one clock.
    table = rows.groupby(["host", "match"], sort=True).agg(
        end=("end", "median"), step=("step", "first"), numbered=("numbered", "first")
    )
    return table.reset_index()


def _fit(ends: pd.DataFrame, hosts: int) -> _Fit:
    """The clocks of hosts by the ends of collectives."""
    # The other hosts of a collective may all have been left out.
    ends = ends[ends.groupby("match")["host"].transform("size") > 1]
    if not len(ends):
        offset, drift, residual = (np.full(hosts, np.nan) for _ in range(3))
        return _Fit(offset, drift, residual, np.zeros(hosts, np.int64))
    host = ends["host"].to_numpy(np.int64)
    match = pd.factorize(ends["match"])[0].astype(np.int64)
    offset, drift, residual = _by_ends(hosts, host, match, ends["end"].to_numpy(np.float64))
    return _Fit(offset, drift, residual, np.bincount(host, minlength=hosts))


def _verified(ends: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Flags of the ends whose times show that the collective is that of the hosts that it was
    matched with.
    """
    flags = np.zeros(len(ends), np.bool_)
    if not len(ends):
        return flags
    host, match = ends["host"].to_numpy(np.int64), ends["match"].to_numpy(np.int64)
    end, step = ends["end"].to_numpy(np.float64), ends["step"].to_numpy(np.float64)
    numbered = ends["numbered"].to_numpy(np.bool_)
    by_members = ends.groupby([members(match, host), numbered], sort=False)
    for rows in by_members.indices.values():
        # They are all of the same hosts, and in the order of hosts: a column each.
        hosts = np.unique(host[rows])
        left, of_step = (values[rows].reshape(len(hosts), -1).T for values in (end, step))
        agrees = _agreeing(left, of_step[:, 0], numbered=bool(numbered[rows[0]]))
        flags[rows] = np.isin(host[rows], hosts[agrees])
    return flags


def _agreeing(left: Floats, step: Floats, *, numbered: bool) -> npt.NDArray[np.bool_]:
    """Flags of the hosts whose times of leaving some collectives show that these are the same: none
    of them, or several.

    `left` is float64[collectives, hosts]; `step` that of each by the first host, as they may count
    from different numbers.
    """
    order = np.argsort(left[:, 0], kind="stable")
    order = order[~np.isnan(step[order])]
    if not numbered:
        # One per step: it is unknown which collectives of a step are of one group.
        order = order[~pd.Series(step[order]).duplicated(keep="last").to_numpy(np.bool_)]
    hosts = left.shape[1]
    if not len(order):
        return np.zeros(hosts, np.bool_)
    left, step = left[order], step[order]
    # Within a step, all runs of a program have the same pattern: the time from one collective to
    # the next is compared with that of other steps.
    code = pd.factorize(step)[0]
    position = pd.Series(code).groupby(code).cumcount().to_numpy(np.int64)
    took = np.full((int(code.max()) + 1, int(position.max()) + 1, hosts), np.nan)
    took[code[1:], position[1:]] = np.diff(left, axis=0)
    usual = of_others(took.reshape(-1, hosts)).reshape(took.shape)
    agrees = np.array(
        [_as_others(took[:, :, host], usual[:, :, host]) for host in range(hosts)], np.bool_
    )
    return agrees if agrees.sum() > 1 else np.zeros_like(agrees)


def _as_others(took: Floats, usual: Floats) -> bool:
    """True if the times between the collectives of a host are those of the others (float64[steps,
    positions], NaN if unknown).
    """
    spreads = []
    for lag in (0, *_LAGS):
        # The steps before and behind, each centred separately.
        differences = [took[lag:] - usual[: len(usual) - lag]]
        if lag:
            differences.append(took[: len(took) - lag] - usual[lag:])
        without_nan = [away[~np.isnan(away)] for away in differences]
        if min(map(len, without_nan)) < _LEAST_STEPS - 1 - lag:
            return False
        off = np.abs(np.concatenate([away - np.median(away) for away in without_nan]))
        spreads.append(float(np.percentile(off, _MOST, method="lower")))
    return spreads[0] < _ALIKE * min(spreads[1:])


def _misnumbered(
    pods: pd.DataFrame, steps: pd.DataFrame, number: dict[str, int], hosts: int
) -> Floats:
    """float64[hosts]: the number of steps by which the step numbers of a host contradict the times
    that `pods` aligns by.

    It is unknown which of the two is right: clocks differ, or the hosts count from different steps.
    """
    keys = ["host", "group"]
    both = pods[[*keys, "step"]].merge(
        steps[[*keys, "step"]].drop_duplicates(keys), on=keys, suffixes=("", "_own")
    )
    away = (
        (both["step_own"] - both["step"])
        .abs()
        .astype("float64")
        .groupby(both["host"].map(number))
        .median()
    )
    return np.asarray(away.reindex(range(hosts)).fillna(0.0).to_numpy(np.float64), np.float64)


def _by_ends(hosts: int, host: Int64s, match: Int64s, end: Floats) -> tuple[Floats, Floats, Floats]:
    """Offset in ms, drift in ppm and residual in ms of each host; NaN if no collectives connect it
    with the first.
    """
    offset, drift, residual = np.full(hosts, np.nan), np.zeros(hosts), np.full(hosts, np.nan)
    first = int(host[0])
    offset[first] = 0.0
    base = float(end[host == first][0])
    # Groups may not share a rank with the first: the clock of one goes on to the next, then all are
    # adjusted to each other.
    while True:
        moment = _moments(match, end - offset[host])
        more = np.isnan(offset[host]) & ~np.isnan(moment[match])
        if not more.any():
            break
        away = pd.Series((end - moment[match])[more]).groupby(host[more]).median()
        offset[away.index.to_numpy(np.int64)] = away.to_numpy(np.float64)
    rows = [np.flatnonzero(host == number) for number in range(hosts)]
    for _ in range(_ROUNDS):
        straight = (end - base - offset[host]) / (1 + drift[host] * 1e-6) + base
        moment = _moments(match, straight)
        for number in np.flatnonzero(~np.isnan(offset)).tolist():
            host_rows = rows[number]
            if number == first or not len(host_rows):
                continue
            time, ahead = moment[match[host_rows]] - base, end[host_rows] - moment[match[host_rows]]
            slope = _slope(time, ahead)
            drift[number] = slope * 1e6
            offset[number] = float(np.median(ahead - slope * time))
    straight = (end - base - offset[host]) / (1 + drift[host] * 1e-6) + base
    off = np.abs(straight - _moments(match, straight)[match])
    for number in range(hosts):
        if len(rows[number]) and not np.isnan(offset[number]):
            residual[number] = float(np.percentile(off[rows[number]], WITHIN))
    # The first has none by definition; a drift within the noise is unknown.
    is_known = (drift != 0) | (np.arange(hosts) == first)
    return offset, np.where(np.isnan(offset) | ~is_known, np.nan, drift), residual


def _slope(time: Floats, ahead: Floats) -> float:
    """The gain of a clock in a unit of time; 0 if it is not certain, or more than a clock could
    have.
    """
    off = time - time.mean()
    square = float(off @ off)
    if len(time) < _LEAST_FOR_DRIFT or not square > 0:
        return 0.0
    slope = float(off @ ahead) / square
    rest = ahead - ahead.mean() - slope * off
    error = float(np.sqrt(rest @ rest / (len(time) - 2) / square))
    if abs(slope) <= _MOST_PPM * 1e-6 and abs(slope) > _CERTAIN * error:
        return slope
    return 0.0


def _moments(match: Int64s, end: Floats) -> Floats:
    """When each collective ended: the median of those whose clock is known, NaN where none is."""
    is_known = ~np.isnan(end)
    result = np.full(int(match.max()) + 1, np.nan)
    order = np.lexsort((end[is_known], match[is_known]))
    number, values = match[is_known][order], end[is_known][order]
    count = np.bincount(number, minlength=len(result))
    begin = np.cumsum(count) - count
    there = np.flatnonzero(count)
    result[there] = (
        values[begin[there] + (count[there] - 1) // 2] + values[begin[there] + count[there] // 2]
    ) / 2
    return result
