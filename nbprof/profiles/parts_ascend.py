"""Views of Ascend profiles."""

from __future__ import annotations

from nbprof.profiles.parts_base import Shown
from nbprof.tools.ascend.accessor import Ascend as AscendView


class Ascend(Shown):
    """Faces of what msprof measured on an NPU."""

    @property
    def ascend(self) -> AscendView:
        """What Ascend's profiler measured on an NPU: iterations, ops, counters, waits, fusion, calls of the host, rules."""
        return AscendView(self)
