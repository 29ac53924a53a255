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
from typing import Any

import numpy as np
import pandas as pd

from nbprof.core.files import SourceFile
from nbprof.core.trace import Int64s
from nbprof.formats.rocprof import notes
from nbprof.formats.rocprof.headers import NOT_READ, TABLES, cells, kind_of
from nbprof.formats.rocprof.records import (
    COLUMNS,
    CPU,
    GPU,
    Agent,
    Recording,
    dated,
    devices,
    ends,
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


def read(files: Sequence[SourceFile], label: str) -> Recording:
    """The recording in the tables of one process."""
    result = Recording(label=label)
    parts_by_kind: dict[str, list[pd.DataFrame]] = {}
    for file in files:
        data = bytes(file.read().data)
        kind = kind_of(data[: data.find(b"\n") + 1 or len(data)])
        if kind and kind not in NOT_READ:
            parts_by_kind.setdefault(kind, []).append(_table(data, kind, result))
    tables = {kind: stacked(frames) for kind, frames in parts_by_kind.items()}
    if (listed := tables.pop("agents", None)) is not None:
        result.agents = _agents(listed)
    pids = [frame.pop("pid") for frame in tables.values() if "pid" in frame]
    result.pid = next((int(pid.iloc[0]) for pid in pids if len(pid)), -1)
    keys = _AgentKeys(tables, result.agents)
    if not result.agents:
        result.agents = keys.agents = keys.unlisted()
        if any(agent.type == GPU for agent in result.agents):
            result.notes.append(notes.no_agent_info())
    for name, frame in tables.items():
        if "agent" in frame:
            frame["device"] = devices(keys.by_row(frame.pop("agent")), result.agents)
        if "source" in frame and "target" in frame:
            source, target = keys.by_row(frame["source"]), keys.by_row(frame["target"])
            tables[name] = frame.assign(**ends(source, target, result.agents))
    counters = tables.get("counters")
    if counters is not None:
        result.frames["counters"] = counters.drop(columns="name", errors="ignore").rename(
            columns={"counter": "name"}
        )[list(COLUMNS["counters"])]
        if "kernels" not in tables and {"start", "end"} <= set(counters.columns):
            tables["kernels"] = counters.drop(columns=["counter", "value"]).drop_duplicates(
                "dispatch"
            )
    if (calls := tables.get("calls")) is not None:
        is_range = _ranges(calls)
        tables["marks"] = calls[is_range].reset_index(drop=True)
        tables["calls"] = calls[~is_range].reset_index(drop=True)
    for kind in ("kernels", "copies", "calls", "marks", "allocations"):
        if kind in tables:
            result.frames[kind], bad = dated(tables[kind])
            result.bad += bad
    return result


def _ranges(calls: pd.DataFrame) -> pd.Series:
    """Calls that are ranges and marks of ROCTx, by their domain; a function of it goes by its own
    name.
    """
    core = [
        str(domain)
        for domain in calls["domain"].cat.categories
        if str(domain).startswith("MARKER_CORE")
    ]
    functions = [name for name in calls["name"].cat.categories if _CALL.fullmatch(str(name))]
    return calls["domain"].isin(core) & ~calls["name"].isin(functions)


def _table(data: bytes, kind: str, recording: Recording) -> pd.DataFrame:
    """One table with the columns that are known, numbers as int64 with -1 where there is none."""
    header = cells(data[: data.find(b"\n") + 1 or len(data)])
    specs = TABLES[kind][1]
    # Of two columns with one meaning the later one here is the better: the size as requested.
    names_here = sorted(set(header) & set(specs), key=list(specs).index)
    indices = {specs[name]: header.index(name) for name in names_here}
    if kind == "agents":
        indices = {name.lower(): i for i, name in reversed(list(enumerate(header))) if name}
    if kind == "kernels" and "LDS_Block_Size" in header and "Group_Segment_Size" not in header:
        recording.rounded_lds = True
    texts = _TEXTS if kind != "agents" else frozenset(indices)
    raw = _rows(data, indices, {name: "category" for name in indices if name in texts})
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
    names = {index: name for name, index in indices.items()}
    body = io.BytesIO(data[data.find(b"\n") + 1 :] if b"\n" in data else b"")
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
        "dtype": {indices[name]: kind for name, kind in types.items()},
    }
    try:
        # Columns that are chosen let rows be longer than the header.
        raw: pd.DataFrame = pd.read_csv(body, **options, usecols=sorted(names))
    except pd.errors.EmptyDataError:
        raw = pd.DataFrame(
            {index: pd.Series([], dtype=types.get(name, "int64")) for index, name in names.items()}
        )
    except (pd.errors.ParserError, IndexError):
        # A quote that is never closed, which taken for a letter costs its own row; or no row is as
        # long as the header.
        body.seek(0)
        raw = pd.read_csv(body, **options, quoting=csv.QUOTE_NONE)
    return raw[list(names)].rename(columns=names)


