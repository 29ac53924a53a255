"""Each step on each worker: who is slow, and by how much. TensorFlow Profiler's pod viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis import notes
from nbprof.core.receipt import Note
from nbprof.core.runs import expand, rows_by_code
from nbprof.core.trace import Int64s
from nbprof.schema import frames

_TIMES = ["step_time_ms", *(f"{c}_ms" for c in CATEGORIES)]
COLUMNS = ["step", "worker", *_TIMES, "bottleneck", "name", "start_ms", "host", "group"]
SUMMARY = frames.names("pods.summary")


def frame(
    steps: pd.DataFrame,
    cores: pd.DataFrame,
    ahead_ms: Mapping[str, float] | None = None,
    unit: Unit = MARKED,
) -> tuple[pd.DataFrame, list[Note]]:
    """One row per step and worker, and what the receipt says of the comparison.

    Parameters
    ----------
    steps : DataFrame
        Of `steps.frame`: the steps of all hosts.
    cores : DataFrame
        The steps of each device where the devices of a host have steps of their own: as `steps`,
        with `device`; empty where none has.
    ahead_ms : mapping, optional
        How far the clock of each host is ahead of that of the first, where that is known of all.
    unit : Unit
        The meaning of the rows of `steps`.
    """
    ahead_ms = ahead_ms or {}
    for_receipt: list[Note] = []
    rows_by_host = _rows_by_host(steps)
    working = _with_device(steps, rows_by_host)
    if working and len(working) < len(rows_by_host):
        idle = [host for host in rows_by_host if host not in working]
        for_receipt.append(notes.uncompared_hosts(idle))
        rows_by_host = working
    if not rows_by_host:
        return pd.DataFrame(columns=COLUMNS), for_receipt
    hosts = _host_steps(steps, rows_by_host, ahead_ms)
    aligned = align(hosts, has_offsets=bool(ahead_ms))
    # There is one recording of each: nothing to match, nor to be wrong about.
    if not unit.is_recording:
        for_receipt += aligned.notes
    compared: list[Int64s] = []
    for rows, offset in zip(rows_by_host.values(), aligned.first, strict=True):
        if offset is not None:
            compared.append(rows[offset : offset + aligned.steps])
    if not compared:
        return pd.DataFrame(columns=COLUMNS), for_receipt
    table = steps.iloc[np.concatenate(compared)]
    table = table.assign(
        place=np.repeat(np.arange(len(compared)), aligned.steps),
        position=np.tile(np.arange(aligned.steps), len(compared)),
        worker=table["host"],
    )
    if len(cores):
        table = _per_core(table, cores)
    numbers = _common_numbers(hosts[aligned.chief].number, aligned)
    table = table.sort_values(["position", "place"], kind="stable", ignore_index=True)
    table["step"] = numbers[table["position"].to_numpy(np.int64)]
    table["bottleneck"] = bottleneck(table)
    return table[COLUMNS], for_receipt


def _rows_by_host(steps: pd.DataFrame) -> dict[str, Int64s]:
    """The rows of each host: a frame a host would take seconds for a thousand."""
    code, names = pd.factorize(steps["host"].to_numpy(object))
    return dict(zip(map(str, names.tolist()), rows_by_code(code), strict=True))


def _with_device(steps: pd.DataFrame, rows_by_host: Mapping[str, Int64s]) -> dict[str, Int64s]:
    """The hosts with device activity."""
    is_known = steps["device_compute_ms"].notna().to_numpy(np.bool_)
    return {host: rows for host, rows in rows_by_host.items() if is_known[rows].any()}


def _host_steps(
    steps: pd.DataFrame, rows_by_host: Mapping[str, Int64s], ahead_ms: Mapping[str, float]
) -> list[HostSteps]:
    """The steps of each host on the clock of the first."""
    begin, length = (steps[name].to_numpy(np.float64) for name in ("start_ms", "step_time_ms"))
    end, number = begin + length, steps["step"].to_numpy(np.int64)
    hosts = []
    for host, rows in rows_by_host.items():
        ahead = ahead_ms.get(host, 0.0)
        hosts.append(HostSteps(host, begin[rows] - ahead, end[rows] - ahead, number[rows]))
    return hosts


def _common_numbers(numbers: Int64s, aligned: Aligned) -> Int64s:
    """The numbers of the common steps: those of the chief, where they distinguish its steps;
    programs that train and test in turn count each from 0.
    """
    first = aligned.first[aligned.chief]
    if first is None or len(set(numbers.tolist())) < len(numbers):
        return np.arange(aligned.steps)
    return numbers[first : first + aligned.steps]


def _per_core(table: pd.DataFrame, cores: pd.DataFrame) -> pd.DataFrame:
    """The steps with those of each device in place of those of its host."""
    columns = ["host", "group", "place", "position", "name"]
    of_cores = cores.merge(table[columns], on=["host", "group"], suffixes=("_", ""))
    of_cores["worker"] = of_cores["host"].astype(str) + ":" + of_cores["device"].astype(str)
    rest = table[~table["host"].isin(cores["host"])]
    return pd.concat([rest, of_cores], ignore_index=True) if len(rest) else of_cores


def bottleneck(rows: pd.DataFrame) -> list[str]:
    """The category with the most time in each row, the first of equal ones; categories that were
    not measured do not count.
    """
    times = rows[_TIMES[1:]].to_numpy(np.float64)
    largest = np.nan_to_num(times, nan=-1.0).argmax(axis=1)
    return [CATEGORIES[index] for index in largest.tolist()]


def summary(pods: pd.DataFrame) -> pd.DataFrame:
    """One row per step: its workers, the slowest of them, and by how much the fastest is below it
    in percent.
    """
    if not len(pods):
        return pd.DataFrame(columns=SUMMARY)
    by_step = pods.groupby("step", sort=False)["step_time_ms"]
    slowest = pods.loc[by_step.idxmax()]
    latest, least, count = (by_step.agg(how).to_numpy() for how in ("max", "min", "count"))
    return pd.DataFrame(
        {
            "step": slowest["step"].to_numpy(),
            "workers": count,
            "slowest": slowest["worker"].to_numpy(),
            "slowest_ms": latest,
            "fastest_ms": least,
            # One worker has nothing to differ from.
            "spread_percent": np.where(count > 1, 100 * (latest - least) / latest, np.nan),
        }
    )


Floats = npt.NDArray[np.float64]


@dataclass
class HostSteps:
    """The steps of one host in time order: name of the host, begin and end of each (any unit, one
    for all hosts), number of each.
    """

    host: str
    begin: Floats
    end: Floats
    number: Int64s


@dataclass
class Aligned:
    """The common steps of hosts.

    Attributes
    ----------
    steps : how many steps all hosts have
    first : by host, the index of its step that is the first common one; None for a host that could
    not be aligned
    chief : index of the host whose numbers the steps have
    notes : what a reader must know of it
    """

    steps: int
    first: list[int | None]
    chief: int
    notes: list[Note] = field(default_factory=list)


def align(hosts: Sequence[HostSteps], *, has_offsets: bool = False) -> Aligned:
    """The common steps of several hosts, each with at least one step; `has_offsets` if their times
    are known to be of one clock.

    The chief is the host with the shortest time from the start of its first step to the end of its
    last. Every other host gets the offset k (its step i is step i + k of the chief) for which the
    steps overlap longest in time; of equal ones 0, 1, 2 … and then -1, -2 …

    Where the steps of a host overlap with none of the chief's, its clock is another one or it ran
    at another time: then the offset is the one under which most steps have the same number. (XProf
    takes offset 0 there.) A host that shares no number either is left out.
    """
    spans = [float(h.end.max() - h.begin.min()) for h in hosts]
    chief = int(np.argmin(spans))
    for_receipt: list[Note] = []
    offsets: list[int | None] = []
    for index, host in enumerate(hosts):
        offset = 0 if index == chief else offset_by_overlap(host, hosts[chief])
        if offset is None:
            offset = _offset_by_number(host, hosts[chief])
            if offset is None:
                for_receipt.append(notes.steps_do_not_match(host.host, hosts[chief].host))
            else:
                for_receipt.append(notes.steps_matched_by_number(host.host, hosts[chief].host))
        elif index != chief:
            for_receipt += _renumbered(host, hosts[chief], offset, has_offsets)
        offsets.append(offset)
    # In the chief's numbering.
    low = max(k for k in offsets if k is not None)
    high = min(len(h.begin) + k for h, k in zip(hosts, offsets, strict=True) if k is not None)
    low = max(low, 0)
    if high <= low:
        for_receipt.append(notes.no_common_step())
        return Aligned(0, [None] * len(hosts), chief, for_receipt)
    first = [None if k is None else low - k for k in offsets]
    used = [h for h, k in zip(hosts, offsets, strict=True) if k is not None]
    outside = sum(len(h.begin) - (high - low) for h in used)
    if outside:
        for_receipt.append(notes.steps_not_compared(outside))
    return Aligned(high - low, first, chief, for_receipt)


def offset_by_overlap(host: HostSteps, chief: HostSteps) -> int | None:
    """The offset under which the steps of two hosts overlap longest; None where no step overlaps
    with any.
    """
    count, other = len(host.begin), len(chief.begin)
    # Steps are in order of their begin. Those of the chief that a step can overlap with lie between
    # two places.
    reached = np.maximum.accumulate(chief.end)
    low = np.searchsorted(reached, host.begin, side="right")
    high = np.searchsorted(chief.begin, host.end, side="left")
    host_rows, theirs = expand(low, np.maximum(high - low, 0))
    overlap = np.minimum(host.end[host_rows], chief.end[theirs]) - np.maximum(
        host.begin[host_rows], chief.begin[theirs]
    )
    score = np.bincount(
        theirs - host_rows + count - 1, weights=np.maximum(overlap, 0), minlength=count + other - 1
    )
    return _best(score, count)


def _offset_by_number(host: HostSteps, chief: HostSteps) -> int | None:
    """The offset under which most steps of two hosts have the same number; None where they share
    none.
    """
    count, other = len(host.number), len(chief.number)
    order = np.argsort(chief.number, kind="stable")
    ordered = chief.number[order]
    low = np.searchsorted(ordered, host.number, side="left")
    host_rows, position = expand(low, np.searchsorted(ordered, host.number, side="right") - low)
    theirs = order[position]
    return _best(np.bincount(theirs - host_rows + count - 1, minlength=count + other - 1), count)


def _best(score: npt.NDArray[np.floating] | npt.NDArray[np.integer], count: int) -> int | None:
    """The offset of the largest score; `score` begins with that of offset -(count - 1)."""
    if not len(score) or score.max() <= 0:
        return None
    zero = count - 1
    preferred = np.concatenate([score[zero:], score[:zero][::-1]])
    best = int(np.argmax(preferred))
    ahead = len(score) - zero
    if best < ahead:
        return best
    return ahead - 1 - best


def _renumbered(host: HostSteps, chief: HostSteps, offset: int, has_offsets: bool) -> list[Note]:
    """Says it where two hosts count the same steps by different numbers."""
    low, high = max(0, -offset), min(len(host.number), len(chief.number) - offset)
    differ = np.unique(host.number[low:high] - chief.number[low + offset : high + offset])
    if len(differ) != 1 or not differ[0]:
        return []
    step = f"step {host.number[low]} of {host.host}"
    chief_step = f"step {chief.number[low + offset]} of {chief.host}"
    return [notes.steps_matched_by_time(step, chief_step, has_offsets)]
