"""The schema of every public frame: each column declared once, with its type, unit, head on screen and meaning.

Table heads, tooltips and docs are made from it, and tests hold the frames against it.
"""

from __future__ import annotations

from typing import NamedTuple


class Col(NamedTuple):
    """One column of a public frame.

    Attributes
    ----------
    name, dtype, unit : str
        `unit` is '' where the values have none. Missing values are NA, never 0.
    label : str
        Head of the column on screen.
    help : str
        One sentence of meaning.
    kind : str
        How it is shown: text, code, number, bytes, percent (0…100) or bool.
    digits : int or None
        Decimals on screen.
    """

    name: str
    dtype: str
    unit: str
    label: str
    help: str
    kind: str = "number"
    digits: int | None = None


def _ms(name: str, label: str, help: str, digits: int = 2) -> Col:
    return Col(name, "float64", "ms", label, help, "number", digits)


def _us(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "us", label, help, "number", 1)


def _bytes(name: str, label: str, help: str) -> Col:
    return Col(name, "int64", "bytes", label, help, "bytes", None)


def _count(name: str, label: str, help: str) -> Col:
    return Col(name, "int64", "", label, help, "number", 0)


def _percent(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "percent", label, help, "percent", 1)


def _rate(name: str, unit: str, label: str, help: str) -> Col:
    return Col(name, "float64", unit, label, help, "number", 1)


def _text(name: str, label: str, help: str, kind: str = "text") -> Col:
    return Col(name, "object", "", label, help, kind, None)


_HOST = _text("host", "Host", "Machine that recorded the row.")
_CATEGORIES = [
    _ms("device_compute_ms", "Device compute", "Kernels other than communication, on the device."),
    _ms("device_to_device_ms", "Device to device", "Copies between devices or within one."),
    _ms("device_collectives_ms", "Device collectives", "Collective communication kernels (NCCL, RCCL)."),
    _ms("host_compute_ms", "Host compute", "Ops on the host while nothing of a larger priority runs."),
    _ms("kernel_launch_ms", "Kernel launch", "The host prepares and launches kernels while the device is idle."),
    _ms("input_ms", "Input", "The step waits for the next batch, or copies it to the device."),
    _ms("output_ms", "Output", "Copies from the device to the host."),
    _ms("compile_ms", "Compile", "XLA or JIT compilation."),
    _ms("other_ms", "Other", "The rest of the step: no recorded op, launch or copy."),
]
_WHERE = _text("where", "Where", "Where the op ran: device or host.")
_TYPE = _text("type", "Type", "Type of the op, as the framework names it.")
_OPS = [
    _count("rank", "#", "Position by self time, device first."),
    _WHERE,
    _TYPE,
    _text("op", "Operation", "Full name of the op with its name scopes.", "code"),
    _count("occurrences", "Count", "Runs of the op."),
    _us("total_us", "Total µs", "Duration of all runs, ops inside included."),
    _us("avg_us", "Avg µs", "Total time divided by runs."),
    _us("self_us", "Self µs", "Duration of all runs without the ops inside."),
    _us("avg_self_us", "Avg self", "Self time divided by runs."),
    Col(
        "self_fraction",
        "float64",
        "fraction",
        "Self %",
        "Self time as a part of all self time on its side.",
        "percent",
        1,
    ),
    Col(
        "cumulative_fraction",
        "float64",
        "fraction",
        "cum. %",
        "This row's part and those above it on its side.",
        "percent",
        1,
    ),
    Col("eager", "bool", "", "Eager", "Whether any run was eager, rather than in a graph or compiled.", "bool", None),
]
_FOLDED = [
    _count("ops", "Ops", "Ops of that kind."),
    _count("occurrences", "Count", "Runs of the ops."),
    _us("total_us", "Total µs", "Duration of all runs; ops of the kind inside one another count each."),
    _us("self_us", "Self µs", "Duration of all runs without the ops inside."),
    Col("self_fraction", "float64", "fraction", "Self %", "Self time as a part of all self time on its side.", "percent", 1),
]
_ACTIVITY = [
    _text("region_type", "Region", "What the block is for: output, temp, persist or dynamic."),
    _text("data_type", "Type", "Data type of the tensor."),
    _text("shape", "Shape", "Shape of the tensor."),
]

