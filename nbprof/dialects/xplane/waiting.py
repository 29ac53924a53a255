"""Calls in which a JAX program waits for devices that run nothing.

They are in a recording of Python calls only. While another thread of the step works (a callback,
say), the step waits for that, not for a device.
"""

from __future__ import annotations

import re

import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.core.intervals import Intervals
from nbprof.dialects.lookups import names_that
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.work_spans import outside

_WAIT = "block_until_ready"
# "$api.py:3154 block_until_ready" of Python, "ArrayImpl.block_until_ready" of C++.
_WAITS = re.compile(rf"(?:^|[ .]){_WAIT}\Z")
LATENCY_PS = 1_000_000_000
"""1 ms: the time that a host may take to notice that a device is done. It counts as the host's."""


def waiting(placed: Placed, work: Work) -> Work:
    """Work in which calls are `HOST_WAIT_DEVICE` while nothing else works for `LATENCY_PS`."""
    trace = placed.trace
    waits = names_that(_waits, trace.names)
    if not waits.any():
        return work
    on_host = work.cls == act.HOST_COMPUTE
    busy = on_host | (work.device >= 0)
    waited = waits[trace.events.name[work.event]] & on_host
    lane = trace.events.lane[work.event]
    parts = [work.take(~waited)]
    for thread in pd.unique(lane[waited]).tolist():
        calls = work.take(waited & (lane == thread))
        other_work = work.take(busy & (lane != thread) & (work.host == calls.host[0]))
        # Work of no length keeps nothing busy: it must not split a wait into parts below the
        # latency.
        idle = outside(Intervals.union(other_work.start, other_work.end), calls)
        idle = idle.take(idle.end - idle.start > LATENCY_PS)
        parts += [calls, idle.with_(cls=act.HOST_WAIT_DEVICE)]
    return Work.concat(parts)


def _waits(name: str) -> bool:
    # Few names end like this, and a search takes ten times as long as a look at the end.
    return name.endswith(_WAIT) and bool(_WAITS.search(name))
