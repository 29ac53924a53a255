"""Lanes that follow from others: steps, name scopes, framework ops, modules and ops of compiled
programs, made of a device's kernels.

Rules are those by which TensorFlow Profiler makes these lines where the recorder has not: the
kernels of a stream in time order, equal neighbours as one slice, scopes nested, and nothing
reaching over the border of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core.trace import Events, Int64s
from nbprof.timeline.lanes import Kind, heading

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

Flags = npt.NDArray[np.bool_]

STEPS, SCOPES, OPS, MODULES, HLO = "Steps", "Name scope", "Framework ops", "XLA modules", "XLA ops"
TORCH_OPS, TORCH_MODULES = "Ops", "Modules"


@dataclass
class Line:
    """One lane to be: its events in any order, an outer one before the inner ones that begin and
    end with it.

    `name` int64[k] are codes of `Made`; `start` and `end` int64[k] ps.
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


@dataclass
class Made:
    """Lines with the names that they add: `short` and `full` text by code."""

    lines: list[Line] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    codes: dict[tuple[str, str], int] = field(default_factory=dict)

    def code(self, short: str, full: str = "") -> int:
        """The code of a name; a new one when it was not seen before."""
        key = (short, full or short)
        code = self.codes.get(key)
        if code is None:
            code = self.codes[key] = len(self.short)
            self.short.append(key[0])
            self.full.append(key[1])
        return code

    def add(self, line: Line) -> None:
        """Adds a line, unless nothing is in it."""
        if len(line.name):
            self.lines.append(line)

    def events(self, first_lane: int, first_name: int) -> Events:
        """All events, sorted by (lane, start, -duration)."""
        parts: list[tuple[npt.NDArray[np.int32], ...]] = []
        spans: list[tuple[Int64s, Int64s]] = []
        for i, line in enumerate(self.lines):
            order = np.lexsort((line.start - line.end, line.start))
            parts.append(
                (
                    np.full(len(order), first_lane + i, np.int32),
                    (first_name + line.name[order]).astype(np.int32),
                )
            )
            spans.append((line.start[order], (line.end - line.start)[order]))
        if not parts:
            none = np.zeros(0, np.int64)
            return Events(none.astype(np.int32), none.astype(np.int32), none, none)
        lane, name = (np.concatenate([part[i] for part in parts]) for i in range(2))
        start, duration = (np.concatenate([span[i] for span in spans]) for i in range(2))
        return Events(lane, name, start, duration)


def runs(
    level: Sequence[Int64s], start: Int64s, end: Int64s, group: Int64s
) -> tuple[Int64s, Int64s, Int64s, list[Flags]]:
    """Equal neighbours as one, on each level.

    Parameters
    ----------
    level : sequence of int64[n]
        By level, outermost first, what each row is there, -1 for nothing. A row that is alike on a
        level is alike on all above it.
    start, end : int64[n]
        ps, rows in the order of time.
    group : int64[n]
        Neighbours for which this differs are never one.

    Returns
    -------
    what, start, end : int64[k]
        Outer levels before inner ones.
    begins : list of bool[n]
        By level, where something begins.
    """
    parts: list[tuple[Int64s, Int64s, Int64s]] = []
    begins: list[Flags] = []
    starts_group = np.append(True, group[1:] != group[:-1]) if len(group) else np.zeros(0, np.bool_)
    for codes in level:
        new = (
            starts_group | np.append(True, codes[1:] != codes[:-1]) if len(codes) else starts_group
        )
        begins.append(new)
        rows = np.flatnonzero(new)
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
    codes, first, last = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return codes, first, last, begins


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


def steps_of_hosts(run: Drawable, derived: Made, hosts: int, without: set[str]) -> None:
    """A lane of the steps of each host, as the table of steps has them; `hosts` is how many there
    are, `without` those that need none.

    The recording as a whole needs none.
    """
    steps = run.steps
    if not len(steps) or run.activity.unit.is_recording:
        return
    host = steps["host"].astype(str).to_numpy(object)
    start, end = step_bounds(steps)
    names = [derived.code(str(name)) for name in steps["name"].tolist()]
    for number in dict.fromkeys(host.tolist()):
        if number in without:
            continue
        rows = np.flatnonzero(host == number)
        derived.add(
            Line(
                heading(number, "Host", hosts),
                STEPS,
                "",
                "steps",
                number,
                "-1",
                np.array(names, np.int64)[rows],
                start[rows],
                end[rows],
            )
        )
