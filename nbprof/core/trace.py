"""A profile as columns over all its events: name, lane, start and duration, and their args."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import nesting
from nbprof.core.receipt import Note, Receipt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

INT, UINT, DOUBLE, TEXT, BYTES = 1, 2, 3, 4, 5
_INTEGERS, _TEXTS = (INT, UINT), (TEXT,)
_FEW = 8
"""An arg of at most one in so many events is looked up by binary search."""


@dataclass
class ArgColumn:
    """The values of one arg (stat), for the events that have it.

    Attributes
    ----------
    event : int32[k]
        Event index, ascending.
    kind : uint8[k] or int
        INT, UINT, DOUBLE, TEXT or BYTES; a single number if all rows are of one kind.
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
        if isinstance(self.kind, int):
            return np.full(len(self.event), self.kind, np.uint8)
        return self.kind

    @property
    def values(self) -> Int64s:
        """The value of each row, int64[k]; an unsigned number of 2^63 or more as its two's
        complement.
        """
        return self.value.astype(np.int64, copy=False)

    def of(self, *kinds: int) -> tuple[Int32s, Int64s]:
        """Events and values of the rows of some kinds."""
        event, value = self._select(kinds)
        return event, value.astype(np.int64, copy=False)

    def _select(self, kinds: tuple[int, ...]) -> tuple[Int32s, npt.NDArray[np.integer]]:
        if isinstance(self.kind, int):
            rows: Any = slice(None) if self.kind in kinds else slice(0)
        else:
            rows = np.isin(self.kind, kinds)
        return self.event[rows], self.value[rows]

    def dense(self, events: int, missing: int = -1, *, text: bool = False) -> Int64s:
        """Integers for all events, or string codes with `text`; `missing` for events without."""
        dense = np.full(events, missing, np.int64)
        event, values = self._select(_TEXTS if text else _INTEGERS)
        if values.dtype == np.uint64:
            # As two's complement.
            values = values.view(np.int64)
        dense[event] = values
        return dense

    def at(self, rows: Int64s, missing: int = -1, *, text: bool = False) -> Int64s:
        """The same for a few events in any order, by binary search."""
        event, values = self._select(_TEXTS if text else _INTEGERS)
        index = np.searchsorted(event, rows.astype(event.dtype), side="right") - 1
        looked_up = np.full(len(rows), missing, np.int64)
        present = np.flatnonzero(index >= 0)
        present = present[event[index[present]] == rows[present]]
        looked_up[present] = values[index[present]].astype(np.int64, copy=False)
        return looked_up

    def floats(self) -> npt.NDArray[np.float64]:
        """The numbers of all rows as float64; NaN for texts."""
        kinds, values = self.kinds, self.values
        numbers = values.astype(np.float64)
        numbers[kinds == UINT] = values[kinds == UINT].view(np.uint64)
        numbers[kinds == DOUBLE] = values[kinds == DOUBLE].view(np.float64)
        numbers[(kinds == TEXT) | (kinds == BYTES)] = np.nan
        return numbers


@dataclass
class Flows:
    """Points of flow arrows as columns, in the order of the file; arrows join equal (category, id).

    `phase` uint8: 0 start, 1 step, 2 finish. `id` int64, below -1 if it is a text; `category`
    int32, a code into `Trace.strings`. `lane` int32 and `time` int64 ps are the position of the
    point; `enclosing` is True if it belongs to the slice around it, not to the next one.
    """

    phase: npt.NDArray[np.uint8]
    id: Int64s
    category: Int32s
    lane: Int32s
    time: Int64s
    enclosing: npt.NDArray[np.bool_]


@dataclass
class Module:
    """A compiled program (an HLO proto), not decoded; `host` is an index into `Trace.hosts`.

    If it was not `read`, `data` is an identifier that differs between programs.
    """

    name: str
    ident: int
    data: bytes
    host: int = 0
    read: bool = True

    @property
    def title(self) -> str:
        """The name, which ends with the ident as in `jit_step(8)`; without the ident if it is 0.

        TensorFlow on the CPU gives every program that number.
        """
        if self.ident:
            return self.name
        return self.name.removesuffix("(0)")


COUNTER_COLUMNS = {"lane": "i4", "series": "object", "time": "i8", "value": "f8"}


def no_counters() -> pd.DataFrame:
    """An empty table of counter samples: `lane series time value` (time in ps)."""
    return _no_counters().copy()


@cache
def _no_counters() -> pd.DataFrame:
    return pd.DataFrame({name: np.zeros(0, dtype) for name, dtype in COUNTER_COLUMNS.items()})


