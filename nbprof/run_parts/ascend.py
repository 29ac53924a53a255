"""Tables of Ascend's profiler."""

from __future__ import annotations

from nbprof.run_parts.base import Base


class Ascend(Base):
    """Frames of what msprof measured on an NPU."""
