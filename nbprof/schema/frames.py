"""The schema of every public frame: each column declared once, with its type, unit, head on screen and meaning.

Table heads, tooltips and docs are made from it, and tests hold the frames against it.
"""

from __future__ import annotations

from nbprof.schema import memory as frames_memory
from nbprof.schema import timeline as frames_timeline
from nbprof.schema.columns import Col, count, declared, ms, percent, rate, size, text, us

_HOST = text("host", "Host", "Machine that recorded the row.")
_CATEGORIES = [
    ms("device_compute_ms", "Device compute", "Kernels other than communication, on the device."),
    ms("device_to_device_ms", "Device to device", "Copies between devices or within one."),
    ms("device_collectives_ms", "Device collectives", "Collective communication kernels (NCCL, RCCL)."),
    ms("host_compute_ms", "Host compute", "Ops on the host while nothing of a larger priority runs."),
    ms("kernel_launch_ms", "Kernel launch", "The host prepares and launches kernels while the device is idle."),
    ms("input_ms", "Input", "The step waits for the next batch, or copies it to the device."),
    ms("output_ms", "Output", "Copies from the device to the host."),
    ms("compile_ms", "Compile", "XLA or JIT compilation."),
    ms("other_ms", "Other", "The rest of the step: no recorded op, launch or copy."),
]
_WHERE = text("where", "Where", "Where the op ran: device or host.")
_TYPE = text("type", "Type", "Type of the op, as the framework names it.")
_OPS = [
    count("rank", "#", "Position by self time, device first."),
    _WHERE,
    _TYPE,
    text("op", "Operation", "Full name of the op with its name scopes.", "code"),
    count("occurrences", "Count", "Runs of the op."),
    us("total_us", "Total µs", "Duration of all runs, ops inside included."),
    us("avg_us", "Avg µs", "Total time divided by runs."),
    us("self_us", "Self µs", "Duration of all runs without the ops inside."),
    us("avg_self_us", "Avg self", "Self time divided by runs."),
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
    count("ops", "Ops", "Ops of that kind."),
    count("occurrences", "Count", "Runs of the ops."),
    us("total_us", "Total µs", "Duration of all runs; ops of the kind inside one another count each."),
    us("self_us", "Self µs", "Duration of all runs without the ops inside."),
    Col("self_fraction", "float64", "fraction", "Self %", "Self time as a part of all self time on its side.", "percent", 1),
]

_LAUNCHED = [
    count("occurrences", "Count", "Launches."),
    us("total_us", "Total µs", "Duration of all launches."),
    us("avg_us", "Avg µs", "Total time divided by launches."),
    us("min_us", "Min", "Shortest launch."),
    us("max_us", "Max", "Longest launch."),
    percent("percent", "%", "Part of the time of all kernels."),
    percent("tensor_core_percent", "TC %", "Part of the time on TensorCores, of the kernels whose names tell."),
    percent("occupancy_percent", "Occup. %", "Mean occupancy, each launch weighted by its time."),
]

