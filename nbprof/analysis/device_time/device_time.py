"""Time of devices: computation, communication, memory, idle, each instant counted once; kernels by
class and name.

Work of a device is every kernel, copy and fill on any of its streams; on a TPU every op of a core
without the ops inside it. Waits that a recorder draws on streams (`cuda_sync`) are not work. Times
are integer picoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import copies
from nbprof.activity.activity import CORE_KINDS, Activity, text_column
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.table import positions
from nbprof.core.factorize import all_differ, unique_rows
from nbprof.core.intervals import Intervals
from nbprof.core.runs import rows_by_code, rows_by_value
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

COMPUTE, COMMUNICATION, MEMORY = 1, 2, 4
"""Classes as bits: an instant has the bits of all classes running in it."""
CLASS_NAMES = {COMPUTE: "compute", COMMUNICATION: "communication", MEMORY: "memory"}
_CORE_CLASS = {
    "compute": COMPUTE,
    "all_reduce": COMMUNICATION,
    "send": COMMUNICATION,
    "recv": COMMUNICATION,
}
_CALLED_COPY = re.compile(r"hip(?:memcpy|memset|copybuffer|fillbuffer)", re.IGNORECASE)
_MS = 1e9
"""Picoseconds per millisecond."""

KEYS = ["host", "rank", "device"]
STEP = ["step", "name", "start_ms"]


@dataclass
class Work:
    """The work of all devices, sorted by (host, device, start, end).

    Attributes
    ----------
    event : int64[n]
        Event of the trace; on a TPU several pieces may be of one.
    host, device, lane : int32[n]
        Index into `hosts`, ordinal, lane of the trace (the stream).
    start, end : int64[n]
        ps.
    cls : int64[n]
        COMPUTE, COMMUNICATION or MEMORY.
    name : int64[n]
        Code into the names of the trace.
    launch : int64[n]
        Event of the call that launched it, -1 where none is known.
    """

    event: Int64s
    host: Int32s
    device: Int32s
    lane: Int32s
    start: Int64s
    end: Int64s
    cls: Int64s
    name: Int64s
    launch: Int64s
    hosts: list[str]
    ranks: list[int | None]

    def __len__(self) -> int:
        return len(self.start)

    def devices(self) -> list[tuple[int, int, slice]]:
        """Host, device and rows of each device."""
        if not len(self):
            return []
        change = (
            np.flatnonzero(
                (self.host[1:] != self.host[:-1]) | (self.device[1:] != self.device[:-1])
            )
            + 1
        )
        edges = [0, *change.tolist(), len(self)]
        return [(int(self.host[a]), int(self.device[a]), slice(a, b)) for a, b in pairwise(edges)]

    def streams(self, rows: slice) -> list[tuple[int, Int64s]]:
        """Lane and rows of each stream of a device, in time order."""
        parts = (part + rows.start for part in rows_by_value(self.lane[rows]))
        return [(int(self.lane[part[0]]), part) for part in parts]


def rank_of(host: str) -> int | None:
    """The rank that the name of a host or file states: 3 of "rank 3" and "sampled_rank-3"."""
    match = re.search(r"rank[ _-]?(\d{1,7})(?!\d)", host, re.IGNORECASE)
    return int(match[1]) if match else None


def missing(values: npt.NDArray[Any], is_missing: npt.NDArray[np.bool_]) -> Any:
    """Integers as a nullable column."""
    return pd.arrays.IntegerArray(np.asarray(values, np.int64), np.asarray(is_missing, np.bool_))


def rank_column(ranks: list[int | None], host: npt.NDArray[np.integer]) -> Any:
    """The rank of the host of each row, missing if unknown."""
    number = np.array([-1 if rank is None else rank for rank in ranks], np.int64)[host]
    return missing(number, number < 0)


def work(activity: Activity, trace: Trace) -> Work:
    """The work of all devices, from any profiler."""
    events = trace.events
    kernels, moved, collective = (
        activity.kernels.event,
        activity.transfers.event,
        activity.collectives.event,
    )
    works = np.zeros(len(events), np.bool_)
    for event in (kernels, moved, collective):
        works[event] = True
    rows = np.flatnonzero(works)
    cls = np.full(len(events), COMPUTE, np.uint8)
    named = _copies(trace, rows)
    cls[rows[named]] = MEMORY
    cls[moved] = MEMORY
    cls[collective] = COMMUNICATION
    hosts = positions(activity.hosts)
    of_lane = np.array([hosts[name] for name in trace.lanes["host"].tolist()], np.int32)
    lane = events.lane[rows]
    parts: dict[str, Any] = {
        "event": rows,
        "host": of_lane[lane],
        "device": trace.lanes["device"].to_numpy(np.int32)[lane],
        "lane": lane,
        "start": events.start[rows],
        "end": events.start[rows] + events.duration[rows],
        "cls": cls[rows].astype(np.int64),
    }
    cores = activity.core_spans.frame()
    if len(cores):
        if len(rows):
            device_keys = pd.MultiIndex.from_arrays([parts["host"], parts["device"]])
            cores = cores[~pd.MultiIndex.from_frame(cores[["host", "device"]]).isin(device_keys)]
        kind = np.array([_CORE_CLASS.get(name, MEMORY) for name in CORE_KINDS], np.int64)[
            cores["kind"].to_numpy(np.int64)
        ]
        event = cores["event"].to_numpy(np.int64)
        more = {"lane": events.lane[event], "cls": kind}
        parts = {
            key: np.concatenate(
                [value, more[key] if key in more else cores[key].to_numpy(value.dtype)]
            )
            for key, value in parts.items()
        }
    order = np.lexsort((parts["end"], parts["start"], parts["device"], parts["host"]))
    parts = {key: value[order] for key, value in parts.items()}
    called = np.full(len(events), -1, np.int32)
    launches = activity.launches.frame()
    target = launches["target"].to_numpy(np.int64)
    called[target[target >= 0]] = launches["event"].to_numpy(np.int64)[target >= 0]
    name, launch = (
        events.name[parts["event"]].astype(np.int64),
        called[parts["event"]].astype(np.int64),
    )
    return Work(
        **parts,
        name=name,
        launch=launch,
        hosts=list(activity.hosts),
        ranks=[rank_of(h) for h in activity.hosts],
    )


def _copies(trace: Trace, rows: Int64s) -> npt.NDArray[np.bool_]:
    """Flags of the events with the name of a copy or fill: some recorders mark these in no other
    way.
    """
    code = trace.events.name[rows]
    table = np.zeros(len(trace.names), np.bool_)
    for name_code in pd.unique(code).tolist():
        name = str(trace.names[name_code])
        is_copy = copies.kind(name) or copies.blit(name) or _CALLED_COPY.match(name)
        table[name_code] = bool(is_copy)
    return np.asarray(table[code], np.bool_)


class Mix:
    """The classes that run on one device at each instant, and the time of each mix of them.

    Attributes
    ----------
    time : int64[m + 1]
        Moments at which the mix changes, ps.
    bits : int8[m]
        The classes between a moment and the next.
    """

    def __init__(self, start: Int64s, end: Int64s, cls: Int64s) -> None:
        times, switches = [], []
        for bit in CLASS_NAMES:
            has_class = cls == bit
            of_class = Intervals.union(start[has_class], end[has_class])
            times += [of_class.start, of_class.end]
            switches += [
                np.full(len(of_class), bit, np.int8),
                np.full(len(of_class), -bit, np.int8),
            ]
        edges = np.concatenate(times)
        order = np.argsort(edges, kind="stable")
        edges, active = edges[order], np.cumsum(np.concatenate(switches)[order], dtype=np.int8)
        if len(edges):
            last = np.flatnonzero(np.append(edges[1:] != edges[:-1], True))
        else:
            last = np.zeros(0, np.int64)
        self.time: Int64s = edges[last]
        self.bits: npt.NDArray[np.int8] = active[last][:-1]
        length = np.diff(self.time)
        # Of the mixes that there are; idle is what they leave.
        there = np.flatnonzero(np.bincount(self.bits)[1:]) + 1
        self._sums = {
            bits: np.append(0, np.cumsum(np.where(self.bits == bits, length, 0)))
            for bits in there.tolist()
        }

    def within(self, start: Int64s, end: Int64s) -> Int64s:
        """int64[8, k]: ps of each mix of classes in some windows. Row 0 is idle, before the first
        and after the last work too.
        """
        end = np.maximum(end, start)
        spent = np.zeros((8, len(start)), np.int64)
        if len(self.time):
            spent = self._upto(end) - self._upto(start)
        spent[0] = (end - start) - spent[1:].sum(axis=0)
        return spent

    def _upto(self, moment: Int64s) -> Int64s:
        index = np.clip(np.searchsorted(self.time, moment, side="right") - 1, 0, len(self.time) - 1)
        totals = np.zeros((8, len(moment)), np.int64)
        for bits, sums in self._sums.items():
            totals[bits] = sums[index]
        within = np.flatnonzero((index < len(self.bits)) & (moment > self.time[0]))
        if len(within):
            totals[self.bits[index[within]], within] += moment[within] - self.time[index[within]]
        return totals


@dataclass
class _Windows:
    """Windows of devices, one device after the other: from its first to its last work (no step),
    then the steps of its host.
    """

    host: Int64s
    device: Int64s
    step: Int64s
    """Row of the frame of steps, -1 for the whole."""
    start: Int64s
    end: Int64s

    def labels(self, done: Work, steps: pd.DataFrame) -> dict[str, object]:
        """The columns `KEYS` and `STEP`."""
        is_total = self.step < 0
        number, name = np.zeros(len(is_total), np.int64), np.full(len(is_total), "", object)
        step_of_row = self.step[~is_total]
        if len(step_of_row):
            number[~is_total], name[~is_total] = (
                steps["step"].to_numpy(np.int64)[step_of_row],
                steps["name"].to_numpy(object)[step_of_row],
            )
        return {
            "host": np.array(done.hosts, object)[self.host],
            "rank": rank_column(done.ranks, self.host),
            "device": self.device,
            "step": missing(number, is_total),
            "name": name,
            "start_ms": self.start / _MS,
        }


def _windows(done: Work, steps: pd.DataFrame) -> _Windows:
    of_host: dict[str, Int64s] = {}
    begin = stop = np.zeros(0, np.int64)
    if len(steps):
        code, names = pd.factorize(steps["host"].to_numpy(object))
        of_host = dict(zip(map(str, names), rows_by_code(code), strict=True))
        begin, stop = step_bounds(steps)
    none, devices = np.zeros(0, np.int64), done.devices()
    rows_of_device = [of_host.get(done.hosts[host], none) for host, _, _ in devices]
    first = np.array([done.start[rows.start] for _, _, rows in devices], np.int64)
    last = np.array([done.end[rows].max() for _, _, rows in devices], np.int64)

    def joined(of_devices: Int64s, of_steps: Int64s) -> Int64s:
        parts = [none]
        for device, rows in enumerate(rows_of_device):
            parts += [of_devices[device : device + 1], of_steps[rows]]
        return np.concatenate(parts)

    count = [1 + len(rows) for rows in rows_of_device]
    return _Windows(
        host=np.repeat(np.array([host for host, _, _ in devices], np.int64), count),
        device=np.repeat(np.array([device for _, device, _ in devices], np.int64), count),
        step=joined(np.full(len(devices), -1), np.arange(len(begin))),
        start=joined(first, begin),
        end=joined(last, stop),
    )


@dataclass
class Spent:
    """Time of devices in windows: one for the recording of each, then one for each step of its
    host.

    Attributes
    ----------
    labels : dict
        The columns `KEYS` and `STEP`.
    ps : int64[8, k]
        Time of each mix of classes, the result of `Mix.within`.
    """

    labels: dict[str, object]
    ps: Int64s


def spent(done: Work, steps: pd.DataFrame) -> Spent:
    """The times that `frame` and `overlap` show."""
    windows = _windows(done, steps)
    spent = np.zeros((8, len(windows.start)), np.int64)
    edges = np.flatnonzero(np.append(windows.step < 0, True))
    for (_, _, rows), low, high in zip(done.devices(), edges[:-1], edges[1:], strict=True):
        mix = Mix(done.start[rows], done.end[rows], done.cls[rows])
        spent[:, low:high] = mix.within(windows.start[low:high], windows.end[low:high])
    return Spent(windows.labels(done, steps), spent)


TIMES = ["time_ms", "compute_ms", "communication_ms", "memory_ms", "idle_ms"]
PERCENTS = ["compute_percent", "communication_percent", "memory_percent", "idle_percent"]


def frame(spent_time: Spent) -> pd.DataFrame:
    """Temporal breakdown: one row per device for the whole recording, and one for each step: the
    columns of `p.device_time.frame`.
    """
    spent = spent_time.ps
    if not spent.size:
        return pd.DataFrame(columns=[*KEYS, *STEP, *TIMES, *PERCENTS])
    # Exclusive: work that overlaps computation counts as computation, a copy that overlaps
    # communication as communication.
    total = spent.sum(axis=0)
    by_class = {
        "compute": spent[1::2].sum(axis=0),
        "communication": spent[COMMUNICATION] + spent[COMMUNICATION | MEMORY],
        "memory": spent[MEMORY],
        "idle": spent[0],
    }
    columns = {**spent_time.labels, "time_ms": total / _MS}
    columns |= {f"{name}_ms": time / _MS for name, time in by_class.items()}
    columns |= {f"{name}_percent": _percent(time, total) for name, time in by_class.items()}
    return pd.DataFrame(columns)


OVERLAPS: dict[str, Callable[[Int64s], Int64s]] = {
    "compute_ms": lambda s: np.asarray(s[1::2].sum(axis=0)),
    "communication_ms": lambda s: s[2] + s[3] + s[6] + s[7],
    "memory_ms": lambda s: np.asarray(s[4:].sum(axis=0)),
    "compute_communication_ms": lambda s: s[3] + s[7],
    "compute_memory_ms": lambda s: s[5] + s[7],
    "communication_memory_ms": lambda s: s[6] + s[7],
    "exposed_communication_ms": lambda s: s[2] + s[6],
    "exposed_memory_ms": lambda s: s[4],
}


def overlap(spent_time: Spent) -> pd.DataFrame:
    """Overlap of each class with the others: the columns of `p.device_time.overlap`; rows as those
    of `frame`.
    """
    if not spent_time.ps.size:
        more = ["communication_overlap_percent", "memory_overlap_percent"]
        return pd.DataFrame(columns=[*KEYS, *STEP, *OVERLAPS, *more])
    sums = {key: measure(spent_time.ps) for key, measure in OVERLAPS.items()}
    columns = spent_time.labels | {key: value / _MS for key, value in sums.items()}
    # Without communication the percentage is unknown, not 0.
    columns["communication_overlap_percent"] = _percent(
        sums["compute_communication_ms"], sums["communication_ms"]
    )
    columns["memory_overlap_percent"] = _percent(
        sums["memory_ms"] - sums["exposed_memory_ms"], sums["memory_ms"]
    )
    return pd.DataFrame(columns)


def _percent(part: npt.NDArray[np.integer], total: npt.NDArray[np.integer]) -> Floats:
    return np.asarray(
        np.divide(100.0 * part, total, out=np.full(len(part), np.nan), where=total > 0)
    )


KERNELS = frames.names("device_time.kernels")


def kernels(done: Work, names: npt.NDArray[np.object_]) -> pd.DataFrame:
    """One row per device, class and name, most time first within a device: the columns of
    `p.device_time.kernels`, and the position of the longest run (`_at_ms`, `_for_ms`).
    """
    if not len(done):
        return pd.DataFrame(columns=[*KERNELS, "_at_ms", "_for_ms"])
    first, length = np.arange(len(done)), done.end - done.start
    if not all_differ(done.event):
        # A TPU's op that has others inside is several pieces.
        first, run = unique_rows(done.event)
        length = np.bincount(run, length).astype(np.int64)
    group_first, group = unique_rows(
        done.host[first].astype(np.int64),
        done.device[first].astype(np.int64),
        done.cls[first],
        done.name[first],
    )
    order = np.lexsort((length, group))
    count = np.bincount(group)
    stop = np.cumsum(count)
    begin = stop - count
    total = np.add.reduceat(length[order], begin)
    mean = total / count
    off = (length[order] - np.repeat(mean, count)) ** 2
    sd = np.sqrt(
        np.divide(
            np.add.reduceat(off, begin), count - 1, out=np.full(len(count), np.nan), where=count > 1
        )
    )
    median = (length[order][begin + (count - 1) // 2] + length[order][begin + count // 2]) / 2
    longest = first[order[stop - 1]]
    rows = first[group_first]
    host = done.host[rows]
    table = pd.DataFrame(
        {
            "host": np.array(done.hosts, object)[host],
            "rank": rank_column(done.ranks, host),
            "device": done.device[rows].astype(np.int64),
            "class": np.array([CLASS_NAMES[c] for c in done.cls[rows].tolist()], object),
            "kernel": text_column(names, done.name[rows]),
            "occurrences": count,
            "total_us": total / 1e6,
            "avg_us": mean / 1e6,
            "sd_us": sd / 1e6,
            "min_us": length[order][begin] / 1e6,
            "median_us": median / 1e6,
            "max_us": length[order][stop - 1] / 1e6,
            "_at_ms": done.start[longest] / _MS,
            "_for_ms": (done.end[longest] - done.start[longest]) / _MS,
            "_host": host,
        }
    )
    table = table.sort_values(
        ["_host", "device", "total_us", "kernel"],
        ascending=[True, True, False, True],
        kind="stable",
        ignore_index=True,
    )
    by_device = table.groupby(["_host", "device"], sort=False)["total_us"]
    table["percent"] = 100 * table["total_us"] / by_device.transform("sum")
    table["cumulative_percent"] = table.groupby(["_host", "device"], sort=False)["percent"].cumsum()
    return table[[*KERNELS, "_at_ms", "_for_ms"]]
