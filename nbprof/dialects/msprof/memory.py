"""NPU memory from the tables: allocated blocks, or else samples of the memory held."""

from __future__ import annotations

import re
from itertools import product

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
    return any(_tables(trace, kind) for kind in ("operator_memory", "memory_record", "npu_mem"))


def _tables(trace: Trace, kind: str) -> list[Table]:
    """The tables of a kind that are not empty."""
    return list(filter(len, trace.tables.get(kind, [])))


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
    number = 0
    for table in _tables(trace, "operator_memory"):
        part, strange = _blocks(trace, table, activity, number)
        number += len(table)
        if len(part):
            parts.append(part)
        if strange:
            lines.append(notes.ignored_allocations(table.source, strange))
    if not parts:
        parts = _first_records(trace, activity)
        if not parts:
            return Allocations.empty().frame(), lines
        lines.append(notes.memory_samples_only())
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.sort_values("time", kind="stable", ignore_index=True)
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
    begin = _nothing(count)
    if "allocation_ps" in frame:
        begin = frame["allocation_ps"]
    if "release_ps" in frame:
        release = frame["release_ps"]
    else:
        length = pd.Series(np.rint(_column(frame, "duration_us") * 1e6))
        release = begin + length.astype("Int64")
    good = np.isfinite(size) & (size >= 0)
    strange = int((~good | (begin.isna() & release.isna()).to_numpy(np.bool_)).sum())
    names = _categorical(frame, "name")
    op = np.full(count, activity.ops.code(""), np.int32)
    if names is not None:
        op = activity.ops.encode([*map(str, names.categories), ""])[names.codes]
    memory = _memory(trace, table, activity, "device_type")
    halves = []
    for moment, prefix, sign in ((begin, "allocation", True), (release, "release", False)):
        has_time = good & moment.notna().to_numpy(np.bool_)
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
                used=_column(frame, f"{prefix}_allocated_bytes")[has_time],
                held=_column(frame, f"{prefix}_reserved_bytes")[has_time],
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
    """
    rows = rows.sort_values(["memory", "time"], kind="stable")
    used = rows["heap"].astype("Float64").to_numpy(np.float64, na_value=np.nan)
    size = rows["allocated"].to_numpy(np.float64)
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


def _first_records(trace: Trace, activity: act.Activity) -> list[pd.DataFrame]:
    """Samples of memory from the best kind of tables that has any."""
    for kind, who, used, held in _RECORDS:
        parts = []
        for table in _tables(trace, kind):
            part = _records(trace, table, activity, who, used, held)
            if len(part):
                parts.append(part)
        if parts:
            return parts
    return []


def _records(
    trace: Trace, table: Table, activity: act.Activity, who: str, used: str, held: str
) -> pd.DataFrame:
    """Memory held by components over time, as the changes from one sample to the next."""
    frame = table.frame
    has_time = frame["timestamp_ps"].notna().to_numpy(np.bool_)
    frame = frame[has_time].reset_index(drop=True)
    total = _column(frame, used)
    reserved = _column(frame, held)
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
    if name not in frame:
        return np.full(len(frame), np.nan)
    return frame[name].to_numpy(np.float64)


def _categorical(frame: pd.DataFrame, name: str) -> pd.Categorical | None:
    """A column of texts; None without one."""
    if name not in frame:
        return None
    values = frame[name].array
    return values if isinstance(values, pd.Categorical) else None


def _memory(
    trace: Trace, table: Table, activity: act.Activity, column: str, who: str = ""
) -> npt.NDArray[np.int32]:
    """Text code of the memory of each row: `NPU 0`, with host and component if several."""
    frame = table.frame
    host = f"{trace.hosts[table.host]} " if len(trace.hosts) > 1 else ""
    other = f"NPU {table.device or 0}"
    devices = _categorical(frame, column)
    labels = ["", other]
    code = np.ones(len(frame), np.int64)
    if devices is not None:
        labels = [*map(_npu_name, map(str, devices.categories)), other]
        code = np.where(devices.codes >= 0, devices.codes, len(labels) - 1).astype(np.int64)
    elif "device_id" in frame:
        ids = frame["device_id"].fillna(0).to_numpy(np.int64)
        device_ids, code = np.unique(ids, return_inverse=True)
        labels = [f"NPU {n}" for n in device_ids.tolist()]
    labels = [host + label for label in labels]
    parts = _categorical(frame, who)
    if parts is None:
        return np.asarray(activity.texts.encode(labels)[code], np.int32)
    components = [*map(str, parts.categories), "other"]
    texts = [" ".join(pair) for pair in product(labels, components)]
    of_pair = activity.texts.encode(texts).reshape(len(labels), len(components))
    return np.asarray(of_pair[code, parts.codes], np.int32)


def _npu_name(device: str) -> str:
    """`NPU 0` for a device type such as `NPU:0`; other devices keep their name."""
    match = _NPU.search(device)
    if match is None:
        return device
    return f"NPU {match[1]}"
