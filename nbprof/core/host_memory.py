"""Host memory of a recorded process and of its children over a cell, as a recording stores it.

Times are in ns from the begin of the recording, by the clock of `nbprof.core.step_times`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.core.stored_columns import is_count, pack, unpack
from nbprof.core.trace import Int32s, Int64s

VERSION = 1
MOST = 6_000
"""Rows that a recording stores at most: about 100 kB."""
MOST_PROCESSES = 1_000
UNKNOWN = -1
LOADER_WORKER = "Loader worker"
"""The name of a process that loads batches for this one."""
_LONGEST = 100
_COLUMNS = 6


class Process(NamedTuple):
    """A process.

    Attributes
    ----------
    number : int
        In the operating system.
    name : str
        Of a child: `LOADER_WORKER`, the name that `multiprocessing` gives it, or its command; ""
        for the recorded process itself.
    """

    number: int
    name: str


@dataclass(frozen=True)
class HostMemory:
    """Samples of each process, in time order; bytes are `UNKNOWN` where they were not read.

    Attributes
    ----------
    processes : tuple of Process
        The recorded one first.
    time : int64[n]
    process : int32[n]
        Index into `processes`. Samples of one moment have the same time.
    resident : int64[n]
        Resident bytes; pages that processes share count in each of them.
    shared : int64[n]
        The part of them in files and shared memory.
    proportional : int64[n]
        Resident bytes, of which those that several processes share count in equal parts.
    pinned : int64[n]
        Bytes of pinned host memory that the framework's allocator holds.
    peak : int
        The most resident bytes of the recorded process, if the operating system counted a new
        maximum in the cell; otherwise `UNKNOWN`.
    capacity : int
        Memory of the machine, or of the container that limits it; 0 if unknown.
    with_children : bool
        True if children would be among the processes.
    unread : int
        Children that were seen and not read, as there were too many.
    """

    processes: tuple[Process, ...]
    time: Int64s
    process: Int32s
    resident: Int64s
    shared: Int64s
    proportional: Int64s
    pinned: Int64s
    peak: int = UNKNOWN
    capacity: int = 0
    with_children: bool = True
    unread: int = 0

    def __len__(self) -> int:
        return len(self.time)

    def packed(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        bytes_of = (self.resident, self.shared, self.proportional, self.pinned)
        columns = (np.diff(self.time, prepend=0), self.process.astype(np.int64), *bytes_of)
        return {
            "version": VERSION,
            "processes": [[process.number, process.name[:_LONGEST]] for process in self.processes],
            "rows": len(self),
            "columns": pack(columns),
            "peak": self.peak,
            "capacity": self.capacity,
            "with_children": self.with_children,
            "unread": self.unread,
        }

    @classmethod
    def unpacked(cls, values: object) -> HostMemory | None:
        """The samples that `packed` described; None for another version or anything else."""
        if not isinstance(values, dict) or values.get("version") != VERSION:
            return None
        rows, peak, capacity = (values.get(key) for key in ("rows", "peak", "capacity"))
        if not is_count(rows) or not 0 < rows <= MOST or not is_count(capacity):
            return None
        if not isinstance(peak, int) or not (peak == UNKNOWN or is_count(peak)):
            return None
        processes = _processes(values.get("processes"))
        columns = unpack(values.get("columns"), _COLUMNS, rows)
        if processes is None or columns is None:
            return None
        gap, process, *bytes_of = columns
        if (gap < 0).any() or any((column < UNKNOWN).any() for column in bytes_of):
            return None
        if (process < 0).any() or (process >= len(processes)).any():
            return None
        resident, shared, proportional, pinned = bytes_of
        return cls(
            processes,
            np.cumsum(gap),
            process.astype(np.int32),
            resident,
            shared,
            proportional,
            pinned,
            peak,
            capacity,
            values.get("with_children") is True,
            values["unread"] if is_count(values.get("unread")) else 0,
        )

    def of_main(self) -> npt.NDArray[np.bool_]:
        """bool[n]: the samples of the recorded process."""
        main: npt.NDArray[np.bool_] = self.process == 0
        return main


def _processes(values: object) -> tuple[Process, ...] | None:
    """The processes as stored; None if they are damaged."""
    if not isinstance(values, list) or not 0 < len(values) <= MOST_PROCESSES:
        return None
    processes = []
    for value in values:
        if not isinstance(value, list) or len(value) != 2 or not is_count(value[0]):
            return None
        if not isinstance(value[1], str) or len(value[1]) > _LONGEST:
            return None
        processes.append(Process(*value))
    return tuple(processes)
