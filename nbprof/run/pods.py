"""Several hosts beside each other. All of it follows from frames that each host has alone."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis.pods import clocks, memory, sums
from nbprof.analysis.pods.compare import compare, nothing
from nbprof.run import combine
from nbprof.run.lazy import Group, cached, of_hosts, persisted


class PodFrames(Group):
    """Stragglers, outliers, clocks: `run.pod_frames`."""

    prefix = "pods_"

    @of_hosts(combine.below())
    def sums(self) -> pd.DataFrame:
        """Time by op and kernel of each host; those of several hosts are one below the other."""
        return sums.by_host(
            self.run.activity, self.run.trace.events.start, self.run._host_ops[0], self.run.steps
        )

    @of_hosts(combine.below())
    def memory_calls(self) -> pd.DataFrame:
        """What hosts spend on allocating and freeing device memory, by step; those of several hosts
        are one below the other.
        """
        return memory.calls(self.run.activity, self.run.steps)

    @persisted
    def ahead_ms(self) -> dict[str, float]:
        """How far the clock of each host is ahead of that of the first by their collectives, where
        these tell it of all; else nothing.
        """
        hosts = self.run.hosts
        each = self.run.device_time.each_collective() if len(hosts) > 1 else pd.DataFrame()
        told = clocks.clocks(hosts, each, pd.DataFrame(), pd.DataFrame())
        ahead = told[clocks.AHEAD] if len(told) else pd.Series(dtype=float)
        return (
            dict(zip(told["host"], ahead.astype(float), strict=True))
            if len(ahead) and ahead.notna().all()
            else {}
        )

    @persisted
    def frames(self) -> dict[str, pd.DataFrame]:
        """The frames of `p.pods` that compare hosts, by their name in nbprof/schema/pods.py."""
        run = self.run
        if len(run.hosts) < 2 and len(run.devices) < 2:
            return nothing()
        overlap = run.device_time.overlap
        each = run.device_time.each_collective()
        found = compare(
            run.hosts, run.steps, run.pods, overlap, each, self.sums, run.devices, self.memory_calls
        )
        if not run.activity.unit.whole:
            return found
        # Recordings that nothing divides may differ in what they hold: none of it says that a host
        # is slow.
        return {
            **found,
            **{name: nothing()[name] for name in ("stragglers", "what_if", "outliers")},
        }

    @cached
    def stragglers(self) -> pd.DataFrame:
        """Ranks by how far they hold the others up."""
        return self.frames["stragglers"]

    @cached
    def what_if(self) -> pd.DataFrame:
        """Step times if one thing were otherwise."""
        return self.frames["what_if"]

    @cached
    def outliers(self) -> pd.DataFrame:
        """Ops and kernels that are slow on some hosts."""
        return self.frames["outliers"]

    @cached
    def collectives(self) -> pd.DataFrame:
        """Collectives by their members."""
        return self.frames["collectives"]

    @cached
    def clocks(self) -> pd.DataFrame:
        """How far clocks are apart."""
        return self.frames["clocks"]
