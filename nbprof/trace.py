"""What happened, when, on which lane: columns over every event of a profile, never an object an event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

INT, UINT, DOUBLE, TEXT, BYTES = 1, 2, 3, 4, 5


@dataclass
class Note:
    """One line of the receipt."""

    level: Literal["info", "warning"]
    text: str


@dataclass
class Receipt:
    """What was read, skipped, clipped or looks wrong. Nothing is dropped without a line here."""

    events: int = 0
    dropped: int = 0
    lines: list[Note] = field(default_factory=list)

    def info(self, text: str) -> None:
        """Add a plain fact."""
        self._add("info", text)

    def warn(self, text: str) -> None:
        """Add something that lowers the trust in the numbers."""
        self._add("warning", text)

    def _add(self, level: Literal["info", "warning"], text: str) -> None:
        note = Note(level, text)
        if note not in self.lines:
            self.lines.append(note)

    def __str__(self) -> str:
        head = f"{self.events:,} events read, {self.dropped:,} dropped"
        return "\n".join([head, *(f"{'!' if n.level == 'warning' else '-'} {n.text}" for n in self.lines)])


@dataclass
class ArgColumn:
    """The values of one arg (stat), for the events that have it.

    Attributes
    ----------
    event : int32[k]
        Event index, ascending.
    kind : uint8[k]
        INT, UINT, DOUBLE, TEXT or BYTES.
    value : int64[k]
        The number; the bits of a double; for TEXT and BYTES the code into `Trace.strings` / `Trace.blobs`.
    """

    event: Int32s
    kind: npt.NDArray[np.uint8]
    value: Int64s

    def dense(self, events: int, missing: int = -1, *, text: bool = False) -> Int64s:
        """Integers for all events, or string codes with `text`; `missing` where the event has no such arg of that type."""
        out = np.full(events, missing, np.int64)
        fits = (self.kind == TEXT) if text else (self.kind == INT) | (self.kind == UINT)
        out[self.event[fits]] = self.value[fits]
        return out

    def floats(self) -> npt.NDArray[np.float64]:
        """The values as float64, whatever number type they were written as."""
        return np.where(self.kind == DOUBLE, self.value.view(np.float64), self.value.astype(np.float64))


@dataclass
class Plane:
    """One group of lanes (a process or a device) and the facts that the producer states about it."""

    host: str
    name: str
    stats: dict[str, object]


@dataclass
class Events:
    """Events as columns, sorted by (lane, start, -duration).

    `lane` int32, `name` int32 (code into `Trace.names`), `start` and `duration` int64 ps; start counts from `Trace.epoch_ns`.
    `parent` int32 is the innermost event on the same lane that contains this one, or -1.
    """

    lane: Int32s
    name: Int32s
    start: Int64s
    duration: Int64s
    parent: Int32s
    depth: npt.NDArray[np.uint16]
    self_time: Int64s

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Int64s:
        """Where each event ends, ps."""
        return self.start + self.duration


@dataclass
class Trace:
    """One profile as columns.

    Attributes
    ----------
    events : Events
    names : object[names]
        Full name by name code.
    display : object[names]
        Short name by name code; equal to the full one where the producer gives none.
    lanes : DataFrame
        One row a lane: `lane host process thread line_id plane kind device note events order`. `kind` is filled by the dialect.
    planes : list of Plane
    args : dict of str to ArgColumn
    name_args : dict of str to dict of int to object
        Args that hold for every event of a name: arg name -> name code -> value.
    strings : list of str
    modules : list of (str, bytes-like)
        Compiled programs as the file has them, not decoded.
    """

    events: Events
    names: npt.NDArray[np.object_]
    display: npt.NDArray[np.object_]
    lanes: pd.DataFrame
    planes: list[Plane]
    args: dict[str, ArgColumn]
    name_args: dict[str, dict[int, object]]
    strings: list[str]
    modules: list[tuple[str, int, bytes]]
    hosts: list[str]
    epoch_ns: int
    receipt: Receipt
    name_category: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    """By name code: index into the step-time categories + 1, 0 for none; filled by the dialect."""

    def arg(self, name: str, missing: int = -1) -> Int64s:
        """The integers of one arg for all events; `missing` where there is none."""
        column = self.args.get(name)
        if column is None:
            return np.full(len(self.events), missing, np.int64)
        return column.dense(len(self.events), missing)

    def text_arg(self, name: str) -> Int64s:
        """The string codes of one arg for all events; -1 where there is none."""
        column = self.args.get(name)
        if column is None:
            return np.full(len(self.events), -1, np.int64)
        return column.dense(len(self.events), text=True)

    def texts(self, codes: Int64s) -> list[str]:
        """Strings by code; the empty text for a negative code."""
        strings = self.strings
        return [strings[c] if c >= 0 else "" for c in codes.tolist()]


def nest(lane: Int32s, start: Int64s, duration: Int64s) -> tuple[Int32s, npt.NDArray[np.uint16], Int64s]:
    """Parent, depth and self time of events that are sorted by (lane, start, -duration).

    The parent is the innermost event of the lane that includes the event (closed intervals); self time is the duration
    less that of the direct children.
    """
    count = len(start)
    parent = [-1] * count
    depth = [0] * count
    ends = (start + duration).tolist()
    stack: list[int] = []
    last_lane = -1
    for i, where in enumerate(lane.tolist()):
        if where != last_lane:
            stack.clear()
            last_lane = where
        end = ends[i]
        while stack and ends[stack[-1]] < end:
            stack.pop()
        if stack:
            parent[i] = stack[-1]
            depth[i] = len(stack)
        stack.append(i)
    parents = np.array(parent, np.int32)
    has = parents >= 0
    inner = np.zeros(count, np.int64)
    np.add.at(inner, parents[has], duration[has])
    return parents, np.minimum(np.array(depth, np.int64), 65535).astype(np.uint16), duration - inner
