"""The overview: what bounds the step, and the figures that prove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from nbprof.activity.activity import ITERATIONS
from nbprof.analysis import contention, cpu, overview
from nbprof.analysis.advice import checks
from nbprof.analysis.advice import in_use as advice_in_use
from nbprof.analysis.advice import programs as advice_programs
from nbprof.analysis.ascend import verdict as ascend_verdict
from nbprof.analysis.device_time import use as device_use
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.steps import bare, steps, tpu_cores
from nbprof.analysis.verdict import Breakdown, verdict
from nbprof.core.sidecar import ALLOCATIONS_NOT_RECORDED
from nbprof.frameworks.register import JAX, PYTORCH
from nbprof.run import stated
from nbprof.run.combine import by
from nbprof.run.frame import cached, frame
from nbprof.run.frames.ascend import AscendFrames
from nbprof.run.frames.code import CodeFrames
from nbprof.run.frames.memory import MemoryFrames
from nbprof.run.frames.ops import OpFrames
from nbprof.run.source import facts
from nbprof.schema.frames import empty, shaped


def _mean(values: list[float | None]) -> float | None:
    shares = [value for value in values if value is not None]
    return sum(shares) / len(shares) if shares else None


class OverviewFrames(OpFrames, MemoryFrames, CodeFrames):
    """The verdict and the figures of the overview."""

    @property
    def ascend(self) -> AscendFrames:
        """Tables of Ascend's profiler."""
        return AscendFrames(self)

    @frame(combine=by(checks.added_functions))
    def _functions(self) -> pd.DataFrame:
        return checks.functions(self.activity, self._steps_and_busy[0])

    @frame(combine=by(device_use.added))
    def _costs(self) -> dict[str, float | None]:
        return device_use.costs(self.activity)

    @frame(combine=by(_mean))
    def _share_of_16_bit(self) -> float | None:
        """Share of 16-bit compute in programs of JAX on GPUs; kernel names do not tell it."""
        if self.activity.framework is not JAX or not (self.activity.devices["kind"] == "GPU").any():
            return None
        return advice_programs.share_of_16_bit(self.activity)

    @frame
    def input_summary_of_files(self) -> dict[str, Any]:
        """`input_summary` before the work of a tf.data pipeline is compared with the wait."""
        return input_pipeline.summary(
            self.activity,
            self._steps_and_busy[0],
            self.input_ops,
            self._enqueued,
            self._overhead_percent,
        )

    @property
    def _captures_graphs(self) -> bool:
        if self.parts is None:
            return stated.captures(self.activity)
        return bool(self.stated["captures"])

    @property
    def _works_ahead(self) -> bool:
        if self.parts is None:
            return stated.works_ahead(self.activity)
        return bool(self.stated["works_ahead"])

    @cached
    def _breakdown(self) -> Breakdown:
        """The figures that the verdict follows from, as far as they are in the files."""
        recorded_steps, busy = self._steps_and_busy
        return overview.breakdown(
            self.activity,
            recorded_steps,
            self._recorded_summary,
            busy,
            self.as_read.receipt.dropped,
            captures=self._captures_graphs,
            works_ahead=self._works_ahead,
            cpu=cpu.split(self._cpu_totals),
        )

    @frame(combine=by(bare.mean_overhead))
    def _recorded_overhead(self) -> bare.Overhead | None:
        """Events of the profiler's own work in the counted steps."""
        return bare.stated_overhead(self.activity, self._steps_and_busy[0])

    @property
    def _overhead_percent(self) -> float:
        """Percent of the steps in which nothing but the profiler's own work was recorded."""
        return self._recorded_overhead[1] if self._recorded_overhead else 0.0

    @cached
    def _breakdown_as_recorded(self) -> Breakdown:
        """The breakdown with figures that are not in the files, such as the time of Python."""
        if self.capture is None:
            return self._breakdown
        return replace(
            self._breakdown,
            unexplained=self.unexplained,
            contention=self.capture.contention,
            unrecorded=_sentences(self.capture.unrecorded),
            probed_ms=self.capture.probe.get("measured_ms"),
            bare=self.bare_steps,
        )

    @cached
    def host_parts(self) -> pd.DataFrame:
        """The parts of *host compute* and of the time outside ops: `p.overview["host_parts"]`."""
        if not len(self._steps_and_busy[0]):
            return empty("overview.host_parts")
        breakdown = self._breakdown_as_recorded
        rows = [
            (*work, breakdown.mean_ms * work.percent / 100)
            for work in breakdown.host_work
            if work.percent > 0
        ]
        columns = ["category", "part", "text", "percent", "ms"]
        return shaped("overview.host_parts", pd.DataFrame(rows, columns=columns))

    def _verdict_as_recorded(self) -> dict[str, Any]:
        """The verdict, if figures that are not in the files may change it; else empty."""
        capture = self.capture
        if capture is None:
            return {}
        is_bare_known = self.bare_steps.slowdown is not None
        if self.unexplained is None and not (
            capture.contention or capture.unrecorded or capture.probe or is_bare_known
        ):
            return {}
        breakdown = self._breakdown_as_recorded
        probed = breakdown.probed_ms is not None and self.overview_of_files["bound"] == "input"
        if breakdown.host_parts or breakdown.unrecorded or probed or is_bare_known:
            return verdict(breakdown).to_dict()
        return {}

    @frame
    def _overview_of_steps(self) -> dict[str, Any]:
        recorded_steps, busy = self._steps_and_busy
        answer = overview.of_steps(
            self.activity,
            recorded_steps,
            self._recorded_summary,
            busy,
            self.as_read.receipt.dropped,
            captures=self._captures_graphs,
            works_ahead=self._works_ahead,
            input_traced=self._input_traced,
            cpu=cpu.split(self._cpu_totals),
        )
        has_iterations = ITERATIONS in self.activity.traits
        if answer["bound"] == "other" and has_iterations and self.ascend.verdict["text"]:
            return answer | ascend_verdict.of_marks(answer, self.ascend.verdict)
        return answer

    @frame
    def overview_of_files(self) -> dict[str, Any]:
        """The overview without facts about the recording."""
        half = steps.share_of_16_bit(self._compute_by_width)
        if half is not None and self._share_of_16_bit is not None:
            half = self._share_of_16_bit
        reads_input = bool(self.input_ops["category"].isin(input_pipeline.READING).any())
        private_threads = self.parts is None and advice_in_use.has_private_threads(self.trace.lanes)
        answer = overview.overview(
            self._overview_of_steps,
            self.activity,
            self._recorded_summary,
            half,
            self.ops,
            self.ops_in_steps,
            self._host_us_in_steps,
            self._eager_us,
            self.kernels,
            self.known_memory,
            functions=self._functions,
            tf_data=reads_input and self.activity.framework is not PYTORCH,
            private_threads=private_threads,
            input_traced=self._input_traced,
            waiting=steps.waiting_percent(self._steps_and_busy[0]) + self._overhead_percent,
            waits_traced=input_pipeline.waits_traced(self.activity, self.input_ops),
        )
        utilization = device_use.use(self.activity, self.ops_with_idle, self._costs)
        return answer | utilization | tpu_cores.shares(self.pods_cores)

    @cached
    def first_answer(self) -> dict[str, Any]:
        """The part of the overview that follows from the steps alone, for the first picture."""
        return self._as_recorded(self._overview_of_steps)

    @cached
    def answer(self) -> dict[str, Any]:
        """The overview without the number of warnings in the receipt."""
        return self._as_recorded(self.overview_of_files)

    def _as_recorded(self, of_files: dict[str, Any]) -> dict[str, Any]:
        """An overview with facts about the recording."""
        answer = of_files | self._verdict_as_recorded() | self.bare_steps.to_dict()
        answer["bare_parts_reason"] = self.bare_parts.reason
        has_steps = len(self._steps_and_busy[0]) > 0
        answer |= bare.overhead(self.bare_steps, self._recorded_overhead, has_steps=has_steps)
        answer["host_parts"] = self.host_parts
        capture = self.capture
        if capture is not None and capture.framework:
            answer["framework"] = capture.framework
            answer["environment"] = _with_framework(answer["environment"], capture.framework)
        if capture is not None:
            text = contention.sentence(capture.contention, unit=self.activity.unit)
            if text:
                answer |= _with_contention(answer, text)
            if capture.probe:
                answer["probe"] = dict(capture.probe)
        answer["run_facts"] = facts(self.source, capture, answer, self.devices, self.hosts)
        return answer

    @frame
    def _missing_of_files(self) -> dict[str, str]:
        missing = dict(self.activity.missing)
        if not len(self.steps):
            missing.setdefault(
                "steps",
                "This profile has step markers, but no step was recorded completely, so step time"
                " is unknown.",
            )
        return missing

    @cached
    def missing(self) -> dict[str, str]:
        """Why a view is empty, by view."""
        missing, capture = dict(self._missing_of_files), self.capture
        if capture is None:
            return missing
        if "ops" in missing and capture.unrecorded:
            missing["ops"] = f"No op was recorded. {_sentences(capture.unrecorded)}"
        if "memory" not in missing:
            return missing
        if capture.options.get("memory") and capture.has_note(ALLOCATIONS_NOT_RECORDED):
            missing["memory"] = (
                "This profile has no allocator events: the ops of all threads were recorded,"
                " without allocations."
            )
        elif capture.unrecorded:
            missing["memory"] = (
                "This profile has no allocator events: nothing was allocated on the recorded"
                " thread."
            )
        return missing


def _sentences(unrecorded: Sequence[str]) -> str:
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in unrecorded)


def _with_framework(environment: dict[str, Any], framework: str) -> dict[str, Any]:
    """The environment with the framework of the recording: "TensorFlow 2.21.0, Keras 3.15.1"."""
    versions = {}
    for part in framework.split(", "):
        name, _, version = part.rpartition(" ")
        if name:
            versions[name] = version
    return {
        **environment,
        "framework": framework,
        "versions": {**versions, **environment["versions"]},
    }


def _with_contention(answer: dict[str, Any], text: str) -> dict[str, Any]:
    """The keys of the overview that change if other processes took cores."""
    if answer["confidence"] == "none":
        return {"contention": text}
    return {
        "contention": text,
        "confidence": "medium" if answer["confidence"] == "high" else "low",
        "confidence_evidence": [*answer["confidence_evidence"], (False, text)],
    }
