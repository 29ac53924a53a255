"""Memory that PyTorch's allocator holds: its use, the bytes stranded in it, and the blocks that
keep it from being released.

- reserved: what the allocator has from the device, all segments. allocated: blocks in use; pending:
  blocks that were freed while another stream still used them; inactive: free blocks. These four add
  up: reserved = allocated + pending + inactive.
- rounding: what blocks are larger than what was asked for (internal fragmentation).
- releasable: inactive bytes that empty_cache would release: in segments without a block in use, or
  in whole pages of expandable ones.
- stranded = inactive - releasable (PyTorch's `inactive_split_bytes`): free, and kept by blocks in
  use. fragmentation = stranded / reserved.
- outside_largest = 1 - largest free block / inactive: how far the free memory is from being one
  piece (XLA's and TensorFlow's BFC allocators call that fragmentation).

Source: torch.cuda.memory_stats of PyTorch 2.x; c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import text_column
from nbprof.analysis import notes
from nbprof.analysis.allocator.stacks import Stacks
from nbprof.analysis.allocator.state import Replay, State, units
from nbprof.analysis.figures import percent, ratio
from nbprof.core.receipt import Note
from nbprof.formats.torch_snapshot.snapshot import (
    ACTIONS,
    ALLOCATED,
    INACTIVE,
    OOM,
    PENDING,
    STATES,
    UNKNOWN,
    Snapshot,
)

_ACTION = np.array(ACTIONS, object)
_STATE = np.array(STATES, object)


def measures(state: State) -> dict[str, float | int]:
    """The figures of one device at a moment: bytes, percentages and counts."""
    blocks, pieces = state.blocks, units(state)
    size, kind = blocks["size"].to_numpy(np.int64), blocks["state"].to_numpy(np.int64)
    reserved = int(state.segments["size"].sum())
    inactive = int(size[kind == INACTIVE].sum())
    free, stuck = _by_unit(state, pieces)
    stranded = int(free[stuck].sum())
    largest = int(size[kind == INACTIVE].max(initial=0))
    return {
        "reserved_bytes": reserved,
        "allocated_bytes": int(size[kind == ALLOCATED].sum()),
        "pending_bytes": int(size[kind == PENDING].sum()),
        "inactive_bytes": inactive,
        "rounding_bytes": int(
            (size - blocks["requested"].to_numpy(np.int64))[kind != INACTIVE].sum()
        ),
        "releasable_bytes": inactive - stranded,
        "stranded_bytes": stranded,
        "fragmentation_percent": percent(stranded, reserved),
        "largest_free_bytes": largest,
        "outside_largest_percent": 100 * (1 - ratio(largest, inactive)),
        "segments": len(state.segments),
        "stranded_segments": int(
            pd.unique(blocks["segment"].to_numpy()[_stranded_rows(state, pieces, stuck)]).size
        ),
        "private_pool_bytes": int(
            state.segments["size"][
                (state.segments["pool"] > 0) | (state.segments["pool_b"] > 0)
            ].sum()
        ),
    }


def _by_unit(
    state: State, pieces: pd.DataFrame
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Free bytes of each unit, and whether a block in use keeps them."""
    kind = state.blocks["state"].to_numpy(np.int64)[pieces["block"]]
    count = int(pieces["unit"].max()) + 1 if len(pieces) else 0
    free = np.bincount(
        pieces["unit"], np.where(kind == INACTIVE, pieces["bytes"], 0), count
    ).astype(np.float64)
    used = np.bincount(pieces["unit"], kind != INACTIVE, count) > 0
    return free, used & (free > 0)