SCHEMA: dict[str, list[Col]] = {
    "steps": [
        _HOST,
        count("step", "Step", "Step number as the framework counts it."),
        text("name", "Name", "Name of the step marker."),
        ms("start_ms", "Start ms", "Begin of the step after the start of the profile."),
        ms("step_time_ms", "Step ms", "Duration of the step."),
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
            "A leading step over 4 times the median, or one of the first two iterations of a graph on an NPU: left out of the averages.",
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
        ms("host_to_device_ms", "Copied in", "The part of Input in which data was copied to the device."),
    ],
    "steps_summary": [
        text("category", "Category", "Step-time category; step_time is the whole step."),
        ms("mean_ms", "mean", "Mean over the steps, warm-up left out."),
        ms("sd_ms", "sd", "Sample standard deviation (n - 1)."),
        ms("min_ms", "min", "Smallest step."),
        ms("max_ms", "max", "Largest step."),
        percent("percent", "%", "Part of the time of all steps that the means are of, on all hosts."),
    ],
    "pods": [
        count("step", "Step", "Step number on the host with the shortest recording; counted from 0 where its numbers repeat."),
        text("worker", "Worker", "Host, or host:device where the devices of a host have steps of their own."),
        ms("step_time_ms", "Step ms", "Duration of the step on this worker."),
        *_CATEGORIES,
        text("bottleneck", "Bottleneck", "Category with the most time."),
        text("name", "Name", "Name of the step marker on the worker's host."),
        ms("start_ms", "Start ms", "Begin of the step on this worker after the start of the profile."),
    ],
    "pods_summary": [
        count("step", "Step", "Step number, as in the frame of all workers."),
        count("workers", "Workers", "Workers that recorded the step."),
        text("slowest", "Slowest", "Worker with the longest step."),
        ms("slowest_ms", "Slowest ms", "Its step time."),
        ms("fastest_ms", "Fastest ms", "Step time of the fastest worker."),
        percent("spread_percent", "Spread %", "Slowest less fastest, in percent of the slowest; not known of one worker."),
    ],
    "input_ops": [
        text("op", "Iterator", "Input op; an iterator is named by its path from the root.", "code"),
        text("category", "Category", "Kind of input work."),
        count("occurrences", "Count", "Runs of the op."),
        ms("total_ms", "Total ms", "Duration of all runs, iterators inside included."),
        percent("total_percent", "Total %", "Total time as a part of the self time of all input ops."),
        ms("self_ms", "Self ms", "Duration of all runs without the iterators inside."),
        percent("self_percent", "Self %", "Self time as a part of that of all input ops."),
    ],
    "input_categories": [
        text("category", "Category", "Key of the kind of input work."),
        text("label", "Kind of work", "Kind of input work."),
        ms("time_ms", "ms", "Self time of its ops."),
        percent("percent", "% of input time", "Part of the self time of all input ops."),
        text("advice", "What helps", "What to try; empty where no time was spent."),
    ],
    "tf_data_pipelines": [
        _HOST,
        text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        count("calls", "Calls", "Calls of the root iterator."),
        count("slow_calls", "Slow calls", "Calls of the root over 50 µs."),
        us("mean_us", "Mean µs", "Mean duration of a call."),
        us("min_us", "Min µs", "Shortest call."),
        us("max_us", "Max µs", "Longest call."),
        text("bottleneck", "Bottleneck", "Blocking iterator with the largest self time in the longest call."),
        text("advice", "Advice", "What limits the pipeline and what helps."),
        text("bottleneck_path", "Path", "Name of the bottleneck from the root down.", "code"),
        us("bottleneck_us", "Bottleneck µs", "Self time of the bottleneck in the longest call."),
        text("fix", "Fix", "Diff lines: - removed, + added.", "code"),
    ],
    "tf_data_calls": [
        _HOST,
        text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        count("rank", "Rank", "Position among the calls of the pipeline: 0 is the longest."),
        ms("start_ms", "Start ms", "Begin of the call after the start of the profile."),
        us("duration_us", "Duration µs", "Duration of the call."),
        text("bottleneck", "Bottleneck", "Blocking iterator with the largest self time in the call."),
        text("bottleneck_path", "Path", "Name of the bottleneck from the root down.", "code"),
        us("bottleneck_us", "Bottleneck µs", "Its self time in the call."),
    ],
    "tf_data_nodes": [
        text("iterator", "Iterator", "Kind of iterator."),
        text("long_name", "Path", "Name from the root down.", "code"),
        text("parent", "Parent", "`id` of the iterator that consumes this one."),
        ms("start_ms", "Start ms", "First call after the start of the profile."),
        ms("total_ms", "Total ms", "Duration of all calls."),
        ms("self_ms", "Self ms", "Duration of all calls without the overlap with their inputs."),
        count("calls", "Calls", "Calls of the iterator."),
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
        text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        _HOST,
        text("note", "Note", "What the iterator states about itself: threads, batch, buffer, cycle."),
        text("id", "Id", "Number of the iterator."),
        Col("blocking", "bool", "", "Blocking", "Whether any call of it kept a call of the root waiting.", "bool", None),
    ],
    "checks": [
        text("check", "Check", "What was looked at."),
        percent("percent", "%", "Its measure: of step time, compute or op time."),
        text("level", "Level", "high, moderate, no or unknown."),
        text("statement", "Finding", "What follows, with the number."),
        text("view", "View", "Tab that shows it."),
    ],
    "input_breakdown": [
        text("category", "Category", "Key of the kind of input work."),
        us("us", "µs", "Time of the kind, scaled by how much enqueuing fills the time between enqueues."),
        us("us_per_step", "µs / step", "The same divided by the number of steps."),
        percent("percent", "%", "Part of the time of all kinds."),
    ],
    "tf_functions": [
        text("function", "Function", "Name of the tf.function.", "code"),
        count("calls", "Calls", "Calls of it."),
        count("tracings", "Tracings", "How often it had been traced by its last call."),
        us("self_us", "Self µs", "Duration of all calls without those of functions inside."),
        percent("expensive_percent", "Expensive %", "Part of that in calls that traced it or ran it eagerly."),
        ms("expensive_ms_per_step", "Expensive / step", "Such calls in the steps that averages use, a step."),
    ],
    "ops": _OPS,
    "ops_with_idle": _OPS,
    "ops_by_type": [_WHERE, _TYPE, *_FOLDED],
    "ops_by_scope": [
        _WHERE,
        text("scope", "Scope", "Name of the ops without the last component; empty for ops without a scope.", "code"),
        *_FOLDED,
    ],
    "top_ops": [
        count("rank", "#", "Position by self time."),
        text("op", "Operation", "Full name of the op with its name scopes.", "code"),
        text("type", "Type", "Type of the op."),
        ms("self_ms", "ms", "Self time in the whole profile, summed over devices and threads.", 3),
        ms("ms_per_step", "ms / step", "Self time by the number of steps, summed over devices and threads: it may exceed the step.", 3),
        percent("percent", "% of side", "Self time as a part of all self time on its side, idle excluded."),
        percent("cumulative_percent", "cum. %", "This row and all above it."),
    ],
    "kernels": [
        count("rank", "#", "Position by total time."),
        text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        count("registers", "Regs", "Registers of a thread."),
        count(
            "static_shared_bytes",
            "Static shared B",
            "Static shared memory of a block, in bytes; where one number is stated for both kinds, that.",
        ),
        count("dynamic_shared_bytes", "Dynamic shared B", "Dynamic shared memory of a block, in bytes."),
        text("block", "Block", "Threads of a block: x,y,z."),
        text("grid", "Grid", "Blocks of a launch: x,y,z."),
        percent("occupancy_percent", "Occup. %", "Warps on a multiprocessor of those that fit: theoretical, or PyTorch's estimate."),
        Col("op_tensor_core_eligible", "bool", "", "TC elig.", "Whether the op could use TensorCores.", "bool", None),
        Col("uses_tensor_core", "bool", "", "used", "Whether the kernel uses TensorCores, by its name; open for Triton's.", "bool", None),
        text("op", "Op", "Op that launched the kernel.", "code"),
        count("occurrences", "Count", "Launches."),
        us("total_us", "Total µs", "Duration of all launches."),
        us("avg_us", "Avg µs", "Total time divided by launches, in whole nanoseconds."),
        us("min_us", "Min", "Shortest launch."),
        us("max_us", "Max", "Longest launch."),
        text("occupancy_source", "Occup. from", "Whether the occupancy was recorded, or computed from the launch shape and the device."),
    ],
    "kernels_by_name": [
        text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        count("ops", "Ops", "Ops that launched it."),
        *_LAUNCHED,
    ],
    "kernels_by_op": [
        text("op", "Op", "Op that launched the kernels.", "code"),
        count("kernels", "Kernels", "Its kernels."),
        *_LAUNCHED,
    ],
    **frames_memory.SCHEMA,
    "advice": [
        text("rule", "Rule", "Name of the check."),
        text("severity", "Severity", "high, medium or low."),
        text("title", "Advice", "What to do."),
        text("evidence", "Evidence", "The numbers that say so; **bold** where it matters."),
        ms("gain_ms_per_step", "Gain ms", "Upper bound of what a step would save."),
        text("fix", "Fix", "Diff lines: - removed, + added.", "code"),
        text("view", "View", "Tab that shows it."),
    ],
    "devices": [
        _HOST,
        count("device", "Device", "Number of the device on its host."),
        text("kind", "Kind", "GPU, TPU, or SparseCore for one that works beside a TPU core."),
        text("name", "Name", "Model or architecture."),
        text("compute_capability", "Compute capability", "NVIDIA compute capability."),
        size("memory_bytes", "Memory", "Memory of the device."),
        rate("memory_bytes_per_second", "bytes_per_second", "Memory B/s", "What its main memory can move at most."),
        rate("peak_flops_per_second", "flops_per_second", "Peak FLOP/s", "What it can compute at most, in fp32 or fp16, without sparsity."),
        *(
            rate(f"{level}_bytes_per_second", "bytes_per_second", f"{label} B/s", f"What {what} can move at most.")
            for level, label, what in (
                ("cmem_read", "CMEM read", "reading the memory CMEM on the chip"),
                ("cmem_write", "CMEM write", "writing the memory CMEM on the chip"),
                ("vmem_read", "VMEM read", "reading the vector memory on the chip"),
                ("vmem_write", "VMEM write", "writing the vector memory on the chip"),
                ("shared_memory", "Shared memory", "the shared memory of all multiprocessors of a GPU"),
            )
        ),
        count("chip", "Chip", "Number of a TPU core's chip on its host."),
        Col("megacore", "bool", "", "Megacore", "Whether the two cores of a TPU's chip work as one.", "bool", None),
        count("sparse_cores", "SparseCores", "SparseCores beside a TPU core that recorded."),
        count("core", "Core", "Number of a SparseCore beside its TPU core; missing for a whole device."),
    ],
    **frames_timeline.SCHEMA,
}


_OPS_WHERE_KNOWN = [
    rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations of all runs, divided by their total time."),
    rate("bytes_per_second", "bytes_per_second", "B/s", "Bytes that all runs read and wrote, divided by their total time."),
    rate("operational_intensity", "flops_per_byte", "FLOP/B", "Floating-point operations for each byte read or written."),
    text("bound_by", "Bound by", "What the op comes closest to the device's peak of: Compute or main memory (HBM, else Device memory)."),
    Col("tensor_core_fraction", "float64", "fraction", "TC %", "Part of the time of its kernels on TensorCores.", "percent", 1),
]
_STEPS_WHERE_KNOWN = [
    size("host_to_device_bytes", "Copied in", "Bytes copied to devices for the step."),
    size("device_to_host_bytes", "Copied out", "Bytes copied to the host for the step."),
    size("device_to_device_bytes", "Copied across", "Bytes copied between devices or within one for the step."),
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
    return declared({frame: [*SCHEMA[frame], *WHERE_KNOWN.get(frame, [])]}, frame, name)
