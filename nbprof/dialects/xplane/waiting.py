"""Calls in which a JAX program waits for devices that run nothing.

They are in a recording of Python calls only. While another thread of the step works (a callback,
say), the step waits for that, not for a device.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.core.intervals import Intervals
from nbprof.dialects.xplane.placed import Placed

# "$api.py:3154 block_until_ready" of Python, "ArrayImpl.block_until_ready" of C++.
_WAITS = re.compile(r"(?:^|[ .])block_until_ready\Z")
LATENCY_PS = 1_000_000_000
"""1 ms. For so long a device may be done and the host not know yet; a loop that waits for each step
pays that as its host's time.
"""


def waiting(placed: Placed, work: pd.DataFrame) -> pd.DataFrame:
    """Work in which calls are `HOST_WAIT_DEVICE` while nothing else works for `LATENCY_PS`."""
    trace = placed.trace
    waits = np.array([bool(_WAITS.search(str(name))) for name in trace.names], np.bool_)
    if not waits.any():
        return work
    event, on_host = work["event"].to_numpy(np.int64), work["cls"].to_numpy() == act.HOST_COMPUTE
    on_device = work["device"].to_numpy() >= 0
    waited = waits[trace.events.name[event]] & on_host
    lane = trace.events.lane[event]
    parts = [work[~waited]]
    for thread, calls in work[waited].groupby(lane[waited], sort=False):
        other_work = work[
            (on_host | on_device) & (lane != thread) & (work["host"] == calls["host"].iloc[0])
        ]
        # Work of no length keeps nothing busy: it must not split a wait into parts below the
        # latency.
        idle = Intervals.of_rows(other_work).rows_outside(calls)
        idle = idle[idle["end"] - idle["start"] > LATENCY_PS]
        parts += [calls, idle.assign(cls=np.int16(act.HOST_WAIT_DEVICE))]
    return Work.of(*parts).frame()
