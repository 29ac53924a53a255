"""The recommendations of TensorFlow Profiler's overview page as checks, with figures.

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
from nbprof.analysis.table import stacked
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
FULLY_BUSY = 95.0
"""Percent of a step from which on a device, rather than its host, decides how long it takes."""
EXPENSIVE_FUNCTION = 20.0
OUTSIDE_COMPILATION = 5.0
MOST_GAIN = 99.0
"""Percent of a step: a larger cost does not tell how long a step would take without it."""
MOST_UNKNOWN = 90.0
"""Percent of a step without any recorded event, from which the rest does not describe the step."""
COLUMNS = ["check", "percent", "level", "statement", "view"]

NO_STEPS = "No step time was measured, so the bottleneck is unknown."


def may_keep_up(busy: float, slows_host: float) -> bool:
    """True if a host that recording does not slow could keep a GPU busy throughout, if the GPU is
    busy for `busy` percent of a recorded step.
    """
    return busy * slows_host >= 100.0


def keeps_up(busy: float, slowdown: float) -> bool:
    """The same where it was measured by how much recording slows the steps: that a GPU is busy
    nearly throughout without a recording.
    """
    return busy * slowdown >= FULLY_BUSY


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
    """The statement on input if only copies to the device were recorded, and they are short."""
    share = "less than 0.1%" if input_percent < NONE_PERCENT else f"{input_percent:.1f}%"
    waits = "the program waits" if unit.is_recording else f"{unit.plural} wait"
    return (
        f"Copies to the device take {share} of {unit.time}; what else {waits} for was not recorded."
    )


def level(percent: float | None, moderate: float, high: float = np.inf) -> str:
    """`high`, `moderate` or `no`; `unknown` if not measured."""
    if percent is None or np.isnan(percent):
        return "unknown"
    if percent >= high:
        return "high"
    return "moderate" if percent >= moderate else "no"


def input_class(input_percent: float | None, other_percent: float | None) -> tuple[str, str]:
    """The class of TensorFlow Profiler for the shares of input and of unexplained time in steps.

    Returns
    -------
    place : str
        `host` (at the input first), `both`, `device`, or `unknown` without steps: the classes of
        TensorFlow Profiler.
    strength : str
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
    strength = input_class(input_percent, other_percent)[1]
    if strength == "unknown":
        return NO_STEPS
    if strength == "potential":
        return (
            f"{other_percent:.1f}% of {unit.time} is not covered by any recorded event; it may be"
            " reading data, Python, or both."
        )
    if strength != "no":
        return f"{input_percent:.1f}% of {unit.time} is spent waiting for input."
    if not input_percent:
        share = "none of the recording" if unit.is_recording else f"no {unit.time}"
    elif input_percent < NONE_PERCENT:
        # A share that rounds to 0.0% is not zero.
        share = f"less than 0.1% of {unit.time}"
    else:
        share = f"only {input_percent:.1f}% of {unit.time}"
    return f"Not input-bound: {share} is spent waiting for input."


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
    rows = _step_checks(
        percent,
        unit,
        tf_data=tf_data,
        input_traced=input_traced,
        waits_traced=waits_traced,
        host_traced=host_traced,
        serving=serving,
    )
    silent = silent_precision and device_ops
    rows.append(_precision(facts.get("compute_16bit_percent"), unit, fixed_percent, silent=silent))
    for side in ("host", "device"):
        ran = side == "device" and device_ops
        rows.append(_eager(side, facts.get(f"eager_{side}_percent"), framework, ran=ran))
    if framework is TENSORFLOW or not framework.is_supported:
        rows.append(_functions(functions, unit))
    outside = facts.get("outside_compilation_percent")
    if outside is not None:
        rows.append(_outside_compilation(outside))
    if serving:
        rows = [row for row in rows if row.check not in _OF_LOOPS]
    return pd.DataFrame(rows, columns=COLUMNS)


def _precision(percent: float | None, unit: Unit, fixed_percent: float, *, silent: bool) -> Check:
    """The check of 16-bit compute; `silent` if no kernel states a data type."""
    if percent is None:
        kernels = "kernels" if unit.is_recording else f"kernels in {unit.plural}"
        text = f"Not measured: precision is taken from {kernels}."
        if silent:
            text = "Unknown: neither the kernels nor their names state a data type."
        return Check("precision", np.nan, "unknown", text, "kernels")
    if percent >= LITTLE_16_BIT * (1 - fixed_percent / 100):
        text = f"{wording.percent(percent)} of device compute is 16-bit."
        return Check("precision", percent, "no", text, "kernels")
    share = f"Only {percent:.1f}%" if percent >= NONE_PERCENT else "None"
    text = f"{share} of device compute is 16-bit. If accuracy permits, use more 16-bit compute."
    return Check("precision", percent, "moderate", text, "kernels")


