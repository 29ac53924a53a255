"""Which frames does this profile have? A `Run` computes each when first asked, and keeps it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from nbprof.activity.activity import ITERATIONS
from nbprof.analysis import overview
from nbprof.analysis.advice import advice
from nbprof.analysis.advice import evidence as advice_evidence
from nbprof.analysis.advice import host_buffer as advice_host_buffer
from nbprof.analysis.advice import programs as advice_programs
from nbprof.analysis.advice import tf_data as tf_data_advice
from nbprof.analysis.ascend import verdict as ascend_verdict
from nbprof.analysis.device_time import use as device_use
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.memory import memory
from nbprof.analysis.ops import torch_runtime
from nbprof.analysis.steps import pods, steps, tpu_cores, warmup, xprof_steps
from nbprof.core import remedies
from nbprof.core.files import RunFiles
from nbprof.core.trace import Note, Receipt
from nbprof.formats.torch_snapshot.beside import beside
from nbprof.run.cache.run_cache import open_shelf
from nbprof.run.lazy import Cached, Kept
from nbprof.run.parts_allocator import Allocator
from nbprof.run.parts_ascend import Ascend
from nbprof.run.parts_device_time import DeviceTime
from nbprof.run.parts_inputs import Inputs
from nbprof.run.parts_programs import Programs
from nbprof.run.parts_torch_ops import TorchOps
from nbprof.run.source import RunSource, dialect, facts, reader

if TYPE_CHECKING:
    from nbprof.sources.recording import CaptureInfo
    from nbprof.timeline.serve import Timeline


class Run(Programs, Inputs, DeviceTime, TorchOps, Allocator, Ascend):
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
    given_peaks : dict, optional
        Peaks of the devices, by the names of `given_peaks.KEYS`.
    """

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
    ) -> Run:
        """Reads the files of one run, which the cache may keep if they stay where they are; without `write` it gives only what it has.

        Peaks of the devices that are given, by the names of `given_peaks.KEYS`, count instead of those in the files; else those that were
        given when it was recorded.

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
        options = {"warmup": left_out, "peaks": given_peaks or None}
        shelf = open_shelf(files, {key: value for key, value in options.items() if value is not None}, keep=keep, write=write)
        trace = shelf.trace(lambda: reader(files)(shelf.pieces, progress))
        for note in files.notes:
            trace.receipt.info(note)
        for warning in files.warnings:
            trace.receipt.warn(warning)
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        if not keep:
            # They are gone when the profile is.
            source.local = ()
        out = cls(trace, dialect(files.format), source, capture, shelf, given_peaks)
        out.snapshot_pieces = beside(files)
        return out

    @Cached
    def timeline(self) -> Timeline:
        """What is drawn of the events in a window of time, and what is asked about them. It lives as long as the run."""
        from nbprof.timeline.serve import Timeline

        # A reference back would keep the columns of a run that nobody has any more until the garbage collector comes.
        return Timeline(cast(Run, weakref.proxy(self)))

    @Cached
    def receipt(self) -> Receipt:
        """What was read, skipped or looks wrong."""
        receipt = self._trace.receipt
        # What profilers write about GPUs into their files names a function of a library; the remedy is known.
        for remedy in remedies.named([line.text for line in receipt.notes if line.level == "warning"]):
            receipt.warn(remedy)
        if self.capture is not None:
            for note in self.capture.notes:
                receipt.info(note)
            for warning in self.capture.warnings:
                receipt.warn(warning)
            if about := warmup.about_warmup(self.steps, self.capture.warmup):
                receipt.info(about)
            if self.capture.cell_failed:
                receipt.warn(f"The cell failed: {self.capture.error}")
        for line in self._notes:
            (receipt.warn if line.level == "warning" else receipt.info)(line.text)
        for text in dict.fromkeys(self.missing.values()):
            receipt.info(text)
        for text in self.allocator_notes:
            receipt.info(text)
        if self._given_peaks:
            told = ", ".join(f"{name} {value:.4g}" for name, value in self._given_peaks.items())
            receipt.info(f"Peaks of the devices that were given, in operations and bytes a second: {told}.")
        if self._trace.modules:
            count = len(self._trace.modules)
            what = "1 compiled XLA program is" if count == 1 else f"{count:,} compiled XLA programs are"
            receipt.info(f"{what} in the profile: the framework's names of ops and the plans of memory come from there.")
        return receipt

    @Kept
    def xprof_steps(self) -> pd.DataFrame:
        """Steps by the rules of XProf 2.24."""
        out = xprof_steps.frame(self.activity)
        self.activity.forget("xprof_work")
        return out

    @Kept
    def _pods(self) -> tuple[pd.DataFrame, list[Note]]:
        return pods.frame(self.steps, self._steps_and_share[2])

    @property
    def pods(self) -> pd.DataFrame:
        """Each step on each worker."""
        return self._pods[0]

    @Kept
    def pods_summary(self) -> pd.DataFrame:
        """The slowest worker of each step, and the spread."""
        return pods.summary(self.pods)

    @Kept
    def pods_cores(self) -> pd.DataFrame:
        """Each step on each core of a TPU, by what the core did."""
        return tpu_cores.frame(self.activity, self.steps)

    @Kept
    def tf_data_summary(self) -> dict[str, Any]:
        """Whether the slowest host pipeline limits the program."""
        missing = self.activity.missing.get("input", "")
        if not missing and self.activity.framework == "PyTorch":
            source = "a DataLoader of PyTorch or an iterator of Python"
            missing = f"The input comes through {source}, not through tf.data: see the input pipeline."
        return tf_data_advice.summary(self.tf_data_pipelines, missing, self._overview["input_percent"])

    @Kept
    def _overview(self) -> dict[str, Any]:
        steps, half, _, busy = self._steps_and_share
        if half is not None and self.activity.framework == "JAX" and (self.activity.devices["kind"] == "GPU").any():
            # Names of kernels that XLA makes say nothing of the width of their numbers, its programs do.
            told = advice_programs.share_of_16_bit(self.activity)
            half = half if told is None else told
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
        if out["bound"] == "other" and ITERATIONS in self.activity.traits and self.ascend_verdict["text"]:
            out |= ascend_verdict.of_marks(out, self.ascend_verdict)
        return out | device_use.use(self.activity, self.ops_with_idle) | tpu_cores.shares(self.pods_cores)

    @Cached
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

    @Kept
    def _advice_of_files(self) -> pd.DataFrame:
        figures = torch_runtime.runtime(self.activity, self.steps) if self.activity.framework == "PyTorch" else None
        frames = self._overview, self.steps_summary, self.tf_data_pipelines, self.tf_data_nodes, self.kernels
        return advice.advice(*frames, figures, self._evidence())

    def _evidence(self) -> advice_evidence.Evidence:
        """What advice looks at beyond the frames of the views."""
        return advice_evidence.gather(
            self.activity,
            steps=self.steps,
            ops=self.ops,
            kernels=self.kernels,
            memory=self.memory_summary,
            modules=lambda: self.memory_modules,
            compiled=self.compiled,
            pods=self.pods,
            texts=advice_host_buffer.speaks_of_it(map(str, self.trace.names)),
            started=advice_host_buffer.started(self.trace),
            npu_rules=self.ascend_rules if (self.activity.devices["kind"] == "NPU").any() else None,
        )

    @Cached
    def advice(self) -> pd.DataFrame:
        """Findings with evidence and fix, largest gain first."""
        out = self._advice_of_files
        # How it was recorded is no part of the files.
        error = self.capture.error if self.capture is not None and self.capture.error else ""
        if advice_host_buffer.speaks_of_it([error]):
            texts = advice_host_buffer.speaks_of_it([*map(str, self.trace.names), error])
            more = advice.without_steps(advice_evidence.Evidence(texts=texts))
            known = set(out["rule"])
            rows = pd.DataFrame([one for one in more if one.rule not in known], columns=out.columns)
            out = pd.concat([out.head(advice.MOST - len(rows)), rows], ignore_index=True) if len(rows) else out
        return out

    @Kept
    def _notes(self) -> list[Note]:
        notes = [*self.activity.notes, *self.activity.program_notes]
        total, tangled = len(self._host_ops[0]), int(self._host_ops[0]["overlaps"].sum())
        if tangled:
            text = f"{tangled:,} of {total:,} host ops overlap another op of their thread partly: that time is the later one's."
            notes.append(Note("warning" if tangled > total // 100 else "info", text))
        notes += self._pods[1]
        notes += self.device_time_notes
        notes += memory.notes(self.memory_timeline)
        if cut := steps.edges(self.activity, self.steps):
            what = "marked step has" if cut == 1 else "marked steps have"
            notes.append(
                Note("info", f"{cut:,} {what} no compute, at the begin or the end of the recording: cut off by it, and not shown.")
            )
        return notes

    @Kept
    def missing(self) -> dict[str, str]:
        """Why a view is empty, by view."""
        missing = dict(self.activity.missing)
        if not len(self.steps):
            missing.setdefault("steps", "Step markers are in this profile, but no step that was recorded whole, so step time is unknown.")
        return missing
