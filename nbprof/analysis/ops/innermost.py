"""What a thread was doing at each instant: the innermost event, and the op around it."""

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
        """By event: whether it is a call of a kind into the device's runtime."""
        is_call, calls = np.zeros(len(self.trace.events) + 1, np.bool_), activity.calls.frame()
        if len(calls):
            kinds = np.array([str(text) == kind for text in activity.texts.values], np.bool_)
            is_call[calls["event"].to_numpy(np.int64)[kinds[calls["kind"].to_numpy(np.int64)]]] = (
                True
            )
        return is_call

    def cut(self, lane: int, begin: Int64s, end: Int64s) -> dict[str, npt.NDArray[Any]]:
        """Spans of one thread, in time order and apart, cut where its innermost event changes:
        `kind name op _start _end` (ps).

        Arrays, as a thread of many has few: frames of so few rows would take longer to make than to
        compute.
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
        from_ = (
            np.where(has_row, np.maximum(begin[span], time[safe_row]), begin[span])
            if len(time)
            else begin[span]
        )
        to = (
            np.minimum(end[span], np.where(has_row, ends[safe_row], time[0]))
            if len(time)
            else end[span]
        )
        who = np.where(has_row, owner[safe_row], -1) if len(time) else np.full(len(span), -1)
        op = self._op(who)
        kind = np.full(len(who), "host", object)
        kind[op >= 0] = "op"
        kind[(op >= 0) & self.loads[op]] = "input"
        kind[self.allocates[who] & (who >= 0)] = "allocate"
        kind[self.is_call[who] & (who >= 0)] = "launch"
        kind[self.waits[who] & (who >= 0)] = "wait"
        names, code = self.trace.names, events.name
        named = np.where((kind == "op") | (kind == "input"), op, who)
        columns = {
            "kind": kind,
            "name": np.where(named >= 0, names[code[np.maximum(named, 0)]], ""),
            "op": np.where(
                (op >= 0) & (kind != "op") & (kind != "input"), names[code[np.maximum(op, 0)]], ""
            ),
            "_start": from_,
            "_end": to,
        }
        some = to > from_
        return {column: values[some] for column, values in columns.items()}

    def _op(self, who: Int64s) -> Int64s:
        """The innermost op that each event is or is in, -1."""
        op = who.copy()
        parent = self.trace.events.parent
        open_ = np.flatnonzero((op >= 0) & ~self.is_op[op])
        while len(open_):
            op[open_] = parent[op[open_]]
            open_ = open_[(op[open_] >= 0) & ~self.is_op[op[open_]]]
        return op


def _boundaries(
    rows: Int64s, start: Int64s, end: Int64s, parent: npt.NDArray[np.integer]
) -> tuple[Int64s, Int64s]:
    """Moments at which the innermost of nested events changes, and the event that is innermost from
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
