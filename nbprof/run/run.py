"""Which frames does this profile have? A `Run` computes each when it is first asked for, or has it
from the cache.

To add a frame, write a method that computes it: under `@persisted` the cache keeps it, which it may
where it follows from the files alone; under `@cached` it lives as long as the run. What several
tools ask for is a frame of the run itself; the frames of one family are a group in a module beside
this one, as those of `run.allocator` in nbprof/run/allocator.py.
"""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pandas as pd

from nbprof.activity.activity import ITERATIONS, SERVING, Activity
from nbprof.activity.unit import ANY, NAMED
from nbprof.analysis import contention, cpu, graphs, kernels, multiprocessors, overview, unexplained
from nbprof.analysis import lines as lines_of
from nbprof.analysis import serving as serving_of
from nbprof.analysis.advice import advice, checks, keras_code
from nbprof.analysis.advice import evidence as advice_evidence
from nbprof.analysis.advice import host as advice_host
from nbprof.analysis.advice import host_buffer as advice_host_buffer
from nbprof.analysis.advice import in_use as advice_in_use
from nbprof.analysis.advice import programs as advice_programs
from nbprof.analysis.advice import recorder as advice_recorder
from nbprof.analysis.advice import tf_data as advice_tf_data
from nbprof.analysis.advice import versions as advice_versions
from nbprof.analysis.ascend import verdict as ascend_verdict
from nbprof.analysis.device_time import collectives
from nbprof.analysis.device_time import use as device_use
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.memory import alive as memory_alive
from nbprof.analysis.memory import growth, memory
from nbprof.analysis.memory import ops as memory_ops
from nbprof.analysis.ops import longest_calls, ops, torch_ops, torch_runtime, xprof_ops
from nbprof.analysis.ranges import ranges as ranges_of
from nbprof.analysis.ranges.totals import Totals as RangeTotals
from nbprof.analysis.steps import backlog, periodic, pods, steps, tpu_cores, warmup, xprof_steps
from nbprof.analysis.verdict import Breakdown, is_unrecorded, verdict
from nbprof.core import remedies, trim
from nbprof.core.cells import readable
from nbprof.core.errors import NbprofError
from nbprof.core.files import Missing, RunFiles, SourceFile, skipped, some
from nbprof.core.guard import Failures, guarded
from nbprof.core.line_times import LineTimes
from nbprof.core.loop_times import LoopTimes, choose
from nbprof.core.trace import Note, Receipt, Trace
from nbprof.dialects import sanity
from nbprof.dialects.environment import origin_ns
from nbprof.dialects.xplane import tpu_cores as xplane_tpu_cores
from nbprof.formats.chrome import graph_annotations, inductor
from nbprof.formats.register import by_name, stem
from nbprof.formats.torch_snapshot.beside import beside
from nbprof.frameworks.register import JAX, PYTORCH
from nbprof.run import absent, combine, recorded, stated
from nbprof.run.allocator import AllocatorFrames
from nbprof.run.ascend import AscendFrames
from nbprof.run.cache.run_cache import RunCache, open_run_cache
from nbprof.run.device_time import DeviceTimeFrames
from nbprof.run.lazy import LARGEST, REST, SOME, Frames, Group, Memo, cached, of_hosts, persisted
from nbprof.run.pods import PodFrames
from nbprof.run.programs import ProgramFrames
from nbprof.run.source import Dialect, RunSource, dialect, facts, reader
from nbprof.run.tf_data import TfDataFrames
from nbprof.schema.frames import empty, shaped

if TYPE_CHECKING:
    from nbprof.analysis.advice import cores as advice_cores
    from nbprof.analysis.python import Python, PythonUse
    from nbprof.core.loader_uses import LoaderUse
    from nbprof.dialects.gpu.captures import Capture
    from nbprof.sources.recording import CaptureInfo
    from nbprof.timeline.serve import Timeline

T = TypeVar("T")

_BETWEEN_HOSTS = ("straggler", "uneven_workers", "collectives")
"""Rules that no host can answer alone."""