def _integers(column: pd.Series) -> Int64s:
    cells = [str(cell).strip(' "') for cell in column]
    return np.array([int(cell) if _NUMBER.fullmatch(cell) else -1 for cell in cells], np.int64)


class _AgentKeys:
    """Keys of agents by their texts: `Agent 1`, `GPU 0`, or a number alone.

    The number is the logical one unless ROCPROF_AGENT_INDEX was set to another; then some kernel's
    agent would be no GPU by its logical number.
    """

    def __init__(self, tables: dict[str, pd.DataFrame], agents: Sequence[Agent]) -> None:
        self.agents = list(agents)
        texts: set[object] = set()
        for kind in ("kernels", "counters"):
            if kind in tables:
                texts.update(tables[kind]["agent"].unique())
        numbers = {_parts(text)[1] for text in texts}
        self.used = sorted(number for number in numbers if number >= 0)
        gpus = [agent for agent in agents if agent.type == GPU]
        logical = {agent.facts["_keys"][0] for agent in gpus}
        node = {agent.facts["_keys"][1] for agent in gpus}
        self.by = 1 if not set(self.used) <= logical and set(self.used) <= node else 0

    def unlisted(self) -> list[Agent]:
        """Agents for tables without a list of them: GPUs, for kernels run on these."""
        return [Agent(number, GPU, number) for number in self.used]

    def by_row(self, column: pd.Series) -> Int64s:
        """Keys of agents by row."""
        table = np.array([*(self._key(str(text)) for text in column.cat.categories), -1], np.int64)
        return table[column.cat.codes.to_numpy()]

    def _key(self, text: str) -> int:
        word, number = _parts(text)
        for agent in self.agents:
            if word in ("GPU", "CPU"):
                kind = GPU if word == "GPU" else CPU
                matches = agent.type == kind and agent.number == number
            else:
                matches = agent.facts.get("_keys", (agent.key,) * 2)[self.by] == number
            if matches:
                return agent.key
        return -1


def _parts(text: object) -> tuple[str, int]:
    match = _NAMED.fullmatch(str(text))
    return (match[1], int(match[2])) if match else ("", -1)


def _agents(listed: pd.DataFrame) -> list[Agent]:
    result = []
    for row in listed.to_dict("records"):
        facts = {str(key): _number_or_text(value) for key, value in row.items() if pd.notna(value)}
        logical, node = (_integer(facts.get(key)) for key in ("logical_node_id", "node_id"))
        facts["_keys"] = (logical, node)
        kind = {"CPU": CPU, "GPU": GPU}.get(str(facts.get("agent_type")), 0)
        result.append(Agent(logical, kind, -1, facts))
    result.sort(key=lambda agent: agent.key)
    return numbered(result)


def _number_or_text(value: object) -> Any:
    text = str(value)
    return int(text) if _NUMBER.fullmatch(text) else text


def _integer(value: object) -> int:
    return value if isinstance(value, int) else -1
