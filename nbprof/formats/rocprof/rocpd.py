"""Reads rocpd's databases (`*_results.db`), the default output of rocprofv3 since ROCm 7: tables
`rocpd_<name>_<guid>` for each process.

The tables are joined here as its views (`kernels`, `regions`, ...) join them. In schema 3 each row
has its times and its track; later schemas keep them in `rocpd_timestamp` and `rocpd_track`.

Format:
https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import union_categoricals

from nbprof.core.files import SourceFile
from nbprof.core.sqlite import Database, floats
from nbprof.core.trace import Int64s
from nbprof.formats.rocprof.records import (
    AGENT_TYPES,
    SHAPE,
    Agent,
    Recording,
    by_message,
    coded,
    devices,
    ends,
    is_marker,
    numbered,
)

_SET = re.compile(r"rocpd_(?:string|kernel_dispatch|region)((?:_\w{8,40})?)")
_SIZES = (
    "workgroup_size_x",
    "workgroup_size_y",
    "workgroup_size_z",
    "grid_size_x",
    "grid_size_y",
    "grid_size_z",
)
_TIMES = ("start", "end", "start_id", "end_id", "timestamp", "timestamp_id")
_TRACKS = {"thread": "tid", "agent": "agent_id", "queue": "queue_id", "stream": "stream_id"}
_EVENT = (*_TIMES, *_TRACKS.values(), "track_id", "event_id")
"""Columns that an event of any kind may have; which, depends on the schema."""
_DISPATCH = {
    "dispatch": "dispatch_id",
    "lds": "group_segment_size",
    "scratch": "private_segment_size",
    **dict(zip(SHAPE, _SIZES, strict=True)),
}
_REGISTERS = {
    "vgpr": "arch_vgpr_count",
    "accum_vgpr": "accum_vgpr_count",
    "sgpr": "sgpr_count",
}
"""Columns of a kernel and of its symbol by their names here."""
_ALLOCATED = {
    ("REAL", "ALLOC"): "MEMORY_ALLOCATION_ALLOCATE",
    ("REAL", "FREE"): "MEMORY_ALLOCATION_FREE",
    ("VIRTUAL", "ALLOC"): "MEMORY_ALLOCATION_VMEM_ALLOCATE",
    ("VIRTUAL", "FREE"): "MEMORY_ALLOCATION_VMEM_FREE",
    ("SCRATCH", "ALLOC"): "SCRATCH_MEMORY_ALLOC",
    ("SCRATCH", "FREE"): "SCRATCH_MEMORY_FREE",
    ("SCRATCH", "RECLAIM"): "SCRATCH_MEMORY_ASYNC_RECLAIM",
}
"""The operations that the other formats name, by level and type."""


class _Table:
    """Some columns of one table; those that the schema lacks have no values."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        self.columns = columns
        self.count = len(next(iter(columns.values()), ()))

    def __len__(self) -> int:
        return self.count

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def ints(self, name: str) -> Int64s:
        """A column of whole numbers, -1 where there is none."""
        if name not in self.columns:
            return np.full(self.count, -1, np.int64)
        column = self.columns[name]
        if isinstance(column, np.ma.MaskedArray):
            return np.asarray(column.filled(-1), np.int64)
        if column.dtype == object:
            return np.fromiter(map(_integer, column.tolist()), np.int64, self.count)
        if column.dtype.kind == "f":
            good = np.abs(column) < 2**62
            return np.where(good, np.where(good, column, 0).astype(np.int64), -1)
        return np.asarray(column, np.int64)

    def values(self, name: str) -> list[Any]:
        """A column as it is, None where there is none."""
        if name not in self.columns:
            return [None] * self.count
        return list(self.columns[name].tolist())


def read(file: SourceFile) -> list[Recording]:
    """The recording of each process.

    Raises
    ------
    ReadError
        The database is damaged.
    """
    base = Database(file.read(), file.label)
    matches = map(_SET.fullmatch, base.tables)
    suffixes = sorted({match[1] for match in matches if match})
    return [_Set(base, suffix).recording() for suffix in suffixes]


