"""Times of the iterations of a notebook's loops, and the loop that is the unit of work.

A recording stores them next to the trace. Times are in ns since 1970, so that they can be placed on
the clock of a trace.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from nbprof.core.stored_columns import is_count, pack, unpack
from nbprof.core.trace import Int32s, Int64s

MOST = 100_000
"""Iterations whose times a recording stores at most: about a MB."""
_COLUMNS = 3
_MOST_LOOPS = 10_000
_TEXT = 80

FOR, WHILE, COMPREHENSION = "for", "while", "comprehension"
KINDS = (FOR, WHILE, COMPREHENSION)


@dataclass(frozen=True)
class Loop:
    """One loop of the notebook's code on one thread; several executions of it count as one loop.

    Parameters
    ----------
    cell : str
        The cell by the stem of its file, or the file's name where it has no stem.
    number : int
        The execution count of that cell; 0 for the recorded cell itself or if unknown.
    line : int
        The line of the loop's head in the cell, from 1.
    text : str
        Source of the head, such as ``for x, y in loader:``.
    kind : str
        One of `KINDS`.
    thread : int
        Number of the thread in the operating system.
    count : int or None
        Iterations that began and ended in the recording; None if not known exactly.
    total_ns : int
        Time from the begin to the end of the loop.
    wait_ns : int
        Time in which the iterations with stored times waited for their item.
    inside : dict of int to int
        The loops that it was entered from, by their index, and its time in ns in each.
    overlaps : bool
        True if it ran several times at once on its thread, so that its iterations interleave.
    """

    cell: str
    number: int
    line: int
    text: str
    kind: str
    thread: int
    count: int | None
    total_ns: int
    wait_ns: int
    inside: dict[int, int] = field(default_factory=dict)
    overlaps: bool = False

    def packed(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {**vars(self), "inside": {str(index): ns for index, ns in self.inside.items()}}

    @classmethod
    def unpacked(cls, values: object) -> Loop | None:
        """The loop that `packed` described; None for anything else."""
        kinds: dict[str, Any] = {
            **dict.fromkeys(("cell", "text", "kind"), str),
            **dict.fromkeys(("number", "line", "thread", "total_ns", "wait_ns"), int),
            "count": (int, type(None)),
            "inside": dict,
            "overlaps": bool,
        }
        if not isinstance(values, dict) or values.keys() != kinds.keys():
            return None
        if not all(isinstance(values[name], kind) for name, kind in kinds.items()):
            return None
        numbers = [value for name, value in values.items() if kinds[name] is int]
        count, time_in_parent = values["count"], values["inside"]
        parents = [str(index) for index in time_in_parent]
        if not all(index.isascii() and index.isdigit() for index in parents):
            return None
        if not all(map(is_count, (*numbers, *time_in_parent.values(), count or 0))):
            return None
        if values["kind"] not in KINDS:
            return None
        ns_in_parent = dict(zip(map(int, parents), time_in_parent.values(), strict=True))
        return cls(**{**values, "inside": ns_in_parent})


@dataclass
class LoopTimes:
    """The loops that ran in a recording, and the times of their iterations.

    Attributes
    ----------
    begin_ns, end_ns : int
        The recording, in ns since 1970.
    loops : list of Loop
    loop : int32[n]
        The loop of each iteration, as an index into `loops`; iterations are sorted by it and time.
    asked : int64[n]
        Begin of the iteration, which requests its item, in ns since 1970.
    got : int64[n]
        Arrival of the item.
    ended : int64[n]
        Request for the next item, or end of the loop.
    """

    begin_ns: int
    end_ns: int
    loops: list[Loop]
    loop: Int32s
    asked: Int64s
    got: Int64s
    ended: Int64s

    def packed(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        counts = np.bincount(self.loop, minlength=len(self.loops)).tolist()
        columns = (
            np.diff(self.asked, prepend=self.begin_ns),
            self.got - self.asked,
            self.ended - self.got,
        )
        loops = []
        for loop, count in zip(self.loops, counts, strict=True):
            loops.append({**loop.packed(), "rows": count})
        return {
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "loops": loops,
            "times": pack(columns),
        }

    @classmethod
    def unpacked(cls, values: object) -> LoopTimes | None:
        """The object that `packed` described; None for anything else."""
        if not isinstance(values, dict):
            return None
        begin, end, described = (values.get(key) for key in ("begin_ns", "end_ns", "loops"))
        if not (is_count(begin) and is_count(end) and isinstance(described, list)):
            return None
        assert isinstance(begin, int)
        assert isinstance(end, int)
        loops, counts = [], []
        for each in described[: _MOST_LOOPS + 1]:
            if not isinstance(each, dict) or not is_count(each.get("rows")):
                return None
            loop = Loop.unpacked({key: value for key, value in each.items() if key != "rows"})
            if loop is None:
                return None
            loops.append(loop)
            counts.append(min(each["rows"], MOST + 1))
        parents = {parent for loop in loops for parent in loop.inside}
        if len(loops) > _MOST_LOOPS or max(parents, default=-1) >= len(loops):
            return None
        rows = sum(counts)
        columns = unpack(values.get("times"), _COLUMNS, rows) if rows <= MOST else None
        if columns is None:
            return None
        asked = np.cumsum(columns[0]) + begin
        got = asked + columns[1]
        loop_of = np.repeat(np.arange(len(loops), dtype=np.int32), counts)
        times = cls(begin, end, loops, loop_of, asked, got, got + columns[2])
        return times if times._in_order() else None

    def _in_order(self) -> bool:
        """True if iterations of a loop follow one another within the recording."""
        if not self.begin_ns <= self.end_ns:
            return False
        if not len(self.asked):
            return True
        if (self.asked < self.begin_ns).any() or (self.ended > self.end_ns).any():
            return False
        if (self.got < self.asked).any() or (self.ended < self.got).any():
            return False
        same = self.loop[1:] == self.loop[:-1]
        return not (same & (self.asked[1:] < self.ended[:-1])).any()

    def rows(self, index: int) -> slice:
        """The iterations of a loop."""
        return slice(*np.searchsorted(self.loop, [index, index + 1]).tolist())


# Choice of the loop whose iterations are the unit of work.

LEAST_SHARE = 0.5
"""Share of the recording that a loop takes at least."""
_INNER_SHARE = 0.7
"""Share of a loop's time that an inner loop must take to be the unit."""
_INNER_LEAST_NS = 500_000
"""Mean iteration of an inner loop that can replace the outer one as the unit of work; shorter
iterations are parts of a unit.
"""
_FEW = 8
LEAST_NS = 20_000
"""Mean iteration of a loop that can be a unit of work."""
LEAST_COUNT = 3
_EPOCH = re.compile(r"epochs?|ep|e", re.IGNORECASE)
_EPOCHS = re.compile(r"(?:\w*_)?(?:n|num|max)?epochs?", re.IGNORECASE)
"""Names of epochs among the targets of a loop, and in its iterable."""
_NAME = re.compile(r"[^\W\d]\w*")
_PARTS = re.compile(
    r"(?:.*_)?"
    r"(?:layers?|blocks?|stages?|heads?|params?|parameters?|weights?|modules?|micro\w*|accum\w*)"
    r"(?:_\w+)?",
    re.IGNORECASE,
)
"""Names of the parts of a step: a loop over them is inside a step."""


