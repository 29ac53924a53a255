"""Communication between devices: calls of ranks matched to collectives, the time that each moved
data and the time that it waited.

Ranks enter a collective at different times and leave it together. The rank that enters last spends
the least time in it: that is the time of the collective itself; the rest of another rank's time was
waiting. Only durations are used for that, so that the clocks of the ranks need not agree.
Sizes and the factors of bus bandwidth are those of the NCCL tests:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CORE_KINDS, Activity
from nbprof.analysis import notes
from nbprof.analysis.device_time.device_time import KEYS, missing, rank_column, rank_of
from nbprof.analysis.steps.step_rows import step_rows, turns
from nbprof.analysis.table import positions
from nbprof.core.factorize import unique_rows
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s, Trace
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

EACH = [
    *KEYS,
    "step",
    "collective",
    "process_group",
    "description",
    "group_size",
    "sequence",
    "bytes",
    "start_ms",
    "time_us",
    "ranks_seen",
    "real_us",
    "wait_us",
    "late_us",
    "last",
    "algorithm_gb_per_second",
    "bus_gb_per_second",
]
COLLECTIVES = frames.names("device_time.collectives")
CALLS = [
    "host",
    "device",
    "start",
    "end",
    "collective",
    "bytes",
    "out_bytes",
    "group_size",
    "sequence",
    "process_group",
    "description",
    "members",
]
MOST_RANKS = 1_000_000
"""A file that states more processes is damaged."""
_MS = 1e9

_KINDS = (
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "sendrecv",
    "broadcast",
    "barrier",
    "gather",
    "scatter",
    "reduce",
    "permute",
    "send",
    "recv",
)
_ALIKE = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_GATHERS = ("all_gather", "gather")
_ONE_SIDED = ("send", "recv")
"""Point-to-point calls: there is no group to wait for."""


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """`all_reduce` of "allreduce_coalesced", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" and
    "%all-reduce.3 = ..."; else the name.
    """
    letters = re.sub(r"[^a-z]", "", name.partition("(")[0].lower())
    collective = next((kind for kind in _KINDS if kind in letters), "")
    return _ALIKE.get(collective, collective) or name.partition("(")[0][:80]


def bus_factor(kind: str, ranks: Floats) -> Floats:
    """Factor from algorithm bandwidth to bus bandwidth (that of the slowest link); NaN if the ranks
    are unknown.
    """
    n = np.where(ranks >= 1, ranks, np.nan)
    if kind == "all_reduce":
        return np.asarray(2 * (n - 1) / n)
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return np.asarray((n - 1) / n)
    return np.where(np.isnan(n), np.nan, 1.0)


def each(
    recorded: pd.DataFrame, hosts: list[str], steps: pd.DataFrame
) -> tuple[pd.DataFrame, list[Note]]:
    """One row per collective and rank, in time order, and notes for the receipt.

    The columns are those of `p.device_time.each_collective`, and `turn`, which distinguishes the
    steps of a host with the same number, see `turns`; -1 outside of steps. `recorded` is the result
    of `calls`, of one host or of several one after the other.
    """
    if not len(recorded):
        return pd.DataFrame(columns=[*EACH, "match", "turn"]), []
    number_of = positions(hosts)
    calls = recorded.assign(host=recorded["host"].map(number_of).astype(np.int64))
    host, sequence = (calls[key].to_numpy(np.int64) for key in ("host", "sequence"))
    host_names = np.array(hosts, object)[host]
    start = calls["start"].to_numpy(np.int64)
    start_ms = calls["start"].to_numpy(np.float64) / _MS
    row = step_rows(host_names, start_ms, steps)
    number, turn = (np.append(values, -1)[row] for values in (_numbers(steps), turns(steps)))
    calls["step"] = missing(number, row < 0)
    ranks = [rank_of(name) for name in hosts]
    for_receipt: list[Note] = []
    match = _matched(calls.assign(turn=turn), hosts, ranks, for_receipt)
    length = calls["end"].to_numpy(np.int64) - start
    times = _times(match, length)
    bytes_ = _bytes(calls)
    # Without the other ranks the time includes waiting, and the bandwidth would be too low.
    rate = np.full(len(calls), np.nan)
    has_rate = (times.real > 0) & (times.ranks_seen > 1)
    np.divide(bytes_ * 1e3, times.real, out=rate, where=has_rate)
    group_size = calls["group_size"].to_numpy(np.float64)
    table = pd.DataFrame(
        {
            "host": host_names,
            "rank": rank_column(ranks, host),
            "device": calls["device"].to_numpy(np.int64),
            "step": calls["step"].array,
            "collective": calls["collective"].to_numpy(object),
            "process_group": calls["process_group"].to_numpy(object),
            "description": calls["description"].to_numpy(object),
            "group_size": missing(group_size, group_size <= 0),
            "sequence": missing(sequence, sequence < 0),
            "bytes": missing(np.nan_to_num(bytes_), np.isnan(bytes_)),
            "start_ms": start_ms,
            "time_us": length / 1e6,
            "ranks_seen": times.ranks_seen,
            "real_us": times.real / 1e6,
            "wait_us": np.where(match >= 0, length - times.real, np.nan) / 1e6,
            "late_us": times.late / 1e6,
            # Of several that took equally short only one is the last: the one that began last.
            "last": _last(match, length, start),
            "algorithm_gb_per_second": rate,
            "bus_gb_per_second": rate * _bus_factors(calls),
            "match": match,
            "turn": turn,
        }
    )
    return table, for_receipt


class _Times(NamedTuple):
    """Of each call: the time of the collective itself, and how much later than the first its rank
    came, ps, NaN if unknown; and how many ranks of the collective were recorded.
    """

    real: Floats
    late: Floats
    ranks_seen: Int64s


def _times(match: Int64s, length: Int64s) -> _Times:
    matched = match >= 0
    collective, duration = match[matched], length[matched]
    count = int(match.max(initial=-1)) + 1
    shortest, longest = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(shortest, collective, duration)
    np.maximum.at(longest, collective, duration)
    real, late = np.full(len(match), np.nan), np.full(len(match), np.nan)
    real[matched] = shortest[collective]
    late[matched] = longest[collective] - duration
    ranks_seen = np.ones(len(match), np.int64)
    ranks_seen[matched] = np.bincount(collective, minlength=count)[collective]
    return _Times(real, late, ranks_seen)


def _bytes(calls: pd.DataFrame) -> Floats:
    """The bytes that the bandwidth of a collective is computed from; NaN if unknown."""
    size, out_size, group_size = (
        calls[name].to_numpy(np.float64) for name in ("bytes", "out_bytes", "group_size")
    )
    from_group = np.where(group_size > 0, size * group_size, np.nan)
    gathered = np.where(out_size >= 0, out_size, from_group)
    gathers = calls["collective"].isin(_GATHERS).to_numpy()
    return np.where(size >= 0, np.where(gathers, gathered, size), np.nan)


def _bus_factors(calls: pd.DataFrame) -> Floats:
    size = calls["group_size"].to_numpy(np.float64)
    ranks = np.where(size > 0, size, np.nan)
    factors = np.full(len(calls), np.nan)
    for kind in calls["collective"].unique().tolist():
        of_kind = (calls["collective"] == kind).to_numpy()
        factors[of_kind] = bus_factor(str(kind), ranks[of_kind])
    return factors


def calls(activity: Activity, trace: Trace) -> pd.DataFrame:
    """Collectives as recorded, and those of TPU cores, in time order of each host and device.

    `host device start end` (ps) `collective bytes out_bytes group_size sequence` (-1: unknown)
    `process_group description members` (texts).
    """
    # The names get their codes as the table is made.
    collectives = activity.collectives
    if not len(collectives) and not len(activity.core_spans):
        return pd.DataFrame(columns=CALLS)
    listed = collectives.frame().copy()
    texts = activity.texts.values
    for key in ("out_bytes", "process_group", "description", "members", "sequence"):
        if key not in listed.columns:
            listed[key] = np.full(len(listed), -1, np.int64)
    listed["collective"] = [kind_of(str(texts[code])) for code in listed["name"].tolist()]
    parts = [listed]
    cores = activity.core_spans.frame()
    shared = np.isin(cores["kind"].to_numpy(np.int64), [CORE_KINDS.index("all_reduce")])
    if shared.any():
        runs = (
            cores[shared]
            .groupby("event")
            .agg({"host": "first", "device": "first", "start": "min", "end": "max"})
        )
        runs = runs.reset_index()
        runs["collective"] = [
            kind_of(str(trace.names[code]))
            for code in trace.events.name[runs["event"].to_numpy(np.int64)].tolist()
        ]
        for key in (
            "bytes",
            "group_size",
            "out_bytes",
            "process_group",
            "description",
            "members",
            "sequence",
        ):
            runs[key] = -1
        parts.append(runs)
    table = pd.concat(parts, ignore_index=True) if len(parts) > 1 else listed
    table = table.sort_values(["host", "device", "start"], kind="stable", ignore_index=True)
    named = np.array([*map(str, texts), ""], object)
    # The last one is that of -1.
    table = table.assign(
        **{
            key: named[table[key].to_numpy(np.int64)]
            for key in ("process_group", "description", "members")
        }
    )
    return table.assign(host=np.array(activity.hosts, object)[table["host"].to_numpy(np.int64)])[
        CALLS
    ]


def _numbers(steps: pd.DataFrame) -> Int64s:
    return steps["step"].to_numpy(np.int64) if len(steps) else np.zeros(0, np.int64)


def _matched(
    calls: pd.DataFrame, hosts: list[str], ranks: list[int | None], for_receipt: list[Note]
) -> Int64s:
    """int64[n]: the same number for the calls of several ranks that are one collective; -1 if the
    others are unknown.
    """
    host, device = calls["host"].to_numpy(np.int64), calls["device"].to_numpy(np.int64)
    _, member = unique_rows(host, device)
    matches = np.full(len(calls), -1, np.int64)
    doubles = _doubles(ranks)
    if doubles:
        for_receipt.append(notes.repeated_ranks([hosts[i] for i in doubles]))
    usable = ~calls["collective"].isin(_ONE_SIDED).to_numpy() & ~np.isin(host, doubles)
    if len(np.unique(member[usable])) < 2:
        return matches
    key = _collective_keys(calls)
    index = _earlier_rows(key, member)
    members = member.max() + 1
    calls_of_members = np.bincount(
        key * members + member, weights=usable, minlength=(key.max() + 1) * members
    ).reshape(key.max() + 1, -1)
    least = np.where(calls_of_members > 0, calls_of_members, np.inf).min(axis=1)
    even = least == calls_of_members.max(axis=1)
    uneven = usable & ~even[key]
    if uneven.any():
        uneven_ranks = len(np.unique(member[uneven]))
        for_receipt.append(notes.unmatched_collectives(int(uneven.sum()), uneven_ranks))
    good = usable & even[key]
    first, match = unique_rows(key[good], index[good])
    count = np.bincount(match)
    size = calls["group_size"].to_numpy(np.int64)[good][first]
    # One name may stand for several groups: more ranks than the group has are not one collective.
    several = (count > 1) & ((size <= 0) | (count <= size))
    number = np.where(several, np.cumsum(several) - 1, -1)
    matches[good] = number[match]
    return matches


def _doubles(ranks: list[int | None]) -> list[int]:
    """Hosts with the rank of an earlier one: files of the same rank cannot be distinguished."""
    return [i for i, rank in enumerate(ranks) if rank is not None and ranks.index(rank) < i]


def _collective_keys(calls: pd.DataFrame) -> Int64s:
    """The same number for calls that may be one collective: by its sequence number in the process
    group, or by its step if it has none.
    """
    kind, group, members = (
        pd.factorize(calls[key])[0].astype(np.int64)
        for key in ("collective", "process_group", "members")
    )
    sequence, turn = (calls[key].to_numpy(np.int64) for key in ("sequence", "turn"))
    step = calls["step"].fillna(-1).to_numpy(np.int64)
    has_sequence = sequence >= 0
    _, key = unique_rows(
        group,
        members,
        kind,
        np.where(has_sequence, sequence, -1),
        np.where(has_sequence, -1, step),
        np.where(has_sequence, -1, turn),
    )
    return key


def _earlier_rows(key: Int64s, member: npt.NDArray[np.integer]) -> Int64s:
    """For each row, the number of earlier rows with the same key and member."""
    order = np.lexsort((np.arange(len(key)), member, key))
    new = np.append(
        True, (key[order][1:] != key[order][:-1]) | (member[order][1:] != member[order][:-1])
    )
    index = np.arange(len(key))
    numbers = np.empty(len(key), np.int64)
    numbers[order] = index - np.maximum.accumulate(np.where(new, index, 0))
    return numbers


def _last(match: Int64s, length: Int64s, start: Int64s) -> npt.NDArray[np.bool_]:
    """Flags of the shortest call of each collective; of equal ones the one that began last."""
    flags = np.zeros(len(match), np.bool_)
    rows = np.flatnonzero(match >= 0)
    order = rows[np.lexsort((-start[rows], length[rows], match[rows]))]
    flags[order[np.flatnonzero(np.diff(match[order], prepend=-1))]] = True
    return flags


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per collective, process group and size, most time first: the columns of
    `p.device_time.collectives`.

    Bandwidth is all data over all time of the collectives themselves; missing if a size or the
    other ranks are unknown.
    """
    if not len(rows):
        return pd.DataFrame(columns=COLLECTIVES)
    match_rows = rows["match"] >= 0
    calls = rows[match_rows].drop_duplicates("match")
    keys = ["collective", "process_group", "group_size", "bytes"]
    by = rows.groupby(keys, sort=False, dropna=False)
    table = by.agg(
        calls=("time_us", "size"),
        time_ms=("time_us", "sum"),
        wait_ms=("wait_us", lambda v: v.sum(min_count=1)),
    ).reset_index()
    by_call = calls.groupby(keys, sort=False, dropna=False)
    each_ = by_call.agg(
        collectives=("real_us", "size"),
        real_us=("real_us", "mean"),
        min_real_us=("real_us", "min"),
        max_real_us=("real_us", "max"),
        algorithm_gb_per_second=("algorithm_gb_per_second", _harmonic),
        bus_gb_per_second=("bus_gb_per_second", _harmonic),
    ).reset_index()
    table = table.merge(each_, on=keys, how="left")
    table["time_ms"] /= 1e3
    table["wait_ms"] /= 1e3
    matched = (
        rows[match_rows]
        .groupby(keys, sort=False, dropna=False)["time_us"]
        .sum()
        .rename("_matched")
        .reset_index()
    )
    table = table.merge(matched, on=keys, how="left")
    table["wait_percent"] = (
        100 * table["wait_ms"] / (table["_matched"] / 1e3).where(table["_matched"] > 0)
    )
    table["collectives"] = table["collectives"].astype("Int64")
    return table.sort_values("time_ms", ascending=False, kind="stable", ignore_index=True)[
        COLLECTIVES
    ]


