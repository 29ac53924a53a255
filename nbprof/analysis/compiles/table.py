"""`p.compiles`: one row per compilation, with its cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.analysis.compiles import causes
from nbprof.analysis.compiles.causes import Cause
from nbprof.analysis.input.workers import location
from nbprof.core.compile_times import Compilation, Compilations
from nbprof.core.trace import Int64s
from nbprof.frameworks.register import named
from nbprof.schema import frames

_MS = 1e6


class RecordedSteps(NamedTuple):
    """Recorded steps in time order.

    Attributes
    ----------
    number : ndarray of int
    start, end : ndarray of int64
        In ns since 1970.
    """

    number: Int64s
    start: Int64s
    end: Int64s

    def running(self, time_ns: int) -> int | None:
        """The step that runs at a time; None if none does."""
        index = int(np.searchsorted(self.start, time_ns, side="right")) - 1
        if index < 0 or time_ns >= self.end[index]:
            return None
        return int(self.number[index])


def with_causes(recorded: Compilations) -> list[tuple[Compilation, Cause]]:
    """The compilations in the order of their starts, each with its cause."""
    rows, breaks = [], []
    for row in recorded.rows:
        breaks += row.breaks.splitlines()
        rows.append((row, causes.cause_of(row, breaks)))
    return sorted(rows, key=lambda each: each[0].start_ns)


def frame(
    recorded: Compilations, cells: Mapping[str, int], steps: RecordedSteps | None = None
) -> pd.DataFrame:
    """One row per compilation, in the order of their starts.

    Parameters
    ----------
    recorded : Compilations
    cells : mapping
        Execution counts by the stem of a cell's file.
    steps : RecordedSteps, optional
        The recorded steps, for compilations of which no step was marked.
    """
    rows = []
    for row, cause in with_causes(recorded):
        step = row.step or None
        if step is None and steps is not None:
            step = steps.running(row.start_ns)
        rows.append(
            {
                "framework": named(row.framework).title,
                "function": function_name(row),
                "where": location(row.file, row.line, cells),
                "step": pd.NA if step is None else step,
                "start_ms": (row.start_ns - recorded.began_ns) / _MS,
                "duration_ms": row.duration_ns / _MS,
                "trace_ms": _ms(row.trace_ns),
                "lower_ms": _ms(row.lower_ns),
                "compile_ms": _ms(row.compile_ns),
                "cache": row.cache,
                "cause": cause.kind,
                "argument": cause.argument,
                "before": cause.before,
                "after": cause.after,
                "why": cause.why,
                "graph_breaks": row.breaks,
            }
        )
    return frames.shaped("compiles", pd.DataFrame(rows))


def function_name(row: Compilation) -> str:
    """The function, as the person knows it."""
    resumed = causes.RESUMED.match(row.function)
    if resumed is None:
        return row.function
    return f"{resumed['function']}, from line {resumed['line']} on"


def _ms(ns: int | None) -> float:
    return np.nan if ns is None else ns / _MS
