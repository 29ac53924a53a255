"""Ops of the framework."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, rate, text, us

_WHERE = text("where", "Where", "Where the op ran: device or host.")
_TYPE = text("type", "Type", "Type of the op in the framework.")
_OPS = [
    count("rank", "#", "Position by self time, device first."),
    _WHERE,
    _TYPE,
    text("op", "Operation", "Full name of the op, with name scopes.", "code"),
    count("occurrences", "Count", "Runs of the op."),
    us("total_us", "Total µs", "Total duration, including nested ops."),
    us("avg_us", "Avg µs", "Total time divided by runs."),
    us("self_us", "Self µs", "Total duration, excluding nested ops."),
    us("avg_self_us", "Avg self", "Self time divided by runs."),
    Col(
        "self_fraction",
        "float64",
        "fraction",
        "Self %",
        "Share of all self time on the same side (device or host).",
        "percent",
        1,
    ),
    Col(
        "cumulative_fraction",
        "float64",
        "fraction",
        "cum. %",
        "Self % of this row and all above it on the same side.",
        "percent",
        1,
    ),
    Col(
        "eager",
        "bool",
        "",
        "Eager",
        "Whether any run was eager, not in a graph or compiled; NA where that was not recorded.",
        "bool",
        None,
    ),
]
_FOLDED = [
    count("ops", "Ops", "Number of ops."),
    count("occurrences", "Count", "Runs of the ops."),
    us("total_us", "Total µs", "Total duration; nested ops of the group each count."),
    us("self_us", "Self µs", "Total duration, excluding nested ops."),
    Col(
        "self_fraction",
        "float64",
        "fraction",
        "Self %",
        "Share of all self time on the same side (device or host).",
        "percent",
        1,
    ),
]

SCHEMA: dict[str, list[Col]] = {
    "ops.frame": _OPS,
    "ops.with_idle": _OPS,
    "ops.by_type": [_WHERE, _TYPE, *_FOLDED],
    "ops.by_scope": [
        _WHERE,
        text(
            "scope",
            "Scope",
            "Op name without its last component; empty for ops without a scope.",
            "code",
        ),
        *_FOLDED,
    ],
    "ops.tree": [
        _WHERE,
        count("parent", "Parent", "Row of the module or op around it; -1 for the outermost ones."),
        count("depth", "Depth", "Number of modules and ops around it."),
        text("kind", "Kind", "module (of PyTorch, or a name scope), op or kernel."),
        text("name", "Name", "Class of the module or part of the scope; op; kernel.", "code"),
        us("self_us", "Self µs", "Self time outside of what is in it."),
        us("total_us", "Total µs", "The same with what is in it."),
    ],
}

_OPS_WHERE_KNOWN = [
    rate(
        "flops_per_second",
        "flops_per_second",
        "FLOP/s",
        "Floating-point operations divided by total time.",
    ),
    rate(
        "bytes_per_second",
        "bytes_per_second",
        "B/s",
        "Bytes read and written, divided by total time.",
    ),
    rate(
        "operational_intensity",
        "flops_per_byte",
        "FLOP/B",
        "Floating-point operations per byte read or written.",
    ),
    text(
        "bound_by",
        "Nearest peak",
        "The device limit that the op comes closest to, however far away: Compute or main memory"
        " (HBM, or else Device memory).",
    ),
    Col(
        "tensor_core_fraction",
        "float64",
        "fraction",
        "TC %",
        "Share of its kernel time on Tensor Cores.",
        "percent",
        1,
    ),
]
WHERE_KNOWN: dict[str, list[Col]] = {
    "ops.frame": _OPS_WHERE_KNOWN,
    "ops.with_idle": _OPS_WHERE_KNOWN,
}
