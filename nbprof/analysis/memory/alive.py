"""Which blocks are live at a given time: at an allocator's peak, or any other time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.schema import frames

UNUSED = "unused preallocated device memory"
EARLIER = "allocated before the recording"
UNTOLD = "in use; the file has no addresses to distinguish blocks"

COLUMNS = frames.names("memory.peak")
_ALIKE = ["allocated_bytes", "requested_bytes", "op", "region_type", "data_type", "shape"]


def at_peak(rows: pd.DataFrame, totals: pd.DataFrame) -> pd.DataFrame:
    """Blocks alive at the peak of each allocator, largest first: the columns of `p.memory.peak`.

    Of the step of the peak the blocks are known one by one; what was in use before it is one row,
    `unused preallocated device memory`, so that the rows add up to the bytes in use. PyTorch's
    allocators are followed from the start of the recording; there the one row is `allocated before
    the recording`. A block is freed by any later deallocation at its address; XProf looks at those
    of the step alone.
    """
    seen = _Timeline(rows)
    parts = []
    for total in totals[totals["peak_bytes"].notna()].to_dict("records"):
        memory_rows = seen.of(total["memory_id"])
        equal = np.flatnonzero(
            (seen.time_ms[memory_rows] == total["peak_time_ms"])
            & (seen.in_use[memory_rows] == total["peak_bytes"])
        )
        last = int(equal[np.argmax(seen.order[memory_rows[equal]])])
        parts.append(seen.alive(memory_rows, last))
    return _table(rows, parts)


def at(
    rows: pd.DataFrame, time_ms: float, memory_id: str | None = None, *, total: bool = False
) -> pd.DataFrame:
    """The same at any moment: after the last event at or before it, of one allocator or of all in
    the order of their names.

    With `whole` blocks are followed from the start of the recording, as PyTorch's always are.
    """
    seen = _Timeline(rows)
    parts = []
    for ident in sorted(rows["memory_id"].unique()) if memory_id is None else [memory_id]:
        memory_rows = seen.of(ident)
        last = int(np.searchsorted(seen.time_ms[memory_rows], time_ms, side="right")) - 1
        if last >= 0:
            parts.append(seen.alive(memory_rows, last, total))
    return _table(rows, parts)


class _Alive(NamedTuple):
    """What one allocator has in use: positions of the allocations in the timeline, and what else,
    as values of `_ALIKE`.
    """

    memory_id: object
    blocks: Int64s
    rest: list[list[Any]]


class _Timeline:
    """The columns of the timeline that tell what is alive, each taken out of it once for all
    allocators.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        # As plain objects: pandas would look for what is missing first.
        self._of, idents = pd.factorize(rows["memory_id"].to_numpy(object))
        self._number = {ident: number for number, ident in enumerate(idents.tolist())}
        self.time_ms, self.order, self._group = (
            rows[key].to_numpy() for key in ("time_ms", "order", "group")
        )
        self.in_use = rows["in_use_bytes"].to_numpy(np.float64, na_value=-1)
        self._memory_id = rows["memory_id"]
        self._allocated = rows["allocated_bytes"].to_numpy(np.int64, na_value=0)
        self._heap, self._stack = _known(rows["heap_bytes"]), _known(rows["stack_bytes"])
        self._more_than_blocks = self._stack[1] | rows["requested_bytes"].notna().to_numpy(np.bool_)
        self._allocation = allocating(rows)
        self._placed = rows["address"].notna().to_numpy(np.bool_)
        self._address = rows["address"].to_numpy(np.int64, na_value=0)

    def of(self, memory_id: object) -> Int64s:
        """Positions of the events of one allocator."""
        return (
            np.flatnonzero(self._of == self._number[memory_id])
            if memory_id in self._number
            else np.zeros(0, np.int64)
        )

    def alive(self, memory_rows: Int64s, last: int, total: bool = False) -> _Alive:
        """Blocks alive after one of the events `mine` of an allocator, and rows for what else is in
        use then.

        With `whole` those of the whole recording, else of the step of the event, where the recorder
        states more than blocks.
        """
        event, until = memory_rows[last], memory_rows[: last + 1]
        total = total or not self._more_than_blocks[memory_rows].any()
        blocks, rest = np.zeros(0, np.int64), EARLIER if total else UNUSED
        if self._placed[until].all():
            blocks = until[last_at_address(self._address[until], self._allocation[until])]
            if not total:
                blocks = blocks[self._group[blocks] == self._group[event]]
        else:
            # Which block a deallocation frees is not known, so neither is which ones are alive.
            rest = UNTOLD
        heap, stack = (
            int(values[event]) if is_known[event] else None
            for values, is_known in (self._heap, self._stack)
        )
        more: list[list[Any]] = []
        unmapped = 0 if heap is None else heap - int(self._allocated[blocks].sum())
        if unmapped > 0:
            more.append(
                [unmapped, unmapped, rest, "persist/dynamic", "INVALID", "unknown"]
                if rest == UNUSED
                else [unmapped, pd.NA, rest, "", "", ""]
            )
        if stack is not None and stack > 0:
            more.append([stack, stack, "stack", "stack", "INVALID", "unknown"])
        return _Alive(self._memory_id.iloc[event], blocks, more)


