"""Turns the Trace of a JSON file into the activity tables, by the dialect of its producer.

Traces that XLA exported are handed to the dialect of XSpace files; of traces of an unknown producer
the lanes and events are shown, and every view that needs more says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.activity import activity as act
from nbprof.core.trace import Trace
from nbprof.dialects.chrome import xla
from nbprof.dialects.gpu.captures import Capture
from nbprof.dialects.kineto import kineto
from nbprof.dialects.msprof import lanes as msprof_lanes
from nbprof.dialects.msprof import msprof
from nbprof.dialects.python import python
from nbprof.dialects.rocprof import perfetto as rocprof_perfetto
from nbprof.dialects.rocprof import rocprof
from nbprof.formats.chrome.graph_annotations import Annotations
from nbprof.formats.chrome.inductor import Program


def interpret(
    trace: Trace,
    graph_captures: Sequence[Capture] = (),
    programs: Sequence[Program] = (),
    annotations: Annotations | None = None,
) -> act.Activity:
    """The activity of one profile; fills the kinds of `trace.lanes`.

    Each table is computed when it is first asked for.

    Parameters
    ----------
    trace : Trace
    graph_captures, programs, annotations
        What other files say of a trace of PyTorch: see `nbprof.dialects.kineto.kineto.interpret`.
    """
    if xla.is_xla(trace):
        return xla.interpret(trace)
    if python.is_python(trace):
        return python.interpret(trace)
    if msprof_lanes.is_ascend(trace):
        return msprof.interpret(trace)
    if rocprof_perfetto.is_rocprof(trace):
        return rocprof.interpret(trace)
    of_torch = kineto.interpret(trace, graph_captures, programs, annotations)
    return xla.plain(trace) if of_torch is None else of_torch


def graph_captures(trace: Trace, programs: Sequence[Program] = ()) -> list[Capture]:
    """The captures of graphs in a trace of PyTorch, for `interpret`; empty for other producers."""
    if xla.is_xla(trace) or msprof_lanes.is_ascend(trace):
        return []
    return kineto.graph_captures(trace, programs)
