"""Findings, and the frames of the input pipeline that depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import SERVING
from nbprof.analysis import cpu
from nbprof.analysis.advice import advice
from nbprof.analysis.advice import evidence as advice_evidence
from nbprof.analysis.advice import host as advice_host
from nbprof.analysis.advice import host_buffer as advice_host_buffer
from nbprof.analysis.advice import recorder as advice_recorder
from nbprof.analysis.advice import tf_data as advice_tf_data
from nbprof.analysis.advice import versions as advice_versions
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.memory import growth
from nbprof.analysis.ops import torch_runtime
from nbprof.analysis.steps import periodic, steps
from nbprof.analysis.verdict import Breakdown, contended, is_unrecorded
from nbprof.core.guard import guarded
from nbprof.core.units import join_some
from nbprof.dialects.environment import origin_ns
from nbprof.frameworks.register import PYTORCH
from nbprof.run.frame import Hosts, Phase, cached, frame
from nbprof.run.frames.hosts import HostFrames
from nbprof.run.frames.overview import OverviewFrames
from nbprof.run.frames.programs import ProgramFrames
from nbprof.run.frames.tf_data import TfDataFrames

if TYPE_CHECKING:
    from nbprof.analysis.advice import cores as advice_cores
    from nbprof.analysis.advice import workers as advice_workers
    from nbprof.analysis.compiles.again import Again
    from nbprof.analysis.compiles.breaks import Breaks
    from nbprof.analysis.compiles.table import RecordedSteps
    from nbprof.analysis.input.loops import LoopWaits
    from nbprof.analysis.pools import PoolWait
    from nbprof.analysis.python import TopFunction
    from nbprof.analysis.result_waits import ResultWaits
    from nbprof.analysis.steps.over_run import Slow, Slowing
    from nbprof.core.compile_times import Compilations
    from nbprof.core.step_times import StepTimes
    from nbprof.sources.recording import CaptureInfo

_BETWEEN_HOSTS = ("straggler", "uneven_workers", "collectives")
"""Rules that compare hosts."""


def _common_findings(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """The findings that most hosts have, each with the median gain and the number of hosts."""
    rows = pd.concat(
        [value.assign(_host=number) for number, value in enumerate(values)], ignore_index=True
    )
    common = []
    for _, findings in rows.groupby("rule", sort=False):
        if 2 * len(findings) <= len(values):
            continue
        by_gain = findings.sort_values("gain_ms_per_step", kind="stable")
        median = by_gain.iloc[[(len(findings) - 1) // 2]]
        host = join_some(hosts.groups[int(median["_host"].iloc[0])], 1)
        examined = f" (Of {host}; found on {len(findings):,} of {len(values):,} hosts examined.)"
        common.append(median.assign(evidence=median["evidence"] + examined))
    if not common:
        return values[0].head(0)
    return _by_gain(pd.concat(common, ignore_index=True).drop(columns="_host"))


def _of_libraries(breakdown: Breakdown) -> float:
    """Percent of a unit in code outside ops that is known to be a library's."""
    use = breakdown.unexplained
    if use is None or not use.library:
        return 0.0
    outside_ops = (work for work in breakdown.host_work if work.category == "other")
    percent = sum(work.percent for work in outside_ops if work.part == "compute")
    return percent * use.named / use.library


def _by_gain(findings: pd.DataFrame) -> pd.DataFrame:
    return findings.sort_values(
        "gain_ms_per_step", ascending=False, kind="stable", ignore_index=True
    )


def _largest(*parts: pd.DataFrame) -> pd.DataFrame:
    """The findings of several frames with the largest gains."""
    with_rows = [part for part in parts if len(part)]
    return _by_gain(pd.concat(with_rows or parts[:1], ignore_index=True)).head(advice.MOST)


