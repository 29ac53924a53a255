"""Work of the host and the devices in each step, and the class of each call."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.core.trace import Int64s
from nbprof.dialects import torchnames
from nbprof.dialects.gpu.lanes import ANNOTATION, COPY, OP, UNKNOWN
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps, spread
from nbprof.dialects.lookups import names_that


def work(links: Links, steps: Steps, device_class: Int64s) -> Work:
    """The `work` table: device work by class, and what the host did.

    Parameters
    ----------
    device_class : int64[w]
        Step class of each piece of device work.

    A call that stands still until the device has caught up is waiting, and one that copies to the
    host ends when the device got there: both are neither compute nor launching. Python frames are
    no ops; where only they run the step is in `other`.
    """
    events = links.trace.events
    host_rows, host_class = _host_classes(links)
    captures, begun, done = links.captures
    spanned = np.concatenate([links.work[~links.earlier], host_rows])
    between, idle_from, idle_to = links.graphs.gaps
    rows = np.concatenate([spanned, captures, between])
    # A graph that is captured is made ready to run, as a program that is compiled: the host's time
    # goes there whatever it does meanwhile.
    added = np.repeat([act.HOST_COMPILE, act.DEVICE_BETWEEN_NODES], [len(captures), len(between)])
    cls = np.concatenate([device_class[~links.earlier], host_class, added])
    begun = np.concatenate([events.start[spanned], begun, idle_from])
    done = np.concatenate([events.end[spanned], done, idle_to])
    span, group, start, end = spread(steps, links.host[rows], begun, done)
    rows = rows[span]
    return Work(
        event=rows,
        host=links.host[rows],
        group=group,
        device=links.device[rows],
        start=start,
        end=end,
        cls=cls[span],
    )


def backlog(links: Links, device_class: Int64s) -> Work:
    """The `backlog` table: device work that was launched before the recording began."""
    rows = links.work[links.earlier]
    return Work(
        event=rows,
        host=links.host[rows],
        group=np.full(len(rows), -1),
        device=links.device[rows],
        start=links.trace.events.start[rows],
        end=links.trace.events.end[rows],
        cls=device_class[links.earlier],
    )


def _host_classes(links: Links) -> tuple[Int64s, Int64s]:
    """The host events that count in a step, and the class of each."""
    trace, events = links.trace, links.trace.events
    loader = links.waits_for_input
    compiling = names_that(torchnames.is_compiling, trace.names)
    # Ops inside ops add nothing to the union of all.
    outer = links.ops.rows[links.ops.parent < 0]
    labelled = links.rows(OP, ANNOTATION, UNKNOWN)
    labelled = labelled[(loader | compiling)[events.name[labelled]] & (links.device[labelled] < 0)]
    of_label = np.where(loader[events.name[labelled]], act.HOST_WAIT_INPUT, act.HOST_COMPILE)
    calls = links.calls
    return (
        np.concatenate([outer, labelled, calls]),
        np.concatenate([np.full(len(outer), act.HOST_COMPUTE), of_label, call_classes(links)]),
    )


_CLASS_OF_CALL = {
    torchnames.LAUNCH: act.HOST_PREPARE,
    torchnames.GRAPH: act.HOST_PREPARE,
    torchnames.COPY: act.HOST_PREPARE,
    torchnames.COPY_H2D: act.HOST_TO_DEVICE,
    torchnames.COPY_D2H: act.HOST_WAIT_DEVICE,
    torchnames.FILL: act.HOST_PREPARE,
    torchnames.SYNC: act.HOST_WAIT_DEVICE,
    torchnames.ALLOCATE: act.HOST_COMPUTE,
    torchnames.OTHER_CALL: act.HOST_COMPUTE,
    torchnames.CAPTURED: act.HOST_COMPILE,
}


def call_classes(links: Links) -> Int64s:
    """int64[c]: the step class of each runtime call."""
    return np.array([_CLASS_OF_CALL[k] for k in torchnames.CALL_KINDS], np.int64)[call_kinds(links)]


def call_kinds(links: Links) -> Int64s:
    """int64[c]: index into `torchnames.CALL_KINDS` of each runtime call; copies by direction."""
    codes = links.trace.events.name[links.calls]
    table = np.zeros(len(links.trace.names), np.int64)
    for code in pd.unique(codes).tolist():
        table[code] = torchnames.CALL_KINDS.index(
            torchnames.call_kind(str(links.trace.names[code]))
        )
    kind_of_call = table[codes]
    copies = np.flatnonzero((links.kind[links.work] == COPY) & (links.launch >= 0))
    if len(copies):
        names = links.trace.events.name[links.work[copies]]
        position = np.searchsorted(links.calls, links.launch[copies])
        for code in pd.unique(names).tolist():
            direction = torchnames.transfer_kind(str(links.trace.names[code]))
            if direction in ("H2D", "D2H"):
                kind_of_call[position[names == code]] = torchnames.CALL_KINDS.index(
                    f"copy {direction}"
                )
    kind_of_call[links.captured] = torchnames.CALL_KINDS.index(torchnames.CAPTURED)
    return kind_of_call
