"""The recommendations of TensorFlow Profiler's overview page as checks: which condition holds, by
how much, and what it means.

Percentages of step time are sums over steps divided by the sum of step times. A level starts at its
threshold: 5.0 % input is moderate, 20.0 % is high. Conditions and thresholds are those of
TensorFlow Profiler, of both the guide's time and XProf 2.24; the sentences are nbprof's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import TRACED, Activity
from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.steps.inside import begin_in_steps
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.display import wording
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import TENSORFLOW, UNKNOWN

INPUT_MODERATE, INPUT_HIGH = 5.0, 20.0
PART_MODERATE, PART_HIGH = 3.0, 15.0
LITTLE_16_BIT = 10.0
NONE_PERCENT = 0.05
"""Less than this is reported as none."""
MUCH_EAGER = 10.0
EXPENSIVE_FUNCTION = 20.0
OUTSIDE_COMPILATION = 5.0
MOST_GAIN = 99.0
"""Percent of a step: a cost that is more of it leaves nothing by which to say how long a step would
take without it.
"""
MOST_UNKNOWN = 90.0
"""The same of time of which nothing was recorded: what little is known of such a step is not what
is left of it.
"""
COLUMNS = ["check", "percent", "level", "statement", "view"]

NO_STEPS = "No step time was measured, so the bottleneck is unknown."


def may_keep_up(busy: float, slows_host: float) -> bool:
    """Whether a host might keep a GPU that is busy for `busy` percent of a recorded step at work
    throughout, were it not slowed.
    """
    return busy * slows_host >= 100.0


class Check(NamedTuple):
    """One row of `p.overview["checks"]`: `level` is high, moderate, no or unknown."""

    check: str
    percent: float
    level: str
    statement: str
    view: str


UNTRACED = (
    "Input was not traced: the profile has no input pipeline, no data loader and no nbprof.steps()"
    " loop."
)


def copies_statement(input_percent: float, unit: Unit = MARKED) -> str:
    """Of input that takes little of steps as far as it is known, where only copies to the device
    are recorded of it.
    """
    part = "less than 0.1%" if input_percent < NONE_PERCENT else f"{input_percent:.1f}%"
    return (
        f"Copies to the device take {part} of {unit.time}; what else {_what_waits(unit)} for was"
        " not recorded."
    )


def _what_waits(unit: Unit) -> str:
    return "the program waits" if unit.whole else f"{unit.plural} wait"


def level(percent: float | None, moderate: float, high: float = np.inf) -> str:
    """`high`, `moderate` or `no`; `unknown` if not measured."""
    if percent is None or np.isnan(percent):
        return "unknown"
    return "high" if percent >= high else "moderate" if percent >= moderate else "no"


def input_class(input_percent: float | None, other_percent: float | None) -> tuple[str, str]:
    """Where to look, and how strongly, from the shares of input and of unexplained time in the
    steps.

    Returns
    -------
    place : str
        `host` (at the input first), `both`, `device`, or `unknown` without steps: the classes of
        TensorFlow Profiler.
    how : str
        `high`, `moderate`, `potential` (little input was recorded, but unexplained time may be
        input), `no` or `unknown`.
    """
    if input_percent is None or np.isnan(input_percent):
        return "unknown", "unknown"
    strength = level(input_percent, INPUT_MODERATE, INPUT_HIGH)
    if strength == "no" and other_percent is not None and other_percent >= PART_MODERATE:
        return "both", "potential"
    return {"high": "host", "moderate": "both", "no": "device"}[strength], strength


def input_statement(
    input_percent: float | None, other_percent: float | None, unit: Unit = MARKED
) -> str:
    """The statement about input, by its `input_class`.

    It gives the share and leaves it to the verdict what the run is bound by: XProf calls input of
    20 % of the step "HIGHLY input-bound", also beside 60 % of something else.
    """
    how = input_class(input_percent, other_percent)[1]
    if how == "unknown":
        return NO_STEPS
    if how == "potential":
        return (
            f"{other_percent:.1f}% of {unit.time} is not covered by any recorded event; it may be"
            " reading data, Python, or both."
        )
    if how == "no":
        if not input_percent:
            none = "none of the recording" if unit.whole else f"no {unit.time}"
            return f"Not input-bound: {none} is spent waiting for input."
        # A share that rounds to 0.0% is not zero.
        part = "less than 0.1%" if input_percent < NONE_PERCENT else f"only {input_percent:.1f}%"
        return f"Not input-bound: {part} of {unit.time} is spent waiting for input."
    return f"{input_percent:.1f}% of {unit.time} is spent waiting for input."


def checks(
    percent: Mapping[str, float | None],
    facts: Mapping[str, Any],
    functions: pd.DataFrame,
    *,
    tf_data: bool,
    input_traced: bool = True,
    waits_traced: bool = True,
    host_traced: bool = True,
    device_ops: bool = False,
    silent_precision: bool = False,
    fixed_percent: float = 0.0,
    framework: Framework = UNKNOWN,
    serving: bool = False,
) -> pd.DataFrame:
    """One row per check: the frame `p.overview["checks"]`.

    Parameters
    ----------
    percent : mapping
        Share of step time by category; None or NaN where it was not measured, for all without
        steps.
    facts : mapping
        `compute_16bit_percent`, `eager_host_percent`, `eager_device_percent`,
        `outside_compilation_percent` and `unit` of the overview.
    functions : DataFrame
        From `functions`.
    tf_data : bool
        Whether tf.data did any work in the profile that may delay launches.
    input_traced : bool
        Whether the profile can tell how long steps wait for input.
    waits_traced : bool
        Whether that is more than how long they wait for copies to the device.
    host_traced : bool
        Whether ops of the host were recorded.
    device_ops : bool
        Whether ops of devices were recorded.
    silent_precision : bool
        Whether neither kernels nor their names state a data type.
    fixed_percent : float
        Percent of kernel time in hand-written kernels that take only 32-bit numbers.
    framework : Framework
    serving : bool
        Whether steps are iterations of an inference engine: it has no input pipeline, and compiles
        its model itself, so those checks are left out.
    """
    unit = Unit.of(facts)
    steps = percent.get("input") is not None and not np.isnan(percent["input"] or 0.0)
    rows = (
        _of_steps(
            percent,
            unit,
            tf_data=tf_data,
            input_traced=input_traced,
            waits_traced=waits_traced,
            host_traced=host_traced,
            serving=serving,
        )
        if steps
        else [Check(c, np.nan, "unknown", NO_STEPS, "overview") for c in _OF_STEPS]
    )
    half: float | None = facts.get("compute_16bit_percent")
    found = (
        "unknown"
        if half is None
        else "moderate"
        if half < LITTLE_16_BIT * (1 - fixed_percent / 100)
        else "no"
    )
    share = f"Only {half:.1f}%" if half and half >= NONE_PERCENT else "None"
    text = {
        "unknown": (
            "Unknown: neither the kernels nor their names state a data type."
            if silent_precision and device_ops
            else (
                "Not measured: precision is taken from"
                f" kernels{'' if unit.whole else f' in {unit.plural}'}."
            )
        ),
        "moderate": (
            f"{share} of device compute is 16-bit. If accuracy permits, use more 16-bit compute."
        ),
        "no": f"{wording.percent(half or 0.0)} of device compute is 16-bit.",
    }[found]
    rows.append(Check("precision", np.nan if half is None else half, found, text, "kernels"))
    for side in ("host", "device"):
        rows.append(
            _eager(
                side,
                facts.get(f"eager_{side}_percent"),
                framework,
                ran=side == "device" and device_ops,
            )
        )
    if framework is TENSORFLOW or not framework.known:
        rows.append(_functions(functions, unit))
    outside = facts.get("outside_compilation_percent")
    if outside is not None:
        found = "moderate" if outside > OUTSIDE_COMPILATION else "no"
        avoid = ": avoid this" if found == "moderate" else ""
        text = (
            f"{wording.percent(outside)} of op time on the device is outside XLA-compiled"
            f" programs{avoid}."
        )
        rows.append(Check("outside_compilation", outside, found, text, "ops"))
    if serving:
        rows = [row for row in rows if row.check not in _OF_LOOPS]
    return pd.DataFrame(rows, columns=COLUMNS)


_OF_LOOPS = ("input", "all_others_as_input", "eager_host", "eager_device")
_OF_STEPS = (
    "input",
    "all_others_as_input",
    "output",
    "device_collectives",
    "kernel_launch",
    "all_others",
)


def _of_steps(
    percent: Mapping[str, float | None],
    unit: Unit,
    *,
    tf_data: bool,
    input_traced: bool,
    waits_traced: bool,
    host_traced: bool,
    serving: bool,
) -> list[Check]:
    share = {key: np.nan if value is None else float(value) for key, value in percent.items()}
    waits, other = share["input"], share["other"]
    how = input_class(waits, other)[1]
    as_input = "moderate" if how == "potential" and not serving else "no"
    statement = input_statement(waits, None if how == "potential" else other, unit)
    rows = [
        Check("input", waits, how if how != "potential" else "no", statement, "input"),
        Check(
            "all_others_as_input",
            other,
            as_input,
            (
                input_statement(waits, other, unit)
                if as_input != "no"
                else "Unexplained time is no sign of unrecorded input."
            ),
            "trace",
        ),
        _part(
            "output",
            share["output"],
            INPUT_MODERATE,
            INPUT_HIGH,
            "goes to copying results to the host",
            unit,
        ),
        _part(
            "device_collectives",
            share["device_collectives"],
            PART_MODERATE,
            PART_HIGH,
            "is communication between devices",
            unit,
        ),
    ]
    if not input_traced:
        rows[0] = Check("input", np.nan, "unknown", UNTRACED, "input")
    elif not waits_traced and rows[0].level == "no":
        rows[0] = Check("input", waits, "unknown", copies_statement(waits, unit), "input")
    launch = _part(
        "kernel_launch",
        share["kernel_launch"],
        PART_MODERATE,
        PART_HIGH,
        "goes to preparing and launching kernels",
        unit,
    )
    if tf_data and launch.level in ("high", "moderate"):
        text = (
            "tf.data threads may interfere: try the environment variable"
            " TF_GPU_THREAD_MODE=gpu_private."
        )
        launch = launch._replace(statement=f"{launch.statement} {text}")
    rows.append(launch)
    what = (
        "is outside any recorded op, launch or copy: often Python"
        if host_traced
        else "is outside any recorded call, kernel or copy"
    )
    others = _part("all_others", other, PART_MODERATE, PART_HIGH, what, unit)
    if as_input != "no":
        others = others._replace(level="no", statement="Counted as possible input above.")
    rows.append(others)
    return rows


_SHOWN_IN = {
    "output": "trace",
    "device_collectives": "trace",
    "kernel_launch": "kernels",
    "all_others": "trace",
}


def _part(
    check: str, percent: float, moderate: float, high: float, predicate: str, unit: Unit
) -> Check:
    strength = level(percent, moderate, high)
    text = (
        "Not measured in this profile."
        if strength == "unknown"
        else f"{wording.percent(percent)} of {unit.time} {predicate}."
    )
    return Check(check, percent, strength, text, _SHOWN_IN[check])


def _eager(side: str, percent: float | None, framework: Framework, *, ran: bool) -> Check:
    if percent is None:
        text = (
            f"Which ops of the {side} ran eagerly was not recorded."
            if ran
            else f"No ops were recorded on the {side}."
        )
        return Check(f"eager_{side}", np.nan, "unknown", text, "ops")
    strength = "moderate" if percent > MUCH_EAGER else "no"
    text = f"{wording.percent(percent)} of op time on the {side} ran eagerly, op by op."
    if strength == "moderate" and framework.words.compile_ops:
        text += f" {framework.words.compile_ops}"
    return Check(f"eager_{side}", percent, strength, text, "ops")


_FUNCTIONS = (
    "function",
    "calls",
    "tracings",
    "self_us",
    "expensive_percent",
    "expensive_ms_per_step",
)


def functions(activity: Activity, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per tf.function, the largest share of expensive calls first, as `_FUNCTIONS`.

    A call that traces the function, or runs it eagerly, is expensive. Self time of a call leaves
    out the calls of functions inside it. `expensive_ms_per_step` is what such calls take of the
    steps that averages use: a function that is traced once, before or in a step that warms up,
    costs them nothing. None where no step was measured.
    """
    calls = activity.functions
    if not len(calls):
        return pd.DataFrame({column: [] for column in _FUNCTIONS})
    length = calls.end - calls.start
    self_time = nesting.self_times(nesting.parents(calls.lane, calls.start, length), length)
    texts = activity.texts.values
    dear_modes = [
        code
        for code in np.unique(calls.mode).tolist()
        if str(texts[code]) == "eager" or str(texts[code]).startswith(TRACED)
    ]
    expensive = np.isin(calls.mode, dear_modes)
    used = steps[steps["counted"].astype(bool)] if len(steps) else steps
    in_steps = begin_in_steps(calls.frame(), used, activity.hosts)
    first, function = unique_rows(calls.name.astype(np.int64))
    total, expensive_time, expensive_in_steps, tracings = np.zeros((4, len(first)), np.int64)
    np.add.at(total, function, self_time)
    np.add.at(expensive_time, function[expensive], self_time[expensive])
    np.add.at(expensive_in_steps, function[expensive & in_steps], self_time[expensive & in_steps])
    np.maximum.at(tracings, function, calls.tracings)
    share = np.divide(
        100 * expensive_time.astype(np.float64), total, out=np.zeros(len(first)), where=total > 0
    )
    frame = pd.DataFrame(
        {
            "function": [str(texts[code]) for code in calls.name[first].tolist()],
            "calls": np.bincount(function),
            "tracings": tracings,
            "self_us": total / 1e6,
            "expensive_percent": share,
            "expensive_ms_per_step": expensive_in_steps / 1e9 / len(used) if len(used) else np.nan,
        }
    )
    return frame.sort_values(
        ["expensive_percent", "function"], ascending=[False, True], kind="stable", ignore_index=True
    )


