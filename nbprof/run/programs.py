"""Compiled XLA programs."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis import hlo, roofline
from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory.modules import Named
from nbprof.analysis.op_profile import leaves as op_profile_leaves
from nbprof.analysis.op_profile import op_profile
from nbprof.run.lazy import Group, cached, persisted


class ProgramFrames(Group):
    """Compiled XLA programs: their ops, and the memory they take: `run.programs`."""

    prefix = "programs_"

    @cached
    def compiled(self) -> dict[str, Named]:
        """The compiled programs of the file, by name."""
        return memory_modules.named(self.run.as_read.modules, self.run.as_read.hosts)

    @persisted
    def memory_modules(self) -> pd.DataFrame:
        """Memory of each compiled program."""
        if not self.compiled:
            return memory_modules.frame({}, {})
        return memory_modules.frame(self.compiled, memory_modules.times(self.run.activity))

    @persisted
    def hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs."""
        return hlo.frame(self.run.activity)

    @persisted
    def xprof_hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs by the rules of XProf 2.24."""
        return hlo.as_xprof(self.run.activity)

    @persisted
    def hlo_missing(self) -> str:
        """Why there are no ops of compiled programs; '' if there are."""
        return hlo.missing(self.run.activity)

    @persisted
    def op_profile(self) -> pd.DataFrame:
        """The tree of programs, categories and ops."""
        return op_profile.frame(self.run.activity)

    @persisted
    def op_profile_upper(self) -> pd.DataFrame:
        """The tree without what is inside fusions, which takes a tenth of the time."""
        return op_profile.frame(self.run.activity, fused=False)

    @cached
    def op_profile_leaves(self) -> op_profile_leaves.Leaves:
        """The ops with most time as the leaves of every tree, and the sums of the others."""
        return op_profile_leaves.leaves(self.run.activity, self.run.trace.events.start)

    @persisted
    def roofline(self) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """Ops under the device's roofline, and all of them combined."""
        return roofline.frame(self.run.activity, roofline.peaks(self.run.activity))

    @persisted
    def roofline_steps(self) -> pd.DataFrame:
        """The ops of each step combined, under the device's roofline."""
        return roofline.by_step(self.run.activity, roofline.peaks(self.run.activity), self.run.steps)
