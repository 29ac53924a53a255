"""Chrome traces that are not PyTorch's: those that XLA exported for TensorFlow and JAX, and any other."""

from __future__ import annotations

import re

from nbprof import activity as act
from nbprof.trace import Trace

_PLANE = re.compile(r"/(?:device:(?:GPU|TPU|CUSTOM)|host:)")


def is_xla(trace: Trace) -> bool:
    """Whether TensorFlow or JAX wrote the trace: its processes are the planes of an XSpace."""
    return any(_PLANE.match(p.name) for p in trace.planes)


def interpret(trace: Trace) -> act.Activity:
    """The activity of a trace that XLA exported."""
    return plain(trace)


def plain(trace: Trace) -> act.Activity:
    """Lanes and events alone; every view that needs more says why it is empty."""
    lanes = trace.lanes
    lanes["kind"] = "host"
    lanes["device"] = -1
    out = act.Activity(hosts=trace.hosts)
    out.missing = {}
    return out
