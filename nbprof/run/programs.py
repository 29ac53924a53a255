"""Compiled XLA programs."""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd

from nbprof.activity.activity import SHAPES, Activity
from nbprof.analysis import costs, hlo, roofline
from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory.modules import Named
from nbprof.analysis.op_profile import leaves as op_profile_leaves
from nbprof.analysis.op_profile import op_profile
from nbprof.analysis.ops import ops
from nbprof.analysis.roofline import Peaks
from nbprof.core.trace import Module
from nbprof.frameworks.register import PYTORCH
from nbprof.hlo import programs
from nbprof.run import combine
from nbprof.run.lazy import PROGRAMS, REST, Group, cached, of_hosts, persisted


class ProgramFrames(Group):
    """Compiled XLA programs: their ops, and the memory they take: `run.programs`."""

    prefix = "programs_"

    @cached
    def activity(self) -> Activity:
        """The activity with the compiled programs, also where hosts were read apart."""
        if self.parts is None:
            return self.run.activity
        out = copy(self.run.activity)
        out.programs = programs.Programs(self.modules, self.run.hosts)
        return out

    @of_hosts(combine.ops_of_programs, REST)
    def _ops(self) -> combine.OpsOfPrograms:
        found, idle = hlo.measured(self.run.activity)
        activity = self.run.activity
        if not len(found):
            idle = ops.device_idle(activity, activity.device_ops.frame())
        return (
            found.assign(identity=hlo.identities(activity, found)),
            idle,
            bool(activity.has_device),
        )

    @cached
    def measured(self) -> tuple[pd.DataFrame, int]:
        """The ops of compiled programs, and the time in which devices ran none."""
        return hlo.measured(self.run.activity) if self.parts is None else self._ops[:2]

    @of_hosts(combine.below(), REST)
    def _op_times(self) -> pd.DataFrame:
        return memory_modules.times(self.run.activity)

    @of_hosts(combine.sums_of_steps, REST)
    def _sums_of_steps(self) -> pd.DataFrame:
        # A host may have very many steps, and most kinds of run no such ops.
        steps = self.run.steps if len(self.measured[0]) else self.run.steps.head(0)
        return roofline.sums_of_steps(self.run.activity, steps, self.measured)

    @of_hosts(combine.costed, REST)
    def _costed(self) -> costs.Costed:
        return costs.measured(self.run.activity)

    @of_hosts(combine.sums_of_steps, REST)
    def _costs_of_steps(self) -> pd.DataFrame:
        return costs.sums_of_steps(self.run.activity, self.run.steps)

    @of_hosts(combine.listed, REST)
    def listed(self) -> pd.DataFrame:
        """The compiled programs of each host by `host` (its number), `name`, `ident`, `digest` and
        `bytes`.
        """
        rows = [
            (one.host, one.name, str(one.ident), programs.digest(one), len(one.data))
            for one in self.run.as_read.modules
        ]
        return pd.DataFrame(rows, columns=["host", "name", "ident", "digest", "bytes"])

    @of_hosts(combine.by(combine.united), PROGRAMS)
    def _contents(self) -> dict[str, bytes]:
        return {programs.digest(one): one.data for one in self.run.as_read.modules}

    @cached
    def modules(self) -> list[Module]:
        """The compiled programs of the files. Of many hosts each is read once, of the first that
        has it.
        """
        if self.parts is None:
            return self.run.as_read.modules
        known = self._contents if len(self.listed) else {}
        rows = zip(
            *(self.listed[key].tolist() for key in ("name", "ident", "digest", "host")), strict=True
        )
        return [
            Module(name, int(ident), known.get(digest, digest.encode()), host, digest in known)
            for name, ident, digest, host in rows
        ]

    @cached
    def compiled(self) -> dict[str, Named]:
        """The compiled programs of the file, by name."""
        return memory_modules.named(self.modules, self.run.hosts)

    @persisted
    def memory_modules(self) -> pd.DataFrame:
        """Memory of each compiled program."""
        if self.parts is not None and not self.run.stated["programs"]:
            return memory_modules.frame({}, {})
        rows = zip(
            *(self._op_times[key].tolist() for key in ("host", "program", "ms")), strict=True
        )
        return memory_modules.frame(self.compiled, {(host, ident): ms for host, ident, ms in rows})

    @persisted
    def hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs."""
        return hlo.frame(self.activity, self.measured)

    @persisted
    def xprof_hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs by the rules of XProf 2.24."""
        return self.hlo.head(0) if self.hlo_missing else hlo.as_xprof(self.run.activity)

    @property
    def hlo_missing(self) -> str:
        """Why there are no ops of compiled programs; '' if there are."""
        return (
            "" if self.run.stated["ops_of_programs"] else hlo.missing(self.run.activity.has_device)
        )

    @persisted
    def op_profile(self) -> pd.DataFrame:
        """The tree of programs, categories and ops."""
        return op_profile.frame(self.activity, self.measured)

    @persisted
    def op_profile_upper(self) -> pd.DataFrame:
        """The tree without what is inside fusions, which takes a tenth of the time."""
        return op_profile.frame(self.activity, self.measured, fused=False)

    @cached
    def op_profile_leaves(self) -> op_profile_leaves.Leaves:
        """The ops with most time as the leaves of every tree, and the sums of the others."""
        return op_profile_leaves.leaves(
            self.activity,
            self.measured,
            self.run.trace.events.start if self.parts is None else None,
        )

    @property
    def eager(self) -> bool:
        """Whether the roofline is of ops of PyTorch with shapes, and of no compiled program."""
        return bool(self.hlo_missing) and SHAPES in self.run.activity.traits

    @property
    def roofline_missing(self) -> str:
        """Why there are no ops for the roofline; '' if there are."""
        if self.eager or not self.hlo_missing:
            return ""
        if self.run.activity.framework is PYTORCH and self.run.activity.has_host_ops:
            return (
                "This profile has no shapes of inputs, so what its ops compute is unknown: record"
                " with record_shapes=True."
            )
        return self.hlo_missing

    @persisted
    def roofline(self) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """Ops under the device's roofline, and all of them combined."""
        return self.roofline_under(roofline.peaks(self.activity))

    def roofline_under(
        self, peaks: Peaks, *, transfers: bool = True
    ) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """The same under another roofline, or without infeed and outfeed."""
        if not self.eager:
            return roofline.frame(self.activity, peaks, self.measured, transfers=transfers)
        found, idle, time = self._costed
        return roofline.frame(self.activity, peaks, (found, idle), transfers=transfers, time=time)

    @persisted
    def roofline_steps(self) -> pd.DataFrame:
        """The ops of each step combined, under the device's roofline."""
        return self.roofline_steps_under(roofline.peaks(self.activity))

    def roofline_steps_under(self, peaks: Peaks) -> pd.DataFrame:
        """The same under another roofline."""
        if self.measured[0].empty and not self.eager:
            return roofline.by_step(self.run.steps, pd.DataFrame(), peaks)
        sums, steps = self._costs_of_steps if self.eager else self._sums_of_steps, self.run.steps
        # In the steps of hosts that have no sums no such op ran.
        known = np.flatnonzero(steps["host"].isin(set(sums["host"])))
        figures = (
            sums.drop(columns=["host", "start_ms"])
            .set_axis(known)
            .reindex(range(len(steps)), fill_value=0.0)
        )
        return roofline.by_step(steps, figures, peaks)
