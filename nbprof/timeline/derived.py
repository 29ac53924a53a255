"""Derived lanes: steps, name scopes, framework ops, modules and ops of programs, from kernels.

These are the rules of TensorFlow Profiler for lines that were not recorded: the kernels of a stream
in time order, equal neighbours as one slice, scopes nested, and no slice across the border of a
step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core.runs import run_starts
from nbprof.core.trace import Events, Int64s
from nbprof.timeline.lanes import Kind, heading

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

Flags = npt.NDArray[np.bool_]

STEPS, SCOPES, OPS, MODULES, HLO = "Steps", "Name scope", "Framework ops", "XLA modules", "XLA ops"
TORCH_OPS, TORCH_MODULES = "Ops", "Modules"


@dataclass
class Line:
    """One derived lane. Its events are in any order, an outer one before inner ones as long.

    `name` int64[k] are codes of `DerivedLines`; `start` and `end` int64[k] ps. `args` has those of
    each event by key, and `feeds` int64[k] the event of the trace that used its result, or -1.
    """

    process: str
    title: str
    note: str
    kind: Kind
    host: str
    device: str
    name: Int64s
    start: Int64s
    end: Int64s
    folded: bool = False
    args: Sequence[Mapping[str, str]] = ()
    feeds: Int64s | None = None

    def order(self) -> npt.NDArray[np.intp]:
        """The events by (start, -duration)."""
        return np.lexsort((self.start - self.end, self.start))


@dataclass
class DerivedLines:
    """Derived lines and their new names: `short` and `full` text by code."""

    lines: list[Line] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    codes: dict[tuple[str, str], int] = field(default_factory=dict)

    def code(self, short: str, full: str = "") -> int:
        """The code of a name, a new one for a new name."""
        key = (short, full or short)
        code = self.codes.get(key)
        if code is None:
            code = self.codes[key] = len(self.short)
            self.short.append(key[0])
            self.full.append(key[1])
        return code

    def add(self, line: Line) -> None:
        """Adds a line with events."""
        if len(line.name):
            self.lines.append(line)

    def events(self, first_lane: int, first_name: int) -> Events:
        """All events, sorted by (lane, start, -duration)."""
        empty = np.zeros(0, np.int64)
        lane, name = [empty.astype(np.int32)], [empty.astype(np.int32)]
        start, duration = [empty], [empty]
        for number, line in enumerate(self.lines, first_lane):
            order = line.order()
            lane.append(np.full(len(order), number, np.int32))
            name.append((first_name + line.name[order]).astype(np.int32))
            start.append(line.start[order])
            duration.append((line.end - line.start)[order])
        return Events(
            np.concatenate(lane),
            np.concatenate(name),
            np.concatenate(start),
            np.concatenate(duration),
        )

    def args(self) -> dict[int, dict[str, str]]:
        """Args by the row of an event in `events`."""
        result = {}
        for first, line in self._offsets():
            if len(line.args):
                for row, index in enumerate(line.order().tolist(), first):
                    result[row] = dict(line.args[index])
        return result

    def feeds(self) -> tuple[Int64s, Int64s]:
        """Rows in `events`, and the event of the trace that each feeds."""
        rows, fed = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first, line in self._offsets():
            if line.feeds is not None:
                ordered = line.feeds[line.order()]
                rows.append(first + np.flatnonzero(ordered >= 0))
                fed.append(ordered[ordered >= 0])
        return np.concatenate(rows), np.concatenate(fed)

    def _offsets(self) -> Iterator[tuple[int, Line]]:
        """Each line with the row of its first event."""
        first = 0
        for line in self.lines:
            yield first, line
            first += len(line.name)


def runs(
    level: Sequence[Int64s], start: Int64s, end: Int64s, group: Int64s
) -> tuple[Int64s, Int64s, Int64s, list[Flags]]:
    """Equal neighbours as one, on each level.

    Parameters
    ----------
    level : sequence of int64[n]
        By level, outermost first, the code of each row, -1 for none. Rows with equal codes on a
        level have equal codes on all levels above it.
    start, end : int64[n]
        ps, rows in the order of time.
    group : int64[n]
        Neighbours of different groups stay separate.

    Returns
    -------
    codes, start, end : int64[k]
        Outer levels before inner ones.
    begins : list of bool[n]
        By level, the rows that begin a slice.
    """
    parts: list[tuple[Int64s, Int64s, Int64s]] = []
    begins: list[Flags] = []
    for codes in level:
        rows = run_starts(codes, group)
        new = np.zeros(len(codes), np.bool_)
        new[rows] = True
        begins.append(new)
        if not len(rows):
            continue
        has_code = codes[rows] >= 0
        parts.append(
            (
                codes[rows][has_code],
                np.minimum.reduceat(start, rows)[has_code],
                np.maximum.reduceat(end, rows)[has_code],
            )
        )
    if not parts:
        none = np.zeros(0, np.int64)
        return none, none, none, begins
    codes, first, last = map(np.concatenate, zip(*parts, strict=True))
    return codes, first, last, begins


def stream_title(title: str, thread: str, rank: int, streams: int) -> tuple[str, str]:
    """Title and note of a line of a stream; the busiest stream of a device has the plain title."""
    if rank:
        return f"{title} · {thread}", ""
    return title, thread if streams > 1 else ""


def chains(paths: Sequence[Sequence[int]]) -> tuple[list[Int64s], Int64s]:
    """Paths of names as levels for `runs`, outermost first.

    Returns
    -------
    levels : list of int64[paths]
        The number of each path's part down to that level, -1 below its end.
    names : int64[parts]
        The last name of each part.
    """
    depth = max((len(path) for path in paths), default=0)
    result = [np.full(len(paths), -1, np.int64) for _ in range(depth)]
    seen: dict[tuple[int, ...], int] = {}
    for i, path in enumerate(paths):
        for level in range(len(path)):
            result[level][i] = seen.setdefault(tuple(path[: level + 1]), len(seen))
    return result, np.array([part[-1] for part in seen], np.int64)


def steps_of_hosts(run: Drawable, derived: DerivedLines, hosts: int, without: set[str]) -> None:
    """Adds a lane of the steps of each host, as in the table of steps.

    `hosts` is the name of hosts, `without` those that have such a lane. A run that was recorded
    as one step gets none.
    """
    steps = run.steps
    if not len(steps) or run.activity.unit.is_recording:
        return
    host = steps["host"].astype(str).to_numpy(object)
    start, end = step_bounds(steps)
    codes = [derived.code(str(label)) for label in steps["name"].tolist()]
    for name in dict.fromkeys(host.tolist()):
        if name in without:
            continue
        rows = np.flatnonzero(host == name)
        derived.add(
            Line(
                heading(name, "Host", hosts),
                STEPS,
                "",
                "steps",
                name,
                "-1",
                np.array(codes, np.int64)[rows],
                start[rows],
                end[rows],
            )
        )
