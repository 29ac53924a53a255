"""Iterations of a notebook's loop, recorded beside a trace, on the clock of the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nbprof.activity.unit import ITERATION, Unit
from nbprof.core.intervals import Intervals
from nbprof.core.loop_times import Iterations
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.environment import origin_ns

_PS = 1000
_CLOCKS = 50_000_000
"""By how much the clocks of iterations and of a trace may differ, in ps."""


@dataclass(frozen=True)
class Spans:
    """Events by lane, ps.

    Attributes
    ----------
    lane, start, end : int64[n]
    """

    lane: Int64s
    start: Int64s
    end: Int64s

    @classmethod
    def of_rows(cls, trace: Trace, rows: Int64s) -> Spans:
        """These events of a trace."""
        events = trace.events
        return cls(events.lane[rows].astype(np.int64), events.start[rows], events.end[rows])


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

    def compute_items(self, spans: Spans) -> bool:
        """True if the program computes while it makes the items: see `compute_items`."""
        return compute_items(spans, self.start, self.item, self.end)


def compute_items(spans: Spans, asked: Int64s, received: Int64s, ended: Int64s) -> bool:
    """True if a program computes while it makes the items of its loop, as that of
    `for out in predict(batches)` does, and not with them: it does not wait for input then.

    Parameters
    ----------
    spans : Spans
        Matrix products, convolutions and attention, or calls of programs that have some.
    asked, received, ended : int64[n]
        When each iteration asked for its item, had it, and ended, ps.
    """
    # Ops of other threads run on while the loop receives an item.
    arrivals = np.sort(received)
    before = np.searchsorted(arrivals, spans.start + _CLOCKS)
    other_lanes = np.unique(spans.lane[before < np.searchsorted(arrivals, spans.end - _CLOCKS)])
    counted = ~np.isin(spans.lane, other_lanes)
    work = Intervals.union(spans.start[counted], spans.end[counted])
    making = work.covered_within(asked, received).sum()
    return bool(making > work.covered_within(received, ended).sum())


def computed_items(trace: Trace, rows: Int64s, spans: Spans) -> bool:
    """The same of loops whose waits are events.

    Parameters
    ----------
    rows : int64[n]
        Waits for items, of one thread.
    spans : Spans
    """
    events = trace.events
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    asked, received = events.start[rows], events.end[rows]
    return compute_items(spans, asked, received, np.append(asked[1:], received[-1:]))


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
