"""Allocations: over time, at the peak, by op."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, size, text

_ACTIVITY = [
    text("region_type", "Region", "What the block is for: output, temp, persist or dynamic."),
    text("data_type", "Type", "Data type of the tensor."),
    text("shape", "Shape", "Shape of the tensor."),
]
SCHEMA: dict[str, list[Col]] = {
    "memory.summary": [
        text("memory_id", "Memory", "Name of the allocator."),
        count("allocations", "Allocations", "Allocations in the profile."),
        count("deallocations", "Deallocations", "Deallocations in the profile."),
        size("capacity_bytes", "Capacity", "Bytes in use and free at the peak.", "Int64"),
        size("lifetime_peak_bytes", "Peak, whole run", "Largest use since the program began.", "Int64"),
        size("peak_bytes", "Peak", "Largest use in the profile.", "Int64"),
        ms("peak_time_ms", "Peak at", "When that was."),
        size("peak_stack_bytes", "Stack", "Reserved (stack) bytes at the peak.", "Int64"),
        size("peak_heap_bytes", "Heap", "Heap bytes at the peak.", "Int64"),
        size("peak_free_bytes", "Free", "Free bytes at the peak.", "Int64"),
        Col(
            "peak_fragmentation",
            "float64",
            "fraction",
            "Fragmentation",
            "Part of the free bytes outside the largest free block, at the peak.",
            "number",
            4,
        ),
    ],
    "memory.timeline": [
        text("memory_id", "Memory", "Name of the allocator."),
        ms("time_ms", "Time ms", "When, after the start of the profile.", 3),
        text("event", "Event", "allocation or deallocation."),
        size("requested_bytes", "Requested", "Bytes asked for.", "Int64"),
        size("allocated_bytes", "Allocated", "Size of the block; negative when it is freed.", "Int64"),
        text("op", "Op", "Op that asked for the block.", "code"),
        count("step", "Step", "Number of the step, as in the frame of steps; missing for events of no listed step.", "Int64"),
        *_ACTIVITY,
        size("stack_bytes", "Stack", "Reserved (stack) bytes after the event.", "Int64"),
        size("heap_bytes", "Heap", "Heap bytes in use after the event.", "Int64"),
        size("free_bytes", "Free", "Free bytes after the event.", "Int64"),
        Col(
            "fragmentation",
            "float64",
            "fraction",
            "Fragmentation",
            "Part of the free bytes outside the largest free block.",
            "number",
            4,
        ),
        size("in_use_bytes", "In use", "Stack and heap together.", "Int64"),
    ],
    "memory.ops": [
        text("memory_id", "Memory", "Name of the allocator."),
        text("op", "Op", "Innermost op around the events; empty for those in no op.", "code"),
        count("allocations", "Allocations", "How often it took memory."),
        size("allocated_bytes", "Allocated", "What it took in all."),
        count("deallocations", "Deallocations", "How often it gave memory back."),
        size("freed_bytes", "Freed", "What it gave back in all, whoever had taken it."),
        size("increase_bytes", "Self increase", "Allocated less freed."),
    ],
    "memory.peak": [
        text("memory_id", "Memory", "Name of the allocator."),
        text("op", "Op", "Op that asked for the block.", "code"),
        size("allocated_bytes", "Allocated", "Size of the block."),
        size("requested_bytes", "Requested", "Bytes asked for."),
        count("occurrences", "Count", "Blocks alike in every column."),
        *_ACTIVITY,
    ],
}