def _known(column: pd.Series) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The bytes in a column, and where they are known."""
    return column.to_numpy(np.int64, na_value=0), column.notna().to_numpy(np.bool_)


def _table(rows: pd.DataFrame, parts: list[_Alive]) -> pd.DataFrame:
    """What each allocator has in use, equal blocks as one row, largest first."""
    parts = [part for part in parts if len(part.blocks) or part.rest]
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    table = rows[_ALIKE].iloc[np.concatenate([part.blocks for part in parts])]
    table["_of"] = np.repeat(np.arange(len(parts)), [len(part.blocks) for part in parts])
    rest = pd.DataFrame(
        [[*row, number] for number, part in enumerate(parts) for row in part.rest],
        columns=table.columns,
    )
    # Sizes may be missing where one is, or could be.
    has_listed = any(not part.rest for part in parts)
    kinds = {
        c: "Int64"
        if table[c].isna().any()
        or rest[c].isna().any()
        or (has_listed and table[c].dtype == "Int64")
        else "int64"
        for c in _ALIKE[:2]
    }
    both = [part.astype(kinds) for part in (table, rest) if len(part)]
    rows = pd.concat(both, ignore_index=True) if len(both) > 1 else both[0].reset_index(drop=True)
    rows = rows[["_of", *_ALIKE]]
    first, of_row = unique_rows(
        *(pd.factorize(rows[column])[0].astype(np.int64) for column in rows)
    )
    merged = rows.iloc[first].assign(occurrences=np.bincount(of_row, minlength=len(first)))
    ascending = [True, False, False, True, True, True, True]
    merged = merged.sort_values(
        ["_of", *_ALIKE], ascending=ascending, kind="stable", ignore_index=True
    )
    names = np.array([part.memory_id for part in parts], object)
    return merged.assign(memory_id=names[merged["_of"].to_numpy(np.int64)])[COLUMNS]


def of(rows: pd.DataFrame, memory_id: object) -> pd.DataFrame:
    """The events of one allocator."""
    return rows.iloc[np.flatnonzero(rows["memory_id"].to_numpy(object) == memory_id)]


def allocating(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which events are allocations."""
    return np.asarray(rows["event"].to_numpy(object) == "allocation", np.bool_)


def from_the_begin(group: pd.DataFrame) -> bool:
    """Whether blocks are followed from the start of the recording rather than of the step:
    PyTorch's, which state no more than blocks.
    """
    return bool(group["stack_bytes"].isna().all() and group["requested_bytes"].isna().all())


def last_at_address(address: Int64s, allocation: npt.NDArray[np.bool_]) -> Int64s:
    """Which of some events, in time order, are allocations of blocks still alive behind the last:
    the last at their address.
    """
    order = np.argsort(address, kind="stable")
    sorted_ = address[order]
    last = order[np.append(sorted_[1:] != sorted_[:-1], True)] if len(order) else order
    return np.sort(last[allocation[last]])


