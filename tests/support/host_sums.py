"""How each column of a public frame changes when several equal hosts, or ranks, are recorded
instead of one.

N hosts that do the same are N times one host. Counts and sums are N times as large; means, shares,
rates, extremes and figures of one step are the same. A frame with a column of hosts has the rows of
each host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nbprof.schema.columns import Col

SUM, SAME, NEITHER = "sum", "same", "neither"

_HOST = ("host", "worker", "memory_id")
_FOLDED = ("memory_viewer.modules",)
"""Frames that name a host, but have a row for all."""
_INTENSIVE = re.compile(
    r"(?:avg|mean|median|p95|p99|min|max|fastest|longest)_|.*_avg_|.*_per_(?:step|second)\Z"
)
_SAME = {
    "overview.host_parts": ("ms",),
    "overview.tf_functions": ("tracings",),
    "runs": ("first_step", "last_step"),
    "pods.summary": ("slowest_ms", "step"),
    "ops.by_type": ("ops",),
    "ops.by_scope": ("ops",),
    "ops.tree": ("depth", "parent"),
    "torch_ops.modules": ("depth",),
    "kernels.frame": ("registers", "static_shared_bytes", "dynamic_shared_bytes"),
    "kernels.by_name": ("ops",),
    "kernels.by_op": ("kernels",),
    "hlo.frame": ("program_id",),
    "lines.frame": ("line",),
    "ranges.frame": ("depth",),
    "serving.summary": ("token_ms", "gap_ms"),
    "python.functions": ("line",),
    "python.lines": ("line",),
    "python.tree": ("line", "depth", "parent"),
    "op_profile.frame": ("depth", "parent"),
    "device_time.collectives": ("group_size", "bytes"),
    "device_time.critical_path": ("pieces", "total_us"),
    "device_time.critical_path_pieces": ("start_ms", "duration_us"),
    "ascend.pmu.types": ("memory_bound",),
    "ascend.rules.frame": ("limit",),
    "memory_viewer.modules": (
        "program",
        "instructions",
        "peak_bytes",
        "peak_unpadded_bytes",
        "total_bytes",
        "argument_bytes",
        "output_bytes",
        "constant_bytes",
        "temporary_bytes",
        "capacity_bytes",
        "spare_bytes",
        "batch",
        "largest_batch",
    ),
    **dict.fromkeys(
        ("memory_viewer[module].timeline", "memory_viewer[module].at_peak"),
        (
            "position",
            "allocated_bytes",
            "unpadded_bytes",
            "size_bytes",
            "padding_ratio",
            "allocation",
            "start",
            "end",
            "buffer_id",
        ),
    ),
    **dict.fromkeys(
        ("comparison.verdict", "comparison.categories", "comparison.findings"),
        (
            "before_ms",
            "after_ms",
            "change_ms",
            "margin_ms",
            "speedup",
            "before_steps",
            "after_steps",
            "recorded_before_ms",
            "recorded_after_ms",
        ),
    ),
    "comparison.figures": ("before", "after", "change"),
    **dict.fromkeys(
        ("comparison.python", "comparison.device_ops", "comparison.host_ops"),
        (
            "depth",
            "parent",
            "line",
            "before_self_ms",
            "after_self_ms",
            "before_total_ms",
            "after_total_ms",
            "self_change_ms",
            "self_margin_ms",
            "change_ms",
            "margin_ms",
        ),
    ),
    **dict.fromkeys(
        ("comparison.ops", "comparison.kernels"),
        ("before_us", "after_us", "change_us", "before_calls", "after_calls"),
    ),
}
"""Numbers without a unit, and times, that are said of a step, of a program, of an op or of its
name: every host says the same.
"""
_ALONE = "known where several hosts were recorded"
_SENTENCE = "a sentence, which may state a sum or name a host"
REASONS: dict[str, str] = {
    "advice.evidence": _SENTENCE,
    "runs.run": "the name of a file or folder",
    "runs.path": "the path of a file",
    "steps.summary.sd_ms": "the estimate with n - 1 comes closer to the deviation of the steps, the more there are",
    "pods.summary.slowest": "the name of a host",
    "pods.summary.spread_percent": _ALONE,
    "pods.missing": "what is not there is of no host",
    **dict.fromkeys(
        (f"pods.{name}" for name in ("stragglers", "what_if", "outliers", "collectives", "clocks")),
        _ALONE,
    ),
    **{
        f"device_time.collectives.{name}": _ALONE
        for name in (
            "collectives",
            "wait_ms",
            "wait_percent",
            "real_us",
            "min_real_us",
            "max_real_us",
        )
    },
    **{
        f"device_time.collectives.{name}": _ALONE
        for name in ("algorithm_gb_per_second", "bus_gb_per_second")
    },
    **{
        f"device_time.each_collective.{name}": _ALONE
        for name in ("ranks_seen", "real_us", "wait_us", "late_us", "last", "match")
    },
    **{
        f"device_time.each_collective.{name}": _ALONE
        for name in ("algorithm_gb_per_second", "bus_gb_per_second")
    },
    "device_time.stragglers": _ALONE,
    "ascend.rules.frame.value": "in the unit of its rule: tasks add up, times and shares do not",
    "ascend.rules.frame.state": "rules that compare devices know nothing of one",
    "ascend.rules.frame.evidence": _SENTENCE,
    **dict.fromkeys(
        (
            f"allocator.{name}"
            for name in ("summary", "segments", "blocks", "timeline", "stranded", "holders", "oom")
        ),
        "a snapshot is of one process",
    ),
    "trace.events.event": "the number of an event in the recording",
    "trace.tracks.lane": "the number of a thread in the recording",
    "trace.tracks.name": "counters of memory name their host",
    "trace.lanes.lane": "the number of a thread in the recording",
    "trace.gaps": "the longest gaps of all devices, up to a number",
    "comparison.evidence": _SENTENCE,
    "comparison.verdict.detail": _SENTENCE,
}
"""Why a frame or a column is neither, by its name."""


def of_each(columns: Iterable[Col], frame: str) -> bool:
    """Whether a frame has the rows of each host."""
    return frame not in _FOLDED and any(col.name in _HOST for col in columns)


def extent(frame: str, col: Col) -> str:
    """How a column of a frame goes with the hosts that are recorded: `SUM`, `SAME` or, for one of
    `REASONS`, `NEITHER`.
    """
    if frame in REASONS or f"{frame}.{col.name}" in REASONS:
        return NEITHER
    # Self time of all lanes as a part of the range: lanes that run side by side add up.
    if col.kind in ("text", "code", "bool", "flag") or (
        col.kind == "percent" and frame != "trace.range"
    ):
        return SAME
    if (
        col.name in ("rank", *_SAME.get(frame, ()))
        or _INTENSIVE.match(col.name)
        or "_per_" in col.unit
    ):
        return SAME
    return SUM
