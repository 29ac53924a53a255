"""Spans that overlap: at each instant the largest class counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nbprof.core.intervals import EMPTY, Intervals
from nbprof.core.trace import Int64s

Classes = npt.NDArray[np.int16]
Time = TypeVar("Time", int, Int64s)


def layers(
    classes: Iterable[int], spans: Callable[[int], tuple[Int64s, Int64s]]
) -> dict[int, Intervals]:
    """By class, the largest first: the times that spans of it or of a larger class cover.

    Parameters
    ----------
    classes : iterable of int
    spans : callable
        Starts and ends of the spans of a class, in any order. Those of one class at a time are in
        memory.
    """
    covered = EMPTY
    result: dict[int, Intervals] = {}
    for value in sorted(classes, reverse=True):
        start, end = spans(value)
        if result:
            start = np.concatenate([covered.start, start])
            end = np.concatenate([covered.end, end])
        covered = Intervals.union(start, end)
        result[value] = covered
    return result


def layers_of(start: Int64s, end: Int64s, cls: Classes) -> dict[int, Intervals]:
    """`layers` of spans with their classes, numbers above 0."""

    def spans(value: int) -> tuple[Int64s, Int64s]:
        rows = np.flatnonzero(cls == value)
        return start[rows], end[rows]

    return layers(occurring(cls), spans)


def occurring(cls: npt.NDArray[np.integer[Any]]) -> list[int]:
    """The classes that occur, ascending."""
    occurs = np.zeros(int(cls.max(initial=0)) + 1, np.bool_)
    occurs[cls] = True
    classes: list[int] = np.flatnonzero(occurs).tolist()
    return classes


def times(layers: dict[int, Intervals], measure: Callable[[Intervals], Time]) -> dict[int, Time]:
    """By class: the time in which it is the largest.

    Parameters
    ----------
    layers : dict
        The result of the function of that name.
    measure : callable
        The time that some intervals cover, or the part of it that counts.
    """
    result: dict[int, Time] = {}
    larger: Any = 0
    for value, covered in layers.items():
        time = measure(covered)
        result[value] = time - larger
        larger = time
    return result
