"""Compilations that happen again in steps, and sizes to pad to if shapes are the cause."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.analysis.compiles import causes, table
from nbprof.analysis.compiles.causes import Cause
from nbprof.analysis.input.workers import location
from nbprof.core.compile_times import Compilation, Compilations
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s

NOT_AGAIN = (causes.FIRST_CALL, causes.GRAPH_BREAK, causes.UNKNOWN)
"""Causes of compilations that are the first of something, or may be."""
_ONCE = (causes.FIRST_CALL, causes.REDEFINED)
"""Causes that a run of a cell has once for each function: steps after it do not wait again."""
_MS = 1e6
_FEWEST_SIZES, _MOST_SIZES = 4, 8
"""Padding is proposed for so many different sizes at least, and to so many at most."""


class Group(NamedTuple):
    """Compilations of a function for one kind of cause.

    Attributes
    ----------
    framework : str
        ``jax``, ``torch`` or ``tensorflow``.
    function, where : str
        Its name and the place of its code, short; "" where unknown.
    kind : str
    argument, why : str
        Of the longest compilation.
    times : int
        Compilations in the cell.
    sizes : tuple of int
        Sizes to pad to; empty where that would not leave fewer programs.
    """

    framework: str
    function: str
    where: str
    kind: str
    argument: str
    why: str
    times: int
    sizes: tuple[int, ...] = ()


class Again(NamedTuple):
    """Compilations in the steps that averages include, of functions compiled before.

    Attributes
    ----------
    steps : int
        Steps in which anything was.
    ms : float
        Time of these compilations, per step that averages include.
    goes_on : bool
        False if all of it had ended by the end of the recording, and the cell went on.
    costliest : Group
        The function with most time of the kind of cause with most time, in these steps.
    of_cause_ms : float
        The part of `ms` of this kind of cause, which one remedy is for.
    """

    steps: int
    ms: float
    goes_on: bool
    costliest: Group
    of_cause_ms: float


def are_first(recorded: Compilations, start: Int64s, end: Int64s) -> bool:
    """Return whether each compilation in some steps is the first of its function in the cell.

    False where none is in them, some are left out, or a cause is unknown.

    Parameters
    ----------
    recorded : Compilations
    start, end : ndarray of int64
        The steps, in ns since 1970.
    """
    kinds = [
        cause.kind
        for row, cause in table.with_causes(recorded)
        if ((row.start_ns < end) & (row.start_ns + row.duration_ns > start)).any()
    ]
    return bool(kinds) and not recorded.left_out and set(kinds) <= set(_ONCE)


def find(
    recorded: Compilations,
    cells: Mapping[str, int],
    start: Int64s,
    end: Int64s,
    *,
    ended_before: bool,
) -> Again | None:
    """Compilations in some steps, of functions compiled before; None if there are none.

    Parameters
    ----------
    recorded : Compilations
    cells : mapping
        Execution counts by the stem of a cell's file.
    start, end : ndarray of int64
        The steps, in ns since 1970.
    ended_before : bool
        True if the recording had ended before the cell did.
    """
    again = [
        (row, cause)
        for row, cause in table.with_causes(recorded)
        if cause.kind not in (*NOT_AGAIN, *_ONCE)
    ]
    if not again or not len(start):
        return None
    begin = np.array([row.start_ns for row, _ in again], np.int64)
    until = begin + np.array([row.duration_ns for row, _ in again], np.int64)
    included = Intervals.union(start, end)

    def waited_ms(rows: npt.NDArray[np.bool_]) -> float:
        compiling = Intervals.union(begin[rows], until[rows])
        return compiling.intersection(included).total() / _MS / len(start)

    steps = [
        index
        for index in range(len(start))
        if ((begin < end[index]) & (until > start[index])).any()
    ]
    if not steps:
        return None
    goes_on = not ended_before or bool((begin > end.max()).any())
    # One kind has one remedy, whichever functions it concerns.
    kinds = np.array([cause.kind for _, cause in again], object)
    times = {kind: waited_ms(kinds == kind) for kind in dict.fromkeys(kinds.tolist())}
    kind = max(times, key=times.__getitem__)
    number: dict[tuple[str, str, int], int] = {}
    of_function = np.array(
        [number.setdefault((row.function, row.file, row.line), len(number)) for row, _ in again]
    )
    of_kind = np.unique(of_function[kinds == kind]).tolist()
    largest = max(of_kind, key=lambda each: waited_ms((of_function == each) & (kinds == kind)))
    rows = np.flatnonzero((of_function == largest) & (kinds == kind)).tolist()
    costliest = _group([again[row] for row in rows], cells)
    return Again(len(steps), waited_ms(kinds == kinds), goes_on, costliest, times[kind])


def _group(rows: Sequence[tuple[Compilation, Cause]], cells: Mapping[str, int]) -> Group:
    """Compilations of one function for one kind of cause."""
    longest, cause = max(rows, key=lambda each: each[0].duration_ns)
    return Group(
        longest.framework,
        table.function_name(longest),
        location(longest.file, longest.line, cells, short=True),
        cause.kind,
        cause.argument,
        cause.why,
        len(rows),
        _padding([cause for _, cause in rows if cause.kind == causes.SHAPE]),
    )


def _padding(shapes: Sequence[Cause]) -> tuple[int, ...]:
    """Powers of two that hold all sizes of the one dimension that varies."""
    values: set[tuple[int, ...]] = set()
    for cause in shapes:
        for text in (cause.before, cause.after):
            sizes = tuple(map(int, re.findall(r"\d+", text)))
            if sizes:
                values.add(sizes)
    if len({len(sizes) for sizes in values}) != 1:
        return ()
    varying = [set(of_axis) for of_axis in zip(*values, strict=True) if len(set(of_axis)) > 1]
    if len(varying) != 1 or len(varying[0]) < _FEWEST_SIZES:
        return ()
    lengths = varying[0]
    first, last = (max(length - 1, 0).bit_length() for length in (min(lengths), max(lengths)))
    padded = tuple(2**power for power in range(first, last + 1))
    return padded if len(padded) <= min(_MOST_SIZES, len(lengths) - 1) else ()
