"""Durations of work on GPUs in an XSpace file that cannot be."""

from __future__ import annotations

import numpy as np

from nbprof.core.trace import Int64s, Note
from nbprof.dialects.corrupt import Mender
from nbprof.dialects.xplane.placed import Placed


def mend(placed: Placed) -> list[Note]:
    """Replaces durations of work on streams of GPUs that cannot be, and what profilers made of them; the warnings that say so."""
    if not placed.gpu_planes:
        return []
    found = _Mender(placed)
    for host in range(len(placed.trace.hosts)):
        found.device_durations(host)
        found.device_notes(host)
    notes = found.notes()
    found.apply()
    return notes


class _Mender(Mender):
    """Times of a trace whose lanes have kinds."""

    correlation = "correlation_id"

    def __init__(self, placed: Placed) -> None:
        super().__init__(placed.trace)
        lanes = placed.trace.lanes
        self._of_gpu = lanes["plane"].isin(placed.gpu_planes).to_numpy(np.bool_)
        self._lane_kind = lanes["kind"].astype(str).to_numpy()

    def _rows(self, host: int, *kinds: str) -> Int64s:
        lanes = self._of_gpu & np.isin(self._lane_kind, kinds) & (self.lane_host == host)
        return np.flatnonzero(lanes[self.trace.events.lane])

    def work(self, host: int) -> Int64s:
        """What streams of GPUs ran."""
        return self._rows(host, "device")

    def images(self, host: int) -> Int64s:
        """Steps, ops and programs that a profiler made of the work on streams."""
        return self._rows(host, "steps", "derived")
