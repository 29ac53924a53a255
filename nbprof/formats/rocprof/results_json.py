"""Reads `*_results.json` of rocprofv3: one object a process, whose long lists go to columns as they
are read.

The file is walked by hand down to those lists, and `json` decodes one record at a time, so that a
million kernels are never a million dicts.

Format: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
("Output formats"), and the structures `rocprofiler_buffer_tracing_*_record_t` of the API reference,
whose field names the records have.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from json.decoder import scanstring  # type: ignore[attr-defined]
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile
from nbprof.core.garbage import collection_paused
from nbprof.core.trace import Int64s
from nbprof.formats.rocprof import notes
from nbprof.formats.rocprof.records import (
    Agent,
    Recording,
    by_message,
    coded,
    devices,
    ends,
    numbered,
    stacked,
)

ROOT = "rocprofiler-sdk-tool"
_BLANK = re.compile(r"[ \t\n\r]*")
_CHUNK = 128
_MOST = 2**63 - 1
_HUGE = 1e300
_FEW = 1 << 20
"""More kinds or operations than any version lists."""
_scan = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]
_Path = tuple[str, ...]


def _info(*keys: str) -> dict[str, _Path]:
    """Columns of a kernel by where they are found, its dispatch being below some keys."""
    result = {
        "agent": (*keys, "agent_id", "handle"),
        "queue": (*keys, "queue_id", "handle"),
        "dispatch": (*keys, "dispatch_id"),
        "kernel": (*keys, "kernel_id"),
        "lds": (*keys, "group_segment_size"),
        "scratch": (*keys, "private_segment_size"),
    }
    for axis in "xyz":
        result[f"group_{axis}"] = (*keys, "workgroup_size", axis)
        result[f"grid_{axis}"] = (*keys, "grid_size", axis)
    return result


_SPAN: dict[str, _Path] = {
    "start": ("start_timestamp",),
    "end": ("end_timestamp",),
    "thread": ("thread_id",),
    "correlation": ("correlation_id", "internal"),
}
_CALL: dict[str, _Path] = {**_SPAN, "kind": ("kind",), "operation": ("operation",)}
_STREAM: dict[str, _Path] = {"stream": ("stream_id", "handle")}
_AGENT: dict[str, _Path] = {"agent": ("agent_id", "handle")}
_ENDS: dict[str, _Path] = {
    "source": ("src_agent_id", "handle"),
    "target": ("dst_agent_id", "handle"),
    "bytes": ("bytes",),
}
_CALLS = ("hip_api", "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api")
_LISTS: dict[str, dict[str, _Path]] = {
    "kernel_dispatch": {**_SPAN, **_info("dispatch_info"), **_STREAM},
    "memory_copy": {**_CALL, **_ENDS, **_STREAM},
    **dict.fromkeys((*_CALLS, "marker_api"), _CALL),
    "memory_allocation": {**_CALL, **_AGENT, "bytes": ("allocation_size",)},
    "scratch_memory": {**_CALL, **_AGENT, "queue": ("queue_id", "handle")},
}
_COUNTED: dict[str, _Path] = {
    "start": ("dispatch_data", "start_timestamp"),
    "end": ("dispatch_data", "end_timestamp"),
    "correlation": ("dispatch_data", "correlation_id", "internal"),
    "thread": ("thread_id",),
    **_info("dispatch_data", "dispatch_info"),
}
_COUNTER = ("counter_id", "handle")
_NEEDED = frozenset({"start", "end", "kind", "operation"})
"""What a record cannot be without; versions may lack the rest."""


class _Rows:
    """Columns of one list of records."""

    def __init__(self, paths: dict[str, _Path]) -> None:
        self.paths = paths
        self.parts: dict[str, list[Int64s]] = {name: [] for name in paths}
        self.bad = 0

    def add(self, records: list[Any]) -> None:
        """Moves records into columns: all at once, or record by record where one lacks
        something.
        """
        columns = self._columns(records)
        lacking = [name for name in _NEEDED & columns.keys() if columns[name] is None]
        if lacking:
            complete = [record for record in records if self._has(record, lacking)]
            self.bad += len(records) - len(complete)
            records, columns = complete, self._columns(complete)
        for name, column in columns.items():
            if column is None:
                column = _numbers(self.paths[name], records)
            self.parts[name].append(column)

    def _columns(self, records: list[Any]) -> dict[str, Int64s | None]:
        return {name: _column(path, records) for name, path in self.paths.items()}

    def _has(self, record: Any, names: Iterable[str]) -> bool:
        return all(_number(self.paths[name], record) >= 0 for name in names)

    def frame(self) -> pd.DataFrame:
        """The columns; without those that no record has, for the version does not write them."""
        columns = {}
        for name, parts in self.parts.items():
            column = np.concatenate([np.zeros(0, np.int64), *parts])
            if name in _NEEDED or (column >= 0).any():
                columns[name] = column
        return pd.DataFrame(columns)


def _column(path: _Path, records: Iterable[Any]) -> Int64s | None:
    """The whole numbers at a path, None where one of the records has none there."""
    for key in path:
        records = map(itemgetter(key), records)
    try:
        return np.fromiter(records, np.int64)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError):
        return None


def _number(path: _Path, record: Any) -> int:
    """The whole number at a path, -1 where there is none that int64 holds."""
    for key in path:
        record = _dict(record).get(key)
    return _integer(record)


def _numbers(path: _Path, records: Sequence[Any]) -> Int64s:
    return np.fromiter((_number(path, record) for record in records), np.int64, len(records))


class _Process:
    """Records of one process, before names are looked up."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.lists = {name: _Rows(paths) for name, paths in _LISTS.items()}
        self.counted = _Rows(_COUNTED)
        self.values: list[pd.DataFrame] = []

    def count(self, records: list[Any]) -> None:
        """Takes in the counters of some dispatches; each instance of a counter is a value of its
        own.
        """
        self.counted.add(records)
        arrays = [_list(_dict(record).get("records")) for record in records]
        values = list(itertools.chain.from_iterable(arrays))
        counter = _column(_COUNTER, values)
        if counter is None:
            counter = _numbers(_COUNTER, values)
        try:
            value = np.fromiter(map(itemgetter("value"), values), np.float64, len(values))
        except (KeyError, TypeError, IndexError, ValueError, OverflowError):
            value = np.fromiter(map(_value, values), np.float64, len(values))
        dispatch = _numbers(_COUNTED["dispatch"], records)
        number = np.repeat(dispatch, list(map(len, arrays)))
        good = (number >= 0) & (counter >= 0) & np.isfinite(value)
        self.values.append(
            pd.DataFrame({"dispatch": number[good], "counter": counter[good], "value": value[good]})
        )


