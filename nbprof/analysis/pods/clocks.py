"""How far the clocks of hosts are apart, told by collectives: all ranks leave one at nearly the same time.

Of each host, the offset and drift are those under which its collectives end when those of the others do; what is left is the residual.
Where no collectives can be matched, steps are laid on one another: hosts that wait for each other are in the same step at once, but
nothing says more than that, so the residual is a step; where hosts count the steps otherwise than their times lie, so many steps more.

Collectives that state no number are matched by their place in a step. Hosts of two runs have the same places, so their times have to show
that it was the same collective: from one step to the next the hosts that waited for each other took the same time, to a fraction of what
it differs by from step to step.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis.pods.chance import Floats
from nbprof.core.trace import Int64s
from nbprof.schema import frames

WITHIN = 95
"""Percent of the ends that lie within the residual."""
_LEAST_FOR_DRIFT = 10
_MOST_PPM = 200
"""No quartz is as far off: what looks like more is something else, such as ranks that leave one after the other."""
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Of other collectives, such as a broadcast, a rank may leave before another has arrived."""
_CERTAIN = 5.0
"""Standard errors from 0 that make a drift."""
_ROUNDS = 4
_LEAST_STEPS, _LAGS, _ALIKE = 10, (1, 2), 0.25
"""In so many steps, a host differs from the others by less than this part of what it does with the steps laid so many places apart."""
_MOST = 70
"""Percent of the differences that lie within the one that counts: a step that is long in every run, as one that compiles, is beyond."""
_UNTOLD = "Its collectives have no sequence number, and their times do not show that they match those of the other hosts."
_UNCONNECTED = "Neither collectives nor steps connect it with the first host."


