"""PyTorch's caching allocator."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, size, text

_DEVICE = count("device", "GPU", "Number of the device.")
_LOCATION = text(
    "location", "Allocated at", "Innermost line of your own code in the stack; of other Python, or of C++, where none is.", "code"
)
_STREAM = count("stream", "Stream", "CUDA stream that the memory belongs to.")
_POOL = text("pool", "Pool", "default, or the id of a private pool, such as that of a CUDA graph.")

SCHEMA: dict[str, list[Col]] = {
    "allocator.summary": [
        _DEVICE,
        size("reserved_bytes", "Reserved", "What the allocator holds of the device: all segments."),
        size("allocated_bytes", "Allocated", "Blocks in use."),
        size("pending_bytes", "Pending", "Blocks that were freed while another stream still used them."),
        size("inactive_bytes", "Free", "Free blocks in its segments."),
        size("rounding_bytes", "Rounding", "What blocks in use are larger than what was asked for."),
        size("releasable_bytes", "Releasable", "Free memory that empty_cache would give back to the device."),
        size("stranded_bytes", "Stranded", "Free memory that blocks in use keep from being given back; PyTorch calls it inactive split."),
        percent("fragmentation_percent", "Fragmentation", "Stranded by reserved."),
        size("largest_free_bytes", "Largest free", "Largest free block."),
        percent("outside_largest_percent", "Outside the largest", "Free memory that is not in the largest free block."),
        count("segments", "Segments", "Pieces of memory that the allocator has from the device."),
        count("stranded_segments", "Stranded segments", "Segments in which free memory is stranded."),
        size("private_pool_bytes", "Private pools", "Segments of private pools, such as those of CUDA graphs."),
        count("entries", "Entries", "Entries of the history."),
        size("peak_allocated_bytes", "Peak allocated", "Most that was asked for and in use at a time, in the history.", "Int64"),
        size("peak_reserved_bytes", "Peak reserved", "Most that the allocator held at a time, in the history.", "Int64"),
        ms("peak_ms", "Peak at", "When the peak of what was allocated was reached.", 3),
        size("before_bytes", "Before", "What the allocator held before the first entry of the history.", "Int64"),
        count("ooms", "Out of memory", "How often the memory ran out, in the history.", "Int64"),
    ],
    "allocator.segments": [
        _DEVICE,
        count("address", "Address", "Where it begins."),
        _STREAM,
        _POOL,
        text("kind", "Kind", "small: of blocks up to 1 MiB; large; empty where the file does not say."),
        Col("expandable", "bool", "", "Expandable", "Whether it can grow: expandable_segments.", "flag", None),
        size("size_bytes", "Size", "All of it."),
        size("allocated_bytes", "Allocated", "Blocks in use."),
        size("pending_bytes", "Pending", "Blocks that were freed while another stream still used them."),
        size("inactive_bytes", "Free", "Free blocks."),
        size("stranded_bytes", "Stranded", "Free memory that blocks in use keep from being given back."),
        size("largest_free_bytes", "Largest free", "Largest free block."),
        count("blocks", "Blocks", "Blocks, free ones too."),
        _LOCATION,
    ],
    "allocator.blocks": [
        _DEVICE,
        count("segment", "Segment", "Address of its segment."),
        count("address", "Address", "Where it begins."),
        size("size_bytes", "Size", "Memory that it takes."),
        size("requested_bytes", "Requested", "What was asked for; 0 of a free block."),
        text("state", "State", "active_allocated, active_pending_free or inactive, as PyTorch writes it."),
        size("stranded_bytes", "Stranded", "Of a free block: what cannot be given back to the device."),
        _STREAM,
        _POOL,
        text("category", "Category", "What kind of tensor it is, in snapshots made of a profile; else empty."),
        _LOCATION,
        text("stack", "Stack", "Frames of the allocation, innermost first, a line each.", "code"),
    ],
    "allocator.timeline": [
        _DEVICE,
        count("entry", "Entry", "Place in the history of the device."),
        ms("time_ms", "Time", "After the first entry of all devices; missing where the file has no times.", 3),
        text(
            "action",
            "Action",
            "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, snapshot.",
        ),
        count("address", "Address", "Of the block or segment.", "Int64"),
        size("size_bytes", "Size", "Bytes asked for, freed, or of the segment."),
        _STREAM,
        size("reserved_bytes", "Reserved", "What the allocator held of the device after it."),
        size("allocated_bytes", "Allocated", "What was asked for and in use after it, without rounding."),
        size("active_bytes", "Active", "The same with blocks whose free was requested and not completed."),
        _LOCATION,
    ],
    "allocator.stranded": [
        _DEVICE,
        _LOCATION,
        count("blocks", "Blocks", "Blocks in use that keep free memory from being given back."),
        size("bytes", "Their size", "Memory that these blocks take."),
        size(
            "pinned_bytes",
            "Keep free memory",
            "Free memory in the same segments (or pages of expandable ones); other blocks may keep it too.",
        ),
        size("alone_bytes", "Alone", "What of it would be given back if only these blocks were gone."),
        count("segments", "Segments", "Segments that it is in."),
        size("largest_hole_bytes", "Largest hole", "Largest free block of these segments."),
        text("stack", "Stack", "Frames of the allocation, innermost first, a line each.", "code"),
    ],
    "allocator.holders": [
        _DEVICE,
        _LOCATION,
        count("blocks", "Blocks", "Blocks in use that were allocated there."),
        size("bytes", "Bytes", "Memory that they take."),
    ],
    "allocator.oom": [
        _DEVICE,
        count("entry", "Entry", "Place in the history of the device."),
        ms("time_ms", "Time", "After the first entry of all devices.", 3),
        size("asked_bytes", "Asked for", "What was asked for, rounded up by the allocator."),
        size("device_free_bytes", "Device free", "What the device had free; missing where the file does not say.", "Int64"),
        size("reserved_bytes", "Reserved", "What the allocator held."),
        size("allocated_bytes", "Allocated", "Blocks in use."),
        size("inactive_bytes", "Free", "Free blocks in its segments."),
        size("largest_usable_bytes", "Largest usable", "Largest free block of the same stream and pool."),
        size("largest_free_bytes", "Largest free", "Largest free block of any."),
        size("stranded_bytes", "Stranded", "Free memory that blocks in use kept from being given back."),
        count("stranded_segments", "Stranded segments", "Segments that it was in."),
        percent("fragmentation_percent", "Fragmentation", "Stranded by reserved."),
        text(
            "cause", "Cause", "fragmentation: it would have sufficed in one piece; other stream or pool; limit: the device had room; full."
        ),
        text("pinned_by", "Pinned at", "Where the blocks were allocated that kept the most.", "code"),
        _LOCATION,
        text("explanation", "Explanation", "What happened, in sentences."),
        text("remedy", "Remedy", "What to do."),
    ],
}
