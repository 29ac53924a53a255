"""Memory by allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from nbprof.analysis.memory import alive, memory
from nbprof.analysis.memory import ops as memory_ops
from nbprof.core import trim
from nbprof.core.guard import guarded
from nbprof.dialects.environment import origin_ns
from nbprof.run.combine import before, below, stacked
from nbprof.run.frame import Hosts, Phase, cached, frame
from nbprof.run.frames.code import CodeFrames

if TYPE_CHECKING:
    from nbprof.analysis.memory.allocated_at import Code
    from nbprof.analysis.memory.host import HostGrowth
    from nbprof.analysis.memory.roles import Roles
    from nbprof.core.host_memory import HostMemory


def _stack_allocators(
    values: list[pd.DataFrame], hosts: Hosts, times: Sequence[str] = ()
) -> pd.DataFrame:
    """Rows of all hosts, with the name of the host in front of that of each allocator."""
    if len(values) == 1:
        return values[0]
    named = []
    for value, names in zip(values, hosts.groups, strict=True):
        if len(names) == 1:
            ids = [f"{names[0]} {memory_id}" for memory_id in value["memory_id"].tolist()]
            named.append(value.assign(memory_id=ids))
        else:
            named.append(value)
    return stacked(named, hosts, times)


def _stack_summaries(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """One row per allocator, the largest peak first."""
    numbered = []
    for first, value in zip(before(hosts), values, strict=True):
        numbered.append(value.assign(peak_host=value["peak_host"] + first) if len(value) else value)
    return _stack_allocators(numbered, hosts, ["peak_time_ms"]).sort_values(
        "peak_bytes", ascending=False, kind="stable", ignore_index=True
    )


def _stack_ops(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """The ops of each allocator, the largest increase first."""
    return memory_ops.in_order(_stack_allocators(values, hosts))


def _stack_unfreed(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """Blocks that the steps of each host leave behind."""
    from nbprof.analysis.memory import roles

    return roles.in_order(_stack_allocators(values, hosts))


class MemoryFrames(CodeFrames):
    """Allocator events, and what they add up to."""

    @frame
    def _of_allocations(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        timeline = memory.numbered(memory.timeline(self.activity), self.steps, self.hosts)
        by_op = memory_ops.frame(self.activity, timeline)
        # Nothing else needs this table, which is as large as the timeline.
        self.activity.forget("allocations")
        if self.as_read.receipt.events >= trim.MANY_EVENTS:
            trim.give_back()
        return timeline[memory.COLUMNS], by_op

    @cached
    def memory_timeline(self) -> pd.DataFrame:
        """Allocator events in time order."""
        return self._of_allocations[0]

    @frame(combine=below("time_ms"), phase=Phase.LARGEST)
    def _memory_of_largest(self) -> pd.DataFrame:
        return self.memory_timeline

    @property
    def memory_drawn(self) -> pd.DataFrame:
        """Allocator events that are drawn.

        All, or where hosts were read separately, those of the host with the highest peak.
        """
        if self.parts is None or self.memory_largest is None:
            return self.memory_timeline
        rows = self._memory_of_largest
        if len(self.hosts) == 1:
            return rows
        # The names of allocators in the summary of several hosts.
        return rows.assign(memory_id=f"{self.memory_largest} " + rows["memory_id"])

    @property
    def memory_largest(self) -> str | None:
        """The host with the highest peak of memory; None if no peak is known."""
        if not len(self.memory_summary):
            return None
        peak_hosts = self.memory_summary["peak_host"].dropna().tolist()
        return self.hosts[int(peak_hosts[0])] if peak_hosts else None

    @frame(combine=_stack_ops, phase=Phase.REST)
    def memory_ops(self) -> pd.DataFrame:
        """Bytes that each op itself allocated and freed."""
        return self._of_allocations[1]

    @frame(combine=_stack_summaries)
    def memory_summary(self) -> pd.DataFrame:
        """One row per allocator."""
        return memory.summary(self.memory_timeline)

    @property
    def known_memory(self) -> pd.DataFrame:
        """`memory_summary`, or no rows if it could not be computed."""
        return guarded(
            "The memory of the run",
            lambda: self.memory_summary,
            lambda _: memory.summary(pd.DataFrame(columns=memory.COLUMNS)),
        )

    @frame(combine=_stack_allocators, phase=Phase.REST)
    def memory_peak(self) -> pd.DataFrame:
        """Allocations alive at the peak of each allocator."""
        return alive.at_peak(self.memory_timeline, self.memory_summary)

    @cached
    def _memory_roles(self) -> Roles:
        from nbprof.analysis.memory import roles

        return roles.roles(self.activity, self.memory_timeline, self.trace.events, self._code)

    @property
    def _code(self) -> Code | None:
        """Recorded lines of the program, of one process."""
        from nbprof.analysis.memory.allocated_at import Code

        if self.capture is None or self.parts is not None or len(self.hosts) != 1:
            return None
        return Code(self.line_times, self.python, self.cells, origin_ns(self.trace))

    @frame(combine=_stack_allocators, phase=Phase.REST)
    def memory_roles(self) -> pd.DataFrame:
        """Memory by role at the peak of each allocator."""
        return self._memory_roles.peak

    @property
    def memory_roles_of_leading(self) -> pd.DataFrame:
        """The rows of `memory_roles` of the allocator whose peak stands for the run."""
        leading = memory.leading(self.memory_summary, self.hosts, on_device=True)
        if not len(leading):
            leading = memory.leading(self.memory_summary, self.hosts, on_device=False)
        rows: pd.DataFrame = self.memory_roles
        return rows[rows["memory_id"].isin(leading["memory_id"])]

    @frame(combine=_stack_unfreed, phase=Phase.REST)
    def _memory_unfreed(self) -> pd.DataFrame:
        return self._memory_roles.unfreed

    @property
    def memory_unfreed(self) -> pd.DataFrame:
        """Blocks that steps leave behind, by role, op and line."""
        if self._code is None:
            return self._memory_unfreed
        # Lines are recorded beside the files, of which frames in the cache are.
        return self._memory_roles.located

    @frame(combine=below("time_ms"), phase=Phase.LARGEST)
    def _memory_roles_of_largest(self) -> pd.DataFrame:
        return self._memory_roles.over_time

    @property
    def memory_roles_over_time(self) -> pd.DataFrame:
        """Memory by role over time, of all allocators."""
        return self._memory_roles.over_time

    @cached
    def host_memory_samples(self) -> HostMemory | None:
        """Host memory over the cell, as the recording states it."""
        if self.capture is None or not self.capture.host_memory:
            return None
        from nbprof.core.host_memory import HostMemory

        return HostMemory.unpacked(self.capture.host_memory)

    @cached
    def host_memory(self) -> pd.DataFrame:
        """Host memory of the recorded process and its children, over the cell."""
        from nbprof.analysis.memory import host

        return host.frame(self.host_memory_samples, self.step_times)

    @cached
    def host_processes(self) -> pd.DataFrame:
        """Host memory by process."""
        from nbprof.analysis.memory import host

        return host.processes(self.host_memory_samples, self.step_times)

    @cached
    def host_growth(self) -> HostGrowth | None:
        """Host memory that the process keeps of each step; None where that is unknown."""
        if self.host_memory_samples is None:
            return None
        from nbprof.analysis.memory import host

        return host.growth(self.host_memory_samples, self.step_times)

    @property
    def memory_roles_drawn(self) -> pd.DataFrame:
        """The same of the allocators in `memory_drawn`."""
        if self.parts is None or self.memory_largest is None:
            return self.memory_roles_over_time
        rows = self._memory_roles_of_largest
        if len(self.hosts) == 1:
            return rows
        return rows.assign(memory_id=f"{self.memory_largest} " + rows["memory_id"])