def _value(record: Any) -> float:
    """The value of a counter, NaN where there is none; versions before ROCm 6.3 call it
    otherwise.
    """
    fields = _dict(record)
    value = fields.get("value", fields.get("counter_value"))
    if isinstance(value, (int, float)) and abs(value) < _HUGE:
        return float(value)
    return math.nan


class _Walk:
    """A reader of the text from an offset on; `truncated_at` is where it ended early, or -1."""

    def __init__(self, text: str, progress: Callable[[int], None]) -> None:
        self.text = text
        self.offset = 0
        self.truncated_at = -1
        self.reached = progress

    def fail(self) -> NoReturn:
        self.truncated_at = self.offset
        raise EOFError

    def peek(self) -> str:
        """The next character that is not blank; the empty text at the end."""
        self.offset = _BLANK.match(self.text, self.offset).end()  # type: ignore[union-attr]
        return self.text[self.offset : self.offset + 1]

    def value(self) -> Any:
        """The value here, decoded."""
        self.peek()
        try:
            value, self.offset = _scan(self.text, self.offset)
        except (StopIteration, ValueError, RecursionError):
            self.fail()
        return value

    def members(self, handlers: dict[str, Callable[[], None]]) -> dict[str, Any]:
        """The object here: members that have a handler are read by it, those of the others are
        returned.
        """
        result: dict[str, Any] = {}
        if self.peek() != "{":
            return {"": self.value()}
        self.offset += 1
        while (mark := self.peek()) != "}":
            if mark == ",":
                self.offset += 1
                continue
            if mark != '"':
                self.fail()
            try:
                key, self.offset = scanstring(self.text, self.offset + 1, False)
            except ValueError:
                self.fail()
            if self.peek() != ":":
                self.fail()
            self.offset += 1
            if key in handlers:
                handlers[key]()
            else:
                result[key] = self.value()
        self.offset += 1
        return result

    def skim(self, handlers: dict[str, Callable[[], None]]) -> None:
        """The same for an object whose other members are of no use."""
        self.members(handlers)

    def items(self, each: Callable[[], None]) -> None:
        """The list here, item by item; any other value counts as one item."""
        if self.peek() != "[":
            each()
            return
        self.offset += 1
        while (mark := self.peek()) != "]":
            if mark == ",":
                self.offset += 1
            elif not mark:
                self.fail()
            else:
                each()
        self.offset += 1

    def records(self, add: Callable[[list[Any]], None]) -> None:
        """A long list, whose items are passed on in chunks as they are read."""
        if self.peek() != "[":
            self.value()
            return
        text, blank, scan = self.text, _BLANK.match, _scan
        offset, chunk = self.offset + 1, []
        try:
            while True:
                offset = blank(text, offset).end()  # type: ignore[union-attr]
                mark = text[offset : offset + 1]
                if mark == ",":
                    offset += 1
                elif mark == "]":
                    self.offset = offset + 1
                    return
                else:
                    record, offset = scan(text, offset)
                    chunk.append(record)
                    if len(chunk) >= _CHUNK:
                        add(chunk)
                        chunk = []
                        self.reached(offset)
        except (StopIteration, ValueError, RecursionError):
            self.offset = offset
            self.fail()
        finally:
            add(chunk)


