"""How far the clocks of hosts are apart, told by collectives: all ranks leave one at nearly the
same time.

Of each host, the offset and drift are those under which its collectives end when those of the
others do; what is left is the residual. Where no collectives can be matched, steps are laid on one
another: hosts that wait for each other are in the same step at once, but nothing says more than
that, so the residual is a step; where hosts count the steps otherwise than their times lie, so many
steps more.

Collectives are matched by their numbers, or by their place in a step where they state none. Hosts
of two runs have the same numbers and places, so their times have to show that it was the same
collective: from one to the next the hosts that waited for each other took the same time, to a
fraction of what it differs by from step to step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.pods.chance import Floats, of_others
from nbprof.analysis.pods.collectives import members
from nbprof.core.trace import Int64s
from nbprof.schema import frames

WITHIN = 95
"""Percent of the ends that lie within the residual."""
_LEAST_FOR_DRIFT = 10
_MOST_PPM = 200
"""No quartz is as far off: what looks like more is something else, such as ranks that leave one
after the other.
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
_UNPLACED = (
    "Its collectives have no sequence number, and their times do not show that they match those of"
    " the other hosts."
)
_UNTOLD = (
    "Its collectives have the sequence numbers of those of other hosts, but their times do not show"
    " that they are the same: the files may be of two jobs, or have too few steps."
)
_UNCONNECTED = "Neither collectives nor steps connect it with the first host."


