"""Reads `*_results.json` of rocprofv3: one object a process, whose long lists go to columns as they
are read.

The file is walked by hand down to those lists, and `json` decodes one record at a time, so that a
million kernels are never a million dicts.

Format: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
("Output formats"), and the structures `rocprofiler_buffer_tracing_*_record_t` of the API reference,
whose field names the records have.
"""

from __future__ import annotations

import gc
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
from nbprof.core.trace import Int64s
from nbprof.formats.rocprof import notes
from nbprof.formats.rocprof.records import (
    Agent,
    Recording,
    coded,
    dated,
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


_TIMES: dict[str, _Path] = {"start": ("start_timestamp",), "end": ("end_timestamp",)}
_SPAN: dict[str, _Path] = {
    **_TIMES,
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
_LISTS: dict[str, dict[str, _Path]] = {
    "kernel_dispatch": {**_SPAN, **_info("dispatch_info"), **_STREAM},
    "memory_copy": {**_CALL, **_ENDS, **_STREAM},
    **dict.fromkeys(
        ("hip_api", "hsa_api", "marker_api", "rccl_api", "rocdecode_api", "rocjpeg_api"), _CALL
    ),
    "memory_allocation": {**_CALL, **_AGENT, "bytes": ("allocation_size",)},
    "scratch_memory": {**_CALL, **_AGENT, "queue": ("queue_id", "handle")},
}
_COUNTED: dict[str, _Path] = {
    **{name: ("dispatch_data", *path) for name, path in _SPAN.items() if name != "thread"},
    "thread": ("thread_id",),
    **_info("dispatch_data", "dispatch_info"),
}
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
        columns = {name: _column(path, records) for name, path in self.paths.items()}
        if lost := [name for name, column in columns.items() if column is None and name in _NEEDED]:
            good = [record for record in records if self._has(record, lost)]
            self.bad += len(records) - len(good)
            records = good
            columns = {name: _column(path, records) for name, path in self.paths.items()}
        for name, column in columns.items():
            if column is None:
                column = np.fromiter(
                    (_number(self.paths[name], record) for record in records),
                    np.int64,
                    len(records),
                )
            self.parts[name].append(column)

    def _has(self, record: Any, names: Iterable[str]) -> bool:
        return all(_number(self.paths[name], record) >= 0 for name in names)

    def frame(self) -> pd.DataFrame:
        """The columns; without those that no record has, for the version does not write them."""
        none = np.zeros(0, np.int64)
        columns = {name: np.concatenate([none, *parts]) for name, parts in self.parts.items()}
        return pd.DataFrame(
            {
                name: column
                for name, column in columns.items()
                if name in _NEEDED or (column >= 0).any()
            }
        )


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
        record = record.get(key) if isinstance(record, dict) else None
    return _integer(record)


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
        dispatch = [_number(_COUNTED["dispatch"], record) for record in records]
        arrays = [_list(_dict(record).get("records")) for record in records]
        values = list(itertools.chain.from_iterable(arrays))
        counter = _column(("counter_id", "handle"), values)
        if counter is None:
            counter = np.fromiter(
                (_number(("counter_id", "handle"), value) for value in values),
                np.int64,
                len(values),
            )
        try:
            value = np.fromiter(map(itemgetter("value"), values), np.float64, len(values))
        except (KeyError, TypeError, IndexError, ValueError, OverflowError):
            value = np.fromiter(map(_value, values), np.float64, len(values))
        number = np.repeat(np.array(dispatch, np.int64), [len(array) for array in arrays])
        good = (number >= 0) & (counter >= 0) & np.isfinite(value)
        self.values.append(
            pd.DataFrame({"dispatch": number[good], "counter": counter[good], "value": value[good]})
        )


def _value(record: Any) -> float:
    """The value of a counter, NaN where there is none; versions before ROCm 6.3 call it
    otherwise.
    """
    value = record.get("value", record.get("counter_value")) if isinstance(record, dict) else None
    return float(value) if isinstance(value, (int, float)) and abs(value) < _HUGE else math.nan


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

    # The dicts are short-lived and in no cycle: the collector would scan all objects again and
    # again in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        walk.members({ROOT: lambda: walk.items(read_process)})
    except EOFError:
        pass
    finally:
        if collecting:
            gc.enable()
    if not processes:
        raise ReadError(
            f'it has no "{ROOT}", which the JSON of rocprofv3 begins with.',
            path=file.label,
            offset=max(walk.truncated_at, 0),
        )
    recordings = [_recording(process, file) for process in processes]
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


def _recording(process: _Process, file: SourceFile) -> Recording:
    facts = _dict(process.facts.get("metadata"))
    recording = Recording(
        _integer(facts.get("pid")), file.name, agents=_agents(process.facts.get("agents"))
    )
    strings = _dict(process.facts.get("strings"))
    kinds = [_dict(kind) for kind in _list(strings.get("buffer_records"))]
    frames = {name: rows.frame() for name, rows in process.lists.items()}
    counted = process.counted.frame()
    recording.bad = sum(rows.bad for rows in process.lists.values()) + process.counted.bad
    kernels = frames["kernel_dispatch"]
    if not len(kernels) and len(counted):
        kernels = counted
    if len(kernels):
        recording.frames["kernels"] = _kernels(
            kernels, process.facts.get("kernel_symbols"), recording.agents
        )
    if process.values:
        recording.frames["counters"] = _counters(
            pd.concat(process.values, ignore_index=True), process.facts.get("counters")
        )
    if len(copies := frames["memory_copy"]):
        columns = ends(_or_none(copies, "source"), _or_none(copies, "target"), recording.agents)
        recording.frames["copies"] = _named(copies, kinds).assign(**columns)
    calls = [
        _named(frames[name], kinds)
        for name in _LISTS
        if name.endswith("_api") and name != "marker_api" and len(frames[name])
    ]
    if len(marks := frames["marker_api"]):
        ranges, calls_without_message = _marks(marks, kinds, _list(strings.get("marker_api")))
        if len(ranges):
            recording.frames["marks"] = ranges
        if len(calls_without_message):
            calls.append(calls_without_message)
    if calls:
        recording.frames["calls"] = stacked(calls)
    allocations = []
    for name in ("memory_allocation", "scratch_memory"):
        if len(frame := frames[name]):
            device = devices(_or_none(frame, "agent"), recording.agents)
            allocations.append(_named(frame, kinds).assign(device=device))
    if allocations:
        recording.frames["allocations"] = stacked(allocations)
    for kind, frame in recording.frames.items():
        if kind != "counters":
            recording.frames[kind], bad = dated(frame)
            recording.bad += bad
    return recording


def _marks(
    frame: pd.DataFrame, kinds: Sequence[dict[str, Any]], listed: Iterable[object]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ranges and marks, named by their messages, and the calls of the API without a message, which
    concern a thread's id or names of devices.
    """
    texts_by_key = {_integer(_dict(row).get("key")): str(_dict(row).get("value")) for row in listed}
    named = _named(frame, kinds)
    messages = [texts_by_key.get(key) for key in _or_none(frame, "correlation").tolist()]
    has_message = np.array([message is not None for message in messages], np.bool_)
    texts = list(dict.fromkeys(message for message in messages if message is not None))
    code = {text: i for i, text in enumerate(texts)}
    codes = np.array([code[message] for message in messages if message is not None], np.int64)
    ranges = named[has_message].assign(name=coded(codes, texts)).reset_index(drop=True)
    return ranges, named[~has_message]


def _or_none(frame: pd.DataFrame, name: str) -> Int64s:
    return frame[name].to_numpy(np.int64) if name in frame else np.full(len(frame), -1, np.int64)


def _named(frame: pd.DataFrame, kinds: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Records with the names of their kind and operation, as the file lists them."""
    columns = (np.clip(frame[name].to_numpy(), 0, _FEW - 1) for name in ("kind", "operation"))
    kind_of_row, operation_of_row = columns
    first, inverse = np.unique(kind_of_row * _FEW + operation_of_row, return_inverse=True)
    names, domains = [], []
    for both in first.tolist():
        kind, operation = divmod(both, _FEW)
        listed = kinds[kind] if kind < len(kinds) else {}
        operations = _list(listed.get("operations"))
        domains.append(str(listed.get("kind", f"kind {kind}")))
        names.append(
            str(operations[operation])
            if operation < len(operations)
            else f"{domains[-1]} operation {operation}"
        )
    inverse = inverse.reshape(-1)
    return frame.drop(columns=["kind", "operation"]).assign(
        domain=coded(inverse, domains), name=coded(inverse, names)
    )


def _kernels(frame: pd.DataFrame, symbols: object, agents: Sequence[Agent]) -> pd.DataFrame:
    symbols_by_id = {}
    for number, description in enumerate(_list(symbols)):
        symbol = _dict(description)
        # A map is a list of keys and values.
        symbol = _dict(symbol["value"]) if "value" in symbol else symbol
        symbols_by_id[_integer(symbol.get("kernel_id", number))] = symbol
    first, inverse = np.unique(_or_none(frame, "kernel"), return_inverse=True)
    inverse = inverse.reshape(-1)
    used = [symbols_by_id.get(ident, {}) for ident in first.tolist()]
    names = [
        str(symbol.get("formatted_kernel_name") or symbol.get("kernel_name") or f"kernel {ident}")
        for symbol, ident in zip(used, first.tolist(), strict=True)
    ]
    registers = {}
    for column, key in (("vgpr", "arch_vgpr"), ("accum_vgpr", "accum_vgpr"), ("sgpr", "sgpr")):
        counts = [_integer(symbol.get(f"{key}_count")) for symbol in used]
        registers[column] = np.array(counts, np.int64)[inverse]
    return frame.assign(
        name=coded(inverse, names), device=devices(_or_none(frame, "agent"), agents), **registers
    )


def _counters(values: pd.DataFrame, listed: object) -> pd.DataFrame:
    names = {
        _number(("id", "handle"), counter): str(_dict(counter).get("name"))
        for counter in _list(listed)
    }
    first, inverse = np.unique(values["counter"].to_numpy(), return_inverse=True)
    texts = [names.get(ident, f"counter {ident}") for ident in first.tolist()]
    return values.drop(columns="counter").assign(name=coded(inverse.reshape(-1), texts))


def _agents(listed: object) -> list[Agent]:
    agents = [agent for agent in _list(listed) if isinstance(agent, dict)]
    agents.sort(
        key=lambda agent: (_integer(agent.get("logical_node_id")), _integer(agent.get("node_id")))
    )
    return numbered(
        Agent(
            _number(("id", "handle"), agent),
            _integer(agent.get("type")),
            _integer(agent.get("logical_node_type_id")),
            agent,
        )
        for agent in agents
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _integer(value: object) -> int:
    """A number that int64 holds and that is not negative; -1 for any other value."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    return -1
