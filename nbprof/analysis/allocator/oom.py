"""Why did PyTorch's allocator run out of memory? The figures at that moment, and an explanation in
words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.allocator.allocator import holders, measures, pinning, start_us
from nbprof.analysis.allocator.stacks import Stacks
from nbprof.analysis.allocator.state import SMALL, Replay, State
from nbprof.core.units import size_text
from nbprof.formats.torch_snapshot.snapshot import INACTIVE, OOM, Backend
from nbprof.schema import frames

MOST = 100
"""Out-of-memory errors that are explained, the last ones of a device: each takes a replay of the
history.
"""
OTHER_POOL, FRAGMENTED, LIMITED, FULL = "other stream or pool", "fragmentation", "limit", "full"
_SEGMENT, _LEAST_OWN, _STEP = 20 << 20, 10 << 20, 2 << 20


def frame(replays: Sequence[Replay], stacks: Stacks, settings: Mapping[str, Any]) -> pd.DataFrame:
    """One row per out-of-memory error, oldest first."""
    origin = start_us(replays)
    rows = []
    for replay in replays:
        for index in np.flatnonzero(replay.entries["action"] == OOM)[-MOST:].tolist():
            rows.append(_moment(replay, index, stacks, settings, origin))
    table = pd.DataFrame(rows, columns=frames.names("allocator.oom"))
    return table.astype(frames.dtypes("allocator.oom")).sort_values(
        ["time_ms", "device", "entry"], kind="stable", ignore_index=True
    )


def _moment(
    replay: Replay, index: int, stacks: Stacks, settings: Mapping[str, Any], origin: int
) -> dict[str, Any]:
    entries = replay.entries
    asked, stream = max(int(entries["size"][index]), 0), int(entries["stream"][index])
    time_us = int(entries["time_us"][index])
    pool = (int(entries["pool"][index]), int(entries["pool_b"][index]))
    state = replay.state_after(index)
    figures = measures(state)
    usable, elsewhere = _holes(state, asked, stream, pool)
    room = int(entries["device_free"][index])
    expandable = settings.get("expandable_segments") is True
    expandable = expandable or bool((state.segments["expandable"] == 1).any())
    pinned = pinning(state, stacks)
    facts = {
        "device": replay.device,
        "entry": index,
        "time_ms": (time_us - origin) / 1e3 if time_us >= 0 else np.nan,
        "asked_bytes": asked,
        "device_free_bytes": room if room >= 0 else pd.NA,
        "reserved_bytes": figures["reserved_bytes"],
        "allocated_bytes": figures["allocated_bytes"],
        "inactive_bytes": figures["inactive_bytes"],
        "stranded_bytes": figures["stranded_bytes"],
        "stranded_segments": figures["stranded_segments"],
        "largest_usable_bytes": usable,
        "largest_free_bytes": figures["largest_free_bytes"],
        "fragmentation_percent": figures["fragmentation_percent"],
        "cause": _cause(asked, elsewhere, int(figures["stranded_bytes"]), max(room, 0)),
        "pinned_by": str(pinned["location"].iloc[0]) if len(pinned) else "",
        "location": str(stacks.locations(entries["stack"][index : index + 1])[0]),
    }
    facts["explanation"] = _explained(facts, pinned, elsewhere, replay.name)
    facts["remedy"] = _remedy(facts, holders(state, stacks), replay.backend, expandable=expandable)
    return facts


def _holes(state: State, asked: int, stream: int, pool: tuple[int, int]) -> tuple[int, int]:
    """The largest free block that the request may use, and the largest of all others: blocks stay
    with their stream and pool.
    """
    free = state.blocks[state.blocks["state"] == INACTIVE]
    segment = state.segments.iloc[free["segment"]]
    fits = (segment["stream"] == stream) & ((segment["large"] != 0) == (asked > SMALL))
    if pool[0] >= 0:
        fits &= (segment["pool"] == pool[0]) & (segment["pool_b"] == pool[1])
    size, mask = free["size"].to_numpy(np.int64), fits.to_numpy()
    return int(size[mask].max(initial=0)), int(size[~mask].max(initial=0))


def _segment(asked: int) -> int:
    """The segment that the allocator asks the device for, as `get_allocation_size` of PyTorch has
    it.
    """
    if asked <= SMALL:
        return _STEP
    if asked < _LEAST_OWN:
        return _SEGMENT
    return -(-asked // _STEP) * _STEP


def _cause(asked: int, elsewhere: int, stranded: int, room: int) -> str:
    if room >= _segment(asked):
        return LIMITED
    if elsewhere >= asked:
        return OTHER_POOL
    if stranded >= asked or stranded + room >= _segment(asked):
        return FRAGMENTED
    return FULL


def _explained(facts: dict[str, Any], pinned: pd.DataFrame, elsewhere: int, device: str) -> str:
    asked = size_text(facts["asked_bytes"])
    head = f"{asked} requested at {facts['location']} could not be allocated on {device}."
    room = facts["device_free_bytes"]
    sentences = [head]
    if pd.notna(room):
        sentences.append(f"The device had {size_text(int(room))} free.")
    sentences.append(
        f"PyTorch had reserved {size_text(facts['reserved_bytes'])}:"
        f" {size_text(facts['allocated_bytes'])} in use and {size_text(facts['inactive_bytes'])}"
        " free; the largest free block that the request could use was"
        f" {size_text(facts['largest_usable_bytes'])}."
    )
    if facts["cause"] == OTHER_POOL:
        sentences.append(
            f"A free block of {size_text(elsewhere)} belongs to another stream or pool, which do"
            " not share blocks."
        )
    if facts["stranded_bytes"] and len(pinned):
        span = _counted(facts["stranded_segments"], "segment")
        first = pinned.iloc[0]
        blocks = _counted(first["blocks"], "block")
        sentences.append(
            f"{size_text(facts['stranded_bytes'])} of the free memory is stranded in {span}:"
            f" blocks in use keep it from being released. {blocks} of"
            f" {size_text(int(first['bytes']))} in total, allocated at {first['location']},"
            f" {'strands' if first['blocks'] == 1 else 'strand'}"
            f" {size_text(int(first['pinned_bytes']))} of it."
        )
    return " ".join(sentences)


def _counted(count: int, noun: str) -> str:
    return f"one {noun}" if count == 1 else f"{count:,} {noun}s"


def _remedy(
    facts: dict[str, Any], held: pd.DataFrame, backend: Backend, *, expandable: bool
) -> str:
    if facts["cause"] == OTHER_POOL:
        return (
            "Allocate and free on the stream that uses the memory, or call"
            f" {backend.module}.empty_cache() before the other stream or graph allocates."
        )
    if facts["cause"] == LIMITED:
        return (
            "The device had enough free memory, so a limit was hit: check"
            f" {backend.module}.set_per_process_memory_fraction, and whether another process"
            " briefly used the memory."
        )
    if facts["cause"] == FRAGMENTED:
        early = (
            f"Allocate long-lived tensors ({facts['pinned_by']}) before temporary ones, or keep"
            " them on the host."
        )
        if expandable:
            return (
                "Enough memory is free, but fragmented, and expandable_segments is already on."
                f" {early}"
            )
        return (
            "Enough memory is free, but fragmented. Set"
            f" {backend.settings}=expandable_segments:True before the program starts (or"
            f" max_split_size_mb, to avoid splitting large blocks). {early}"
        )
    lacking = facts["asked_bytes"] - facts["stranded_bytes"]
    if pd.notna(facts["device_free_bytes"]):
        lacking -= int(facts["device_free_bytes"])
    largest = ""
    if len(held):
        location, size = held["location"].iloc[0], size_text(int(held["bytes"].iloc[0]))
        largest = f" The largest user is {location}: {size}."
    return (
        f"The memory is genuinely in use: even without fragmentation, {size_text(lacking)} more"
        " would be needed, and no allocator setting helps. Use a smaller batch, 16-bit types,"
        f" activation checkpointing or sharding.{largest}"
    )
