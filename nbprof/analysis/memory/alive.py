"""The blocks that are live at an allocator's peak, or any other time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.table import positions
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

    Blocks allocated in the step of the peak are listed; memory in use before it is one row, `unused
    preallocated device memory`, so that the rows add up to the bytes in use. PyTorch's allocators
    are followed from the start of the recording; there that row is `allocated before the
    recording`. A block is freed by any later deallocation at its address; XProf only considers
    those of the step.
    """
    timeline = _Timeline(rows)
    parts = []
    for total in totals[totals["peak_bytes"].notna()].to_dict("records"):
        memory_rows = timeline.rows_of(total["memory_id"])
        equal = np.flatnonzero(
            (timeline.time_ms[memory_rows] == total["peak_time_ms"])
            & (timeline.in_use[memory_rows] == total["peak_bytes"])
        )
        last = int(equal[np.argmax(timeline.order[memory_rows[equal]])])
        parts.append(timeline.alive(memory_rows, last))
    return _table(rows, parts)


def blocks_at(
    rows: pd.DataFrame, time_ms: float, memory_id: str | None = None, *, from_start: bool = False
) -> pd.DataFrame:
    """The blocks alive at a moment: after the last event at or before it, of one allocator or of
    all in the order of their names.

    With `from_start` blocks are followed from the start of the recording, as PyTorch's always are.
    """
    timeline = _Timeline(rows)
    parts = []
    for ident in sorted(rows["memory_id"].unique()) if memory_id is None else [memory_id]:
        memory_rows = timeline.rows_of(ident)
        last = int(np.searchsorted(timeline.time_ms[memory_rows], time_ms, side="right")) - 1
        if last >= 0:
            parts.append(timeline.alive(memory_rows, last, from_start=from_start))
    return _table(rows, parts)


class _Alive(NamedTuple):
    """The memory that one allocator has in use: rows of the allocations in the timeline, and other
    memory as values of `_ALIKE`.
    """

    memory_id: object
    blocks: Int64s
    rest: list[list[Any]]


class _Timeline:
    """The columns of the timeline that `alive` needs, extracted once for all allocators."""

    def __init__(self, rows: pd.DataFrame) -> None:
        # As plain objects: pandas would look for missing values first.
        self._memory, idents = pd.factorize(rows["memory_id"].to_numpy(object))
        self._code = positions(idents.tolist())
        self.time_ms, self.order, self._group = (
            rows[key].to_numpy() for key in ("time_ms", "order", "group")
        )
        self.in_use = rows["in_use_bytes"].to_numpy(np.float64, na_value=-1)
        self._memory_id = rows["memory_id"]
        self._allocated = rows["allocated_bytes"].to_numpy(np.int64, na_value=0)
        self._heap, self._stack = rows["heap_bytes"], rows["stack_bytes"]
        self._more_than_blocks = self._stack.notna().to_numpy(np.bool_) | rows[
            "requested_bytes"
        ].notna().to_numpy(np.bool_)
        self._is_allocation = allocating(rows)
        self._has_address = rows["address"].notna().to_numpy(np.bool_)
        self._address = rows["address"].to_numpy(np.int64, na_value=0)

    def rows_of(self, memory_id: object) -> Int64s:
        """Rows of the events of one allocator."""
        if memory_id not in self._code:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._memory == self._code[memory_id])

    def alive(self, memory_rows: Int64s, last: int, from_start: bool = False) -> _Alive:
        """Blocks alive after one of the events of an allocator, and rows for other memory in use.

        With `from_start` those of the recording, else of the step of the event if the recorder
        states more than blocks.
        """
        event, until = memory_rows[last], memory_rows[: last + 1]
        from_start = from_start or not self._more_than_blocks[memory_rows].any()
        blocks = np.zeros(0, np.int64)
        if self._has_address[until].all():
            name = EARLIER if from_start else UNUSED
            blocks = until[last_at_address(self._address[until], self._is_allocation[until])]
            if not from_start:
                blocks = blocks[self._group[blocks] == self._group[event]]
        else:
            # The block that a deallocation frees is unknown, and so are those that are alive.
            name = UNTOLD
        heap, stack = _size(self._heap.iloc[event]), _size(self._stack.iloc[event])
        rest: list[list[Any]] = []
        unlisted = 0 if heap is None else heap - int(self._allocated[blocks].sum())
        if unlisted > 0 and name == UNUSED:
            rest.append([unlisted, unlisted, name, "persist/dynamic", "INVALID", "unknown"])
        elif unlisted > 0:
            rest.append([unlisted, pd.NA, name, "", "", ""])
        if stack is not None and stack > 0:
            rest.append([stack, stack, "stack", "stack", "INVALID", "unknown"])
        return _Alive(self._memory_id.iloc[event], blocks, rest)


