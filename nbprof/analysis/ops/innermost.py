"""The innermost event of a thread at each instant, and the op around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.activity.activity import Activity
from nbprof.core.runs import expand
from nbprof.core.trace import Int64s, Trace


class Innermost:
    """The events of a trace, for looking up the innermost one on a thread.

    Parameters
    ----------
    activity : Activity
    trace : Trace
    """

    def __init__(self, activity: Activity, trace: Trace) -> None:
        self.trace = trace
        count = len(trace.events)
        self.is_op = np.zeros(count + 1, np.bool_)
        self.is_op[activity.host_ops.event] = True
        self.loads = np.zeros(count + 1, np.bool_)
        self.loads[activity.host_ops.event[activity.host_ops.dataset]] = True
        self.is_call = np.zeros(count + 1, np.bool_)
        self.is_call[activity.launches.event] = True
        self.waits = self._calls(activity, "sync")
        self.allocates = self._calls(activity, "allocate")

    def _calls(self, activity: Activity, kind: str) -> npt.NDArray[np.bool_]:
        """Flags of the events that are calls of a kind into the device's runtime."""
        flags = np.zeros(len(self.trace.events) + 1, np.bool_)
        calls = activity.calls
        if len(calls):
            of_kind = np.array([str(text) == kind for text in activity.texts.values], np.bool_)
            flags[calls.event[of_kind[calls.kind]]] = True
        return flags

    def pieces(self, lane: int, begin: Int64s, end: Int64s) -> dict[str, npt.NDArray[Any]]:
        """Spans of one thread, in time order and disjoint, divided where its innermost event
        changes: `kind name op _start _end` (ps).

        Arrays, not a frame: with many threads each has few rows.
        """
        events = self.trace.events
        low, high = np.searchsorted(events.lane, np.array([lane, lane + 1], events.lane.dtype))
        start = events.start[low:high]
        stop = start + events.duration[low:high]
        rows = np.flatnonzero((start < end[-1]) & (stop > begin[0]) & (stop > start))
        # The events around those of a lane are of that lane.
        time, owner = _boundaries(rows, start, stop, events.parent[low:high] - np.int32(low))
        owner = np.where(owner >= 0, owner + low, -1)
        # Each span from boundary to boundary.
        first = np.searchsorted(time, begin, side="right") - 1
        after = np.maximum(np.searchsorted(time, end, side="left"), first + 1)
        span, row = expand(first, after - first)
        ends = np.append(time[1:], np.iinfo(np.int64).max) if len(time) else time
        has_row = row >= 0
        safe_row = np.maximum(row, 0)
        low, high = begin[span], end[span]
        event = np.full(len(span), -1)
        if len(time):
            low = np.where(has_row, np.maximum(low, time[safe_row]), low)
            high = np.minimum(high, np.where(has_row, ends[safe_row], time[0]))
            event = np.where(has_row, owner[safe_row], -1)
        op = self._op(event)
        kind = np.full(len(event), "host", object)
        kind[op >= 0] = "op"
        kind[(op >= 0) & self.loads[op]] = "input"
        kind[self.allocates[event] & (event >= 0)] = "allocate"
        kind[self.is_call[event] & (event >= 0)] = "launch"
        kind[self.waits[event] & (event >= 0)] = "wait"
        is_op = (kind == "op") | (kind == "input")
        columns = {
            "kind": kind,
            "name": self._names(np.where(is_op, op, event)),
            "op": self._names(np.where(is_op, -1, op)),
            "_start": low,
            "_end": high,
        }
        is_span = high > low
        return {column: values[is_span] for column, values in columns.items()}

    def _names(self, event: Int64s) -> npt.NDArray[np.object_]:
        """The names of events; "" for -1."""
        names, code = self.trace.names, self.trace.events.name
        return np.where(event >= 0, names[code[np.maximum(event, 0)]], "")

    def _op(self, event: Int64s) -> Int64s:
        """The innermost op that each event is or is in; -1 for none."""
        op = event.copy()
        parent = self.trace.events.parent
        pending = np.flatnonzero((op >= 0) & ~self.is_op[op])
        while len(pending):
            op[pending] = parent[op[pending]]
            pending = pending[(op[pending] >= 0) & ~self.is_op[op[pending]]]
        return op


def _boundaries(
    rows: Int64s, start: Int64s, end: Int64s, parent: npt.NDArray[np.integer]
) -> tuple[Int64s, Int64s]:
    """The moments at which the innermost of nested events changes, and the innermost event from
    then on (-1: none).
    """
    above = parent[rows].astype(np.int64)
    begin, stop = start[rows], end[rows].copy()
    # Rounding lets a child end after its parent, and that after its own.
    nested = np.flatnonzero(above >= 0)
    ends = end.copy()
    while True:
        truncated = np.minimum(stop[nested], np.maximum(ends[above[nested]], begin[nested]))
        if (truncated == stop[nested]).all():
            break
        stop[nested] = truncated
        ends[rows] = stop
    some = stop > begin
    rows, above, begin, stop = rows[some], above[some], begin[some], stop[some]
    time = np.concatenate([begin, stop])
    owner = np.concatenate([rows, above])
    # At one moment ends come before begins; the outer end last, the outer begin first. Rows are in
    # the order of nesting.
    order_in = np.arange(len(rows))
    order = np.lexsort((np.concatenate([order_in, -order_in]), np.repeat([1, 0], len(rows)), time))
    time, owner = time[order], owner[order]
    last = np.append(time[1:] != time[:-1], True) if len(time) else np.zeros(0, np.bool_)
    return time[last], owner[last]
