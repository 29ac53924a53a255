"""Views of Ascend profiles."""

from __future__ import annotations

from nbprof.faces.ascend import Ascend as AscendView
from nbprof.profile_parts.base import Shown


class Ascend(Shown):
    """Faces of what msprof measured on an NPU."""

    @property
    def ascend(self) -> AscendView:
        """What Ascend's profiler measured on an NPU: iterations, ops, counters, waits, fusion, calls of the host, rules."""
        return AscendView(self)