def _outside_compilation(percent: float) -> Check:
    strength, advice = "no", ""
    if percent > OUTSIDE_COMPILATION:
        strength, advice = "moderate", ": avoid this"
    text = (
        f"{wording.percent(percent)} of op time on the device is outside XLA-compiled"
        f" programs{advice}."
    )
    return Check("outside_compilation", percent, strength, text, "ops")


_OF_LOOPS = ("input", "all_others_as_input", "eager_host", "eager_device")
_PARTS = {
    "output": "trace",
    "device_collectives": "trace",
    "kernel_launch": "kernels",
    "all_others": "trace",
}
"""Checks of a part of the step, and the tab that shows the part."""
_OF_STEPS = ("input", "all_others_as_input", *_PARTS)
_DEDICATED_THREADS = (
    "tf.data threads may interfere: try the environment variable TF_GPU_THREAD_MODE=gpu_private."
)


def _step_checks(
    percent: Mapping[str, float | None],
    unit: Unit,
    *,
    tf_data: bool,
    input_traced: bool,
    waits_traced: bool,
    host_traced: bool,
    serving: bool,
) -> list[Check]:
    """The checks of the parts of a step; all unknown if no step was measured."""
    if percent.get("input") is None or np.isnan(percent["input"] or 0.0):
        return [Check(check, np.nan, "unknown", NO_STEPS, "overview") for check in _OF_STEPS]
    share = {key: np.nan if value is None else float(value) for key, value in percent.items()}
    waits, other = share["input"], share["other"]
    strength = input_class(waits, other)[1]
    input_check = Check("input", waits, strength, input_statement(waits, other, unit), "input")
    maybe_input = "Unexplained time does not indicate unrecorded input."
    maybe_level = "no"
    if strength == "potential":
        statement = input_statement(waits, None, unit)
        input_check = input_check._replace(level="no", statement=statement)
        if not serving:
            maybe_level, maybe_input = "moderate", input_statement(waits, other, unit)
    if not input_traced:
        input_check = Check("input", np.nan, "unknown", UNTRACED, "input")
    elif not waits_traced and input_check.level == "no":
        statement = copies_statement(waits, unit)
        input_check = Check("input", waits, "unknown", statement, "input")

    launch = _part(
        "kernel_launch", share["kernel_launch"], "goes to preparing and launching kernels", unit
    )
    if tf_data and launch.level in ("high", "moderate"):
        launch = launch._replace(statement=f"{launch.statement} {_DEDICATED_THREADS}")
    unexplained = "is outside any recorded call, kernel or copy"
    if host_traced:
        unexplained = "is outside any recorded op, launch or copy: often Python"
    unrecorded = _part("all_others", other, unexplained, unit)
    if maybe_level != "no":
        unrecorded = unrecorded._replace(level="no", statement="Counted as possible input above.")
    return [
        input_check,
        Check("all_others_as_input", other, maybe_level, maybe_input, "trace"),
        _part("output", share["output"], "goes to copying results to the host", unit),
        _part(
            "device_collectives",
            share["device_collectives"],
            "is communication between devices",
            unit,
        ),
        launch,
        unrecorded,
    ]


def _part(check: str, percent: float, predicate: str, unit: Unit) -> Check:
    """The check of one part of the step; `predicate` follows its share in the statement."""
    if check == "output":
        strength = level(percent, INPUT_MODERATE, INPUT_HIGH)
    else:
        strength = level(percent, PART_MODERATE, PART_HIGH)
    text = f"{wording.percent(percent)} of {unit.time} {predicate}."
    if strength == "unknown":
        text = "Not measured in this profile."
    return Check(check, percent, strength, text, _PARTS[check])


