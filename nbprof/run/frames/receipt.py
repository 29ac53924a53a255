"""The receipt: what was read, what was skipped, and what looks wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbprof.analysis.device_time import collectives
from nbprof.analysis.memory import memory
from nbprof.analysis.steps import backlog, steps, warmup
from nbprof.core import remedies
from nbprof.core.codec.records import record
from nbprof.core.guard import guarded
from nbprof.core.receipt import CELL_FAILED, Note, Receipt
from nbprof.dialects import sanity
from nbprof.run import notes
from nbprof.run.combine import WithHostNames, folded
from nbprof.run.frame import Hosts, cached, frame
from nbprof.run.frames.advice import AdviceFrames
from nbprof.run.frames.allocator import AllocatorFrames

if TYPE_CHECKING:
    from nbprof.sources.recording import CaptureInfo


@record
@dataclass(frozen=True)
class HostNotes(WithHostNames):
    """The part of the receipt that some hosts contribute.

    Attributes
    ----------
    activity : list of Note
        Notes of the dialect.
    overlapping_ops, host_ops : int
        Host ops that partly overlap another one on their thread, and all.
    memory : list of Note
        Notes on memory.
    cut_steps : int
        Marked steps that were cut off or in which no compute was recorded.
    """

    activity: list[Note]
    overlapping_ops: int
    host_ops: int
    memory: list[Note]
    cut_steps: int


def _add_notes(values: list[HostNotes], hosts: Hosts) -> HostNotes:
    return HostNotes(
        activity=folded([value.activity for value in values], hosts.groups),
        overlapping_ops=sum(value.overlapping_ops for value in values),
        host_ops=sum(value.host_ops for value in values),
        memory=folded([value.memory for value in values], hosts.groups),
        cut_steps=sum(value.cut_steps for value in values),
    )


class ReceiptFrames(AdviceFrames):
    """The receipt, and the overview that counts its warnings."""

    @property
    def allocator(self) -> AllocatorFrames:
        """Snapshots of PyTorch's allocator."""
        return AllocatorFrames(self)

    @cached
    def overview(self) -> dict[str, Any]:
        """The answer: what bounds the step, and the figures that prove it."""
        warnings = sum(note.level == "warning" for note in self.receipt.lines)
        text = f"{warnings}, see the receipt below" if warnings else "none"
        answer = {**self.answer, "run_facts": [*self.answer["run_facts"], ("Warnings", text)]}
        if self.capture is not None and self.capture.tried.get("text"):
            answer["tried"] = str(self.capture.tried["text"])
        return answer

    @cached
    def receipt(self) -> Receipt:
        """Notes on what was read, what was skipped and what looks wrong."""
        receipt = self.as_read.receipt
        # Warnings that profilers of GPUs write into their files name a function of a library; its
        # remedy is known.
        warnings = [note.text for note in receipt.entries if note.level == "warning"]
        for remedy in remedies.logged_remedy(warnings):
            receipt.warn(remedy, key="gpu_not_recorded")
        if self.capture is not None:
            self._add_capture(receipt, self.capture)
        crowded = warmup.about_crowded(self.steps, self.activity.unit)
        if crowded:
            receipt.add(notes.crowded_steps(crowded))
        receipt.add(*self._notes)
        texts: set[str] = set()
        for view, text in self.missing.items():
            # Several views may lack the same thing.
            if text not in texts:
                receipt.info(text, key=f"no_{view}")
            texts.add(text)
        receipt.add(*self.allocator.notes)
        if self._given_peaks:
            receipt.add(notes.given_peaks(self._given_peaks))
        if self.stated["programs"]:
            receipt.add(notes.compiled_programs(self.stated["programs"]))
        return receipt

    def _add_capture(self, receipt: Receipt, capture: CaptureInfo) -> None:
        """Adds what is known of how the run was recorded."""
        receipt.add(*capture.notes, *capture.warnings)
        about_warmup = warmup.about_warmup(self.steps, capture.warmup, self.activity.unit)
        if about_warmup:
            receipt.info(about_warmup, key="warmup")
        if capture.cell_failed:
            # The error begins with "cell failed" or "script was interrupted" where that is known.
            names_unit = capture.error.startswith(("cell ", "script ", "process "))
            prefix = "The" if names_unit else "The cell failed:"
            receipt.warn(f"{prefix} {capture.error}", key=CELL_FAILED)

    @frame(combine=_add_notes)
    def _host_notes(self) -> HostNotes:
        host_ops = self._host_ops[0]
        return HostNotes(
            activity=[*self.activity.notes, *self.activity.program_notes],
            overlapping_ops=int(host_ops["overlaps"].sum()),
            host_ops=len(host_ops),
            memory=guarded(
                "The receipt's part on memory",
                lambda: memory.notes_on(self.memory_timeline),
                lambda _: [],
            ),
            cut_steps=steps.edges(self.activity, self.steps),
        )

    @property
    def between_hosts(self) -> list[Note]:
        """Notes on comparing hosts; they do not affect the figures of a single host."""
        return [
            *self._notes_on_completeness,
            *self._notes_on_intervals,
            *self._pods[1],
            *self.device_time.notes,
        ]

    @property
    def _notes_on_completeness(self) -> list[Note]:
        processes = self.stated["environment"].get("processes")
        return collectives.completeness(self.hosts, processes)

    @property
    def _notes_on_intervals(self) -> list[Note]:
        return sanity.hosts(self._recorded_intervals, set(self.steps["host"]))

    @frame
    def _notes(self) -> list[Note]:
        of_hosts = self._host_notes
        lines = [
            *backlog.notes_on(self.backlog, len(self.hosts), len(self.steps)),
            *self._notes_on_completeness,
            *self._notes_on_intervals,
            *of_hosts.activity,
        ]
        overlapping, host_ops = of_hosts.overlapping_ops, of_hosts.host_ops
        if overlapping:
            lines.append(notes.overlapping_host_ops(overlapping, host_ops))
        lines += guarded(
            "The receipt's part on comparing hosts", lambda: self._pods[1], lambda _: []
        )
        lines += guarded(
            "The receipt's part on ranks", lambda: self.device_time.notes, lambda _: []
        )
        lines += of_hosts.memory
        if of_hosts.cut_steps:
            lines.append(notes.steps_not_shown(of_hosts.cut_steps))
        return lines
