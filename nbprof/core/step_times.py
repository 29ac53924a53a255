"""Wall-clock times of all steps of a cell, whether a profiler recorded them or not.

A recording stores them next to the trace. Times are in ns from the begin of the recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.stored_columns import is_count, pack, unpack
from nbprof.core.trace import Int32s, Int64s

MOST = 20_000
"""Steps whose times a recording stores at most: about 150 kB."""
_COLUMNS = 3
_MOST_KINDS = 100
_MOST_WINDOWS = 10_000
_LATEST = 2**60


@dataclass(frozen=True)
class StepTimes:
    """When each step of a cell began and ended, in the order in which they ended.

    Attributes
    ----------
    start, end : int64[n]
        Begin and end of each step, in ns from the begin of the recording.
    kind : int32[n]
        The kind of each step, as an index into `kinds`.
    kinds : list of str
        ``train``, ``test`` or the name given in the program.
    windows : int64[m, 2]
        When a profiler ran, with the time in which it was started and stopped.
    count : int
        Number of steps, of which the first are stored.
    profiled_before : bool
        True if a profiler had run in the process before the cell.
    """

    start: Int64s
    end: Int64s
    kind: Int32s
    kinds: list[str]
    windows: Int64s
    count: int
    profiled_before: bool = False

    @property
    def recorded(self) -> npt.NDArray[np.bool_]:
        """bool[n]: the steps during which a profiler ran, was started or was stopped."""
        recorded = np.zeros(len(self.start), np.bool_)
        for begin, end in self.windows.tolist():
            recorded |= (self.start < end) & (self.end > begin)
        return recorded

    @property
    def later(self) -> int:
        """The number of steps after the last recorded one."""
        recorded = np.flatnonzero(self.recorded)
        return self.count - 1 - int(recorded[-1]) if len(recorded) else 0

    def packed(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        columns = (
            self.start - np.append(0, self.end[:-1])[: len(self.start)],
            self.end - self.start,
            self.kind.astype(np.int64),
        )
        return {
            "count": self.count,
            "rows": len(self.start),
            "kinds": self.kinds,
            "windows": self.windows.tolist(),
            "profiled_before": self.profiled_before,
            "times": pack(columns),
        }

    @classmethod
    def unpacked(cls, values: object) -> StepTimes | None:
        """The object that `packed` described; None for anything else."""
        if not isinstance(values, dict):
            return None
        count, rows = values.get("count"), values.get("rows")
        if not (is_count(count) and is_count(rows)) or not rows <= min(count, MOST):
            return None
        kinds, windows = values.get("kinds"), _windows(values.get("windows"))
        if not isinstance(kinds, list) or len(kinds) > _MOST_KINDS or windows is None:
            return None
        columns = unpack(values.get("times"), _COLUMNS, rows)
        if columns is None or not all(isinstance(kind, str) for kind in kinds):
            return None
        gap, duration, kind = columns
        if (duration < 0).any() or (kind < 0).any() or (kind >= len(kinds)).any():
            return None
        end = np.cumsum(gap + duration)
        start = end - duration
        return cls(
            start,
            end,
            kind.astype(np.int32),
            kinds,
            windows,
            count,
            values.get("profiled_before") is True,
        )


def _windows(values: object) -> Int64s | None:
    """The windows as stored; None if they are damaged."""
    if not isinstance(values, list) or len(values) > _MOST_WINDOWS:
        return None
    for window in values:
        if not isinstance(window, list) or len(window) != 2:
            return None
        begin, end = window
        if not (is_count(begin) and is_count(end)) or not begin <= end < _LATEST:
            return None
    return np.array(values, np.int64).reshape(-1, 2)