class AdviceFrames(OverviewFrames, HostFrames):
    """Findings with evidence and fix."""

    @property
    def tf_data(self) -> TfDataFrames:
        """Pipelines of tf.data."""
        return TfDataFrames(self)

    @property
    def programs(self) -> ProgramFrames:
        """Compiled XLA programs."""
        return ProgramFrames(self)

    @cached
    def input_categories(self) -> pd.DataFrame:
        """The five kinds of input work, with advice that this machine has the cores for."""
        categories = self._input_categories_of_files
        if self.capture is None:
            return categories
        from nbprof.analysis.advice import cores as advice_cores

        if self.capture.of_keras and self.activity.framework is PYTORCH:
            from nbprof.analysis.advice import keras_code

            texts = categories["advice"]
            for_keras = categories["category"].map(keras_code.CATEGORIES)
            categories = categories.assign(advice=texts.mask(texts != "", for_keras))
        return advice_cores.without_workers(categories, self.advice)

    @frame
    def _input_categories_of_files(self) -> pd.DataFrame:
        return input_pipeline.categories(
            self.input_ops, self.activity.framework, self.tf_data.cause
        )

    @cached
    def input_summary(self) -> dict[str, Any]:
        """How much of a step is input, of which kinds, and what to do next."""
        summary, cause = self.input_summary_of_files, self.tf_data.cause
        if cause.kind == advice_tf_data.ELSEWHERE:
            return {**summary, "next_step": cause.text}
        return summary

    def _evidence(self) -> advice_evidence.Evidence:
        """Evidence for advice beyond the public frames."""
        has_npu = (self.activity.devices["kind"] == "NPU").any()
        sources = advice_evidence.Sources(
            self.activity,
            self.trace,
            steps=self.steps,
            ops=self.ops_in_steps,
            kernels=self.kernels_in_steps,
            memory=self.known_memory,
            modules=lambda: self.programs.memory_modules,
            compiled=self.programs.compiled,
            pods=self.pods,
            stragglers=self.pod_frames.stragglers,
            calls=self.tf_data.calls,
            marked=np.unique(self.trace.events.lane[self.activity.markers.event]),
        )
        return advice_evidence.Evidence(
            sources,
            texts=advice_host_buffer.speaks_of_it(map(str, self.trace.names)),
            tpu_start_s=advice_host_buffer.started(self.trace),
            npu_rules=self.ascend.rules if has_npu else None,
            periodic=self._periodic,
            slow_unrecorded=self._slow_unrecorded,
            compiled_again=guarded("What was compiled again", self._compiled_again, lambda _: None),
            graph_breaks=guarded("The graph breaks", self._breaks_in_steps, lambda _: None),
            compiled_first=guarded(
                "What was compiled first", self._compiled_first, lambda _: False
            ),
            slowing=guarded(
                "The search for steps that take longer and longer",
                self._slowing,
                lambda _: None,
            ),
            growth=guarded("The search for memory that grows", self._growth, lambda _: None),
            host_growth=guarded(
                "The search for host memory that grows", lambda: self.host_growth, lambda _: None
            ),
            host_peak_bytes=guarded("The host memory", self._host_peak_bytes, lambda _: None),
            not_launched_ms=lambda: self.device_time.not_launched_ms(),
            slowdown=self.bare_steps.most_slowdown,
            bare=self.bare_parts,
            overhead_percent=self._overhead_percent,
            loop=guarded("What loops wait for", self._loop_waits, lambda _: None),
            python_of_input=guarded(
                "What tf.data calls in Python", self._python_of_input, lambda _: {}
            ),
        )

    def _python_of_input(self) -> Mapping[str, advice_workers.PythonOfInput]:
        """What tf.data calls in Python, by kind."""
        if not self.worker_times.stages:
            return {}
        from nbprof.analysis.advice.workers import python_of_input

        return python_of_input(self._workers)

    def _loop_waits(self) -> LoopWaits | None:
        """What the loop over a loader with workers waits for; None if that was not recorded."""
        if not self.worker_times.loops:
            return None
        from nbprof.analysis.input.loops import loop_waits

        return loop_waits(self.worker_times, self._batches_per_step)

    @cached
    def _periodic(self) -> periodic.Periodic | None:
        """The rhythm of the recorded steps."""
        rhythm = None
        covered = next((slow for slow in self._slow_steps if self._covers(slow)), None)
        if covered is not None:
            rhythm = periodic.RunRhythm(
                covered.recorded,
                covered.every,
                len(covered.numbers),
                covered.steps,
                covered.chance,
            )
        found = guarded(
            "The search for periodic steps",
            lambda: periodic.find(self.steps, self.trace, rhythm),
            lambda _: None,
        )
        measured = self.capture.contention if self.capture is not None else {}
        if found is not None and 2 * found.what_ms < found.extra_ms and contended(measured):
            # Processes that take turns on a core are slow at equal distances as well.
            return None
        return found

    def _slowing(self) -> Slowing | None:
        """Steps without the profiler that take longer and longer."""
        times, device_ms = self._times_of_run
        if times is None:
            return None
        from nbprof.analysis.steps import over_run

        return over_run.slowing(times, device_ms)

    @cached
    def _slow_steps(self) -> list[Slow]:
        """The rhythms of the steps that ran without a profiler."""
        times, device_ms = self._times_of_run
        if times is None:
            return []
        from nbprof.analysis.steps import over_run

        return guarded(
            "The search for slow steps by the clock",
            lambda: over_run.slow(times, self.borders, device_ms),
            lambda _: [],
        )

    @property
    def _slow_unrecorded(self) -> Slow | None:
        """The rhythm with most time of which nothing was recorded."""
        unrecorded = [slow for slow in self._slow_steps if not len(slow.recorded)]
        return max(unrecorded, key=lambda slow: slow.per_step_ms, default=None)

    def _covers(self, slow: Slow) -> bool:
        """True if the steps of the recording have the numbers of the clock, and are of a rhythm."""
        numbers = self.steps["step"].to_numpy(np.int64)
        if slow.between or self.capture is None or not len(numbers):
            return False
        window = [int(numbers.min()), int(numbers.max())]
        return bool(np.isin(slow.recorded, numbers).any()) and window == self.capture.window

    @property
    def _times_of_run(self) -> tuple[StepTimes | None, float]:
        """The clock of the steps, if it tells how long they take, and the device's work in each."""
        if self.works_later:
            return None, 0.0
        return self.step_times, self.device_ms

    def _host_peak_bytes(self) -> int | None:
        """The most resident memory of the recorded process."""
        if self.host_memory_samples is None:
            return None
        from nbprof.analysis.memory.host import ITSELF

        processes = self.host_processes
        peak = processes["peak_bytes"][processes["name"] == ITSELF]
        return int(peak.iloc[0]) if len(peak) else None

    def _growth(self) -> growth.Growth | None:
        memory = growth.find(self.steps, self.memory_timeline, self.hosts)
        if memory is not None and memory.op:
            memory = growth.with_place(memory, self.memory_unfreed)
        if memory is None or memory.capacity is None or memory.each <= 0 or self.step_times is None:
            return memory
        # Steps that ran after the recording without filling the memory refute the growth.
        left = (memory.capacity - memory.peak) / memory.each
        return memory if self.step_times.later <= left else None

    def _rows_of_rules(
        self, runtime: torch_runtime.Runtime | None, evidence: advice_evidence.Evidence
    ) -> pd.DataFrame:
        """The findings by the frames of the files and some evidence."""
        return advice.advice(
            self.overview_of_files,
            self.steps_summary,
            self.tf_data.pipelines,
            self.tf_data.nodes,
            self.kernels_in_steps,
            runtime,
            evidence,
        )

    @property
    def _no_runtime_figures(self) -> torch_runtime.Runtime | None:
        """Empty figures for PyTorch, which has its own rules; None for other frameworks."""
        if self.activity.framework is PYTORCH:
            return torch_runtime.Runtime()
        return None

    @frame
    def _between_hosts(self) -> pd.DataFrame:
        """Findings that compare hosts that were read separately; no host can make them alone."""
        evidence = advice_evidence.Evidence(
            spread=advice_evidence.spread(self.pods),
            straggler=advice_evidence.straggler(self.pod_frames.stragglers),
            serving=SERVING in self.activity.traits,
        )
        findings = self._rows_of_rules(self._no_runtime_figures, evidence)
        return findings[findings["rule"].isin(_BETWEEN_HOSTS)]

    @frame(combine=_common_findings, phase=Phase.TYPICAL)
    def _findings(self) -> pd.DataFrame:
        runtime = None
        if self.activity.framework is PYTORCH:
            runtime = torch_runtime.runtime(self.activity, self.steps)
        return self._rows_of_rules(runtime, self._evidence())

    @cached
    def _advice_of_files(self) -> pd.DataFrame:
        findings = self._findings
        if self.parts is None:
            return findings
        return _largest(findings[~findings["rule"].isin(_BETWEEN_HOSTS)], self._between_hosts)

    @cached
    def tried(self) -> pd.DataFrame:
        """One row per experiment (`--try`)."""
        from nbprof.analysis.advice import tried

        rows = []
        if self.capture is not None:
            rows = self.capture.tried.get("rows", [])
        return tried.frame(rows)

    @cached
    def compilations(self) -> Compilations:
        """Compilations in the cell, as the recording states them."""
        from nbprof.core import compile_times

        return compile_times.unpacked(self.capture.compiles if self.capture is not None else None)

    @cached
    def compiles(self) -> pd.DataFrame:
        """One row per compilation in the cell."""
        from nbprof.analysis.compiles import table

        recorded = self.compilations
        known = self._times_of(self.steps) if recorded.rows else None
        return table.frame(recorded, self.cells, known)

    @cached
    def graph_breaks(self) -> pd.DataFrame:
        """One row per line at which a function of `torch.compile` breaks."""
        from nbprof.analysis.compiles import breaks

        activity = trace = None
        known = self.compilations.rows or self.compilations.earlier
        if known and self.parts is None and len(self.hosts) == 1:
            activity, trace = self.activity, self.trace
        return breaks.frame(
            self.compilations, self.cells, activity, trace, steps.counted(self.steps)
        )

    def _breaks_in_steps(self) -> Breaks | None:
        """Graph breaks in the steps that averages include, where their costs are known."""
        if not self.compilations.rows and not self.compilations.earlier:
            return None
        from nbprof.analysis.compiles import breaks

        return breaks.in_steps(self.graph_breaks)

    def _times_of(self, rows: pd.DataFrame) -> RecordedSteps | None:
        """Recorded steps by the clock of the process; None if that is unknown."""
        from nbprof.analysis.compiles.table import RecordedSteps
        from nbprof.analysis.steps.step_rows import step_bounds

        origin = origin_ns(self.trace)
        if not origin or len(self.hosts) != 1 or not len(rows):
            return None
        start, end = step_bounds(rows)
        numbers = rows["step"].to_numpy(np.int64)
        order = np.argsort(start, kind="stable")
        return RecordedSteps(
            numbers[order], start[order] // 1000 + origin, end[order] // 1000 + origin
        )

    def _compiled_first(self) -> bool:
        """True if each compilation in counted steps is the first of its function."""
        if not self.compilations.rows or self.capture is None:
            return False
        from nbprof.analysis.compiles import again

        known = self._times_of(steps.counted(self.steps))
        return known is not None and again.are_first(self.compilations, known.start, known.end)

    def _compiled_again(self) -> Again | None:
        """Compilations in the steps that averages include, of functions compiled before."""
        if not self.compilations.rows or self.capture is None:
            return None
        from nbprof.analysis.compiles import again

        known = self._times_of(steps.counted(self.steps))
        if known is None:
            return None
        return again.find(
            self.compilations,
            self.cells,
            known.start,
            known.end,
            ended_before=self.capture.ended_before,
        )

    def keep_tried(self, tried: dict[str, Any]) -> None:
        """Take the results of experiments that ran after the run was read."""
        assert self.capture is not None
        self.capture.tried = tried
        self.memo.forget("tried", "overview")

    @property
    def advice(self) -> pd.DataFrame:
        """Findings with evidence and fix, largest gain first, and what experiments gave."""
        if self.capture is None or not self.capture.tried:
            return self.predicted_advice
        from nbprof.analysis.advice import tried

        return tried.with_results(self.predicted_advice, self.tried)

    @cached
    def predicted_advice(self) -> pd.DataFrame:
        """Findings with evidence and fix, largest gain first, before any experiment."""
        capture = self.capture
        if (
            capture is not None
            and capture.unrecorded
            and is_unrecorded(self._breakdown_as_recorded)
        ):
            return advice.frame([])
        findings = self._with_host(self._with_versions(self._advice_of_files))
        if len(self.ranges):
            # Imported late, as most programs name no ranges.
            from nbprof.analysis.advice.in_ranges import named

            findings = named(findings, self._range_totals, self.activity.unit)
        recorder = ""
        if capture is not None:
            findings = self._as_captured(findings, capture)
            recorder = capture.by or advice_recorder.CELL
        file_format = self.files.format if self.files is not None else ""
        findings = advice_recorder.in_words_of(
            findings, recorder, self.activity.framework, file_format
        )
        if capture is not None and capture.error:
            findings = self._with_error(findings, capture.error)
        return findings

    def _as_captured(self, findings: pd.DataFrame, capture: CaptureInfo) -> pd.DataFrame:
        """The findings as they apply to what is known of the recorded program and its machine."""
        # Imported late, as files alone state none of this.
        from nbprof.analysis.advice import cores as advice_cores
        from nbprof.analysis.advice import probed as advice_probed
        from nbprof.analysis.advice import stated as advice_stated
        from nbprof.analysis.advice import workers as advice_workers

        unit = self.activity.unit
        cores = capture.contention.get("cores", 0.0)
        findings = advice_stated.without(findings, capture.settings, capture.precision, cores)
        if capture.of_keras:
            from nbprof.analysis.advice import keras_code
            from nbprof.dialects.iterations import placed

            findings = keras_code.in_keras(findings, self.steps, placed(self.trace))
        times, workers = self._input_times, self._workers
        findings = advice_cores.fitted(
            findings,
            capture.contention,
            self.loaders,
            times,
            unit,
            advice_workers.keep_up(workers, times),
        )
        findings = advice_workers.explained(findings, workers, times, unit)
        if self.python is not None:
            from nbprof.analysis.advice import iterator_code

            findings = iterator_code.named(findings, self._busiest_in_waits)
        # Measured gains replace predicted ones.
        step_ms = self.overview_of_files["step_time_ms"]
        return advice_probed.measured(
            findings, capture.probe, step_ms, advice.WORTH_PERCENT, unit, self.bare_parts
        )

    def _busiest_in_waits(self) -> TopFunction | None:
        """The function of the person's code in which most of the wait for input is spent."""
        from nbprof.activity.activity import HOST_WAIT_INPUT
        from nbprof.core.intervals import Intervals

        origin = origin_ns(self.trace)
        if self.python is None or not origin or len(self.hosts) != 1:
            return None
        waits = self.activity.work.take(self.activity.work.cls == HOST_WAIT_INPUT)
        start, end = waits.start // 1000 + origin, waits.end // 1000 + origin
        return self.python.busiest(Intervals.union(start, end, merge_touching=False))

    @property
    def _workers(self) -> advice_workers.Workers:
        """The workers of loaders, and the steps that they worked for."""
        from nbprof.analysis.advice import workers as advice_workers
        from nbprof.core.loader_uses import GRAIN_DATASET, GRAIN_LOADER, PY_DATASET

        def datasets(*kinds: str) -> frozenset[str]:
            return frozenset(use.dataset for use in self.loaders if use.kind in kinds)

        return advice_workers.Workers(
            self.worker_times,
            self.cells,
            self._batches_per_step,
            datasets(PY_DATASET),
            datasets(GRAIN_LOADER, GRAIN_DATASET),
        )

    @property
    def _batches_per_step(self) -> float:
        counted = steps.counted(self.steps)
        if "batches" in counted and len(counted):
            return float(counted["batches"].mean())
        return 1.0

    def _with_error(self, findings: pd.DataFrame, error: str) -> pd.DataFrame:
        """The findings with those on the error that ended the cell."""
        if not advice_host_buffer.speaks_of_it([error]):
            return findings
        texts = advice_host_buffer.speaks_of_it([*map(str, self.trace.names), error])
        rules = set(findings["rule"])
        new = [
            finding
            for finding in advice.without_steps(advice_evidence.Evidence(texts=texts))
            if finding.rule not in rules
        ]
        if not new:
            return findings
        rows = pd.DataFrame(new, columns=findings.columns)
        return pd.concat([findings.head(advice.MOST - len(rows)), rows], ignore_index=True)

    @property
    def _input_times(self) -> advice_cores.Times:
        """Times of an average step."""
        from nbprof.analysis.advice import cores as advice_cores

        step_ms = float(self.answer["step_time_ms"] or 0.0)
        keras = self.capture is not None and self.capture.of_keras
        bare = self.bare_parts
        if bare.bare:
            wait_ms = bare.bare["input"]
            return advice_cores.Times(bare.step_ms, wait_ms, bool(self.answer["devices"]), keras)
        percents = self.steps_summary.set_index("category")["percent"]
        wait_ms = float(percents.get("input", 0.0) or 0.0) * step_ms / 100
        if np.isnan(wait_ms):
            wait_ms = 0.0
        return advice_cores.Times(step_ms, wait_ms, bool(self.answer["devices"]), keras)

    def _with_host(self, findings: pd.DataFrame) -> pd.DataFrame:
        """The findings with those on the host's time.

        Those on what Python did replace the advice to record Python.
        """
        if self.parts is not None or not len(self.steps) or self.capture is None:
            return findings
        breakdown = self._breakdown_as_recorded
        if not breakdown.host_parts:
            return findings
        host = advice_evidence.HostUse(
            breakdown.host_parts,
            self.unexplained,
            breakdown.cpu,
            breakdown.contention,
            cpu.products(self.activity, breakdown.counted),
            self.capture.machine.get("bf16", ""),
            _of_libraries(breakdown),
            self._result_waits(breakdown.counted),
            guarded(
                "What is known of process pools",
                lambda: self._pool_wait(breakdown.counted),
                lambda _: None,
            ),
        )
        evidence = advice_evidence.Evidence(
            host=host,
            programs_per_step=advice_evidence.programs_per_step(self.activity, self.steps),
            periodic=self._periodic,
            bare=self.bare_parts,
        )
        of_host = advice.advice(
            self.answer,
            self.steps_summary,
            self.tf_data.pipelines,
            self.tf_data.nodes,
            self.kernels_in_steps,
            self._no_runtime_figures,
            evidence,
        )
        names = advice_host.NAMES
        if self.unexplained is not None:
            findings = findings[~findings["rule"].isin(("other", *advice_host.OF_UNEXPLAINED))]
            names = (*names, *advice_host.OF_UNEXPLAINED)
        of_host = of_host[of_host["rule"].isin(names)]
        rules = {*findings["rule"], *of_host["rule"]}
        if not rules.isdisjoint(advice_host.CAUSES_OF_TINY):
            of_host = of_host[~of_host["rule"].isin(advice_host.TINY)]
        return _largest(findings, of_host)

    def _result_waits(self, counted: pd.DataFrame) -> ResultWaits | None:
        if len(self.hosts) != 1:
            return None
        from nbprof.analysis import result_waits

        origin = origin_ns(self.trace)
        return result_waits.find(self.activity, self.trace, counted, self.python, origin)

    def _pool_wait(self, counted: pd.DataFrame) -> PoolWait | None:
        """The wait of the counted steps for process pools."""
        origin = origin_ns(self.trace)
        if self.python is None or not origin or len(self.hosts) != 1:
            return None
        if not self.pools.recorded.pools or not len(counted):
            return None
        from nbprof.analysis import pools
        from nbprof.analysis.steps.step_rows import step_bounds
        from nbprof.core.intervals import Intervals

        start, end = step_bounds(counted)
        units = Intervals.union(start // 1000 + origin, end // 1000 + origin)
        return pools.waited(self.pools, self.python, units)

    def _with_versions(self, findings: pd.DataFrame) -> pd.DataFrame:
        """The findings with that on library versions that are known to be slow."""
        versions = self.answer["environment"]["versions"]
        if self.activity.framework is not PYTORCH or not advice_versions.may_be_slow(versions):
            return findings
        of_versions = self._rows_of_rules(
            torch_runtime.Runtime(),
            advice_evidence.Evidence(versions=versions, bare=self.bare_parts),
        )
        return _largest(findings, of_versions[of_versions["rule"] == advice_versions.NAME])