def read(file: SourceFile) -> list[Recording]:
    """The recording of each process.

    Raises
    ------
    ReadError
        The file is none of rocprofv3's.
    """
    buffer = file.read()
    text = str(buffer.data, "utf-8", "replace")
    size = buffer.size
    buffer.release(0, size)
    walk = _Walk(text, lambda offset: buffer.reached(min(offset, size)))
    processes: list[_Process] = []

    def read_process() -> None:
        process = _Process()
        processes.append(process)
        lists: dict[str, Callable[[], None]] = {
            name: partial(walk.records, rows.add) for name, rows in process.lists.items()
        }
        counted: dict[str, Callable[[], None]] = {
            "counter_collection": partial(walk.records, process.count)
        }
        more: dict[str, Callable[[], None]] = {
            "buffer_records": partial(walk.skim, lists),
            "callback_records": partial(walk.skim, counted),
        }
        # Records before a truncation stay.
        _members_into(walk, more, process.facts)

    with collection_paused(), contextlib.suppress(EOFError):
        walk.members({ROOT: lambda: walk.items(read_process)})
    if not processes:
        raise ReadError(
            f'it has no "{ROOT}", which the JSON of rocprofv3 begins with.',
            path=file.label,
            offset=max(walk.truncated_at, 0),
        )
    recordings = list(map(_recording, processes))
    if walk.truncated_at >= 0:
        recordings[-1].notes.append(notes.truncated(walk.truncated_at))
    return recordings


def _members_into(
    walk: _Walk, handlers: dict[str, Callable[[], None]], facts: dict[str, Any]
) -> None:
    """The members of a process; each goes to `facts` as soon as it is read."""
    names = ("metadata", "agents", "counters", "strings", "kernel_symbols")

    def read_fact(name: str) -> None:
        facts[name] = walk.value()

    readers = {name: partial(read_fact, name) for name in names}
    walk.members({**readers, **handlers})


def _recording(process: _Process) -> Recording:
    facts = _dict(process.facts.get("metadata"))
    agents = _agents(process.facts.get("agents"))
    recording = Recording(_integer(facts.get("pid")), agents=agents)
    strings = _dict(process.facts.get("strings"))
    kinds = list(map(_dict, _list(strings.get("buffer_records"))))
    frames: dict[str, pd.DataFrame] = {}
    for name, rows in process.lists.items():
        frame = rows.frame()
        if len(frame):
            frames[name] = frame
        recording.bad += rows.bad
    recording.bad += process.counted.bad
    kernels = frames.get("kernel_dispatch", process.counted.frame())
    if len(kernels):
        symbols = process.facts.get("kernel_symbols")
        recording.frames["kernels"] = _kernels(kernels, symbols, agents)
    if process.values:
        values = pd.concat(process.values, ignore_index=True)
        recording.frames["counters"] = _counters(values, process.facts.get("counters"))
    if "memory_copy" in frames:
        copies = frames["memory_copy"]
        columns = ends(_or_none(copies, "source"), _or_none(copies, "target"), agents)
        recording.frames["copies"] = _named(copies, kinds).assign(**columns)
    calls = [_named(frames[name], kinds) for name in _CALLS if name in frames]
    if "marker_api" in frames:
        ranges, nameless = _marks(frames["marker_api"], kinds, _list(strings.get("marker_api")))
        if len(ranges):
            recording.frames["marks"] = ranges
        if len(nameless):
            calls.append(nameless)
    if calls:
        recording.frames["calls"] = stacked(calls)
    allocations = []
    for name in ("memory_allocation", "scratch_memory"):
        if name in frames:
            device = devices(_or_none(frames[name], "agent"), agents)
            allocations.append(_named(frames[name], kinds).assign(device=device))
    if allocations:
        recording.frames["allocations"] = stacked(allocations)
    recording.drop_undated()
    return recording