def _harmonic(rates: pd.Series) -> float:
    """The rate of several transfers of one size together."""
    positive = rates[rates > 0]
    if len(positive):
        return float(len(positive) / (1 / positive).sum())
    return float("nan")


STRAGGLERS = frames.names("device_time.stragglers")
LATE = 0.01
"""A rank is marked as waited for if that cost more than this fraction of the step."""


def stragglers(rows: pd.DataFrame, steps: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """One row per rank for the whole recording (step NA), then for each step: the columns of
    `p.device_time.stragglers`.

    `late_ms`: how much later than the first one the rank came, summed over collectives. `cost_ms`:
    the wait of the rank that waited longest, summed over those collectives in which this rank was
    the last.

    Parameters
    ----------
    rows, steps : DataFrame
        Of `each`, and `run.steps`.
    judged : DataFrame
        `p.pods.stragglers`, which alone decides who is one: some rank is always the last, if only
        by chance.
    """
    rows = rows[rows["match"] >= 0] if len(rows) else rows
    if not len(rows):
        return pd.DataFrame(columns=STRAGGLERS)
    rows = rows.assign(_cost=rows["late_us"].where(rows["last"], 0.0))
    no_step = missing(np.zeros(len(rows)), np.ones(len(rows), np.bool_))
    parts = [_late_sums(rows.assign(step=no_step, turn=-1), ["turn", *KEYS])]
    in_steps = rows[rows["step"].notna()]
    if len(in_steps):
        parts.append(_late_sums(in_steps, ["step", "turn", *KEYS]))
    table = pd.concat(parts, ignore_index=True)
    table[["late_ms", "wait_ms", "cost_ms", "time"]] /= 1e3
    table["wait_percent"] = 100 * table["wait_ms"] / table["time"].where(table["time"] > 0)
    table["_number"] = table["step"].fillna(-1).astype("int64")
    total = _step_lengths(table, steps)
    largest = table.groupby(["_number", "turn"])["cost_ms"].transform("max")
    table["waited_for"] = (table["cost_ms"] == largest) & (table["cost_ms"] > LATE * total)
    ranks = judged.drop_duplicates(["host", "device"]).set_index(["host", "device"])
    is_straggler = ranks["straggler"].astype("boolean")
    named = is_straggler.reindex(pd.MultiIndex.from_frame(table[["host", "device"]])).array
    # Of single steps those in which the others waited for it.
    table["straggler"] = pd.Series(named, table.index, "boolean") & (
        table["waited_for"] | table["step"].isna()
    )
    return table.sort_values(
        ["turn", "_number", "rank", "host", "device"], kind="stable", ignore_index=True
    )[STRAGGLERS]


def _late_sums(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    sums = rows.groupby(keys, sort=False, dropna=False).agg(
        collectives=("time_us", "size"),
        last_in=("last", "sum"),
        late_ms=("late_us", "sum"),
        wait_ms=("wait_us", "sum"),
        time=("time_us", "sum"),
        cost_ms=("_cost", "sum"),
    )
    table = sums.reset_index()
    if "step" not in table.columns:
        table["step"] = missing(np.zeros(len(table)), np.ones(len(table), np.bool_))
    return table


def _step_lengths(table: pd.DataFrame, steps: pd.DataFrame) -> Floats:
    """The time in ms that a delay in each row is measured by: that of its step, or of all steps."""
    same_step = ["_number", "turn"]
    if not len(steps):
        # Without steps it is the time in collectives.
        return table.groupby(same_step)["time"].transform("max").to_numpy(np.float64)
    by_step = steps.groupby([steps["step"].to_numpy(np.int64), turns(steps)])
    length = by_step["step_time_ms"].max()
    of_rows = length.reindex(pd.MultiIndex.from_frame(table[same_step]))
    return of_rows.fillna(float(length.sum())).to_numpy(np.float64)


def ranks_missing(hosts: list[str], processes: object) -> list[int]:
    """The ranks of a job of so many processes without a file; none if the job or the ranks are
    unknown.
    """
    ranks = _ranks(hosts)
    if not isinstance(processes, int) or not ranks or processes >= MOST_RANKS:
        return []
    return sorted(set(range(processes)) - ranks)


def _ranks(hosts: list[str]) -> set[int]:
    """The ranks that the names of hosts state."""
    ranks = (rank_of(host) for host in hosts)
    return {rank for rank in ranks if rank is not None}


def completeness(hosts: list[str], processes: object) -> list[Note]:
    """Receipt notes about missing ranks."""
    if not ranks_missing(hosts, processes):
        return []
    return [notes.missing_ranks(processes, sorted(_ranks(hosts)))]


def lengths(steps: pd.DataFrame) -> list[Note]:
    """Receipt notes about ranks that recorded different numbers of steps."""
    if not len(steps):
        return []
    count = steps.groupby("host", sort=False).size()
    if count.nunique() < 2:
        return []
    fewest = f"{count.min():,} ({count.idxmin()})"
    most = f"{count.max():,} ({count.idxmax()})"
    return [notes.different_step_counts(fewest, most)]
