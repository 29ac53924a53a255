"""Impossible times in recordings of GPUs, and collectives that wait at their start."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import durations, torchnames
from nbprof.dialects.corrupt import Mender
from nbprof.dialects.gpu import notes, ranges
from nbprof.dialects.gpu.lanes import (
    ANNOTATION,
    CALL,
    COPY,
    DEVICE_NOTE,
    FILL,
    KERNEL,
    OP,
    UNKNOWN,
    Kinds,
)
from nbprof.dialects.lookups import rows_that
from nbprof.display import wording


@dataclass
class Mended:
    """The replaced times.

    Attributes
    ----------
    notes : list of Note
        Warnings that say so.
    first_waits : int64[k]
        Events of collectives that waited at the start of the recording.
    unusable_kernels : int
        Number of kernels without a time that can be.
    """

    notes: list[Note] = field(default_factory=list)
    first_waits: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    unusable_kernels: int = 0


def mend(trace: Trace, kind: Kinds) -> Mended:
    """Replaces impossible durations in `trace.events` and trims waits of first collectives.

    Parameters
    ----------
    trace : Trace
        With split lanes.
    kind : uint8[events]
        Becomes UNKNOWN of device work whose time cannot be.
    """
    mender = _Mender(trace, kind)
    hosts = range(len(trace.hosts))
    for host in hosts:
        mender.threads(host)
        mender.steps(host)
        mender.device(host)
        mender.device_notes(host)
    warnings = [*mender.about_clocks(), *mender.about_unusable(), *mender.notes()]
    unusable = mender.unusable
    unusable_kernels = int((kind[unusable] == KERNEL).sum())
    kind[unusable] = UNKNOWN
    for host in hosts:
        mender.first_waits(host)
    waits = np.zeros(0, np.int64)
    if mender.start is not trace.events.start:
        waits = np.flatnonzero(mender.start != trace.events.start)
    warnings += mender.about_waits(waits)
    mender.apply()
    return Mended(warnings, waits, unusable_kernels)


class _Mender(Mender):
    """Times of a trace whose events have kinds."""

    def __init__(self, trace: Trace, kind: Kinds) -> None:
        super().__init__(trace)
        self.kind = kind

    def _rows(self, host: int, *kinds: int) -> Int64s:
        is_kind = np.zeros(256, np.bool_)
        is_kind[list(kinds)] = True
        rows = np.flatnonzero(is_kind[self.kind])
        if len(self.trace.hosts) == 1:
            return rows
        on_host: Int64s = rows[self.lane_host[self.trace.events.lane[rows]] == host]
        return on_host

    def work(self, host: int) -> Int64s:
        """Kernels, copies and fills of a host."""
        return self._rows(host, KERNEL, COPY, FILL)

    def calls(self, host: int) -> Int64s:
        """Calls into the runtime."""
        return self._rows(host, CALL)

    def is_kernel(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n]: kernels, unlike copies and fills."""
        is_kernel: npt.NDArray[np.bool_] = self.kind[rows] == KERNEL
        return is_kernel

    def images(self, host: int) -> Int64s:
        """Annotations as the device shows them."""
        return self._rows(host, DEVICE_NOTE)

    def threads(self, host: int) -> None:
        """Ops, annotations and calls that end long after what is around them."""
        for low, high in self.lanes_of(host):
            if self.duration[low:high].max() >= durations.SLACK_PS:
                rows = low + np.flatnonzero(np.isin(self.kind[low:high], (OP, ANNOTATION, CALL)))
                self.replace(rows, durations.of_threads(self.spans(rows)))

    def steps(self, host: int) -> None:
        """Markers of steps that reach over the next step."""
        rows = self._rows(host, ANNOTATION)
        family = np.full(len(self.trace.names), -1, np.int64)
        number = np.zeros(len(self.trace.names), np.int64)
        families: dict[str, int] = {}
        for code in np.unique(self.trace.events.name[rows]).tolist():
            numbers = ranges.counted(str(self.trace.names[code]))
            if numbers is not None and numbers[1]:
                family[code] = families.setdefault(numbers[0], len(families))
                number[code] = numbers[1][-1]
        names = self.trace.events.name[rows]
        rows, names = rows[family[names] >= 0], names[family[names] >= 0]
        self.replace(rows, durations.of_markers(self.spans(rows, family[names], number[names])))

    def first_waits(self, host: int) -> None:
        """Collectives that waited at the start: they begin when the last rank has come."""
        rows = rows_that(self.trace, self._rows(host, KERNEL), torchnames.is_collective)
        waits, taken = durations.first_waits(self.spans(rows))
        rows, taken = rows[waits], taken[waits]
        if len(rows):
            self.start = self.start.copy()
            self.start[rows] += self.duration[rows] - taken
            self.replace(rows, taken)

    def about_waits(self, rows: Int64s) -> list[Note]:
        """Notes on collectives that waited at the start."""
        if not len(rows):
            return []
        events = self.trace.events
        waited = events.duration[rows] - self.duration[rows]
        name = wording.kernel(str(self.trace.names[events.name[rows[waited.argmax()]]]))
        longest = wording.millis(int(waited.max()) / 1e9)
        total = wording.millis(int(waited.sum()) / 1e9)
        events_named = f"{name}; {self.places(rows)}"
        return [notes.first_collectives(len(rows), events_named, longest, total)]
