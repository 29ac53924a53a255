"""Allocations: over time, at the peak, by op; the peak that `nbprof.fits` predicts."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, size, text

_ACTIVITY = [
    text("region_type", "Region", "Use of the block: output, temp, persist or dynamic."),
    text("data_type", "Type", "Data type of the tensor."),
    text("shape", "Shape", "Shape of the tensor."),
]
_IN_FILES = "The part of it in mapped files and shared memory; at the peak."
SCHEMA: dict[str, list[Col]] = {
    "memory.summary": [
        text("memory_id", "Memory", "Name of the allocator."),
        count("allocations", "Allocations", "Allocations in the profile."),
        count("deallocations", "Deallocations", "Deallocations in the profile."),
        size("capacity_bytes", "Capacity", "Bytes in use and free at the peak.", "Int64"),
        size(
            "lifetime_peak_bytes",
            "Peak, whole run",
            "Peak memory use since the program started.",
            "Int64",
        ),
        size("peak_bytes", "Peak", "Peak memory use in the profile.", "Int64"),
        ms("peak_time_ms", "Peak at", "Time of that peak."),
        size("peak_stack_bytes", "Stack", "Reserved (stack) bytes at the peak.", "Int64"),
        size("peak_heap_bytes", "Heap", "Heap bytes at the peak.", "Int64"),
        size("peak_free_bytes", "Free", "Free bytes at the peak.", "Int64"),
        Col(
            "peak_fragmentation",
            "float64",
            "fraction",
            "Fragmentation",
            "Share of free bytes outside the largest free block, at the peak.",
            "number",
            4,
        ),
    ],
    "memory.timeline": [
        text("memory_id", "Memory", "Name of the allocator."),
        ms("time_ms", "Time ms", "Time from the start of the profile.", 3),
        text("event", "Event", "allocation or deallocation."),
        size("requested_bytes", "Requested", "Bytes requested.", "Int64"),
        size(
            "allocated_bytes", "Allocated", "Size of the block; negative when it is freed.", "Int64"
        ),
        text("op", "Op", "Op that allocated the block.", "code"),
        count(
            "step",
            "Step",
            "Step number, as in p.steps.frame; missing for events outside its steps.",
            "Int64",
        ),
        *_ACTIVITY,
        size("stack_bytes", "Stack", "Reserved (stack) bytes after the event.", "Int64"),
        size("heap_bytes", "Heap", "Heap bytes in use after the event.", "Int64"),
        size("free_bytes", "Free", "Free bytes after the event.", "Int64"),
        Col(
            "fragmentation",
            "float64",
            "fraction",
            "Fragmentation",
            "Share of free bytes outside the largest free block.",
            "number",
            4,
        ),
        size("in_use_bytes", "In use", "Stack plus heap.", "Int64"),
    ],
    "memory.ops": [
        text("memory_id", "Memory", "Name of the allocator."),
        text("op", "Op", "Innermost op around the events; empty for events outside ops.", "code"),
        count("allocations", "Allocations", "Number of allocations."),
        size("allocated_bytes", "Allocated", "Total bytes allocated."),
        count("deallocations", "Deallocations", "Number of deallocations."),
        size("freed_bytes", "Freed", "Total bytes freed, whichever op had allocated them."),
        size("increase_bytes", "Self increase", "Allocated minus freed."),
    ],
    "memory.roles": [
        text(
            "memory_id",
            "Memory",
            "Name of the allocator; of a compiled program where no role of one is known.",
        ),
        text("role", "Role", "What the memory is used for; unknown where nothing proves it."),
        size("bytes", "In use", "Memory of this role at the peak."),
        percent("percent", "% in use", "Share of the bytes in use; none of memory not in use."),
        count(
            "blocks",
            "Blocks",
            "Blocks of the allocator; missing where some were allocated before the recording, and"
            " of compiled programs.",
            "Int64",
        ),
    ],
    "memory.roles_over_time": [
        text("memory_id", "Memory", "Name of the allocator."),
        ms("time_ms", "Time ms", "Time from the start of the profile.", 3),
        count("step", "Step", "Step number, as in p.steps.frame.", "Int64"),
        size("parameters_bytes", "Parameters", "Parameters of modules and optimizers."),
        size("buffers_bytes", "Buffers", "Buffers of modules, such as running averages."),
        size("optimizer_state_bytes", "Optimizer state", "What an optimizer keeps by parameter."),
        size("gradients_bytes", "Gradients", "Gradients of parameters."),
        size(
            "activations_bytes",
            "Activations",
            "Results of the forward pass of which there is a gradient, or freed by the backward"
            " pass.",
        ),
        size(
            "inputs_bytes",
            "Inputs",
            "Batches made by a DataLoader or tf.data in the process itself.",
        ),
        size(
            "temporaries_bytes",
            "Temporaries",
            "Allocated and freed in one op, one forward or backward pass, or one optimizer step.",
        ),
        size("communication_bytes", "Communication", "Allocated by collectives."),
        size(
            "kv_cache_bytes",
            "KV cache",
            "Keys and values that a model of transformers keeps while it generates.",
        ),
        size("unknown_bytes", "Unknown", "In use; nothing proves what for."),
        size(
            "reserved_not_allocated_bytes",
            "Reserved, not allocated",
            "Held by the allocator and in no block; an upper bound of fragmentation.",
            "Int64",
        ),
    ],
    "memory.unfreed": [
        text("memory_id", "Memory", "Name of the allocator."),
        text("role", "Role", "What the memory is used for; unknown where nothing proves it."),
        text("op", "Op", "Op that allocated the blocks; empty outside of ops.", "code"),
        text(
            "module", "Module", "Modules around the op, where Python's calls were recorded.", "code"
        ),
        text(
            "line",
            "Allocated at",
            "Innermost line of your code that allocated the blocks; of sampled stacks, that of the"
            " blocks during whose allocation one was sampled. Empty if unknown.",
            "code",
        ),
        text(
            "line_source",
            "Line known by",
            "recorded lines (%%nbprof --stacks), sampled stacks, recorded calls of PyTorch's"
            " profiler, which have the first line of the function; or why it is unknown.",
        ),
        count("steps", "Steps", "Steps, without the last one, that left such blocks behind."),
        count("blocks", "Blocks", "Blocks allocated in these steps and never freed."),
        size("bytes", "Bytes", "Memory of these blocks."),
        size("bytes_per_step", "Per step", "Bytes divided by these steps.", "float64"),
    ],
    "memory.host": [
        ms("time_ms", "Time ms", "Time from the start of the cell.", 3),
        count(
            "step",
            "Step",
            "Number of the step that ran then, of all steps of the cell from 1; missing between"
            " steps.",
            "Int64",
        ),
        count("process", "Process", "Its number in the operating system."),
        text(
            "name",
            "Name",
            "This process, Loader worker, the name that multiprocessing gives a child, or its"
            " command.",
        ),
        size(
            "resident_bytes",
            "Resident",
            "Memory of the process in RAM; what several processes share counts in each.",
            "Int64",
        ),
        size("shared_bytes", "In files, shared", _IN_FILES, "Int64"),
        size(
            "proportional_bytes",
            "Proportional",
            "Resident memory, of which what several processes share counts in equal parts; read"
            " now and then, of processes with children.",
            "Int64",
        ),
        size(
            "pinned_bytes",
            "Pinned",
            "Pinned host memory that PyTorch's allocator holds, also what it keeps for reuse;"
            " missing of other frameworks and before a GPU is used.",
            "Int64",
        ),
        flag("recorded", "Recorded", "Whether a profiler ran, whose events are in this memory."),
    ],
    "memory.host_processes": [
        text("name", "Process", "As in `p.memory.host`; All processes where there are several."),
        count("process", "Number", "Its number in the operating system.", "Int64"),
        size("first_bytes", "First", "Resident memory in its first sample."),
        size(
            "peak_bytes",
            "Peak",
            "The most resident memory: of this process as the operating system counts it where it"
            " rose in the cell, else of the samples. Of all processes the largest sum of a moment,"
            " in which what they share counts in each.",
        ),
        ms("peak_time_ms", "Peak at", "Time of that sample; missing if it was between two."),
        size("last_bytes", "Last", "Resident memory in its last sample."),
        size(
            "growth_bytes_per_step",
            "Growth / step",
            "What this process keeps of each step that ran without a profiler: median slope of the"
            " memory in no file and not shared. Missing where fewer than 20 ran.",
            "float64",
        ),
        size("shared_bytes", "In files, shared", _IN_FILES, "Int64"),
        size(
            "proportional_bytes",
            "Proportional",
            "The most proportional memory; missing if it was not read.",
            "Int64",
        ),
        size("pinned_bytes", "Pinned", "The most pinned memory; missing if unknown.", "Int64"),
    ],
    "memory.variables": [
        text("holder", "Holder", "variable, output, traceback, module, thread or other."),
        text("name", "Name", "What keeps the arrays alive, as it is written in Python.", "code"),
        text("device", "Device", "Where the arrays are: host, or as the framework names it."),
        count("arrays", "Arrays", "Arrays with memory of their own; views count once."),
        size("bytes", "Bytes", "Memory of the arrays that it reaches."),
        size("freed_bytes", "Freed without it", "Memory that nothing else in this table reaches."),
        text("largest", "Largest array", "Type and shape of the largest one.", "code"),
        size("largest_bytes", "Its bytes", "Memory of the largest one."),
        text("held_by", "Held by", "The references that lead to the largest one.", "code"),
        text("also", "Also in", "What else reaches the largest one.", "code"),
        count(
            "graphs",
            "Graphs",
            "Tensors with a graph of autograd, which keeps what it saved for the backward pass;"
            " the size of that is unknown.",
        ),
        text("remedy", "To free it", "Statement that lets go of it.", "code"),
    ],
    "memory.peak": [
        text("memory_id", "Memory", "Name of the allocator."),
        text("op", "Op", "Op that allocated the block.", "code"),
        size("allocated_bytes", "Allocated", "Size of the block."),
        size("requested_bytes", "Requested", "Bytes requested."),
        count("occurrences", "Count", "Blocks identical in every other column."),
        *_ACTIVITY,
    ],
    "fits.frame": [
        text(
            "role",
            "Role",
            "parameters, buffers, gradients, optimizer state, inputs, activations (kept for the"
            " backward pass), outputs, or temporaries; of JAX and Keras, temporaries include"
            " gradients and activations, and there may be arguments (of a function), padding (of"
            " arguments on the device) and program code.",
        ),
        size("bytes", "At the peak", "Memory of this role at the peak of the step."),
        percent("percent", "Share", "Share of the peak."),
    ],
    "fits.levers": [
        text("lever", "With", "What is changed in the step; the first row has no change."),
        size("peak_bytes", "Peak", "Predicted peak for the batch that was passed.", "Int64"),
        Col("fits", "boolean", "", "Fits", "Whether the peak and the margin fit.", "bool"),
        count(
            "largest_batch",
            "Largest batch",
            "The largest batch that fits; with accumulation, of all parts together.",
            "Int64",
        ),
        text("note", "", "Why a figure is missing, or what the change is."),
    ],
}
