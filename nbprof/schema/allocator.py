"""PyTorch's caching allocator."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, size, text

_DEVICE = count("device", "GPU", "Device number.")
_LOCATION = text(
    "location",
    "Allocated at",
    "Innermost frame of your code in the stack; otherwise of other Python code, or of C++.",
    "code",
)
_STREAM = count("stream", "Stream", "CUDA stream that the memory belongs to.")
_POOL = text("pool", "Pool", "default, or the id of a private pool, such as a CUDA graph's.")

SCHEMA: dict[str, list[Col]] = {
    "allocator.summary": [
        _DEVICE,
        size(
            "reserved_bytes",
            "Reserved",
            "Device memory that the allocator has reserved: all segments.",
        ),
        size("allocated_bytes", "Allocated", "Blocks in use."),
        size("pending_bytes", "Pending", "Blocks freed while another stream still used them."),
        size("inactive_bytes", "Free", "Free blocks in the segments."),
        size("rounding_bytes", "Rounding", "Size of the blocks in use minus the bytes requested."),
        size(
            "releasable_bytes",
            "Releasable",
            "Free memory that empty_cache() would return to the device.",
        ),
        size(
            "stranded_bytes",
            "Stranded",
            "Free memory in segments with blocks in use: it cannot be released. PyTorch: inactive"
            " split.",
        ),
        percent("fragmentation_percent", "Fragmentation", "Stranded divided by reserved."),
        size("largest_free_bytes", "Largest free", "Largest free block."),
        percent(
            "outside_largest_percent",
            "Outside largest",
            "Share of free memory that is not in the largest free block.",
        ),
        count(
            "segments", "Segments", "Segments that the allocator got from the device (cudaMalloc)."
        ),
        count("stranded_segments", "Stranded segments", "Segments with stranded free memory."),
        size(
            "private_pool_bytes",
            "Private pools",
            "Segments of private pools, such as a CUDA graph's.",
        ),
        count("entries", "Entries", "Entries in the memory history."),
        size(
            "peak_allocated_bytes",
            "Peak allocated",
            "Peak of the requested bytes in use, over the history and before its first entry.",
            "Int64",
        ),
        size(
            "peak_reserved_bytes",
            "Peak reserved",
            "Peak of reserved memory, over the history and before its first entry.",
            "Int64",
        ),
        ms("peak_ms", "Peak at", "Time of the peak of allocated memory.", 3),
        size(
            "before_bytes",
            "Before",
            "Memory reserved before the first entry of the history.",
            "Int64",
        ),
        count("ooms", "Out of memory", "Number of out-of-memory errors in the history.", "Int64"),
    ],
    "allocator.roles": [
        _DEVICE,
        text("role", "Role", "What the memory is used for; unknown where no stack proves it."),
        size("bytes", "Bytes", "Memory of this role at the snapshot."),
        percent("percent", "% reserved", "Share of the reserved memory."),
        count("blocks", "Blocks", "Blocks in use; missing for memory in no block in use.", "Int64"),
    ],
    "allocator.segments": [
        _DEVICE,
        count("address", "Address", "Start address."),
        _STREAM,
        _POOL,
        text(
            "kind", "Kind", "small (blocks up to 1 MiB) or large; empty if the file does not say."
        ),
        Col(
            "expandable",
            "bool",
            "",
            "Expandable",
            "Whether the segment can grow (expandable_segments).",
            "flag",
            None,
        ),
        size("size_bytes", "Size", "Size of the segment."),
        size("allocated_bytes", "Allocated", "Blocks in use."),
        size("pending_bytes", "Pending", "Blocks freed while another stream still used them."),
        size("inactive_bytes", "Free", "Free blocks."),
        size(
            "stranded_bytes",
            "Stranded",
            "Free memory that cannot be released: the segment has blocks in use.",
        ),
        size("largest_free_bytes", "Largest free", "Largest free block."),
        count("blocks", "Blocks", "Blocks, including free ones."),
        _LOCATION,
    ],
    "allocator.blocks": [
        _DEVICE,
        count("segment", "Segment", "Address of the segment."),
        count("address", "Address", "Start address."),
        size("size_bytes", "Size", "Size of the block."),
        size("requested_bytes", "Requested", "Bytes requested; 0 for a free block."),
        text("state", "State", "active_allocated, active_pending_free or inactive, as in PyTorch."),
        size(
            "stranded_bytes",
            "Stranded",
            "For a free block: bytes that cannot be returned to the device.",
        ),
        _STREAM,
        _POOL,
        text(
            "category",
            "Category",
            "Category of the tensor, in snapshots made from a profile; otherwise empty.",
        ),
        _LOCATION,
        text(
            "stack",
            "Stack",
            "Stack frames of the allocation, innermost first, one per line.",
            "code",
        ),
    ],
    "allocator.timeline": [
        _DEVICE,
        count("entry", "Entry", "Index in the device's history."),
        ms(
            "time_ms",
            "Time",
            "Since the first entry of any device; missing if the file has no times.",
            3,
        ),
        text(
            "action",
            "Action",
            "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map,"
            " segment_unmap, oom, snapshot.",
        ),
        count("address", "Address", "Address of the block or segment.", "Int64"),
        size("size_bytes", "Size", "Bytes requested or freed, or size of the segment."),
        _STREAM,
        size("reserved_bytes", "Reserved", "Reserved memory after the entry."),
        size(
            "allocated_bytes",
            "Allocated",
            "Requested bytes in use after the entry, without rounding.",
        ),
        size(
            "active_bytes",
            "Active",
            "The same plus blocks whose free was requested but not completed.",
        ),
        _LOCATION,
    ],
    "allocator.stranded": [
        _DEVICE,
        _LOCATION,
        count("blocks", "Blocks", "Blocks in use that keep free memory from being released."),
        size("bytes", "Block bytes", "Total size of these blocks."),
        size(
            "pinned_bytes",
            "Strands",
            "Free memory stranded in the same segments (or the same pages of expandable ones);"
            " other blocks may strand it too.",
        ),
        size("alone_bytes", "Alone", "Part of it that freeing these blocks alone would release."),
        count("segments", "Segments", "Segments with these blocks."),
        size("largest_hole_bytes", "Largest hole", "Largest free block in these segments."),
        text(
            "stack",
            "Stack",
            "Stack frames of the allocation, innermost first, one per line.",
            "code",
        ),
    ],
    "allocator.holders": [
        _DEVICE,
        _LOCATION,
        count("blocks", "Blocks", "Blocks in use that were allocated here."),
        size("bytes", "Bytes", "Total size of these blocks."),
    ],
    "allocator.oom": [
        _DEVICE,
        count("entry", "Entry", "Index in the device's history."),
        ms("time_ms", "Time", "Since the first entry of any device.", 3),
        size("asked_bytes", "Requested", "Bytes requested, rounded up by the allocator."),
        size(
            "device_free_bytes",
            "Device free",
            "Free memory on the device; missing if the file does not say.",
            "Int64",
        ),
        size("reserved_bytes", "Reserved", "Memory reserved by the allocator."),
        size("allocated_bytes", "Allocated", "Blocks in use."),
        size("inactive_bytes", "Free", "Free blocks in the segments."),
        size(
            "largest_usable_bytes",
            "Largest usable",
            "Largest free block in the same stream and pool.",
        ),
        size("largest_free_bytes", "Largest free", "Largest free block in any stream and pool."),
        size(
            "stranded_bytes",
            "Stranded",
            "Free memory that could not be released: its segments had blocks in use.",
        ),
        count("stranded_segments", "Stranded segments", "Segments with stranded memory."),
        percent("fragmentation_percent", "Fragmentation", "Stranded divided by reserved."),
        text(
            "cause",
            "Cause",
            "fragmentation: enough was free, but not contiguous; other stream or pool; limit: the"
            " device had memory left; full.",
        ),
        text(
            "pinned_by",
            "Pinned at",
            "Where the blocks that stranded the most memory were allocated.",
            "code",
        ),
        _LOCATION,
        text("explanation", "Explanation", "What happened, as text."),
        text("remedy", "Remedy", "What helps."),
    ],
}
