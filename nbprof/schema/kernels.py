"""Kernels, and how they use the multiprocessors."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, percent, text, us

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
    "kernels.frame": [
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
    "kernels.by_name": [
        text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        count("ops", "Ops", "Ops that launched it."),
        *_LAUNCHED,
    ],
    "kernels.by_op": [
        text("op", "Op", "Op that launched the kernels.", "code"),
        count("kernels", "Kernels", "Its kernels."),
        *_LAUNCHED,
    ],
    "kernels.devices": [
        Col("host", "object", "", "Host", "Machine that recorded the row.", "text", None),
        Col("device", "int64", "", "Device", "Ordinal of the GPU.", "number", 0),
        Col("name", "object", "", "Name", "What the GPU is called, where the file says.", "text", None),
        Col("window_ms", "float64", "ms", "Window ms", "From the begin of the first step to the end of the last.", "number", 2),
        percent("utilization_percent", "GPU use %", "Part of the window in which a kernel ran."),
        percent("sm_efficiency_percent", "SM eff. %", "Multiprocessors with a block to work on, mean over the window; an estimate."),
        percent("occupancy_percent", "Occup. %", "Recorded occupancy of the kernels in the window, weighted by time."),
        percent("tensor_core_percent", "TC %", "Time on TensorCores, of the kernels whose names tell."),
        Col("kernels", "int64", "", "Launches", "Kernels that ran in the window.", "number", 0),
    ],
}
