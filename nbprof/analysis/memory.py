"""Memory by allocator: timeline, peak, fragmentation and what was alive at the peak (TensorFlow Profiler's memory profile)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import Activity
from nbprof.trace import Int32s, Int64s

UNUSED = "unused preallocated device memory"
EARLIER = "allocated before the recording"
UNTOLD = "in use; the file states no addresses to tell blocks apart"


def timeline(activity: Activity) -> pd.DataFrame:
    """One row an allocation or deallocation, in time order: the columns of `p.memory.timeline`.

    A deallocation states the op, region, type and shape of the allocation that it frees. An event outside any step counts for
    the step after the last one seen, as in TensorFlow Profiler.
    """
    a = activity.allocations
    texts = activity.texts.values if len(activity.texts.codes) else np.array([""], object)
    ops = activity.ops.values if len(activity.ops.codes) else np.array([""], object)
    if not len(a):
        return pd.DataFrame(
            columns=[
                "memory_id",
                "time_ms",
                "event",
                "requested_bytes",
                "allocated_bytes",
                "op",
                "step",
                "region_type",
                "data_type",
                "shape",
                "stack_bytes",
                "heap_bytes",
                "free_bytes",
                "fragmentation",
                "in_use_bytes",
                "order",
                "address",
                "lifetime_peak_bytes",
                "capacity_bytes",
            ]
        )
    op, region, kind, shape = (a[c].to_numpy().copy() for c in ("op", "region", "data_type", "shape"))
    step = a["group"].to_numpy().copy()
    memory, is_alloc = a["memory"].to_numpy(), a["allocation"].to_numpy()
    source = _freed(memory, _addresses(a["address"]), is_alloc)
    freed = np.flatnonzero(source >= 0)
    for column in (op, region, kind, shape):
        column[freed] = column[source[freed]]
    step = _step(memory, step)
    return pd.DataFrame(
        {
            "memory_id": texts[memory],
            "time_ms": a["time"] / 1e9,
            "event": np.where(is_alloc, "allocation", "deallocation"),
            "requested_bytes": a["requested"],
            "allocated_bytes": np.where(is_alloc, a["allocated"], -a["allocated"]),
            "op": ops[op],
            "step": step,
            "region_type": texts[region],
            "data_type": texts[kind],
            "shape": texts[shape],
            "stack_bytes": a["stack"],
            "heap_bytes": a["heap"],
            "free_bytes": a["free"],
            "fragmentation": a["fragmentation"],
            "in_use_bytes": a["heap"] + (a["stack"].fillna(0) if a["stack"].isna().any() else a["stack"]),
            "order": a["event"],
            "address": a["address"],
            "lifetime_peak_bytes": a["lifetime_peak"],
            "capacity_bytes": pd.array(np.array([activity.memory_capacity.get(t) for t in texts], object)[memory], "Int64"),
        }
    )


def _addresses(stated: pd.Series) -> Int64s:
    """The address of each event; one that is not known equals no other."""
    unknown = stated.isna().to_numpy(np.bool_)
    out: Int64s = stated.fillna(0).to_numpy(np.int64).copy()
    if unknown.any():
        # Real addresses are even.
        out[unknown] = -1 - 2 * np.arange(int(unknown.sum()))
    return out


def _freed(memory: Int32s, address: Int64s, is_alloc: npt.NDArray[np.bool_]) -> Int64s:
    """The allocation that each deallocation frees, -1 where none was seen: the first at its address since the last one there."""
    out = np.full(len(memory), -1, np.int64)
    order = np.lexsort((address, memory))
    alloc = is_alloc[order]
    moved = (np.diff(memory[order], prepend=-1) != 0) | (np.diff(address[order], prepend=0) != 0)
    # A stretch ends with a deallocation, or where the address changes; its first event is what the deallocation frees.
    begins = np.flatnonzero(moved | ~np.append(True, alloc[:-1]))
    frees = np.flatnonzero(~alloc)
    first = begins[np.searchsorted(begins, frees, side="right") - 1]
    pairs = first < frees
    out[order[frees[pairs]]] = order[first[pairs]]
    return out


def _step(memory: Int32s, stated: Int64s) -> Int64s:
    """The step of each event: the one stated, else the one after the last that its allocator stated before."""
    order = np.argsort(memory, kind="stable")
    ident = stated[order]
    place = np.where(ident >= 0, np.arange(len(order)), -1)
    seen = np.maximum.accumulate(place) if len(place) else place
    begins = np.flatnonzero(np.diff(memory[order], prepend=-1))
    before = np.repeat(begins, np.diff(np.append(begins, len(order))))
    known = seen >= before
    filled = np.where(ident >= 0, ident, np.where(known, ident[np.maximum(seen, 0)], -1) + 1)
    out = np.empty_like(stated)
    out[order] = filled
    return out


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row an allocator, largest peak first: the columns of `p.memory.summary`.

    The lifetime peak is the largest value that the allocator
    stated or that was seen (XProf takes the last one stated, which can be below the peak). What an allocator does not state is NA:
    PyTorch's have no stack, no peak of the time before the recording, and as capacity that of their device.
    """
    out = []
    for ident, group in rows.groupby("memory_id", sort=True):
        used = group["in_use_bytes"].to_numpy(np.int64)
        equal = np.flatnonzero(used == used.max())
        # Of equal peaks the last in the order of the file counts for the figures, the last in time for the step.
        peak = group.iloc[equal[int(np.argmax(group["order"].to_numpy()[equal]))]]
        allocs = int((group["event"] == "allocation").sum())
        limited = _whole(peak["stack_bytes"]) is not None
        free, lifetime = _whole(peak["free_bytes"]), _whole(group["lifetime_peak_bytes"].max())
        out.append(
            {
                "memory_id": ident,
                "allocations": allocs,
                "deallocations": len(group) - allocs,
                "capacity_bytes": int(peak["in_use_bytes"]) + free if limited and free is not None else _whole(peak["capacity_bytes"]),
                "lifetime_peak_bytes": None if lifetime is None else max(lifetime, int(used.max())),
                "peak_bytes": int(peak["in_use_bytes"]),
                "peak_time_ms": float(peak["time_ms"]),
                "peak_stack_bytes": _whole(peak["stack_bytes"]),
                "peak_heap_bytes": int(peak["heap_bytes"]),
                "peak_free_bytes": free,
                "peak_fragmentation": float(peak["fragmentation"]),
                "peak_step": int(group["step"].iloc[equal[-1]]),
            }
        )
    columns = [
        "memory_id",
        "allocations",
        "deallocations",
        "capacity_bytes",
        "lifetime_peak_bytes",
        "peak_bytes",
        "peak_time_ms",
        "peak_stack_bytes",
        "peak_heap_bytes",
        "peak_free_bytes",
        "peak_fragmentation",
        "peak_step",
    ]
    frame = pd.DataFrame(out, columns=columns)
    for column in ("capacity_bytes", "lifetime_peak_bytes", "peak_stack_bytes", "peak_free_bytes"):
        if frame[column].isna().any():
            frame[column] = frame[column].astype("Int64")
    return frame.sort_values("peak_bytes", ascending=False, kind="stable", ignore_index=True)


