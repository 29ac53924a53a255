"""Rows of the `work` table: spans with a step class, and their parts in or outside intervals."""

from __future__ import annotations

import numpy.typing as npt

from nbprof.activity.tables import Markers, Work
from nbprof.core.intervals import Intervals, Pieces


def classified(spans: Markers, cls: npt.ArrayLike) -> Work:
    """Spans of events with their step class."""
    return Work(**spans.arrays, cls=cls)


def inside(intervals: Intervals, work: Work) -> Work:
    """The parts of pieces of work that the intervals cover."""
    return _parts(work, intervals.pieces_inside(work.start, work.end))


def outside(intervals: Intervals, work: Work) -> Work:
    """The parts of pieces of work that no interval covers."""
    return _parts(work, intervals.pieces_outside(work.start, work.end))


def _parts(work: Work, pieces: Pieces) -> Work:
    return work.take(pieces.row).with_(start=pieces.start, end=pieces.end)