class Moments(NamedTuple):
    """Blocks alive at several moments of one allocator, as what changes from one to the next.

    Attributes
    ----------
    at : int64[m]
        Position of each moment's event in the timeline. Moments are in the order of their steps,
        then in time.
    blocks : DataFrame
        Every kind of block that is alive at any of them: equal ones are one row.
    moment, block, change : int32[k]
        At which moment (index into `at`) how many more or fewer of which kind (row of `blocks`) are
        alive than at the one before; before the first there are none. In the order of the moments.
    smaller_bytes, smaller_count : float64[m]
        Of the blocks that were too many to be told, which are the smallest: bytes and number alive
        at each moment.
    whole : bool
        Whether blocks are followed from the start of the recording rather than of the step.
    """

    at: Int64s
    blocks: pd.DataFrame
    moment: npt.NDArray[np.int32]
    block: npt.NDArray[np.int32]
    change: npt.NDArray[np.int32]
    smaller_bytes: npt.NDArray[np.float64]
    smaller_count: npt.NDArray[np.float64]
    whole: bool


def moments(
    rows: pd.DataFrame, positions: Int64s, limit: int = 10_000, memory_rows: Int64s | None = None
) -> Moments | None:
    """What `at` finds at several moments of one allocator, small enough to be sent; None where
    blocks cannot be told apart.

    Parameters
    ----------
    rows : DataFrame
        The timeline of one allocator.
    positions : int64[m]
        Events whose moments to tell.
    most : int
        The largest blocks that are told one by one.
    mine : int64[n], optional
        Its events, where the timeline has those of others too; `positions` are among these.
    """
    memory_rows = np.arange(len(rows)) if memory_rows is None else memory_rows
    if not len(memory_rows) or not len(positions) or rows["address"].iloc[memory_rows].isna().any():
        return None
    total = from_the_begin(rows[["stack_bytes", "requested_bytes"]].take(memory_rows))
    step = (
        np.zeros(len(memory_rows), np.int64)
        if total
        else rows["group"].to_numpy(np.int64)[memory_rows]
    )
    steps_used, rank = np.unique(step[positions], return_inverse=True)
    sort = np.lexsort((positions, rank.reshape(-1)))
    index = positions[sort]
    # Moments and blocks on one axis: their step, then their position.
    width = len(memory_rows) + 1
    axis = rank.reshape(-1)[sort] * width + index
    begun = np.flatnonzero(allocating(rows[["event"]].take(memory_rows)))
    row = np.minimum(np.searchsorted(steps_used, step[begun]), len(steps_used) - 1)
    first = np.searchsorted(axis, row * width + begun)
    stop = np.searchsorted(
        axis, row * width + _until(rows["address"].iloc[memory_rows].to_numpy(np.int64))[begun]
    )
    seen = np.flatnonzero((steps_used[row] == step[begun]) & (stop > first))
    sizes = rows["allocated_bytes"].iloc[memory_rows[begun[seen]]].to_numpy(np.float64, na_value=0)
    large = np.argsort(-sizes, kind="stable")
    listed, small = np.sort(large[:limit]), large[limit:]
    alive = rows[_ALIKE].take(memory_rows[begun[seen[listed]]]).reset_index(drop=True)
    first_of_kind, kind = unique_rows(
        *(pd.factorize(alive[column])[0].astype(np.int64) for column in _ALIKE)
    )
    blocks = alive.iloc[first_of_kind].reset_index(drop=True)
    when = np.concatenate([first[seen[listed]], stop[seen[listed]]])
    keys, back = np.unique(when * max(len(blocks), 1) + np.tile(kind, 2), return_inverse=True)
    change = np.bincount(
        back.reshape(-1), weights=np.repeat([1, -1], len(kind)), minlength=len(keys)
    ).astype(np.int32)
    moment, block = np.divmod(keys, max(len(blocks), 1))
    # Blocks that are alive at the last moment end behind it.
    told_ = (change != 0) & (moment < len(index))

    def running(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        ends = [
            np.bincount(w[seen[small]], weights=weights, minlength=len(index) + 1)
            for w in (first, stop)
        ]
        return np.asarray(np.cumsum(ends[0] - ends[1])[: len(index)])

    of_small = running(sizes[small]), running(np.ones(len(small)))
    return Moments(
        index,
        blocks,
        moment[told_].astype(np.int32),
        block[told_].astype(np.int32),
        change[told_],
        *of_small,
        total,
    )


def _until(address: Int64s) -> Int64s:
    """The position of the next event at the address of each event; the number of events where there
    is none.
    """
    order = np.argsort(address, kind="stable")
    following = np.append(order[1:], len(order))
    following[np.append(address[order][1:] != address[order][:-1], True)] = len(order)
    result = np.empty(len(order), np.int64)
    result[order] = following
    return result
