"""Views of Ascend profiles."""

from __future__ import annotations

from nbprof.profile_parts.base import Shown


class Ascend(Shown):
    """Faces of what msprof measured on an NPU."""
