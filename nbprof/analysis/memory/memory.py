"""Memory by allocator: timeline, peak and fragmentation (TensorFlow Profiler's memory profile)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity, text_column
from nbprof.activity.unit import RECORDING
from nbprof.analysis import notes
from nbprof.analysis.memory.alive import allocating
from nbprof.core.receipt import Note
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int32s, Int64s
from nbprof.schema import frames

INTERNAL = [
    "order",
    "address",
    "added_up",
    "lifetime_peak_bytes",
    "capacity_bytes",
    "host",
    "group",
]
"""Columns of the timeline for internal use; `added_up` if the bytes in use lack those allocated
before the recording, `group` is the recorder's ident of the step; `numbered` adds its number."""
COLUMNS = [*frames.names("memory.timeline"), *INTERNAL]


def timeline(activity: Activity) -> pd.DataFrame:
    """One row per allocation or deallocation, in time order: the columns of `p.memory.timeline` but
    for `step`, and `INTERNAL`.

    A deallocation has the op, region, type and shape of the allocation that it frees, and its sizes
    if it states none. An event outside any step counts for the step after the last one seen, as in
    TensorFlow Profiler.
    """
    a = activity.allocations
    texts = activity.texts.values if len(activity.texts.codes) else np.array([""], object)
    ops = activity.ops.values if len(activity.ops.codes) else np.array([""], object)
    if not len(a):
        return pd.DataFrame(columns=[column for column in COLUMNS if column != "step"])
    op, region, kind, shape = (
        a[c].to_numpy().copy() for c in ("op", "region", "data_type", "shape")
    )
    memory, is_alloc = a["memory"].to_numpy(), a["allocation"].to_numpy()
    source = _freed(memory, _addresses(a["address"]), is_alloc)
    freed = np.flatnonzero(source >= 0)
    for column in (op, region, kind, shape):
        column[freed] = column[source[freed]]
    requested, allocated = (
        _sized(a["requested"], freed, source),
        _sized(a["allocated"], freed, source),
    )
    added_up = np.array([t in activity.memory_added_up for t in texts], np.bool_)[memory]
    capacity = np.array([activity.memory_capacity.get(t, -1) for t in texts], np.int64)[memory]
    return pd.DataFrame(
        {
            "memory_id": text_column(texts, memory),
            "time_ms": a["time"] / 1e9,
            "event": text_column(
                np.array(["deallocation", "allocation"], object), is_alloc.astype(np.int8)
            ),
            "requested_bytes": requested,
            "allocated_bytes": allocated * np.where(is_alloc, 1, -1),
            "op": text_column(ops, op),
            "region_type": text_column(texts, region),
            "data_type": text_column(texts, kind),
            "shape": text_column(texts, shape),
            "stack_bytes": a["stack"],
            "heap_bytes": a["heap"],
            "free_bytes": a["free"],
            "fragmentation": a["fragmentation"],
            "in_use_bytes": _in_use(a["heap"], a["stack"]),
            "order": a["event"],
            "address": a["address"],
            "added_up": added_up,
            "lifetime_peak_bytes": a["lifetime_peak"],
            "capacity_bytes": pd.arrays.IntegerArray(capacity, capacity < 0),
            "host": a["host"],
            "group": _step(memory, a["group"].to_numpy()),
        },
        copy=False,
    )


def numbered(rows: pd.DataFrame, steps: pd.DataFrame, hosts: list[str]) -> pd.DataFrame:
    """The timeline with the numbers that `p.steps` has in `step`; NA for events of no listed step.

    Parameters
    ----------
    rows : DataFrame
        From `timeline`, or some rows of it; `host` and `group` are used.
    steps : DataFrame
        `Run.steps`.
    hosts : list of str
        Names of the hosts, which number their groups each on its own.
    """
    if not len(rows) or not {"host", "group"} <= set(steps.columns) or "host" not in rows.columns:
        return rows.assign(step=pd.array([pd.NA] * len(rows), "Int64"))
    host_of_step = pd.Index(hosts).get_indexer(pd.Index(steps["host"]))
    is_step = host_of_step >= 0
    # The recording itself is not a step.
    if "name" in steps.columns:
        is_step &= steps["name"].to_numpy(object) != RECORDING
    used = np.flatnonzero(is_step)
    host, group = (rows[name].to_numpy(np.int64, na_value=-1) for name in ("host", "group"))
    group_of_step = steps["group"].to_numpy(np.int64)
    # Both in one number.
    listed = pd.Index(host_of_step[used].astype(np.int64) << 40 | group_of_step[used])
    row = listed.get_indexer(pd.Index(np.where(group >= 0, host << 40 | group, -1)))
    number = np.append(steps["step"].to_numpy(np.int64)[used], 0)[row]
    return rows.assign(step=pd.arrays.IntegerArray(number, row < 0))


