"""The schema of the frames about ops of compiled programs, as nbprof/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.frames import Col


def _text(name: str, label: str, help: str, kind: str = "text") -> Col:
    return Col(name, "object", "", label, help, kind, None)


def _count(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    return Col(name, dtype, "", label, help, "number", 0)


def _us(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "us", label, help, "number", 1)


def _rate(name: str, unit: str, label: str, help: str) -> Col:
    return Col(name, "float64", unit, label, help, "number", 1)


def _part(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "fraction", label, help, "percent", 1)


_PROGRAM = _text("program", "Program", "Name of the compiled program with its ident.", "code")
_CATEGORY = _text("category", "Category", "Kind of work, in XLA's words: loop fusion, convolution, data formatting, custom-call …")
_TIMES = [
    _count("occurrences", "Count", "Runs of the op on all devices."),
    _us("total_us", "Total µs", "Duration of all runs, ops inside included."),
    _us("self_us", "Self µs", "Duration of all runs without the ops inside."),
    _part("self_fraction", "Self %", "Self time as a part of that of all ops; idle is left out."),
]
_FLOPS = _rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations of all runs, divided by their total time.")
_BYTES = _rate("bytes_per_second", "bytes_per_second", "B/s", "Bytes that all runs read and wrote, divided by their total time.")
_INTENSITY = _rate("operational_intensity", "flops_per_byte", "FLOP/B", "Floating-point operations for each byte read or written.")
_BOUND = _text(
    "bound_by", "Bound by", "What the op comes closest to the device's peak of: Compute, HBM (main memory), or a memory on the chip."
)
_EXPRESSION = _text("expression", "Expression", "The op as XLA writes it; empty where its program is not in the file.", "code")
_SHAPE = _text("shape", "Shape", "What the op makes: element type and dimensions.", "code")
_LAYOUT = _text("layout", "Layout", "How that lies in memory: order of the dimensions, tiles, memory space.", "code")

SCHEMA: dict[str, list[Col]] = {
    "hlo": [
        _PROGRAM,
        _text("op", "Op", "Name of the op in its program.", "code"),
        _CATEGORY,
        _text("framework_op", "Framework op", "Name that the framework gave the op, with its scopes; empty where the compiler kept none."),
        *_TIMES,
        _FLOPS,
        _BYTES,
        _INTENSITY,
        _BOUND,
        _EXPRESSION,
        _text("source", "Source", "File and line of the code that asked for it.", "code"),
        _count("rank", "#", "Position by self time."),
        _us("avg_us", "Avg µs", "Total time divided by runs."),
        _us("avg_self_us", "Avg self", "Self time divided by runs."),
        _part("cumulative_fraction", "cum. %", "This row's part and those above it."),
        _rate(
            "normalized_flops_per_second",
            "flops_per_second",
            "FLOP/s as 16 bit",
            "FLOP/s where those of 8 bits count half and those of 4 bits a quarter, so that one peak fits all.",
        ),
        _rate("memory_bytes_per_second", "bytes_per_second", "HBM B/s", "Bytes a second of the device's main memory alone."),
        _rate("flops", "", "FLOPs", "Floating-point operations of all runs; missing where they are not known."),
        _rate("bytes", "bytes", "Bytes", "Bytes that all runs read and wrote; missing where they are not known."),
        Col("rematerialized", "bool", "", "Remat.", "Whether the compiler has it computed again to save memory.", "bool", None),
        _SHAPE,
        _LAYOUT,
        Col("in_file", "bool", "", "In file", "Whether the file has the op's program.", "bool", None),
        _count("program_id", "Program id", "Ident of the program, as a signed number of 64 bits."),
    ],
    "op_profile": [
        _text("path", "Path", "Names from the root down to the node, parted by ` › `.", "code"),
        _count("depth", "Depth", "0 of the root."),
        _text("name", "Name", "Program, category, scope of the framework, group of duplicates, op, or op inside a fusion.", "code"),
        _CATEGORY,
        _us("time_us", "Self µs", "Self time of the node's ops; missing of ops inside a fusion, which run as one."),
        _part("time_fraction", "Time %", "Part of the time of the root."),
        _part("flops_utilization", "FLOPS %", "FLOP/s by the device's peak; missing where either is not known."),
        _part("bandwidth_utilization", "HBM %", "Bytes a second of main memory by the device's peak; missing where either is not known."),
        _us("wasted_us", "Wasted µs", "Time that would be saved at the peak of the resource that is used best."),
        _count("occurrences", "Count", "Runs of the node's ops.", "Int64"),
        _EXPRESSION,
        _SHAPE,
        _LAYOUT,
        _text("kind", "Kind", "total, program, category, scope, duplicates, op, fused or idle."),
        _rate("flops", "", "FLOPs", "Floating-point operations of all runs."),
        _rate("bytes", "bytes", "HBM bytes", "Bytes of main memory that all runs read and wrote."),
        _text("framework_op", "Framework op", "Name that the framework gave the op."),
        _text("source", "Source", "File and line of the code that asked for it.", "code"),
        _count("parent", "Parent", "Row of the node above it; -1 of the root."),
    ],
    "roofline": [
        _count("rank", "#", "Position by self time."),
        _PROGRAM,
        _text("op", "Op", "Name of the op in its program.", "code"),
        _CATEGORY,
        *_TIMES,
        _INTENSITY,
        _rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations a second, narrow ones by their width."),
        _rate("bytes_per_second", "bytes_per_second", "HBM B/s", "Bytes a second of the device's main memory."),
        _BOUND,
        _part("roof_fraction", "Of roof", "How near the op comes to the roof above it: the larger of the two parts that follow."),
        _part("compute_fraction", "FLOPS %", "FLOP/s by the device's peak."),
        _part("bandwidth_fraction", "HBM %", "Bytes a second of main memory by the device's peak."),
        _rate("roof_flops_per_second", "flops_per_second", "Roof", "What the roof allows at the op's intensity."),
        *(
            _rate(f"{memory}_{way}_bytes_per_second", "bytes_per_second", f"{memory.upper()} {way} B/s", text)
            for memory in ("cmem", "vmem")
            for way, text in (
                ("read", f"Bytes a second read from {memory.upper()}, a memory on a TPU's chip."),
                ("write", f"Bytes a second written to {memory.upper()}, a memory on a TPU's chip."),
            )
        ),
    ],
    "roofline_steps": [
        _text("host", "Host", "Machine that recorded it."),
        _count("step", "Step", "Step number as the framework counts it."),
        _text("name", "Name", "Name of the step marker."),
        Col("step_time_ms", "float64", "ms", "Step ms", "Duration of the step.", "number", 2),
        _rate("flops_per_second", "flops_per_second", "FLOP/s", "Of one device over the time of the step, narrow ones by their width."),
        _rate("bytes_per_second", "bytes_per_second", "HBM B/s", "Bytes of one device's main memory over the time of the step."),
        _INTENSITY,
        _text("bound_by", "Bound by", "What the step comes closest to the device's peak of."),
        _part("roof_fraction", "Of roof", "How near the step comes to that peak."),
        _part("compute_fraction", "FLOPS %", "FLOP/s by the device's peak."),
        _part("bandwidth_fraction", "HBM %", "Bytes a second of main memory by the device's peak."),
        Col("counted", "bool", "", "In averages", "Whether averages use the step.", "bool", None),
    ],
}
"""`p.hlo.frame`, `p.op_profile.frame`, `p.roofline.frame` and `p.roofline.steps`."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column.

    Raises
    ------
    KeyError
        No such frame or column.
    """
    for col in SCHEMA[frame]:
        if col.name == name:
            return col
    raise KeyError(f"frame {frame!r} has no column {name!r}; it has {', '.join(col.name for col in SCHEMA[frame])}")
