"""Which blocks are alive at a moment: at the peak of an allocator, or at any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.trace import Int64s

UNUSED = "unused preallocated device memory"
EARLIER = "allocated before the recording"
UNTOLD = "in use; the file states no addresses to tell blocks apart"

COLUMNS = ["memory_id", "op", "allocated_bytes", "requested_bytes", "occurrences", "region_type", "data_type", "shape"]
_ALIKE = ["allocated_bytes", "requested_bytes", "op", "region_type", "data_type", "shape"]


def at_peak(rows: pd.DataFrame, totals: pd.DataFrame) -> pd.DataFrame:
    """Blocks alive at the peak of each allocator, largest first: the columns of `p.memory.peak`.

    Of the step of the peak the blocks are known one by one; what was in use before it is one row, `unused preallocated device memory`, so
    that the rows add up to the bytes in use. PyTorch's allocators are followed from the begin of the recording; there the one row is
    `allocated before the recording`. A block is freed by any later deallocation at its address; XProf looks at those of the step alone.
    """
    parts = []
    for total in totals[totals["peak_bytes"].notna()].to_dict("records"):
        group = of(rows, total["memory_id"])
        used = group["in_use_bytes"].to_numpy(np.float64, na_value=-1)
        equal = np.flatnonzero((group["time_ms"].to_numpy() == total["peak_time_ms"]) & (used == total["peak_bytes"]))
        last = int(equal[np.argmax(group["order"].to_numpy()[equal])])
        parts.append(_at(group, last))
    return _joined(parts)


def at(rows: pd.DataFrame, time_ms: float, memory_id: str | None = None, *, whole: bool = False) -> pd.DataFrame:
    """The same at any moment: after the last event at or before it, of one allocator or of all in the order of their names.

    With `whole` blocks are followed from the begin of the recording, as PyTorch's always are.
    """
    parts = []
    for ident in sorted(set(rows["memory_id"])) if memory_id is None else [memory_id]:
        group = of(rows, ident)
        last = int(np.searchsorted(group["time_ms"].to_numpy(), time_ms, side="right")) - 1
        if last >= 0:
            parts.append(_at(group, last, whole))
    return _joined(parts)


def _at(group: pd.DataFrame, last: int, whole: bool = False) -> pd.DataFrame:
    event = group.iloc[last]
    step = None if whole or from_the_begin(group) else int(event["step"])
    return _alive(group, last, step, event["heap_bytes"], event["stack_bytes"])


def of(rows: pd.DataFrame, memory_id: object) -> pd.DataFrame:
    """The events of one allocator."""
    return rows[(rows["memory_id"] == memory_id).to_numpy(np.bool_)]


def from_the_begin(group: pd.DataFrame) -> bool:
    """Whether blocks are followed from the begin of the recording rather than of the step: PyTorch's, which state no more than blocks."""
    return bool(group["stack_bytes"].isna().all() and group["requested_bytes"].isna().all())


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [p for p in parts if len(p)]
    return pd.concat(filled, ignore_index=True)[COLUMNS] if filled else pd.DataFrame(columns=COLUMNS)


def last_at_address(address: Int64s, allocation: npt.NDArray[np.bool_]) -> Int64s:
    """Which of some events, in time order, are allocations of blocks still alive behind the last: the last at their address."""
    order = np.argsort(address, kind="stable")
    sorted_ = address[order]
    last = order[np.append(sorted_[1:] != sorted_[:-1], True)] if len(order) else order
    return np.sort(last[allocation[last]])


def _alive(group: pd.DataFrame, last: int, step: int | None, heap: Any, stack: Any) -> pd.DataFrame:
    """Blocks alive after an event of an allocator, and rows for what else is in use then.

    Parameters
    ----------
    group : DataFrame
        The timeline of one allocator.
    last : int
        Position of the event.
    step : int or None
        Only blocks of this step; None: of the whole recording.
    heap, stack : int or NA
        Bytes in use after the event.
    """
    now = group.iloc[: last + 1]
    rest = UNUSED if step is not None else EARLIER
    live = now.iloc[:0]
    if now["address"].isna().any():
        # Which block a deallocation frees is not known, so neither is which ones are alive.
        rest = UNTOLD
    else:
        live = now.iloc[last_at_address(now["address"].to_numpy(np.int64), (now["event"] == "allocation").to_numpy(np.bool_))]
        if step is not None:
            live = live[live["step"].to_numpy() == step]
    table = live[_ALIKE]
    extra: list[list[Any]] = []
    unmapped = 0 if pd.isna(heap) else int(heap) - int(table["allocated_bytes"].sum())
    if unmapped > 0:
        extra.append(
            [unmapped, unmapped, rest, "persist/dynamic", "INVALID", "unknown"] if rest == UNUSED else [unmapped, pd.NA, rest, "", "", ""]
        )
    if not pd.isna(stack) and stack > 0:
        extra.append([int(stack), int(stack), "stack", "stack", "INVALID", "unknown"])
    if extra:
        kinds = {
            c: "Int64" if table[c].isna().any() or any(pd.isna(row[i]) for row in extra) else "int64" for i, c in enumerate(_ALIKE[:2])
        }
        special = pd.DataFrame(extra, columns=_ALIKE).astype(kinds)
        table = pd.concat([table.astype(kinds), special], ignore_index=True) if len(table) else special
    merged = table.groupby(_ALIKE, sort=False, dropna=False).size().rename("occurrences").reset_index()
    merged = merged.sort_values(_ALIKE, ascending=[False, False, True, True, True, True], kind="stable", ignore_index=True)
    out: pd.DataFrame = merged.assign(memory_id=group["memory_id"].iloc[0])
    return out
