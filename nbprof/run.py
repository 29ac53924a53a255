"""Which frames does this profile have? A `Run` computes each when first asked, and keeps it."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pandas as pd

from nbprof import cache
from nbprof.activity import Activity
from nbprof.analysis import (
    advice,
    device_use,
    hlo,
    input_pipeline,
    kernels,
    longest_calls,
    memory,
    memory_alive,
    memory_modules,
    op_profile,
    ops,
    overview,
    pods,
    roofline,
    steps,
    tf_data,
    tf_data_advice,
    torch_runtime,
    tpu_cores,
    xprof_ops,
    xprof_steps,
)
from nbprof.analysis.memory_modules import Named
from nbprof.capture import trouble
from nbprof.formats.pieces import RunFiles
from nbprof.source import Dialect, RunSource, dialect, facts, reader
from nbprof.trace import Note, Receipt, Trace

if TYPE_CHECKING:
    from nbprof.cache.shelf import Shelf
    from nbprof.capture.session import CaptureInfo
    from nbprof.timeline.serve import Timeline

T = TypeVar("T")


class _Cached(Generic[T]):
    """A frame that is computed once, also when two threads ask for it at a time."""

    def __init__(self, compute: Callable[[Run], T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, run: Run, owner: type[Run]) -> T:
        with run._lock:
            if self.name not in run._cache:
                with run._timed():
                    run._cache[self.name] = self._make(run)
            value: T = run._cache[self.name]
            return value

    def _make(self, run: Run) -> T:
        return self.compute(run)


class _Kept(_Cached[T]):
    """A frame that follows from the files alone: when they are opened again, it is there."""

    def _make(self, run: Run) -> T:
        return run.kept(self.name, lambda: self.compute(run))


class Run:
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
    shelf : Shelf, optional
        What the cache has of it; no cache when left out.
    """

    def __init__(
        self, trace: Trace, interpret: Dialect, source: RunSource, capture: CaptureInfo | None = None, shelf: Shelf | None = None
    ) -> None:
        self._trace = trace
        self._interpret = interpret
        self.source = source
        self.capture = capture
        self._shelf = shelf
        self._cache: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._timing = False

    @classmethod
    def read(
        cls,
        files: RunFiles,
        capture: CaptureInfo | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        keep: bool = True,
        write: bool = True,
    ) -> Run:
        """Reads the files of one run, which the cache may keep if they stay where they are; without `write` it gives only what it has.

        Raises
        ------
        ReadError
            A file is damaged or is no XSpace profile.
        """
        began = time.perf_counter()
        warmup = capture.warmup if capture is not None else None
        # Averages depend on it, and averages are kept.
        shelf = cache.open_shelf(files, None if warmup is None else {"warmup": warmup}, keep=keep, write=write)
        trace = shelf.trace(lambda: reader(files)(shelf.pieces, progress))
        for note in files.notes:
            trace.receipt.info(note)
        for warning in files.warnings:
            trace.receipt.warn(warning)
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        if not keep:
            # They are gone when the profile is.
            source.local = ()
        return cls(trace, dialect(files.format), source, capture, shelf)

    def kept(self, name: str, compute: Callable[[], T]) -> T:
        """A value that follows from the files alone, out of the cache where that has it; `compute` makes it otherwise."""
        return compute() if self._shelf is None else self._shelf.value(name, compute)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the time of a computation, once where several are nested, to how long the analysis took."""
        if self._timing or self.source.analysed_s is None:
            yield
            return
        self._timing, began = True, time.perf_counter()
        try:
            yield
        finally:
            self._timing = False
            self.source.analysed_s += time.perf_counter() - began

    @_Cached
    def activity(self) -> Activity:
        """What the dialect makes of the trace."""
        return self._interpret(self._trace)

    @property
    def trace(self) -> Trace:
        """Every event, on lanes that the dialect has named."""
        _ = self.activity
        return self._trace

    @_Kept
    def hosts(self) -> list[str]:
        """Machines that recorded."""
        return list(self.trace.hosts)

    @_Cached
    def timeline(self) -> Timeline:
        """What is drawn of the events in a window of time, and what is asked about them. It lives as long as the run."""
        from nbprof.timeline.serve import Timeline

        # A reference back would keep the columns of a run that nobody has any more until the garbage collector comes.
        return Timeline(cast(Run, weakref.proxy(self)))

    @_Cached
    def receipt(self) -> Receipt:
        """What was read, skipped or looks wrong."""
        receipt = self._trace.receipt
        # What profilers write about GPUs into their files names a function of a library; the remedy is known.
        for remedy in trouble.named([line.text for line in receipt.notes if line.level == "warning"]):
            receipt.warn(remedy)
        if self.capture is not None:
            for note in self.capture.notes:
                receipt.info(note)
            for warning in self.capture.warnings:
                receipt.warn(warning)
            if about := steps.about_warmup(self.steps, self.capture.warmup):
                receipt.info(about)
            if self.capture.cell_failed:
                receipt.warn(f"The cell failed: {self.capture.error}")
        for line in self._notes:
            (receipt.warn if line.level == "warning" else receipt.info)(line.text)
        for text in self.missing.values():
            receipt.info(text)
        if self._trace.modules:
            count = len(self._trace.modules)
            what = "1 compiled XLA program is" if count == 1 else f"{count:,} compiled XLA programs are"
            receipt.info(f"{what} in the profile; the framework's names of the ops that ran on a GPU come from there.")
        return receipt

    @_Kept
    def devices(self) -> pd.DataFrame:
        """One row a device."""
        return self.activity.devices

    @_Kept
    def _steps_and_share(self) -> tuple[pd.DataFrame, float | None, pd.DataFrame, float | None]:
        frame = steps.frame(self.activity, warmup=self.capture.warmup if self.capture is not None else None)
        busy = overview.busy(self.activity, frame)
        out = frame, steps.share_of_16_bit(self.activity), steps.by_core(self.activity), busy
        # Nothing else is made of the classified spans, and they are as many as the events.
        self.activity.forget("work")
        return out

    @property
    def steps(self) -> pd.DataFrame:
        """Steps with their breakdown."""
        return self._steps_and_share[0]

    @_Kept
    def steps_summary(self) -> pd.DataFrame:
        """Mean, sd and range of each category."""
        return steps.summary(self.steps)

    @_Kept
    def xprof_steps(self) -> pd.DataFrame:
        """Steps by the rules of XProf 2.24."""
        out = xprof_steps.frame(self.activity)
        self.activity.forget("xprof_work")
        return out

    @_Kept
    def _pods(self) -> tuple[pd.DataFrame, list[Note]]:
        return pods.frame(self.steps, self._steps_and_share[2])

    @property
    def pods(self) -> pd.DataFrame:
        """Each step on each worker."""
        return self._pods[0]

    @_Kept
    def pods_summary(self) -> pd.DataFrame:
        """The slowest worker of each step, and the spread."""
        return pods.summary(self.pods)

    @_Kept
    def pods_cores(self) -> pd.DataFrame:
        """Each step on each core of a TPU, by what the core did."""
        return tpu_cores.frame(self.activity, self.steps)

    @_Cached
    def _host_ops(self) -> tuple[pd.DataFrame, int]:
        return ops.host_self_times(self.activity)

    @_Kept
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

    @_Kept
    def xprof_ops(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by op by the rules of XProf 2.24, without and with idle rows."""
        return xprof_ops.frames(self.activity)

    @_Kept
    def longest_calls(self) -> pd.DataFrame:
        """The longest run of each op: `where op at_ms for_ms`."""
        return longest_calls.ops(self.activity, self.trace.events.start)

    @_Kept
    def longest_launches(self) -> pd.DataFrame:
        """The longest launch of each row of `kernels`: `at_ms for_ms`, NaN where it is not known."""
        at, length = longest_calls.kernels(self.activity, self.kernels, self.trace.events.start)
        return pd.DataFrame({"at_ms": at, "for_ms": length})

    @_Kept
    def kernels(self) -> pd.DataFrame:
        """GPU kernels."""
        return kernels.frame(self.activity)

    @_Kept
    def xprof_kernels(self) -> pd.DataFrame:
        """GPU kernels by the rules of XProf 2.24."""
        return kernels.as_xprof(self.activity)

    @_Kept
    def memory_timeline(self) -> pd.DataFrame:
        """Allocator events in time order."""
        out = memory.timeline(self.activity)
        # Only this frame is made of it, and it is as large.
        self.activity.forget("allocations")
        return out

    @_Kept
    def memory_summary(self) -> pd.DataFrame:
        """One row an allocator."""
        return memory.summary(self.memory_timeline)

    @_Kept
    def memory_peak(self) -> pd.DataFrame:
        """Allocations alive at the peak of each allocator."""
        return memory_alive.at_peak(self.memory_timeline, self.memory_summary)

    @_Cached
    def compiled(self) -> dict[str, Named]:
        """The compiled programs of the file, by name."""
        return memory_modules.named(self._trace.modules, self._trace.hosts)

    @_Kept
    def memory_modules(self) -> pd.DataFrame:
        """The memory that each compiled program takes."""
        if not self.compiled:
            return memory_modules.frame({}, {})
        return memory_modules.frame(self.compiled, memory_modules.times(self.activity))

    @_Kept
    def hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs."""
        return hlo.frame(self.activity)

    @_Kept
    def xprof_hlo(self) -> pd.DataFrame:
        """Time by op of compiled programs by the rules of XProf 2.24."""
        return hlo.as_xprof(self.activity)

    @_Kept
    def hlo_missing(self) -> str:
        """Why no op of a compiled program is known; '' where one is."""
        return hlo.missing(self.activity)

    @_Kept
    def op_profile(self) -> pd.DataFrame:
        """The tree of programs, categories and ops."""
        return op_profile.frame(self.activity)

    @_Kept
    def roofline(self) -> tuple[pd.DataFrame, dict[str, float | str]]:
        """Ops under the roof of the device, and all of them as one."""
        return roofline.frame(self.activity, roofline.peaks(self.activity))

    @_Kept
    def input_ops(self) -> pd.DataFrame:
        """Input ops by self time."""
        return input_pipeline.ops(self.activity, self._host_ops[0])

    @_Kept
    def input_categories(self) -> pd.DataFrame:
        """The five kinds of input work."""
        return input_pipeline.categories(self.input_ops, self.activity.framework)

    @_Kept
    def input_summary(self) -> dict[str, Any]:
        """How much of a step is input, of which kinds, and what to do next."""
        return input_pipeline.summary(self.activity, self.steps, self.input_ops, self._host_ops[0])

    @_Kept
    def _tf_data(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        return tf_data.frames(self.activity, tf_data.calls(self.activity))

    @_Cached
    def _tf_data_calls(self) -> tf_data.Calls:
        return tf_data.calls(self.activity)

    @property
    def tf_data_pipelines(self) -> pd.DataFrame:
        """tf.data pipelines, slowest first."""
        return self._tf_data[0]

    @property
    def tf_data_nodes(self) -> pd.DataFrame:
        """Iterators of the pipelines."""
        return self._tf_data[1]

    @property
    def tf_data_calls(self) -> pd.DataFrame:
        """Calls of the pipelines, the longest of each first."""
        return self._tf_data[2]

    @property
    def tf_data_slowest(self) -> pd.DataFrame:
        """Iterators of the slowest calls of each pipeline, with the rank of the call."""
        return self._tf_data[3]

    def tf_data_call(self, host: str, pipeline: str, rank: int) -> pd.DataFrame:
        """Iterators of one call, by its rank; empty where there is no such call."""
        if rank < tf_data.SLOWEST:
            kept = self.tf_data_slowest
            mine = (kept["host"] == host) & (kept["pipeline"] == pipeline) & (kept["rank"] == rank)
            return kept[mine].drop(columns=["rank"]).reset_index(drop=True)
        listed = self.tf_data_calls
        at = listed.index[(listed["host"] == host) & (listed["pipeline"] == pipeline) & (listed["rank"] == rank)]
        if not len(at):
            return self.tf_data_nodes.head(0)
        return tf_data.one_call(self.activity, self._tf_data_calls, int(at[0]))

    @_Kept
    def tf_data_summary(self) -> dict[str, Any]:
        """Whether the slowest host pipeline limits the program."""
        missing = self.activity.missing.get("input", "")
        if not missing and self.activity.framework == "PyTorch":
            source = "a DataLoader of PyTorch or an iterator of Python"
            missing = f"The input comes through {source}, not through tf.data: see the input pipeline."
        return tf_data_advice.summary(self.tf_data_pipelines, missing, self._overview["input_percent"])

    @_Kept
    def _overview(self) -> dict[str, Any]:
        steps, half, _, busy = self._steps_and_share
        out = overview.overview(
            self.activity,
            steps,
            half,
            busy,
            self.steps_summary,
            self.ops,
            self.kernels,
            self.memory_summary,
            self.receipt.dropped,
            tf_data=bool(self.input_ops["category"].isin(input_pipeline.READING).any()) and self.activity.framework != "PyTorch",
        )
        return out | device_use.use(self.activity, self.ops_with_idle) | tpu_cores.shares(self.pods_cores)

    @_Cached
    def overview(self) -> dict[str, Any]:
        """The answer: what bounds the step, and the figures that prove it."""
        out = dict(self._overview)
        if self.capture is not None and self.capture.framework:
            out["framework"] = self.capture.framework
            # "TensorFlow 2.21.0, Keras 3.15.1"
            stated = {name: version for name, _, version in (part.rpartition(" ") for part in self.capture.framework.split(", ")) if name}
            known = out["environment"]
            out["environment"] = {**known, "framework": self.capture.framework, "versions": {**stated, **known["versions"]}}
        warnings = sum(n.level == "warning" for n in self.receipt.lines)
        out["run_facts"] = facts(self.source, self.capture, out, self.devices, self.hosts, warnings)
        return out

    @_Kept
    def advice(self) -> pd.DataFrame:
        """Findings with evidence and fix, largest gain first."""
        figures = torch_runtime.runtime(self.activity, self.steps) if self.activity.framework == "PyTorch" else None
        return advice.advice(self._overview, self.steps_summary, self.tf_data_pipelines, self.tf_data_nodes, self.kernels, figures)

    @_Kept
    def _notes(self) -> list[Note]:
        notes = [*self.activity.notes, *self.activity.program_notes]
        total, tangled = len(self._host_ops[0]), int(self._host_ops[0]["overlaps"].sum())
        if tangled:
            text = f"{tangled:,} of {total:,} host ops overlap another op of their thread partly: that time is the later one's."
            notes.append(Note("warning" if tangled > total // 100 else "info", text))
        notes += self._pods[1]
        notes += memory.notes(self.memory_timeline)
        if cut := steps.edges(self.activity, self.steps):
            what = "marked step has" if cut == 1 else "marked steps have"
            notes.append(
                Note("info", f"{cut:,} {what} no compute, at the begin or the end of the recording: cut off by it, and not shown.")
            )
        return notes

    @_Kept
    def missing(self) -> dict[str, str]:
        """Why a view is empty, by view."""
        missing = dict(self.activity.missing)
        if not len(self.steps):
            missing.setdefault("steps", "Step markers are in this profile, but no step that was recorded whole, so step time is unknown.")
        return missing
