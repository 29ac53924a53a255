"""Reads rocpd's databases (`*_results.db`), what rocprofv3 writes by default since ROCm 7: for each
process tables `rocpd_<name>_<guid>`.

The views (`kernels`, `regions`, ...) join what is joined here. Of schema 3 each row has its times
and its place; later ones keep moments in `rocpd_timestamp` and places in `rocpd_track`.

Format:
https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
    sets = sorted({match[1] for name in base.tables if (match := _SET.fullmatch(name))})
    return [_Set(base, suffix).recording(file.name) for suffix in sets]


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
        count = len(_ints(rows, "id"))
        agents = []
        for i in range(count):
            texts: dict[str, Any] = {
                key: value
                for key in ("name", "product_name")
                if key in rows and isinstance(value := rows[key].tolist()[i], str)
            }
            kind = {"CPU": CPU, "GPU": GPU}.get(
                str(rows["type"].tolist()[i]) if "type" in rows else "", 0
            )
            number, node = (
                int(_ints(rows, key, count)[i]) for key in ("type_index", "absolute_index")
            )
            info = _mapping(rows["extdata"].tolist()[i]) if "extdata" in rows else {}
            agents.append((node, Agent(int(_ints(rows, "id")[i]), kind, number, {**info, **texts})))
        return numbered(agent for _, agent in sorted(agents, key=lambda pair: pair[0]))

    def _placed(self, rows: dict[str, npt.NDArray[Any]], count: int) -> dict[str, Int64s]:
        """Times and places of rows, as either schema has them, and the call that they belong to."""
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
        named = [
            next((text for text in some if isinstance(text, str) and text), "") for some in texts
        ]
        names_by_id = dict(zip(idents.tolist(), named, strict=True))
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
        for name, key in (
            ("dispatch", "dispatch_id"),
            ("lds", "group_segment_size"),
            ("scratch", "private_segment_size"),
        ):
            if key in rows:
                columns[name] = _ints(rows, key, count)
        columns |= {
            name: _ints(rows, key, count)
            for name, key in zip(SHAPE, _SIZES, strict=True)
            if key in rows
        }
        for name, key in (
            ("vgpr", "arch_vgpr_count"),
            ("accum_vgpr", "accum_vgpr_count"),
            ("sgpr", "sgpr_count"),
        ):
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
        """Calls, and ranges and marks, whose text stands in their event."""
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
            if not (count := max((len(column) for column in rows.values()), default=0)):
                continue
            base_columns = {
                name: column
                for name, column in self._placed(rows, count).items()
                if name not in ("agent", "queue", "stream")
            }
            event = _ints(rows, "event_id", count)
            frames.append(
                pd.DataFrame(
                    {
                        **base_columns,
                        "event": event,
                        "domain": self._domains(event),
                        "name": self._named(_ints(rows, "name_id", count)),
                    }
                )
            )
        if not frames:
            return
        frame = frames[0] if len(frames) == 1 else _both(*frames)
        core = [
            domain
            for domain in frame["domain"].cat.categories
            if str(domain).startswith("MARKER_CORE")
        ]
        marked = frame["domain"].isin(core).to_numpy().copy()
        if marked.any():
            texts = self._messages(frame["event"].to_numpy()[marked])
            has = np.array([text is not None for text in texts], np.bool_)
            rows_of = np.flatnonzero(marked)
            names = list(dict.fromkeys(text for text in texts if text is not None))
            code = {text: i for i, text in enumerate(names)}
            marks = frame.iloc[rows_of[has]].drop(columns="event")
            codes = np.array([code[text] for text in texts if text is not None], np.int64)
            recording.frames["marks"] = marks.assign(name=coded(codes, names)).reset_index(
                drop=True
            )
            marked[rows_of[~has]] = False
        if not marked.all():
            calls = frame[~marked].drop(columns="event").reset_index(drop=True)
            if calls["name"].isna().any():
                # A sample without a name is called by its kind.
                calls["name"] = (
                    calls["name"]
                    .astype(object)
                    .fillna(calls["domain"].astype(object))
                    .astype("category")
                )
            recording.frames["calls"] = calls

    def _messages(self, events: Int64s) -> list[str | None]:
        """Messages of the ranges of events; None for events without one."""
        index = _joined(self.events["id"], np.arange(len(self.extra)), events)
        extra = [self.extra[row] if row >= 0 else None for row in index.tolist()]
        messages = {
            text: message if isinstance(message := _mapping(text).get("message"), str) else None
            for text in set(extra)
        }
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


def _texts(rows: dict[str, npt.NDArray[Any]], name: str, count: int) -> list[Any]:
    return list(rows[name].tolist()) if name in rows else [None] * count


def _joined(idents: Int64s, values: Int64s, selected: Int64s) -> Int64s:
    """The values of rows by their ids, -1 for an id that there is not, and where there is no such
    column.
    """
    if not len(idents) or len(values) != len(idents):
        return np.full(len(selected), -1, np.int64)
    if len(idents) > 1 and (np.diff(idents) <= 0).any():
        order = np.argsort(idents, kind="stable")
        idents, values = idents[order], values[order]
    index = np.minimum(np.searchsorted(idents, selected), len(idents) - 1)
    return np.where(idents[index] == selected, values[index], -1)


def _mapping(text: object) -> dict[str, Any]:
    """An object in JSON; an empty one for everything else."""
    try:
        value = json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
