"""Ops of compiled programs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, part, rate, text, us

_PROGRAM = text("program", "Program", "Name of the compiled program with its id.", "code")
_CATEGORY = text(
    "category",
    "Category",
    "Category as XLA names it: loop fusion, convolution, data formatting, custom-call …",
)
_TIMES = [
    count("occurrences", "Count", "Runs of the op on all devices."),
    us("total_us", "Total µs", "Total duration, including nested ops."),
    us("self_us", "Self µs", "Total duration, excluding nested ops."),
    part("self_fraction", "Self %", "Share of the self time of all ops, idle time excluded."),
]
_FLOPS = rate(
    "flops_per_second",
    "flops_per_second",
    "FLOP/s",
    "Floating-point operations divided by total time.",
)
_BYTES = rate(
    "bytes_per_second", "bytes_per_second", "B/s", "Bytes read and written, divided by total time."
)
_INTENSITY = rate(
    "operational_intensity",
    "flops_per_byte",
    "FLOP/B",
    "Floating-point operations per byte read or written.",
)
_NEAREST = text(
    "bound_by",
    "Nearest peak",
    "The peak of the device that the op comes closest to, however far it is: Compute, main memory"
    " (HBM, Device memory without HBM, or Main memory of a CPU), or on-chip memory.",
)
_BOUND = text(
    "bound",
    "Bound by",
    "The nearest peak if the op reaches 60% of it; else Latency: near no peak, the op waits for"
    " launches, dependencies, enough parallel work, or a link to the host or other devices. Empty"
    " if unknown.",
)
_UNKNOWN = part(
    "unknown_fraction",
    "Unknown %",
    "Share of the time in ops whose FLOPs and bytes are unknown, as of most custom calls: excluded"
    " from rates, shares and waste.",
)
_EXPRESSION = text(
    "expression",
    "Expression",
    "The op as HLO text; empty if the file does not have its program.",
    "code",
)
_SHAPE = text("shape", "Shape", "Shape of the result: element type and dimensions.", "code")
_LAYOUT = text(
    "layout",
    "Layout",
    "Layout of the result in memory: order of dimensions, tiles, memory space.",
    "code",
)

SCHEMA: dict[str, list[Col]] = {
    "hlo.frame": [
        _PROGRAM,
        text("op", "Op", "Name of the op in its program.", "code"),
        _CATEGORY,
        text(
            "framework_op",
            "Framework op",
            "Framework name of the op with its scopes; empty if the compiler kept none.",
        ),
        *_TIMES,
        _FLOPS,
        _BYTES,
        _INTENSITY,
        _NEAREST,
        _EXPRESSION,
        text("source", "Source", "File and line of the code it comes from.", "code"),
        count("rank", "#", "Position by self time."),
        us("avg_us", "Avg µs", "Total time divided by runs."),
        us("avg_self_us", "Avg self", "Self time divided by runs."),
        part("cumulative_fraction", "cum. %", "Self % of this row and all above it."),
        rate(
            "normalized_flops_per_second",
            "flops_per_second",
            "FLOP/s as 16 bit",
            "FLOP/s, 8-bit operations counted half and 4-bit ones a quarter, so that one peak"
            " applies to all.",
        ),
        rate(
            "memory_bytes_per_second",
            "bytes_per_second",
            "Memory B/s",
            "Bytes per second to and from main memory alone.",
        ),
        rate("flops", "", "FLOPs", "Floating-point operations of all runs; missing if unknown."),
        rate("bytes", "bytes", "Bytes", "Bytes read and written by all runs; missing if unknown."),
        Col(
            "rematerialized",
            "bool",
            "",
            "Remat.",
            "Whether the op is rematerialized: computed again to save memory.",
            "bool",
            None,
        ),
        _SHAPE,
        _LAYOUT,
        Col(
            "in_file",
            "bool",
            "",
            "In file",
            "Whether the file contains the op's program.",
            "bool",
            None,
        ),
        count("program_id", "Program id", "Id of the program, as a signed 64-bit integer."),
        _BOUND,
    ],
    "op_profile.frame": [
        text("path", "Path", "Names from the root to the node, separated by ` › `.", "code"),
        count("depth", "Depth", "Depth in the tree; 0 for the root."),
        text(
            "name",
            "Name",
            "Program, category, framework scope, group of duplicates, op, or op inside a fusion.",
            "code",
        ),
        _CATEGORY,
        us(
            "time_us",
            "Self µs",
            "Self time of the node's ops; missing for ops inside a fusion, which run as one.",
        ),
        part("time_fraction", "Time %", "Share of the root's time."),
        part(
            "flops_utilization",
            "FLOPS %",
            "FLOP/s divided by the device's peak; missing if either is unknown.",
        ),
        part(
            "bandwidth_utilization",
            "Memory %",
            "Main memory bytes per second by the device's peak; missing if either is unknown.",
        ),
        us(
            "wasted_us",
            "Wasted µs",
            "Time saved if the better used resource were at its peak: self time × (1 − the larger"
            " of FLOPS % and Memory %, 1 at most), as in XProf. For a node with several ops both"
            " are those of all ops combined, so it is not the sum over them: it is larger where"
            " some ops use the one resource and others the other, smaller where an op is above its"
            " peak.",
        ),
        count("occurrences", "Count", "Runs of the node's ops.", "Int64"),
        _EXPRESSION,
        _SHAPE,
        _LAYOUT,
        text("kind", "Kind", "total, program, category, scope, duplicates, op, fused or idle."),
        rate("flops", "", "FLOPs", "Floating-point operations of all runs."),
        rate(
            "bytes",
            "bytes",
            "Memory bytes",
            "Bytes read from and written to main memory by all runs.",
        ),
        text("framework_op", "Framework op", "Framework name of the op."),
        text("source", "Source", "File and line of the code it comes from.", "code"),
        count("parent", "Parent", "Row of the parent node; -1 for the root."),
        _UNKNOWN,
    ],
    "roofline.frame": [
        count("rank", "#", "Position by self time."),
        _PROGRAM,
        text("op", "Op", "Name of the op in its program.", "code"),
        _CATEGORY,
        *_TIMES,
        _INTENSITY,
        rate(
            "flops_per_second",
            "flops_per_second",
            "FLOP/s",
            "Floating-point operations per second, narrow ones scaled to 16 bit.",
        ),
        rate(
            "bytes_per_second",
            "bytes_per_second",
            "Memory B/s",
            "Bytes per second to and from the device's main memory.",
        ),
        _NEAREST,
        part(
            "roof_fraction",
            "Of roof",
            "How close the op comes to the roofline: the larger of the next two columns.",
        ),
        part("compute_fraction", "FLOPS %", "FLOP/s divided by the device's peak."),
        part(
            "bandwidth_fraction",
            "Memory %",
            "Main memory bytes per second divided by the device's peak.",
        ),
        rate(
            "roof_flops_per_second",
            "flops_per_second",
            "Roof",
            "Highest FLOP/s that the roofline allows at the op's intensity.",
        ),
        *(
            rate(
                f"{memory}_{way}_bytes_per_second",
                "bytes_per_second",
                f"{memory.upper()} {way} B/s",
                text,
            )
            for memory in ("cmem", "vmem")
            for way, text in (
                ("read", f"Bytes per second read from {memory.upper()}, on-chip memory of a TPU."),
                (
                    "write",
                    f"Bytes per second written to {memory.upper()}, on-chip memory of a TPU.",
                ),
            )
        ),
        text(
            "input_shapes",
            "Input shapes",
            "Shapes of the inputs of a PyTorch op, as recorded with record_shapes=True; empty for"
            " XLA.",
            "code",
        ),
        text(
            "precision",
            "Precision",
            "Type of element that a PyTorch op computes with; tf32 for float32 products on Tensor"
            " Cores; empty for XLA.",
        ),
        rate("flops", "", "FLOPs", "Floating-point operations of all runs; missing if unknown."),
        rate(
            "bytes",
            "bytes",
            "Memory bytes",
            "Bytes read from and written to main memory by all runs; missing if unknown.",
        ),
        us(
            "wasted_us",
            "Wasted µs",
            "Self time above the roofline's: self time × (1 − Of roof, 1 at most); missing if Of"
            " roof is unknown.",
        ),
        _BOUND,
    ],
    "roofline.steps": [
        text("host", "Host", "Machine that recorded the row."),
        count("step", "Step", "Step number, as counted by the framework."),
        text("name", "Name", "Name of the step marker."),
        Col("step_time_ms", "float64", "ms", "Step ms", "Duration of the step.", "number", 2),
        rate(
            "flops_per_second",
            "flops_per_second",
            "FLOP/s",
            "FLOP/s per device over the step time, narrow operations scaled to 16 bit.",
        ),
        rate(
            "bytes_per_second",
            "bytes_per_second",
            "Memory B/s",
            "Main memory bytes per second per device over the step time.",
        ),
        _INTENSITY,
        text(
            "bound_by",
            "Nearest peak",
            "The peak of the device that the step comes closest to, however far it is.",
        ),
        part("roof_fraction", "Of roof", "How close the step comes to that peak."),
        part("compute_fraction", "FLOPS %", "FLOP/s divided by the device's peak."),
        part(
            "bandwidth_fraction",
            "Memory %",
            "Main memory bytes per second divided by the device's peak.",
        ),
        Col(
            "counted", "bool", "", "In averages", "Whether averages include the step.", "bool", None
        ),
        _UNKNOWN,
        rate(
            "model_flops",
            "",
            "Model FLOPs",
            "FLOPs of PyTorch's products, convolutions and attention of a host's devices,"
            " recomputed ones left out; missing for XLA.",
        ),
        rate(
            "recomputed_flops",
            "",
            "Recomputed FLOPs",
            "FLOPs of such ops that ran again for the backward pass (activation checkpointing).",
        ),
        part(
            "mfu_fraction",
            "MFU",
            "Model FLOPs utilization: time that the model FLOPs take at the peaks of their"
            " precisions, divided by step time.",
        ),
    ],
}