def clocks(
    hosts: list[str], each: pd.DataFrame, pods: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """One row per host, by the clock of the first; what is not known is NA. No rows for a single
    host.

    Beside the columns of `p.pods.clocks`, `LEAVING` is the residual of all collectives that were
    matched, shown to be the same or not, and `AHEAD` the offset by which those with equal numbers
    lie on one another: it says which steps to compare, if the job is one.

    Parameters
    ----------
    hosts : list of str
    each, pods, steps : DataFrame
        As `p.device_time.each_collective`, `run.pods` and `run.steps`.
    """
    if len(hosts) < 2:
        return frames.empty("pods.clocks")
    number = {name: i for i, name in enumerate(hosts)}
    ends = _ends(each, number)
    corrected = _shown(ends)
    offset, drift, leaving, count = _laid(ends, len(hosts))
    ahead, residual = offset.copy(), leaving.copy()
    if not corrected.all():
        ahead = _laid(ends[corrected | ends["numbered"].to_numpy(np.bool_)], len(hosts))[0]
        offset, drift, residual, count = _laid(ends[corrected], len(hosts))
    by = np.where(np.isnan(offset), "", "collectives").astype(object)
    # Collectives without a number are matched by their place: those that are not may be the same.
    placed = set(each.loc[each["sequence"].isna(), "host"].map(number)) if len(each) else set()
    placed = placed if len(placed) > 1 else set()
    untold = set(ends["host"][~corrected])
    if len(pods) and np.isnan(offset).all() and not (placed | untold):
        begins = pods.groupby([pods["host"].map(number), "step"])["start_ms"].min().unstack(level=0)
        away = begins.sub(begins[0], axis=0) if 0 in begins.columns else begins * np.nan
        step_numbers = away.columns.to_numpy(np.int64)
        offset[step_numbers] = away.median().to_numpy(np.float64)
        off = (away - away.median()).abs().quantile(WITHIN / 100).to_numpy(np.float64)
        residual[step_numbers] = off + float(pods["step_time_ms"].median()) * (
            1 + _misnumbered(pods, steps, number, len(hosts))[step_numbers]
        )
        count[step_numbers] = away.notna().sum().to_numpy(np.int64)
        by[~np.isnan(offset)] = "steps"
        residual[np.isnan(offset)] = np.nan
    lacking = np.isnan(offset)
    why = np.array(
        [
            _UNPLACED if i in placed else _UNTOLD if i in untold else _UNCONNECTED
            for i in range(len(hosts))
        ],
        object,
    )
    rows = {
        "host": hosts,
        "offset_ms": offset,
        "drift_ppm": drift,
        "residual_ms": residual,
        "by": by,
        "matched": np.where(lacking, 0, count),
        "reason": np.where(lacking, why, ""),
    }
    return frames.shaped("pods.clocks", pd.DataFrame(rows)).assign(
        **{LEAVING: leaving, AHEAD: ahead}
    )


def _ends(each: pd.DataFrame, number: dict[str, int]) -> pd.DataFrame:
    """When each host left each of the collectives that were matched: `host match end step
    numbered`, hosts as numbers.
    """
    is_known = (
        each[each["match"] >= 0]
        if len(each)
        else pd.DataFrame(columns=["host", "match", "start_ms", "time_us", "step", "sequence"])
    )
    if (together := is_known.get("collective", pd.Series(dtype=object)).isin(_TOGETHER)).any():
        is_known = is_known[together]
    rows = pd.DataFrame(
        {
            "host": is_known["host"].map(number).to_numpy(np.int64),
            "match": is_known["match"].to_numpy(np.int64),
            "end": (
                is_known["start_ms"].to_numpy(np.float64)
                + is_known["time_us"].to_numpy(np.float64) / 1e3
            ),
            "step": is_known["step"].astype("float64").to_numpy(np.float64),
            "numbered": is_known["sequence"].notna().to_numpy(np.bool_),
        }
    )
    # One end a host: the devices of a host have one clock.
    table = rows.groupby(["host", "match"], sort=True).agg(
        end=("end", "median"), step=("step", "first"), numbered=("numbered", "first")
    )
    return table.reset_index()


def _laid(ends: pd.DataFrame, hosts: int) -> tuple[Floats, Floats, Floats, Int64s]:
    """Offset, drift and residual of each host, and how many collectives tell them."""
    # The others of a collective may all be among those that do not count.
    ends = ends[ends.groupby("match")["host"].transform("size") > 1]
    if not len(ends):
        offset, drift, residual = (np.full(hosts, np.nan) for _ in range(3))
        return offset, drift, residual, np.zeros(hosts, np.int64)
    host = ends["host"].to_numpy(np.int64)
    match = pd.factorize(ends["match"])[0].astype(np.int64)
    return *_by_ends(hosts, host, match, ends["end"].to_numpy(np.float64)), np.bincount(
        host, minlength=hosts
    )


def _shown(ends: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Of each end, whether times show that the collective is that of the hosts that it was matched
    with.
    """
    flags = np.zeros(len(ends), np.bool_)
    if len(ends):
        host, end, step = (
            ends[name].to_numpy(kind)
            for name, kind in (("host", np.int64), ("end", np.float64), ("step", np.float64))
        )
        same = members(ends["match"].to_numpy(np.int64), host)
        counted = ends["numbered"].to_numpy(np.bool_)
        for rows in ends.groupby([same, counted], sort=False).indices.values():
            # They are all of the same hosts, and in the order of hosts: a column each.
            hosts_seen = np.unique(host[rows])
            left, of_step = (values[rows].reshape(len(hosts_seen), -1).T for values in (end, step))
            flags[rows] = np.isin(
                host[rows], hosts_seen[_told(left, of_step[:, 0], numbered=bool(counted[rows[0]]))]
            )
    return flags


def _told(left: Floats, step: Floats, *, numbered: bool) -> npt.NDArray[np.bool_]:
    """Of each of some hosts, whether the times at which they left some collectives show that these
    are the same: of none, or several.

    `left` is float64[collectives, hosts]; `step` that of each by the first host, as they may count
    from different numbers.
    """
    order = np.argsort(left[:, 0], kind="stable")
    order = order[~np.isnan(step[order])]
    if not numbered:
        # One a step: which of a step's are of one group is not known.
        order = order[~pd.Series(step[order]).duplicated(keep="last").to_numpy(np.bool_)]
    if not len(order):
        return np.zeros(left.shape[1], np.bool_)
    left, step = left[order], step[order]
    # Within a step, all runs of a program have the same pattern: the time from one to the next is
    # compared with that of other steps.
    code = pd.factorize(step)[0]
    position = pd.Series(code).groupby(code).cumcount().to_numpy(np.int64)
    took = np.full((int(code.max()) + 1, int(position.max()) + 1, left.shape[1]), np.nan)
    took[code[1:], position[1:]] = np.diff(left, axis=0)
    usual = of_others(took.reshape(-1, left.shape[1])).reshape(took.shape)
    agrees = np.array(
        [_as_others(took[:, :, i], usual[:, :, i]) for i in range(left.shape[1])], np.bool_
    )
    return agrees if agrees.sum() > 1 else np.zeros_like(agrees)


def _as_others(host_errors: Floats, usual: Floats) -> bool:
    """Whether the times between the collectives of a host are those of the others (float64[steps,
    places], NaN where unknown).
    """
    spreads = []
    for lag in (0, *_LAGS):
        # The steps before and behind, each centred by itself.
        both = [host_errors[lag:] - usual[: len(usual) - lag]]
        both += [host_errors[: len(host_errors) - lag] - usual[lag:]] if lag else []
        known_errors = [away[~np.isnan(away)] for away in both]
        if min(map(len, known_errors)) < _LEAST_STEPS - 1 - lag:
            return False
        off = np.abs(np.concatenate([away - np.median(away) for away in known_errors]))
        spreads.append(float(np.percentile(off, _MOST, method="lower")))
    return spreads[0] < _ALIKE * min(spreads[1:])


def _misnumbered(
    pods: pd.DataFrame, steps: pd.DataFrame, number: dict[str, int], hosts: int
) -> Floats:
    """float64[hosts]: by how many steps the numbers that a host counts by contradict the times that
    `pods` went by.

    Which of the two is right is not known: clocks are apart, or the hosts count from different
    steps.
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
    """Offset in ms, drift in ppm and residual in ms of each host; NaN of one that no collectives
    connect with the first.
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
    # The first has none by definition; a drift that cannot be told from noise is not known.
    is_known = (drift != 0) | (np.arange(hosts) == first)
    return offset, np.where(np.isnan(offset) | ~is_known, np.nan, drift), residual


def _slope(time: Floats, ahead: Floats) -> float:
    """How much a clock gains in a unit of time; 0 if that is not certain, or more than a clock
    could.
    """
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