def _size(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _table(rows: pd.DataFrame, parts: list[_Alive]) -> pd.DataFrame:
    """The memory in use of each allocator, equal blocks as one row, largest first."""
    parts = [part for part in parts if len(part.blocks) or part.rest]
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    blocks = rows[_ALIKE].iloc[np.concatenate([part.blocks for part in parts])]
    blocks["_of"] = np.repeat(np.arange(len(parts)), [len(part.blocks) for part in parts])
    rest_rows: list[list[Any]] = []
    for number, part in enumerate(parts):
        rest_rows += [[*row, number] for row in part.rest]
    rest = pd.DataFrame(rest_rows, columns=blocks.columns)
    # Sizes may be missing if one is, or could be.
    may_lack = any(not part.rest for part in parts)
    dtypes = {}
    for column in _ALIKE[:2]:
        lacks = blocks[column].isna().any() or rest[column].isna().any()
        is_nullable = lacks or (may_lack and blocks[column].dtype == "Int64")
        dtypes[column] = "Int64" if is_nullable else "int64"
    tables = [table.astype(dtypes) for table in (blocks, rest) if len(table)]
    if len(tables) > 1:
        table = pd.concat(tables, ignore_index=True)
    else:
        table = tables[0].reset_index(drop=True)
    table = table[["_of", *_ALIKE]]
    first, of_row = unique_rows(
        *(pd.factorize(table[column])[0].astype(np.int64) for column in table)
    )
    merged = table.iloc[first].assign(occurrences=np.bincount(of_row, minlength=len(first)))
    ascending = [True, False, False, True, True, True, True]
    merged = merged.sort_values(
        ["_of", *_ALIKE], ascending=ascending, kind="stable", ignore_index=True
    )
    names = np.array([part.memory_id for part in parts], object)
    return merged.assign(memory_id=names[merged["_of"].to_numpy(np.int64)])[COLUMNS]


def allocating(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Flags of the events that are allocations."""
    return np.asarray(rows["event"].to_numpy(object) == "allocation", np.bool_)


def from_the_begin(group: pd.DataFrame) -> bool:
    """True if blocks are followed from the start of the recording rather than of the step:
    PyTorch's, which state no more than blocks.
    """
    return bool(group["stack_bytes"].isna().all() and group["requested_bytes"].isna().all())


def last_at_address(address: Int64s, allocation: npt.NDArray[np.bool_]) -> Int64s:
    """The rows of events, in time order, that allocate blocks still alive after the last event:
    those that are the last at their address.
    """
    order = np.argsort(address, kind="stable")
    sorted_ = address[order]
    last = order[np.append(sorted_[1:] != sorted_[:-1], True)] if len(order) else order
    return np.sort(last[allocation[last]])


class Moments(NamedTuple):
    """Blocks alive at several moments of one allocator, as changes from one to the next.

    Attributes
    ----------
    events : int64[m]
        Position of each moment's event in the timeline. Moments are in the order of their steps,
        then in time.
    blocks : DataFrame
        Every kind of block that is alive at any moment: equal ones are one row.
    moment, block, change : int32[k]
        At which moment (index into `events`) how many more or fewer of which kind (row of `blocks`)
        are alive than at the one before; before the first there are none. In the order of the
        moments.
    smaller_bytes, smaller_count : float64[m]
        Bytes and number alive at each moment of the smallest blocks, which were too many to list.
    from_start : bool
        Whether blocks are followed from the start of the recording rather than of the step.
    """

    events: Int64s
    blocks: pd.DataFrame
    moment: npt.NDArray[np.int32]
    block: npt.NDArray[np.int32]
    change: npt.NDArray[np.int32]
    smaller_bytes: npt.NDArray[np.float64]
    smaller_count: npt.NDArray[np.float64]
    from_start: bool


def moments(
    rows: pd.DataFrame, positions: Int64s, limit: int = 10_000, memory_rows: Int64s | None = None
) -> Moments | None:
    """The blocks alive at several moments of one allocator, small enough to be sent; None if blocks
    have no addresses.

    Parameters
    ----------
    rows : DataFrame
        The timeline of one allocator.
    positions : int64[m]
        The events after which blocks are listed.
    limit : int
        How many of the largest blocks are listed.
    memory_rows : int64[n], optional
        Its events, if the timeline has those of others too; `positions` are among these.
    """
    memory_rows = np.arange(len(rows)) if memory_rows is None else memory_rows
    address = rows["address"].iloc[memory_rows]
    if not len(memory_rows) or not len(positions) or address.isna().any():
        return None
    from_start = from_the_begin(rows[["stack_bytes", "requested_bytes"]].take(memory_rows))
    step = np.zeros(len(memory_rows), np.int64)
    if not from_start:
        step = rows["group"].to_numpy(np.int64)[memory_rows]
    steps_used, rank = np.unique(step[positions], return_inverse=True)
    sort = np.lexsort((positions, rank.reshape(-1)))
    index = positions[sort]
    # Moments and blocks on one axis: their step, then their position.
    width = len(memory_rows) + 1
    axis = rank.reshape(-1)[sort] * width + index
    begun = np.flatnonzero(allocating(rows[["event"]].take(memory_rows)))
    row = np.minimum(np.searchsorted(steps_used, step[begun]), len(steps_used) - 1)
    first = np.searchsorted(axis, row * width + begun)
    stop = np.searchsorted(axis, row * width + _until(address.to_numpy(np.int64))[begun])
    seen = np.flatnonzero((steps_used[row] == step[begun]) & (stop > first))
    sizes = rows["allocated_bytes"].iloc[memory_rows[begun[seen]]].to_numpy(np.float64, na_value=0)
    large = np.argsort(-sizes, kind="stable")
    listed, small = np.sort(large[:limit]), large[limit:]
    alive = rows[_ALIKE].take(memory_rows[begun[seen[listed]]]).reset_index(drop=True)
    first_of_kind, kind = unique_rows(
        *(pd.factorize(alive[column])[0].astype(np.int64) for column in _ALIKE)
    )
    blocks = alive.iloc[first_of_kind].reset_index(drop=True)
    changes = _changes(first[seen[listed]], stop[seen[listed]], kind, len(blocks), len(index))
    spans = first[seen[small]], stop[seen[small]]
    return Moments(
        index,
        blocks,
        *changes,
        _running_sum(*spans, sizes[small], len(index)),
        _running_sum(*spans, np.ones(len(small)), len(index)),
        from_start,
    )


_Int32s = npt.NDArray[np.int32]


def _changes(
    first: Int64s, stop: Int64s, kind: Int64s, kinds: int, moments: int
) -> tuple[_Int32s, _Int32s, _Int32s]:
    """Moment, kind and number of the blocks that begin (or end) to be alive; `first` and `stop` are
    the moments of each block.
    """
    width = max(kinds, 1)
    keys, row = np.unique(
        np.concatenate([first, stop]) * width + np.tile(kind, 2), return_inverse=True
    )
    weights = np.repeat([1, -1], len(kind))
    change = np.bincount(row.reshape(-1), weights=weights, minlength=len(keys)).astype(np.int32)
    moment, block = np.divmod(keys, width)
    # Blocks that are alive at the last moment end behind it.
    used = (change != 0) & (moment < moments)
    return moment[used].astype(np.int32), block[used].astype(np.int32), change[used]


def _running_sum(
    first: Int64s, stop: Int64s, weights: npt.NDArray[np.float64], moments: int
) -> npt.NDArray[np.float64]:
    """float64[moments]: the sum of the weights of the blocks that are alive."""
    begun = np.bincount(first, weights=weights, minlength=moments + 1)
    ended = np.bincount(stop, weights=weights, minlength=moments + 1)
    return np.asarray(np.cumsum(begun - ended)[:moments])


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
