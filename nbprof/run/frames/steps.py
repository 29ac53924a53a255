"""Steps: their time, what it consists of, and the host ops that it follows from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis import cpu, overview
from nbprof.analysis import serving as serving_analysis
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.ops import ops
from nbprof.analysis.steps import backlog, bare, bare_parts, steps, tpu_cores, xprof_steps
from nbprof.analysis.steps.steps import counted
from nbprof.core.codec.records import record
from nbprof.core.step_times import StepTimes
from nbprof.frameworks.register import JAX, PYTORCH
from nbprof.run.combine import WithHostNames, below, by, chained, stacked
from nbprof.run.frame import Hosts, Phase, cached, frame
from nbprof.run.frames.recording import Recording


@record
@dataclass(frozen=True)
class MeasuredSteps(WithHostNames):
    """The steps as recorded, whether anything was compiled, and how busy each device was."""

    frame: pd.DataFrame
    compiled: bool
    busy_shares: list[float]


def _add_steps(values: list[MeasuredSteps], hosts: Hosts) -> MeasuredSteps:
    return MeasuredSteps(
        frame=stacked([value.frame for value in values], hosts, ["start_ms"]),
        compiled=any(value.compiled for value in values),
        busy_shares=chained([value.busy_shares for value in values], hosts),
    )


def _add_cpu_totals(values: list[cpu.Totals | None], _hosts: Hosts) -> cpu.Totals | None:
    return cpu.added(values)


def _add_widths(values: list[steps.ByWidth | None], _hosts: Hosts) -> steps.ByWidth | None:
    """Compute by width; unknown if it is unknown on one host."""
    widths = [value for value in values if value is not None]
    if len(widths) < len(values):
        return None
    in_16_bit, in_32_bit, unknown = zip(*widths, strict=True)
    return sum(in_16_bit), sum(in_32_bit), sum(unknown)


def _add_enqueued(values: list[input_pipeline.Enqueued], _hosts: Hosts) -> input_pipeline.Enqueued:
    enqueuing, between, enqueues = zip(*values, strict=True)
    return sum(enqueuing), sum(between), any(enqueues)


class StepFrames(Recording):
    """Steps, their breakdown, and the input ops that it needs."""

    @cached
    def _steps_of_host(self) -> tuple[pd.DataFrame, bool]:
        """The steps of a host, and whether anything was compiled."""
        return steps.measured(self.activity)

    @cached
    def _numbered_steps(self) -> pd.DataFrame:
        """The steps of hosts that were read together."""
        return self._numbered(*self._steps_of_host)

    @frame(combine=_add_steps)
    def _measured_steps(self) -> MeasuredSteps:
        frame, compiled = self._steps_of_host
        busy_shares = overview.busy_shares(self.activity, self._numbered_steps)
        return MeasuredSteps(frame, compiled, busy_shares)

    @frame(combine=_add_widths)
    def _compute_by_width(self) -> steps.ByWidth | None:
        return steps.compute_by_width(self.activity)

    @frame(combine=below("start_ms"))
    def _steps_of_cores(self) -> pd.DataFrame:
        return steps.by_core(self.activity)

    def compute_from_work(self) -> None:
        """Computes the frames that need all classified spans, before these are freed."""
        _ = self._compute_by_width, self._steps_of_cores

    def _numbered(self, frame: pd.DataFrame, compiled: bool) -> pd.DataFrame:
        warmup = self.capture.warmup if self.capture is not None else None
        return steps.numbered((frame, compiled), warmup, self.activity.traits)

    @frame(combine=_add_cpu_totals)
    def _cpu_totals(self) -> cpu.Totals | None:
        """The parts of host compute in the counted steps."""
        return cpu.totals(self.activity, steps.counted(self._numbered_steps))

    @frame
    def _steps_and_busy(self) -> tuple[pd.DataFrame, float | None]:
        """The steps as recorded, and the share of the time in which devices were busy."""
        measured = self._measured_steps
        if self.parts is None:
            numbered = self._numbered_steps
        else:
            numbered = self._numbered(measured.frame, measured.compiled)
        return numbered, overview.busy(measured.busy_shares)

    @cached
    def busy_devices(self) -> int:
        """How many devices ran anything in the counted steps; the busy share is their mean."""
        return sum(share > 0 for share in self._measured_steps.busy_shares)

    @cached
    def _host_ops(self) -> tuple[pd.DataFrame, int]:
        """Host ops with their self times, and the idle time of their threads in ps."""
        return ops.host_self_times(self.activity)

    @frame(combine=by(input_pipeline.added))
    def input_ops(self) -> pd.DataFrame:
        """Input ops by self time."""
        return input_pipeline.ops(self.activity, self._host_ops[0])

    @frame(combine=_add_enqueued)
    def _enqueued(self) -> input_pipeline.Enqueued:
        return input_pipeline.enqueues(self.activity, self._host_ops[0])

    @cached
    def steps(self) -> pd.DataFrame:
        """Steps with their breakdown; time that could not have been recorded is NA, not 0."""
        frame = self._steps_and_busy[0]
        if not len(frame) or frame["input_ms"].isna().all() or self._input_traced:
            return frame
        return frame.assign(input_ms=np.nan)

    @cached
    def _input_traced(self) -> bool:
        """The recording would show input, had the steps waited for it."""
        return input_pipeline.traced(self.activity, self._steps_and_busy[0], self.input_ops)

    @frame(combine=below("start_ms"))
    def backlog(self) -> pd.DataFrame:
        """Device work that was launched before the recording began, one row per host."""
        return backlog.frame(self.activity)

    @cached
    def step_times(self) -> StepTimes | None:
        """Wall-clock times of all steps of the recorded cell; None where they are unknown."""
        if self.capture is None or not self.capture.step_times:
            return None
        return StepTimes.unpacked(self.capture.step_times)

    @cached
    def bare_steps(self) -> bare.BareSteps:
        """The steps of the recorded cell that ran without a profiler."""
        if self.step_times is None or self.capture is None:
            return bare.measure(None)
        activity = self.activity
        return bare.measure(
            self.step_times,
            borders=self.borders,
            works_later=self.works_later,
            runs_ahead=activity.has_device or activity.framework is JAX,
            stays_slow=activity.framework is PYTORCH and activity.has_device,
            device_ms=self.device_ms,
        )

    @cached
    def bare_parts(self) -> bare_parts.BareParts:
        """The parts of a step without a profiler."""
        if self.bare_steps.slowdown is None or self.parts is not None:
            reason = self.bare_steps.reason or "what recording cost is unknown"
            return bare_parts.BareParts(reason=reason)
        summary = self._recorded_summary.set_index("category")
        mean_ms = float(summary["mean_ms"]["step_time"])
        percents = {c: float(summary["percent"][c]) for c in CATEGORIES}
        return bare_parts.parts(
            self.bare_steps,
            {category: percent * mean_ms / 100 for category, percent in percents.items()},
            bare_parts.cost_of_events(self.activity, self.trace, self._steps_and_busy[0]),
            device=self.activity.has_device,
        )

    @cached
    def bare_parts_frame(self) -> pd.DataFrame:
        """The same as a frame, in which categories that were not recorded are NA."""
        percents = self.steps_summary.set_index("category")["percent"].dropna()
        return bare_parts.frame(self.bare_parts, set(CATEGORIES) & set(percents.index))

    @property
    def borders(self) -> list[int]:
        """The first steps of epochs and loops of the recorded cell, counted from 1."""
        boundaries = self.capture.boundaries if self.capture is not None else []
        return [each["before"] for each in boundaries if each["kind"] != "evaluation"]

    @property
    def works_later(self) -> bool:
        """True if the program may end a step before its work has run."""
        return self.activity.framework is JAX and not self.activity.has_device

    @cached
    def device_ms(self) -> float:
        """Work of the busiest device per step; 0 without one."""
        shares = self._measured_steps.busy_shares
        step_ms = counted(self._steps_and_busy[0])["step_time_ms"].to_numpy(np.float64)
        if not shares or not len(step_ms):
            return 0.0
        return max(shares) / 100 * float(step_ms.mean())

    @cached
    def step_clock(self) -> pd.DataFrame:
        """One row per step of the recorded cell, recorded or not."""
        return bare.frame(self.step_times)

    @frame
    def steps_summary(self) -> pd.DataFrame:
        """Mean, sd and range of each category."""
        return steps.summary(self.steps)

    @cached
    def _recorded_summary(self) -> pd.DataFrame:
        """The summary of the steps as recorded, in which unknown input counts as none."""
        return steps.summary(self._steps_and_busy[0])

    @frame
    def xprof_steps(self) -> pd.DataFrame:
        """Steps by the rules of XProf 2.24."""
        frame = xprof_steps.frame(self.activity)
        self.activity.forget("xprof_work")
        return frame

    @frame(combine=below("start_ms"))
    def pods_cores(self) -> pd.DataFrame:
        """Each step on each core of a TPU, by what the core did."""
        return tpu_cores.frame(self.activity, self.steps)

    @frame(combine=below("start_ms"), phase=Phase.REST)
    def serving(self) -> pd.DataFrame:
        """Iterations of an inference engine."""
        return serving_analysis.frame(self.activity, self.trace)
