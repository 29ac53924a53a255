"""Reads the tables (CSV) that rocprofv3 writes of one process; each is known by its header,
whatever the file is called.

Versions call their columns alike and add some (Stream_Id, the registers of kernels). What a table
lacks is unknown. `*_stats.csv` sum the traces up and are not read.

Format: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
("Application tracing", "Kernel counter collection", "Agent info").
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.files import SourceFile
from nbprof.core.trace import Int64s
from nbprof.formats.rocprof import notes
from nbprof.formats.rocprof.headers import NOT_READ, TABLES, cells, kind_of
from nbprof.formats.rocprof.records import (
    AGENT_TYPES,
    COLUMNS,
    GPU,
    Agent,
    Recording,
    devices,
    ends,
    gpus_of,
    is_marker,
    numbered,
    stacked,
)

_TEXTS = frozenset({"name", "domain", "agent", "source", "target", "counter"})
_REAL = frozenset({"value"})
_NUMBER = re.compile(r"\d{1,18}")
_NAMED = re.compile(r"(\D*?)[ -]?(\d{1,18})")
_CALL = re.compile(r"roctx[A-Z]\w+")
"""Functions of ROCTx that are listed among its ranges: what a program calls a range does not look
like that.
"""


def read(files: Sequence[SourceFile]) -> Recording:
    """The recording in the tables of one process."""
    result = Recording()
    parts_by_kind: dict[str, list[pd.DataFrame]] = {}
    for file in files:
        data = bytes(file.read().data)
        end = data.rfind(b"\n") + 1
        if 0 < end < len(data):
            # A number may lack its last digits.
            result.notes.append(notes.truncated_table(file.name))
            data = data[:end]
        kind = kind_of(data[: data.find(b"\n") + 1 or len(data)])
        if kind and kind not in NOT_READ:
            parts_by_kind.setdefault(kind, []).append(_table(data, kind, result))
    tables = {kind: stacked(frames) for kind, frames in parts_by_kind.items()}
    if "agents" in tables:
        result.agents = _agents(tables.pop("agents"))
    for frame in tables.values():
        if "pid" in frame:
            pids = frame.pop("pid")
            if result.pid < 0 and len(pids):
                result.pid = int(pids.iloc[0])
    keys = _AgentKeys(tables, result.agents)
    if not result.agents:
        result.agents = keys.agents = keys.unlisted()
        if result.agents:
            result.notes.append(notes.no_agent_info())
    for name, frame in tables.items():
        if "agent" in frame:
            frame["device"] = devices(keys.by_row(frame.pop("agent")), result.agents)
        if "source" in frame and "target" in frame:
            source, target = keys.by_row(frame["source"]), keys.by_row(frame["target"])
            tables[name] = frame.assign(**ends(source, target, result.agents))
    counters = tables.get("counters")
    if counters is not None:
        named = counters.drop(columns="name", errors="ignore").rename(columns={"counter": "name"})
        result.frames["counters"] = named[list(COLUMNS["counters"])]
        if "kernels" not in tables and {"start", "end"} <= set(counters.columns):
            dispatches = counters.drop(columns=["counter", "value"])
            tables["kernels"] = dispatches.drop_duplicates("dispatch")
    if "calls" in tables:
        calls = tables["calls"]
        is_range = _ranges(calls)
        tables["marks"] = calls[is_range].reset_index(drop=True)
        tables["calls"] = calls[~is_range].reset_index(drop=True)
    for kind in ("kernels", "copies", "calls", "marks", "allocations"):
        if kind in tables:
            result.frames[kind] = tables[kind]
    result.drop_undated()
    return result


def _ranges(calls: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Calls that are ranges and marks of ROCTx, by their domain; a function of it goes by its own
    name.
    """
    functions = [name for name in calls["name"].cat.categories if _CALL.fullmatch(str(name))]
    return is_marker(calls["domain"]) & ~calls["name"].isin(functions).to_numpy()


def _table(data: bytes, kind: str, recording: Recording) -> pd.DataFrame:
    """One table with the columns that are known, numbers as int64 with -1 where there is none."""
    header = cells(data[: data.find(b"\n") + 1 or len(data)])
    specs = TABLES[kind][1]
    indices: dict[str, int] = {}
    # Of two columns with one meaning the later one here is the better: the size as requested.
    for name, column_name in specs.items():
        if name in header:
            indices[column_name] = header.index(name)
    texts = _TEXTS & indices.keys()
    if kind == "agents":
        lowered = list(map(str.lower, header))
        indices = {name: lowered.index(name) for name in filter(None, reversed(lowered))}
        texts = frozenset(indices)
    if kind == "kernels" and "LDS_Block_Size" in header and "Group_Segment_Size" not in header:
        recording.rounded_lds = True
    raw = _rows(data, indices, dict.fromkeys(texts, "category"))
    columns: dict[str, Any] = {}
    exact: pd.DataFrame | None = None
    for name in indices:
        column = raw[name]
        if name in texts:
            columns[name] = column.astype("category")
        elif name in _REAL:
            value = pd.to_numeric(column, errors="coerce").astype(np.float64)
            columns[name] = value.where(np.isfinite(value))
        elif column.dtype == np.int64:
            columns[name] = column
        else:
            # A float would not hold a time exactly.
            if exact is None:
                exact = _rows(data, indices, dict.fromkeys(indices, "str"))
            columns[name] = _integers(exact[name])
    # Texts that a damaged header lacks are unknown.
    for name in (set(specs.values()) & _TEXTS) - set(columns):
        columns[name] = pd.Categorical.from_codes(
            np.full(len(raw), -1), categories=pd.Index([], dtype=object)
        )
    return pd.DataFrame(columns, copy=False)


