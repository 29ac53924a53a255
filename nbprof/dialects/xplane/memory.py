"""Allocator events of an XSpace file, with the allocator's state after each."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Allocations
from nbprof.core.trace import INT, TEXT, UINT, Int32s, Int64s, Trace
from nbprof.dialects.allocators import Column, added_up, or_na
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.placed import Placed

_ABSENT = np.iinfo(np.int64).min

# TensorFlow's DataType enumeration (types.proto).
DATA_TYPES = (
    "INVALID",
    "float",
    "double",
    "int32",
    "uint8",
    "int16",
    "int8",
    "string",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "half",
    "resource",
    "variant",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
)


def has_allocations(placed: Placed) -> bool:
    """True if any allocator event was recorded."""
    events = placed.trace.events
    return bool(
        (placed.named("MemoryAllocation", "MemoryDeallocation")[events.name] & placed.on_host).any()
    )


def allocations(placed: Placed, activity: act.Activity) -> pd.DataFrame:
    """Allocator events in time order.

    What an event does not state is NA; bytes in use are then added up from the blocks where they
    can be.
    """
    trace, host = placed.trace, placed.host
    events = trace.events
    name = trace.names
    is_alloc = np.asarray(name == "MemoryAllocation", np.bool_)
    is_free = np.asarray(name == "MemoryDeallocation", np.bool_)
    if not is_alloc.any() and not is_free.any():
        return Allocations.empty().frame()
    rows = np.flatnonzero((is_alloc | is_free)[events.name] & placed.on_host)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    several = len(trace.hosts) > 1
    # The row of each event of the trace: one such column serves all args.
    position = np.full(len(events), -1, np.int32)
    position[rows] = np.arange(len(rows))

    def given(key: str, absent: int, *, text: bool = False) -> Int64s:
        values_of_rows, column = np.full(len(rows), absent, np.int64), trace.args.get(key)
        if column is not None:
            event, values = column.of(TEXT) if text else column.of(INT, UINT)
            index = position[event]
            if (is_row := index >= 0).all():
                values_of_rows[index] = values
            else:
                values_of_rows[index[is_row]] = values[is_row]
        return values_of_rows

    def stated(key: str) -> Int64s:
        return given(key, _ABSENT)

    def numbers(key: str) -> Column:
        values = stated(key)
        return or_na(values, values == _ABSENT)

    def amounts(key: str) -> Column:
        # No allocator has less than nothing; one without a limit may write what it takes its free
        # bytes for.
        values = stated(key)
        return or_na(values, values < 0)

    def coded(key: str) -> npt.NDArray[np.int32]:
        if key not in trace.args:
            return np.full(len(rows), activity.texts.code(""), np.int32)
        back, values = pd.factorize(given(key, -1, text=True))
        return np.array(
            [activity.texts.code(trace.strings[v] if v >= 0 else "") for v in values.tolist()],
            np.int32,
        )[back]

    allocation = is_alloc[events.name[rows]]
    memory = _memory_ids(trace, given, host[rows], several, activity)
    back, values = pd.factorize(given("tf_op", -1, text=True))
    op = np.array([activity.ops.code(_op_name(t)) for t in trace.texts(values)], np.int32)[back]
    type_back, type_values = pd.factorize(stated("data_type"))
    types = [activity.texts.code(_data_type(v)) for v in type_values.tolist()]
    fragmentation, column = np.full(len(rows), np.nan), trace.args.get("fragmentation")
    if column is not None:
        index = position[column.event]
        fragmentation[index[index >= 0]] = column.floats()[index >= 0]
    return pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "memory": memory,
            "time": events.start[rows],
            "allocation": allocation,
            "requested": amounts("requested_bytes"),
            "allocated": amounts("allocation_bytes"),
            "address": numbers("addr"),
            "stack": amounts("bytes_reserved"),
            "heap": _in_use(
                memory, allocation, stated("bytes_allocated"), stated("allocation_bytes")
            ),
            "free": amounts("bytes_available"),
            "fragmentation": fragmentation,
            "lifetime_peak": amounts("peak_bytes_in_use"),
            "group": placed.groups.group[rows].astype(np.int64),
            "op": op,
            "region": coded("region_type"),
            "data_type": np.array(types, np.int32)[type_back],
            "shape": coded("shape"),
        },
        copy=False,
    )


def _in_use(
    memory: Int32s, allocation: npt.NDArray[np.bool_], heap: Int64s, size: Int64s
) -> Column:
    """Heap bytes after each event: as stated, else summed if the allocator states all sizes."""
    if (heap >= 0).all():
        return heap
    heap = np.maximum(heap, -1)
    unsized = np.isin(memory, np.unique(memory[size < 0]))
    counted = heap.copy()
    sized = np.flatnonzero(~unsized)
    counted[sized] = added_up(
        memory[sized], np.where(allocation[sized], size[sized], -size[sized]), heap[sized]
    )
    return or_na(counted, counted < 0)


def _data_type(number: int) -> str:
    if number == _ABSENT:
        return ""
    return DATA_TYPES[number] if 0 <= number < len(DATA_TYPES) else f"type {number}"


def _op_name(text: str) -> str:
    return opnames.parse(text).name if text else ""


class _Given(Protocol):
    """The integers, or codes of texts, that the events state as an arg."""

    def __call__(self, key: str, absent: int, *, text: bool = False) -> Int64s: ...


def _memory_ids(
    trace: Trace, recorded: _Given, host: Int32s, several: bool, activity: act.Activity
) -> Int32s:
    """The allocator of each event, by name or number, after its host if there are several."""
    label = np.full(len(host), activity.texts.code(""), np.int32)
    for key in ("index_on_host", "device_ordinal", "allocator_name"):
        column = trace.args.get(key)
        if column is None:
            continue
        text = bool((column.kinds == TEXT).any())
        back, values = pd.factorize(recorded(key, -1, text=text))
        codes = [
            activity.texts.code(trace.strings[v] if text else str(v)) if v >= 0 else -1
            for v in values.tolist()
        ]
        codes_of_rows = np.array(codes, np.int32)[back]
        label = np.where(codes_of_rows >= 0, codes_of_rows, label)
    if not several:
        return label
    texts = activity.texts.values
    back, pairs = pd.factorize(host.astype(np.int64) << 32 | label)
    return np.array(
        [
            activity.texts.code(f"{trace.hosts[p >> 32]} {texts[p & 0xFFFFFFFF]}")
            for p in pairs.tolist()
        ],
        np.int32,
    )[back]