@dataclass(frozen=True)
class Iterations:
    """The iterations that are the unit of work, in time order and without overlap.

    Attributes
    ----------
    start_ns, item_ns, end_ns : int64[n]
        Request for the item, its arrival, and the end of each iteration, in ns since 1970.
    loop : Loop
        The loop of the iterations.
    sampled : bool
        True if only some of the iterations have stored times.
    """

    start_ns: Int64s
    item_ns: Int64s
    end_ns: Int64s
    loop: Loop
    sampled: bool = False

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def cell(self) -> str:
        """The cell by the stem of its file."""
        return self.loop.cell

    @property
    def line(self) -> int:
        """The line of the loop's head."""
        return self.loop.line

    @property
    def text(self) -> str:
        """The head of the loop, as it was written."""
        return self.loop.text

    @property
    def count(self) -> int:
        """Number of iterations."""
        if self.loop.count is None:
            return len(self)
        return self.loop.count

    @property
    def waits(self) -> bool:
        """True if the loop requests items, so that waiting for them is input."""
        return self.loop.kind != WHILE

    @property
    def how(self) -> str:
        """A line for the receipt that names the loop and how to choose another one."""
        text = self.text
        if len(text) > _TEXT:
            text = f"{text[: _TEXT - 1]}…"
        location = f"line {self.line}"
        if self.loop.number:
            location += f" of cell [{self.loop.number}]"
        elif self.cell.endswith(".py"):
            location += f" of {PurePath(self.cell).name}"
        noted = ""
        if self.sampled:
            noted = f", of which {len(self):,} were timed"
        return (
            f"Steps are the {self.count:,} iterations of the loop in {location}, `{text}`{noted}; "
            "`for … in nbprof.steps(…)` around another loop makes its iterations the steps."
        )


