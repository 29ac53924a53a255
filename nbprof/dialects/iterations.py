"""Iterations of a notebook's loop, recorded beside a trace, on the clock of the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nbprof.activity.unit import ITERATION, Unit
from nbprof.core.loop_times import Iterations
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.environment import origin_ns

_PS = 1000


@dataclass(frozen=True)
class Placed:
    """Iterations in ps on the clock of a trace.

    Attributes
    ----------
    start, item, end : int64[n]
        When each began, which is when it asked for its item, had the item, and ended.
    waits : bool
        Whether the time before the item is there is a wait for input.
    unit : Unit
    """

    start: Int64s
    item: Int64s
    end: Int64s
    waits: bool
    unit: Unit

    @property
    def names(self) -> list[str]:
        """Name of each iteration."""
        return [f"{ITERATION} {number}" for number in range(1, len(self.start) + 1)]


def placed(trace: Trace) -> Placed | None:
    """Iterations recorded next to a trace; None if there are none, or on another clock."""
    recorded: Iterations | None = trace.iterations
    if recorded is None or not len(recorded) or len(trace.hosts) > 1:
        return None
    origin = origin_ns(trace)
    start = (recorded.start_ns - origin) * _PS
    item = (recorded.item_ns - origin) * _PS
    end = (recorded.end_ns - origin) * _PS
    events = trace.events
    if not origin or not len(events) or start[0] > events.end.max() or end[-1] < events.start.min():
        return None
    return Placed(start, item, end, recorded.waits, Unit(ITERATION, recorded.how))


def first_events(trace: Trace, rows: Int64s, start: Int64s) -> Int64s:
    """The event of each iteration: the first at or after its start, else the last one.

    Parameters
    ----------
    rows : int64[k]
        Events, at least one.
    start : int64[n]
        Moments in ps.
    """
    order = rows[np.argsort(trace.events.start[rows], kind="stable")]
    position = np.searchsorted(trace.events.start[order], start)
    return order[np.minimum(position, len(order) - 1)]
