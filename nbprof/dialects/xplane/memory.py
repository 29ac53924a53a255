"""Allocator events of an XSpace file, with the allocator's state after each."""

from __future__ import annotations

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
    "INVALID", "float", "double", "int32", "uint8", "int16", "int8", "string", "complex64", "int64",
    "bool", "qint8", "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128",
    "half", "resource", "variant", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn",
)  # fmt: skip


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
    args = _Args(trace, rows, activity)
    allocation = is_alloc[events.name[rows]]
    memory = _memory_ids(args, host[rows])
    size = args.integers("allocation_bytes")
    data_type, types = pd.factorize(args.integers("data_type"))
    type_codes = activity.texts.encode(map(_data_type, types.tolist()))
    tf_op, op_texts = pd.factorize(args.values("tf_op", -1, text=True))
    op_codes = activity.ops.encode(map(_op_name, trace.texts(op_texts)))
    return pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "memory": memory,
            "time": events.start[rows],
            "allocation": allocation,
            "requested": args.amounts("requested_bytes"),
            "allocated": args.amounts("allocation_bytes"),
            "address": args.numbers("addr"),
            "stack": args.amounts("bytes_reserved"),
            "heap": _in_use(memory, allocation, args.integers("bytes_allocated"), size),
            "free": args.amounts("bytes_available"),
            "fragmentation": args.floats("fragmentation"),
            "lifetime_peak": args.amounts("peak_bytes_in_use"),
            "group": placed.groups.group[rows].astype(np.int64),
            "op": op_codes[tf_op],
            "region": args.codes("region_type"),
            "data_type": type_codes[data_type],
            "shape": args.codes("shape"),
        },
        copy=False,
    )


def _in_use(
    memory: Int32s, allocation: npt.NDArray[np.bool_], heap: Int64s, size: Int64s
) -> Column:
    """Heap bytes after each event: as recorded, else summed if the allocator states all sizes."""
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
    if 0 <= number < len(DATA_TYPES):
        return DATA_TYPES[number]
    return f"type {number}"


def _op_name(text: str) -> str:
    return opnames.parse(text).name if text else ""


class _Args:
    """The args of allocator events, in order of the events."""

    def __init__(self, trace: Trace, rows: Int64s, activity: act.Activity) -> None:
        self.trace = trace
        self.rows = rows
        self.activity = activity
        # The index of each event of the trace: one such column serves all args.
        self._index = np.full(len(trace.events), -1, np.int32)
        self._index[rows] = np.arange(len(rows))

    def values(self, key: str, absent: int, *, text: bool = False) -> Int64s:
        """The integers, or codes of texts, of an arg."""
        values, column = np.full(len(self.rows), absent, np.int64), self.trace.args.get(key)
        if column is None:
            return values
        event, recorded = column.of(TEXT) if text else column.of(INT, UINT)
        index = self._index[event]
        is_row = index >= 0
        if is_row.all():
            values[index] = recorded
        else:
            values[index[is_row]] = recorded[is_row]
        return values

    def floats(self, key: str) -> npt.NDArray[np.float64]:
        """The numbers of an arg, NaN for none."""
        values, column = np.full(len(self.rows), np.nan), self.trace.args.get(key)
        if column is not None:
            index = self._index[column.event]
            values[index[index >= 0]] = column.floats()[index >= 0]
        return values

    def integers(self, key: str) -> Int64s:
        """The integers of an arg, `_ABSENT` for none."""
        return self.values(key, _ABSENT)

    def numbers(self, key: str) -> Column:
        """The integers of an arg, NA for none."""
        values = self.integers(key)
        return or_na(values, values == _ABSENT)

    def amounts(self, key: str) -> Column:
        """The bytes of an arg, NA for none.

        An allocator without a limit may write its free bytes as a negative number.
        """
        values = self.integers(key)
        return or_na(values, values < 0)

    def codes(self, key: str) -> Int32s:
        """The texts of an arg, in codes of the activity."""
        texts = self.activity.texts
        if key not in self.trace.args:
            return np.full(len(self.rows), texts.code(""), np.int32)
        code, used = pd.factorize(self.values(key, -1, text=True))
        return texts.encode(self.trace.texts(used))[code]


def _memory_ids(args: _Args, host: Int32s) -> Int32s:
    """The allocator of each event, by name or number, after its host if there are several."""
    trace, texts = args.trace, args.activity.texts
    label = np.full(len(host), texts.code(""), np.int32)
    for key in ("index_on_host", "device_ordinal", "allocator_name"):
        column = trace.args.get(key)
        if column is None:
            continue
        is_text = bool((column.kinds == TEXT).any())
        back, values = pd.factorize(args.values(key, -1, text=is_text))
        codes = np.full(len(values), -1, np.int32)
        for i, value in enumerate(values.tolist()):
            if value >= 0:
                codes[i] = texts.code(trace.strings[value] if is_text else str(value))
        codes_of_rows = codes[back]
        label = np.where(codes_of_rows >= 0, codes_of_rows, label)
    if len(trace.hosts) < 2:
        return label
    names = texts.values
    back, pairs = pd.factorize(host.astype(np.int64) << 32 | label)
    codes = np.zeros(len(pairs), np.int32)
    for i, pair in enumerate(pairs.tolist()):
        codes[i] = texts.code(f"{trace.hosts[pair >> 32]} {names[pair & 0xFFFFFFFF]}")
    return codes[back]
