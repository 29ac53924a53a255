"""The tables of an `Activity`: their columns with types, and how they are put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.given_peaks import ON_CHIP
from nbprof.core.trace import Events, Int32s, Int64s


def text_column(values: npt.NDArray[np.object_], codes: npt.NDArray[np.integer[Any]]) -> pd.api.extensions.ExtensionArray:
    """Texts by code as the column of a frame; pandas looks at each different text once, not at the text of each row."""
    out: pd.api.extensions.ExtensionArray = pd.Series(values).array.take(codes)
    return out


def table(columns: dict[str, str]) -> pd.DataFrame:
    """An empty frame of the given column types."""
    return pd.DataFrame({name: np.zeros(0, dtype) for name, dtype in columns.items()})


def joined(parts: list[pd.DataFrame], columns: dict[str, str]) -> pd.DataFrame:
    """Tables one behind the other, each column copied once, to its type."""
    return pd.DataFrame(
        {name: np.concatenate([part[name].to_numpy() for part in parts], dtype=kind, casting="unsafe") for name, kind in columns.items()},
        copy=False,
    )


def spans(events: Events, rows: Int64s, host: Int32s, group: Int32s, device: Int32s | None = None) -> pd.DataFrame:
    """Events as the first columns of `MARKERS` and `WORK`; `device` -1 (the host) when left out.

    Parameters
    ----------
    events : Events
    rows : int64[n]
        Which events.
    host, group, device : int32[events]
        By event.
    """
    return pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "group": group[rows],
            "device": device[rows] if device is not None else np.full(len(rows), -1, np.int32),
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
        },
        copy=False,
    )


MARKERS = {"event": "i8", "host": "i4", "group": "i8", "device": "i4", "start": "i8", "end": "i8"}


WORK = {"event": "i8", "host": "i4", "group": "i8", "device": "i4", "start": "i8", "end": "i8", "cls": "i2"}


CORE_KINDS = ("compute", "infeed", "outfeed", "all_reduce", "send", "recv", "host_transfer")


SPARSE_STEPS = {"event": "i8", "host": "i4", "device": "i4", "core": "i4", "start": "i8", "end": "i8"}


CORE_SPANS = {**SPARSE_STEPS, "kind": "i1", "op": "i8"}


HOST_OPS = {
    "event": "i8",
    "host": "i4",
    "lane": "i4",
    "start": "i8",
    "end": "i8",
    "op": "i4",
    "type": "i4",
    "dataset": "?",
    "eager": "?",
}


DEVICE_OPS = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "start": "i8",
    "end": "i8",
    "op": "i4",
    "type": "i4",
    "eager": "?",
    "own": "i8",
    "part": "i4",
    "tensor_core": "i1",
}


OP_PARTS = {
    "program": "i8",
    "name": "object",
    "category": "object",
    "source": "object",
    "module": "object",
    "framework_op": "object",
    "expression": "object",
    "duplicate": "object",
    "hlo": "?",
    "flops": "f8",
    "bytes": "f8",
    "normalized_flops": "f8",
    "memory_bytes": "f8",
    "xprof": "?",
    "runs": "f8",
    "xprof_runs": "f8",
    "host": "i4",
}


EXTENTS = {"host": "i4", "device": "i4", "start": "i8", "end": "i8"}


KERNELS = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "duration": "i8",
    "kernel": "i4",
    "op": "i4",
    "details": "i4",
    "eligible": "?",
    "tensor_core": "i1",
    "occupancy": "f8",
}


ALLOCATIONS = {
    "event": "i8",
    "host": "i4",
    "memory": "i4",
    "time": "i8",
    "allocation": "?",
    "requested": "i8",
    "allocated": "i8",
    "address": "i8",
    "stack": "i8",
    "heap": "i8",
    "free": "i8",
    "fragmentation": "f8",
    "lifetime_peak": "i8",
    "group": "i8",
    "op": "i4",
    "region": "i4",
    "data_type": "i4",
    "shape": "i4",
}


TORCH_OP, TORCH_ANNOTATION, TORCH_CALL = 0, 1, 2


TORCH_OPS = {
    "event": "i8",
    "host": "i4",
    "kind": "i1",
    "start": "i8",
    "end": "i8",
    "parent": "i8",
    "op": "i4",
    "own": "i8",
    "device_own": "i8",
    "shape": "i4",
    "stack": "i4",
    "forward": "i8",
}


TORCH_MODULES = {"event": "i8", "host": "i4", "start": "i8", "end": "i8", "own": "i8", "stack": "i4"}


FUNCTIONS = {"event": "i8", "host": "i4", "lane": "i4", "start": "i8", "end": "i8", "name": "i4", "mode": "i4", "tracings": "i8"}


ITERATORS = {"event": "i8", "host": "i4", "lane": "i4", "iterator": "i8", "parent": "i8", "name": "i4", "start": "i8", "end": "i8"}


DEVICES = [
    "host",
    "device",
    "kind",
    "name",
    "compute_capability",
    "memory_bytes",
    "memory_bytes_per_second",
    "cores",
    "clock_khz",
    "peak_flops_per_second",
    *(f"{level}_bytes_per_second" for level in ON_CHIP),
    "chip",
    "megacore",
    "sparse_cores",
]


TRANSFERS = {"event": "i8", "host": "i4", "device": "i4", "start": "i8", "end": "i8", "kind": "i4", "bytes": "i8"}


LAUNCHES = {"event": "i8", "host": "i4", "target": "i8", "op": "i8"}


CALLS = {"event": "i8", "host": "i4", "group": "i8", "start": "i8", "end": "i8", "kind": "i4", "name": "i4"}


OPTIMIZER_CALLS = {"event": "i8", "host": "i4", "start": "i8", "end": "i8", "name": "i4"}


COLLECTIVES = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "start": "i8",
    "end": "i8",
    "name": "i4",
    "bytes": "i8",
    "group_size": "i4",
}
