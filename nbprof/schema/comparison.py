"""A comparison of two runs."""

from __future__ import annotations

from nbprof.schema.columns import Col, text


def _number(name: str, unit: str, label: str, help: str, digits: int) -> Col:
    return Col(name, "float64", unit, label, help, "percent" if unit == "percent" else "number", digits)


def _real(help: str) -> Col:
    return Col("real", "boolean", "", "Real", help, "bool", None)


_STATE = text("state", "State", "both, renamed (other copy numbers in the name), new or gone.")
_CATEGORY = text("category", "Category", "Step-time category that it is drawn in.")
_TIMES = [
    _number("before_us", "us", "Before", "Time before, a step where both runs have steps, else in the whole profile.", 1),
    _number("after_us", "us", "After", "Time after, likewise.", 1),
    _number("change_us", "us", "Change", "Time after less time before; all of it where one is not there.", 1),
    _number("before_calls", "", "Count before", "Runs before, likewise.", 1),
    _number("after_calls", "", "Count after", "Runs after, likewise.", 1),
]
_CHANGE = [
    _number("change", "", "Change", "After less before, in the unit of the figure.", 2),
    _number("change_percent", "percent", "%", "Change in percent of what it was; missing for shares, whose change is in points.", 1),
]

SCHEMA: dict[str, list[Col]] = {
    "comparison.verdict": [
        text("verdict", "Verdict", "real, some, typical, serial, chance, none, same or unknown."),
        text("headline", "Headline", "The answer in a sentence."),
        text("detail", "Detail", "What changed most."),
        _number("before_ms", "ms", "Before ms", "Mean of the step times before.", 2),
        _number("after_ms", "ms", "After ms", "Mean of the step times after.", 2),
        _number("change_ms", "ms", "Change ms", "Difference that the verdict is about: of the means, or of the typical step.", 2),
        _number("margin_ms", "ms", "± ms", "Half of its 95 % interval; missing where a run has one step.", 2),
        _number("speedup", "", "Speed-up", "Mean before by mean after.", 2),
        Col("before_steps", "int64", "", "Steps before", "Steps that count.", "number", 0),
        Col("after_steps", "int64", "", "Steps after", "Steps that count.", "number", 0),
    ],
    "comparison.evidence": [
        Col("ok", "bool", "", "OK", "Whether it speaks for the comparison.", "bool", None),
        text("text", "Evidence", "What was found, differs or is not known."),
    ],
    "comparison.figures": [
        text("figure", "Figure", "step_time, input, device_busy, examples_per_second, steps_per_second or peak_memory."),
        text("unit", "Unit", "Of the values: ms, percent, 1/s or bytes."),
        _number("before", "", "Before", "Value before.", 2),
        _number("after", "", "After", "Value after.", 2),
        *_CHANGE,
    ],
    "comparison.steps": [
        text("run", "Run", "before or after."),
        text("host", "Host", "Machine that recorded the step."),
        Col("step", "int64", "", "Step", "Number of the step.", "number", 0),
        text("name", "Name", "Name of the step."),
        _number("step_time_ms", "ms", "Step ms", "Duration of the step.", 2),
        Col("counted", "bool", "", "Counted", "Whether averages and the verdict count it.", "bool", None),
    ],
    "comparison.categories": [
        text("category", "Category", "step_time, or a category of it."),
        _number("before_ms", "ms", "Before", "Mean before, in ms; missing where it was not recorded.", 2),
        _number("after_ms", "ms", "After", "Mean after, in ms.", 2),
        _number("change_ms", "ms", "Change", "After less before, in ms; its 95 % interval is ± `margin_ms`.", 2),
        _number("margin_ms", "ms", "± ms", "Half of the 95 % Welch interval of the change.", 2),
        _number("change_percent", "percent", "%", "Change in percent of what it was.", 1),
        _real("Whether that interval leaves 0 out; missing where there is none."),
    ],
    "comparison.ops": [
        text("where", "Where", "Where the op ran: device or host."),
        text("type", "Type", "Type of the op, as the framework names it."),
        text("op", "Op", "Name of the op after the change, or before where it is gone.", "code"),
        _CATEGORY,
        _STATE,
        text("before_op", "Before", "What a renamed op was called.", "code"),
        *_TIMES,
    ],
    "comparison.kernels": [text("kernel", "Kernel", "Demangled name of the kernel.", "code"), _CATEGORY, _STATE, *_TIMES],
}
