"""Ops of compiled programs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, part, rate, text, us

_PROGRAM = text("program", "Program", "Name of the compiled program with its ident.", "code")
_CATEGORY = text("category", "Category", "Kind of work, in XLA's words: loop fusion, convolution, data formatting, custom-call …")
_TIMES = [
    count("occurrences", "Count", "Runs of the op on all devices."),
    us("total_us", "Total µs", "Duration of all runs, ops inside included."),
    us("self_us", "Self µs", "Duration of all runs without the ops inside."),
    part("self_fraction", "Self %", "Self time as a part of that of all ops; idle is left out."),
]
_FLOPS = rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations of all runs, divided by their total time.")
_BYTES = rate("bytes_per_second", "bytes_per_second", "B/s", "Bytes that all runs read and wrote, divided by their total time.")
_INTENSITY = rate("operational_intensity", "flops_per_byte", "FLOP/B", "Floating-point operations for each byte read or written.")
_BOUND = text(
    "bound_by",
    "Bound by",
    "What the op comes closest to the device's peak of: Compute, its main memory (HBM, Device memory where that is none, Main memory of a "
    "CPU), or a memory on the chip.",
)
_UNKNOWN = part(
    "unknown_fraction",
    "Unknown %",
    "Part of the time of ops of which neither FLOPs nor bytes are known, as of most custom calls: rates, shares and waste leave it out.",
)
_EXPRESSION = text("expression", "Expression", "The op as XLA writes it; empty where its program is not in the file.", "code")
_SHAPE = text("shape", "Shape", "What the op makes: element type and dimensions.", "code")
_LAYOUT = text("layout", "Layout", "How that lies in memory: order of the dimensions, tiles, memory space.", "code")

SCHEMA: dict[str, list[Col]] = {
    "hlo.frame": [
        _PROGRAM,
        text("op", "Op", "Name of the op in its program.", "code"),
        _CATEGORY,
        text("framework_op", "Framework op", "Name that the framework gave the op, with its scopes; empty where the compiler kept none."),
        *_TIMES,
        _FLOPS,
        _BYTES,
        _INTENSITY,
        _BOUND,
        _EXPRESSION,
        text("source", "Source", "File and line of the code that asked for it.", "code"),
        count("rank", "#", "Position by self time."),
        us("avg_us", "Avg µs", "Total time divided by runs."),
        us("avg_self_us", "Avg self", "Self time divided by runs."),
        part("cumulative_fraction", "cum. %", "This row's part and those above it."),
        rate(
            "normalized_flops_per_second",
            "flops_per_second",
            "FLOP/s as 16 bit",
            "FLOP/s where those of 8 bits count half and those of 4 bits a quarter, so that one peak fits all.",
        ),
        rate("memory_bytes_per_second", "bytes_per_second", "Memory B/s", "Bytes a second of the device's main memory alone."),
        rate("flops", "", "FLOPs", "Floating-point operations of all runs; missing where they are not known."),
        rate("bytes", "bytes", "Bytes", "Bytes that all runs read and wrote; missing where they are not known."),
        Col("rematerialized", "bool", "", "Remat.", "Whether the compiler has it computed again to save memory.", "bool", None),
        _SHAPE,
        _LAYOUT,
        Col("in_file", "bool", "", "In file", "Whether the file has the op's program.", "bool", None),
        count("program_id", "Program id", "Ident of the program, as a signed number of 64 bits."),
    ],
    "op_profile.frame": [
        text("path", "Path", "Names from the root down to the node, parted by ` › `.", "code"),
        count("depth", "Depth", "0 of the root."),
        text("name", "Name", "Program, category, scope of the framework, group of duplicates, op, or op inside a fusion.", "code"),
        _CATEGORY,
        us("time_us", "Self µs", "Self time of the node's ops; missing of ops inside a fusion, which run as one."),
        part("time_fraction", "Time %", "Part of the time of the root."),
        part("flops_utilization", "FLOPS %", "FLOP/s by the device's peak; missing where either is not known."),
        part("bandwidth_utilization", "Memory %", "Bytes a second of main memory by the device's peak; missing where either is not known."),
        us(
            "wasted_us",
            "Wasted µs",
            "Time that would be saved at the peak of what is used best: self time × (1 − the larger of FLOPS % and Memory %, 1 at most), "
            "as in XProf. Of a node with several ops both are those of all together, so it is not the sum of what is wasted inside: more "
            "where some use the one and others the other, less where an op is above its peak.",
        ),
        count("occurrences", "Count", "Runs of the node's ops.", "Int64"),
        _EXPRESSION,
        _SHAPE,
        _LAYOUT,
        text("kind", "Kind", "total, program, category, scope, duplicates, op, fused or idle."),
        rate("flops", "", "FLOPs", "Floating-point operations of all runs."),
        rate("bytes", "bytes", "Memory bytes", "Bytes of main memory that all runs read and wrote."),
        text("framework_op", "Framework op", "Name that the framework gave the op."),
        text("source", "Source", "File and line of the code that asked for it.", "code"),
        count("parent", "Parent", "Row of the node above it; -1 of the root."),
        _UNKNOWN,
    ],
    "roofline.frame": [
        count("rank", "#", "Position by self time."),
        _PROGRAM,
        text("op", "Op", "Name of the op in its program.", "code"),
        _CATEGORY,
        *_TIMES,
        _INTENSITY,
        rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations a second, narrow ones by their width."),
        rate("bytes_per_second", "bytes_per_second", "Memory B/s", "Bytes a second of the device's main memory."),
        _BOUND,
        part("roof_fraction", "Of roof", "How near the op comes to the roof above it: the larger of the two parts that follow."),
        part("compute_fraction", "FLOPS %", "FLOP/s by the device's peak."),
        part("bandwidth_fraction", "Memory %", "Bytes a second of main memory by the device's peak."),
        rate("roof_flops_per_second", "flops_per_second", "Roof", "What the roof allows at the op's intensity."),
        *(
            rate(f"{memory}_{way}_bytes_per_second", "bytes_per_second", f"{memory.upper()} {way} B/s", text)
            for memory in ("cmem", "vmem")
            for way, text in (
                ("read", f"Bytes a second read from {memory.upper()}, a memory on a TPU's chip."),
                ("write", f"Bytes a second written to {memory.upper()}, a memory on a TPU's chip."),
            )
        ),
    ],
    "roofline.steps": [
        text("host", "Host", "Machine that recorded it."),
        count("step", "Step", "Step number as the framework counts it."),
        text("name", "Name", "Name of the step marker."),
        Col("step_time_ms", "float64", "ms", "Step ms", "Duration of the step.", "number", 2),
        rate("flops_per_second", "flops_per_second", "FLOP/s", "Of one device over the time of the step, narrow ones by their width."),
        rate("bytes_per_second", "bytes_per_second", "Memory B/s", "Bytes of one device's main memory over the time of the step."),
        _INTENSITY,
        text("bound_by", "Bound by", "What the step comes closest to the device's peak of."),
        part("roof_fraction", "Of roof", "How near the step comes to that peak."),
        part("compute_fraction", "FLOPS %", "FLOP/s by the device's peak."),
        part("bandwidth_fraction", "Memory %", "Bytes a second of main memory by the device's peak."),
        Col("counted", "bool", "", "In averages", "Whether averages use the step.", "bool", None),
        _UNKNOWN,
    ],
}
