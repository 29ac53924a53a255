"""What follows for the whole profile, and the devices that it is of."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, rate, size, text, us

_HOST = text("host", "Host", "Machine that recorded the row.")

SCHEMA: dict[str, list[Col]] = {
    "overview.checks": [
        text("check", "Check", "What was looked at."),
        percent("percent", "%", "Its measure: of step time, compute or op time."),
        text("level", "Level", "What was found: high, moderate, no or unknown."),
        text("statement", "What follows", "What it means, with the number."),
        text("view", "View", "Tab that shows it."),
    ],
    "overview.tf_functions": [
        text("function", "Function", "Name of the tf.function.", "code"),
        count("calls", "Calls", "Calls of it."),
        count("tracings", "Tracings", "How often it had been traced by its last call."),
        us("self_us", "Self µs", "Duration of all calls without those of functions inside."),
        percent("expensive_percent", "Expensive %", "Part of that in calls that traced it or ran it eagerly."),
        ms("expensive_ms_per_step", "Expensive / step", "Such calls in the steps that averages use, a step."),
    ],
    "overview.top_ops": [
        count("rank", "#", "Position by self time."),
        text("op", "Operation", "Full name of the op with its name scopes.", "code"),
        text("type", "Type", "Type of the op."),
        ms("self_ms", "ms", "Self time in the whole profile, summed over devices and threads.", 3),
        ms("ms_per_step", "ms / step", "Self time by the number of steps, summed over devices and threads: it may exceed the step.", 3),
        percent("percent", "% of side", "Self time as a part of all self time on its side, idle excluded."),
        percent("cumulative_percent", "cum. %", "This row and all above it."),
    ],
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
    "runs": [
        text("run", "Run", "Name of its folder."),
        count("first_step", "First step", "Counted from 1; missing where no step was marked.", "Int64"),
        count("last_step", "Last step", "Counted from 1; missing where no step was marked.", "Int64"),
        flag("shown", "Shown", "Whether it is this profile."),
        text("path", "Path", "Folder, as `nbprof.load` takes it.", "code"),
    ],
}
