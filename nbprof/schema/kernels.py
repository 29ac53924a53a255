"""Kernels, and how they use the multiprocessors."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, percent, text, us

_LAUNCHED = [
    count("occurrences", "Count", "Number of launches."),
    us("total_us", "Total µs", "Duration of all launches."),
    us("avg_us", "Avg µs", "Total time divided by launches."),
    us("min_us", "Min", "Shortest launch."),
    us("max_us", "Max", "Longest launch."),
    percent("percent", "%", "Share of the time of all kernels."),
    percent(
        "tensor_core_percent",
        "TC %",
        "Share of time on Tensor Cores, over the kernels whose names show it.",
    ),
    percent("occupancy_percent", "Occup. %", "Mean occupancy, each launch weighted by its time."),
]

_GRAPH = [
    text("host", "Host", "Machine that recorded the row."),
    Col("device", "int64", "", "Device", "Ordinal of the GPU.", "number", 0),
    count(
        "graph",
        "Graph",
        "Id of the CUDA or HIP graph, as the file states it; else numbered by first replay, equal"
        " sequences of kernels alike.",
    ),
]

SCHEMA: dict[str, list[Col]] = {
    "kernels.frame": [
        count("rank", "#", "Position by total time."),
        text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        count("registers", "Regs", "Registers per thread."),
        count(
            "static_shared_bytes",
            "Static shared B",
            "Static shared memory per block, in bytes; or of both kinds, if only their sum is"
            " recorded.",
        ),
        count(
            "dynamic_shared_bytes", "Dynamic shared B", "Dynamic shared memory per block, in bytes."
        ),
        text("block", "Block", "Threads per block: x,y,z."),
        text("grid", "Grid", "Blocks per grid: x,y,z."),
        percent(
            "occupancy_percent",
            "Occup. %",
            "Active warps by the most a multiprocessor can hold: theoretical, or PyTorch's"
            " estimate.",
        ),
        Col(
            "op_tensor_core_eligible",
            "bool",
            "",
            "TC elig.",
            "Whether the op could use Tensor Cores; unknown without an op.",
            "bool",
            None,
        ),
        Col(
            "uses_tensor_core",
            "bool",
            "",
            "used",
            "Whether the kernel uses Tensor Cores, by name; unknown for Triton's.",
            "bool",
            None,
        ),
        text("op", "Op", "Op that launched the kernel.", "code"),
        count("occurrences", "Count", "Number of launches."),
        us("total_us", "Total µs", "Duration of all launches."),
        us("avg_us", "Avg µs", "Total time divided by launches, in whole nanoseconds."),
        us("min_us", "Min", "Shortest launch."),
        us("max_us", "Max", "Longest launch."),
        text(
            "occupancy_source",
            "Occup. from",
            "Whether the occupancy was recorded, or computed from launch configuration and device.",
        ),
        text(
            "module",
            "Module",
            "Classes of the nn.Modules in which it was launched, outermost first; with graphs,"
            " captured or annotated.",
            "code",
        ),
        text(
            "source",
            "Source",
            "Lines of code that launched it; with graphs, that were captured.",
            "code",
        ),
        text(
            "aten_ops",
            "ATen ops",
            "Source ops of a torch.compile kernel, if inductor's provenance files are next to the"
            " trace.",
            "code",
        ),
    ],
    "kernels.by_name": [
        text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        count("ops", "Ops", "Ops that launched it."),
        *_LAUNCHED,
    ],
    "kernels.by_op": [
        text("op", "Op", "Op that launched the kernels.", "code"),
        count("kernels", "Kernels", "Number of kernels."),
        *_LAUNCHED,
    ],
    "kernels.graphs": [
        *_GRAPH,
        count("nodes", "Nodes", "Kernels, copies and fills of the graph that ran."),
        count("replays", "Replays", "How often it was launched."),
        us("total_us", "Total µs", "Duration of all kernels, copies and fills of its replays."),
        us(
            "avg_us",
            "Avg µs",
            "Mean time from the start of a replay's first to the end of its last.",
        ),
        us("min_us", "Min", "Shortest replay."),
        us("max_us", "Max", "Longest replay."),
    ],
    "kernels.graph_nodes": [
        *_GRAPH,
        count(
            "node",
            "Node",
            "The node as the file states it (the low 32 bits count as captured); else its position"
            " in the replay.",
        ),
        text("kernel", "Kernel", "Name of its kernel, copy or fill.", "code"),
        text(
            "op",
            "Op",
            "Op that was captured as the node; else PyTorch's annotation, or what is around the"
            " launch of the graph.",
            "code",
        ),
        text(
            "module",
            "Module",
            "The nn.Module in which it was captured, with its parents, outermost first; else the"
            " one it was annotated with.",
            "code",
        ),
        text("source", "Source", "Lines of code that were captured.", "code"),
        text("aten_ops", "ATen ops", "Source ops of a torch.compile kernel, if known.", "code"),
        count("replays", "Replays", "How often it ran."),
        us("total_us", "Total µs", "Duration of all its runs."),
        us("avg_us", "Avg µs", "Total time divided by runs."),
        us("min_us", "Min", "Shortest run."),
        us("max_us", "Max", "Longest run."),
    ],
    "kernels.devices": [
        Col("host", "object", "", "Host", "Machine that recorded the row.", "text", None),
        Col("device", "int64", "", "Device", "Ordinal of the GPU.", "number", 0),
        Col("name", "object", "", "Name", "Name of the GPU, if the file states it.", "text", None),
        Col(
            "window_ms",
            "float64",
            "ms",
            "Window ms",
            "From the start of the first step to the end of the last.",
            "number",
            2,
        ),
        percent("utilization_percent", "GPU use %", "Share of the window in which a kernel ran."),
        percent(
            "sm_efficiency_percent",
            "SM eff. %",
            "Estimated share of multiprocessors with at least one block, mean over the window.",
        ),
        percent(
            "occupancy_percent",
            "Occup. %",
            "Recorded occupancy of the kernels in the window, weighted by time.",
        ),
        percent(
            "tensor_core_percent",
            "TC %",
            "Share of time on Tensor Cores, over the kernels whose names show it.",
        ),
        Col("kernels", "int64", "", "Launches", "Kernels that ran in the window.", "number", 0),
    ],
}
