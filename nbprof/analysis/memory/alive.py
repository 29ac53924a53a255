"""Which blocks are live at a given time: at an allocator's peak, or any other time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Int64s
from nbprof.schema import frames

UNUSED = "unused preallocated device memory"
EARLIER = "allocated before the recording"
UNTOLD = "in use; the file states no addresses to tell blocks apart"

COLUMNS = frames.names("memory.peak")
_ALIKE = ["allocated_bytes", "requested_bytes", "op", "region_type", "data_type", "shape"]


def at_peak(rows: pd.DataFrame, totals: pd.DataFrame) -> pd.DataFrame:
    """Blocks alive at the peak of each allocator, largest first: the columns of `p.memory.peak`.

    Of the step of the peak the blocks are known one by one; what was in use before it is one row, `unused preallocated device memory`, so
    that the rows add up to the bytes in use. PyTorch's allocators are followed from the start of the recording; there the one row is
    `allocated before the recording`. A block is freed by any later deallocation at its address; XProf looks at those of the step alone.
    """
    parts = []
    for total in totals[totals["peak_bytes"].notna()].to_dict("records"):
        mine = _of(rows, total["memory_id"])
        used = rows["in_use_bytes"].to_numpy(np.float64, na_value=-1)[mine]
        equal = np.flatnonzero((rows["time_ms"].to_numpy()[mine] == total["peak_time_ms"]) & (used == total["peak_bytes"]))
        last = int(equal[np.argmax(rows["order"].to_numpy()[mine[equal]])])
        parts.append(_at(rows, mine, last))
    return _joined(parts)


def at(rows: pd.DataFrame, time_ms: float, memory_id: str | None = None, *, whole: bool = False) -> pd.DataFrame:
    """The same at any moment: after the last event at or before it, of one allocator or of all in the order of their names.

    With `whole` blocks are followed from the start of the recording, as PyTorch's always are.
    """
    parts = []
    for ident in sorted(rows["memory_id"].unique()) if memory_id is None else [memory_id]:
        mine = _of(rows, ident)
        last = int(np.searchsorted(rows["time_ms"].to_numpy()[mine], time_ms, side="right")) - 1
        if last >= 0:
            parts.append(_at(rows, mine, last, whole))
    return _joined(parts)


def _at(rows: pd.DataFrame, mine: Int64s, last: int, whole: bool = False) -> pd.DataFrame:
    event = rows.iloc[mine[last]]
    step = None if whole or from_the_begin(rows[["stack_bytes", "requested_bytes"]].iloc[mine]) else int(event["group"])
    return _alive(rows, mine[: last + 1], step, event["heap_bytes"], event["stack_bytes"])


def of(rows: pd.DataFrame, memory_id: object) -> pd.DataFrame:
    """The events of one allocator."""
    return rows.iloc[_of(rows, memory_id)]


def _of(rows: pd.DataFrame, memory_id: object) -> Int64s:
    # As plain objects: pandas would look for what is missing first.
    return np.flatnonzero(rows["memory_id"].to_numpy(object) == memory_id)


def allocating(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which events are allocations."""
    return np.asarray(rows["event"].to_numpy(object) == "allocation", np.bool_)


def from_the_begin(group: pd.DataFrame) -> bool:
    """Whether blocks are followed from the start of the recording rather than of the step: PyTorch's, which state no more than blocks."""
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


def _alive(rows: pd.DataFrame, until: Int64s, step: int | None, heap: Any, stack: Any) -> pd.DataFrame:
    """Blocks alive after an event of an allocator, and rows for what else is in use then.

    Parameters
    ----------
    rows : DataFrame
        The timeline.
    until : int64[n]
        Positions of the events of the allocator up to that event.
    step : int or None
        Only blocks of this step; None: of the whole recording.
    heap, stack : int or NA
        Bytes in use after the event.
    """
    rest = UNUSED if step is not None else EARLIER
    live = rows.iloc[:0]
    address = rows["address"].iloc[until]
    if address.isna().any():
        # Which block a deallocation frees is not known, so neither is which ones are alive.
        rest = UNTOLD
    else:
        live = rows.iloc[until[last_at_address(address.to_numpy(np.int64), allocating(rows)[until])]]
        if step is not None:
            live = live[live["group"].to_numpy() == step]
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
    out: pd.DataFrame = merged.assign(memory_id=rows["memory_id"].iloc[until[0]])
    return out