def clocks(hosts: list[str], each: pd.DataFrame, pods: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per host, by the clock of the first; what is not known is NA. No rows for a single host.

    Parameters
    ----------
    hosts : list of str
    each, pods, steps : DataFrame
        As `p.device_time.each_collective`, `run.pods` and `run.steps`.
    """
    if len(hosts) < 2:
        return frames.empty("pods.clocks")
    offset, drift, residual = (np.full(len(hosts), np.nan) for _ in range(3))
    by, count = np.full(len(hosts), "", object), np.zeros(len(hosts), np.int64)
    number = {name: i for i, name in enumerate(hosts)}
    untold = _untold(each, number)
    known = each[each["match"] >= 0] if len(each) else each
    if len(known) and (together := known["collective"].isin(_TOGETHER)).any():
        known = known[together]
    known = known[~(known["host"].map(number).isin(untold) & known["sequence"].isna())] if len(known) else known
    if len(known):
        # The others of a collective may all be among those that are not told.
        known = known[known.groupby("match")["host"].transform("nunique") > 1]
    if len(known):
        # One end a host: the devices of a host have one clock.
        end = known["start_ms"] + known["time_us"] / 1e3
        ends = end.groupby([known["host"].map(number), known["match"]], sort=True).median()
        host, match = (ends.index.get_level_values(level).to_numpy(np.int64) for level in (0, 1))
        offset, drift, residual = _by_ends(len(hosts), host, pd.factorize(match)[0].astype(np.int64), ends.to_numpy(np.float64))
        count = np.bincount(host, minlength=len(hosts))
        by[~np.isnan(offset)] = "collectives"
    missing = np.isnan(offset)
    if len(pods) and missing.all() and not untold:
        begins = pods.groupby([pods["host"].map(number), "step"])["start_ms"].min().unstack(level=0)
        away = begins.sub(begins[0], axis=0) if 0 in begins.columns else begins * np.nan
        found = away.columns.to_numpy(np.int64)
        offset[found] = away.median().to_numpy(np.float64)
        off = (away - away.median()).abs().quantile(WITHIN / 100).to_numpy(np.float64)
        residual[found] = off + float(pods["step_time_ms"].median()) * (1 + _misnumbered(pods, steps, number, len(hosts))[found])
        count[found] = away.notna().sum().to_numpy(np.int64)
        by[~np.isnan(offset)] = "steps"
        residual[np.isnan(offset)] = np.nan
    away = np.isnan(offset)
    why = np.array([_UNTOLD if i in untold else _UNCONNECTED for i in range(len(hosts))], object)
    rows = {"host": hosts, "offset_ms": offset, "drift_ppm": drift, "residual_ms": residual, "by": by, "matched": np.where(away, 0, count)}
    rows["reason"] = np.where(away, why, "")
    return frames.shaped("pods.clocks", pd.DataFrame(rows))


def _untold(each: pd.DataFrame, number: dict[str, int]) -> set[int]:
    """The hosts with collectives without a number whose times do not show that they are those of the other hosts."""
    rows = each[each["sequence"].isna()] if len(each) else each
    if not len(rows):
        return set()
    host = rows["host"].map(number)
    told: set[int] = set()
    matched = rows[(rows["match"] >= 0) & rows["step"].notna()]
    if len(matched):
        # One a step: within a step, all runs of a program have the same pattern.
        last = matched[matched["match"] == matched.groupby("step")["match"].transform("max")]
        end = (last["start_ms"] + last["time_us"] / 1e3).groupby([last["step"], last["host"].map(number)]).median().unstack()
        took = end.sort_values(by=list(end.columns[:1])).diff().iloc[1:].to_numpy(np.float64)
        told = {int(one) for at, one in enumerate(end.columns) if _as_others(took, at)}
        told = told if len(told) > 1 else set()
    return {int(one) for one in host.unique()} - told if host.nunique() > 1 else set()


def _as_others(took: Floats, at: int) -> bool:
    """Whether what the steps of a host took (float64[steps, hosts], NaN where unknown) is what the same steps of the others did."""
    mine, rest = took[:, at], np.delete(took, at, axis=1)
    rest = rest[:, ~np.isnan(rest).all(axis=0)]
    usual = np.full(len(mine), np.nan)
    there = ~np.isnan(rest).all(axis=1)
    usual[there] = np.nanmedian(rest[there], axis=1)
    spreads = []
    for lag in (0, *_LAGS):
        # The steps before and behind, each centred by itself.
        both = [mine[lag:] - usual[: len(usual) - lag]]
        both += [mine[: len(mine) - lag] - usual[lag:]] if lag else []
        known = [away[~np.isnan(away)] for away in both]
        if min(map(len, known)) < _LEAST_STEPS - 1 - lag:
            return False
        off = np.abs(np.concatenate([away - np.median(away) for away in known]))
        spreads.append(float(np.percentile(off, _MOST, method="lower")))
    return spreads[0] < _ALIKE * min(spreads[1:])


def _misnumbered(pods: pd.DataFrame, steps: pd.DataFrame, number: dict[str, int], hosts: int) -> Floats:
    """float64[hosts]: by how many steps the numbers that a host counts by contradict the times that `pods` went by.

    Which of the two is right is not known: clocks are apart, or the hosts count from different steps.
    """
    keys = ["host", "group"]
    both = pods[[*keys, "step"]].merge(steps[[*keys, "step"]].drop_duplicates(keys), on=keys, suffixes=("", "_own"))
    away = (both["step_own"] - both["step"]).abs().astype("float64").groupby(both["host"].map(number)).median()
    return np.asarray(away.reindex(range(hosts)).fillna(0.0).to_numpy(np.float64), np.float64)


def _by_ends(hosts: int, host: Int64s, match: Int64s, end: Floats) -> tuple[Floats, Floats, Floats]:
    """Offset in ms, drift in ppm and residual in ms of each host; NaN of one that no collectives connect with the first."""
    offset, drift, residual = np.full(hosts, np.nan), np.zeros(hosts), np.full(hosts, np.nan)
    first = int(host[0])
    offset[first] = 0.0
    base = float(end[host == first][0])
    # Groups may not share a rank with the first: the clock of one goes on to the next, then all are adjusted to each other.
    while True:
        moment = _moments(match, end - offset[host])
        more = np.isnan(offset[host]) & ~np.isnan(moment[match])
        if not more.any():
            break
        away = pd.Series((end - moment[match])[more]).groupby(host[more]).median()
        offset[away.index.to_numpy(np.int64)] = away.to_numpy(np.float64)
    rows = [np.flatnonzero(host == one) for one in range(hosts)]
    for _ in range(_ROUNDS):
        straight = (end - base - offset[host]) / (1 + drift[host] * 1e-6) + base
        moment = _moments(match, straight)
        for one in np.flatnonzero(~np.isnan(offset)).tolist():
            mine = rows[one]
            if one == first or not len(mine):
                continue
            time, ahead = moment[match[mine]] - base, end[mine] - moment[match[mine]]
            slope = _slope(time, ahead)
            drift[one] = slope * 1e6
            offset[one] = float(np.median(ahead - slope * time))
    straight = (end - base - offset[host]) / (1 + drift[host] * 1e-6) + base
    off = np.abs(straight - _moments(match, straight)[match])
    for one in range(hosts):
        if len(rows[one]) and not np.isnan(offset[one]):
            residual[one] = float(np.percentile(off[rows[one]], WITHIN))
    # The first has none by definition; a drift that cannot be told from noise is not known.
    known = (drift != 0) | (np.arange(hosts) == first)
    return offset, np.where(np.isnan(offset) | ~known, np.nan, drift), residual


def _slope(time: Floats, ahead: Floats) -> float:
    """How much a clock gains in a unit of time; 0 if that is not certain, or more than a clock could."""
    off = time - time.mean()
    square = float(off @ off)
    if len(time) < _LEAST_FOR_DRIFT or not square > 0:
        return 0.0
    slope = float(off @ ahead) / square
    rest = ahead - ahead.mean() - slope * off
    error = float(np.sqrt(rest @ rest / (len(time) - 2) / square))
    return slope if abs(slope) <= _MOST_PPM * 1e-6 and abs(slope) > _CERTAIN * error else 0.0


def _moments(match: Int64s, end: Floats) -> Floats:
    """When each collective ended: the median of those whose clock is known, NaN where none is."""
    known = ~np.isnan(end)
    out = np.full(int(match.max()) + 1, np.nan)
    order = np.lexsort((end[known], match[known]))
    number, values = match[known][order], end[known][order]
    count = np.bincount(number, minlength=len(out))
    begin = np.cumsum(count) - count
    there = np.flatnonzero(count)
    out[there] = (values[begin[there] + (count[there] - 1) // 2] + values[begin[there] + count[there] // 2]) / 2
    return out
