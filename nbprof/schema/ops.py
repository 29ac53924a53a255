"""Ops of the framework."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, rate, text, us

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

SCHEMA: dict[str, list[Col]] = {
    "ops.frame": _OPS,
    "ops.with_idle": _OPS,
    "ops.by_type": [_WHERE, _TYPE, *_FOLDED],
    "ops.by_scope": [
        _WHERE,
        text("scope", "Scope", "Name of the ops without the last component; empty for ops without a scope.", "code"),
        *_FOLDED,
    ],
}

_OPS_WHERE_KNOWN = [
    rate("flops_per_second", "flops_per_second", "FLOP/s", "Floating-point operations of all runs, divided by their total time."),
    rate("bytes_per_second", "bytes_per_second", "B/s", "Bytes that all runs read and wrote, divided by their total time."),
    rate("operational_intensity", "flops_per_byte", "FLOP/B", "Floating-point operations for each byte read or written."),
    text("bound_by", "Bound by", "What the op comes closest to the device's peak of: Compute or main memory (HBM, else Device memory)."),
    Col("tensor_core_fraction", "float64", "fraction", "TC %", "Part of the time of its kernels on TensorCores.", "percent", 1),
]
WHERE_KNOWN: dict[str, list[Col]] = {"ops.frame": _OPS_WHERE_KNOWN, "ops.with_idle": _OPS_WHERE_KNOWN}
