"""Sums of time by path of ranges: they add up over hosts and are divided by steps at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s

Floats = npt.NDArray[np.float64]

MAIN, OTHER, PROGRAM = "main", "other", "ops"
"""Where ranges are: on the thread that marks the steps, on other threads, or in the names of
ops.
"""
SEPARATOR = "\x1f"
MOST = 500
"""Rows of a frame; of more the ones with the most time."""
SIDES = ("host", "device")
KEYS = ("thread", "kind", "path")
SUMS = (
    "count",
    "host",
    "host_self",
    "sync",
    "device",
    "device_self",
    "kernels",
    "backward_host",
    "backward_device",
)
_TOP = 3
"""Ops retained per path and side: hosts that are added up have much the same."""


class PathKey(NamedTuple):
    """A path of ranges: its thread (`MAIN`, `OTHER`, `PROGRAM`), what set it, and its names,
    outermost first, joined by `SEPARATOR`.
    """

    thread: str
    kind: str
    path: str


@dataclass(frozen=True)
class Totals:
    """Time in ranges of one or several hosts, over the steps that count.

    Attributes
    ----------
    rows : DataFrame
        `thread kind path` (see `PathKey`), `first` (ps), and sums: instances, kernels, and times in
        ps; NaN where unknown.
    ops : DataFrame
        `thread kind path side op own`: self time of each op within a path, in ps; `side` is host or
        device.
    places : DataFrame
        `thread kind path what own`: time in ps of what advice speaks of (`PLACES`), with the paths
        in it; path "" is that of all.
    steps : int
        Number of steps that were summed up.
    step_ps : float
        Their time.
    outside : dict
        Time in ps outside all ranges: `host` of the thread that marks steps, `device` of the work
        launched; NaN where unknown.
    """

    rows: pd.DataFrame
    ops: pd.DataFrame
    places: pd.DataFrame
    steps: int
    step_ps: float
    outside: dict[str, float]

    def largest(self) -> Totals:
        """The `MOST` paths with the most time; the totals themselves where there are no more."""
        if len(self.rows) <= MOST:
            return self
        weight = self.rows[["host", "device"]].fillna(0.0).max(axis=1)
        # A path has at least the time of the paths in it, and stands before them.
        largest = np.sort(np.argsort(-weight.to_numpy(), kind="stable")[:MOST])
        rows = self.rows.iloc[largest].reset_index(drop=True)
        is_listed = self.ops["path"].isin(set(rows["path"]))
        return replace(self, rows=rows, ops=self.ops[is_listed].reset_index(drop=True))


@cache
def nothing() -> Totals:
    """The totals of a recording without ranges."""
    text, number = pd.Series(dtype=object), pd.Series(dtype=float)
    rows = pd.DataFrame({**dict.fromkeys(KEYS, text), **dict.fromkeys(("first", *SUMS), number)})
    ops = pd.DataFrame({**dict.fromkeys((*KEYS, "side", "op"), text), "own": number})
    places = ops.drop(columns=["side", "op"]).assign(what=pd.Series(dtype=object))
    return Totals(rows, ops, places, 0, 0.0, {"host": np.nan, "device": np.nan})


def with_inner(above: Int64s, values: npt.NDArray[Any]) -> Floats:
    """Values of paths, each with those of the paths in it; `above` is the path around each."""
    return nesting.totals(above, values.astype(np.float64))


@dataclass(frozen=True)
class OpTimes:
    """Time of ops in paths.

    Attributes
    ----------
    path : int64[rows]
        Number of the path.
    side : int64[rows]
        Index in `SIDES`.
    op : int64[rows]
        Code of the op's name; -1 for none.
    time : float64[rows]
        Time in ps.
    """

    path: Int64s
    side: Int64s
    op: Int64s
    time: Floats

    @classmethod
    def concat(cls, parts: Sequence[OpTimes]) -> OpTimes:
        """The rows of several tables, one after the other."""
        return cls(
            np.concatenate([part.path for part in parts]),
            np.concatenate([part.side for part in parts]),
            np.concatenate([part.op for part in parts]),
            np.concatenate([part.time for part in parts]),
        )

    def take(self, rows: npt.NDArray[Any]) -> OpTimes:
        """Some of the rows."""
        return OpTimes(self.path[rows], self.side[rows], self.op[rows], self.time[rows])

    def summed(self) -> OpTimes:
        """One row per path, side and op."""
        first, code = unique_rows(self.path, self.side, self.op)
        time = np.bincount(code, self.time, len(first)).astype(np.float64)
        return replace(self.take(first), time=time)

    def largest(self, above: Int64s) -> OpTimes:
        """The `_TOP` ops with the most time on each side of each path, with the paths in it, most
        time first.
        """
        level = self.take(self.op >= 0).summed()
        parts = [level]
        while len(level.path):
            outer = above[level.path]
            level = replace(level, path=outer).take(outer >= 0).summed()
            parts.append(level)
        rows = OpTimes.concat(parts).summed()
        rows = rows.take(np.lexsort((-rows.time, rows.side, rows.path)))
        return rows.take((rows._rank() < _TOP) & (rows.time > 0))

    def _rank(self) -> Int64s:
        """Position of each row among those of its path and side, which follow one another."""
        if not len(self.path):
            return self.path
        differs = (self.path[1:] != self.path[:-1]) | (self.side[1:] != self.side[:-1])
        begin = np.flatnonzero(np.append(True, differs))
        lengths = np.diff(np.append(begin, len(self.path)))
        return np.arange(len(self.path)) - np.repeat(begin, lengths)

    def frame(
        self, keys: Sequence[PathKey], names: Sequence[Any] | npt.NDArray[np.object_]
    ) -> pd.DataFrame:
        """The rows as in `Totals.ops`; `names` are those of ops by code."""
        columns = (self.path.tolist(), self.side.tolist(), self.op.tolist(), self.time.tolist())
        rows = [
            (*keys[path], SIDES[side], str(names[op]), time)
            for path, side, op, time in zip(*columns, strict=True)
        ]
        return pd.DataFrame(rows, columns=[*KEYS, "side", "op", "own"])
