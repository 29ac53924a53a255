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
    CPU,
    GPU,
    SHAPE,
    Agent,
    Recording,
    coded,
    dated,
    devices,
    ends,
    numbered,
)

_SET = re.compile(r"rocpd_(?:string|kernel_dispatch|region)((?:_\w{8,40})?)")
_SIZES = tuple(
    f"{'workgroup' if name.startswith('group') else 'grid'}_size_{name[-1]}" for name in SHAPE
)
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
    return [_Set(base, suffix).recording(file.name) for suffix in suffixes]


class _Set:
    """The tables of one process."""

    def __init__(self, base: Database, suffix: str) -> None:
        self.base = base
        self.suffix = suffix
        texts = self._rows("string", "id", "string")
        self.texts = [
            text if isinstance(text, str) else ""
            for text in texts.get("string", np.zeros(0, object)).tolist()
        ]
        self.text_ids = _ints(texts, "id")
        events = self._rows("event", "id", "category_id", "stack_id", "extdata")
        self.events = {name: _ints(events, name) for name in ("id", "category_id", "stack_id")}
        self.extra = list(events["extdata"].tolist()) if "extdata" in events else []
        tracks = self._rows("track", "id", "tid", "agent_id", "queue_id", "stream_id")
        self.tracks = {
            name: _ints(tracks, name) for name in ("id", "tid", "agent_id", "queue_id", "stream_id")
        }
        moments = self._rows("timestamp", "id", "value")
        self.moments = {name: _ints(moments, name) for name in ("id", "value")}

    def _rows(self, table: str, *columns: str) -> dict[str, npt.NDArray[Any]]:
        return self.base.read(f"rocpd_{table}{self.suffix}", *columns)

    def recording(self, label: str) -> Recording:
        """The recording of the process."""
        process = self._rows("info_process", "id", "pid", "command")
        pids = _ints(process, "pid")
        result = Recording(int(pids[0]) if len(pids) else -1, label)
        host = self._rows("info_node", "hostname").get("hostname", np.zeros(0, object)).tolist()
        result.machine = next((name for name in host if isinstance(name, str)), "")
        result.agents = self._agents()
        self._kernels(result)
        self._copies(result)
        self._regions(result)
        self._allocations(result)
        for kind, frame in result.frames.items():
            if kind != "counters":
                result.frames[kind], bad = dated(frame)
                result.bad += bad
        return result

    def _agents(self) -> list[Agent]:
        rows = self._rows(
            "info_agent",
            "id",
            "type",
            "type_index",
            "absolute_index",
            "name",
            "product_name",
            "extdata",
        )
        if not rows:
            return []
        keys = _ints(rows, "id")
        count = len(keys)
        numbers = _ints(rows, "type_index", count)
        types = _texts(rows, "type", count)
        texts = {key: _texts(rows, key, count) for key in ("extdata", "name", "product_name")}
        agents = []
        for row in np.argsort(_ints(rows, "absolute_index", count), kind="stable").tolist():
            kind = {"CPU": CPU, "GPU": GPU}.get(str(types[row]), 0)
            facts = _mapping(texts["extdata"][row])
            for key in ("name", "product_name"):
                if isinstance(texts[key][row], str):
                    facts[key] = texts[key][row]
            agents.append(Agent(int(keys[row]), kind, int(numbers[row]), facts))
        return numbered(agents)

    def _placed(self, rows: dict[str, npt.NDArray[Any]], count: int) -> dict[str, Int64s]:
        """Times and tracks of rows in either schema, and the call that they belong to."""
        result: dict[str, Int64s] = {}
        for name in ("start", "end"):
            if name in rows:
                result[name] = _ints(rows, name, count)
            elif (key := f"{name}_id") in rows:
                result[name] = _joined(
                    self.moments["id"], self.moments["value"], _ints(rows, key, count)
                )
            elif "timestamp" in rows:
                result[name] = _ints(rows, "timestamp", count)
            else:
                result[name] = _joined(
                    self.moments["id"], self.moments["value"], _ints(rows, "timestamp_id", count)
                )
        for name, key in (
            ("thread", "tid"),
            ("agent", "agent_id"),
            ("queue", "queue_id"),
            ("stream", "stream_id"),
        ):
            if key in rows:
                result[name] = _ints(rows, key, count)
            elif "track_id" in rows and len(self.tracks[key]):
                result[name] = _joined(
                    self.tracks["id"], self.tracks[key], _ints(rows, "track_id", count)
                )
        result["correlation"] = _joined(
            self.events["id"], self.events["stack_id"], _ints(rows, "event_id", count)
        )
        return result

    def _named(self, codes: Int64s) -> pd.Categorical:
        """Strings by their ids."""
        return coded(_joined(self.text_ids, np.arange(len(self.text_ids)), codes), self.texts)

    def _titles(
        self,
        rows: dict[str, npt.NDArray[Any]],
        columns: Sequence[str],
        subject: str,
        row_idents: Int64s,
    ) -> pd.Categorical:
        """Titles of rows by their ids: the first of some columns that has a text, else the id."""
        idents = _ints(rows, "id")
        texts = zip(*(_texts(rows, column, len(idents)) for column in columns), strict=True)
        names_by_id = dict(zip(idents.tolist(), map(_first_text, texts), strict=True))
        first, inverse = np.unique(row_idents, return_inverse=True)
        return coded(
            inverse.reshape(-1),
            [names_by_id.get(ident) or f"{subject} {ident}" for ident in first.tolist()],
        )

    def _domains(self, events: Int64s) -> pd.Categorical:
        return self._named(_joined(self.events["id"], self.events["category_id"], events))

    def _kernels(self, recording: Recording) -> None:
        column_names = (
            "tid",
            "agent_id",
            "queue_id",
            "stream_id",
            "start",
            "end",
            "track_id",
            "start_id",
            "end_id",
            "event_id",
        )
        dispatch_columns = (
            "dispatch_id",
            "kernel_id",
            "private_segment_size",
            "group_segment_size",
        )
        rows = self._rows("kernel_dispatch", *column_names, *dispatch_columns, *_SIZES)
        count = len(_ints(rows, "kernel_id"))
        if not count:
            return
        symbols = self._rows(
            "info_kernel_symbol",
            "id",
            "display_name",
            "kernel_name",
            "arch_vgpr_count",
            "accum_vgpr_count",
            "sgpr_count",
        )
        idents, kernel = _ints(symbols, "id"), _ints(rows, "kernel_id")
        names = self._titles(symbols, ("display_name", "kernel_name"), "kernel", kernel)
        base_columns = self._placed(rows, count)
        columns: dict[str, Any] = {
            **{name: column for name, column in base_columns.items() if name != "agent"},
            "name": names,
            "device": devices(base_columns.get("agent", np.full(count, -1)), recording.agents),
            "kernel": kernel,
        }
        for name, key in _DISPATCH.items():
            if key in rows:
                columns[name] = _ints(rows, key, count)
        for name, key in _REGISTERS.items():
            if key in symbols:
                columns[name] = _joined(idents, _ints(symbols, key, len(idents)), kernel)
        recording.frames["kernels"] = pd.DataFrame(columns)
        self._counters(recording, _ints(rows, "event_id", count))

    def _counters(self, recording: Recording, events: Int64s) -> None:
        rows = self._rows("pmc_event", "event_id", "pmc_id", "value")
        count = len(_ints(rows, "event_id"))
        kernels = recording.frames["kernels"]
        if not count or "dispatch" not in kernels:
            return
        counters = self._rows("info_pmc", "id", "name", "symbol")
        value = floats(rows["value"]) if "value" in rows else np.full(count, np.nan)
        values = {
            "dispatch": _joined(events, kernels["dispatch"].to_numpy(), _ints(rows, "event_id")),
            "name": self._titles(
                counters, ("name", "symbol"), "counter", _ints(rows, "pmc_id", count)
            ),
            "value": value,
        }
        frame = pd.DataFrame(values)
        recording.frames["counters"] = frame[
            (frame["dispatch"] >= 0) & np.isfinite(value)
        ].reset_index(drop=True)

    def _copies(self, recording: Recording) -> None:
        columns = ("tid", "stream_id", "start", "end", "track_id", "start_id", "end_id", "event_id")
        rows = self._rows(
            "memory_copy", *columns, "name_id", "dst_agent_id", "src_agent_id", "size"
        )
        count = len(_ints(rows, "name_id"))
        if not count:
            return
        names = {
            name: column
            for name, column in self._placed(rows, count).items()
            if name not in ("agent", "queue")
        }
        sides = ends(
            _ints(rows, "src_agent_id", count), _ints(rows, "dst_agent_id", count), recording.agents
        )
        size = {"bytes": _ints(rows, "size", count)} if "size" in rows else {}
        recording.frames["copies"] = pd.DataFrame(
            {**names, "name": self._named(_ints(rows, "name_id")), **sides, **size}
        )

    def _regions(self, recording: Recording) -> None:
        """Calls, and ranges and marks, whose text is in their event."""
        columns = (
            "tid",
            "start",
            "end",
            "track_id",
            "start_id",
            "end_id",
            "timestamp",
            "timestamp_id",
            "event_id",
            "name_id",
        )
        frames = []
        for table in ("region", "sample"):
            rows = self._rows(table, *columns)
            count = max((len(column) for column in rows.values()), default=0)
            if count:
                event = _ints(rows, "event_id", count)
                columns_of_table: dict[str, Any] = {
                    **self._placed(rows, count),
                    "event": event,
                    "domain": self._domains(event),
                    "name": self._named(_ints(rows, "name_id", count)),
                }
                for name in ("agent", "queue", "stream"):
                    columns_of_table.pop(name, None)
                frames.append(pd.DataFrame(columns_of_table))
        if not frames:
            return
        frame = frames[0] if len(frames) == 1 else _both(*frames)
        domains = frame["domain"].cat.categories
        core = [domain for domain in domains if str(domain).startswith("MARKER_CORE")]
        is_mark = frame["domain"].isin(core).to_numpy().copy()
        if is_mark.any():
            mark_rows = np.flatnonzero(is_mark)
            is_mark[mark_rows] = self._add_marks(recording, frame.iloc[mark_rows])
        if not is_mark.all():
            calls = frame[~is_mark].drop(columns="event").reset_index(drop=True)
            if calls["name"].isna().any():
                # A sample without a name is called by its kind.
                names = calls["name"].astype(object).fillna(calls["domain"].astype(object))
                calls["name"] = names.astype("category")
            recording.frames["calls"] = calls

    def _add_marks(self, recording: Recording, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Adds ranges and marks, named by their messages; returns which rows have a message."""
        messages = self._messages(frame["event"].to_numpy())
        has_message = np.array([message is not None for message in messages], np.bool_)
        names = list(dict.fromkeys(message for message in messages if message is not None))
        code = {name: i for i, name in enumerate(names)}
        codes = np.array([code[message] for message in messages if message is not None], np.int64)
        marks = frame[has_message].drop(columns="event").assign(name=coded(codes, names))
        recording.frames["marks"] = marks.reset_index(drop=True)
        return has_message

    def _messages(self, events: Int64s) -> list[str | None]:
        """Messages of the ranges of events; None for events without one."""
        rows = _joined(self.events["id"], np.arange(len(self.extra)), events)
        extra = [self.extra[row] if row >= 0 else None for row in rows.tolist()]
        messages: dict[Any, str | None] = {}
        for text in set(extra):
            message = _mapping(text).get("message")
            messages[text] = message if isinstance(message, str) else None
        return [messages[text] for text in extra]

    def _allocations(self, recording: Recording) -> None:
        column_names = (
            "tid",
            "agent_id",
            "queue_id",
            "start",
            "end",
            "track_id",
            "start_id",
            "end_id",
            "event_id",
        )
        rows = self._rows("memory_allocate", *column_names, "type", "level", "size")
        count = len(_texts(rows, "type", 0))
        if not count:
            return
        base_columns = self._placed(rows, count)
        kinds = list(zip(_texts(rows, "level", count), _texts(rows, "type", count), strict=True))
        names = [
            _ALLOCATED.get((str(level), str(kind)), f"{level} {kind}") for level, kind in kinds
        ]
        device = devices(base_columns.pop("agent", np.full(count, -1)), recording.agents)
        base_columns.pop("stream", None)
        domain = self._domains(_ints(rows, "event_id", count))
        columns: dict[str, Any] = {
            **base_columns,
            "domain": domain,
            "name": pd.Categorical(names),
            "device": device,
        }
        size = _ints(rows, "size", count)
        # Missing values are written as 0: the size of scratch memory, the queue of other memory.
        size[[str(level) == "SCRATCH" for level, _ in kinds] & (size == 0)] = -1
        if "queue" in columns:
            columns["queue"] = np.where(columns["queue"] > 0, columns["queue"], -1)
        recording.frames["allocations"] = pd.DataFrame({**columns, "bytes": size})


def _both(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    texts = {name: union_categoricals([frame[name], other[name]]) for name in ("domain", "name")}
    return pd.concat(
        [frame.drop(columns=list(texts)), other.drop(columns=list(texts))], ignore_index=True
    ).assign(**texts)


def _ints(rows: dict[str, npt.NDArray[Any]], name: str, count: int = 0) -> Int64s:
    """A column of whole numbers, -1 where there is none."""
    if name not in rows:
        return np.full(count, -1, np.int64)
    column = rows[name]
    if isinstance(column, np.ma.MaskedArray):
        return np.asarray(column.filled(-1), np.int64)
    if column.dtype.kind == "f":
        good = np.abs(column) < 2**62
        return np.where(good, np.where(good, column, 0).astype(np.int64), -1)
    if column.dtype == object:
        return np.array(
            [
                value if isinstance(value, int) and abs(value) < 1 << 62 else -1
                for value in column.tolist()
            ],
            np.int64,
        )
    return np.asarray(column, np.int64)


def _first_text(values: Iterable[object]) -> str:
    """The first value that is a text and not empty; empty where none is."""
    return next((value for value in values if isinstance(value, str) and value), "")


def _texts(rows: dict[str, npt.NDArray[Any]], name: str, count: int) -> list[Any]:
    return list(rows[name].tolist()) if name in rows else [None] * count


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
