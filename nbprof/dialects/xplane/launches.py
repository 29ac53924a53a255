"""Which call on a host started what on a device, in an XSpace file, and what looks wrong about it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.core.trace import Note
from nbprof.dialects import sanity
from nbprof.dialects.xplane.grouping import match
from nbprof.dialects.xplane.placed import Placed


def launches(placed: Placed, out: act.Activity) -> pd.DataFrame:
    """Calls on a host that carry a correlation id, with the device event that has the same and the op around them."""
    trace, host = placed.trace, placed.host
    events = trace.events
    correlation = trace.arg("correlation_id", 0)
    calls = np.flatnonzero((correlation > 0) & placed.on_host)
    work = np.flatnonzero((correlation > 0) & placed.on_gpu)
    up, down = match(calls, [correlation[calls], host[calls].astype(np.int64)], work, [correlation[work], host[work].astype(np.int64)])
    found = np.zeros(len(events), np.bool_)
    found[up] = True
    lost = calls[~found[calls]]
    event = np.concatenate([up, lost])
    target = np.concatenate([down, np.full(len(lost), -1, np.int64)])
    order = np.lexsort((target, event))
    is_op = np.zeros(len(events) + 1, np.bool_)
    is_op[out.host_ops["event"].to_numpy(np.int64)] = True
    op = event.copy()
    # Outwards from each call to the first op around it.
    open_ = np.flatnonzero(~is_op[op])
    while len(open_):
        op[open_] = events.parent[op[open_]]
        open_ = open_[(op[open_] >= 0) & ~is_op[op[open_]]]
    return pd.DataFrame({"event": event[order], "host": host[event[order]], "target": target[order], "op": op[order]})


# Calls that wait, ask or allocate also carry a correlation id, but leave nothing on a device.
_STARTS_WORK = re.compile(r"(cu|cuda|hip|Mod|hipMod)\w*(Launch|Memcpy|Memset)", re.IGNORECASE)


def notes(placed: Placed, out: act.Activity) -> list[Note]:
    """What looks wrong: for the receipt."""
    trace = placed.trace
    found = sanity.hosts(trace)
    if out.has_device:
        starts = placed.named(*"CcHhMm")
        for code in np.flatnonzero(starts).tolist():
            starts[code] = bool(_STARTS_WORK.match(trace.names[code]))
        calls = out.launches
        found += sanity.lost_launches(calls, starts[trace.events.name[calls["event"].to_numpy(np.int64)]])
        work = np.flatnonzero((trace.arg("correlation_id", 0) > 0) & placed.on_gpu)
        launched = np.zeros(len(trace.events) + 1, np.bool_)
        launched[calls["target"].to_numpy(np.int64)] = True
        found += sanity.unlaunched(int((~launched[work]).sum()), len(work))
        found += sanity.overlaps(trace, ("device",), "device event")
    return found