def choose(times: LoopTimes | None, least_share: float = LEAST_SHARE) -> Iterations | None:
    """The iterations of the loop in which the recorded cell spends its time.

    The search begins at the outermost loop with enough of the recording and goes down into loops
    that take most of the outer one: from epochs to batches, but not from batches to their layers.

    Parameters
    ----------
    times : LoopTimes or None
    least_share : float
        Share of the recording that the loop takes at least.

    Returns
    -------
    Iterations or None
        None if no loop takes enough of the recording, or its iterations are too few or too short to
        be a unit of work.
    """
    if times is None:
        return None
    index = _outermost(times, least_share * (times.end_ns - times.begin_ns))
    chosen: int | None = None
    seen: set[int] = set()
    while index is not None and index not in seen:
        seen.add(index)
        if _is_unit(times, index):
            chosen = index
        index = _inner(times, index)
    if chosen is None:
        return None
    loop, rows = times.loops[chosen], times.rows(chosen)
    noted = rows.stop - rows.start
    sampled = loop.count is None or loop.count > noted
    return Iterations(times.asked[rows], times.got[rows], times.ended[rows], loop, sampled)


def _outermost(times: LoopTimes, least_ns: float) -> int | None:
    """The longest loop that mostly runs outside of other loops."""
    candidates = []
    for index, loop in enumerate(times.loops):
        nested_ns = sum(ns for parent, ns in loop.inside.items() if parent != index)
        if loop.total_ns >= max(least_ns, 1) and 2 * nested_ns <= loop.total_ns:
            candidates.append(index)
    # The first of the longest ones.
    return max(candidates, key=lambda index: times.loops[index].total_ns, default=None)


def _inner(times: LoopTimes, outer: int) -> int | None:
    """The inner loop that takes most of an outer one, unless the outer one is the better unit."""
    around = times.loops[outer]
    indices = [index for index in range(len(times.loops)) if index != outer]
    # The first of the longest ones.
    inner = max(indices, key=lambda index: times.loops[index].inside.get(outer, 0), default=None)
    if inner is None:
        return None
    inner_ns = times.loops[inner].inside.get(outer, 0)
    covered_ns = inner_ns
    if _over_epochs(around) and inner_ns >= LEAST_SHARE * around.total_ns:
        # Epochs train and validate, each in a loop.
        covered_ns = sum(times.loops[index].inside.get(outer, 0) for index in indices)
    if covered_ns < _INNER_SHARE * around.total_ns:
        return None
    if _is_unit(times, outer) and not _over_epochs(around):
        loop = times.loops[inner]
        if (
            _fewer(loop, _FEW, around)
            or _over_parts(loop)
            or _mean_ns(times, inner) < _INNER_LEAST_NS
        ):
            return None
    return inner


def _is_unit(times: LoopTimes, index: int) -> bool:
    loop, rows = times.loops[index], times.rows(index)
    if loop.overlaps or loop.count is None or rows.stop - rows.start < LEAST_COUNT:
        return False
    return _mean_ns(times, index) >= LEAST_NS


def _mean_ns(times: LoopTimes, index: int) -> float:
    """Mean duration of the iterations of a loop; infinite without any."""
    loop, rows = times.loops[index], times.rows(index)
    means = [math.inf]
    if loop.count:
        # Iterations without stored times are short ones.
        means.append(loop.total_ns / loop.count)
    if rows.stop > rows.start:
        means.append(float((times.ended[rows] - times.asked[rows]).mean()))
    return min(means)


def _fewer(inner: Loop, per_iteration: int, outer: Loop) -> bool:
    """True if each of several outer iterations has fewer than `per_iteration` inner ones."""
    if outer.count is None or inner.count is None:
        return False
    return outer.count >= _FEW and inner.count < per_iteration * outer.count


def _over_epochs(loop: Loop) -> bool:
    targets, over = _head(loop)
    return any(map(_EPOCH.fullmatch, targets)) or any(map(_EPOCHS.fullmatch, over))


def _over_parts(loop: Loop) -> bool:
    targets, over = _head(loop)
    return any(map(_PARTS.fullmatch, (*targets, *over)))


def _head(loop: Loop) -> tuple[list[str], list[str]]:
    """Names among the targets of a `for` loop, and names in its iterable."""
    if loop.kind != FOR:
        return [], []
    targets, _, over = loop.text.partition(" in ")
    return _NAME.findall(targets.removeprefix("async ").removeprefix("for ")), _NAME.findall(over)