def _sized(size: pd.Series, freed: Int64s, source: Int64s) -> pd.Series:
    """Sizes, where a deallocation that states none has that of the block it frees."""
    if not size.isna().any():
        return size
    filled = size.copy()
    unstated = freed[filled.iloc[freed].isna().to_numpy(np.bool_)]
    filled.iloc[unstated] = size.iloc[source[unstated]].to_numpy()
    return filled


def _in_use(heap: pd.Series, stack: pd.Series) -> pd.Series:
    """Heap and stack together; one of them if the allocator does not state the other, NA if it
    states neither.
    """
    if not (heap.isna().any() or stack.isna().any()):
        return heap + stack
    return (heap.astype("Int64").fillna(0) + stack.astype("Int64").fillna(0)).mask(
        heap.isna() & stack.isna()
    )


def _addresses(addresses: pd.Series) -> Int64s:
    """The address of each event; an unknown one equals no other."""
    unknown = addresses.isna().to_numpy(np.bool_)
    result: Int64s = addresses.fillna(0).to_numpy(np.int64).copy()
    if unknown.any():
        # Real addresses are even.
        result[unknown] = -1 - 2 * np.arange(int(unknown.sum()))
    return result


def _freed(memory: Int32s, address: Int64s, is_alloc: npt.NDArray[np.bool_]) -> Int64s:
    """The allocation that each deallocation frees, -1 if none was recorded: the first at its
    address since the last deallocation there.
    """
    result = np.full(len(memory), -1, np.int64)
    order = np.lexsort((address, memory))
    alloc = is_alloc[order]
    moved = (np.diff(memory[order], prepend=-1) != 0) | (np.diff(address[order], prepend=0) != 0)
    # The events of an address end with a deallocation; it frees the first of them since the last.
    begins = np.flatnonzero(moved | ~np.append(True, alloc[:-1]))
    frees = np.flatnonzero(~alloc)
    first = begins[np.searchsorted(begins, frees, side="right") - 1]
    pairs = first < frees
    result[order[frees[pairs]]] = order[first[pairs]]
    return result


def _step(memory: Int32s, groups: Int64s) -> Int64s:
    """The step of each event: the one stated, else the one after the last that its allocator stated
    before.
    """
    order = np.argsort(memory, kind="stable")
    ident = groups[order]
    position = np.where(ident >= 0, np.arange(len(order)), -1)
    last = np.maximum.accumulate(position) if len(position) else position
    begins = run_starts(memory[order])
    before = np.repeat(begins, np.diff(np.append(begins, len(order))))
    previous = np.where(last >= before, ident[np.maximum(last, 0)], -1)
    result = np.empty_like(groups)
    result[order] = np.where(ident >= 0, ident, previous + 1)
    return result


