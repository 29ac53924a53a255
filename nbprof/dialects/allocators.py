"""Allocator events of every producer: computes missing bytes in use, and NA for unknowns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Allocations
from nbprof.core.trace import Int32s, Int64s

Column = Int64s | pd.arrays.IntegerArray
"""A column of whole numbers: plain where every row has one, which is the rule and half the size,
else with NA.
"""

_LARGEST = int(np.iinfo(np.int64).max)


def or_na(values: Int64s, absent: npt.NDArray[np.bool_]) -> Column:
    """Values with NA where `absent` is True; a plain array if it never is."""
    if absent.any():
        return pd.arrays.IntegerArray(np.where(absent, 0, values), absent)
    return values


def allocation_table(activity: act.Activity, **arrays: object) -> pd.DataFrame:
    """The `allocations` table from stated columns; missing numbers are NA, missing texts empty."""
    count = len(arrays["event"])  # type: ignore[arg-type]
    unknown: dict[np.dtype[Any], object] = {
        np.dtype(np.int64): pd.arrays.IntegerArray(
            np.zeros(count, np.int64), np.ones(count, np.bool_)
        ),
        np.dtype(np.int32): np.full(count, activity.texts.code(""), np.int32),
        np.dtype(np.float64): np.full(count, np.nan),
    }
    columns = {}
    for name, column in Allocations.columns.items():
        columns[name] = arrays[name] if name in arrays else unknown[column.dtype]
    return pd.DataFrame(columns)


def added_up(memory: Int32s, size: Int64s, total: Int64s, address: Int64s | None = None) -> Int64s:
    """Bytes in use after each event, never below 0.

    The total that an event states; else by adding up from the last one that does, or back from the
    first. Where no event of a memory states one, from the least start with which all that is freed
    was there.

    Parameters
    ----------
    memory : int32[n]
        Which memory, by event in time order.
    size : int64[n]
        Bytes handed out; negative where they are taken back.
    total : int64[n]
        What each event states as in use; -1 where it states nothing.
    address : int64[n], optional
        Where the block is; -1 where that is unknown.
    """
    heap = total.copy()
    for allocator in np.unique(memory[total < 0]).tolist():
        events = np.flatnonzero(memory == allocator)
        running = np.cumsum(size[events])
        with_total = np.flatnonzero(total[events] >= 0)
        if len(with_total):
            near = with_total[
                np.maximum(np.searchsorted(with_total, np.arange(len(events)), side="right") - 1, 0)
            ]
            heap[events] = np.maximum(total[events[near]] + running - running[near], 0)
        else:
            earlier = 0 if address is None else _freed_first(address[events], size[events])
            # Corrupt sizes may add up to the least number of 64 bits, whose opposite has more.
            least = max(int(running.min()), -_LARGEST)
            heap[events] = np.maximum(running + max(earlier, -least), 0)
    return heap


def _freed_first(address: Int64s, size: Int64s) -> int:
    """Bytes of blocks of one memory that were allocated before the first event.

    The first event at their address is a free.

    Without them less would be in use than the blocks that are known to be live.
    """
    has_address = address != -1
    _, first = np.unique(address[has_address], return_index=True)
    begun = size[has_address][first]
    return -int(begun[begun < 0].sum())
