"""Counters of the timeline: memory in use, device utilization, and recorded counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.intervals import Intervals
from nbprof.core.trace import Events, Int64s
from nbprof.timeline.lanes import Lane, heading, section

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

Samples = tuple[Int64s, npt.NDArray[np.float64]]

_MOST_BINS = 1 << 16


class Counter:
    """Samples of one counter, in time order; each holds until the next.

    Parameters
    ----------
    id : int
        That of its lane.
    label, unit : str
        The unit is "bytes", "percent" or "count".
    time : int64[k]
        ps.
    value : float64[k]
    make : callable
        Gives time and value instead, when they are first asked for: a first picture does not wait
        for them.
    """

    def __init__(
        self,
        id: int,
        label: str,
        unit: str,
        time: Int64s | None = None,
        value: npt.NDArray[np.float64] | None = None,
        make: Callable[[], Samples] | None = None,
    ) -> None:
        self.id, self.label, self.unit = id, label, unit
        self._given = (time, value) if time is not None and value is not None else None
        self._make = make

    @cached_property
    def samples(self) -> Samples:
        """Time and value."""
        if self._given is not None:
            return self._given
        return self._make() if self._make is not None else (np.zeros(0, np.int64), np.zeros(0))

    @property
    def time(self) -> Int64s:
        """int64[k] ps."""
        return self.samples[0]

    @property
    def value(self) -> npt.NDArray[np.float64]:
        """float64[k] in `unit`."""
        return self.samples[1]

    def until(self, time: Int64s) -> npt.NDArray[np.float64]:
        """Sum of value × ps from the first sample to moments: what means are made of. float64, of
        the shape of `time`.
        """
        index = np.searchsorted(self.time, time, side="right") - 1
        last = np.maximum(index, 0)
        return np.where(
            index >= 0, self._reached[last] + self.value[last] * (time - self.time[last]), 0.0
        )

    @cached_property
    def _reached(self) -> npt.NDArray[np.float64]:
        return np.append(0.0, np.cumsum(self.value[:-1] * np.diff(self.time)))


def counters(run: Drawable, lanes: list[Lane], first: int) -> list[tuple[Lane, Counter]]:
    """The counters of a run with their lanes, whose ids begin with `first`; samples are made when
    they are first asked for.
    """
    hosts = len(run.hosts)
    counters: list[tuple[str, str, str, str, str, Callable[[], Samples]]] = []
    devices: dict[str, list[Lane]] = {}
    for lane in lanes:
        if (
            lane.kind == "device"
            and not lane.derived
            and lane.device not in ("", "-1", "nan", "None")
        ):
            devices.setdefault(lane.process, []).append(lane)
    for process, streams in devices.items():
        # A program of a TPU holds the time between its ops too.
        ids = [lane.id for lane in streams if lane.name == "XLA Ops"] or [
            lane.id for lane in streams
        ]
        counters.append(
            (
                process,
                "Busy",
                "percent",
                streams[0].host,
                streams[0].device,
                partial(busy, run.trace.events, ids),
            )
        )
    rows = cache(partial(_by_memory, run))
    for memory in run.memory_summary["memory_id"].astype(str).tolist():
        process, host, device = _of_memory(memory, run.hosts, devices)
        counters.append(
            (
                process,
                f"Memory in use, {memory}",
                "bytes",
                host,
                device,
                partial(in_use, run, memory, rows),
            )
        )
    samples = run.trace.counters
    table = run.trace.lanes
    lane_of, series = samples["lane"].to_numpy(np.int64), samples["series"].tolist()
    time, value = samples["time"].to_numpy(np.int64), samples["value"].to_numpy(np.float64)
    # Samples are sorted by lane, series and time.
    begins = [
        i
        for i in range(len(series))
        if not i or (lane_of[i], series[i]) != (lane_of[i - 1], series[i - 1])
    ]
    for index, stop in pairwise([*begins, len(series)]):
        row = table.iloc[int(lane_of[index])]
        process = heading(str(row["host"]), section(str(row.get("process", ""))), hosts)
        make = partial(_given, time[index:stop], value[index:stop])
        counters.append(
            (
                process,
                str(series[index]),
                "count",
                str(row["host"]),
                str(row.get("device", -1)),
                make,
            )
        )
    return [
        (
            Lane(first + i, process, label, "", "counter", host, device, 0),
            Counter(first + i, label, unit, make=make),
        )
        for i, (process, label, unit, host, device, make) in enumerate(counters)
    ]


def _of_memory(
    memory: str, hosts: list[str], devices: dict[str, list[Lane]]
) -> tuple[str, str, str]:
    """Section, host and device of an allocator, by its name: `GPU_0_bfc`, `GPU 0`, `gpu_host_bfc`,
    `CPU`, with its host among several.
    """
    host = next(
        (h for h in sorted(hosts, key=len, reverse=True) if len(hosts) > 1 and h in memory),
        hosts[0] if hosts else "",
    )
    rest = memory.replace(host, " ", 1) if len(hosts) > 1 else memory
    words = rest.upper().replace("_", " ").replace(":", " ").split()
    for process, streams in devices.items():
        kind, _, number = process.rpartition("· ")[2].partition(" ")
        if streams[0].host == host and any(a == kind and b == number for a, b in pairwise(words)):
            return process, host, streams[0].device
    return heading(host, "Host", len(hosts)), host, "-1"


def _by_memory(run: Drawable) -> dict[str, Int64s]:
    """Rows of the table of allocator events, by allocator."""
    code, idents = pd.factorize(run.memory_timeline["memory_id"].to_numpy(object))
    order, ends = (
        np.argsort(code, kind="stable"),
        np.cumsum(np.bincount(code + 1, minlength=len(idents) + 1)),
    )
    return {str(ident): order[ends[i] : ends[i + 1]] for i, ident in enumerate(idents)}


def in_use(run: Drawable, memory: str, by_memory: Callable[[], dict[str, Int64s]]) -> Samples:
    """Bytes that an allocator has handed out, after each of its events."""
    table = run.memory_timeline
    rows = by_memory().get(memory, np.zeros(0, np.int64))
    value = table["in_use_bytes"].iloc[rows].to_numpy(np.float64, na_value=np.nan)
    valid = ~np.isnan(value)
    return np.round(table["time_ms"].iloc[rows[valid]].to_numpy(np.float64) * 1e9).astype(
        np.int64
    ), value[valid]


def _given(time: Int64s, value: npt.NDArray[np.float64]) -> Samples:
    return time, value


def busy(events: Events, lanes: list[int]) -> Samples:
    """Share of time in which a device did anything on any of its lanes, an instant once, in 0…100,
    over equal parts of the time.

    There are as many parts as the device's work is worth, at most 65,536; parts that have the share
    of the one before are left out.
    """
    work = _union(events, lanes)
    if not len(work):
        return np.zeros(0, np.int64), np.zeros(0)
    first, last = int(work.start[0]), int(work.end[-1])
    count = int(min(_MOST_BINS, max(64, 2 * len(work))))
    width = max(-(-(last - first) // count), 1)
    edge = first + width * np.arange(-(-(last - first) // width) + 1, dtype=np.int64)
    share = np.append(np.diff(work.covered_until(edge)) * 100.0 / width, 0.0)
    new = np.append(True, share[1:] != share[:-1])
    return edge[new], share[new]


def _union(events: Events, lanes: list[int]) -> Intervals:
    """When at least one event of some lanes runs, ps; touching events are merged, as their number
    is what the parts depend on.
    """
    # In the type of the column: any other would have all of it copied, for each lane.
    selected = np.array(lanes, events.lane.dtype)
    begins, ends = (
        np.searchsorted(events.lane, selected).tolist(),
        np.searchsorted(events.lane, selected, side="right").tolist(),
    )
    rows = [slice(first, stop) for first, stop in zip(begins, ends, strict=True)]
    return Intervals.union_of(
        Intervals.union(events.start[lane], events.start[lane] + events.duration[lane])
        for lane in rows
    )