class Moments(NamedTuple):
    """Blocks alive at several moments of one allocator, as what changes from one to the next.

    Attributes
    ----------
    at : int64[m]
        Position of each moment's event in the timeline. Moments are in the order of their steps, then in time.
    blocks : DataFrame
        Every kind of block that is alive at any of them: equal ones are one row.
    moment, block, change : int32[k]
        At which moment (index into `at`) how many more or fewer of which kind (row of `blocks`) are alive than at the one before; before
        the first there are none. In the order of the moments.
    smaller_bytes, smaller_count : float64[m]
        Of the blocks that were too many to be told, which are the smallest: bytes and number alive at each moment.
    """

    at: Int64s
    blocks: pd.DataFrame
    moment: npt.NDArray[np.int32]
    block: npt.NDArray[np.int32]
    change: npt.NDArray[np.int32]
    smaller_bytes: npt.NDArray[np.float64]
    smaller_count: npt.NDArray[np.float64]


def moments(group: pd.DataFrame, positions: Int64s, most: int = 10_000) -> Moments | None:
    """What `at` finds at several moments of one allocator, small enough to be sent; None where blocks cannot be told apart.

    Parameters
    ----------
    group : DataFrame
        The timeline of one allocator.
    positions : int64[m]
        Events whose moments to tell.
    most : int
        The largest blocks that are told one by one.
    """
    if not len(group) or not len(positions) or group["address"].isna().any():
        return None
    step = np.zeros(len(group), np.int64) if from_the_begin(group) else group["group"].to_numpy(np.int64)
    known, rank = np.unique(step[positions], return_inverse=True)
    sort = np.lexsort((positions, rank.reshape(-1)))
    at = positions[sort]
    # Moments and blocks on one axis: their step, then their position.
    width = len(group) + 1
    axis = rank.reshape(-1)[sort] * width + at
    begun = np.flatnonzero(allocating(group))
    row = np.minimum(np.searchsorted(known, step[begun]), len(known) - 1)
    first = np.searchsorted(axis, row * width + begun)
    stop = np.searchsorted(axis, row * width + _until(group["address"].to_numpy(np.int64))[begun])
    seen = np.flatnonzero((known[row] == step[begun]) & (stop > first))
    sizes = group["allocated_bytes"].iloc[begun[seen]].to_numpy(np.float64, na_value=0)
    large = np.argsort(-sizes, kind="stable")
    told, small = np.sort(large[:most]), large[most:]
    alive = group.iloc[begun[seen[told]]][_ALIKE].reset_index(drop=True)
    kind = alive.groupby(_ALIKE, sort=False, dropna=False).ngroup().to_numpy(np.int64) if len(alive) else np.zeros(0, np.int64)
    blocks = alive.iloc[np.unique(kind, return_index=True)[1]].reset_index(drop=True)
    when = np.concatenate([first[seen[told]], stop[seen[told]]])
    keys, back = np.unique(when * max(len(blocks), 1) + np.tile(kind, 2), return_inverse=True)
    change = np.bincount(back.reshape(-1), weights=np.repeat([1, -1], len(kind)), minlength=len(keys)).astype(np.int32)
    moment, block = np.divmod(keys, max(len(blocks), 1))
    # Blocks that are alive at the last moment end behind it.
    told_ = (change != 0) & (moment < len(at))

    def running(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        ends = [np.bincount(w[seen[small]], weights=weights, minlength=len(at) + 1) for w in (first, stop)]
        return np.asarray(np.cumsum(ends[0] - ends[1])[: len(at)])

    of_small = running(sizes[small]), running(np.ones(len(small)))
    return Moments(at, blocks, moment[told_].astype(np.int32), block[told_].astype(np.int32), change[told_], *of_small)


def _until(address: Int64s) -> Int64s:
    """The position of the next event at the address of each event; the number of events where there is none."""
    order = np.argsort(address, kind="stable")
    following = np.append(order[1:], len(order))
    following[np.append(address[order][1:] != address[order][:-1], True)] = len(order)
    out = np.empty(len(order), np.int64)
    out[order] = following
    return out