_OF_PEAK = [
    "in_use_bytes",
    "stack_bytes",
    "heap_bytes",
    "free_bytes",
    "capacity_bytes",
    "lifetime_peak_bytes",
    "time_ms",
    "fragmentation",
    "group",
    "host",
]
SUMMARY = [*frames.names("memory.summary"), "peak_group", "peak_host", "whole"]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per allocator, largest peak first: the columns of `p.memory.summary`.

    The lifetime peak is the largest value that the allocator stated or that was seen (XProf takes
    the last one stated, which can be below the peak). Values that an allocator does not state are
    NA: PyTorch's have no stack, no peak of the time before the recording, and as capacity that of
    their device. `whole` is true if the bytes in use include those allocated before the recording.
    """
    parts = []
    code, idents = pd.factorize(rows["memory_id"].to_numpy(object), sort=True)
    in_use, is_alloc = rows["in_use_bytes"].to_numpy(np.float64, na_value=-1), allocating(rows)
    order = rows["order"].to_numpy()
    is_complete = rows["address"].notna().to_numpy(np.bool_) & ~rows["added_up"].to_numpy(np.bool_)
    # Column by column: a row of the timeline is a series of objects.
    columns = {name: rows[name].array for name in _OF_PEAK}
    for number, ident in enumerate(idents.tolist()):
        of_memory = np.flatnonzero(code == number)
        allocs = int(is_alloc[of_memory].sum())
        facts: dict[str, Any] = {
            "memory_id": ident,
            "allocations": allocs,
            "deallocations": len(of_memory) - allocs,
            "whole": bool(is_complete[of_memory].any()),
            "lifetime_peak_bytes": _int(columns["lifetime_peak_bytes"][of_memory].max()),
        }
        largest = in_use[of_memory].max()
        if largest >= 0:
            # Of equal peaks the last in the order of the file counts, for the step as well: XProf's
            # step is that of the last in time, so that its table of the peak may lack blocks of the
            # moment that its figures are of.
            equal = of_memory[in_use[of_memory] == largest]
            last = equal[int(np.argmax(order[equal]))]
            peak = {name: values[last] for name, values in columns.items()}
            facts |= _peak(peak, facts["lifetime_peak_bytes"])
        parts.append(facts)
    if not parts:
        return pd.DataFrame(columns=SUMMARY)
    parts.sort(key=lambda facts: facts.get("peak_bytes", -1), reverse=True)
    return pd.DataFrame({name: _column(name, parts) for name in SUMMARY})


_FLOATS = ("peak_time_ms", "peak_fragmentation")


def _column(name: str, parts: list[dict[str, Any]]) -> Any:
    """A column of `SUMMARY`; integers of which some are missing are nullable."""
    values = [facts.get(name) for facts in parts]
    if name in ("memory_id", "whole"):
        return values
    if name in _FLOATS:
        return np.array(values, np.float64)
    if None in values:
        return pd.array(values, dtype="Int64")
    return np.array(values, np.int64)


def _peak(peak: dict[str, Any], lifetime: int | None) -> dict[str, Any]:
    """The columns of `SUMMARY` at the peak of an allocator."""
    stack, heap, free = (_int(peak[c]) for c in ("stack_bytes", "heap_bytes", "free_bytes"))
    in_use = int(peak["in_use_bytes"])
    capacity = _int(peak["capacity_bytes"])
    # PyTorch's free memory is a reserve; it can take more from the device.
    if free is not None and (stack is not None or lifetime is not None):
        capacity = in_use + free
    return {
        "capacity_bytes": capacity,
        "lifetime_peak_bytes": None if lifetime is None else max(lifetime, in_use),
        "peak_bytes": in_use,
        "peak_time_ms": float(peak["time_ms"]),
        "peak_stack_bytes": stack,
        "peak_heap_bytes": heap,
        "peak_free_bytes": free,
        "peak_fragmentation": float(peak["fragmentation"]),
        "peak_group": int(peak["group"]),
        "peak_host": int(peak["host"]),
    }


def leading(summary: pd.DataFrame, hosts: list[str], on_device: bool) -> pd.DataFrame:
    """The row of the allocator whose peak stands for the run, the largest; for a run on devices
    only theirs: none, or one.

    Allocators of the host are unrelated to the memory of a GPU.
    """
    rows = np.flatnonzero(summary["peak_bytes"].notna().to_numpy())
    if on_device:
        labels = _without_hosts(summary["memory_id"].to_numpy(object)[rows].tolist(), hosts)
        of_host = [bool(re.search("cpu|host", label, re.IGNORECASE)) for label in labels]
        rows = rows[~np.array(of_host, np.bool_)]
    if len(rows):
        peak = summary["peak_bytes"].to_numpy(np.int64, na_value=0)[rows]
        rows = rows[[int(peak.argmax())]]
    return summary.take(rows)


def _without_hosts(labels: list[Any], hosts: list[str]) -> list[str]:
    """The labels without the names of hosts."""
    number_of = {host: number for number, host in enumerate(hosts) if host}
    lengths = sorted({len(host) for host in number_of})
    names = []
    for text in map(str, labels):
        # As many hosts as labels: each is only looked for where it is.
        parts: set[str] = set()
        for length in lengths:
            parts.update(text[start : start + length] for start in range(len(text) - length + 1))
        name = text
        for host in sorted(parts & number_of.keys(), key=number_of.__getitem__):
            name = name.replace(host, "")
        names.append(name)
    return names


_STATED = {
    "stack_bytes": "stack",
    "heap_bytes": "bytes in use",
    "free_bytes": "free bytes",
    "fragmentation": "fragmentation",
    "lifetime_peak_bytes": "peak of the whole run",
    "requested_bytes": "bytes requested",
    "address": "addresses",
}


def notes_on(rows: pd.DataFrame) -> list[Note]:
    """The columns that allocators did not record, one sentence per kind of allocator."""
    if not len(rows):
        return []
    code, idents = pd.factorize(rows["memory_id"].to_numpy(object), sort=True)
    lacks = np.zeros((len(idents), len(_STATED)), np.bool_)
    for number, column in enumerate(_STATED):
        is_stated = rows[column].notna().to_numpy()
        lacks[:, number] = np.bincount(code[is_stated], minlength=len(idents)) == 0
    allocators_without: dict[tuple[str, ...], list[str]] = {}
    titles = np.array(list(_STATED.values()), object)
    for ident, of_allocator in zip(idents.tolist(), lacks, strict=True):
        allocators_without.setdefault(tuple(titles[of_allocator]), []).append(str(ident))
    return [
        notes.empty_memory_columns(allocators, list(columns))
        for columns, allocators in allocators_without.items()
        if columns
    ]


def _int(value: object) -> int | None:
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]
