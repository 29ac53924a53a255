"""Counters of the timeline: memory in use, device utilization, and recorded counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
        Returns time and value when they are first needed: the first picture does not wait for them.
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
        self._recorded = (time, value) if time is not None and value is not None else None
        self._make = make

    @cached_property
    def samples(self) -> Samples:
        """Time and value."""
        if self._recorded is not None:
            return self._recorded
        if self._make is not None:
            return self._make()
        return np.zeros(0, np.int64), np.zeros(0)

    @property
    def time(self) -> Int64s:
        """int64[k] ps."""
        return self.samples[0]

    @property
    def value(self) -> npt.NDArray[np.float64]:
        """float64[k] in `unit`."""
        return self.samples[1]

    def until(self, time: Int64s) -> npt.NDArray[np.float64]:
        """Sum of value × ps from the first sample to times, of which means are made; float64."""
        index = np.searchsorted(self.time, time, side="right") - 1
        last = np.maximum(index, 0)
        sums = self._reached[last] + self.value[last] * (time - self.time[last])
        return np.where(index >= 0, sums, 0.0)

    @cached_property
    def _reached(self) -> npt.NDArray[np.float64]:
        return np.append(0.0, np.cumsum(self.value[:-1] * np.diff(self.time)))


@dataclass(frozen=True)
class _Recipe:
    """A counter to be: its lane, its unit and the source of its samples."""

    process: str
    label: str
    unit: str
    host: str
    device: str
    make: Callable[[], Samples]


def counters(run: Drawable, lanes: list[Lane], first: int) -> list[tuple[Lane, Counter]]:
    """The counters of a run with their lanes, whose ids begin with `first`.

    Samples are computed when they are first needed.
    """
    devices = _streams_by_device(lanes)
    recipes = [*_busy_devices(run, devices), *_memories(run, devices), *_recorded(run)]
    result = []
    for number, recipe in enumerate(recipes, first):
        lane = Lane(
            number,
            recipe.process,
            recipe.label,
            "",
            "counter",
            recipe.host,
            recipe.device,
            events=0,
        )
        result.append((lane, Counter(number, recipe.label, recipe.unit, make=recipe.make)))
    return result


def _streams_by_device(lanes: list[Lane]) -> dict[str, list[Lane]]:
    """Recorded lanes of devices, by heading."""
    devices: dict[str, list[Lane]] = {}
    for lane in lanes:
        has_device = lane.kind == "device" and lane.device not in ("", "-1", "nan", "None")
        if has_device and not lane.derived:
            devices.setdefault(lane.process, []).append(lane)
    return devices


def _busy_devices(run: Drawable, devices: dict[str, list[Lane]]) -> Iterator[_Recipe]:
    for process, streams in devices.items():
        # A program of a TPU holds the time between its ops too.
        ids = [lane.id for lane in streams if lane.name == "XLA Ops"]
        ids = ids or [lane.id for lane in streams]
        make = partial(busy, run.trace.events, ids)
        yield _Recipe(process, "Busy", "percent", streams[0].host, streams[0].device, make)


def _memories(run: Drawable, devices: dict[str, list[Lane]]) -> Iterator[_Recipe]:
    rows = cache(partial(_by_memory, run))
    for memory in run.memory_summary["memory_id"].astype(str).tolist():
        process, host, device = _place_of_memory(memory, run.hosts, devices)
        make = partial(in_use, run, memory, rows)
        yield _Recipe(process, f"Memory in use, {memory}", "bytes", host, device, make)


def _recorded(run: Drawable) -> Iterator[_Recipe]:
    """Counters of the file, whose samples are sorted by lane, series and time."""
    samples, lanes, hosts = run.trace.counters, run.trace.lanes, len(run.hosts)
    lane, series = samples["lane"].to_numpy(np.int64), samples["series"].tolist()
    time, value = samples["time"].to_numpy(np.int64), samples["value"].to_numpy(np.float64)
    begins = []
    for i in range(len(series)):
        if not i or (lane[i], series[i]) != (lane[i - 1], series[i - 1]):
            begins.append(i)
    for index, stop in pairwise([*begins, len(series)]):
        row = lanes.iloc[int(lane[index])]
        host = str(row["host"])
        yield _Recipe(
            heading(host, section(str(row.get("process", ""))), hosts),
            str(series[index]),
            "count",
            host,
            str(row.get("device", -1)),
            partial(_pair, time[index:stop], value[index:stop]),
        )


def _place_of_memory(
    memory: str, hosts: list[str], devices: dict[str, list[Lane]]
) -> tuple[str, str, str]:
    """Section, host and device of an allocator, by its name: `GPU_0_bfc`, `GPU 0`, `gpu_host_bfc`,
    `CPU`, with its host among several.
    """
    host = hosts[0] if hosts else ""
    rest = memory
    if len(hosts) > 1:
        named = [name for name in hosts if name in memory]
        host = max(named, key=len, default=host)
        rest = memory.replace(host, " ", 1)
    words = list(pairwise(rest.upper().replace("_", " ").replace(":", " ").split()))
    for process, streams in devices.items():
        kind, _, number = process.rpartition("· ")[2].partition(" ")
        if streams[0].host == host and (kind, number) in words:
            return process, host, streams[0].device
    return heading(host, "Host", len(hosts)), host, "-1"


def _by_memory(run: Drawable) -> dict[str, Int64s]:
    """Rows of the table of allocator events, by allocator."""
    code, idents = pd.factorize(run.memory_timeline["memory_id"].to_numpy(object))
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code + 1, minlength=len(idents) + 1))
    return {str(ident): order[ends[i] : ends[i + 1]] for i, ident in enumerate(idents)}


def in_use(run: Drawable, memory: str, by_memory: Callable[[], dict[str, Int64s]]) -> Samples:
    """Bytes that an allocator has handed out, after each of its events."""
    table = run.memory_timeline
    rows = by_memory().get(memory, np.zeros(0, np.int64))
    value = table["in_use_bytes"].iloc[rows].to_numpy(np.float64, na_value=np.nan)
    valid = ~np.isnan(value)
    time_ms = table["time_ms"].iloc[rows[valid]].to_numpy(np.float64)
    return np.round(time_ms * 1e9).astype(np.int64), value[valid]


def _pair(time: Int64s, value: npt.NDArray[np.float64]) -> Samples:
    return time, value


def busy(events: Events, lanes: list[int]) -> Samples:
    """Busy share of a device in percent, in equal parts of the time; overlapping lanes count once.

    The number of parts follows from that of the device's events, at most 65,536; parts with the
    share of the part before are left out.
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
    """Times with at least one event on the lanes, ps; touching events are merged.

    The number of parts depends on the number of these intervals.
    """
    # In the type of the column, which would be copied for any other.
    selected = np.array(lanes, events.lane.dtype)
    begins = np.searchsorted(events.lane, selected).tolist()
    ends = np.searchsorted(events.lane, selected, side="right").tolist()
    rows = [slice(first, stop) for first, stop in zip(begins, ends, strict=True)]
    return Intervals.union_of(
        Intervals.union(events.start[lane], events.start[lane] + events.duration[lane])
        for lane in rows
    )
