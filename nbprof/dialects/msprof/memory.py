"""NPU memory from the tables: allocated blocks, or else samples of the memory held."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Allocations
from nbprof.core.receipt import Note
from nbprof.core.trace import Table, Trace
from nbprof.dialects.allocators import allocation_table, or_na
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.msprof import notes

_NPU = re.compile(r"NPU:?\s*(\d+)", re.IGNORECASE)
_RECORDS = (
    ("memory_record", "component", "allocated_bytes", "reserved_bytes"),
    ("npu_mem", "event", "memory_bytes", ""),
)

_NEAR_BYTES = 1024.0
"""Files state whole or rounded KB."""


def recorded(trace: Trace) -> bool:
    """True if any table has memory over time."""
    return any(
        len(t)
        for kind in ("operator_memory", "memory_record", "npu_mem")
        for t in trace.tables.get(kind, [])
    )


def allocations(
    trace: Trace, steps: Steps, activity: act.Activity
) -> tuple[pd.DataFrame, list[Note]]:
    """The `allocations` table, in time order, and lines for the receipt.

    A block that was handed out before the recording has no begin, one that is still held at its end
    has no release: each is one event then. What a row states as allocated in all is `heap`, what is
    reserved beyond that is `free`.
    """
    parts: list[pd.DataFrame] = []
    lines: list[Note] = []
    blocks = [t for t in trace.tables.get("operator_memory", []) if len(t)]
    number = 0
    for table in blocks:
        part, strange = _blocks(trace, table, activity, number)
        number += len(table)
        parts.append(part)
        if strange:
            lines.append(notes.ignored_allocations(table.source, strange))
    if not any(len(part) for part in parts):
        for kind, who, used, held in _RECORDS:
            tables = [t for t in trace.tables.get(kind, []) if len(t)]
            parts = [_records(trace, table, activity, who, used, held) for table in tables]
            if any(len(part) for part in parts):
                lines.append(notes.memory_samples_only())
                break
    if not any(len(part) for part in parts):
        return Allocations.empty().frame(), lines
    frame = pd.concat([part for part in parts if len(part)], ignore_index=True).sort_values(
        "time", kind="stable", ignore_index=True
    )
    frame["event"] = np.arange(len(frame))
    frame["group"] = steps.group_at(
        frame["host"].to_numpy(np.int64), frame["time"].to_numpy(np.int64)
    )
    return frame[list(Allocations.columns)], lines


def _blocks(
    trace: Trace, table: Table, activity: act.Activity, first: int
) -> tuple[pd.DataFrame, int]:
    frame = table.frame
    count = len(frame)
    size = frame["size_bytes"].to_numpy(np.float64)
    begin = frame["allocation_ps"] if "allocation_ps" in frame else _nothing(count)
    if "release_ps" in frame:
        release = frame["release_ps"]
    else:
        length = pd.Series(np.rint(_column(frame, "duration_us") * 1e6))
        release = begin + length.astype("Int64")
    good = np.isfinite(size) & (size >= 0)
    strange = int((~good | (begin.isna() & release.isna()).to_numpy(np.bool_)).sum())
    names = frame["name"].array if "name" in frame else None
    op = np.full(count, activity.ops.code(""), np.int32)
    if isinstance(names, pd.Categorical):
        op = np.array(
            [*(activity.ops.code(str(n)) for n in names.categories), activity.ops.code("")],
            np.int32,
        )[names.codes]
    memory = _memory(trace, table, activity, "device_type")
    halves = []
    for moment, prefix, sign in ((begin, "allocation", True), (release, "release", False)):
        has_time = good & moment.notna().to_numpy(np.bool_)
        used, held = (
            _column(frame, f"{prefix}_{amount}_bytes")[has_time]
            for amount in ("allocated", "reserved")
        )
        halves.append(
            _rows(
                activity,
                host=table.host,
                memory=memory[has_time],
                time=moment.fillna(0).to_numpy(np.int64)[has_time],
                allocation=np.full(int(has_time.sum()), sign),
                size=size[has_time],
                # Equal for the two halves of a row, and even, as addresses are.
                address=pd.arrays.IntegerArray(
                    2 * (first + np.flatnonzero(has_time)), np.zeros(int(has_time.sum()), np.bool_)
                ),
                used=used,
                held=held,
                op=op[has_time],
            )
        )
    rows = pd.concat(halves, ignore_index=True)
    if _before_release(rows):
        released = rows["allocated"].where(~rows["allocation"], 0)
        rows["heap"] -= released
        rows["free"] += released
    return rows, strange


def _before_release(rows: pd.DataFrame) -> bool:
    """True if the totals of a table at a release are from before it, as those of graphs (GE).

    The totals of the next event show it: the total after an event is that before the next one, and
    an allocation states it with its own size added.

    What is held after a moment is what the next one finds: an allocation states it with its own
    size on top.
    """
    rows = rows.sort_values(["memory", "time"], kind="stable")
    used, size = (
        rows[name].astype("Float64").to_numpy(np.float64, na_value=np.nan)
        for name in ("heap", "allocated")
    )
    taken, memory = rows["allocation"].to_numpy(np.bool_), rows["memory"].to_numpy(np.int64)
    index = np.flatnonzero(~taken[:-1] & (memory[:-1] == memory[1:]))
    after = np.where(
        taken[index + 1], used[index + 1] - size[index + 1], used[index + 1] + size[index + 1]
    )
    before = np.where(taken[index + 1], used[index + 1] - size[index + 1], used[index + 1])
    with np.errstate(invalid="ignore"):
        as_after = np.abs(used[index] - after) < _NEAR_BYTES
        as_before = np.abs(used[index] - size[index] - before) < _NEAR_BYTES
    return int(as_before.sum()) > int(as_after.sum())


def _records(
    trace: Trace, table: Table, activity: act.Activity, who: str, used: str, held: str
) -> pd.DataFrame:
    """Memory held by components over time, as the changes from one sample to the next."""
    frame = table.frame
    has_time = frame["timestamp_ps"].notna().to_numpy(np.bool_)
    frame = frame[has_time].reset_index(drop=True)
    total = _column(frame, used)
    reserved = _column(frame, held) if held else np.full(len(frame), np.nan)
    # Of the whole process only what is reserved is stated.
    value = np.where(np.isnan(total) | ((total == 0) & (reserved > 0)), reserved, total)
    memory = _memory(
        trace,
        Table(table.kind, table.device, table.rank, frame, [], "", [], table.host),
        activity,
        "device_type",
        who,
    )
    time = frame["timestamp_ps"].to_numpy(np.int64)
    good = ~np.isnan(value)
    memory, time, value, reserved = memory[good], time[good], value[good], reserved[good]
    order = np.lexsort((time, memory))
    memory, time, value, reserved = memory[order], time[order], value[order], reserved[order]
    step = np.diff(value, prepend=0.0)
    begins = np.diff(memory, prepend=-1) != 0
    step[begins] = value[begins]
    return _rows(
        activity,
        host=table.host,
        memory=memory,
        time=time,
        allocation=step >= 0,
        size=np.abs(step),
        used=value,
        held=reserved,
        op=np.full(len(time), activity.ops.code(""), np.int32),
    )


def _rows(
    activity: act.Activity,
    *,
    host: int,
    size: npt.NDArray[np.float64],
    used: npt.NDArray[np.float64],
    held: npt.NDArray[np.float64],
    **columns: object,
) -> pd.DataFrame:
    with np.errstate(invalid="ignore"):
        nowhere = np.isnan(used) | np.isnan(held) | (held < used)
    return allocation_table(
        activity,
        event=np.zeros(len(size), np.int64),
        host=np.full(len(size), host, np.int32),
        allocated=np.rint(size).astype(np.int64),
        heap=or_na(np.rint(np.nan_to_num(used)).astype(np.int64), np.isnan(used)),
        free=or_na(np.rint(np.nan_to_num(held - used)).astype(np.int64), nowhere),
        group=np.full(len(size), -1, np.int64),
        **columns,
    )


def _nothing(count: int) -> pd.Series:
    return pd.Series(pd.array([pd.NA] * count, dtype="Int64"))


def _column(frame: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    return frame[name].to_numpy(np.float64) if name in frame else np.full(len(frame), np.nan)


def _memory(
    trace: Trace, table: Table, activity: act.Activity, column: str, who: str = ""
) -> npt.NDArray[np.int32]:
    """Text code of the memory of each row: `NPU 0`, with host and component if several."""
    frame = table.frame
    host = f"{trace.hosts[table.host]} " if len(trace.hosts) > 1 else ""
    other = f"NPU {table.device or 0}"
    devices = frame[column].array if column in frame else None
    labels = ["", other]
    code = np.ones(len(frame), np.int64)
    if isinstance(devices, pd.Categorical):
        labels = [_npu_name(str(text)) for text in devices.categories]
        labels.append(other)
        code = np.where(devices.codes >= 0, devices.codes, len(labels) - 1).astype(np.int64)
    elif "device_id" in frame:
        ids = frame["device_id"].fillna(0).to_numpy(np.int64)
        device_ids, code = np.unique(ids, return_inverse=True)
        labels = [f"NPU {n}" for n in device_ids.tolist()]
    parts = frame[who].array if who and who in frame else None
    if isinstance(parts, pd.Categorical):
        components = [*map(str, parts.categories), "other"]
        texts = [
            activity.texts.code(f"{host}{label} {component}")
            for label in labels
            for component in components
        ]
        of_pair = np.array(texts, np.int32).reshape(len(labels), len(components))
        return np.asarray(of_pair[code, parts.codes], np.int32)
    codes = np.array([activity.texts.code(host + label) for label in labels], np.int32)
    return np.asarray(codes[code], np.int32)


def _npu_name(device: str) -> str:
    """`NPU 0` for a device type such as `NPU:0`; other devices keep their name."""
    match = _NPU.search(device)
    return f"NPU {match[1]}" if match else device