def _rows(data: bytes, indices: dict[str, int], types: dict[str, str]) -> pd.DataFrame:
    """The rows behind the header as pandas reads them; cells behind the last column are left
    out.
    """
    names = dict(zip(indices.values(), indices, strict=True))
    column_types = {indices[name]: kind for name, kind in types.items()}
    body = io.BytesIO(data.partition(b"\n")[2])
    options: dict[str, Any] = {
        "header": None,
        "names": range(max(names, default=0) + 1),
        "index_col": False,
        "on_bad_lines": "skip",
        "low_memory": False,
        "encoding": "utf-8",
        "encoding_errors": "replace",
        "keep_default_na": False,
        "na_values": [""],
        "dtype": column_types,
    }
    try:
        # Columns that are chosen let rows be longer than the header.
        raw: pd.DataFrame = pd.read_csv(body, **options, usecols=sorted(names))
    except pd.errors.EmptyDataError:
        raw = pd.DataFrame(columns=list(names), dtype="int64").astype(column_types)
    except (pd.errors.ParserError, IndexError):
        # A quote that is never closed, which taken for a letter costs its own row; or no row is as
        # long as the header.
        body.seek(0)
        raw = pd.read_csv(body, **options, quoting=csv.QUOTE_NONE)
    return raw[list(names)].rename(columns=names)


def _integers(column: pd.Series) -> Int64s:
    return np.fromiter(map(_cell_number, column), np.int64, len(column))


def _cell_number(cell: object) -> int:
    text = str(cell).strip(' "')
    return int(text) if _NUMBER.fullmatch(text) else -1


class _AgentKeys:
    """Keys of agents by their texts: `Agent 1`, `GPU 0`, or a number alone.

    The number is the logical one unless ROCPROF_AGENT_INDEX was set to another; then some kernel's
    agent would be no GPU by its logical number.
    """

    def __init__(self, tables: dict[str, pd.DataFrame], agents: Sequence[Agent]) -> None:
        self.agents = list(agents)
        used: set[int] = set()
        for kind in ("kernels", "counters"):
            if kind in tables:
                used.update(_parts(text)[1] for text in tables[kind]["agent"].unique())
        self.used = used - {-1}
        keys = [gpu.facts["_keys"] for gpu in gpus_of(agents)]
        logical, node = set(map(itemgetter(0), keys)), set(map(itemgetter(1), keys))
        self.by_node = self.used <= node and not self.used <= logical

    def unlisted(self) -> list[Agent]:
        """Agents for tables without a list of them: GPUs, for kernels run on these."""
        return [Agent(number, GPU, number) for number in sorted(self.used)]

    def by_row(self, column: pd.Series) -> Int64s:
        """Keys of agents by row."""
        keys = [self._key(str(text)) for text in column.cat.categories]
        return np.array([*keys, -1], np.int64)[column.cat.codes.to_numpy()]

    def _key(self, text: str) -> int:
        word, number = _parts(text)
        for agent in self.agents:
            key = agent.facts.get("_keys", (agent.key,) * 2)[self.by_node]
            if word in AGENT_TYPES:
                key = agent.number if agent.type == AGENT_TYPES[word] else -1
            if key == number:
                return agent.key
        return -1


def _parts(text: object) -> tuple[str, int]:
    match = _NAMED.fullmatch(str(text))
    if not match:
        return "", -1
    return match[1], int(match[2])


def _agents(listed: pd.DataFrame) -> list[Agent]:
    result = []
    for row in listed.to_dict("records"):
        facts = {str(key): _number_or_text(value) for key, value in row.items() if pd.notna(value)}
        logical, node = _integer(facts.get("logical_node_id")), _integer(facts.get("node_id"))
        facts["_keys"] = (logical, node)
        kind = AGENT_TYPES.get(str(facts.get("agent_type")), 0)
        result.append(Agent(logical, kind, -1, facts))
    result.sort(key=lambda agent: agent.key)
    return numbered(result)


def _number_or_text(value: object) -> Any:
    text = str(value)
    return int(text) if _NUMBER.fullmatch(text) else text


def _integer(value: object) -> int:
    return value if isinstance(value, int) else -1