class Run(Frames):
    """The frames of one profile, each computed when first asked for.

    Parameters
    ----------
    trace : Trace
        As the reader of its format made it.
    interpret : callable
        What the dialect makes of it; called when something is first asked for that was not kept.
    source : RunSource
    capture : CaptureInfo, optional
        How it was recorded, when nbprof recorded it.
    run_cache : RunCache, optional
        What the cache has of it; no cache when left out.
    given_peaks : dict, optional
        Peaks of the devices, by the names of `given_peaks.KEYS`.

    Attributes
    ----------
    as_read : Trace
        The trace before the dialect names its lanes; `trace` is the one after.
    files : RunFiles, optional
        Its files.
    snapshot_pieces : sequence of SourceFile
        Files of snapshots of an allocator: the profile itself, or what lies beside its trace.
    graph_captures : sequence of Capture
        What other traces have of the graphs that it replays.
    """

    def __init__(
        self,
        trace: Trace,
        interpret: Dialect,
        source: RunSource,
        capture: CaptureInfo | None = None,
        run_cache: RunCache | None = None,
        given_peaks: Mapping[str, float] | None = None,
    ) -> None:
        self.source = source
        self.capture = capture
        self.files: RunFiles | None = None
        self.as_read = trace
        self.snapshot_pieces: Sequence[SourceFile] = ()
        self.graph_captures: Sequence[Capture] = ()
        self.memo = Memo(source, run_cache, Failures(trace.receipt.warn))
        self._interpret = interpret
        self._given_peaks = dict(given_peaks or {})

    def persist(self, name: str, compute: Callable[[], T]) -> T:
        """A value that follows from the files alone, out of the cache where that has it; `compute`
        makes it otherwise.
        """
        return self.memo.persisted(name, compute)

    @classmethod
    def read(
        cls,
        files: RunFiles,
        capture: CaptureInfo | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        keep: bool = True,
        write: bool = True,
        given_peaks: Mapping[str, float] | None = None,
        graph_captures: Sequence[Capture] = (),
        units: str = ANY,
    ) -> Run:
        """Reads the files of one run, which the cache may keep if they stay where they are; without
        `write` it gives only what it has.

        Peaks of the devices that are given, by the names of `given_peaks.KEYS`, count instead of
        those in the files; else those that were given when it was recorded. `graph_captures` are
        what other traces have of the graphs that a run of PyTorch replays. `units` says what may
        stand in the place of steps where nothing marks any, see `nbprof.activity.unit`.

        Raises
        ------
        ReadError
            A file is damaged or is no XSpace profile.
        """
        began = time.perf_counter()
        left_out = capture.warmup if capture is not None else None
        if given_peaks is None and capture is not None:
            given_peaks = capture.peaks
        # Averages and utilizations depend on them, and are kept.
        programs, unread = inductor.read(inductor.beside(files))
        annotations, illegible = graph_annotations.read(graph_annotations.beside(files))
        recorded_loops = (
            LoopTimes.unpacked(capture.loops) if capture is not None and capture.loops else None
        )
        iterations = choose(recorded_loops)
        given = (
            [(one.kinds, one.kernels, one.origins) for one in graph_captures],
            programs,
            *([annotations] if annotations else []),
        )
        said = (
            hashlib.sha256(repr(given).encode()).hexdigest()
            if graph_captures or programs or annotations
            else None
        )
        if units == ANY and recorded_loops is not None:
            units = NAMED
        options = {
            "warmup": left_out,
            "peaks": given_peaks or None,
            "beside": said,
            "units": units if units != ANY else None,
        }
        if iterations is not None:
            options["iterations"] = hashlib.sha256(
                json.dumps(capture.loops if capture is not None else {}).encode()
            ).hexdigest()
        run_cache = open_run_cache(
            files,
            {key: value for key, value in options.items() if value is not None},
            keep=keep,
            write=write,
        )
        trace = run_cache.trace(lambda: reader(files)(run_cache.pieces, progress))
        trace.units = units
        trace.iterations = iterations
        if trace.receipt.events >= trim.MANY_EVENTS:
            trim.give_back()
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        if not keep:
            # They are gone when the profile is.
            source.local = ()
        interpret = dialect(files.format)
        if said is not None:
            from nbprof.dialects.chrome.chrome import interpret as of_chrome

            interpret = partial(
                of_chrome, graph_captures=graph_captures, programs=programs, annotations=annotations
            )
        out = cls(trace, interpret, source, capture, run_cache, given_peaks)
        out.graph_captures = graph_captures
        out.snapshot_pieces = beside(files)
        out.files = files
        out._tell_of_files()
        for warning in (*unread, *illegible):
            trace.receipt.warn(warning)
        return out

    def _tell_of_files(self) -> None:
        """Puts into the receipt what was found out about the files before they were read."""
        files, receipt = self.files, self.as_read.receipt
        for note in files.notes if files is not None else ():
            receipt.info(note)
        for warning in files.warnings if files is not None else ():
            receipt.warn(warning)
        for line in skipped(self._unread, listed=self._of_hosts):
            receipt.warn(line)

    def host(self, number: int) -> Run:
        """One host of several, read whole as if it were the run.

        Raises
        ------
        ReadError
            Its file no longer exists.
        NbprofError
            The hosts of this run have no files of their own.
        """
        files = self.files
        if files is None or not by_name(files.format).apart or len(files.files) < len(self.hosts):
            raise NbprofError(
                "this run does not have one file per host, so single hosts cannot be opened."
            )
        mine = some(files, [self._file_of(number)])
        return Run.read(
            mine,
            self.capture,
            given_peaks=self._given_peaks or None,
            graph_captures=self.graph_captures,
        )

    def _file_of(self, number: int) -> int:
        """Which of the files is that of a host."""
        return number

    def read_ahead(self) -> None:
        """The dashboard is drawn next: what of the files only that asks for is read meanwhile,
        where it was not read yet.
        """

    @property
    def tf_data(self) -> TfDataFrames:
        """Pipelines of tf.data."""
        return TfDataFrames(self)

    @property
    def programs(self) -> ProgramFrames:
        """Compiled XLA programs."""
        return ProgramFrames(self)

    @property
    def device_time(self) -> DeviceTimeFrames:
        """How each device spent its time."""
        return DeviceTimeFrames(self)

    @property
    def pod_frames(self) -> PodFrames:
        """Hosts compared with each other."""
        return PodFrames(self)

    @property
    def allocator(self) -> AllocatorFrames:
        """Snapshots of PyTorch's allocator."""
        return AllocatorFrames(self)

    @property
    def ascend(self) -> AscendFrames:
        """Tables of Ascend's profiler."""
        return AscendFrames(self)

    @cached
    def activity(self) -> Activity:
        """The activity that the dialect derives from the trace."""
        activity = self._interpret(self.as_read)
        activity.give_peaks(self._given_peaks)
        return activity

    @property
    def trace(self) -> Trace:
        """Every event, on lanes named by the dialect."""
        _ = self.activity
        return self.as_read

    @of_hosts(combine.chained)
    def hosts(self) -> list[str]:
        """Machines that recorded."""
        return list(self.trace.hosts)

    @property
    def recorded_s(self) -> float | None:
        """The length of the recording: from its start to the end of the last event; of several
        hosts the longest. None without events.
        """
        length = sanity.length_ps(self._recorded)
        return None if length is None else length / 1e12

    @of_hosts(combine.below())
    def devices(self) -> pd.DataFrame:
        """One row per device."""
        return self.activity.devices

    @of_hosts(stated.combined)
    def stated(self) -> dict[str, Any]:
        """What the profile states about itself, beside what happened."""
        return stated.of(self.activity, len(self.as_read.modules))

    @of_hosts(combine.below())
    def devices_and_cores(self) -> pd.DataFrame:
        """One row per device, and one for each SparseCore of a TPU."""
        return tpu_cores.with_sparse_cores(
            self.activity.devices, xplane_tpu_cores.sparse_cores(self.trace)
        )

    @cached
    def timeline(self) -> Timeline:
        """The events drawn in a time window, and queries over them. It lives as long as the run."""
        from nbprof.timeline.serve import Timeline

        # A reference back would keep the columns of a run that nobody has any more until the
        # garbage collector comes.
        return Timeline(cast(Run, weakref.proxy(self)))

    @cached
    def _recorded_steps(self) -> tuple[tuple[pd.DataFrame, bool], pd.DataFrame]:
        found = steps.measured(self.activity)
        return found, self._numbered(found)

    @of_hosts(combine.measured_steps)
    def _measured_steps(self) -> combine.MeasuredSteps:
        found, numbered = self._recorded_steps
        return *found, overview.busy_shares(self.activity, numbered)

    @of_hosts(combine.widths)
    def _compute_by_width(self) -> steps.ByWidth | None:
        return steps.compute_by_width(self.activity)

    @of_hosts(combine.below("start_ms"))
    def _steps_of_cores(self) -> pd.DataFrame:
        return steps.by_core(self.activity)

    def made_of_work(self) -> None:
        """Makes what else is made of all classified spans, before they are let go."""
        _ = self._compute_by_width, self._steps_of_cores

    def _numbered(self, found: tuple[pd.DataFrame, bool]) -> pd.DataFrame:
        warmup = self.capture.warmup if self.capture is not None else None
        return steps.numbered(found, warmup, self.activity.traits)

    @of_hosts(combine.cpu_totals)
    def _cpu_totals(self) -> cpu.Totals | None:
        """What host compute of the counted steps consists of."""
        return cpu.totals(self.activity, steps.counted(self._recorded_steps[1]))

    @persisted
    def _steps_and_busy(self) -> tuple[pd.DataFrame, float | None]:
        found, compiled, busy = self._measured_steps
        numbered = (
            self._recorded_steps[1] if self.parts is None else self._numbered((found, compiled))
        )
        return numbered, overview.busy(busy)

    @cached
    def busy_devices(self) -> int:
        """How many devices ran anything in the counted steps: those that the share of busy devices
        is a mean of.
        """
        return sum(share > 0 for share in self._measured_steps[2])

    @cached
    def steps(self) -> pd.DataFrame:
        """Steps with their breakdown; time that nothing could have recorded is NA, not 0."""
        frame = self._steps_and_busy[0]
        if (
            not len(frame)
            or frame["input_ms"].isna().all()
            or input_pipeline.traced(self.activity, frame, self.input_ops)
        ):
            return frame
        return frame.assign(input_ms=np.nan)

    @of_hosts(combine.below("start_ms"))
    def backlog(self) -> pd.DataFrame:
        """Device work that was launched before the recording began, one row a host."""
        return backlog.frame(self.activity)

    @persisted
    def steps_summary(self) -> pd.DataFrame:
        """Mean, sd and range of each category."""
        return steps.summary(self.steps)

    @persisted
    def xprof_steps(self) -> pd.DataFrame:
        """Steps by the rules of XProf 2.24."""
        out = xprof_steps.frame(self.activity)
        self.activity.forget("xprof_work")
        return out

    @persisted
    def _pods(self) -> tuple[pd.DataFrame, list[Note]]:
        return pods.frame(
            self.steps, self._steps_of_cores, self.pod_frames.ahead_ms, self.activity.unit
        )

    @cached
    def pods(self) -> pd.DataFrame:
        """Each step on each worker."""
        return self._pods[0]

    @persisted
    def pods_summary(self) -> pd.DataFrame:
        """The slowest worker of each step, and the spread."""
        return pods.summary(self.pods)

    @of_hosts(combine.below("start_ms"))
    def pods_cores(self) -> pd.DataFrame:
        """Each step on each core of a TPU, by what the core did."""
        return tpu_cores.frame(self.activity, self.steps)

    @cached
    def _host_ops(self) -> tuple[pd.DataFrame, int]:
        return ops.host_self_times(self.activity)

    @of_hosts(combine.op_sums)
    def _op_sums(self) -> list[ops.Side]:
        return ops.summed(self.activity, self.activity.device_ops.frame(), *self._host_ops)

    @of_hosts(combine.eager)
    def _eager_us(self) -> dict[str, tuple[float, float]]:
        return ops.eager_us(self.activity, self._host_ops[0])

    @persisted
    def _ops_pair(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return ops.frames(ops.with_rates(self._op_sums, self.activity))

    @cached
    def ops(self) -> pd.DataFrame:
        """Time by op, idle time excluded."""
        return self._ops_pair[0]

    @cached
    def ops_with_idle(self) -> pd.DataFrame:
        """Time by op, with the idle row of each side."""
        return self._ops_pair[1]

    @of_hosts(combine.sums_in_steps)
    def _sums_in_steps(self) -> combine.InSteps:
        if self.backlog.empty:
            return self._op_sums, self.kernels
        return ops.summed(
            self.activity, ops.in_steps(self.activity), *self._host_ops
        ), kernels.in_steps(self.activity)

    @of_hosts(combine.host_us)
    def _host_us_in_steps(self) -> pd.DataFrame:
        """Self time of host ops in steps: what runs between them and after them is of no step."""
        return ops.host_us_in_steps(self.activity, self._host_ops[0], self._steps_and_busy[0])

    @persisted
    def ops_in_steps(self) -> pd.DataFrame:
        """Time by op without device work launched before the recording began: what figures a step
        are made of.
        """
        return (
            self.ops
            if self.backlog.empty
            else ops.table(ops.with_rates(self._sums_in_steps[0], self.activity), with_idle=False)
        )

    @property
    def kernels_in_steps(self) -> pd.DataFrame:
        """GPU kernels without those launched before the recording began: what figures a step are
        made of.
        """
        return self.kernels if self.backlog.empty else self._sums_in_steps[1]

    @persisted
    def xprof_ops(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by op by the rules of XProf 2.24, without and with idle rows."""
        return xprof_ops.frames(self.activity)

    @of_hosts(combine.nowhere, REST)
    def longest_calls(self) -> pd.DataFrame:
        """The longest run of each op: `where op at_ms for_ms`."""
        return longest_calls.ops(self.activity, self.trace.events.start)

    @persisted
    def longest_launches(self) -> pd.DataFrame:
        """The longest launch of each row of `kernels`: `at_ms for_ms`, NaN if unknown."""
        if self.parts is not None:
            # It is a place in the trace of one host.
            return pd.DataFrame({"at_ms": np.nan, "for_ms": np.nan}, index=self.kernels.index)
        at, length = longest_calls.kernels(self.activity, self.kernels, self.trace.events.start)
        return pd.DataFrame({"at_ms": at, "for_ms": length})

    @of_hosts(combine.kernels)
    def kernels(self) -> pd.DataFrame:
        """GPU kernels."""
        return kernels.frame(self.activity)

    @of_hosts(combine.below(), REST)
    def kernel_devices(self) -> pd.DataFrame:
        """How much of each GPU the kernels used."""
        return multiprocessors.frame(self.activity, self.steps, self.trace.events.start)

    @of_hosts(combine.below(), REST)
    def graphs(self) -> pd.DataFrame:
        """Replays of CUDA and HIP graphs."""
        return graphs.graphs(self.activity)

    @persisted
    def graph_nodes(self) -> pd.DataFrame:
        """Nodes of CUDA and HIP graphs over their replays; as many as kernels, so that hosts leave
        them where they are.
        """
        return graphs.nodes(self.activity)

    @persisted
    def xprof_kernels(self) -> pd.DataFrame:
        """GPU kernels by the rules of XProf 2.24."""
        return kernels.as_xprof(self.activity)

    @persisted
    def _of_allocations(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        out = (
            memory.numbered(memory.timeline(self.activity), self.steps, self.hosts)[memory.COLUMNS],
            memory_ops.frame(self.activity),
        )
        # Only these frames are made of it, and it is as large.
        self.activity.forget("allocations")
        if self.as_read.receipt.events >= trim.MANY_EVENTS:
            trim.give_back()
        return out

    @cached
    def memory_timeline(self) -> pd.DataFrame:
        """Allocator events in time order."""
        return self._of_allocations[0]

    @of_hosts(combine.below("time_ms"), LARGEST)
    def _memory_of_largest(self) -> pd.DataFrame:
        return self.memory_timeline

    @property
    def memory_drawn(self) -> pd.DataFrame:
        """Allocator events that are drawn: all, or where hosts were read apart those of the host
        with the highest peak.
        """
        if self.parts is None or self.memory_largest is None:
            return self.memory_timeline
        rows = self._memory_of_largest
        # As the summary calls the allocators of several hosts.
        return (
            rows.assign(memory_id=f"{self.memory_largest} " + rows["memory_id"])
            if len(self.hosts) > 1
            else rows
        )

    @property
    def memory_largest(self) -> str | None:
        """The host with the highest peak of memory; None where no peak is known."""
        known = (
            self.memory_summary["peak_host"].dropna().tolist() if len(self.memory_summary) else []
        )
        return self.hosts[int(known[0])] if known else None

    @of_hosts(combine.memory_ops, REST)
    def memory_ops(self) -> pd.DataFrame:
        """Bytes that each op itself allocated and freed."""
        return self._of_allocations[1]

    @of_hosts(combine.memory_summaries)
    def memory_summary(self) -> pd.DataFrame:
        """One row an allocator."""
        return memory.summary(self.memory_timeline)

    @property
    def known_memory(self) -> pd.DataFrame:
        """`memory_summary` for what shows it among other things: without rows where it could not be
        computed.
        """
        return guarded(
            "The memory of the run",
            lambda: self.memory_summary,
            lambda _: memory.summary(pd.DataFrame(columns=memory.COLUMNS)),
        )

    @of_hosts(combine.memories, REST)
    def memory_peak(self) -> pd.DataFrame:
        """Allocations alive at the peak of each allocator."""
        return memory_alive.at_peak(self.memory_timeline, self.memory_summary)

    @of_hosts(combine.input_ops)
    def input_ops(self) -> pd.DataFrame:
        """Input ops by self time."""
        return input_pipeline.ops(self.activity, self._host_ops[0])

    @cached
    def input_categories(self) -> pd.DataFrame:
        """The five kinds of input work, with what helps against each on this machine."""
        found = self._input_categories_of_files
        if self.capture is None:
            return found
        from nbprof.analysis.advice import cores as advice_cores

        if self.capture.of_keras and self.activity.framework is PYTORCH:
            helps = found["category"].map(keras_code.CATEGORIES)
            found = found.assign(advice=found["advice"].mask(found["advice"] != "", helps))
        return advice_cores.without_workers(found, self.advice)

    @persisted
    def _input_categories_of_files(self) -> pd.DataFrame:
        return input_pipeline.categories(
            self.input_ops, self.activity.framework, self.tf_data.cause
        )

    @of_hosts(combine.enqueued)
    def _enqueued(self) -> input_pipeline.Enqueued:
        return input_pipeline.enqueues(self.activity, self._host_ops[0])

    @cached
    def input_summary(self) -> dict[str, Any]:
        """How much of a step is input, of which kinds, and what to do next."""
        why = self.tf_data.cause
        return self.input_summary_of_files | (
            {"next_step": why.text} if why.kind == advice_tf_data.ELSEWHERE else {}
        )

    @persisted
    def input_summary_of_files(self) -> dict[str, Any]:
        """The same before the work of a tf.data pipeline is compared with the wait."""
        return input_pipeline.summary(
            self.activity, self._steps_and_busy[0], self.input_ops, self._enqueued
        )

    @of_hosts(combine.ranges)
    def _range_totals(self) -> RangeTotals:
        """What the counted steps spent in ranges that the program named."""
        return ranges_of.totals(
            self.activity,
            self.trace,
            steps.counted(self._recorded_steps[1]),
            lambda: self._host_ops[0],
        )

    @persisted
    def ranges(self) -> pd.DataFrame:
        """Time by range that the program named."""
        return ranges_of.frame(self._range_totals)

    @property
    def outside_ranges(self) -> dict[str, float]:
        """Time per step, in ms, that is in no range."""
        return ranges_of.outside_ms(self._range_totals)

    @cached
    def lines(self) -> lines_of.Lines:
        """Time by line of the notebook's cells, and of the code of compiled programs."""
        times = (
            LineTimes.unpacked(self.capture.lines)
            if self.capture is not None and self.capture.lines
            else None
        )
        return lines_of.lines(self.activity, self.trace, times, self.cells, self.python)

    @cached
    def python(self) -> Python | None:
        """Python time from sampled stacks; None where none were recorded."""
        if self.capture is None or not self.capture.python:
            return None
        # Late, for most profiles have none.
        from nbprof.analysis.python import Python
        from nbprof.core.python_samples import PythonSamples

        samples = PythonSamples.unpacked(self.capture.python)
        return Python(samples, self.cells) if samples is not None else None

    @of_hosts(combine.below("start_ms"), REST)
    def serving(self) -> pd.DataFrame:
        """Iterations of an inference engine."""
        return serving_of.frame(self.activity, self.trace)

    @of_hosts(combine.torch_ops, REST)
    def torch_ops(self) -> pd.DataFrame:
        """Ops, annotations and runtime calls by name."""
        return torch_ops.frame(self.activity)

    @of_hosts(combine.torch_ops, REST)
    def torch_ops_by_shapes(self) -> pd.DataFrame:
        """The same, also grouped by the shapes of inputs."""
        return torch_ops.frame(self.activity, "shapes")

    @of_hosts(combine.torch_ops, REST)
    def torch_ops_by_stack(self) -> pd.DataFrame:
        """The same, also grouped by call stack, as recorded."""
        return torch_ops.frame(self.activity, "stack")

    @of_hosts(combine.torch_ops, REST)
    def torch_ops_by_module(self) -> pd.DataFrame:
        """The same, also grouped by module."""
        return torch_ops.frame(self.activity, "module")

    @of_hosts(combine.torch_ops, REST)
    def torch_ops_by_source(self) -> pd.DataFrame:
        """PyTorch's ops by the lines of code that called them."""
        return torch_ops.frame(self.activity, "source")

    def torch_ops_by(self, key: str) -> pd.DataFrame:
        """The same, also grouped by another key."""
        if key == "op":
            return self.torch_ops
        frame: pd.DataFrame = getattr(self, f"torch_ops_by_{key}")
        if key != "stack" or not len(frame):
            return frame
        stacks: list[Any] = [
            text if text is None else readable(text, self.cells)
            for text in frame["call_stack"].tolist()
        ]
        return frame.assign(call_stack=stacks)

    @property
    def cells(self) -> dict[str, int]:
        """Execution counts of the notebook's cells, where calls of Python were recorded, by what
        their files are called.
        """
        return self.capture.cells if self.capture is not None else {}

    @of_hosts(combine.torch_modules, REST)
    def torch_modules(self) -> pd.DataFrame:
        """The tree of modules."""
        return torch_ops.modules(self.activity)

    @of_hosts(combine.functions)
    def _functions(self) -> pd.DataFrame:
        return checks.functions(self.activity, self._steps_and_busy[0])

    @of_hosts(combine.costs)
    def _costs(self) -> dict[str, float | None]:
        return device_use.costs(self.activity)

    @of_hosts(combine.mean_of_known)
    def _share_of_16_bit(self) -> float | None:
        """Of JAX on GPUs: names of kernels that XLA makes say nothing of the width of their
        numbers, its programs do.
        """
        if self.activity.framework is not JAX or not (self.activity.devices["kind"] == "GPU").any():
            return None
        return advice_programs.share_of_16_bit(self.activity)

    @cached
    def _recorded_summary(self) -> pd.DataFrame:
        """The summary of the steps as they were recorded: what is not known of input is weighed as
        none, and said not to be known.
        """
        return steps.summary(self._steps_and_busy[0])

    @cached
    def _input_traced(self) -> bool:
        return input_pipeline.traced(self.activity, self._steps_and_busy[0], self.input_ops)

    @cached
    def _breakdown(self) -> Breakdown:
        """What the verdict is made of, as far as the files say."""
        recorded, busy = self._steps_and_busy
        alone = self.parts is None
        return overview.breakdown(
            self.activity,
            recorded,
            self._recorded_summary,
            busy,
            self.as_read.receipt.dropped,
            captures=stated.captures(self.activity) if alone else self.stated["captures"],
            works_ahead=stated.works_ahead(self.activity) if alone else self.stated["works_ahead"],
            cpu=cpu.split(self._cpu_totals),
        )

    @cached
    def unexplained(self) -> PythonUse | None:
        """What Python did in the counted steps while nothing was recorded; None where its stacks
        were not sampled.
        """
        recorded = self._steps_and_busy[0]
        if (
            self.python is None
            or self.parts is not None
            or len(self.hosts) != 1
            or not len(recorded)
        ):
            return None
        waited = (
            self.capture.contention.get("waited_percent", 0.0) / 100
            if self.capture is not None
            else 0.0
        )
        return unexplained.use(
            self.python, self.activity, steps.counted(recorded), origin_ns(self.trace), waited
        )

    @cached
    def _breakdown_as_recorded(self) -> Breakdown:
        """The same with what was recorded beside the files: what Python did, and how busy the cores
        were.
        """
        if self.capture is None:
            return self._breakdown
        unrecorded = recorded.sentence(self.capture.unrecorded)
        return replace(
            self._breakdown,
            unexplained=self.unexplained,
            contention=self.capture.contention,
            unrecorded=unrecorded,
            probed_ms=self.capture.probe.get("measured_ms"),
        )

    @cached
    def host_parts(self) -> pd.DataFrame:
        """What *host compute* and the time outside ops consist of: the columns of
        `p.overview["host_parts"]`.
        """
        if not len(self._steps_and_busy[0]):
            return empty("overview.host_parts")
        found = self._breakdown_as_recorded
        rows = [
            (*work, found.mean_ms * work.percent / 100)
            for work in found.host_work
            if work.percent > 0
        ]
        return shaped(
            "overview.host_parts",
            pd.DataFrame(rows, columns=["category", "part", "text", "percent", "ms"]),
        )

    def _verdict_as_recorded(self) -> dict[str, Any]:
        """The verdict, where what was recorded beside the files may change it."""
        capture = self.capture
        if capture is None or not (
            self.unexplained is not None
            or capture.contention
            or capture.unrecorded
            or capture.probe
        ):
            return {}
        found = self._breakdown_as_recorded
        probed = found.probed_ms is not None and self.overview_of_files["bound"] == "input"
        return verdict(found).to_dict() if found.host_parts or found.unrecorded or probed else {}

    @persisted
    def _overview_of_steps(self) -> dict[str, Any]:
        recorded, busy = self._steps_and_busy
        out = overview.of_steps(
            self.activity,
            recorded,
            self._recorded_summary,
            busy,
            self.as_read.receipt.dropped,
            captures=(
                stated.captures(self.activity) if self.parts is None else self.stated["captures"]
            ),
            works_ahead=(
                stated.works_ahead(self.activity)
                if self.parts is None
                else self.stated["works_ahead"]
            ),
            input_traced=self._input_traced,
            cpu=cpu.split(self._cpu_totals),
        )
        if (
            out["bound"] == "other"
            and ITERATIONS in self.activity.traits
            and self.ascend.verdict["text"]
        ):
            out |= ascend_verdict.of_marks(out, self.ascend.verdict)
        return out

    @persisted
    def overview_of_files(self) -> dict[str, Any]:
        """The overview without facts about the recording."""
        half = steps.share_of_16_bit(self._compute_by_width)
        if half is not None and self._share_of_16_bit is not None:
            half = self._share_of_16_bit
        out = overview.overview(
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
            tf_data=bool(self.input_ops["category"].isin(input_pipeline.READING).any())
            and self.activity.framework is not PYTORCH,
            private_threads=(
                advice_in_use.has_private_threads(self.trace.lanes) if self.parts is None else False
            ),
            input_traced=self._input_traced,
            waiting=steps.waiting_percent(self._steps_and_busy[0]),
            waits_traced=input_pipeline.waits_traced(self.activity, self.input_ops),
        )
        return (
            out
            | device_use.use(self.activity, self.ops_with_idle, self._costs)
            | tpu_cores.shares(self.pods_cores)
        )

    @cached
    def first_answer(self) -> dict[str, Any]:
        """What of the overview follows from the steps alone: the first picture waits for nothing
        else.
        """
        return self._as_recorded(self._overview_of_steps)

    @cached
    def answer(self) -> dict[str, Any]:
        """The overview, but for what the receipt warns of."""
        return self._as_recorded(self.overview_of_files)

    def _as_recorded(self, of_files: dict[str, Any]) -> dict[str, Any]:
        """An overview with what is known of the recording."""
        out = dict(of_files) | self._verdict_as_recorded()
        out["host_parts"] = self.host_parts
        if self.capture is not None and self.capture.framework:
            out["framework"] = self.capture.framework
            # "TensorFlow 2.21.0, Keras 3.15.1"
            stated = {
                name: version
                for name, _, version in (
                    part.rpartition(" ") for part in self.capture.framework.split(", ")
                )
                if name
            }
            known = out["environment"]
            out["environment"] = {
                **known,
                "framework": self.capture.framework,
                "versions": {**stated, **known["versions"]},
            }
        if self.capture is not None and (
            others := contention.sentence(self.capture.contention, unit=self.activity.unit)
        ):
            out["contention"] = others
            if out["confidence"] != "none":
                out["confidence"] = {"high": "medium"}.get(out["confidence"], "low")
                out["confidence_evidence"] = [*out["confidence_evidence"], (False, others)]
        if self.capture is not None and self.capture.probe:
            out["probe"] = dict(self.capture.probe)
        out["run_facts"] = facts(self.source, self.capture, out, self.devices, self.hosts)
        return out

    @cached
    def overview(self) -> dict[str, Any]:
        """The answer: what bounds the step, and the figures that prove it."""
        warnings = sum(n.level == "warning" for n in self.receipt.lines)
        told = ("Warnings", f"{warnings}, see the receipt below" if warnings else "none")
        return {**self.answer, "run_facts": [*self.answer["run_facts"], told]}

    @persisted
    def _uneven(self) -> pd.DataFrame:
        """What to change between hosts that were read apart: of the findings of each, none compares
        them.
        """
        frames = (
            self.overview_of_files,
            self.steps_summary,
            self.tf_data.pipelines,
            self.tf_data.nodes,
            self.kernels_in_steps,
        )
        spread, straggler = (
            advice_evidence.spread(self.pods),
            advice_evidence.straggler(self.pod_frames.stragglers),
        )
        # That of PyTorch has rules of its own, though what its runtime did is in the events of each
        # host.
        runtime = torch_runtime.Runtime() if self.activity.framework is PYTORCH else None
        evidence = advice_evidence.Evidence(
            spread=spread, straggler=straggler, serving=SERVING in self.activity.traits
        )
        found = advice.advice(*frames, runtime, evidence)
        return found[found["rule"].isin(_BETWEEN_HOSTS)]

    def _evidence(self) -> advice_evidence.Evidence:
        """Evidence for advice beyond the public frames."""
        return advice_evidence.gather(
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
            texts=advice_host_buffer.speaks_of_it(map(str, self.trace.names)),
            started=advice_host_buffer.started(self.trace),
            npu_rules=self.ascend.rules if (self.activity.devices["kind"] == "NPU").any() else None,
            rhythm=guarded(
                "The search for periodic steps",
                lambda: periodic.find(self.steps, self.trace),
                lambda _: None,
            ),
            growth=guarded("The search for memory that grows", self._growth, lambda _: None),
            calls=self.tf_data.calls,
            marked=np.unique(self.trace.events.lane[self.activity.markers.event]),
            not_launched_ms=lambda: self.device_time.not_launched_ms(),
        )

    def _growth(self) -> growth.Growth | None:
        return growth.find(self.steps, self.memory_timeline, self.hosts)

    @cached
    def _advice_of_files(self) -> pd.DataFrame:
        if self.parts is None:
            return self._findings
        rows = [self._findings[~self._findings["rule"].isin(_BETWEEN_HOSTS)], self._uneven]
        found = pd.concat([part for part in rows if len(part)] or rows[:1], ignore_index=True)
        return found.sort_values(
            "gain_ms_per_step", ascending=False, kind="stable", ignore_index=True
        ).head(advice.MOST)

    @of_hosts(combine.findings, SOME)
    def _findings(self) -> pd.DataFrame:
        figures = (
            torch_runtime.runtime(self.activity, self.steps)
            if self.activity.framework is PYTORCH
            else None
        )
        frames = (
            self.overview_of_files,
            self.steps_summary,
            self.tf_data.pipelines,
            self.tf_data.nodes,
            self.kernels_in_steps,
        )
        return advice.advice(*frames, figures, self._evidence())

    @cached
    def advice(self) -> pd.DataFrame:
        """Findings with evidence and fix, largest gain first."""
        if (
            self.capture is not None
            and self.capture.unrecorded
            and is_unrecorded(self._breakdown_as_recorded)
        ):
            return advice.frame([])
        out = self._advice_of_files
        # How it was recorded is no part of the files.
        out = self._with_versions(out)
        out = self._with_host(out)
        if len(self.ranges):
            # Late, for most programs name no ranges.
            from nbprof.analysis.advice.in_ranges import named

            out = named(out, self._range_totals, self.activity.unit)
        if self.capture is not None:
            # Late too: files alone state none of this.
            from nbprof.analysis.advice import cores as advice_cores
            from nbprof.analysis.advice import probed as advice_probed
            from nbprof.analysis.advice import stated as advice_stated

            cores = self.capture.contention.get("cores", 0.0)
            out = advice_stated.without(out, self.capture.settings, self.capture.precision, cores)
            if self.capture.of_keras:
                out = keras_code.in_keras(out)
            out = advice_cores.fitted(
                out, self.capture.contention, self.loaders, self._input_times, self.activity.unit
            )
            # What was measured replaces what was predicted.
            step_ms = self.overview_of_files["step_time_ms"]
            out = advice_probed.measured(
                out, self.capture.probe, step_ms, advice.WORTH_PERCENT, self.activity.unit
            )
        by = (self.capture.by or advice_recorder.CELL) if self.capture is not None else ""
        form = self.files.format if self.files is not None else ""
        out = advice_recorder.in_words_of(out, by, self.activity.framework, form)
        error = self.capture.error if self.capture is not None and self.capture.error else ""
        if advice_host_buffer.speaks_of_it([error]):
            texts = advice_host_buffer.speaks_of_it([*map(str, self.trace.names), error])
            more = advice.without_steps(advice_evidence.Evidence(texts=texts))
            known = set(out["rule"])
            rows = pd.DataFrame([one for one in more if one.rule not in known], columns=out.columns)
            out = (
                pd.concat([out.head(advice.MOST - len(rows)), rows], ignore_index=True)
                if len(rows)
                else out
            )
        return out

    @property
    def loaders(self) -> tuple[LoaderUse, ...]:
        """What the program asked for its batches, as the recording states it."""
        if self.capture is None:
            return ()
        from nbprof.core import loader_uses

        return loader_uses.unpacked(self.capture.loaders)

    @property
    def _input_times(self) -> advice_cores.Times:
        """Of an average step."""
        from nbprof.analysis.advice import cores as advice_cores

        step, shares = (
            float(self.answer["step_time_ms"] or 0.0),
            self.steps_summary.set_index("category")["percent"],
        )
        wait = float(shares.get("input", 0.0) or 0.0) * step / 100
        keras = self.capture is not None and self.capture.of_keras
        return advice_cores.Times(
            step, 0.0 if np.isnan(wait) else wait, bool(self.answer["devices"]), keras
        )

    def _with_host(self, out: pd.DataFrame) -> pd.DataFrame:
        """The findings with those on the host's time; what Python did takes the place of the advice
        to record it.
        """
        parts = (
            self._breakdown_as_recorded.host_parts if self.parts is None and len(self.steps) else {}
        )
        if not parts or self.capture is None:
            return out
        found = self._breakdown_as_recorded
        products = cpu.products(self.activity, found.counted)
        bf16 = self.capture.machine.get("bf16", "")
        host = advice_evidence.HostUse(
            parts, self.unexplained, found.cpu, found.contention, products, bf16
        )
        frames = (
            self.answer,
            self.steps_summary,
            self.tf_data.pipelines,
            self.tf_data.nodes,
            self.kernels_in_steps,
        )
        figures = torch_runtime.Runtime() if self.activity.framework is PYTORCH else None
        programs = advice_evidence.programs_per_step(self.activity, self.steps)
        rhythm = periodic.find(self.steps, self.trace)
        evidence = advice_evidence.Evidence(host=host, programs_per_step=programs, periodic=rhythm)
        more = advice.advice(*frames, figures, evidence)
        more = more[more["rule"].isin(advice_host.NAMES)]
        if out["rule"].isin(advice_host.CAUSES_OF_TINY).any():
            more = more[~more["rule"].isin(advice_host.TINY)]
        if self.unexplained is not None:
            out = out[out["rule"] != "other"]
        both = pd.concat([part for part in (out, more) if len(part)] or [out], ignore_index=True)
        return both.sort_values(
            "gain_ms_per_step", ascending=False, kind="stable", ignore_index=True
        ).head(advice.MOST)

    def _with_versions(self, out: pd.DataFrame) -> pd.DataFrame:
        """The findings with what is known to be slow in the recorded versions of the libraries."""
        stated = self.answer["environment"]["versions"]
        if self.activity.framework is not PYTORCH or not advice_versions.may_be_slow(stated):
            return out
        frames = (
            self.overview_of_files,
            self.steps_summary,
            self.tf_data.pipelines,
            self.tf_data.nodes,
            self.kernels_in_steps,
        )
        found = advice.advice(
            *frames, torch_runtime.Runtime(), advice_evidence.Evidence(versions=stated)
        )
        both = pd.concat([out, found[found["rule"] == advice_versions.NAME]], ignore_index=True)
        return both.sort_values(
            "gain_ms_per_step", ascending=False, kind="stable", ignore_index=True
        ).head(advice.MOST)

    @cached
    def hosts_missing(self) -> pd.DataFrame:
        """Hosts and files of hosts that should be in the run and are not, or in part: `host file
        reason`.

        Not kept: what lies beside the files is no part of them.
        """
        away = (
            [*self.files.copies, *self._unread] if self.files is not None and self._of_hosts else []
        )
        return absent.rows(
            self.hosts,
            self._stems,
            away,
            self.hosts_in_part,
            self.stated["environment"].get("processes"),
        )

    @property
    def hosts_in_part(self) -> list[tuple[str, Missing]]:
        """The hosts whose files are cut off or damaged, and what was read of them."""
        cut, stems = self.as_read.receipt.cut, self._stems
        return [
            (self.hosts[one.host] if stems else stem(one.file), Missing(one.file, one.what))
            for one in cut
            if self._of_hosts
        ]

    @property
    def _unread(self) -> list[Missing]:
        """The files of the run that cannot be read."""
        return list(self.files.unread) if self.files is not None else []

    @property
    def _of_hosts(self) -> bool:
        """Whether each file is one of a host."""
        return self.files is not None and by_name(self.files.format).apart

    @property
    def _stems(self) -> list[str]:
        """What the file of each host is called; nothing where hosts have no files of their own."""
        files = self.files
        if files is None or not self._of_hosts or len(files.files) < len(self.hosts):
            return []
        return [stem(files.files[self._file_of(number)].name) for number in range(len(self.hosts))]

    @persisted
    def missing(self) -> dict[str, str]:
        """Why a view is empty, by view."""
        missing = dict(self.activity.missing)
        if not len(self.steps):
            missing.setdefault(
                "steps",
                "This profile has step markers, but no step was recorded completely, so step time"
                " is unknown.",
            )
        return recorded.missing(missing, self.capture) if self.capture is not None else missing

    @cached
    def receipt(self) -> Receipt:
        """What was read, what was skipped and what looks wrong."""
        receipt = self.as_read.receipt
        # What profilers write about GPUs into their files names a function of a library; the remedy
        # is known.
        for remedy in remedies.named(
            [line.text for line in receipt.notes if line.level == "warning"]
        ):
            receipt.warn(remedy)
        if self.capture is not None:
            for note in self.capture.notes:
                receipt.info(note)
            for warning in self.capture.warnings:
                receipt.warn(warning)
            if about := warmup.about_warmup(self.steps, self.capture.warmup, self.activity.unit):
                receipt.info(about)
            if self.capture.cell_failed:
                error = self.capture.error
                receipt.warn(
                    f"The {error}" if error.startswith("cell ") else f"The cell failed: {error}"
                )
        if crowd := warmup.about_crowded(self.steps, self.activity.unit):
            receipt.info(f"Averages exclude {crowd}.")
        for line in self._notes:
            (receipt.warn if line.level == "warning" else receipt.info)(line.text)
        for text in dict.fromkeys(self.missing.values()):
            receipt.info(text)
        for text in self.allocator.notes:
            receipt.info(text)
        if self._given_peaks:
            told = ", ".join(f"{name} {value:.4g}" for name, value in self._given_peaks.items())
            receipt.info(
                f"Device peaks given by the user, in operations and bytes per second: {told}."
            )
        if count := self.stated["programs"]:
            what = (
                "1 compiled XLA program is"
                if count == 1
                else f"{count:,} compiled XLA programs are"
            )
            receipt.info(
                f"{what} in the profile: framework op names and buffer assignments come from there."
            )
        return receipt

    @of_hosts(combine.told)
    def _told(self) -> combine.Told:
        about = [*self.activity.notes, *self.activity.program_notes]
        total, tangled = len(self._host_ops[0]), int(self._host_ops[0]["overlaps"].sum())
        of_memory = guarded(
            "What the receipt says of memory",
            lambda: memory.notes(self.memory_timeline),
            lambda _: [],
        )
        return about, tangled, total, of_memory, steps.edges(self.activity, self.steps)

    @property
    def between_hosts(self) -> list[Note]:
        """What stands in the way of comparing hosts with each other; the figures of each are right
        all the same.
        """
        processes = self.stated["environment"].get("processes")
        return [
            *collectives.completeness(self.hosts, processes),
            *self._sound_hosts,
            *self._pods[1],
            *self.device_time.notes,
        ]

    @property
    def _sound_hosts(self) -> list[Note]:
        return sanity.hosts(self._recorded, set(self.steps["host"]))

    @of_hosts(combine.recorded)
    def _recorded(self) -> pd.DataFrame:
        return sanity.recorded(self.trace)

    @persisted
    def _notes(self) -> list[Note]:
        old = backlog.notes(self.backlog, len(self.hosts), len(self.steps))
        about, tangled, total, of_memory, cut = self._told
        processes = self.stated["environment"].get("processes")
        notes = [*old, *collectives.completeness(self.hosts, processes), *self._sound_hosts, *about]
        if tangled:
            text = (
                f"{tangled:,} of {total:,} host ops partly overlap another op on their thread: that"
                " time is attributed to the later one."
            )
            notes.append(Note("warning" if tangled > total // 100 else "info", text))
        notes += guarded(
            "What the receipt says of comparing hosts", lambda: self._pods[1], lambda _: []
        )
        notes += guarded(
            "What the receipt says of ranks", lambda: self.device_time.notes, lambda _: []
        )
        notes += of_memory
        if cut:
            # Cut off by it, or of a framework that was not recorded.
            what, them = ("step", "it") if cut == 1 else ("steps", "them")
            text = (
                f"Not shown: {cut:,} marked {what} at the start or end of the recording, as no"
                f" compute was recorded in {them}."
            )
            notes.append(Note("info", text))
        return notes


GROUPS: dict[str, type[Group]] = {
    "tf_data": TfDataFrames,
    "programs": ProgramFrames,
    "device_time": DeviceTimeFrames,
    "pod_frames": PodFrames,
    "allocator": AllocatorFrames,
    "ascend": AscendFrames,
}
"""The groups of frames, by the names that a `Run` has them under."""