def _whole(value: object) -> int | None:
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]


def at_peak(rows: pd.DataFrame, totals: pd.DataFrame) -> pd.DataFrame:
    """Allocations alive at the peak of each allocator, largest first: the columns of `p.memory.peak`.

    Of the step of the peak the allocations are known one by one; what was in use before it is one row,
    `unused preallocated device memory`, so that the rows add up to the bytes in use. PyTorch's allocators are followed from the begin
    of the recording; there the one row is `allocated before the recording`.
    """
    parts = []
    for _, total in totals.iterrows():
        group = rows[rows["memory_id"] == total["memory_id"]]
        parts.append(_alive(group, total))
    columns = [
        "memory_id",
        "op",
        "allocated_bytes",
        "requested_bytes",
        "occurrences",
        "region_type",
        "data_type",
        "shape",
    ]
    filled = [p for p in parts if len(p)]
    return pd.concat(filled, ignore_index=True)[columns] if filled else pd.DataFrame(columns=columns)


def _alive(group: pd.DataFrame, total: pd.Series) -> pd.DataFrame:
    # TensorFlow's allocators state their stack, PyTorch's don't.
    whole, rest = pd.isna(total["peak_stack_bytes"]), EARLIER
    now = group[(group["time_ms"] <= total["peak_time_ms"]) & (whole | (group["step"] == total["peak_step"]))]
    if whole:
        # Of events at the time of the peak, those behind it in the file came after it.
        peak = np.flatnonzero(now["in_use_bytes"].to_numpy(np.int64) == int(total["peak_bytes"]))
        now = now.iloc[: int(peak[-1]) + 1] if len(peak) else now
        if now["address"].isna().any():
            # Which block a deallocation frees is not known, so neither is which ones are alive.
            now = now.iloc[:0]
            rest = UNTOLD
    alive: dict[int, int] = {}
    unmapped = int(total["peak_heap_bytes"])
    unmatched = 0
    sizes = now["allocated_bytes"].abs().to_numpy()
    for i, (address, event) in enumerate(zip(now["address"].tolist(), now["event"].tolist(), strict=True)):
        size = int(sizes[i])
        if event == "allocation":
            alive[address] = i
            unmapped -= size
        else:
            if address in alive:
                del alive[address]
            else:
                unmatched += size
            unmapped += size
    unmapped -= unmatched
    live = now.iloc[list(alive.values())]
    columns = ["allocated_bytes", "requested_bytes", "op", "region_type", "data_type", "shape"]
    table = live[columns]
    extra = []
    if unmapped > 0:
        extra.append(
            [unmapped, pd.NA, rest, "", "", ""] if whole else [unmapped, unmapped, UNUSED, "persist/dynamic", "INVALID", "unknown"]
        )
    if not whole and total["peak_stack_bytes"] > 0:
        extra.append([total["peak_stack_bytes"], total["peak_stack_bytes"], "stack", "stack", "INVALID", "unknown"])
    if extra:
        special = pd.DataFrame(extra, columns=columns).astype({c: table[c].dtype for c in columns[:2]})
        table = pd.concat([table, special], ignore_index=True) if len(table) else special
    merged = table.groupby(columns, sort=False, dropna=False).size().rename("occurrences").reset_index()
    merged = merged.sort_values(columns, ascending=[False, False, True, True, True, True], kind="stable", ignore_index=True)
    out: pd.DataFrame = merged.assign(memory_id=total["memory_id"])
    return out