@dataclass
class Plane:
    """A group of lanes (a process or a device) with the producer's facts about it."""

    host: str
    name: str
    stats: dict[str, object]
    ident: int = 0
    """Its number in the file."""
    is_cut: bool = False
    """The file ends in it: what its events are called may be missing."""


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
        """End of each event, ps."""
        return self.start + self.duration

    def of_lanes(self, lanes: npt.NDArray[np.bool_]) -> Int64s:
        """Events of some lanes, ascending; `lanes` is bool[lanes]."""
        # Events are sorted by lane: those of each one are a range.
        numbers = np.flatnonzero(lanes).astype(self.lane.dtype)
        first = np.searchsorted(self.lane, numbers).tolist()
        stop = np.searchsorted(self.lane, numbers, side="right").tolist()
        return np.concatenate([np.zeros(0, np.int64), *map(np.arange, first, stop)])

    @cached_property
    def parent(self) -> Int32s:
        """The innermost event on the same lane that contains each event, or -1."""
        return nesting.parents(self.lane, self.start, self.duration)

    @cached_property
    def depth(self) -> npt.NDArray[np.uint16]:
        """Number of events of the lane around each event."""
        return nesting.depths(self.parent)

    @cached_property
    def self_time(self) -> Int64s:
        """Duration of each event minus that of the events directly in it, ps; never negative, even
        if these overlap.
        """
        return np.maximum(nesting.self_times(self.parent, self.duration), 0)


@dataclass(eq=False)
class Table:
    """A table of a recording by Ascend's profilers, besides its events.

    Attributes
    ----------
    kind : str
        `op_summary`, `op_statistic`, `step_trace`, ...; '' for an unknown header.
    device : int or None
        The device of all its rows; None if they belong to several devices or the host.
    rank : int or None
        Rank of the process that recorded it, if known.
    frame : DataFrame
        Columns with units in their names (`_us`, `_bytes`); times end in `_ps` and count from the
        begin of the trace.
    header : list of str
        Column names in the file.
    source : str
        Its files.
    doubts : list of Note
        Ends of sentences that begin with `source`.
    host : int
        The recording, as an index into `Trace.hosts`.
    base_ns : int
        Origin of the times.
    """

    kind: str
    device: int | None
    rank: int | None
    frame: pd.DataFrame
    header: list[str]
    source: str
    doubts: list[Note] = field(default_factory=list)
    host: int = 0
    base_ns: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def times(self) -> list[str]:
        """The columns of times."""
        return [str(name) for name in self.frame.columns if str(name).endswith("_ps")]

    @property
    def first_ns(self) -> int | None:
        """Its earliest time; None without times."""
        earliest = [self.frame[name].min() for name in self.times]
        recorded = [int(time) for time in earliest if pd.notna(time)]
        return self.base_ns + min(recorded) // 1000 if recorded else None


@dataclass
class Trace:
    """One profile as columns.

    Attributes
    ----------
    events : Events
    names : object[names]
        Full name by name code.
    display : object[names]
        Short name by name code; equal to the full one if the producer gives none.
    lanes : DataFrame
        One row per lane: `lane host process thread line_id plane kind device note events order`.
        `kind` is filled by the dialect. Further columns depend on the format; for XSpace they are
        `line display_id duration` of the file.
    planes : list of Plane
    args : dict of str to ArgColumn
    name_args : dict of str to dict of int to object
        Args that hold for every event of a name: arg name -> name code -> value.
    strings : list of str
    modules : list of Module
        Compiled programs, not decoded.
    metadata : dict
        Other content of a JSON trace. For an XSpace file, if present: `event_metadata` (opaque
        bytes by name code), `event_children` (name codes by name code) and `arg_descriptions`
        (texts by arg).
    late_ps : list of int
        Offset of the clock of each host to time 0; empty if unknown.
    flows : Flows or None
    counters : DataFrame
        Samples of counters: `lane series time value`, time in ps.
    tables : dict of str to list of Table
        Tables of a format besides its events, by kind.
    aggregated : DataFrame
        Events that have a count instead of a start: `lane name occurrences duration`.
    iterations : Iterations or None
        Iterations of the loop of a notebook's cell, if they were recorded
        (`nbprof.core.loop_times`).
    units : str
        Possible units of work if no steps are marked, see `nbprof.activity.unit`.
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
    # Factories, because a constant would be a class attribute: a trace out of the cache loads the
    # attributes that it does not have yet.
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
        """Integers of one arg for all events, or for some `rows`; `missing` for events without."""
        return self._arg(name, missing, rows, text=False)

    def text_arg(self, name: str, rows: Int64s | None = None) -> Int64s:
        """String codes of one arg for all events, or for some `rows`; -1 for events without."""
        return self._arg(name, -1, rows, text=True)

    def _arg(self, name: str, missing: int, rows: Int64s | None, *, text: bool) -> Int64s:
        column = self.args.get(name)
        count = len(self.events)
        if rows is None:
            if column is None:
                return np.full(count, missing, np.int64)
            return column.dense(count, missing, text=text)
        if column is None:
            return np.full(len(rows), missing, np.int64)
        # A column of all events costs memory: it only pays for many rows.
        if len(rows) * _FEW < count:
            return column.at(rows, missing, text=text)
        return column.dense(count, missing, text=text)[rows]

    def above(self, name: str, low: int, *, text: bool = False) -> npt.NDArray[np.bool_]:
        """bool[events]: events with an integer arg above `low`; with `text`, a string code."""
        is_above = np.zeros(len(self.events), np.bool_)
        if (column := self.args.get(name)) is not None:
            event, value = column.of(*(_TEXTS if text else _INTEGERS))
            is_above[event] = value > low
        return is_above

    def texts(self, codes: Int64s) -> list[str]:
        """Strings by code; the empty text for a negative code."""
        strings = self.strings
        return [strings[code] if code >= 0 else "" for code in codes.tolist()]
