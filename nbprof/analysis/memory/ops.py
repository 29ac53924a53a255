"""Memory by op: the bytes that each op itself allocated and freed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.schema import frames


def frame(activity: Activity, timeline: pd.DataFrame) -> pd.DataFrame:
    """One row per allocator and op, the largest increase first: the columns of `p.memory.ops`.

    `timeline` is the result of `nbprof.analysis.memory.memory.timeline`.

    An event counts for the innermost op around it, a deallocation too, so that the increase of an
    op is `self_cpu_memory_usage` (or that of the device) of PyTorch's `key_averages()`, and *Self
    Size Increase* of its TensorBoard plugin. Events in no op are a row without one.
    """
    rows = activity.allocations
    if not rows["allocated"].notna().any():
        return frames.empty("memory.ops")
    size = timeline["allocated_bytes"]
    is_known = size.notna().to_numpy(np.bool_)
    taken = rows["allocation"].to_numpy(np.bool_)
    # The timeline has those of deallocations as negative numbers.
    nbytes = np.where(taken, 1, -1) * size.to_numpy(np.int64, na_value=0)
    memory, op = rows["memory"].to_numpy(np.int64), rows["op"].to_numpy(np.int64)
    count = max(len(activity.ops.codes), 1)
    pair, distinct = pd.factorize(memory * count + op, sort=True)
    texts, ops = activity.texts.values, activity.ops.values

    def total(
        mask: np.ndarray[tuple[int], np.dtype[np.bool_]],
        weights: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> pd.Series[int]:
        # Sums of integers: those of bincount are of doubles.
        result = np.zeros(len(distinct), np.int64)
        np.add.at(result, pair[mask], weights[mask])
        return pd.Series(result)

    ones = np.ones(len(nbytes), np.int64)
    table = pd.DataFrame(
        {
            "memory_id": texts[distinct // count],
            "op": ops[distinct % count] if len(ops) else np.full(len(distinct), "", object),
            "allocations": total(taken, ones),
            "allocated_bytes": total(taken, nbytes),
            "deallocations": total(~taken, ones),
            "freed_bytes": total(~taken, nbytes),
        }
    )
    table["increase_bytes"] = table["allocated_bytes"] - table["freed_bytes"]
    # A sum that lacks a size is unknown.
    for columns, events in (
        (("allocated_bytes", "increase_bytes"), taken),
        (("freed_bytes", "increase_bytes"), ~taken),
    ):
        lacking = np.unique(pair[events & ~is_known])
        for column in columns if len(lacking) else ():
            table[column] = table[column].astype("Int64").mask(table.index.isin(lacking))
    return in_order(table)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, the largest increase first."""
    return rows.sort_values(
        ["increase_bytes", "allocated_bytes", "op"],
        ascending=[False, False, True],
        kind="stable",
        ignore_index=True,
    )
