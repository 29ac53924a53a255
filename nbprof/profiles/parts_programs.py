"""Compiled XLA programs."""

from __future__ import annotations

from nbprof.profiles.parts_base import Shown
from nbprof.tools.hlo.accessor import Hlo, OpProfile
from nbprof.tools.memory_viewer.accessor import MemoryViewer
from nbprof.tools.roofline.accessor import Roofline


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
