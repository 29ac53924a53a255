"""What happened, when, on which lane: columns over every event of a profile, never an object an
event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import nesting
from nbprof.core.files import join_some

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

INT, UINT, DOUBLE, TEXT, BYTES = 1, 2, 3, 4, 5
_FEW = 8
"""Of one in so many events an arg is looked up."""


@dataclass
class Note:
    """One line of the receipt."""

    level: Literal["info", "warning"]
    text: str


@dataclass(frozen=True)
class Cut:
    """A file that is cut off or damaged, and was read in part.

    Attributes
    ----------
    host : int
        The number of its host in the run.
    file : str
    what : str
        Where it ends, and what of it was read.
    """

    host: int
    file: str
    what: str


@dataclass
class Receipt:
    """What was read, skipped, clipped or looks wrong. Nothing is dropped without a line here."""

    events: int = 0
    notes: list[Note] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    """Events that were left out, counted by reason."""
    cut: list[Cut] = field(default_factory=list)
    """Files that were read in part; they have one note together, `about_cut`."""

    @property
    def dropped(self) -> int:
        """How many events were left out."""
        return sum(self.skipped.values())

    def skip(self, reason: str, count: int = 1) -> None:
        """Count events that are left out; the reason ends the sentence "3 events ..."."""
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def info(self, text: str) -> None:
        """Add a plain fact."""
        self._add("info", text)

    def warn(self, text: str) -> None:
        """Add something that lowers the trust in the numbers."""
        self._add("warning", text)

    def cut_off(self, truncated: Cut) -> None:
        """Add a file of which only a part was read."""
        old = self.about_cut
        index = self.notes.index(old) if old in self.notes else len(self.notes)
        self.cut.append(truncated)
        self.notes[index : index + 1] = [note for note in [self.about_cut] if note is not None]

    @property
    def about_cut(self) -> Note | None:
        """The note on the files that were read in part; None where all were read to their end."""
        if not self.cut:
            return None
        first = self.cut[0]
        if len(self.cut) == 1:
            return Note("warning", f"{first.file}: {first.what}")
        names = join_some([truncated.file for truncated in self.cut], 3)
        return Note(
            "warning",
            f"{len(self.cut):,} files were read in part: {names}. Of the first: {first.what} All"
            " are in p.pods.missing.",
        )

    def _add(self, level: Literal["info", "warning"], text: str) -> None:
        note = Note(level, text)
        if note not in self.notes:
            self.notes.append(note)

    def __str__(self) -> str:
        head = (
            f"{self.events:,} {'event' if self.events == 1 else 'events'} read, {self.dropped:,}"
            " dropped"
        )
        return "\n".join(
            [head, *(f"{'!' if n.level == 'warning' else '-'} {n.text}" for n in self.lines)]
        )

    @property
    def lines(self) -> list[Note]:
        """What was left out first, then the notes."""
        left_out = [
            Note("warning", f"{count:,} {'event' if count == 1 else 'events'} {reason}")
            for reason, count in self.skipped.items()
        ]
        return left_out + self.notes


@dataclass
class ArgColumn:
    """The values of one arg (stat), for the events that have it.

    Attributes
    ----------
    event : int32[k]
        Event index, ascending.
    kind : uint8[k] or int
        INT, UINT, DOUBLE, TEXT or BYTES; one number where all rows are of one kind.
    value : integers[k]
        The number; the bits of a double (int64); for TEXT and BYTES the code into `Trace.strings` /
        `Trace.blobs`. Of any integer type that holds them.
    """

    event: Int32s
    kind: npt.NDArray[np.uint8] | int
    value: npt.NDArray[np.signedinteger | np.unsignedinteger]

    def __len__(self) -> int:
        return len(self.event)

    @property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """The kind of each row, uint8[k]."""
        return (
            np.full(len(self.event), self.kind, np.uint8)
            if isinstance(self.kind, int)
            else self.kind
        )

    @property
    def values(self) -> Int64s:
        """The value of each row, int64[k]; an unsigned number of 2^63 or more as its two's
        complement.
        """
        return self.value.astype(np.int64, copy=False)

    def of(self, *kinds: int) -> tuple[Int32s, Int64s]:
        """Events and values of the rows of some kinds."""
        event, value = self._of(kinds)
        return event, value.astype(np.int64, copy=False)

    def _of(self, kinds: tuple[int, ...]) -> tuple[Int32s, npt.NDArray[np.integer]]:
        if isinstance(self.kind, int):
            return (
                (self.event, self.value) if self.kind in kinds else (self.event[:0], self.value[:0])
            )
        rows = np.isin(self.kind, kinds)
        return self.event[rows], self.value[rows]

    def dense(self, events: int, missing: int = -1, *, text: bool = False) -> Int64s:
        """Integers for all events, or string codes with `text`; `missing` where the event has no
        such arg of that type.
        """
        dense = np.full(events, missing, np.int64)
        event, values = self._of((TEXT,) if text else (INT, UINT))
        # An unsigned number becomes its two's complement.
        dense[event] = values if values.dtype != np.uint64 else values.view(np.int64)
        return dense

    def at(self, rows: Int64s, missing: int = -1, *, text: bool = False) -> Int64s:
        """The same of a few events, in any order, which are looked up."""
        event, values = self._of((TEXT,) if text else (INT, UINT))
        index = np.searchsorted(event, rows.astype(event.dtype), side="right") - 1
        looked_up = np.full(len(rows), missing, np.int64)
        present = np.flatnonzero(index >= 0)
        present = present[event[index[present]] == rows[present]]
        looked_up[present] = values[index[present]].astype(np.int64, copy=False)
        return looked_up

    def floats(self) -> npt.NDArray[np.float64]:
        """The numbers of all rows as float64, whatever number type they were written as; NaN for
        texts.
        """
        kinds, values = self.kinds, self.values
        numbers = values.astype(np.float64)
        numbers[kinds == UINT] = values[kinds == UINT].view(np.uint64)
        numbers[kinds == DOUBLE] = values[kinds == DOUBLE].view(np.float64)
        numbers[(kinds == TEXT) | (kinds == BYTES)] = np.nan
        return numbers


@dataclass
class Flows:
    """Points of flow arrows as columns, in the order of the file; arrows join equal (category, id).

    `phase` uint8: 0 start, 1 step, 2 finish. `id` int64, below -1 for one that is a text;
    `category` int32, a code into `Trace.strings`. `lane` int32 and `time` int64 ps say where the
    point is; `enclosing` tells that it belongs to the slice around it, not to the next one.
    """

    phase: npt.NDArray[np.uint8]
    id: Int64s
    category: Int32s
    lane: Int32s
    time: Int64s
    enclosing: npt.NDArray[np.bool_]


@dataclass
class Module:
    """One compiled program (an HLO proto) as the file has it, not decoded; `host` is an index into
    `Trace.hosts`.

    One that was not `read` has something in place of its data that tells it from others.
    """

    name: str
    ident: int
    data: bytes
    host: int = 0
    read: bool = True

    @property
    def title(self) -> str:
        """The name, which has the ident behind it as in `jit_step(8)`; without it where the ident
        is 0.

        TensorFlow on the CPU gives each program that number: it tells none from another.
        """
        return self.name.removesuffix("(0)") if self.ident == 0 else self.name


COUNTER_COLUMNS = {"lane": "i4", "series": "object", "time": "i8", "value": "f8"}


def no_counters() -> pd.DataFrame:
    """Counter samples of a trace that has none: `lane series time value` (time in ps)."""
    return _no_counters().copy()


@cache
def _no_counters() -> pd.DataFrame:
    return pd.DataFrame({name: np.zeros(0, dtype) for name, dtype in COUNTER_COLUMNS.items()})


@dataclass
class Plane:
    """One group of lanes (a process or a device) and the facts that the producer states about
    it.
    """

    host: str
    name: str
    stats: dict[str, object]
    ident: int = 0
    """The number that the file gives it."""


@dataclass
class Events:
    """Events as columns, sorted by (lane, start, -duration).

    `lane` int32, `name` int32 (code into `Trace.names`), `start` and `duration` int64 ps; start
    counts from `Trace.epoch_ns`.
    """

    lane: Int32s
    name: Int32s
    start: Int64s
    duration: Int64s

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Int64s:
        """Where each event ends, ps."""
        return self.start + self.duration

    @cached_property
    def parent(self) -> Int32s:
        """The innermost event on the same lane that contains each event, or -1."""
        return nesting.parents(self.lane, self.start, self.duration)

    @cached_property
    def depth(self) -> npt.NDArray[np.uint16]:
        """How many events of its lane each event lies in."""
        return nesting.depths(self.parent)

    @cached_property
    def self_time(self) -> Int64s:
        """Each event's duration without that of the events directly in it, ps; 0 where these
        overlap and are longer together.
        """
        return np.maximum(nesting.self_times(self.parent, self.duration), 0)


@dataclass(eq=False)
class Table:
    """One table that a recording of Ascend's profilers has beside its events.

    Attributes
    ----------
    kind : str
        `op_summary`, `op_statistic`, `step_trace`, ... whatever the file was called; '' for a
        header that no exporter is known to write.
    device : int or None
        The device of all its rows; None where they are of several, or of the host.
    rank : int or None
        Of the process that recorded it, if known.
    frame : DataFrame
        Columns with units in their names (`_us`, `_bytes`); moments end in `_ps` and count from the
        begin of the trace.
    header : list of str
        As the file has it.
    source : str
        Its files.
    doubts : list of str
        Ends of sentences that begin with `source`.
    host : int
        Which recording, an index into `Trace.hosts`.
    base_ns : int
        What the moments count from.
    """

    kind: str
    device: int | None
    rank: int | None
    frame: pd.DataFrame
    header: list[str]
    source: str
    doubts: list[str] = field(default_factory=list)
    host: int = 0
    base_ns: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def times(self) -> list[str]:
        """The columns that hold moments."""
        return [str(name) for name in self.frame.columns if str(name).endswith("_ps")]

    @property
    def first_ns(self) -> int | None:
        """Its first moment, None where it has none."""
        firsts = [int(low) for name in self.times if pd.notna(low := self.frame[name].min())]
        return self.base_ns + min(firsts) // 1000 if firsts else None


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
        One row a lane: `lane host process thread line_id plane kind device note events order`.
        `kind` is filled by the dialect. Behind them what a format has beside these; of XSpace `line
        display_id duration` as the file states them.
    planes : list of Plane
    args : dict of str to ArgColumn
    name_args : dict of str to dict of int to object
        Args that hold for every event of a name: arg name -> name code -> value.
    strings : list of str
    modules : list of Module
        Compiled programs as the file has them, not decoded.
    metadata : dict
        What a JSON trace states beside its events. Of an XSpace file, where it has them:
        `event_metadata` (opaque bytes by name code), `event_children` (name codes by name code) and
        `arg_descriptions` (texts by arg).
    late_ps : list of int
        By host, how long after moment 0 its own clock begins to count; empty where that is not
        known.
    flows : Flows or None
    counters : DataFrame
        Samples of counters: `lane series time value`, time in ps.
    tables : dict of str to list of Table
        What a format states in tables beside its events, by kind.
    aggregated : DataFrame
        Events that have a count instead of a start: `lane name occurrences duration`.
    iterations : Iterations or None
        Iterations of the loop of a notebook's cell, where they were recorded beside the trace
        (`nbprof.core.loop_times`).
    units : str
        What may stand in the place of steps where nothing marks any, see `nbprof.activity.unit`.
    """

    events: Events
    names: npt.NDArray[np.object_]
    display: npt.NDArray[np.object_]
    lanes: pd.DataFrame
    planes: list[Plane]
    args: Mapping[str, ArgColumn]
    name_args: dict[str, dict[int, object]]
    strings: Sequence[str]
    modules: list[Module]
    hosts: list[str]
    epoch_ns: int
    receipt: Receipt
    metadata: dict[str, object] = field(default_factory=dict)
    # Factories also where a constant would do: a trace out of the cache makes the attributes it has
    # not got yet.
    late_ps: list[int] = field(default_factory=list)
    flows: Flows | None = field(default_factory=lambda: None)
    counters: pd.DataFrame = field(default_factory=no_counters)
    blobs: Sequence[bytes] = field(default_factory=tuple)
    tables: dict[str, list[Table]] = field(default_factory=dict)
    aggregated: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["lane", "name", "occurrences", "duration"])
    )

    iterations: Any = field(default_factory=lambda: None)
    units: str = field(default_factory=lambda: "any")

    def arg(self, name: str, missing: int = -1, rows: Int64s | None = None) -> Int64s:
        """The integers of one arg for all events, or for some `rows` of them; `missing` where there
        is none.
        """
        return self._arg(name, missing, rows, text=False)

    def text_arg(self, name: str, rows: Int64s | None = None) -> Int64s:
        """The string codes of one arg for all events, or for some `rows` of them; -1 where there is
        none.
        """
        return self._arg(name, -1, rows, text=True)

    def _arg(self, name: str, missing: int, rows: Int64s | None, *, text: bool) -> Int64s:
        column = self.args.get(name)
        count = len(self.events)
        if column is None:
            return np.full(count if rows is None else len(rows), missing, np.int64)
        if rows is None:
            return column.dense(count, missing, text=text)
        # A column of all events costs memory: it pays where many of them are asked for.
        return (
            column.at(rows, missing, text=text)
            if len(rows) * _FEW < count
            else column.dense(count, missing, text=text)[rows]
        )

    def above(self, name: str, low: int, *, text: bool = False) -> npt.NDArray[np.bool_]:
        """bool[events]: which events have an arg that is an integer above another; with `text`, one
        whose string code is.
        """
        is_above = np.zeros(len(self.events), np.bool_)
        if (column := self.args.get(name)) is not None:
            event, value = column.of(TEXT) if text else column.of(INT, UINT)
            is_above[event] = value > low
        return is_above

    def texts(self, codes: Int64s) -> list[str]:
        """Strings by code; the empty text for a negative code."""
        strings = self.strings
        return [strings[c] if c >= 0 else "" for c in codes.tolist()]
