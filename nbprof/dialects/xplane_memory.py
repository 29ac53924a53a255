"""Allocator events of an XSpace file: `MemoryAllocation` and `MemoryDeallocation` with the allocator's state after each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof import activity as act
from nbprof.dialects import opnames
from nbprof.dialects.placed import Placed
from nbprof.trace import TEXT, Trace

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


def allocations(placed: Placed, out: act.Activity) -> pd.DataFrame:
    """Allocator events in time order."""
    trace, host = placed.trace, placed.host
    events = trace.events
    name = trace.names
    is_alloc = np.asarray(name == "MemoryAllocation", np.bool_)
    is_free = np.asarray(name == "MemoryDeallocation", np.bool_)
    if not is_alloc.any() and not is_free.any():
        return act.table(act.ALLOCATIONS)
    rows = np.flatnonzero((is_alloc | is_free)[events.name] & placed.on_host)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    several = len(trace.hosts) > 1

    def numbers(key: str, missing: int = 0) -> npt.NDArray[np.int64]:
        return trace.arg(key, missing)[rows]

    def coded(key: str, missing: str = "") -> npt.NDArray[np.int32]:
        column = trace.args.get(key)
        if column is None:
            return np.full(len(rows), out.texts.code(missing), np.int32)
        values = column.dense(len(events), text=True)[rows]
        table = {-1: out.texts.code(missing)}
        for value in np.unique(values).tolist():
            if value >= 0:
                table[value] = out.texts.code(trace.strings[value])
        return np.array([table[v] for v in values.tolist()], np.int32)

    memory = _memory_ids(trace, rows, several, host, out)
    op = np.array([out.ops.code(_op_name(t)) for t in trace.texts(trace.text_arg("tf_op")[rows])], np.int32)
    kinds = {
        v: out.texts.code(DATA_TYPES[v] if 0 <= v < len(DATA_TYPES) else f"type {v}") for v in np.unique(numbers("data_type")).tolist()
    }
    fragmentation = np.full(len(events), np.nan)
    column = trace.args.get("fragmentation")
    if column is not None:
        fragmentation[column.event] = column.floats()
    return pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "memory": memory,
            "time": events.start[rows],
            "allocation": is_alloc[events.name[rows]],
            "requested": numbers("requested_bytes"),
            "allocated": numbers("allocation_bytes"),
            "address": numbers("addr"),
            "stack": numbers("bytes_reserved"),
            "heap": numbers("bytes_allocated"),
            "free": numbers("bytes_available"),
            "fragmentation": fragmentation[rows],
            "lifetime_peak": numbers("peak_bytes_in_use"),
            "group": placed.groups.group[rows].astype(np.int64),
            "op": op,
            "region": coded("region_type"),
            "data_type": np.array([kinds[v] for v in numbers("data_type").tolist()], np.int32),
            "shape": coded("shape"),
        }
    )


def _op_name(text: str) -> str:
    return opnames.parse(text).name if text else ""


def _memory_ids(
    trace: Trace, rows: npt.NDArray[np.int64], several: bool, host: npt.NDArray[np.int32], out: act.Activity
) -> npt.NDArray[np.int32]:
    """The allocator of each event, by name or by number; with its host in front where there are several."""
    labels: list[str] = [""] * len(rows)
    for key in ("index_on_host", "device_ordinal", "allocator_name"):
        column = trace.args.get(key)
        if column is None:
            continue
        text = bool((column.kinds == TEXT).any())
        dense = column.dense(len(trace.events), text=text)[rows].tolist()
        for i, value in enumerate(dense):
            if value >= 0:
                labels[i] = trace.strings[value] if text else str(value)
    if several:
        labels = [f"{trace.hosts[h]} {label}" for h, label in zip(host[rows].tolist(), labels, strict=True)]
    return np.array([out.texts.code(label) for label in labels], np.int32)
