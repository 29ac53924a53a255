"""The tab Trace: every event on its lane."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nbprof.core.receipt import Note, info
from nbprof.display import wording
from nbprof.tools.common import plain
from nbprof.tools.tool import Alone, Tool, cached
from nbprof.tools.trace import payload
from nbprof.tools.trace.parts import Trace

if TYPE_CHECKING:
    from nbprof.run.run import Run

_FOLLOWED = (
    "output",
    "kernel_launch",
    "device_collectives",
    "device_to_device",
    "compile",
    "host_compute",
    "device_compute",
)
"""Nearly all there is; of these, what has a table of its own is followed up there."""


def _payload(run: Run, events: int) -> Trace:
    return replace(
        cached(run, f"trace of {events}", partial(payload.payload, limit=events)),
        key=run.source.content_key(),
    )


def _omissions(run: Run, events: int) -> list[Note]:
    total = run.persist("events", lambda: int(run.trace.lanes["events"].sum()))
    if total <= events:
        return []
    content = f"none of the {total:,} events individually, only"
    if events:
        content = f"the longest of the {total:,} events, about {events:,}, with"
    sentence = f"The report holds {content} every lane and the density of the rest; set the number"
    return [info("omitted_trace_events", f"{sentence} with events= in p.save and for outputs.")]


def _alone(run: Run) -> Alone | None:
    if not plain(run):
        return None
    length = [] if run.recorded_s is None else [wording.duration(run.recorded_s)]
    more = [] if run.kernels.empty else ["kernels", "device_time"]
    return Alone(
        ["overview", *more, "trace"],
        [wording.plural(run.as_read.receipt.events, "event"), *length],
        "device unknown",
    )


TOOL = Tool(
    payload=_payload,
    nothing=payload.nothing,
    follows=lambda _run, bound: bound in _FOLLOWED,
    first=plain,
    alone=_alone,
    omissions=_omissions,
)
