"""Tables of Ascend's profiler as the analyses take them: all of a kind as one frame, with the
recording and the device of each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]

NOT_TOLD = -1
"""The device of rows that do not state one."""
KEYS = ["host", "device"]

AI_CORE, VECTOR, MIX, AI_CPU, COMMUNICATION, COPY, OTHER = (
    "AI Core",
    "Vector core",
    "Mix",
    "AI CPU",
    "Communication",
    "Copy",
    "Other",
)
CORES = (AI_CORE, VECTOR, MIX, AI_CPU, COMMUNICATION, COPY, OTHER)
"""Kinds of cores of tasks, in display order."""
_CORE_OF = {
    "AI_CORE": AI_CORE,
    "AICORE": AI_CORE,
    "KERNEL_AICORE": AI_CORE,
    "AI_VECTOR_CORE": VECTOR,
    "KERNEL_AIVEC": VECTOR,
    "KERNEL_SIMT": VECTOR,
    "MIX_AIC": MIX,
    "MIX_AIV": MIX,
    "KERNEL_MIX_AIC": MIX,
    "KERNEL_MIX_AIV": MIX,
    "AI_CPU": AI_CPU,
    "AICPU": AI_CPU,
    "KERNEL_AICPU": AI_CPU,
    "HCCL": COMMUNICATION,
    "HCCL_AI_CPU": COMMUNICATION,
    "COMMUNICATION": COMMUNICATION,
    "CCU": COMMUNICATION,
    "SDMA": COPY,
    "MEMCPY_ASYNC": COPY,
}


class Table(Protocol):
    """One table of one recording, as `nbprof.core.trace.Table` has it."""

    kind: str
    device: int | None
    frame: pd.DataFrame
    host: int


def gathered(tables: Mapping[str, Sequence[Any]], hosts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables of each kind as one, with the columns `host` (name of the recording) and `device`
    in front.

    Parameters
    ----------
    tables : mapping
        By kind, the `Table` of each recording.
    hosts : sequence of str
        Names of the recordings.
    """
    result = {}
    for kind, parts in tables.items():
        frames = [_with_device(part, hosts) for part in parts]
        frames = [frame for frame in frames if len(frame)]
        if frames:
            result[kind] = pd.concat(frames, ignore_index=True)
    return result


def _with_device(table: Table, hosts: Sequence[str]) -> pd.DataFrame:
    frame = table.frame.copy()
    for name in frame.columns[frame.dtypes == "category"]:
        # Other tables have other texts.
        frame[name] = frame[name].astype(object)
    device = integers(frame, "device_id")
    if table.device is not None:
        device = np.where(device == NOT_TOLD, table.device, device)
    name = hosts[table.host] if 0 <= table.host < len(hosts) else ""
    frame.insert(0, "host", np.full(len(frame), name, object))
    frame.insert(1, "device", device)
    return frame


def floats(frame: pd.DataFrame, name: str) -> Floats:
    """A column as float64; NaN for anything but numbers, and without such a column."""
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    numbers = np.asarray(
        pd.to_numeric(frame[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    )
    return np.where(np.isfinite(numbers), numbers, np.nan)


def moments(frame: pd.DataFrame, name: str) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """A column of ps as int64, and where it is known: as float64 it would lose the nanoseconds of a
    long recording.
    """
    if name not in frame.columns:
        return np.zeros(len(frame), np.int64), np.zeros(len(frame), np.bool_)
    column = frame[name]
    recorded = column.notna().to_numpy(np.bool_)
    if not pd.api.types.is_integer_dtype(column.dtype):
        numbers = floats(frame, name)
        recorded = np.isfinite(numbers)
        return np.where(recorded, numbers, 0).astype(np.int64), recorded
    return column.fillna(0).to_numpy(np.int64), recorded


def integers(frame: pd.DataFrame, name: str, missing: int = NOT_TOLD) -> Int64s:
    """A column as int64; `missing` for anything but numbers, and without such a column."""
    values, recorded = moments(frame, name)
    return np.where(recorded, values, missing)


def texts(frame: pd.DataFrame, name: str) -> Texts:
    """A column as texts, '' where there is none."""
    if name not in frame.columns:
        return np.full(len(frame), "", object)
    column = frame[name].astype(object)
    return np.asarray(column.where(column.notna(), "").map(str).to_numpy(object))


def nullable(values: Int64s) -> pd.Series[Any]:
    """Integers, NA if missing."""
    return pd.Series(values, dtype="Int64").mask(values == NOT_TOLD)


def cores(task_types: Texts) -> Texts:
    """The kind of core of each task type: one of `CORES`, '' if the type is missing."""
    upper = pd.Series(task_types, dtype=object).astype(str).str.upper().str.strip()
    return np.asarray(
        upper.map(_CORE_OF).fillna(OTHER).where(~upper.isin(["", "N/A"]), "").to_numpy(object)
    )


def most(rows: pd.DataFrame, column: str) -> float:
    """The largest sum of a device: equal work of several ranks does not add up."""
    if not len(rows):
        return 0.0
    return float(rows.groupby(KEYS, sort=False, dropna=False)[column].sum().max())


def part(numerator: float, total: float) -> float:
    """A share; NaN if the total is 0."""
    return numerator / total if total > 0 else float("nan")


def quotients(numerators: Floats, denominators: npt.NDArray[Any]) -> Floats:
    """Quotients; NaN for a denominator that is not positive."""
    result = np.full(len(numerators), np.nan)
    np.divide(numerators, denominators, out=result, where=denominators > 0)
    return result
