"""Time by framework op."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis import kernels
from nbprof.analysis.ops import longest_calls, xprof_ops
from nbprof.analysis.ops import ops as ops_analysis
from nbprof.core.codec.records import record
from nbprof.run.combine import added, by
from nbprof.run.frame import Hosts, Phase, cached, frame
from nbprof.run.frames.kernels import KernelFrames

InSteps = tuple[list[ops_analysis.Side], pd.DataFrame]
"""Ops and kernels without those launched before the recording began."""

record(ops_analysis.Side)


def _add_in_steps(values: list[InSteps], _hosts: Hosts) -> InSteps:
    op_sums, kernel_frames = zip(*values, strict=True)
    return added(list(op_sums), ops_analysis.added), added(list(kernel_frames), kernels.added)


def _add_eager(
    values: list[dict[str, tuple[float, float]]], _hosts: Hosts
) -> dict[str, tuple[float, float]]:
    sums = {}
    for side in values[0]:
        eager, compiled = zip(*(value[side] for value in values), strict=True)
        sums[side] = sum(eager), sum(compiled)
    return sums


def _without_rows(values: list[pd.DataFrame], _hosts: Hosts) -> pd.DataFrame:
    """Nothing: a position in the trace of one host is none in that of the run."""
    return values[0].head(0)


class OpFrames(KernelFrames):
    """Time by op, in all and in the steps."""

    @frame(combine=by(ops_analysis.added))
    def _op_sums(self) -> list[ops_analysis.Side]:
        return ops_analysis.summed(self.activity, self.activity.device_ops.frame(), *self._host_ops)

    @frame(combine=_add_eager)
    def _eager_us(self) -> dict[str, tuple[float, float]]:
        return ops_analysis.eager_us(self.activity, self._host_ops[0])

    @frame
    def _ops_pair(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return ops_analysis.frames(ops_analysis.with_rates(self._op_sums, self.activity))

    @cached
    def ops(self) -> pd.DataFrame:
        """Time by op, idle time excluded."""
        return self._ops_pair[0]

    @cached
    def ops_with_idle(self) -> pd.DataFrame:
        """Time by op, with the idle row of each side."""
        return self._ops_pair[1]

    @frame(combine=_add_in_steps)
    def _sums_in_steps(self) -> InSteps:
        if self.backlog.empty:
            return self._op_sums, self.kernels
        op_sums = ops_analysis.summed(
            self.activity, ops_analysis.in_steps(self.activity), *self._host_ops
        )
        return op_sums, kernels.in_steps(self.activity)

    @frame(combine=by(ops_analysis.added_host_us))
    def _host_us_in_steps(self) -> pd.DataFrame:
        """Self time of host ops in steps, without ops that run between or after them."""
        return ops_analysis.host_us_in_steps(
            self.activity, self._host_ops[0], self._steps_and_busy[0]
        )

    @frame
    def ops_in_steps(self) -> pd.DataFrame:
        """`ops` without device work launched before the recording began, for figures per step."""
        if self.backlog.empty:
            return self.ops
        return ops_analysis.table(
            ops_analysis.with_rates(self._sums_in_steps[0], self.activity), with_idle=False
        )

    @property
    def kernels_in_steps(self) -> pd.DataFrame:
        """`kernels` without those launched before the recording began, for figures per step."""
        return self.kernels if self.backlog.empty else self._sums_in_steps[1]

    @frame
    def xprof_ops(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by op by the rules of XProf 2.24, without and with idle rows."""
        return xprof_ops.frames(self.activity)

    @frame(combine=_without_rows, phase=Phase.REST)
    def longest_calls(self) -> pd.DataFrame:
        """The longest run of each op: `where op at_ms for_ms`."""
        return longest_calls.ops(self.activity, self.trace.events.start)