def _marks(
    frame: pd.DataFrame, kinds: Sequence[dict[str, Any]], listed: Iterable[object]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ranges and marks, named by their messages, and the calls of the API without a message, which
    concern a thread's id or names of devices.
    """
    texts: dict[int, str] = {}
    for row in map(_dict, listed):
        texts[_integer(row.get("key"))] = str(row.get("value"))
    named = _named(frame, kinds)
    messages = list(map(texts.get, _or_none(frame, "correlation").tolist()))
    name, has_message = by_message(messages)
    ranges = named[has_message].assign(name=name).reset_index(drop=True)
    return ranges, named[~has_message]


def _or_none(frame: pd.DataFrame, name: str) -> Int64s:
    if name not in frame:
        return np.full(len(frame), -1, np.int64)
    return frame[name].to_numpy(np.int64)


def _named(frame: pd.DataFrame, kinds: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Records with the names of their kind and operation, as the file lists them."""
    kind_of_row = np.clip(frame["kind"].to_numpy(), 0, _FEW - 1)
    operation_of_row = np.clip(frame["operation"].to_numpy(), 0, _FEW - 1)
    first, inverse = np.unique(kind_of_row * _FEW + operation_of_row, return_inverse=True)
    names, domains = [], []
    for both in first.tolist():
        kind, operation = divmod(both, _FEW)
        domain, operations = f"kind {kind}", []
        if kind < len(kinds):
            domain = str(kinds[kind].get("kind", domain))
            operations = _list(kinds[kind].get("operations"))
        name = f"{domain} operation {operation}"
        if operation < len(operations):
            name = str(operations[operation])
        domains.append(domain)
        names.append(name)
    inverse = inverse.reshape(-1)
    return frame.drop(columns=["kind", "operation"]).assign(
        domain=coded(inverse, domains), name=coded(inverse, names)
    )


def _kernels(frame: pd.DataFrame, symbols: object, agents: Sequence[Agent]) -> pd.DataFrame:
    symbols_by_id = {}
    for number, description in enumerate(_list(symbols)):
        symbol = _dict(description)
        # A map is a list of keys and values.
        if "value" in symbol:
            symbol = _dict(symbol["value"])
        symbols_by_id[_integer(symbol.get("kernel_id", number))] = symbol
    first, inverse = np.unique(_or_none(frame, "kernel"), return_inverse=True)
    inverse = inverse.reshape(-1)
    names = []
    registers: dict[str, list[int]] = {"vgpr": [], "accum_vgpr": [], "sgpr": []}
    for ident in first.tolist():
        symbol = symbols_by_id.get(ident, {})
        name = symbol.get("formatted_kernel_name") or symbol.get("kernel_name")
        names.append(str(name or f"kernel {ident}"))
        registers["vgpr"].append(_integer(symbol.get("arch_vgpr_count")))
        registers["accum_vgpr"].append(_integer(symbol.get("accum_vgpr_count")))
        registers["sgpr"].append(_integer(symbol.get("sgpr_count")))
    result = frame.assign(
        name=coded(inverse, names), device=devices(_or_none(frame, "agent"), agents)
    )
    for column, counts in registers.items():
        result[column] = np.array(counts, np.int64)[inverse]
    return result


def _counters(values: pd.DataFrame, listed: object) -> pd.DataFrame:
    names = {}
    for counter in _list(listed):
        names[_number(("id", "handle"), counter)] = str(_dict(counter).get("name"))
    first, inverse = np.unique(values["counter"].to_numpy(), return_inverse=True)
    texts = [names.get(ident, f"counter {ident}") for ident in first.tolist()]
    return values.drop(columns="counter").assign(name=coded(inverse.reshape(-1), texts))


def _agents(listed: object) -> list[Agent]:
    agents = []
    for facts in filter(None, map(_dict, _list(listed))):
        key, kind = _number(("id", "handle"), facts), _integer(facts.get("type"))
        agents.append(Agent(key, kind, _integer(facts.get("logical_node_type_id")), facts))
    agents.sort(key=_nodes)
    return numbered(agents)


def _nodes(agent: Agent) -> tuple[int, int]:
    return _integer(agent.facts.get("logical_node_id")), _integer(agent.facts.get("node_id"))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _integer(value: object) -> int:
    """A number that int64 holds and that is not negative; -1 for any other value."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    return -1
