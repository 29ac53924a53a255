"""Collectives by the ranks that take part: who comes last, how far they are apart, and which group
is slower than its like.

The figures of a collective are those of device_time/collectives.py. Groups of one name may be
several, so a group is its members.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from nbprof.analysis.device_time import collectives
from nbprof.analysis.pods.chance import deviation, of_others, threshold
from nbprof.core.trace import Int64s
from nbprof.core.units import join_some
from nbprof.schema import frames

LEAST_GROUPS = 3
"""Of two groups that differ, neither is out of line."""
SLOWER, OF_STEP = 1.25, 0.005
"""A slow group takes so many times as long as the others of its kind, and that is more than this
part of the step.
"""
SPREAD = 0.05
"""The own time of collectives varies by this part between equal groups, however equal those at hand
are.
"""
_NAMED = 4


def by_group(each: pd.DataFrame, steps: int, measured: float) -> pd.DataFrame:
    """One row per collective, members and size, most waiting first: the columns of
    `p.pods.collectives`.

    Parameters
    ----------
    each : DataFrame
        As `p.device_time.each_collective`.
    steps : int
        Number of steps that the hosts recorded; 0 if unknown.
    measured : float
        The step time in ms.
    """
    rows = each[each["match"] >= 0] if len(each) else each
    if not len(rows):
        return frames.empty("pods.collectives")
    rank = np.asarray(rows.groupby(["host", "device"], sort=False).ngroup(), np.int64)
    same = members(rows["match"].to_numpy(np.int64), rank)
    rows = rows.assign(_rank=rank, _members=same)
    keys = ["collective", "_members", "group_size", "bytes"]
    rows["_group"] = rows.groupby(keys, sort=False, dropna=False).ngroup()
    table = collectives.summary(rows.assign(process_group=rows["_group"]))
    table = table.rename(columns={"process_group": "_group"})
    group = table["_group"]
    first = rows.drop_duplicates("_group").set_index("_group")
    spread = rows.groupby(["_group", "match"])["late_us"].max().groupby(level=0).mean()
    table["spread_us"] = group.map(spread)
    for key in ("process_group", "description"):
        names = rows[rows[key] != ""].drop_duplicates(["_group", key]).groupby("_group")[key]
        listed = {number: join_some(list(part), _NAMED) for number, part in names}
        table[key] = group.map(listed).astype(object).fillna("")
    _add_last(table, rows)
    members_of = first["_members"].reindex(group).tolist()
    by_members = (
        rows.drop_duplicates(["_members", "_rank"])
        .sort_values(["rank", "host", "device"], kind="stable")
        .groupby("_members", sort=False)
    )
    ranks = {key: len(part) for key, part in by_members}
    listed_ranks = {key: _listed(part) for key, part in by_members}
    table["ranks"] = [ranks[key] for key in members_of]
    table["members"] = [listed_ranks[key] for key in members_of]
    _add_slow(table, steps, measured)
    table = table.sort_values(
        ["slow", "wait_ms", "time_ms"],
        ascending=[False, False, False],
        kind="stable",
        ignore_index=True,
    )
    return frames.shaped("pods.collectives", table)


def _add_last(table: pd.DataFrame, rows: pd.DataFrame) -> None:
    """Adds to each group the rank that came last most often, and how often."""
    group = table["_group"]
    # If several came at the same time, none was the last.
    came_last = rows[rows["last"] & (rows["late_us"] > 0)]
    count = came_last.groupby(["_group", "_rank"], sort=False).size()
    count = count.sort_values(ascending=False, kind="stable")
    often = count.reset_index(name="last_in").drop_duplicates("_group").set_index("_group")
    by_rank = rows.drop_duplicates("_rank").set_index("_rank")
    last = group.map(often["_rank"])
    table["last"] = last.map(by_rank["host"]).astype(object).where(last.notna(), "")
    table["last_rank"] = last.map(by_rank["rank"]).astype("Int64")
    table["last_in"] = group.map(often["last_in"]).fillna(0).astype("int64")


def _add_slow(table: pd.DataFrame, steps: int, measured: float) -> None:
    """Adds to each group the usual time of its kind, and whether it is slow."""
    table["usual_us"], table["slow"] = np.nan, False
    keys = ["collective", "group_size", "bytes", "ranks"]
    for _, groups in table.groupby(keys, sort=False, dropna=False):
        if len(groups) < LEAST_GROUPS:
            continue
        times = groups["real_us"].to_numpy(np.float64)[None, :]
        usual, median = of_others(times)[0], float(np.nanmedian(times))
        spread = max(float(deviation(times)[0, 0]), SPREAD * median)
        count = groups["collectives"].to_numpy(np.float64)
        excess = (times[0] - median) / 1e3 * count / max(steps, 1)
        far = (times[0] - median) / spread > threshold(len(groups), len(groups))
        slow = far & (times[0] > SLOWER * usual) & (excess > OF_STEP * measured) & (steps > 0)
        table.loc[groups.index, "usual_us"] = usual
        table.loc[groups.index, "slow"] = slow


def members(match: Int64s, rank: Int64s) -> Int64s:
    """int64[rows]: the same number for collectives of the same ranks."""
    # A set has the sum of random numbers of its members.
    mark = np.random.default_rng(19).integers(1, 1 << 62, int(rank.max()) + 1, np.int64)
    sums = np.zeros(int(match.max()) + 1, np.int64)
    with np.errstate(over="ignore"):
        np.add.at(sums, match, mark[rank])
    return np.asarray(pd.factorize(sums[match])[0], np.int64)


def _listed(rows: pd.DataFrame) -> str:
    """Ranks as ranges of numbers, "0-3, 8"; hosts by name if their ranks are unknown."""
    if rows["rank"].isna().any() or rows["rank"].duplicated().any():
        return join_some([str(host) for host in dict.fromkeys(rows["host"])], _NAMED)
    ranks = sorted(int(rank) for rank in rows["rank"])
    gaps = [(low, high) for low, high in pairwise(ranks) if high != low + 1]
    first = [ranks[0], *(high for _, high in gaps)]
    last = [*(low for low, _ in gaps), ranks[-1]]
    ranges = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(first, last, strict=True)]
    return join_some(ranges, _NAMED)