def _stranded_rows(
    state: State, pieces: pd.DataFrame, stuck: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    kind = state.blocks["state"].to_numpy(np.int64)[pieces["block"]]
    rows: npt.NDArray[np.int64] = pieces["block"].to_numpy(np.int64)[
        (kind == INACTIVE) & stuck[pieces["unit"]]
    ]
    return rows


def stranded_by_block(state: State) -> npt.NDArray[np.int64]:
    """Stranded bytes of each free block, int64[blocks]."""
    pieces = units(state)
    _, stuck = _by_unit(state, pieces)
    kind = state.blocks["state"].to_numpy(np.int64)[pieces["block"]]
    lost = np.where((kind == INACTIVE) & stuck[pieces["unit"]], pieces["bytes"], 0)
    return np.bincount(pieces["block"], lost, len(state.blocks)).astype(np.int64)


def pinning(state: State, stacks: Stacks) -> pd.DataFrame:
    """Blocks that keep free memory from being released, by the stack that allocated them; the most
    memory first.

    Returns
    -------
    DataFrame
        `stack location blocks bytes pinned_bytes alone_bytes segments largest_hole_bytes`:
        `pinned_bytes` is the free memory beside its blocks, which other stacks may keep too;
        `alone_bytes` would be given back if only these blocks were gone.
    """
    pieces = units(state)
    free, stuck = _by_unit(state, pieces)
    blocks = state.blocks
    kind = blocks["state"].to_numpy(np.int64)
    stuck_blocks = stuck[pieces["unit"]] & (kind[pieces["block"]] != INACTIVE)
    held = pieces[stuck_blocks]
    stack = blocks["stack"].to_numpy(np.int64)[held["block"]]
    held = held.assign(stack=stack)
    pairs = held.drop_duplicates(["unit", "stack"])
    free_bytes = free[pairs["unit"]]
    alone = np.bincount(pairs["unit"], minlength=len(free))[pairs["unit"]] == 1
    # The largest hole of each segment: what a request could have had.
    hole = blocks[kind == INACTIVE].groupby("segment")["size"].max()
    segment = blocks["segment"].to_numpy()[pairs["block"]]
    pairs = pairs.assign(
        kept=free_bytes,
        alone=np.where(alone, free_bytes, 0),
        segment=segment,
        hole=hole.reindex(segment).fillna(0).to_numpy(),
    )
    by = pairs.groupby("stack").agg(
        pinned_bytes=("kept", "sum"),
        alone_bytes=("alone", "sum"),
        segments=("segment", "nunique"),
        largest_hole_bytes=("hole", "max"),
    )
    owners = held.drop_duplicates(["block"]).assign(
        size=lambda rows: blocks["size"].to_numpy(np.int64)[rows["block"]]
    )
    sizes = owners.groupby("stack")["size"].agg(["size", "sum"])
    table = by.join(sizes).rename(columns={"size": "blocks", "sum": "bytes"}).reset_index()
    table = table.sort_values(
        ["pinned_bytes", "bytes", "stack"],
        ascending=[False, False, True],
        kind="stable",
        ignore_index=True,
    )
    names = ["blocks", "bytes", "pinned_bytes", "alone_bytes", "segments", "largest_hole_bytes"]
    codes = table["stack"].to_numpy(np.int64)
    return pd.DataFrame(
        {
            "code": codes,
            "location": stacks.locations(codes),
            **{name: table[name].astype(np.int64) for name in names},
        }
    )


def holders(state: State, stacks: Stacks) -> pd.DataFrame:
    """Blocks in use by the line of code that allocated them, most bytes first: `location blocks
    bytes`.
    """
    used = state.blocks[state.blocks["state"] != INACTIVE]
    rows = pd.DataFrame(
        {
            "location": stacks.locations(used["stack"].to_numpy(np.int64)),
            "size": used["size"].to_numpy(np.int64),
        }
    )
    table = (
        rows.groupby("location", sort=False)["size"]
        .agg(["size", "sum"])
        .rename(columns={"size": "blocks", "sum": "bytes"})
    )
    return table.sort_values("bytes", ascending=False, kind="stable").reset_index()


def by_stack(replay: Replay, stacks: Stacks) -> pd.DataFrame:
    """Blocks in use at the snapshot by the stack that allocated them: `device location stack blocks
    bytes`.
    """
    used = replay.end().blocks
    used = used[used["state"] != INACTIVE]
    codes = used["stack"].to_numpy(np.int64)
    rows = pd.DataFrame(
        {
            "device": replay.device,
            "location": np.asarray(stacks.locations(codes), object),
            "stack": np.asarray(stacks.texts(codes), object),
            "size": used["size"].to_numpy(np.int64),
        }
    )
    # Of deep stacks the text has no more than the innermost frames, which several may share.
    return (
        rows.groupby(["device", "stack"], sort=False)
        .agg(location=("location", "first"), blocks=("size", "size"), bytes=("size", "sum"))
        .reset_index()
    )


def segments(replays: Sequence[Replay], stacks: Stacks) -> pd.DataFrame:
    """One row per segment of the snapshot."""
    parts = []
    for replay in replays:
        state = replay.end()
        blocks = state.blocks
        kind, owner, size = (
            blocks[name].to_numpy(np.int64) for name in ("state", "segment", "size")
        )
        count = len(state.segments)

        def total(
            mask: npt.NDArray[np.bool_],
            owner: npt.NDArray[np.int64] = owner,
            size: npt.NDArray[np.int64] = size,
            count: int = count,
        ) -> npt.NDArray[np.int64]:
            return np.bincount(owner[mask], size[mask], count).astype(np.int64)

        largest = np.zeros(count, np.int64)
        np.maximum.at(largest, owner[kind == INACTIVE], size[kind == INACTIVE])
        parts.append(
            pd.DataFrame(
                {
                    "device": np.full(count, replay.device, np.int64),
                    "address": state.segments["address"],
                    "stream": state.segments["stream"],
                    "pool": _pools(state.segments),
                    "kind": np.array(["", "small", "large"], object)[
                        state.segments["large"].to_numpy() + 1
                    ],
                    "expandable": state.segments["expandable"] == 1,
                    "size_bytes": state.segments["size"],
                    "allocated_bytes": total(kind == ALLOCATED),
                    "pending_bytes": total(kind == PENDING),
                    "inactive_bytes": total(kind == INACTIVE),
                    "stranded_bytes": (
                        np.bincount(owner, stranded_by_block(state), count).astype(np.int64)
                    ),
                    "largest_free_bytes": largest,
                    "blocks": np.bincount(owner, minlength=count).astype(np.int64),
                    "location": stacks.locations(state.segments["stack"].to_numpy(np.int64)),
                }
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def blocks(state: State, device: int, stacks: Stacks, categories: Sequence[str]) -> pd.DataFrame:
    """One row per block of a device at a moment, free ones too."""
    rows = state.blocks
    codes = rows["stack"].to_numpy(np.int64)
    names = np.array([*categories, ""], object)
    return pd.DataFrame(
        {
            "device": np.full(len(rows), device, np.int64),
            "segment": state.segments["address"].to_numpy(np.int64)[rows["segment"]],
            "address": rows["address"].to_numpy(np.int64),
            "size_bytes": rows["size"].to_numpy(np.int64),
            "requested_bytes": rows["requested"].to_numpy(np.int64),
            "state": text_column(_STATE, rows["state"].to_numpy(np.int64)),
            "stranded_bytes": stranded_by_block(state),
            "stream": state.segments["stream"].to_numpy(np.int64)[rows["segment"]],
            "pool": _pools(state.segments).take(rows["segment"].to_numpy()),
            "category": text_column(names, rows["category"].to_numpy(np.int64)),
            "location": stacks.locations(codes),
            "stack": stacks.texts(codes),
        }
    )


def _pools(rows: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """`default`, or the two numbers of a private pool, such as that of a CUDA graph."""
    both = rows[["pool", "pool_b"]].drop_duplicates()
    texts = {
        (a, b): "default" if a <= 0 and b <= 0 else f"{a}, {b}"
        for a, b in both.to_numpy(np.int64).tolist()
    }
    steps: pd.api.extensions.ExtensionArray = pd.Series(
        [texts[a, b] for a, b in rows[["pool", "pool_b"]].to_numpy(np.int64).tolist()], dtype=object
    ).array
    return steps


def timeline(replays: Sequence[Replay], stacks: Stacks) -> pd.DataFrame:
    """One row an entry of the history, with what the allocator held after it."""
    origin = start_us(replays)
    parts = []
    for replay in replays:
        entries, levels = replay.entries, replay.levels()
        time = entries["time_us"]
        parts.append(
            pd.DataFrame(
                {
                    "device": entries["device"],
                    "entry": np.arange(replay.count),
                    "time_ms": np.where(time >= 0, (time - origin) / 1e3, np.nan),
                    "action": text_column(_ACTION, entries["action"]),
                    "address": pd.array(entries["address"], "Int64"),
                    "size_bytes": entries["size"],
                    "stream": entries["stream"],
                    "reserved_bytes": levels["reserved"],
                    "allocated_bytes": levels["allocated"],
                    "active_bytes": levels["active"],
                    "location": stacks.locations(entries["stack"]),
                }
            )
        )
        parts[-1].loc[entries["address"] == UNKNOWN, "address"] = pd.NA
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def start_us(replays: Sequence[Replay]) -> int:
    """The first time of all histories, us since 1970; 0 if none is stated."""
    times = [replay.entries["time_us"] for replay in replays]
    recorded = [time[time >= 0] for time in times]
    return min((int(time.min()) for time in recorded if len(time)), default=0)


_OF_HISTORY = ("peak_allocated_bytes", "peak_reserved_bytes", "before_bytes", "ooms")


def summary(replays: Sequence[Replay]) -> pd.DataFrame:
    """One row a device: the figures at the snapshot, and the peaks of its history; NA where that
    has no entry of the device.
    """
    origin, rows = start_us(replays), []
    for replay in replays:
        levels, before = replay.levels(), replay.before()
        row: dict[str, float | int | None] = {"device": replay.device, **measures(replay.end())}
        row["entries"] = replay.count
        row["peak_allocated_bytes"] = row["peak_reserved_bytes"] = None
        time = UNKNOWN
        if replay.count:
            peak = int(np.argmax(levels["allocated"]))
            if before["allocated"] > levels["allocated"][peak]:
                # Most was in use when the history begins, until its first entry.
                peak = 0
            row["peak_allocated_bytes"] = max(before["allocated"], int(levels["allocated"][peak]))
            end = int(replay.end().segments["size"].sum())
            row["peak_reserved_bytes"] = max(before["reserved"], int(levels["reserved"].max()), end)
            time = int(replay.entries["time_us"][peak])
        row["peak_ms"] = (time - origin) / 1e3 if time >= 0 else np.nan
        row["before_bytes"] = before["reserved"] if replay.count else None
        row["ooms"] = int((replay.entries["action"] == OOM).sum()) if replay.count else None
        rows.append(row)
    return pd.DataFrame(rows).astype(dict.fromkeys(_OF_HISTORY, "Int64"))


def notes_on(snapshot: Snapshot, replays: Sequence[Replay]) -> list[Note]:
    """The gaps in the history."""
    result = []
    # Of an allocator that held nothing, a history would be empty, too.
    if replays and (not snapshot.traced or not any(replay.count for replay in replays)):
        result.append(notes.no_allocation_history(snapshot.backend.module))
    for replay in replays:
        before = replay.before()["reserved"] if replay.count else 0
        if before:
            result.append(notes.allocation_history_starts_late(replay.name, before))
    return result
