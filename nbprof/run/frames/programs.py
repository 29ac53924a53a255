"""Compiled XLA programs."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nbprof.activity.activity import SHAPES, Activity
from nbprof.analysis import costs, hlo, roofline
from nbprof.analysis.memory import memory
from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory.modules import Named
from nbprof.analysis.op_profile import leaves as op_profile_leaves
from nbprof.analysis.op_profile import op_profile
from nbprof.analysis.ops import ops
from nbprof.analysis.roofline import Peaks
from nbprof.core.codec.records import record
from nbprof.core.trace import Module
from nbprof.frameworks.register import PYTORCH
from nbprof.hlo import programs
from nbprof.run.combine import before, below, by, stacked
from nbprof.run.frame import Group, Hosts, Phase, cached, frame
from nbprof.run.frames.memory import MemoryFrames

MAX_PROGRAM_BYTES = 2**28
"""Programs are read from as many hosts as have these bytes of them."""


@record
@dataclass(frozen=True)
class ProgramOps:
    """Ops of compiled programs.

    Attributes
    ----------
    frame : DataFrame
    idle : int
        The time in ps in which devices ran none.
    has_device : bool
    """

    frame: pd.DataFrame
    idle: int
    has_device: bool


def _add_ops(values: list[ProgramOps], hosts: Hosts) -> ProgramOps:
    """Ops that several hosts ran of the same program once, with their sums."""
    has_device = any(value.has_device for value in values)
    frames, idle = [], 0
    for first, value in zip(before(hosts), values, strict=True):
        # Ops on CPUs are left out if there are devices.
        if value.has_device == has_device:
            frames.append(value.frame.assign(host=value.frame["host"] + first))
            idle += value.idle
    return ProgramOps(hlo.added(frames), idle, has_device)


def _stack_sums(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """FLOPs and bytes of the ops of each step, in the order of the steps of the run."""
    # Ops of a host that do not name a memory moved nothing to it.
    sums = stacked(values, hosts, ["start_ms"]).fillna(0.0)
    return sums.sort_values(["start_ms", "host"], kind="stable", ignore_index=True)


def _stack_programs(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """The compiled programs of all hosts, with the numbers of the hosts in the run."""
    numbered = []
    for first, value in zip(before(hosts), values, strict=True):
        numbered.append(value.assign(host=value["host"] + first))
    return stacked(numbered, hosts)


def hosts_with_programs(programs: pd.DataFrame) -> list[int]:
    """The numbers of the hosts that are the first with a compiled program.

    As many as have 256 MiB of programs, and at least one if there is a program. `programs` is the
    frame `ProgramFrames.listed`.
    """
    host_bytes = programs.drop_duplicates("digest").groupby("host")["bytes"].sum()
    fits = host_bytes.cumsum() <= MAX_PROGRAM_BYTES
    first = host_bytes.index == host_bytes.index.min()
    return [int(host) for host in host_bytes.index[fits | first]]


def _unite(values: list[dict[str, bytes]]) -> dict[str, bytes]:
    return {digest: data for value in values for digest, data in value.items()}


class ProgramFrames(Group[MemoryFrames]):
    """Compiled XLA programs: their ops, and the memory they take: `run.programs`."""

    prefix = "programs_"

    @cached
    def activity(self) -> Activity:
        """The activity with the compiled programs, also if hosts were read separately."""
        if self.parts is None:
            return self.run.activity
        activity = copy(self.run.activity)
        activity.programs = programs.Programs(self.modules, self.run.hosts)
        return activity

    @frame(combine=_add_ops, phase=Phase.REST)
    def _ops(self) -> ProgramOps:
        activity = self.run.activity
        frame, idle = hlo.measured(activity)
        if not len(frame):
            idle = ops.device_idle(activity, activity.device_ops.frame())
        frame = frame.assign(identity=hlo.identities(activity, frame))
        return ProgramOps(frame, idle, bool(activity.has_device))

    @cached
    def measured(self) -> tuple[pd.DataFrame, int]:
        """The ops of compiled programs, and the time in which devices ran none."""
        if self.parts is None:
            return hlo.measured(self.run.activity)
        return self._ops.frame, self._ops.idle

    @frame(combine=below(), phase=Phase.REST)
    def _op_times(self) -> pd.DataFrame:
        return memory_modules.times(self.run.activity)

    @frame(combine=_stack_sums, phase=Phase.REST)
    def _sums_of_steps(self) -> pd.DataFrame:
        # Without ops of programs the sums are left out, as a host may have very many steps.
        steps = self.run.steps if len(self.measured[0]) else self.run.steps.head(0)
        return roofline.sums_of_steps(self.run.activity, steps, self.measured)

    @frame(combine=by(costs.added), phase=Phase.REST)
    def _costed(self) -> costs.Costed:
        return costs.measured(self.run.activity)

    @frame(combine=_stack_sums, phase=Phase.REST)
    def _costs_of_steps(self) -> pd.DataFrame:
        return costs.sums_of_steps(self.run.activity, self.run.steps)

    @frame(combine=_stack_programs, phase=Phase.REST)
    def listed(self) -> pd.DataFrame:
        """The compiled programs of each host: `host` (its number) `name ident digest bytes`."""
        rows = [
            (module.host, module.name, str(module.ident), programs.digest(module), len(module.data))
            for module in self.run.as_read.modules
        ]
        return pd.DataFrame(rows, columns=["host", "name", "ident", "digest", "bytes"])

    @frame(combine=by(_unite), phase=Phase.PROGRAMS)
    def _contents(self) -> dict[str, bytes]:
        return {programs.digest(module): module.data for module in self.run.as_read.modules}

    @cached
    def modules(self) -> list[Module]:
        """The compiled programs of the files; of many hosts, those of the first that has each."""
        if self.parts is None:
            return self.run.as_read.modules
        contents = self._contents if len(self.listed) else {}
        modules = []
        for row in self.listed.to_dict("records"):
            digest = row["digest"]
            data = contents.get(digest, digest.encode())
            modules.append(
                Module(row["name"], int(row["ident"]), data, row["host"], digest in contents)
            )
        return modules

    @cached
    def compiled(self) -> dict[str, Named]:
        """The compiled programs of the file, by name."""
        return memory_modules.named(self.modules, self.run.hosts)

    @frame
    def memory_modules(self) -> pd.DataFrame:
        """Memory of each compiled program."""
        if self.parts is not None and not self.run.stated["programs"]:
            return memory_modules.frame({}, {})
        times = self._op_times
        programs_of_hosts = zip(times["host"].tolist(), times["program"].tolist(), strict=True)
        op_ms = dict(zip(programs_of_hosts, times["ms"].tolist(), strict=True))
        return memory_modules.frame(self.compiled, op_ms, self.device_bytes)

    @property
    def device_bytes(self) -> int | None:
        """Memory of a device, the smallest if they differ; None if it is unknown."""
        run = self.run
        allocators = memory.leading(run.memory_summary, run.hosts, on_device=True)
        return memory_modules.device_bytes(run.devices, allocators)

    @property
    def roles_of_leading(self) -> pd.DataFrame:
        """Memory by role of the program with the largest peak, of those that ran if any did."""
        planned = self.memory_modules[self.memory_modules["peak_bytes"].notna()]
        ran = planned[planned["module"].isin(set(self.hlo["program"]))]
        if len(ran):
            planned = ran
        return memory_modules.roles(planned.head(1))

    @frame
    def hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs."""
        return hlo.frame(self.activity, self.measured)

    @frame
    def xprof_hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs by the rules of XProf 2.24."""
        if self.hlo_missing:
            return self.hlo.head(0)
        return hlo.as_xprof(self.run.activity)

    @property
    def hlo_missing(self) -> str:
        """Why there are no ops of compiled programs; '' if there are."""
        if self.run.stated["ops_of_programs"]:
            return ""
        return hlo.missing(self.run.activity.has_device)

    @frame
    def op_profile(self) -> pd.DataFrame:
        """The tree of programs, categories and ops."""
        return op_profile.frame(self.activity, self.measured)

    @frame
    def op_profile_upper(self) -> pd.DataFrame:
        """The tree without the ops inside fusions, computed in a tenth of the time."""
        return op_profile.frame(self.activity, self.measured, fused=False)

    @cached
    def op_profile_leaves(self) -> op_profile_leaves.Leaves:
        """The ops with most time as the leaves of every tree, and the sums of the others."""
        starts = self.run.trace.events.start if self.parts is None else None
        return op_profile_leaves.leaves(self.activity, self.measured, starts)

    @property
    def eager(self) -> bool:
        """The roofline shows ops of PyTorch with shapes, and no compiled program."""
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

    @frame
    def roofline(self) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """Ops under the device's roofline, and all of them combined."""
        return self.roofline_under(roofline.peaks(self.activity))

    def roofline_under(
        self, peaks: Peaks, *, transfers: bool = True
    ) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """The same under another roofline, or without infeed and outfeed."""
        if not self.eager:
            return roofline.frame(self.activity, peaks, self.measured, transfers=transfers)
        costed, idle, time = self._costed
        return roofline.frame(self.activity, peaks, (costed, idle), transfers=transfers, time=time)

    @frame
    def roofline_steps(self) -> pd.DataFrame:
        """The ops of each step combined, under the device's roofline."""
        return self.roofline_steps_under(roofline.peaks(self.activity))

    def roofline_steps_under(self, peaks: Peaks) -> pd.DataFrame:
        """The same under another roofline."""
        if self.measured[0].empty and not self.eager:
            return roofline.by_step(self.run.steps, pd.DataFrame(), peaks)
        steps = self.run.steps
        sums = self._costs_of_steps if self.eager else self._sums_of_steps
        # No such op ran in the steps of hosts without sums.
        steps_with_sums = np.flatnonzero(steps["host"].isin(set(sums["host"])))
        figures = (
            sums.drop(columns=["host", "start_ms"])
            .set_axis(steps_with_sums)
            .reindex(range(len(steps)), fill_value=0.0)
        )
        return roofline.by_step(steps, figures, peaks)
