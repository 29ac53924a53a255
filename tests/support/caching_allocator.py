"""A model of PyTorch's caching allocator, to make snapshots whose fragmentation has really arisen.

It follows c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.x: sizes are rounded up to 512 bytes;
requests of up to 1 MiB come from small segments of 2 MiB, others from segments of 20 MiB or of
their own size in steps of 2 MiB; the smallest free block of the stream and pool that fits is taken
and split; a freed block is joined with free neighbours; when the device has no room, wholly free
segments are given back and the request is tried again. Memory that other streams use is freed when
they are done. With expandable segments, each stream and pool has one range of addresses of which
pages are mapped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_MIN, _SMALL, _SMALL_SEGMENT, _LARGE_SEGMENT, _MIN_LARGE, _ROUND_LARGE = (
    512,
    MIB,
    2 * MIB,
    20 * MIB,
    10 * MIB,
    2 * MIB,
)

Frames = list[dict[str, Any]]


class OutOfMemory(Exception):
    """The device has no room."""


@dataclass
class Block:
    """A part of a segment."""

    address: int
    size: int
    segment: Segment
    state: str = "inactive"
    requested: int = 0
    frames: Frames = field(default_factory=list)


@dataclass
class Segment:
    """Memory of the device that the allocator holds."""

    address: int
    size: int
    stream: int
    small: bool
    pool: tuple[int, int]
    expandable: bool
    frames: Frames
    blocks: list[Block] = field(default_factory=list)


class Allocator:
    """The allocator of one device.

    Parameters
    ----------
    capacity : int
        Bytes of the device.
    expandable : bool
    most : int, optional
        Entries that the history holds, the last ones.
    """

    def __init__(
        self, capacity: int = 1 * GIB, *, device: int = 0, expandable: bool = False, most: int = 0
    ) -> None:
        self.capacity, self.device, self.expandable, self.most = capacity, device, expandable, most
        self.segments: list[Segment] = []
        self.trace: list[dict[str, Any]] = []
        self.now_us = 1_700_000_000_000_000
        self._next = 0x7F_0000_0000 + (device << 40)

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def alloc(
        self, size: int, frames: Frames, stream: int = 0, pool: tuple[int, int] = (0, 0)
    ) -> Block:
        """A block of at least `size` bytes.

        Raises
        ------
        OutOfMemory
        """
        rounded = max(_MIN, -(-size // _MIN) * _MIN)
        small = rounded <= _SMALL
        block = self._fit(rounded, stream, pool, small) or self._grow(
            rounded, stream, pool, small, frames
        )
        if block is None:
            self._release(frames)
            block = self._grow(rounded, stream, pool, small, frames)
        if block is None:
            entry = self._entry("oom", 0, rounded, stream, frames, pool)
            entry["device_free"] = self.capacity - self.reserved
            del entry["addr"]
            raise OutOfMemory
        rest = block.size - rounded
        if rest >= _MIN if small or block.segment.expandable else rest > _SMALL:
            blocks = block.segment.blocks
            blocks.insert(
                blocks.index(block) + 1, Block(block.address + rounded, rest, block.segment)
            )
            block.size = rounded
        block.state, block.requested, block.frames = "active_allocated", size, frames
        self._entry("alloc", block.address, size, stream, frames, pool)
        return block

    def free(self, block: Block, frames: Frames | None = None, *, pending: bool = False) -> None:
        """Gives a block back; with `pending` another stream uses it still."""
        self._entry(
            "free_requested",
            block.address,
            block.requested,
            block.segment.stream,
            frames or [],
            block.segment.pool,
        )
        block.state = "active_pending_free"
        if not pending:
            self.done(block, frames)

    def done(self, block: Block, frames: Frames | None = None) -> None:
        """No stream uses the block any more."""
        segment = block.segment
        self._entry(
            "free_completed",
            block.address,
            block.requested,
            segment.stream,
            frames or [],
            segment.pool,
        )
        block.state, block.requested, block.frames = "inactive", 0, []
        at = segment.blocks.index(block)
        for other in (at + 1, at - 1):
            if 0 <= other < len(segment.blocks) and segment.blocks[other].state == "inactive":
                low, high = min(at, other), max(at, other)
                segment.blocks[low].size += segment.blocks.pop(high).size
                at = low

    def empty_cache(self) -> None:
        """Gives the device back what is wholly free."""
        self._release([])

    def _fit(self, size: int, stream: int, pool: tuple[int, int], small: bool) -> Block | None:
        free = [
            block
            for segment in self.segments
            if (segment.stream, segment.pool, segment.small) == (stream, pool, small)
            for block in segment.blocks
            if block.state == "inactive" and block.size >= size
        ]
        return min(free, key=lambda block: (block.size, block.address), default=None)

    def _grow(
        self, size: int, stream: int, pool: tuple[int, int], small: bool, frames: Frames
    ) -> Block | None:
        page = _SMALL_SEGMENT if small else _LARGE_SEGMENT
        if self.expandable:
            mine = [
                s for s in self.segments if (s.stream, s.pool, s.small) == (stream, pool, small)
            ]
            last = max(mine, key=lambda s: s.address, default=None)
            tail = last.blocks[-1] if last and last.blocks[-1].state == "inactive" else None
            need = -(-(size - (tail.size if tail else 0)) // page) * page
            if self.reserved + need > self.capacity:
                return None
            if last is None:
                last = Segment(self._next, 0, stream, small, pool, True, frames)
                self._next += 1 << 36
                self.segments.append(last)
            end = last.address + last.size
            self._entry("segment_map", end, need, stream, frames, pool)
            last.size += need
            if tail is None:
                last.blocks.append(tail := Block(end, 0, last))
            tail.size += need
            return tail
        total = (
            page if size <= _SMALL or size < _MIN_LARGE else -(-size // _ROUND_LARGE) * _ROUND_LARGE
        )
        if self.reserved + total > self.capacity:
            return None
        segment = Segment(self._next, total, stream, small, pool, False, frames)
        # cudaMalloc's ranges often lie side by side.
        self._next += total
        segment.blocks.append(Block(segment.address, total, segment))
        self.segments.append(segment)
        self._entry("segment_alloc", segment.address, total, stream, frames, pool)
        return segment.blocks[0]

    def _release(self, frames: Frames) -> None:
        for segment in self.segments[:]:
            if segment.expandable:
                for block in [b for b in segment.blocks if b.state == "inactive"]:
                    self._unmap(block, frames)
            elif all(block.state == "inactive" for block in segment.blocks):
                self.segments.remove(segment)
                self._entry(
                    "segment_free",
                    segment.address,
                    segment.size,
                    segment.stream,
                    frames,
                    segment.pool,
                )

    def _unmap(self, block: Block, frames: Frames) -> None:
        """Gives back the pages that a free block covers; a segment is what is mapped without a
        gap.
        """
        segment = block.segment
        page = _SMALL_SEGMENT if segment.small else _LARGE_SEGMENT
        base = segment.address % page
        low = -(-(block.address - base) // page) * page + base
        high = (block.address + block.size - base) // page * page + base
        if low >= high:
            return
        self._entry("segment_unmap", low, high - low, segment.stream, frames, segment.pool)
        at = segment.blocks.index(block)
        before, after, end = (
            segment.blocks[:at],
            segment.blocks[at + 1 :],
            block.address + block.size,
        )
        if low > block.address:
            before.append(Block(block.address, low - block.address, segment))
        self.segments.remove(segment)
        left = Segment(
            segment.address,
            low - segment.address,
            segment.stream,
            segment.small,
            segment.pool,
            True,
            segment.frames,
            before,
        )
        right = Segment(
            high,
            segment.address + segment.size - high,
            segment.stream,
            segment.small,
            segment.pool,
            True,
            segment.frames,
        )
        right.blocks = [Block(high, end - high, right)] * (end > high) + after
        for part in (left, right):
            for each in part.blocks:
                each.segment = part
            if part.size:
                self.segments.append(part)

    def _entry(
        self, action: str, addr: int, size: int, stream: int, frames: Frames, pool: tuple[int, int]
    ) -> dict[str, Any]:
        self.now_us += 10
        out = {
            "action": action,
            "addr": addr,
            "size": size,
            "stream": stream,
            "pool_id": pool,
            "time_us": self.now_us,
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": list(frames),
        }
        self.trace.append(out)
        if self.most and len(self.trace) > self.most:
            del self.trace[0]
        return out

    def described(self) -> list[dict[str, Any]]:
        """The segments as a snapshot has them, in the order of their addresses."""
        return [
            self._segment(segment) for segment in sorted(self.segments, key=lambda s: s.address)
        ]

    def _segment(self, segment: Segment) -> dict[str, Any]:
        blocks = [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": block.state,
                "frames": list(block.frames),
            }
            for block in segment.blocks
        ]
        return {
            "device": self.device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
            "requested_size": sum(b["requested_size"] for b in blocks if b["state"] != "inactive"),
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": segment.pool,
            "is_expandable": segment.expandable,
            "frames": list(segment.frames),
            "blocks": blocks,
        }


def frame(name: str, filename: str, line: int) -> dict[str, Any]:
    """One frame of a stack, innermost first in a list of them."""
    return {"name": name, "filename": filename, "line": line}


_TORCH = frame("linear", "/opt/site-packages/torch/nn/functional.py", 125)
ACTIVATION = [
    _TORCH,
    frame("forward", "/srv/ann/train.py", 31),
    frame("main", "/srv/ann/train.py", 90),
]
WEIGHT = [
    frame("__init__", "/opt/site-packages/torch/nn/modules/linear.py", 100),
    frame("build", "/srv/ann/model.py", 12),
]
LOGGED = [frame("append", "/srv/ann/metrics.py", 7), frame("main", "/srv/ann/train.py", 95)]
BIG = [
    frame("matmul", "/opt/site-packages/torch/functional.py", 20),
    frame("attention", "/srv/ann/model.py", 48),
]


def snapshot(*allocators: Allocator, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` would give for these devices."""
    return {
        "segments": [segment for allocator in allocators for segment in allocator.described()],
        "device_traces": [allocator.trace for allocator in allocators],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": any(a.expandable for a in allocators),
            **(settings or {}),
        },
        "external_annotations": [],
    }


def fragmented(
    *, capacity: int = 512 * MIB, most: int = 0, expandable: bool = False, device: int = 0
) -> Allocator:
    """A device whose segments are half free and all pinned: each step keeps a tensor that was made
    between temporary ones, and at last something larger than any hole is asked for, in vain."""
    out = Allocator(capacity, most=most, expandable=expandable, device=device)
    for _ in range(4):
        out.alloc(6 * MIB - 700, WEIGHT)
    temporary: list[Block] = []
    try:
        while True:
            temporary.append(out.alloc(9 * MIB, ACTIVATION))
            temporary.append(out.alloc(9 * MIB - 300, ACTIVATION))
            out.alloc(3 * MIB // 2, LOGGED)
            out.alloc(300, LOGGED)
    except OutOfMemory:
        pass
    for block in temporary:
        out.free(block, ACTIVATION)
    try:
        out.alloc(64 * MIB, BIG)
    except OutOfMemory:
        return out
    raise AssertionError("the memory was enough")