def _eager(side: str, percent: float | None, framework: Framework, *, ran: bool) -> Check:
    check = f"eager_{side}"
    if percent is None:
        text = f"No ops were recorded on the {side}."
        if ran:
            text = f"It was not recorded which ops of the {side} ran eagerly."
        return Check(check, np.nan, "unknown", text, "ops")
    text = f"{wording.percent(percent)} of op time on the {side} ran eagerly, op by op."
    if percent <= MUCH_EAGER:
        return Check(check, percent, "no", text, "ops")
    if framework.words.compile_ops:
        text += f" {framework.words.compile_ops}"
    return Check(check, percent, "moderate", text, "ops")


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

    A call that traces the function, or runs it eagerly, is expensive. Self time of a call excludes
    the calls of functions inside it. `expensive_ms_per_step` is the time of such calls in the steps
    that averages use: a function that is traced once, before them or during warm-up, costs them
    nothing. It is None if no step was measured.
    """
    calls = activity.functions
    if not len(calls):
        return pd.DataFrame({column: [] for column in _FUNCTIONS})
    length = calls.end - calls.start
    self_time = nesting.self_times(nesting.parents(calls.lane, calls.start, length), length)
    expensive = np.isin(calls.mode, _expensive_modes(activity))
    used = steps[steps["counted"].astype(bool)] if len(steps) else steps
    in_steps = begin_in_steps(calls.frame(), used, activity.hosts)
    first, function = unique_rows(calls.name.astype(np.int64))
    total, expensive_time, expensive_in_steps, tracings = np.zeros((4, len(first)), np.int64)
    np.add.at(total, function, self_time)
    np.add.at(expensive_time, function[expensive], self_time[expensive])
    counted = expensive & in_steps
    np.add.at(expensive_in_steps, function[counted], self_time[counted])
    np.maximum.at(tracings, function, calls.tracings)
    percent = np.zeros(len(first))
    np.divide(100 * expensive_time.astype(np.float64), total, out=percent, where=total > 0)
    texts = activity.texts.values
    table = pd.DataFrame(
        {
            "function": [str(texts[code]) for code in calls.name[first].tolist()],
            "calls": np.bincount(function),
            "tracings": tracings,
            "self_us": total / 1e6,
            "expensive_percent": percent,
            "expensive_ms_per_step": np.nan,
        }
    )
    if len(used):
        table["expensive_ms_per_step"] = expensive_in_steps / 1e9 / len(used)
    return _most_expensive_first(table)


def _expensive_modes(activity: Activity) -> list[int]:
    """Codes of the modes of calls that trace a function or run it eagerly."""
    modes = []
    for code in np.unique(activity.functions.mode).tolist():
        mode = str(activity.texts.values[code])
        if mode == "eager" or mode.startswith(TRACED):
            modes.append(code)
    return modes


def _most_expensive_first(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(
        ["expensive_percent", "function"], ascending=[False, True], kind="stable", ignore_index=True
    )


def added_functions(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tf.functions of all hosts together, from the table of `functions` of each host.

    Each host is assumed to have as many steps as the others.
    """
    rows = stacked(tables)
    if not len(rows):
        return rows
    rows["expensive"] = rows["self_us"] * rows["expensive_percent"]
    rows["expensive_ms_per_step"] = rows["expensive_ms_per_step"] / len(tables)
    table = rows.groupby("function", sort=False).agg(
        calls=("calls", "sum"),
        tracings=("tracings", "max"),
        self_us=("self_us", "sum"),
        expensive=("expensive", "sum"),
        expensive_ms_per_step=("expensive_ms_per_step", lambda values: values.sum(min_count=1)),
    )
    table = table.reset_index()
    self_us = table["self_us"].where(table["self_us"] > 0)
    table["expensive_percent"] = (table["expensive"] / self_us).fillna(0.0)
    return _most_expensive_first(table)[list(_FUNCTIONS)]


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
    names = []
    for function, share in zip(worst["function"][:3], worst["expensive_percent"][:3], strict=True):
        names.append(f"{function} ({wording.percent(share)})")
    more = " and more" if len(worst) > 3 else ""
    text = (
        "tf.functions traced or run eagerly, with the share of their time:"
        f" {', '.join(names)}{more}."
    )
    if not (worst["expensive_ms_per_step"] > 0).any():
        text += f" None of it is in the {unit.plural} that averages include."
    return Check("tf_function", top, "moderate", text, "trace")


def retraced(functions: pd.DataFrame, least_percent: float) -> pd.DataFrame:
    """The tf.functions that are traced or run eagerly for so much of their time, the most
    expensive first.
    """
    expensive = functions["expensive_percent"] >= least_percent
    worst = functions[expensive & (functions["expensive_ms_per_step"] > 0)]
    return worst.sort_values("expensive_ms_per_step", ascending=False, kind="stable")
