"""Compiled XLA programs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis import hlo, roofline
from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory.modules import Named
from nbprof.analysis.op_profile import leaves as op_profile_leaves
from nbprof.analysis.op_profile import op_profile
from nbprof.core.trace import Int64s
from nbprof.run.lazy import Group, cached, persisted
from nbprof.run.stated import NeedsHostError


class ProgramFrames(Group):
    """Compiled XLA programs: their ops, and the memory they take: `run.programs`."""

    prefix = "programs_"

    @property
    def _activity(self) -> Activity:
        """The ops of programs. Where hosts were read apart, what their programs did is in their files; where none ran any, that is known.

        Raises
        ------
        NeedsHostError
        """
        if self.parts is None:
            return self.run.activity
        if self.run.stated["ops_of_programs"] or self.run.stated["programs"]:
            raise NeedsHostError
        out = Activity(self.run.hosts)
        out.devices = self.run.devices
        for name in ("framework", "missing", "has_device", "has_host_ops"):
            setattr(out, name, self.run.stated[name])
        return out

    @property
    def _starts(self) -> Int64s:
        return self.run.trace.events.start if self.parts is None else np.zeros(0, np.int64)

    @cached
    def compiled(self) -> dict[str, Named]:
        """The compiled programs of the file, by name."""
        return memory_modules.named(self.run.as_read.modules, self.run.as_read.hosts)

    @persisted
    def memory_modules(self) -> pd.DataFrame:
        """Memory of each compiled program."""
        activity = self._activity
        return memory_modules.frame(self.compiled, memory_modules.times(activity) if self.compiled else {})

    @persisted
    def hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs."""
        return hlo.frame(self._activity)

    @persisted
    def xprof_hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs by the rules of XProf 2.24."""
        return hlo.as_xprof(self._activity)

    @persisted
    def hlo_missing(self) -> str:
        """Why there are no ops of compiled programs; '' if there are."""
        return hlo.missing(self._activity)

    @persisted
    def op_profile(self) -> pd.DataFrame:
        """The tree of programs, categories and ops."""
        return op_profile.frame(self._activity)

    @persisted
    def op_profile_upper(self) -> pd.DataFrame:
        """The tree without what is inside fusions, which takes a tenth of the time."""
        return op_profile.frame(self._activity, fused=False)

    @cached
    def op_profile_leaves(self) -> op_profile_leaves.Leaves:
        """The ops with most time as the leaves of every tree, and the sums of the others."""
        return op_profile_leaves.leaves(self._activity, self._starts)

    @persisted
    def roofline(self) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """Ops under the device's roofline, and all of them combined."""
        return roofline.frame(self._activity, roofline.peaks(self._activity))

    @persisted
    def roofline_steps(self) -> pd.DataFrame:
        """The ops of each step combined, under the device's roofline."""
        return roofline.by_step(self._activity, roofline.peaks(self._activity), self.run.steps)