def added_functions(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tf.functions of several hosts, of which each is given as `functions`, as it would give
    all of them together.

    Each host is taken to have as many steps as the others.
    """
    rows = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    if not len(rows):
        return rows
    rows["dear"] = rows["self_us"] * rows["expensive_percent"]
    rows["per_host"] = rows["expensive_ms_per_step"] / len(tables)
    sums = {
        "calls": ("calls", "sum"),
        "tracings": ("tracings", "max"),
        "self_us": ("self_us", "sum"),
        "dear": ("dear", "sum"),
    }
    out = (
        rows.groupby("function", sort=False)
        .agg(**sums, per_host=("per_host", lambda v: v.sum(min_count=1)))
        .reset_index()
    )
    out["expensive_percent"] = (out["dear"] / out["self_us"].where(out["self_us"] > 0)).fillna(0.0)
    out["expensive_ms_per_step"] = out["per_host"]
    out = out.sort_values(
        ["expensive_percent", "function"], ascending=[False, True], kind="stable", ignore_index=True
    )
    return out[list(_FUNCTIONS)]


def _functions(functions: pd.DataFrame, unit: Unit) -> Check:
    if not len(functions):
        return Check("tf_function", np.nan, "unknown", "No tf.function call was recorded.", "trace")
    worst = functions[functions["expensive_percent"] >= EXPENSIVE_FUNCTION]
    top = float(functions["expensive_percent"].iloc[0])
    if not len(worst):
        text = (
            f"Calls that are traced or run eagerly take at most {wording.percent(top)} of any"
            " tf.function's time."
        )
        return Check("tf_function", top, "no", text, "trace")
    named = ", ".join(
        f"{f} ({wording.percent(p)})"
        for f, p in zip(worst["function"][:3], worst["expensive_percent"][:3], strict=True)
    )
    more = " and more" if len(worst) > 3 else ""
    text = f"tf.functions traced or run eagerly, with the share of their time: {named}{more}."
    if not (worst["expensive_ms_per_step"] > 0).any():
        text += f" None of it is in the {unit.plural} that averages include."
    return Check("tf_function", top, "moderate", text, "trace")
