"""Spans that overlap as segments that do not: at each instant the largest class counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s

Classes = npt.NDArray[np.int16]


def flatten(start: Int64s, end: Int64s, cls: Classes) -> tuple[Int64s, Int64s, Classes]:
    """Segments that do not overlap, each with the largest class active in it.

    Parameters
    ----------
    start, end : int64[n]
        Spans, in any order.
    cls : int16[n]
        Their class, a number above 0; at most 52 different ones.

    Returns
    -------
    start, end, cls : int64[m]
        In time order; time without any span is in none. Spans that only touch stay separate.
    """
    keep = end > start
    if not keep.all():
        start, end, cls = start[keep], end[keep], cls[keep]
    if not len(start):
        return start, end, cls
    occurs = np.zeros(int(cls.max()) + 1, np.bool_)
    occurs[cls] = True
    values = np.flatnonzero(occurs)
    if len(values) == 1:
        of_class = Intervals.union(start, end, merge_touching=False)
        return of_class.start, of_class.end, np.full(len(of_class), values[0], cls.dtype)
    # The union of the spans of a class has few intervals, and each switches its class on and off
    # again: with one bit per class all are swept at once.
    times, switches = [], []
    for bit, value in enumerate(values.tolist()):
        rows = np.flatnonzero(cls == value)
        of_class = Intervals.union(start[rows], end[rows], merge_touching=False)
        times += [of_class.start, of_class.end]
        switches += [np.full(len(of_class), 1 << bit), np.full(len(of_class), -1 << bit)]
    edges = np.concatenate(times)
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    active = np.cumsum(np.concatenate(switches)[order])
    # All switches of one moment count before what follows it begins.
    last = np.flatnonzero(edges[1:] != edges[:-1])
    edges, active = np.append(edges[last], edges[-1]), active[last]
    # The exponent of a number is its highest bit, and so the largest class.
    best = np.append(0, values)[np.frexp(active)[1]].astype(cls.dtype)
    on = best > 0
    return edges[:-1][on], edges[1:][on], best[on]
