"""The schema of the frames of PyTorch's allocator, as nbprof/frames.py has those of the other views."""

from __future__ import annotations

import pandas as pd

from nbprof.frames import Col


def _text(name: str, label: str, help: str, kind: str = "text") -> Col:
    return Col(name, "object", "", label, help, kind, None)


def _count(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    return Col(name, dtype, "", label, help, "number", 0)


def _bytes(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    return Col(name, dtype, "bytes", label, help, "bytes", None)


def _percent(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "%", label, help, "percent", 1)


def _ms(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "ms", label, help, "number", 3)


_DEVICE = _count("device", "GPU", "Number of the device.")
_LOCATION = _text(
    "location", "Allocated at", "Innermost line of your own code in the stack; of other Python, or of C++, where none is.", "code"
)
_STREAM = _count("stream", "Stream", "CUDA stream that the memory belongs to.")
_POOL = _text("pool", "Pool", "default, or the id of a private pool, such as that of a CUDA graph.")

SCHEMA: dict[str, list[Col]] = {
    "summary": [
        _DEVICE,
        _bytes("reserved_bytes", "Reserved", "What the allocator holds of the device: all segments."),
        _bytes("allocated_bytes", "Allocated", "Blocks in use."),
        _bytes("pending_bytes", "Pending", "Blocks that were freed while another stream still used them."),
        _bytes("inactive_bytes", "Free", "Free blocks in its segments."),
        _bytes("rounding_bytes", "Rounding", "What blocks in use are larger than what was asked for."),
        _bytes("releasable_bytes", "Releasable", "Free memory that empty_cache would give back to the device."),
        _bytes("stranded_bytes", "Stranded", "Free memory that blocks in use keep from being given back; PyTorch calls it inactive split."),
        _percent("fragmentation_percent", "Fragmentation", "Stranded by reserved."),
        _bytes("largest_free_bytes", "Largest free", "Largest free block."),
        _percent("outside_largest_percent", "Outside the largest", "Free memory that is not in the largest free block."),
        _count("segments", "Segments", "Pieces of memory that the allocator has from the device."),
        _count("stranded_segments", "Stranded segments", "Segments in which free memory is stranded."),
        _bytes("private_pool_bytes", "Private pools", "Segments of private pools, such as those of CUDA graphs."),
        _count("entries", "Entries", "Entries of the history."),
        _bytes("peak_allocated_bytes", "Peak allocated", "Most that was asked for and in use at a time, in the history."),
        _bytes("peak_reserved_bytes", "Peak reserved", "Most that the allocator held at a time, in the history."),
        _ms("peak_ms", "Peak at", "When the peak of what was allocated was reached."),
        _bytes("before_bytes", "Before", "What the allocator held before the first entry of the history."),
        _count("ooms", "Out of memory", "How often the memory ran out."),
    ],
    "segments": [
        _DEVICE,
        _count("address", "Address", "Where it begins."),
        _STREAM,
        _POOL,
        _text("kind", "Kind", "small: of blocks up to 1 MiB; large; empty where the file does not say."),
        Col("expandable", "bool", "", "Expandable", "Whether it can grow: expandable_segments.", "flag", None),
        _bytes("size_bytes", "Size", "All of it."),
        _bytes("allocated_bytes", "Allocated", "Blocks in use."),
        _bytes("pending_bytes", "Pending", "Blocks that were freed while another stream still used them."),
        _bytes("inactive_bytes", "Free", "Free blocks."),
        _bytes("stranded_bytes", "Stranded", "Free memory that blocks in use keep from being given back."),
        _bytes("largest_free_bytes", "Largest free", "Largest free block."),
        _count("blocks", "Blocks", "Blocks, free ones too."),
        _LOCATION,
    ],
    "blocks": [
        _DEVICE,
        _count("segment", "Segment", "Address of its segment."),
        _count("address", "Address", "Where it begins."),
        _bytes("size_bytes", "Size", "Memory that it takes."),
        _bytes("requested_bytes", "Requested", "What was asked for; 0 of a free block."),
        _text("state", "State", "active_allocated, active_pending_free or inactive, as PyTorch writes it."),
        _bytes("stranded_bytes", "Stranded", "Of a free block: what cannot be given back to the device."),
        _STREAM,
        _POOL,
        _text("category", "Category", "What kind of tensor it is, in snapshots made of a profile; else empty."),
        _LOCATION,
        _text("stack", "Stack", "Frames of the allocation, innermost first, a line each.", "code"),
    ],
    "timeline": [
        _DEVICE,
        _count("entry", "Entry", "Place in the history of the device."),
        _ms("time_ms", "Time", "After the first entry of all devices; missing where the file has no times."),
        _text(
            "action",
            "Action",
            "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, snapshot.",
        ),
        _count("address", "Address", "Of the block or segment.", "Int64"),
        _bytes("size_bytes", "Size", "Bytes asked for, freed, or of the segment."),
        _STREAM,
        _bytes("reserved_bytes", "Reserved", "What the allocator held of the device after it."),
        _bytes("allocated_bytes", "Allocated", "What was asked for and in use after it, without rounding."),
        _bytes("active_bytes", "Active", "The same with blocks whose free was requested and not completed."),
        _LOCATION,
    ],
    "stranded": [
        _DEVICE,
        _LOCATION,
        _count("blocks", "Blocks", "Blocks in use that keep free memory from being given back."),
        _bytes("bytes", "Their size", "Memory that these blocks take."),
        _bytes(
            "pinned_bytes",
            "Keep free memory",
            "Free memory in the same segments (or pages of expandable ones); other blocks may keep it too.",
        ),
        _bytes("alone_bytes", "Alone", "What of it would be given back if only these blocks were gone."),
        _count("segments", "Segments", "Segments that it is in."),
        _bytes("largest_hole_bytes", "Largest hole", "Largest free block of these segments."),
        _text("stack", "Stack", "Frames of the allocation, innermost first, a line each.", "code"),
    ],
    "holders": [
        _DEVICE,
        _LOCATION,
        _count("blocks", "Blocks", "Blocks in use that were allocated there."),
        _bytes("bytes", "Bytes", "Memory that they take."),
    ],
    "oom": [
        _DEVICE,
        _count("entry", "Entry", "Place in the history of the device."),
        _ms("time_ms", "Time", "After the first entry of all devices."),
        _bytes("asked_bytes", "Asked for", "What was asked for, rounded up by the allocator."),
        _bytes("device_free_bytes", "Device free", "What the device had free; missing where the file does not say.", "Int64"),
        _bytes("reserved_bytes", "Reserved", "What the allocator held."),
        _bytes("allocated_bytes", "Allocated", "Blocks in use."),
        _bytes("inactive_bytes", "Free", "Free blocks in its segments."),
        _bytes("largest_usable_bytes", "Largest usable", "Largest free block of the same stream and pool."),
        _bytes("largest_free_bytes", "Largest free", "Largest free block of any."),
        _bytes("stranded_bytes", "Stranded", "Free memory that blocks in use kept from being given back."),
        _count("stranded_segments", "Stranded segments", "Segments that it was in."),
        _percent("fragmentation_percent", "Fragmentation", "Stranded by reserved."),
        _text(
            "cause", "Cause", "fragmentation: it would have sufficed in one piece; other stream or pool; limit: the device had room; full."
        ),
        _text("pinned_by", "Pinned at", "Where the blocks were allocated that kept the most.", "code"),
        _LOCATION,
        _text("explanation", "Explanation", "What happened, in sentences."),
        _text("remedy", "Remedy", "What to do."),
    ],
}
"""`p.allocator.summary`, `.segments`, `.blocks`, `.timeline`, `.stranded`, `.holders` and `.oom`."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column.

    Raises
    ------
    KeyError
        No such frame or column.
    """
    for col in SCHEMA[frame]:
        if col.name == name:
            return col
    raise KeyError(f"frame {frame!r} has no column {name!r}; it has {', '.join(col.name for col in SCHEMA[frame])}")


def empty(frame: str) -> pd.DataFrame:
    """A frame of these columns without rows."""
    return pd.DataFrame({col.name: pd.Series([], dtype=col.dtype) for col in SCHEMA[frame]})
