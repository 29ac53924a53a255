"""Compiled XLA programs."""

from __future__ import annotations

from nbprof.faces.hlo import Hlo, OpProfile
from nbprof.faces.memory_viewer import MemoryViewer
from nbprof.faces.roofline import Roofline
from nbprof.profile_parts.base import Shown


class Programs(Shown):
    """Faces of compiled XLA programs."""

    @property
    def hlo(self) -> Hlo:
        """Time by op of compiled XLA programs."""
        return Hlo(self, "hlo", "hlo")

    @property
    def op_profile(self) -> OpProfile:
        """The time of compiled XLA programs as a tree, and how well each part uses the device."""
        return OpProfile(self, "op_profile", "op_profile")

    @property
    def roofline(self) -> Roofline:
        """How near each op of the compiled XLA programs comes to what the device can do."""
        return Roofline(self)

    @property
    def memory_viewer(self) -> MemoryViewer:
        """Memory of compiled XLA programs, by the name of the program."""
        return MemoryViewer(self)
