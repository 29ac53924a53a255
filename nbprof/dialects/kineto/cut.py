"""Whether the last step of a recording is whole, by what the ones before it did."""

from __future__ import annotations

import numpy as np

from nbprof.core.trace import Int64s
from nbprof.dialects.kineto.lanes import ANNOTATION, OP
from nbprof.dialects.kineto.links import Links

# The last steps of a recording are cut where less than this part of the device events of the step before was seen.
WHOLE_STEP = 0.8


def by_work(matched: Int64s) -> tuple[int, str]:
    """How many steps at the end have fewer device events than a whole one, and a sentence's part that says so; 0 and '' for none.

    Parameters
    ----------
    matched : int64[n]
        Device events of each step.
    """
    last = len(matched)
    while last > 1 and matched[last - 1] < WHOLE_STEP * matched[last - 2]:
        last -= 1
    # A loop whose steps shrink all the way down says nothing about its end.
    cut = len(matched) - last if last > 1 else 0
    return cut, f"{matched[-1]:,} device events against {matched[-cut - 1]:,} in the step before" if cut else ""


def by_ops(links: Links, marks: Int64s, start: Int64s, end: Int64s) -> str:
    """What says that the host broke off in the last step, '' where nothing does: it ran the first ops of the steps before, and no others.

    That holds for a step as well that follows two with a check behind their training, so it must not equal any step before.

    Parameters
    ----------
    marks : int64[n]
        Markers of the steps, all of one lane.
    start, end : int64[n]
        Begin and end of the steps on that lane, ps.
    """
    if len(marks) < 2:
        return ""
    events = links.trace.events
    rows = links.rows(OP, ANNOTATION)
    rows = rows[(events.lane[rows] == events.lane[marks[0]]) & ~np.isin(rows, marks)]
    # Only what is in nothing else: ops of the last step may lack inner ones where it broke off.
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, events.end[rows][:-1])) if len(rows) else rows
    rows = rows[events.start[rows] >= reach]
    low, high = np.searchsorted(events.start[rows], start), np.searchsorted(events.start[rows], end)
    names = events.name[rows]
    count = high - low
    seen = names[low[-1] : high[-1]]
    n = len(seen)
    if not n or any(np.array_equal(names[low[i] : high[i]], seen) for i in np.flatnonzero(count[:-1] == n).tolist()):
        return ""
    # Two steps before it are evidence; of a single one at least a fifth must be missing.
    before = range(max(0, len(marks) - 3), len(marks) - 1)
    if any(count[i] <= n or not np.array_equal(names[low[i] : low[i] + n], seen) for i in before):
        return ""
    if len(before) == 1 and n >= WHOLE_STEP * count[-2]:
        return ""
    return (
        f"it ran the first {n:,} of the {count[-2]:,} ops of the step before" if n > 1 else "it ran the first op of the step before alone"
    )
