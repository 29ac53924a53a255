"""The activity of an allocator snapshot on its own: memory only."""

from __future__ import annotations

from nbprof.activity.activity import Activity
from nbprof.core.trace import Trace
from nbprof.frameworks.register import PYTORCH

_ONLY = "This is a snapshot of PyTorch's allocator: it has the program's memory, but no trace."


def interpret(trace: Trace) -> Activity:
    """The activity of a run of which only memory was recorded."""
    activity = Activity(list(trace.hosts))
    activity.framework = PYTORCH
    activity.has_device = True
    activity.xprof = False
    activity.has_host_ops = False
    activity.missing = dict.fromkeys(("steps", "ops", "kernels", "input", "memory"), _ONLY)
    activity.notes = []
    return activity