class _Set:
    """The tables of one process."""

    def __init__(self, base: Database, suffix: str) -> None:
        self.base = base
        self.suffix = suffix
        texts = self._table("string", "id", "string")
        self.texts = list(map(_text, texts.values("string")))
        self.text_ids = texts.ints("id")
        self.events = self._table("event", "id", "category_id", "stack_id", "extdata")
        self.event_ids = self.events.ints("id")
        self.tracks = self._table("track", "id", *_TRACKS.values())
        moments = self._table("timestamp", "id", "value")
        self.moment_ids, self.moments = moments.ints("id"), moments.ints("value")

    def _table(self, name: str, *columns: str) -> _Table:
        return _Table(self.base.read(f"rocpd_{name}{self.suffix}", *columns))

    def recording(self) -> Recording:
        """The recording of the process."""
        pids = self._table("info_process", "pid").ints("pid").tolist()
        machines = self._table("info_node", "hostname").values("hostname")
        result = Recording(next(iter(pids), -1))
        result.machine = next((name for name in machines if isinstance(name, str)), "")
        result.agents = self._agents()
        self._kernels(result)
        self._copies(result)
        self._regions(result)
        self._allocations(result)
        result.drop_undated()
        return result

    def _agents(self) -> list[Agent]:
        names = ("name", "product_name")
        rows = self._table(
            "info_agent", "id", "type", "type_index", "absolute_index", "extdata", *names
        )
        keys, numbers = rows.ints("id"), rows.ints("type_index")
        types, extra = rows.values("type"), rows.values("extdata")
        agents = []
        for row in np.argsort(rows.ints("absolute_index"), kind="stable").tolist():
            facts = _mapping(extra[row])
            for name in names:
                text = rows.values(name)[row]
                if isinstance(text, str):
                    facts[name] = text
            kind = AGENT_TYPES.get(str(types[row]), 0)
            agents.append(Agent(int(keys[row]), kind, int(numbers[row]), facts))
        return numbered(agents)

    def _placed(self, rows: _Table) -> dict[str, Any]:
        """Times and tracks of rows in either schema, and the call that they belong to."""
        result: dict[str, Any] = {}
        for name in ("start", "end"):
            result[name] = self._times(rows, name)
        for name, column in _TRACKS.items():
            if column in rows:
                result[name] = rows.ints(column)
            elif "track_id" in rows and len(self.tracks):
                values = self.tracks.ints(column)
                result[name] = _joined(self.tracks.ints("id"), values, rows.ints("track_id"))
        calls = self.events.ints("stack_id")
        result["correlation"] = _joined(self.event_ids, calls, rows.ints("event_id"))
        return result

    def _times(self, rows: _Table, name: str) -> Int64s:
        for column in (name, f"{name}_id", "timestamp", "timestamp_id"):
            if column in rows:
                break
        values = rows.ints(column)
        if column.endswith("_id"):
            return _joined(self.moment_ids, self.moments, values)
        return values

    def _named(self, codes: Int64s) -> pd.Categorical:
        """Strings by their ids."""
        return coded(_joined(self.text_ids, np.arange(len(self.text_ids)), codes), self.texts)

    def _domains(self, events: Int64s) -> pd.Categorical:
        return self._named(_joined(self.event_ids, self.events.ints("category_id"), events))

    def _kernels(self, recording: Recording) -> None:
        rows = self._table("kernel_dispatch", *_EVENT, "kernel_id", *_DISPATCH.values())
        if not len(rows) or "kernel_id" not in rows:
            return
        symbols = self._table(
            "info_kernel_symbol", "id", "display_name", "kernel_name", *_REGISTERS.values()
        )
        kernel = rows.ints("kernel_id")
        columns = self._placed(rows)
        agents = columns.pop("agent", np.full(len(rows), -1))
        columns["name"] = _titles(symbols, ("display_name", "kernel_name"), "kernel", kernel)
        columns["device"] = devices(agents, recording.agents)
        columns["kernel"] = kernel
        for name, column in _DISPATCH.items():
            if column in rows:
                columns[name] = rows.ints(column)
        for name, column in _REGISTERS.items():
            if column in symbols:
                columns[name] = _joined(symbols.ints("id"), symbols.ints(column), kernel)
        recording.frames["kernels"] = pd.DataFrame(columns)
        if "dispatch" in columns:
            self._counters(recording, rows.ints("event_id"), columns["dispatch"])

    def _counters(self, recording: Recording, events: Int64s, dispatch: Int64s) -> None:
        """Values of counters, by the dispatch whose event they belong to."""
        rows = self._table("pmc_event", "event_id", "pmc_id", "value")
        if not len(rows) or "event_id" not in rows:
            return
        counters = self._table("info_pmc", "id", "name", "symbol")
        value = np.full(len(rows), np.nan)
        if "value" in rows:
            value = floats(rows.columns["value"])
        frame = pd.DataFrame(
            {
                "dispatch": _joined(events, dispatch, rows.ints("event_id")),
                "name": _titles(counters, ("name", "symbol"), "counter", rows.ints("pmc_id")),
                "value": value,
            }
        )
        good = (frame["dispatch"] >= 0) & np.isfinite(value)
        recording.frames["counters"] = frame[good].reset_index(drop=True)

    def _copies(self, recording: Recording) -> None:
        rows = self._table(
            "memory_copy", *_EVENT, "name_id", "dst_agent_id", "src_agent_id", "size"
        )
        if not len(rows) or "name_id" not in rows:
            return
        columns = self._placed(rows)
        for name in ("agent", "queue"):
            columns.pop(name, None)
        columns["name"] = self._named(rows.ints("name_id"))
        source, target = rows.ints("src_agent_id"), rows.ints("dst_agent_id")
        columns |= ends(source, target, recording.agents)
        if "size" in rows:
            columns["bytes"] = rows.ints("size")
        recording.frames["copies"] = pd.DataFrame(columns)

    def _regions(self, recording: Recording) -> None:
        """Calls, and ranges and marks, whose text is in their event."""
        frames = []
        for table in ("region", "sample"):
            rows = self._table(table, *_TIMES, "tid", "track_id", "event_id", "name_id")
            if len(rows):
                frames.append(self._region_frame(rows))
        if not frames:
            return
        frame = frames[0] if len(frames) == 1 else _both(*frames)
        is_mark = is_marker(frame["domain"])
        if is_mark.any():
            mark_rows = np.flatnonzero(is_mark)
            is_mark[mark_rows] = self._add_marks(recording, frame.iloc[mark_rows])
        if is_mark.all():
            return
        calls = frame[~is_mark].drop(columns="event").reset_index(drop=True)
        if calls["name"].isna().any():
            # A sample without a name is called by its kind.
            names = calls["name"].astype(object).fillna(calls["domain"].astype(object))
            calls["name"] = names.astype("category")
        recording.frames["calls"] = calls

    def _region_frame(self, rows: _Table) -> pd.DataFrame:
        columns = self._placed(rows)
        for name in ("agent", "queue", "stream"):
            columns.pop(name, None)
        columns["event"] = rows.ints("event_id")
        columns["domain"] = self._domains(columns["event"])
        columns["name"] = self._named(rows.ints("name_id"))
        return pd.DataFrame(columns)

    def _add_marks(self, recording: Recording, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Adds ranges and marks, named by their messages; returns which rows have a message."""
        name, has_message = by_message(self._messages(frame["event"].to_numpy()))
        marks = frame[has_message].drop(columns="event").assign(name=name)
        recording.frames["marks"] = marks.reset_index(drop=True)
        return has_message

    def _messages(self, events: Int64s) -> list[str | None]:
        """Messages of the ranges of events; None for events without one."""
        extra = self.events.values("extdata")
        messages: dict[Any, str | None] = {}
        result: list[str | None] = []
        for row in _joined(self.event_ids, np.arange(len(extra)), events).tolist():
            text = extra[row] if row >= 0 else None
            if text not in messages:
                message = _mapping(text).get("message")
                messages[text] = message if isinstance(message, str) else None
            result.append(messages[text])
        return result

    def _allocations(self, recording: Recording) -> None:
        rows = self._table("memory_allocate", *_EVENT, "type", "level", "size")
        if not len(rows) or "type" not in rows:
            return
        columns = self._placed(rows)
        columns.pop("stream", None)
        agents = columns.pop("agent", np.full(len(rows), -1))
        levels = list(map(str, rows.values("level")))
        names = []
        for operation in zip(levels, map(str, rows.values("type")), strict=True):
            names.append(_ALLOCATED.get(operation, " ".join(operation)))
        columns["domain"] = self._domains(rows.ints("event_id"))
        columns["name"] = pd.Categorical(names)
        columns["device"] = devices(agents, recording.agents)
        # Missing values are written as 0: the size of scratch memory, the queue of other memory.
        size = rows.ints("size")
        size[(np.array(levels) == "SCRATCH") & (size == 0)] = -1
        columns["bytes"] = size
        if "queue" in columns:
            columns["queue"] = np.where(columns["queue"] > 0, columns["queue"], -1)
        recording.frames["allocations"] = pd.DataFrame(columns)


def _titles(rows: _Table, columns: Sequence[str], subject: str, row_ids: Int64s) -> pd.Categorical:
    """Titles of rows by their ids: the first of some columns that has a text, else the id."""
    texts = zip(*map(rows.values, columns), strict=True)
    titles = dict(zip(rows.ints("id").tolist(), map(_first_text, texts), strict=True))
    first, inverse = np.unique(row_ids, return_inverse=True)
    names = [titles.get(ident) or f"{subject} {ident}" for ident in first.tolist()]
    return coded(inverse.reshape(-1), names)


def _both(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    texts = {name: union_categoricals([frame[name], other[name]]) for name in ("domain", "name")}
    return pd.concat(
        [frame.drop(columns=list(texts)), other.drop(columns=list(texts))], ignore_index=True
    ).assign(**texts)


def _integer(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else -1


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _first_text(values: Iterable[object]) -> str:
    """The first value that is a text and not empty; empty where none is."""
    return next(filter(None, map(_text, values)), "")


def _joined(idents: Int64s, values: Int64s, keys: Int64s) -> Int64s:
    """The values of rows by their ids; -1 for an unknown id, and where the column is missing."""
    if not len(idents) or len(values) != len(idents):
        return np.full(len(keys), -1, np.int64)
    if len(idents) > 1 and (np.diff(idents) <= 0).any():
        order = np.argsort(idents, kind="stable")
        idents, values = idents[order], values[order]
    rows = np.minimum(np.searchsorted(idents, keys), len(idents) - 1)
    return np.where(idents[rows] == keys, values[rows], -1)


def _mapping(text: object) -> dict[str, Any]:
    """An object in JSON; an empty one for everything else."""
    try:
        value = json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
