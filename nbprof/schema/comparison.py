"""A comparison of two runs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, size, text


def _number(name: str, unit: str, label: str, help: str, digits: int) -> Col:
    return Col(
        name, "float64", unit, label, help, "percent" if unit == "percent" else "number", digits
    )


def _real(help: str) -> Col:
    return Col("real", "boolean", "", "Real", help, "bool", None)


_STATE = text(
    "state", "State", "both, renamed (only the copy numbers in the name differ), new or gone."
)
_CATEGORY = text("category", "Category", "Step-time category it is drawn in.")
_TIMES = [
    _number(
        "before_us",
        "us",
        "Before",
        "Time before: per step if both runs have steps, otherwise in the whole profile.",
        1,
    ),
    _number("after_us", "us", "After", "Time after, likewise.", 1),
    _number(
        "change_us", "us", "Change", "Time after minus time before; a missing side counts as 0.", 1
    ),
    _number("before_calls", "", "Count before", "Occurrences before, likewise.", 1),
    _number("after_calls", "", "Count after", "Occurrences after, likewise.", 1),
]
_CHANGE = [
    _number("change", "", "Change", "After minus before, in the unit of the figure.", 2),
    _number(
        "change_percent",
        "percent",
        "%",
        "Change in percent of the value before; missing for percentages, which change in points.",
        1,
    ),
]


def _per_step(name: str, label: str, help: str) -> Col:
    return _number(name, "ms", label, help, 3)


_CALLS = [
    count("parent", "Caller", "Row of the frame around it; -1 for the outermost ones."),
    count("depth", "Depth", "Number of frames around it."),
    text("name", "Frame", "Function; module, op or kernel.", "code"),
    text("file", "File", "File of the function after the change; empty for ops.", "code"),
    count("line", "Line", "First line of the function after the change; NA for ops.", "Int64"),
    text("state", "State", "both, new (not before) or gone (not after)."),
    _per_step(
        "before_self_ms",
        "Self before",
        "Time in it alone before: per step if both runs have steps, else in the whole profile.",
    ),
    _per_step("after_self_ms", "Self after", "The same after."),
    _per_step("before_total_ms", "Before", "Time before, with what it calls."),
    _per_step("after_total_ms", "After", "The same after."),
    _per_step("self_change_ms", "Self change", "Self time after minus before; NA counts as 0."),
    _per_step(
        "self_margin_ms",
        "Self ±",
        "Half the width of the 95 % interval of that (Welch); NA for ops, and of fewer than five"
        " steps or samples.",
    ),
    Col("self_real", "boolean", "", "Self real", "Whether that interval excludes 0.", "bool", None),
    _per_step("change_ms", "Change", "Total time after minus before; NA counts as 0."),
    _per_step("margin_ms", "±", "Half the width of the 95 % interval of that, likewise."),
    _real("Whether that interval excludes 0; missing without an interval."),
]

SCHEMA: dict[str, list[Col]] = {
    "comparison.python": _CALLS,
    "comparison.device_ops": _CALLS,
    "comparison.host_ops": _CALLS,
    "comparison.verdict": [
        text("verdict", "Verdict", "real, some, typical, serial, chance, none, same or unknown."),
        text("headline", "Headline", "The verdict in one sentence."),
        text("detail", "Detail", "What changed most."),
        _number(
            "before_ms",
            "ms",
            "Before ms",
            "Mean step time before: without the profiler where both runs have such steps.",
            2,
        ),
        _number("after_ms", "ms", "After ms", "The same after.", 2),
        _number(
            "change_ms",
            "ms",
            "Change ms",
            "Difference that the verdict judges: of the means, or of the typical (median) step.",
            2,
        ),
        _number(
            "margin_ms",
            "ms",
            "± ms",
            "Half the width of its 95 % confidence interval; missing if a run has only one step.",
            2,
        ),
        _number("speedup", "", "Speed-up", "Mean before divided by mean after.", 2),
        Col("before_steps", "int64", "", "Steps before", "Steps included.", "number", 0),
        Col("after_steps", "int64", "", "Steps after", "Steps included.", "number", 0),
        text(
            "steps_are",
            "Steps are",
            "bare, if the compared steps ran without the profiler, or recorded.",
        ),
        _number("recorded_before_ms", "ms", "Recorded before ms", "Mean recorded step before.", 2),
        _number("recorded_after_ms", "ms", "Recorded after ms", "The same after.", 2),
        text(
            "recorded_reason",
            "Why recorded",
            "Why bare steps were not compared; empty where they were.",
        ),
    ],
    "comparison.evidence": [
        Col("ok", "bool", "", "OK", "Whether it supports the comparison.", "bool", None),
        text("text", "Evidence", "What was found, what differs, or what is unknown."),
    ],
    "comparison.findings": [
        text("rule", "Rule", "The rule of `docs/advice.md`."),
        text("title", "Finding", "What to change."),
        text(
            "state",
            "State",
            "gone (found before only), still found (in both runs) or new (found after only).",
        ),
        text(
            "gain_is",
            "Gain is",
            "Kind of gain: up to (a bound), about (an estimate) or at least; empty if there is"
            " none.",
        ),
        _number(
            "before_ms",
            "ms",
            "Before ms",
            "The predicted gain per step before; missing if none.",
            2,
        ),
        _number("after_ms", "ms", "After ms", "The same after.", 2),
    ],
    "comparison.figures": [
        text(
            "figure",
            "Figure",
            "bare_step_time (without the profiler), step_time (recorded), input, device_busy,"
            " ops_on_device, examples_per_second, steps_per_second or peak_memory.",
        ),
        text("unit", "Unit", "Unit of the values: ms, percent, 1/s or bytes."),
        _number("before", "", "Before", "Value before.", 2),
        _number("after", "", "After", "Value after.", 2),
        *_CHANGE,
    ],
    "comparison.memory": [
        text("role", "Role", "What the memory is used for, as in p.memory.roles."),
        text(
            "moment",
            "Moment",
            "peak, snapshot of PyTorch's allocator (p.allocator.roles), or plan of a compiled"
            " program.",
        ),
        size("before_bytes", "Before", "Bytes of that before; missing if unknown.", "Int64"),
        size("after_bytes", "After", "Bytes of that after; missing if unknown.", "Int64"),
        size("change_bytes", "Change", "After minus before; missing if one is unknown.", "Int64"),
        text("reason", "Why missing", "Why bytes are missing; empty where none are."),
    ],
    "comparison.allocator": [
        count("device", "GPU", "Device number."),
        text("location", "Allocated at", "As in p.allocator.blocks, after the change.", "code"),
        text(
            "state",
            "State",
            "both, moved (only numbers of lines differ), new (no block before) or gone (no block"
            " after).",
        ),
        size("before_bytes", "Before", "Blocks in use at the snapshot before."),
        size("after_bytes", "After", "Blocks in use at the snapshot after."),
        size("change_bytes", "Change", "After minus before."),
        count("before_blocks", "Blocks before", "Number of these blocks before."),
        count("after_blocks", "Blocks after", "Number of these blocks after."),
        text(
            "stack",
            "Stack",
            "Stack frames of the allocation after the change, innermost first, one per line.",
            "code",
        ),
        text("before_stack", "Stack before", "The frames of a moved stack before.", "code"),
    ],
    "comparison.steps": [
        text("run", "Run", "before or after."),
        text("host", "Host", "Machine that recorded the step."),
        Col("step", "int64", "", "Step", "Step number.", "number", 0),
        text("name", "Name", "Name of the step."),
        _number("step_time_ms", "ms", "Step ms", "Duration of the step.", 2),
        Col(
            "counted",
            "bool",
            "",
            "Counted",
            "Whether averages and the verdict include the step.",
            "bool",
            None,
        ),
    ],
    "comparison.categories": [
        text("category", "Category", "step_time, or one of its categories."),
        _number("before_ms", "ms", "Before", "Mean before, in ms; missing if not recorded.", 2),
        _number("after_ms", "ms", "After", "Mean after, in ms.", 2),
        _number(
            "change_ms",
            "ms",
            "Change",
            "After minus before, in ms; its 95 % confidence interval is ± `margin_ms`.",
            2,
        ),
        _number(
            "margin_ms",
            "ms",
            "± ms",
            "Half the width of the 95 % confidence interval of the change (Welch).",
            2,
        ),
        _number("change_percent", "percent", "%", "Change in percent of the value before.", 1),
        _real("Whether that interval excludes 0; missing without an interval."),
    ],
    "comparison.ops": [
        text("where", "Where", "Where the op ran: device or host."),
        text("type", "Type", "Type of the op in the framework."),
        text("op", "Op", "Name of the op after the change; before it, if the op is gone.", "code"),
        _CATEGORY,
        _STATE,
        text("before_op", "Before", "Name of a renamed op before the change.", "code"),
        *_TIMES,
    ],
    "comparison.kernels": [
        text("kernel", "Kernel", "Demangled name of the kernel.", "code"),
        _CATEGORY,
        _STATE,
        *_TIMES,
    ],
}
