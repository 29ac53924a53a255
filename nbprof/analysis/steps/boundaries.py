"""Boundaries in the loop: an epoch, another loop, steps of another kind, or an evaluation that is
not a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.unit import ITERATION, Unit
from nbprof.analysis.steps.warmup import TRAINING
from nbprof.display import wording

_GAP_MS = 1e-3
"""Iterations of one run of a loop follow one another without a gap; times have this precision at
least.
"""
_TRAIN = "train"


class Boundary(NamedTuple):
    """A border between two steps.

    Attributes
    ----------
    row : int
        The row of the step that follows; the number of rows where none does.
    text : str
        The event that begins, or ran there.
    """

    row: int
    text: str


def boundaries(
    steps: pd.DataFrame, recorded: Iterable[Mapping[str, Any]], unit: Unit
) -> list[Boundary]:
    """The borders between the steps of one host, in time order; none of several hosts, or where
    they are as many as the steps.

    Parameters
    ----------
    steps : DataFrame
        Of `p.steps.frame`.
    recorded : iterable of mapping
        Those that the recording noted, as in `CaptureInfo.boundaries`.
    unit : Unit
        The meaning of the steps.
    """
    if len(steps) < 2 or steps["host"].nunique() > 1 or unit.is_recording:
        return []
    texts: dict[int, list[str]] = {}
    for row, text in [
        *_recorded(steps, recorded),
        *_of_kinds(steps),
        *_of_numbers(steps),
        *_of_loops(steps, unit),
    ]:
        marks = texts.setdefault(row, [])
        if text not in marks and not (text == "loop" and marks):
            marks.append(text)
    texts.pop(0, None)
    if 2 * len(texts) > len(steps):
        return []
    return [Boundary(row, ", ".join(texts[row])) for row in sorted(texts)]


def _recorded(steps: pd.DataFrame, recorded: Iterable[Mapping[str, Any]]) -> list[tuple[int, str]]:
    numbers = steps["step"].to_numpy(np.int64)
    boundaries = []
    # Evaluations first: the epoch that begins with the next step does so after them.
    for each in sorted(recorded, key=lambda each: each["kind"] != "evaluation"):
        row = int(np.argmax(np.append(numbers >= each["before"], True)))
        if row == len(numbers) and each["kind"] != "evaluation":
            continue
        text = str(each["kind"])
        if each["kind"] == "evaluation":
            batches = wording.plural(int(each["batches"]), "batch", "batches")
            text = f"evaluation ({batches}, {wording.millis(float(each['ms']))})"
        boundaries.append((row, text))
    return boundaries


def _of_kinds(steps: pd.DataFrame) -> list[tuple[int, str]]:
    kinds = steps["kind"].astype(str).tolist()
    rows = [row for row in range(1, len(kinds)) if kinds[row] != kinds[row - 1]]
    return [(row, _TRAIN if kinds[row].startswith(TRAINING) else kinds[row]) for row in rows]


def _of_numbers(steps: pd.DataFrame) -> list[tuple[int, str]]:
    """The boundaries where step numbers start again."""
    again = np.flatnonzero(np.diff(steps["step"].to_numpy(np.int64)) <= 0) + 1
    return [(int(row), "loop") for row in again]


def _of_loops(steps: pd.DataFrame, unit: Unit) -> list[tuple[int, str]]:
    """The boundaries between recorded iterations of different runs of the loop."""
    if unit.kind != ITERATION or unit.estimated:
        return []
    start = steps["start_ms"].to_numpy(np.float64)
    end = start + steps["step_time_ms"].to_numpy(np.float64)
    return [(int(row), "loop") for row in np.flatnonzero(start[1:] - end[:-1] > _GAP_MS) + 1]
