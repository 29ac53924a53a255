"""Ops, GPU kernels and memory."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis import kernels, multiprocessors
from nbprof.analysis.memory import alive as memory_alive
from nbprof.analysis.memory import memory
from nbprof.analysis.memory import ops as memory_ops
from nbprof.analysis.ops import longest_calls, ops, xprof_ops
from nbprof.run.lazy import Cached, Kept
from nbprof.run.parts_base import Base


class Ops(Base):
    """Frames of ops, GPU kernels and allocators."""

    @Cached
    def _host_ops(self) -> tuple[pd.DataFrame, int]:
        return ops.host_self_times(self.activity)

    @Kept
    def _ops_pair(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return ops.frames(self.activity, *self._host_ops)

    @property
    def ops(self) -> pd.DataFrame:
        """Time by op, idle left out."""
        return self._ops_pair[0]

    @property
    def ops_with_idle(self) -> pd.DataFrame:
        """Time by op, with the idle row of each side."""
        return self._ops_pair[1]

    @Kept
    def xprof_ops(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by op by the rules of XProf 2.24, without and with idle rows."""
        return xprof_ops.frames(self.activity)

    @Kept
    def longest_calls(self) -> pd.DataFrame:
        """The longest run of each op: `where op at_ms for_ms`."""
        return longest_calls.ops(self.activity, self.trace.events.start)

    @Kept
    def longest_launches(self) -> pd.DataFrame:
        """The longest launch of each row of `kernels`: `at_ms for_ms`, NaN where it is not known."""
        at, length = longest_calls.kernels(self.activity, self.kernels, self.trace.events.start)
        return pd.DataFrame({"at_ms": at, "for_ms": length})

    @Kept
    def kernels(self) -> pd.DataFrame:
        """GPU kernels."""
        return kernels.frame(self.activity)

    @Kept
    def kernel_devices(self) -> pd.DataFrame:
        """How much of each GPU its kernels used."""
        return multiprocessors.frame(self.activity, self.steps, self.trace.events.start)

    @Kept
    def xprof_kernels(self) -> pd.DataFrame:
        """GPU kernels by the rules of XProf 2.24."""
        return kernels.as_xprof(self.activity)

    @Kept
    def memory_timeline(self) -> pd.DataFrame:
        """Allocator events in time order."""
        out = memory.timeline(self.activity)
        # Only this frame is made of it, and it is as large.
        self.activity.forget("allocations")
        return out

    @Kept
    def memory_ops(self) -> pd.DataFrame:
        """Bytes that each op took and gave back itself."""
        out = memory_ops.frame(self.activity)
        self.activity.forget("allocations")
        return out

    @Kept
    def memory_summary(self) -> pd.DataFrame:
        """One row an allocator."""
        return memory.summary(self.memory_timeline)

    @Kept
    def memory_peak(self) -> pd.DataFrame:
        """Allocations alive at the peak of each allocator."""
        return memory_alive.at_peak(self.memory_timeline, self.memory_summary)
