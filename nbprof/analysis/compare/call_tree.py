"""Calls of two runs as one tree: which functions, ops and kernels take longer than before.

The Python functions of a run are sampled; each sample counts for the step in which it was taken, so
that a function has a time in every step, most often 0, and the difference of two runs an interval
(Welch's, as of the categories). Ops and kernels are summed over the recording: their difference has
none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.compare.welch import LEVEL, Difference, t_quantile
from nbprof.analysis.op_profile.op_profile import scopes
from nbprof.analysis.ops.op_tree import OP, in_order
from nbprof.core import nesting
from nbprof.core.cells import title
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int32s, Int64s
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.python import Python

Floats = npt.NDArray[np.float64]
Key = tuple[str, ...]

FEWEST = 5
"""Steps of each run, and samples of one, from which on there is an interval: times of fewer samples
may be equal by chance.
"""
_INSTALLED = re.compile(r"(?:^|.*[/\\])(?:site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\]")
_CELL = re.compile(r"Cell \[\d+\]")
# Suffixes by which frameworks make names unique: model/dense_3/MatMul, fusion.12.
_COPY_NUMBER = re.compile(r"[_.]\d+(?=$|[/:\[])")
_BOTH, _NEW, _GONE = "both", "new", "gone"


class Frame(NamedTuple):
    """A node as it is shown."""

    name: str
    file: str = ""
    line: int = -1


@dataclass(frozen=True)
class CallTree:
    """The call tree of one run.

    Attributes
    ----------
    parent : int32[n]
        Row of the caller, which comes earlier; -1 for none.
    nodes : list of Frame
    keys : list of tuple of str
        Equal for the same node of another run, below the same caller.
    self_ms, total_ms : float64[n]
        Per step, or of the recording.
    self_variance, total_variance : float64[n]
        Of the times of a step; NaN where those are unknown.
    samples : int64[n]
        In which each node was seen.
    steps : int
        Steps that the variances are of.
    has_copy_numbers : bool
        Whether names may end in a number that counts copies, as those of ops do.
    reason : str
        Why the tree is missing; empty where it is not.
    """

    parent: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    nodes: list[Frame] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    self_ms: Floats = field(default_factory=lambda: np.zeros(0))
    total_ms: Floats = field(default_factory=lambda: np.zeros(0))
    self_variance: Floats = field(default_factory=lambda: np.zeros(0))
    total_variance: Floats = field(default_factory=lambda: np.zeros(0))
    samples: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    steps: int = 0
    has_copy_numbers: bool = False
    reason: str = ""


def of_python(python: Python, steps_ns: tuple[Int64s, Int64s] | None) -> CallTree:
    """The sampled functions of a run.

    Parameters
    ----------
    python : Python
    steps_ns : (int64[steps], int64[steps]), optional
        Start and end of each step in ns since 1970; without them, the times are those of the
        recording.
    """
    begin = np.zeros(1, np.int64)
    if steps_ns is not None and len(steps_ns[0]):
        order = np.argsort(steps_ns[0], kind="stable")
        begin = steps_ns[0][order]
        python = replace(python, intervals=Intervals.union(begin, steps_ns[1][order]))
    samples = python.samples
    rows: dict[tuple[int, Key], int] = {}
    nodes: list[Frame] = []
    row_of_node: list[int] = []
    for above, line in zip(samples.parent.tolist(), samples.place.tolist(), strict=True):
        function = samples.functions[samples.places[line].function]
        file = title(function.file, python.cells)
        caller = row_of_node[above] if above >= 0 else -1
        key = caller, (_same_file(file), function.name)
        if key not in rows:
            rows[key] = len(rows)
            nodes.append(Frame(function.name, file, function.line))
        row_of_node.append(rows[key])
    count = len(begin)
    parent = np.array([caller for caller, _ in rows], np.int32)
    taken = np.flatnonzero(python.weight > 0)
    # The sample after the end of a step counts for it, as far as it stands for time in the step.
    step = np.searchsorted(begin, samples.at[samples.sample[taken]], side="left") - 1
    row = np.array(row_of_node, np.int64)[samples.node[taken]]
    times = _Times(parent, row, np.maximum(step, 0), python.weight[taken] / 1e6, count)
    itself, total = times.itself(), times.total()
    return CallTree(
        parent,
        nodes,
        [key for _, key in rows],
        itself.mean,
        total.mean,
        itself.variance,
        total.variance,
        times.samples(),
        count,
    )


class _Moments(NamedTuple):
    """Mean and variance of the times of a step, of each row."""

    mean: Floats
    variance: Floats


@dataclass
class _Times:
    """Times of the samples of a tree, by row and step."""

    parent: Int32s
    row: Int64s
    step: Int64s
    ms: Floats
    steps: int

    def itself(self) -> _Moments:
        """Of each row without those that it calls."""
        return self._moments(self.row, self.step, self.ms)

    def total(self) -> _Moments:
        """Of each row with those that it calls."""
        rows, steps, times = [], [], []
        row, step, ms = self.row, self.step, self.ms
        while len(row):
            rows.append(row)
            steps.append(step)
            times.append(ms)
            called = self.parent[row] >= 0
            row, step, ms = self.parent[row][called].astype(np.int64), step[called], ms[called]
        if not rows:
            return self._moments(row, step, ms)
        return self._moments(np.concatenate(rows), np.concatenate(steps), np.concatenate(times))

    def samples(self) -> Int64s:
        """Samples of each row with those that it calls."""
        seen = np.bincount(self.row, minlength=len(self.parent))
        return np.asarray(nesting.totals(self.parent, seen), np.int64)

    def _moments(self, row: Int64s, step: Int64s, ms: Floats) -> _Moments:
        count, n = len(self.parent), self.steps
        cell, of_cell = np.unique(row * n + step, return_inverse=True)
        time = np.bincount(of_cell.reshape(-1), ms, len(cell))
        mean = np.bincount(cell // n, time, count) / n
        # Steps without a sample of the row count with 0.
        squares = np.bincount(cell // n, (time - mean[cell // n]) ** 2, count)
        empty = n - np.bincount(cell // n, minlength=count)
        if n < 2:
            return _Moments(mean, np.full(count, np.nan))
        return _Moments(mean, (squares + empty * mean**2) / (n - 1))


def of_ops(tree: pd.DataFrame, side: str, scale: float) -> CallTree:
    """The ops on the device or host of a run, from the rows of `p.ops.tree`; `scale` makes their
    times those of a step.
    """
    rows = np.flatnonzero(tree["where"].to_numpy(object) == side)
    number = np.full(len(tree) + 1, -1, np.int32)
    number[rows] = np.arange(len(rows))
    ops = tree.iloc[rows]
    unknown = np.full(len(rows), np.nan)
    kinds, names = ops["kind"].tolist(), ops["name"].tolist()
    for row in np.flatnonzero((ops["kind"] == OP) & (ops["depth"] > 0)).tolist():
        # Its scopes are the nodes around it.
        names[row] = scopes(names[row])[-1]
    return CallTree(
        number[ops["parent"].to_numpy(np.int64)],
        [Frame(name) for name in names],
        list(zip(kinds, names, strict=True)),
        ops["self_us"].to_numpy(np.float64) * scale / 1000,
        ops["total_us"].to_numpy(np.float64) * scale / 1000,
        unknown,
        unknown,
        np.zeros(len(rows), np.int64),
        has_copy_numbers=True,
    )


def compared(before: CallTree, after: CallTree) -> pd.DataFrame:
    """The frames of both runs, each before those that it calls, siblings by the longer of the two
    times.

    A frame is the same if its key is, and its callers'; of ops, also if the names differ only in
    the numbers of copies and one is left on each side. Time that was not there is NA, and the
    change is then all of it.
    """
    pairs = _paired(before, after)
    count = len(pairs)
    if not count:
        return frames.empty("comparison.python")
    nodes = [after.nodes[b] if b >= 0 else before.nodes[a] for _, a, b in pairs]
    parents, *of_side = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    sides = list(zip(("before", "after"), (before, after), of_side, strict=True))
    columns = {}
    for name, tree, row in sides:
        for kind, times in (("self", tree.self_ms), ("total", tree.total_ms)):
            columns[f"{name}_{kind}_ms"] = _values_at(times, row)
    was, now = (columns[f"{name}_total_ms"] > 0 for name, *_ in sides)
    table = pd.DataFrame(
        {
            "parent": parents,
            "depth": nesting.depths(parents.astype(np.int32)),
            "name": [node.name for node in nodes],
            "file": [node.file for node in nodes],
            "line": pd.array([node.line for node in nodes], dtype="Int64"),
            "state": np.select([was & now, now], [_BOTH, _NEW], _GONE),
            **columns,
        }
    )
    table["line"] = table["line"].mask(table["line"] < 0)
    seen = np.maximum(*(_values_at(tree.samples, row, 0) for _, tree, row in sides))
    enough = (seen >= FEWEST) & (min(before.steps, after.steps) >= FEWEST)
    for kind, prefix in (("self", "self_"), ("total", "")):
        variances = []
        for _, tree, row in sides:
            of_step = _values_at(getattr(tree, f"{kind}_variance"), row, 0.0)
            variances.append(np.where(enough, of_step, np.nan) / max(tree.steps, 1))
        changes = _changes(table, kind, variances, (before.steps - 1, after.steps - 1))
        table[f"{prefix}change_ms"] = [change.change for change in changes]
        table[f"{prefix}margin_ms"] = [change.margin for change in changes]
        table[f"{prefix}real"] = pd.array(
            [change.real if change.has_interval else pd.NA for change in changes], dtype="boolean"
        )
    largest = table[["before_total_ms", "after_total_ms"]].max(axis=1).fillna(0.0)
    table = table[largest > 0]
    renumbered = np.full(count + 1, -1, np.int64)
    renumbered[table.index] = np.arange(len(table))
    table = table.assign(parent=renumbered[table["parent"].to_numpy()]).reset_index(drop=True)
    ordered = in_order(table, largest[largest > 0].to_numpy())
    return frames.shaped("comparison.python", ordered)


def _paired(before: CallTree, after: CallTree) -> list[tuple[int, int, int]]:
    """Each frame of either run after its caller: the pair of the caller, and its row before and
    after; -1 for none.
    """
    by_caller = [_children(tree) for tree in (before, after)]
    outermost = (children.get(-1, []) for children in by_caller)
    pending = [(-1, a, b) for a, b in _matched(before, after, *outermost)]
    pairs: list[tuple[int, int, int]] = []
    while pending:
        pair = pending.pop()
        here = len(pairs)
        pairs.append(pair)
        called = []
        for children, row in zip(by_caller, pair[1:], strict=True):
            called.append(children.get(row, []) if row >= 0 else [])
        pending += [(here, a, b) for a, b in _matched(before, after, *called)]
    return pairs


def _children(tree: CallTree) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for row, caller in enumerate(tree.parent.tolist()):
        children.setdefault(caller, []).append(row)
    return children


def _matched(
    before: CallTree, after: CallTree, before_rows: list[int], after_rows: list[int]
) -> list[tuple[int, int]]:
    """Pairs of the frames that one caller has in both runs; -1 where there is none."""
    matched: list[tuple[int, int]] = []
    levels = [lambda key: key]
    if after.has_copy_numbers:
        levels.append(lambda key: (*key[:-1], plain_name(key[-1])))
    for level in levels:
        by_key = [
            _by_key(tree, of_tree, level)
            for tree, of_tree in ((before, before_rows), (after, after_rows))
        ]
        for key, same in by_key[0].items():
            candidates = by_key[1].get(key, [])
            if len(same) == len(candidates) == 1:
                matched.append((same[0], candidates[0]))
        first, second = {a for a, _ in matched}, {b for _, b in matched}
        before_rows = [row for row in before_rows if row not in first]
        after_rows = [row for row in after_rows if row not in second]
    return [*matched, *((row, -1) for row in before_rows), *((-1, row) for row in after_rows)]


def _by_key(tree: CallTree, rows: list[int], level: Callable[[Key], Key]) -> dict[Key, list[int]]:
    by_key: dict[Key, list[int]] = {}
    for row in rows:
        by_key.setdefault(level(tree.keys[row]), []).append(row)
    return by_key


def plain_name(op: str) -> str:
    """The name of an op without the numbers that count copies: `model_1/dense_3/MatMul` is
    `model/dense/MatMul`.
    """
    return _COPY_NUMBER.sub("", str(op))


def _values_at(values: npt.NDArray[Any], row: Int64s, missing: float = np.nan) -> Floats:
    """The values of some rows of a run; `missing` for the row -1."""
    return np.append(values.astype(np.float64), missing)[row]


def _changes(
    table: pd.DataFrame, kind: str, variances: list[Floats], freedoms: tuple[int, int]
) -> list[Difference]:
    """The change of each row with its interval; `variances` are those of the two means."""
    before, after = (
        table[f"{name}_{kind}_ms"].fillna(0.0).to_numpy(np.float64) for name in ("before", "after")
    )
    changes = []
    for change, *parts in zip((after - before).tolist(), *variances, strict=True):
        variance = float(sum(parts))
        if not variance > 0:
            changes.append(Difference(change, math.nan, math.nan))
            continue
        freedom = variance**2 / sum(part**2 / n for part, n in zip(parts, freedoms, strict=True))
        margin = _quantile(max(1, int(freedom))) * math.sqrt(variance)
        changes.append(Difference(change, margin, freedom))
    return changes


@cache
def _quantile(freedom: int) -> float:
    """Student's t for the interval. Degrees of freedom are rounded down, as in printed tables, so
    that the rows of a tree share a few values.
    """
    return t_quantile(0.5 + LEVEL / 2, freedom)


def _same_file(file: str) -> str:
    if _CELL.match(file):
        return "Cell"
    match = _INSTALLED.match(file)
    if match is not None:
        return file[match.end() :].replace("\\", "/")
    return re.split(r"[/\\]", file)[-1]
