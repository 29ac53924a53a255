"""Copies of the program's arrays into buffers of XLA's runtime for CPUs.

They run on the threads that run the ops. While ops run, a copy holds up no step.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.dialects.xplane import cpu_ops
from nbprof.dialects.xplane.placed import Flags, Placed
from nbprof.dialects.xplane.work_spans import outside

_COPY = "H2D Dispatch"


def named(placed: Placed) -> Flags:
    """bool[names]: names of events that are such copies."""
    return placed.named(_COPY)


def rows(placed: Placed) -> Int64s:
    """The events that are such copies."""
    return np.flatnonzero(named(placed)[placed.trace.events.name] & placed.on_host)


def waited(placed: Placed, work: Work) -> Work:
    """Work in which such copies keep only their time outside the runs of ops."""
    events = placed.trace.events
    copied = np.isin(work.event, rows(placed)) & (work.cls == act.HOST_TO_DEVICE)
    if not copied.any():
        return work
    ran = cpu_ops.run_rows(placed)
    parts = [work.take(~copied)]
    for host in pd.unique(work.host[copied]).tolist():
        ops = ran[placed.host[ran] == host]
        # Touching runs are merged, so that a copy is split only where it really waits.
        busy = Intervals.union(events.start[ops], events.end[ops])
        parts.append(outside(busy, work.take(copied & (work.host == host))))
    return Work.concat(parts)
