"""Chrome traces of other producers: XLA's exports for TensorFlow and JAX, and any other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nbprof.activity import activity as act
from nbprof.core.receipt import info
from nbprof.core.trace import INT, TEXT, UINT, ArgColumn, Events, Trace
from nbprof.dialects.xplane import xplane

_PLANE = re.compile(r"/(?:device:(?:GPU|TPU|CUSTOM)|host:)")
_WHOLE = re.compile(r"-?\d{1,20}\Z")
# Args that are texts, whatever they look like.
_TEXTS = frozenset((
    "cat", "ph", "name", "long_name", "step_name", "tf_op", "hlo_op", "hlo_module",
    "kernel_details", "shape", "equation", "source", "level 0",
))  # fmt: skip

LEFT_OUT = (
    "This is the trace.json.gz that XLA exports: it lacks allocator events, programs, and the links"
    " between threads. The *.xplane.pb written next to it has them all."
)


def is_xla(trace: Trace) -> bool:
    """True if TensorFlow or JAX wrote the trace: its processes are the planes of an XSpace."""
    return any(_PLANE.match(p.name) for p in trace.planes)


class Typed(Mapping[str, ArgColumn]):
    """The args of a trace whose values were all written as texts, with their original types.

    Parameters
    ----------
    args : Mapping of str to ArgColumn
    strings : sequence of str
    """

    def __init__(self, args: Mapping[str, ArgColumn], strings: Sequence[str]) -> None:
        self._args = args
        self._strings = strings
        self._typed: dict[str, ArgColumn] = {}

    def __getitem__(self, name: str) -> ArgColumn:
        if name == "_r":
            return self._roots()
        if name not in self._typed:
            column = self._args[name]
            self._typed[name] = column if name in _TEXTS else self._numbers(column)
        return self._typed[name]

    def _roots(self) -> ArgColumn:
        """The export drops what marks the root of a step; whatever states a step number is one."""
        event = self._args["step_num"].event
        return ArgColumn(event, INT, np.ones(len(event), np.int8))

    def _numbers(self, column: ArgColumn) -> ArgColumn:
        kinds, values = column.kinds.copy(), column.values.copy()
        texts = np.flatnonzero(kinds == TEXT)
        codes, inverse = np.unique(values[texts], return_inverse=True)
        kind, value = np.full(len(codes), TEXT, np.uint8), codes.copy()
        for i, code in enumerate(codes.tolist()):
            text = self._strings[code]
            if _WHOLE.match(text):
                number = int(text)
                if -(1 << 63) <= number < 1 << 63:
                    kind[i], value[i] = INT, number
                elif 0 <= number < 1 << 64:
                    kind[i], value[i] = UINT, number - (1 << 64)
        kinds[texts], values[texts] = kind[inverse.reshape(-1)], value[inverse.reshape(-1)]
        return ArgColumn(column.event, kinds, values)

    def __iter__(self) -> Iterator[str]:
        yield from self._args
        if "_r" in self and "_r" not in self._args:
            yield "_r"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._args or (name == "_r" and "step_num" in self._args)


def _with_full_names(trace: Trace) -> None:
    """Names the events by `long_name`; the short name, which the export has, is their display."""
    column = trace.args.get("long_name")
    if column is None:
        return
    event, text = column.of(TEXT)
    short = trace.events.name[event].astype(np.int64)
    both, pair = np.unique(short * len(trace.strings) + text, return_inverse=True)
    name = trace.events.name.copy()
    name[event] = len(trace.names) + pair.reshape(-1)
    full = np.array([trace.strings[code] for code in (both % len(trace.strings)).tolist()], object)
    trace.display = np.concatenate([trace.display, trace.display[both // len(trace.strings)]])
    trace.names = np.concatenate([trace.names, full])
    trace.events = Events(trace.events.lane, name, trace.events.start, trace.events.duration)


def _with_launching_ops(trace: Trace) -> None:
    """Adds `level 0`, the op of a kernel: exports lack it, but have its annotation's beginning."""
    column = trace.args.get("annotation")
    if column is None or "level 0" in trace.args:
        return
    event, text = column.of(TEXT)
    codes, index = np.unique(text, return_inverse=True)
    # A description may follow: `op#edge_name=copy#`.
    ops = [trace.strings[code].partition("#")[0] for code in codes.tolist()]
    has_op = np.array([op != "" for op in ops], np.bool_)[index.reshape(-1)]
    value = len(trace.strings) + index.reshape(-1)[has_op]
    trace.strings = [*trace.strings, *ops]
    trace.args = {**trace.args, "level 0": ArgColumn(event[has_op], TEXT, value)}


def interpret(trace: Trace) -> act.Activity:
    """The activity of a trace that XLA exported."""
    _with_full_names(trace)
    _with_launching_ops(trace)
    trace.args = Typed(trace.args, trace.strings)
    activity = xplane.interpret(trace)
    make_notes = activity.maker("notes")
    activity.later("notes", lambda: [info("xla_export", LEFT_OUT), *make_notes()])
    return activity


def plain(trace: Trace) -> act.Activity:
    """Only lanes and events; every view that needs more says why it is empty."""
    lanes = trace.lanes
    lanes["kind"] = "host"
    lanes["device"] = -1
    lanes["lane"] = np.arange(len(lanes))
    activity = act.Activity(hosts=trace.hosts)
    activity.traits = {act.PLAIN}
    if not len(trace.events) and not len(trace.counters):
        activity.traits.add(act.EMPTY)
        activity.missing = {
            "steps": "This trace has no events, so it has no steps.",
            "ops": "This trace has no events, so it has no ops.",
            "kernels": "This trace has no events, so it has no GPU kernels.",
            "memory": "This trace has no events, so it has no allocator events.",
            "input": "This trace has no events, so it has no input work.",
        }
        return activity
    subject = "This is a plain trace, not written by a framework that nbprof knows"
    activity.missing = {
        "steps": f"{subject}, so it has no steps. Its events are in the trace view.",
        "ops": f"{subject}, so none of its events is known to be an op.",
        "kernels": f"{subject}, so none of its events is known to be a GPU kernel.",
        "memory": f"{subject}, so it has no allocator events.",
        "input": f"{subject}, so none of its events is known to be input work.",
    }
    return activity