_LAUNCHED = [
    _count("occurrences", "Count", "Launches."),
    _us("total_us", "Total µs", "Duration of all launches."),
    _us("avg_us", "Avg µs", "Total time divided by launches."),
    _us("min_us", "Min", "Shortest launch."),
    _us("max_us", "Max", "Longest launch."),
    _percent("percent", "%", "Part of the time of all kernels."),
    _percent("tensor_core_percent", "TC %", "Part of the time on TensorCores, of the kernels whose names tell."),
    _percent("occupancy_percent", "Occup. %", "Mean occupancy, each launch weighted by its time."),
]

SCHEMA: dict[str, list[Col]] = {
    "steps": [
        _HOST,
        _count("step", "Step", "Step number as the framework counts it."),
        _text("name", "Name", "Name of the step marker."),
        _ms("start_ms", "Start ms", "Begin of the step after the start of the profile."),
        _ms("step_time_ms", "Step ms", "Duration of the step."),
        *_CATEGORIES,
        Col(
            "kind",
            "object",
            "",
            "Kind",
            "Kind of step: train, test, predict or the name that the program gave.",
            "text",
            None,
        ),
        Col(
            "warmup",
            "bool",
            "",
            "Warm-up",
            "A leading step over 4 times the median: left out of the averages.",
            "bool",
            None,
        ),
        Col(
            "cut",
            "bool",
            "",
            "Cut",
            "The recording ended before the step's work on the device did: left out of the averages.",
            "bool",
            None,
        ),
        Col(
            "counted",
            "bool",
            "",
            "Counted",
            "Whether averages use the step: no warm-up, not cut, and of one kind: training, unless others take 4 times as long.",
            "bool",
            None,
        ),
        _ms("host_to_device_ms", "Copied in", "The part of Input in which data was copied to the device."),
    ],
    "steps_summary": [
        _text("category", "Category", "Step-time category; step_time is the whole step."),
        _ms("mean_ms", "mean", "Mean over the steps, warm-up left out."),
        _ms("sd_ms", "sd", "Sample standard deviation (n - 1)."),
        _ms("min_ms", "min", "Smallest step."),
        _ms("max_ms", "max", "Largest step."),
        _percent("percent", "%", "Part of the time of all steps that the means are of, on all hosts."),
    ],
    "pods": [
        _count("step", "Step", "Step number on the host with the shortest recording; counted from 0 where its numbers repeat."),
        _text("worker", "Worker", "Host, or host:device where the devices of a host have steps of their own."),
        _ms("step_time_ms", "Step ms", "Duration of the step on this worker."),
        *_CATEGORIES,
        _text("bottleneck", "Bottleneck", "Category with the most time."),
        _text("name", "Name", "Name of the step marker on the worker's host."),
        _ms("start_ms", "Start ms", "Begin of the step on this worker after the start of the profile."),
    ],
    "pods_summary": [
        _count("step", "Step", "Step number, as in the frame of all workers."),
        _count("workers", "Workers", "Workers that recorded the step."),
        _text("slowest", "Slowest", "Worker with the longest step."),
        _ms("slowest_ms", "Slowest ms", "Its step time."),
        _ms("fastest_ms", "Fastest ms", "Step time of the fastest worker."),
        _percent("spread_percent", "Spread %", "Slowest less fastest, in percent of the slowest; not known of one worker."),
    ],
    "input_ops": [
        _text("op", "Iterator", "Input op; an iterator is named by its path from the root.", "code"),
        _text("category", "Category", "Kind of input work."),
        _count("occurrences", "Count", "Runs of the op."),
        _ms("total_ms", "Total ms", "Duration of all runs, iterators inside included."),
        _percent("total_percent", "Total %", "Total time as a part of the self time of all input ops."),
        _ms("self_ms", "Self ms", "Duration of all runs without the iterators inside."),
        _percent("self_percent", "Self %", "Self time as a part of that of all input ops."),
    ],
    "input_categories": [
        _text("category", "Category", "Key of the kind of input work."),
        _text("label", "Kind of work", "Kind of input work."),
        _ms("time_ms", "ms", "Self time of its ops."),
        _percent("percent", "% of input time", "Part of the self time of all input ops."),
        _text("advice", "What helps", "What to try; empty where no time was spent."),
    ],
    "tf_data_pipelines": [
        _HOST,
        _text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        _count("calls", "Calls", "Calls of the root iterator."),
        _count("slow_calls", "Slow calls", "Calls of the root over 50 µs."),
        _us("mean_us", "Mean µs", "Mean duration of a call."),
        _us("min_us", "Min µs", "Shortest call."),
        _us("max_us", "Max µs", "Longest call."),
        _text("bottleneck", "Bottleneck", "Blocking iterator with the largest self time in the longest call."),
        _text("advice", "Advice", "What limits the pipeline and what helps."),
        _text("bottleneck_path", "Path", "Name of the bottleneck from the root down.", "code"),
        _us("bottleneck_us", "Bottleneck µs", "Self time of the bottleneck in the longest call."),
        _text("fix", "Fix", "Diff lines: - removed, + added.", "code"),
    ],
    "tf_data_calls": [
        _HOST,
        _text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        _count("rank", "Rank", "Position among the calls of the pipeline: 0 is the longest."),
        _ms("start_ms", "Start ms", "Begin of the call after the start of the profile."),
        _us("duration_us", "Duration µs", "Duration of the call."),
        _text("bottleneck", "Bottleneck", "Blocking iterator with the largest self time in the call."),
        _text("bottleneck_path", "Path", "Name of the bottleneck from the root down.", "code"),
        _us("bottleneck_us", "Bottleneck µs", "Its self time in the call."),
    ],
    "tf_data_nodes": [
        _text("iterator", "Iterator", "Kind of iterator."),
        _text("long_name", "Path", "Name from the root down.", "code"),
        _text("parent", "Parent", "`id` of the iterator that consumes this one."),
        _ms("start_ms", "Start ms", "First call after the start of the profile."),
        _ms("total_ms", "Total ms", "Duration of all calls."),
        _ms("self_ms", "Self ms", "Duration of all calls without the overlap with their inputs."),
        _count("calls", "Calls", "Calls of the iterator."),
        Col(
            "critical",
            "bool",
            "",
            "Critical",
            "On the path from the root through the bottleneck to a source.",
            "bool",
            None,
        ),
        Col("bottleneck", "bool", "", "Bottleneck", "Blocking iterator with the largest self time.", "bool", None),
        _text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        _HOST,
        _text("note", "Note", "What the iterator states about itself: threads, batch, buffer, cycle."),
        _text("id", "Id", "Number of the iterator."),
        Col("blocking", "bool", "", "Blocking", "Whether any call of it kept a call of the root waiting.", "bool", None),
    ],
    "checks": [
        _text("check", "Check", "What was looked at."),
        _percent("percent", "%", "Its measure: of step time, compute or op time."),
        _text("level", "Level", "high, moderate, no or unknown."),
        _text("statement", "Finding", "What follows, with the number."),
        _text("view", "View", "Tab that shows it."),
    ],
    "input_breakdown": [
        _text("category", "Category", "Key of the kind of input work."),
        _us("us", "µs", "Time of the kind, scaled by how much enqueuing fills the time between enqueues."),
        _us("us_per_step", "µs / step", "The same divided by the number of steps."),
        _percent("percent", "%", "Part of the time of all kinds."),
    ],
    "tf_functions": [
        _text("function", "Function", "Name of the tf.function.", "code"),
        _count("calls", "Calls", "Calls of it."),
        _count("tracings", "Tracings", "How often it had been traced by its last call."),
        _us("self_us", "Self µs", "Duration of all calls without those of functions inside."),
        _percent("expensive_percent", "Expensive %", "Part of that in calls that traced it or ran it eagerly."),
        _ms("expensive_ms_per_step", "Expensive / step", "Such calls in the steps that averages use, a step."),
    ],
    "ops": _OPS,
    "ops_with_idle": _OPS,
    "ops_by_type": [_WHERE, _TYPE, *_FOLDED],
    "ops_by_scope": [
        _WHERE,
        _text("scope", "Scope", "Name of the ops without the last component; empty for ops without a scope.", "code"),
        *_FOLDED,
    ],
    "top_ops": [
        _count("rank", "#", "Position by self time."),
        _text("op", "Operation", "Full name of the op with its name scopes.", "code"),
        _text("type", "Type", "Type of the op."),
        _ms("self_ms", "ms", "Self time in the whole profile, summed over devices and threads.", 3),
        _ms("ms_per_step", "ms / step", "Self time by the number of steps, summed over devices and threads: it may exceed the step.", 3),
        _percent("percent", "% of side", "Self time as a part of all self time on its side, idle excluded."),
        _percent("cumulative_percent", "cum. %", "This row and all above it."),
    ],
    "kernels": [
        _count("rank", "#", "Position by total time."),
        _text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        _count("registers", "Regs", "Registers of a thread."),
        _count(
            "static_shared_bytes",
            "Static shared B",
            "Static shared memory of a block, in bytes; where one number is stated for both kinds, that.",
        ),
        _count("dynamic_shared_bytes", "Dynamic shared B", "Dynamic shared memory of a block, in bytes."),
        _text("block", "Block", "Threads of a block: x,y,z."),
        _text("grid", "Grid", "Blocks of a launch: x,y,z."),
        _percent("occupancy_percent", "Occup. %", "Warps on a multiprocessor of those that fit: theoretical, or PyTorch's estimate."),
        Col("op_tensor_core_eligible", "bool", "", "TC elig.", "Whether the op could use TensorCores.", "bool", None),
        Col("uses_tensor_core", "bool", "", "used", "Whether the kernel uses TensorCores, by its name; open for Triton's.", "bool", None),
        _text("op", "Op", "Op that launched the kernel.", "code"),
        _count("occurrences", "Count", "Launches."),
        _us("total_us", "Total µs", "Duration of all launches."),
        _us("avg_us", "Avg µs", "Total time divided by launches, in whole nanoseconds."),
        _us("min_us", "Min", "Shortest launch."),
        _us("max_us", "Max", "Longest launch."),
        _text("occupancy_source", "Occup. from", "Whether the occupancy was recorded, or computed from the launch shape and the device."),
    ],
    "kernels_by_name": [
        _text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        _count("ops", "Ops", "Ops that launched it."),
        *_LAUNCHED,
    ],
    "kernels_by_op": [
        _text("op", "Op", "Op that launched the kernels.", "code"),
        _count("kernels", "Kernels", "Its kernels."),
        *_LAUNCHED,
    ],
    "memory_summary": [
        _text("memory_id", "Memory", "Name of the allocator."),
        _count("allocations", "Allocations", "Allocations in the profile."),
        _count("deallocations", "Deallocations", "Deallocations in the profile."),
        _bytes("capacity_bytes", "Capacity", "Bytes in use and free at the peak."),
        _bytes("lifetime_peak_bytes", "Peak, whole run", "Largest use since the program began."),
        _bytes("peak_bytes", "Peak", "Largest use in the profile."),
        _ms("peak_time_ms", "Peak at", "When that was."),
        _bytes("peak_stack_bytes", "Stack", "Reserved (stack) bytes at the peak."),
        _bytes("peak_heap_bytes", "Heap", "Heap bytes at the peak."),
        _bytes("peak_free_bytes", "Free", "Free bytes at the peak."),
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
    "memory_timeline": [
        _text("memory_id", "Memory", "Name of the allocator."),
        _ms("time_ms", "Time ms", "When, after the start of the profile.", 3),
        _text("event", "Event", "allocation or deallocation."),
        _bytes("requested_bytes", "Requested", "Bytes asked for."),
        _bytes("allocated_bytes", "Allocated", "Size of the block; negative when it is freed."),
        _text("op", "Op", "Op that asked for the block.", "code"),
        _count("step", "Step", "Group of the step."),
        *_ACTIVITY,
        _bytes("stack_bytes", "Stack", "Reserved (stack) bytes after the event."),
        _bytes("heap_bytes", "Heap", "Heap bytes in use after the event."),
        _bytes("free_bytes", "Free", "Free bytes after the event."),
        Col(
            "fragmentation",
            "float64",
            "fraction",
            "Fragmentation",
            "Part of the free bytes outside the largest free block.",
            "number",
            4,
        ),
        _bytes("in_use_bytes", "In use", "Stack and heap together."),
    ],
    "memory_ops": [
        _text("memory_id", "Memory", "Name of the allocator."),
        _text("op", "Op", "Innermost op around the events; empty for those in no op."),
        _count("allocations", "Allocations", "How often it took memory."),
        _bytes("allocated_bytes", "Allocated", "What it took in all."),
        _count("deallocations", "Deallocations", "How often it gave memory back."),
        _bytes("freed_bytes", "Freed", "What it gave back in all, whoever had taken it."),
        _bytes("increase_bytes", "Self increase", "Allocated less freed."),
    ],
    "memory_peak": [
        _text("memory_id", "Memory", "Name of the allocator."),
        _text("op", "Op", "Op that asked for the block.", "code"),
        _bytes("allocated_bytes", "Allocated", "Size of the block."),
        _bytes("requested_bytes", "Requested", "Bytes asked for."),
        _count("occurrences", "Count", "Blocks alike in every column."),
        *_ACTIVITY,
    ],
    "advice": [
        _text("rule", "Rule", "Name of the check."),
        _text("severity", "Severity", "high, medium or low."),
        _text("title", "Advice", "What to do."),
        _text("evidence", "Evidence", "The numbers that say so; **bold** where it matters."),
        _ms("gain_ms_per_step", "Gain ms", "Upper bound of what a step would save."),
        _text("fix", "Fix", "Diff lines: - removed, + added.", "code"),
        _text("view", "View", "Tab that shows it."),
    ],
    "devices": [
        _HOST,
        _count("device", "Device", "Number of the device on its host."),
        _text("kind", "Kind", "GPU, TPU, or SparseCore for one that works beside a TPU core."),
        _text("name", "Name", "Model or architecture."),
        _text("compute_capability", "Compute capability", "NVIDIA compute capability."),
        _bytes("memory_bytes", "Memory", "Memory of the device."),
        _rate("memory_bytes_per_second", "bytes_per_second", "Memory B/s", "What its main memory can move at most."),
        _rate(
            "peak_flops_per_second", "flops_per_second", "Peak FLOP/s", "What it can compute at most, in fp32 or fp16, without sparsity."
        ),
        *(
            _rate(f"{level}_bytes_per_second", "bytes_per_second", f"{label} B/s", f"What {what} can move at most.")
            for level, label, what in (
                ("cmem_read", "CMEM read", "reading the memory CMEM on the chip"),
                ("cmem_write", "CMEM write", "writing the memory CMEM on the chip"),
                ("vmem_read", "VMEM read", "reading the vector memory on the chip"),
                ("vmem_write", "VMEM write", "writing the vector memory on the chip"),
                ("shared_memory", "Shared memory", "the shared memory of all multiprocessors of a GPU"),
            )
        ),
        _count("chip", "Chip", "Number of a TPU core's chip on its host."),
        Col("megacore", "bool", "", "Megacore", "Whether the two cores of a TPU's chip work as one.", "bool", None),
        _count("sparse_cores", "SparseCores", "SparseCores beside a TPU core that recorded."),
        _count("core", "Core", "Number of a SparseCore beside its TPU core; missing for a whole device."),
    ],
    "events": [
        _HOST,
        _text("process", "Process", "Device or process of the lane."),
        _text("lane", "Lane", "Thread or stream."),
        _text("name", "Name", "Name of the event.", "code"),
        _us("start_us", "Start µs", "Begin after the start of the profile."),
        _us("duration_us", "Duration µs", "Duration."),
        _count("depth", "Depth", "Nesting level on the lane."),
        _us("self_us", "Self µs", "Duration without the events inside."),
        _count("event", "Event", "Number of the event in the profile."),
    ],
    "tracks": [
        _count("lane", "Lane", "Number of the lane, as `p.trace.events(lane=...)` takes it."),
        _HOST,
        _text("process", "Process", "Heading under which the lane is drawn."),
        _text("name", "Name", "Name of the lane."),
        _text("kind", "Kind", "steps, device, host or counter."),
        _count("events", "Events", "Events on the lane; of a counter 0."),
        Col("derived", "bool", "", "Derived", "Made from what was recorded.", "bool", None),
    ],
    "range": [
        _text("name", "Name", "Name of the events, as it is drawn.", "code"),
        _count("count", "Count", "Events of the name that touch the range."),
        _us("self_us", "Self µs", "Their time in the range without the events inside."),
        _us("total_us", "Total µs", "Their time in the range; of events inside one another each counts."),
        _percent("percent", "%", "Self time as a part of the range; lanes run at the same time, so the sum may exceed 100."),
    ],
    "gaps": [
        _HOST,
        _text("device", "Device", "Device that ran nothing, as the trace heads it."),
        _ms("start_ms", "Start ms", "Begin of the gap after the start of the profile.", 3),
        _us("duration_us", "Duration µs", "How long nothing ran on any stream of the device."),
        _text("meanwhile", "Meanwhile", "Name with most self time on the host's threads in the gap; empty if not known.", "code"),
        _us("meanwhile_us", "Meanwhile µs", "That self time, on all threads together."),
    ],
    "lanes": [
        _count("lane", "Lane", "Number of the lane."),
        _HOST,
        _text("process", "Process", "Device or process."),
        _text("thread", "Thread", "Thread or stream."),
        _text("kind", "Kind", "steps, device, derived or host."),
        _count("device", "Device", "Number of the device; -1 on the host."),
        _count("events", "Events", "Events on the lane."),
    ],
}


_OPS_WHERE_KNOWN = [
    _rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations of all runs, divided by their total time."),
    _rate("bytes_per_second", "bytes_per_second", "B/s", "Bytes that all runs read and wrote, divided by their total time."),
    _rate("operational_intensity", "flops_per_byte", "FLOP/B", "Floating-point operations for each byte read or written."),
    _text("bound_by", "Bound by", "What the op comes closest to the device's peak of: Compute or HBM (memory)."),
    Col("tensor_core_fraction", "float64", "fraction", "TC %", "Part of the time of its kernels on TensorCores.", "percent", 1),
]
_STEPS_WHERE_KNOWN = [
    _bytes("host_to_device_bytes", "Copied in", "Bytes copied to devices for the step."),
    _bytes("device_to_host_bytes", "Copied out", "Bytes copied to the host for the step."),
    _bytes("device_to_device_bytes", "Copied across", "Bytes copied between devices or within one for the step."),
]
WHERE_KNOWN: dict[str, list[Col]] = {"steps": _STEPS_WHERE_KNOWN, "ops": _OPS_WHERE_KNOWN, "ops_with_idle": _OPS_WHERE_KNOWN}
"""Columns behind those of SCHEMA that a frame has where a row of it has a value."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column.

    Raises
    ------
    KeyError
        No such frame or column; names those that exist.
    """
    for col in [*SCHEMA[frame], *WHERE_KNOWN.get(frame, [])]:
        if col.name == name:
            return col
    raise KeyError(f"frame {frame!r} has no column {name!r}; it has {', '.join(c.name for c in SCHEMA[frame])}")
