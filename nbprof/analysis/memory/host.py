"""Host memory of the recorded process and its children over the cell: by moment, by process, and
what the process keeps from step to step.

Growth is of the memory that is neither in files nor in shared memory: what the kernel keeps of
mapped files it gives back when it needs the memory. Only steps without a profiler count, for a
profiler holds its events in the memory of the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.host_memory import UNKNOWN, HostMemory
from nbprof.core.step_times import StepTimes
from nbprof.core.trace import Int64s
from nbprof.schema import frames

_FRAME, _PROCESSES = "memory.host", "memory.host_processes"
ALL, ITSELF = "All processes", "This process"
_FEWEST_STEPS = 20
_PIECES = 12
"""Parts of the run whose least memory is compared."""
_LEAST_IN_PIECE = 2
"""Samples in each."""
_SETTLING = 5
"""One part of so many of the steps without a profiler is left out at their begin: buffers fill."""
_AFTER = 2
"""Steps after a recording in which the profiler gives its memory back."""


@dataclass(frozen=True)
class HostGrowth:
    """Memory that the recorded process keeps of each step.

    Attributes
    ----------
    steps : int
        The steps without a profiler that were compared, one after another.
    each : float
        Bytes per step: the median of the slopes between any two parts of these steps.
    rising : float
        Kendall's rank correlation of memory with time, -1 to 1, over these parts.
    jump : float
        The largest rise between two neighbouring parts, as a share of the whole rise; infinite
        where there is none.
    resident, capacity : int
        Resident bytes at their end; memory of the machine or container, 0 if unknown.
    """

    steps: int
    each: float
    rising: float
    jump: float
    resident: int
    capacity: int

    @property
    def grown(self) -> float:
        """Bytes over these steps."""
        return self.steps * self.each


def frame(memory: HostMemory | None, times: StepTimes | None) -> pd.DataFrame:
    """`p.memory.host`: one row per sample of a process."""
    if memory is None:
        return frames.empty(_FRAME)
    numbers = np.array([process.number for process in memory.processes], np.int64)
    names = np.array([process.name or ITSELF for process in memory.processes], object)
    step, recorded = at_steps(memory.time, times)
    return frames.build(
        _FRAME,
        {
            "time_ms": memory.time / 1e6,
            "step": _integers(step, step > 0),
            "process": numbers[memory.process],
            "name": names[memory.process],
            "resident_bytes": _integers(memory.resident),
            "shared_bytes": _integers(memory.shared),
            "proportional_bytes": _integers(memory.proportional),
            "pinned_bytes": _integers(memory.pinned),
            "recorded": recorded,
        },
    )


def processes(memory: HostMemory | None, times: StepTimes | None) -> pd.DataFrame:
    """`p.memory.host_processes`: one row per process, most memory first, and before them all."""
    if memory is None:
        return frames.empty(_PROCESSES)
    rows = []
    for index in np.unique(memory.process).tolist():
        rows.append(_process(memory, index))
    growing = growth(memory, times)
    if growing is not None:
        rows[0]["growth_bytes_per_step"] = growing.each
    rows.sort(key=lambda row: row["peak_bytes"], reverse=True)
    if len(rows) > 1:
        rows.insert(0, _all(memory))
    return frames.build(_PROCESSES, _columns(rows))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for name, kind in frames.dtypes(_PROCESSES).items():
        missing = np.nan if kind == "float64" else pd.NA
        columns[name] = [row.get(name, missing) for row in rows]
    return columns


def _process(memory: HostMemory, index: int) -> dict[str, Any]:
    """The row of a process."""
    rows = np.flatnonzero(memory.process == index)
    process, resident = memory.processes[index], memory.resident[rows]
    largest = int(rows[resident.argmax()])
    peak, when = int(resident.max()), float(memory.time[largest] / 1e6)
    if index == 0 and memory.peak > peak:
        # Between two samples.
        peak, when = memory.peak, float("nan")
    row: dict[str, Any] = {
        "name": process.name or ITSELF,
        "process": process.number,
        "first_bytes": int(resident[0]),
        "peak_bytes": peak,
        "peak_time_ms": when,
        "last_bytes": int(resident[-1]),
    }
    shared = int(memory.shared[largest])
    if shared != UNKNOWN:
        row["shared_bytes"] = shared
    return row | _largest(memory, rows)


def _largest(memory: HostMemory, rows: Int64s) -> dict[str, Any]:
    """The largest proportional and pinned memory in some samples, where they are known."""
    largest: dict[str, Any] = {}
    for name in ("proportional", "pinned"):
        value = int(getattr(memory, name)[rows].max())
        if value != UNKNOWN:
            largest[f"{name}_bytes"] = value
    return largest


def _all(memory: HostMemory) -> dict[str, Any]:
    """The row of all processes together."""
    moments, moment = np.unique(memory.time, return_inverse=True)
    resident = _sums(moment, memory.resident)
    highest = int(resident.argmax())
    peak, when = int(resident[highest]), float(moments[highest] / 1e6)
    if memory.peak > peak:
        # Of one process alone, between two samples.
        peak, when = memory.peak, float("nan")
    row: dict[str, Any] = {
        "name": ALL,
        "first_bytes": int(resident[0]),
        "peak_bytes": peak,
        "peak_time_ms": when,
        "last_bytes": int(resident[-1]),
    }
    unknown = _sums(moment, (memory.proportional == UNKNOWN).astype(np.int64)) > 0
    if not unknown.all():
        row["proportional_bytes"] = int(_sums(moment, memory.proportional)[~unknown].max())
    return row


def _sums(moment: Int64s, values: Int64s) -> Int64s:
    """The sums over the processes of each moment."""
    sums = np.zeros(int(moment.max()) + 1, np.int64)
    np.add.at(sums, moment, values)
    return sums


def totals(memory: HostMemory) -> tuple[Int64s, Int64s, Int64s]:
    """By moment: its time, the resident bytes of the recorded process and of its children."""
    moments, moment = np.unique(memory.time, return_inverse=True)
    main = memory.of_main()
    main_bytes = _sums(moment, np.where(main, memory.resident, 0))
    return moments, main_bytes, _sums(moment, np.where(main, 0, memory.resident))


def at_steps(time: Int64s, times: StepTimes | None) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """By moment: the number of the step that ran, counted from 1, or 0; whether a profiler ran."""
    step, recorded = np.zeros(len(time), np.int64), np.zeros(len(time), np.bool_)
    if times is None:
        return step, recorded
    for begin, end in times.windows.tolist():
        recorded |= (time >= begin) & (time <= end)
    if len(times.end):
        # The one that ends next.
        following = np.searchsorted(times.end, time, side="right")
        running = np.minimum(following, len(times.end) - 1)
        runs = (following < len(times.end)) & (times.start[running] <= time)
        step[runs] = running[runs] + 1
    return step, recorded


def growth(memory: HostMemory | None, times: StepTimes | None) -> HostGrowth | None:
    """Memory that the process keeps of each step; None where too few ran without a profiler."""
    if memory is None or times is None:
        return None
    first, last = _longest_bare(times)
    first += (last - first) // _SETTLING
    if last - first < _FEWEST_STEPS:
        return None
    rows = np.flatnonzero(memory.of_main() & (memory.resident != UNKNOWN))
    when = memory.time[rows]
    rows = rows[(when >= times.start[first]) & (when <= times.end[last - 1])]
    pieces = np.array_split(rows, _PIECES)
    if min(map(len, pieces)) < _LEAST_IN_PIECE:
        return None
    used = memory.resident - np.where(memory.shared == UNKNOWN, 0, memory.shared)
    ended = np.searchsorted(times.end, memory.time, side="right")
    least = np.array([rows[used[rows].argmin()] for rows in pieces])
    bytes_at, step = used[least].astype(np.float64), ended[least].astype(np.float64)
    earlier, later = np.triu_indices(_PIECES, 1)
    rise, passed = bytes_at[later] - bytes_at[earlier], step[later] - step[earlier]
    if (passed <= 0).any():
        # Long steps: several parts are in one.
        return None
    grown, jump = bytes_at[-1] - bytes_at[0], float("inf")
    if grown > 0:
        jump = float(np.diff(bytes_at).max() / grown)
    return HostGrowth(
        last - first,
        float(np.median(rise / passed)),
        float(np.sign(rise).mean()),
        jump,
        int(memory.resident[rows[-1]]),
        memory.capacity,
    )


def _longest_bare(times: StepTimes) -> tuple[int, int]:
    """The most steps one after another that ran without a profiler: first, and behind the last."""
    bare = ~times.recorded
    edges = np.flatnonzero(np.diff(np.concatenate(([False], bare, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    # After a recording its memory is still given back.
    begins = np.where(begins > 0, np.minimum(begins + _AFTER, ends), begins)
    if not len(begins):
        return 0, 0
    longest = int((ends - begins).argmax())
    return int(begins[longest]), int(ends[longest])


def _integers(values: Int64s, valid: npt.NDArray[np.bool_] | None = None) -> pd.arrays.IntegerArray:
    """Integers that are missing where they are unknown."""
    if valid is None:
        valid = values != UNKNOWN
    return pd.arrays.IntegerArray(values.astype(np.int64), ~valid)
