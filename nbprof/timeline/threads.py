"""Threads for viewers that take only events that nest: those that overlap partly go to further threads of the same name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.analysis.ops.self_time import overlapping
from nbprof.core import nesting
from nbprof.core.trace import Events, Int64s
from nbprof.timeline.levels import stack

_ROUNDS = 8


def threads(events: Events) -> npt.NDArray[np.int32]:
    """By event 0, or the number of the further thread of its lane that it has to go to; int32[n].

    What begins within another event and outlasts it goes to the next thread, with all that lies in it, until nothing does. Where that
    does not come to an end soon (a long staircase), the rest is laid out level by level, where events take turns.
    """
    out = np.zeros(len(events), np.int32)
    rows = np.arange(len(events))
    for number in range(_ROUNDS):
        lane, start = events.lane[rows], events.start[rows]
        length = np.maximum(events.duration[rows], 0)
        parent = events.parent if number == 0 else None
        # PyTorch's events may run a little past the one that they are said to lie in.
        if parent is None or _past(start + length, parent):
            parent = nesting.parents(lane, start, length)
        over = overlapping(lane, start, start + length, parent)
        if not over.any():
            return out
        rows = rows[_with_inner(over, parent)]
        out[rows] = number + 1
    rest = Events(events.lane[rows], events.name[rows], events.start[rows], events.duration[rows])
    out[rows] = _ROUNDS + stack(rest).level.astype(np.int32)
    return out


def _past(end: Int64s, parent: npt.NDArray[np.int32]) -> bool:
    """Whether an event ends after the one around it."""
    inside = np.flatnonzero(parent >= 0)
    return bool((end[inside] > end[parent[inside]]).any())


def _with_inner(marked: npt.NDArray[np.bool_], parent: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Events that are marked or lie in one that is; distances double in each round."""
    marked, above = marked.copy(), parent.copy()
    open_ = np.flatnonzero(above >= 0)
    while len(open_):
        marked[open_] |= marked[above[open_]]
        above[open_] = above[above[open_]]
        open_ = open_[above[open_] >= 0]
    return marked
