"""What an allocator snapshot that stands alone says of the run: nothing but its memory."""

from __future__ import annotations

from nbprof.activity.activity import Activity
from nbprof.core.trace import Trace

_ONLY = "This is a snapshot of PyTorch's allocator: it has the memory of the program, and no trace of what ran."


def interpret(trace: Trace) -> Activity:
    """The activity of a run of which only the memory is known."""
    out = Activity(list(trace.hosts))
    out.framework = "PyTorch"
    out.has_device = True
    out.xprof = False
    out.has_host_ops = False
    out.missing = dict.fromkeys(("steps", "ops", "kernels", "input", "memory"), _ONLY)
    out.notes = []
    return out
