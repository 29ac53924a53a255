"""Turns the Trace of PyTorch's profiler (Kineto) of all versions into the activity tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nbprof.activity import activity as act
from nbprof.core.receipt import Note
from nbprof.core.trace import Trace
from nbprof.dialects import torchnames
from nbprof.dialects.gpu import absent, find_steps, graphs, ranges, receipt
from nbprof.dialects.gpu.captures import Capture
from nbprof.dialects.gpu.lanes import (
    ANNOTATION,
    CALL,
    COPY,
    FILL,
    KERNEL,
    MEMORY,
    OP,
    PYTHON,
    kinds,
    split,
)
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.origins import originated
from nbprof.dialects.gpu.recording import GpuRecording
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.kineto import autograd
from nbprof.dialects.lookups import names_that
from nbprof.formats.chrome.graph_annotations import Annotations
from nbprof.formats.chrome.inductor import Program
from nbprof.frameworks.register import PYTORCH

HOW = (
    "This profile has no steps, so step time is unknown: no steps are marked. With torch.profiler,"
    " call prof.step() at the end of each iteration; %%nbprof and nbprof.profile() detect optimizer"
    " steps themselves, and nbprof.steps(loader) marks the steps of any other loop."
)

ONLY_DEVICE = (
    "This profile has no steps, so step time is unknown: it has device calls or device work, but"
    " neither step markers nor ops, as if recorded without ProfilerActivity.CPU."
)

_OURS = (OP, ANNOTATION, PYTHON, CALL, KERNEL, COPY, FILL)
_OF_PROFILER = "Iteration Start: PyTorch Profiler"


def interpret(
    trace: Trace,
    graph_captures: Sequence[Capture] = (),
    programs: Sequence[Program] = (),
    annotations: Annotations | None = None,
) -> act.Activity | None:
    """The activity of one profile; None for a trace without PyTorch. Fills `trace.lanes`.

    Each table is made when it is first asked for.

    Parameters
    ----------
    trace : Trace
    graph_captures : sequence of Capture
        What was captured into graphs that this profile replays, out of other traces.
    programs : sequence of Program
        What inductor says of the graphs that it compiled.
    annotations : mapping
        What files beside it say of nodes of graphs, by rank and by node.
    """
    adapted = autograd.adapt(trace) if autograd.is_autograd(trace) else []
    kind = kinds(trace)
    seen = np.bincount(kind, minlength=16)
    # A recording in which nothing of PyTorch ran has nothing but the profiler's own marks.
    marked = names_that(lambda name: name.startswith(_OF_PROFILER), trace.names)
    if not seen[list(_OURS)].any() and not marked.any():
        return None
    activity = _Torch(trace, split(trace, kind), graph_captures, programs, annotations).activity()
    if adapted:
        make_notes = activity.maker("notes")
        activity.later("notes", lambda: [*adapted, *make_notes()])
    return activity


def graph_captures(trace: Trace, programs: Sequence[Program] = ()) -> list[Capture]:
    """The captures of graphs in a trace of PyTorch, for `interpret`."""
    kind = kinds(trace)
    if not (kind == CALL).any():
        return []
    links = Links(trace, split(trace, kind), originated)
    captures = graphs.captures(links)
    for capture in captures:
        capture.origins = originated(links, capture.calls, programs)
    return captures


class _Torch(GpuRecording):
    """A profile of PyTorch on its way into the tables."""

    framework = PYTORCH
    sets_ranges = "record_function"

    def find_steps(self) -> Steps:
        """The steps of each host by its best marks: PyTorch's, named ranges, or batches."""
        named = ranges.find(self.links, "ranges", ranges.named(self.trace.names))
        if self.iterations is not None:
            return named
        return find_steps.with_batches(self.links, named)

    def notes(self) -> list[Note]:
        """Lines for the receipt."""
        notes = receipt.notes(
            self.links, self.steps, self.hosts, self.tables.launches.frame(), self.origins
        )
        return [*absent.unseen_note(self.links, self.hosts), *notes]

    def missing(self) -> dict[str, str]:
        """A sentence for each kind of data that this profile lacks."""
        activity, links = self.tables, self.links
        missing: dict[str, str] = {}
        if not len(links.rows(KERNEL)):
            missing["kernels"] = absent.kernels(links, self.hosts)
        if not len(self.steps.host):
            missing["steps"] = HOW if absent.host_recorded(links) else ONLY_DEVICE
        if not (links.kind == MEMORY).any():
            missing["memory"] = absent.allocations(self.hosts)
        named = names_that(torchnames.is_input, self.trace.names)
        if not named[self.trace.events.name].any():
            if self.steps.iterations:
                missing["input"] = (
                    "This profile is of an inference engine: its batches come from a scheduler, not"
                    " from a DataLoader."
                )
            else:
                missing["input"] = absent.batches(links)
        if not activity.has_host_ops:
            missing["ops"] = absent.ops(links)
        return missing
