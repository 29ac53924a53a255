"""Does the changed program compute the same? Its results against those of two unchanged turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nbprof.capture.experiments.observation import RESULT, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = {"float64": 1e-9, "float32": 1.2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Relative difference of losses and outputs that reordered sums explain: about 100 ULP of float32,
2 of the 16-bit types.
"""
OF_STATE = 1e-4
"""The same of arrays after several steps of training, by their norms."""
_SPREADS = 3.0
"""Times the spread of two unchanged turns that counts as equal."""


class Equality(NamedTuple):
    """Differences between results.

    Attributes
    ----------
    equal : bool or None
        None if nothing could be compared.
    difference, spread : float
        Largest relative difference of losses and outputs, or of arrays where there are none: of the
        changed program from the unchanged one, and of two unchanged turns. NaN if nothing could be
        compared.
    tolerance : float
        The difference that counts as equal.
    """

    equal: bool | None
    difference: float
    spread: float
    tolerance: float


UNKNOWN = Equality(None, float("nan"), float("nan"), float("nan"))


def compare(first: Sequence[Value], second: Sequence[Value], changed: Sequence[Value]) -> Equality:
    """Compare results.

    Parameters
    ----------
    first, second : sequence of Value
        Of two turns of the unchanged program.
    changed : sequence of Value
    """
    if _names(first) != _names(second):
        # The program does not compute the same values twice.
        return UNKNOWN
    if _names(first) != _names(changed):
        return Equality(False, float("inf"), 0.0, 0.0)
    results: list[Equality] = []
    states: list[Equality] = []
    for a, b, c in zip(first, second, changed, strict=True):
        if a.kind == RESULT:
            results.append(_equality(a, b, c))
        elif _norm(a.array, b.array) <= OF_STATE:
            # A value that differs between two unchanged turns, such as a time, is left out.
            difference = _norm(a.array, c.array)
            states.append(
                Equality(difference <= OF_STATE, difference, _norm(a.array, b.array), OF_STATE)
            )
    compared = results or states
    if not compared:
        return UNKNOWN
    worst = max(compared, key=_excess)
    equal = all(each.equal for each in (*results, *states))
    if worst.equal and not equal:
        worst = max(states, key=_excess)
    return worst._replace(equal=equal)


def _names(values: Sequence[Value]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(value.kind, value.name, value.array.shape) for value in values]


def _excess(each: Equality) -> float:
    return each.difference / each.tolerance


def _equality(a: Value, b: Value, c: Value) -> Equality:
    spread = _largest(a.array, b.array)
    tolerance = TOLERANCE.get(a.dtype, TOLERANCE["float32"]) + _SPREADS * spread
    difference = max(_largest(a.array, c.array), 0.0)
    return Equality(difference <= tolerance, difference, spread, tolerance)


def _largest(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Largest difference of two arrays, relative to the largest value."""
    if not _same_places(a, b):
        return float("inf")
    finite = np.isfinite(a)
    if not finite.any():
        return 0.0
    scale = float(np.abs(a[finite]).max())
    difference = float(np.abs(a[finite] - b[finite]).max())
    return _relative(difference, scale)


def _norm(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Norm of the difference of two arrays, relative to that of the first."""
    if not _same_places(a, b):
        return float("inf")
    finite = np.isfinite(a)
    scale = float(np.linalg.norm(a[finite]))
    difference = float(np.linalg.norm(a[finite] - b[finite]))
    return _relative(difference, scale)


def _relative(difference: float, scale: float) -> float:
    if difference and not scale:
        return float("inf")
    return difference / (scale or 1.0)


def _same_places(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Return whether values that are not finite are the same."""
    places = ~np.isfinite(a)
    return a.shape == b.shape and np.array_equal(a[places], b[~np.isfinite(b)], equal_nan=True)
