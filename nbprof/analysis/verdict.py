"""The verdict: the largest part of a step, call or recording, the confidence in that, and what it
means.

Sentences take the words for the unit from `Unit`: "of step time", "per call", "of the recording".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import (
    CATEGORIES,
    EMPTY,
    ITERATIONS,
    PLAIN,
    READ_IN_PART,
    UNUSABLE_TIMES,
    Activity,
)
from nbprof.activity.unit import Unit
from nbprof.analysis.advice import checks
from nbprof.analysis.contention import OTHERS
from nbprof.analysis.steps import step_count, warmup
from nbprof.analysis.steps.bare import BareSteps
from nbprof.analysis.steps.steps import counted, mostly_lost, waiting_percent
from nbprof.core.runs import rows_by_code
from nbprof.core.warmup_limits import FEW_FACTOR
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.analysis.cpu import CpuSplit
    from nbprof.analysis.python import PythonUse, TopFunction

SINGLE_BOTTLENECK_PERCENT = 35.0
"""Below this share of the unit no category is called the bottleneck."""
COVERED = 0.8
"""Below this fraction of the time from the first step to the last, steps leave out a part of the
loop.
"""
FEW = 0.1
"""A part belongs to a few steps if at most this fraction of the steps has all but this fraction of
it.
"""
_ENOUGH_SAMPLES = 20
"""Samples that distinguish a half from a third in most cases."""
ENOUGH = 10
"""Units from which on a mean is called certain."""
STEADY = 0.25
"""The largest standard deviation of a steady step time, as a fraction of the mean."""

_BOTH_PERCENT = 5.0
"""Percent of a unit from which on ops and libraries are both named as what computes."""
_CONTENDED_PERCENT = 75.0
"""Percent of its runnable time that the program waits for a core, from which on other processes are
the verdict.
"""


_INNER = re.compile(r"(?:\.<locals>)?\.<(?:listcomp|setcomp|dictcomp|genexpr|lambda)>|\.<locals>")
"""Suffixes that Python adds to the name of a function for its parts."""

Evidence = list[tuple[bool, str]]


@dataclass(frozen=True)
class Explanation:
    """The words of the verdict for a category."""

    title: str
    fact: str
    why: str


EXPLANATIONS: dict[str, Explanation] = {
    "input": Explanation(
        "Input-bound", "{p}% of {time} is spent waiting for data", "{the} waits for the next batch"
    ),
    "kernel_launch": Explanation(
        "Kernel-launch-bound",
        "{p}% of {time} is spent launching kernels",
        "the host prepares and launches kernels one by one",
    ),
    "device_compute": Explanation(
        "Device-bound",
        "the device computes for {p}% of {time}",
        "the device is the bottleneck, as it should be",
    ),
    "host_compute": Explanation(
        "Host-bound", "{p}% of {time} is spent computing on the host", "ops run on the CPU"
    ),
    "compile": Explanation(
        "Compile-bound", "{p}% of {time} is spent compiling", "programs are compiled within {the}"
    ),
    "device_collectives": Explanation(
        "Communication-bound",
        "{p}% of {time} is spent communicating between devices",
        "devices exchange data",
    ),
    "device_to_device": Explanation(
        "Communication-bound",
        "{p}% of {time} is spent copying between devices",
        "devices exchange data",
    ),
    "output": Explanation(
        "Output-bound",
        "{p}% of {time} is spent copying results to the host",
        "{the} waits for copies to the host",
    ),
    "other": Explanation(
        "Host-bound",
        "{p}% of {time} is outside any recorded op, often Python",
        "no op, launch or copy was recorded in that time",
    ),
}


_STALLED = Explanation(
    "Stalled",
    "for {p}% of {time} the host waits for a device that runs nothing",
    "a call waits while no kernel or copy runs; p.device_time.idle shows how long work was queued"
    " in that time",
)
_UNRECORDED = Explanation(
    EXPLANATIONS["other"].title,
    "for {p}% of {time} no device was busy, and the host was not recorded",
    "no device runtime call that launches, copies or waits was recorded in that time",
)
_CAPTURING = Explanation(
    "Capture-bound",
    "{p}% of {time} is spent capturing a graph",
    "launches are captured into a graph within {the}, which happens once",
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a program.

    Attributes
    ----------
    bound : str or None
        The category that bounds the program, one of `CATEGORIES`; None where none does.
    title : str
        "Input-bound".
    fact : str
        The share, as the rest of the sentence.
    detail : str
        Further sentences.
    confidence : str
        high, medium, low or none.
    evidence : list of (bool, str)
        The reasons for the confidence: whether each supports the verdict, and the sentence.
    """

    bound: str | None
    title: str
    fact: str
    detail: str
    confidence: str = "none"
    evidence: tuple[tuple[bool, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As the keys of the mapping `p.overview`."""
        return {
            "bound": self.bound,
            "verdict": self.title,
            "verdict_text": self.fact,
            "verdict_detail": self.detail,
            "confidence": self.confidence,
            "confidence_evidence": list(self.evidence),
        }


class HostPart(NamedTuple):
    """A part of *host compute*, or of the time outside ops.

    Attributes
    ----------
    category : str
        The category of the step that it is a part of: `host_compute` or `other`.
    part : str
        `compute`, `overhead`, `python`, `waiting`; `host` is time that is not split further.
    text : str
        The work of the host, with the op, function or line that takes most of the time.
    percent : float
        Of the time of the unit.
    """

    category: str
    part: str
    text: str
    percent: float


@dataclass(frozen=True)
class Breakdown:
    """The evidence for a verdict.

    Attributes
    ----------
    activity : Activity
    steps : DataFrame
        Rows of `p.steps.frame` with nbprof's internal columns.
    mean_ms : float
        Mean duration of the counted ones.
    shares : dict
        Percent of their time by category; 0 where unknown.
    dropped : int
        Events that were left out.
    busy : float or None
        Percent of the time in which a device ran something.
    captures : bool
        Whether launches were captured into a graph.
    works_ahead : bool
        Whether a pipeline prepares batches while the steps do something else.
    cpu : CpuSplit or None
        The parts of host compute, in a program without a device.
    unexplained : PythonUse or None
        The use of Python in time without recorded work (`other`), if its stacks were sampled.
    unrecorded : str
        A sentence on work of the framework that is not in the recording; "" if none is known.
    contention : mapping
        Contention for cores, see `nbprof.capture.contention`.
    probed_ms : float or None
        Time of a unit without its input, if a probe measured it.
    bare : BareSteps
        The steps that ran without a profiler.
    """

    activity: Activity
    steps: pd.DataFrame
    mean_ms: float
    shares: dict[str, float]
    dropped: int
    busy: float | None
    captures: bool
    works_ahead: bool
    cpu: CpuSplit | None = None
    unexplained: PythonUse | None = None
    contention: Mapping[str, float] = field(default_factory=dict)
    unrecorded: str = ""
    probed_ms: float | None = None
    bare: BareSteps = field(default_factory=BareSteps)

    @property
    def unit(self) -> Unit:
        """The meaning of a row of `steps`."""
        return self.activity.unit

    @property
    def counted(self) -> pd.DataFrame:
        """The steps in the averages."""
        return counted(self.steps)

    @property
    def bound(self) -> str:
        """The largest category."""
        return max(self.shares, key=self.shares.__getitem__)

    @property
    def has_device(self) -> bool:
        """True if the program has an accelerator."""
        return bool(self.activity.has_device or len(self.activity.device_extents))

    @cached_property
    def host_work(self) -> tuple[HostPart, ...]:
        """Host compute and the time outside ops, split by what the host did; empty if unknown."""
        if self.unexplained is None and (self.cpu is None or self.has_device):
            return ()
        return (*_in_ops(self.shares["host_compute"], self.cpu), *_outside_ops(self))

    @property
    def host_parts(self) -> dict[str, float]:
        """Percent of the unit by what the host did; {} if unknown.

        `compute` in ops and in libraries, `overhead` of a framework, `python`, `waiting`; and
        `host`, time that is not split further.
        """
        if not self.host_work:
            return {}
        parts = dict.fromkeys(_HOST_PARTS, 0.0)
        for work in self.host_work:
            parts[work.part] += work.percent
        return parts

    def second(self, largest: str) -> str:
        """The largest category besides `largest`."""
        rest = (category for category in CATEGORIES if category != largest)
        return max(rest, key=self.shares.__getitem__)


def _in_ops(percent: float, cpu: CpuSplit | None) -> list[HostPart]:
    """The parts of *host compute*."""
    if cpu is None:
        return [HostPart("host_compute", "host", "Ops", percent)]
    top = f": {cpu.top_op}" if cpu.top_op else ""
    return [
        HostPart("host_compute", "compute", f"Ops that compute{top}", percent * cpu.compute),
        HostPart("host_compute", "overhead", "Framework around ops", percent * (1 - cpu.compute)),
    ]


def _outside_ops(breakdown: Breakdown) -> list[HostPart]:
    """The parts of the time in which nothing was recorded."""
    other, use = breakdown.shares["other"], breakdown.unexplained
    if use is None:
        return [HostPart("other", "host", "Not recorded", other)]
    stalled = waiting_percent(breakdown.steps)
    rest = other - stalled
    parts = (
        ("python", "Python", use.top, use.python),
        ("compute", "Compiled code of libraries", use.top_library, use.library),
        ("overhead", "Framework outside ops", use.top_framework, use.framework),
        ("waiting", "Waiting without a core", use.top_waiting, use.waiting),
    )
    return [
        *(
            HostPart("other", part, f"{text}{_location_suffix(top)}", rest * share)
            for part, text, top, share in parts
        ),
        HostPart("other", "host", "Waiting for the device", stalled),
    ]


def _location_suffix(top: TopFunction | None) -> str:
    """The function or line with most of a part, as the end of its name."""
    return f": {location_text(top)}" if top is not None else ""


def verdict(breakdown: Breakdown) -> Verdict:
    """The verdict that follows from a breakdown."""
    unknown = _unknown(breakdown)
    if unknown is not None:
        return unknown
    bound, parts = breakdown.bound, breakdown.host_parts
    if parts and bound in ("host_compute", "other"):
        return _host_verdict(breakdown, parts)
    assessment = _assess(breakdown, bound)
    if breakdown.shares[bound] < SINGLE_BOTTLENECK_PERCENT:
        return _no_single_bottleneck(breakdown, bound, assessment)
    return _bound(breakdown, bound, assessment)


def _unknown(breakdown: Breakdown) -> Verdict | None:
    """The verdict on a recording that does not tell what bounds the program; None if it does."""
    activity, unit = breakdown.activity, breakdown.unit
    if PLAIN in activity.traits:
        return _plain_trace(activity)
    if activity.lost_kernels:
        # The device may have done what the host did not.
        if UNUSABLE_TIMES in activity.traits:
            fact = "no kernel has a usable time, so what the device did is unknown"
            return Verdict(None, "Device times unusable", fact, activity.missing["kernels"])
        title, fact = "Kernels not recorded", "no kernel was recorded"
        if READ_IN_PART in activity.traits:
            title, fact = "File truncated", "the part of the file that was read has no kernel"
        elif (activity.devices["kind"] == "TPU").any():
            title, fact = "Ops not recorded", "no op of the device was recorded"
        fact += ", so what the device did is unknown"
        return Verdict(None, title, fact, activity.missing["kernels"])
    if is_unrecorded(breakdown):
        fact = (
            "the framework worked on a thread that was not recorded, so what takes up"
            f" {unit.time} is unknown"
        )
        return Verdict(None, "Ops not recorded", fact, breakdown.unrecorded)
    if not len(breakdown.steps):
        return _without_work(activity)
    lost = mostly_lost(breakdown.steps)
    if lost is not None and READ_IN_PART in activity.traits:
        fact = (
            f"the rest of the file may have had device work of {lost[0]:,} of {lost[1]:,}"
            f" {unit.plural}, so what most of them wait for is unknown"
        )
        return Verdict(None, "File truncated", fact, "Copy the file again, or record again.")
    if lost is not None:
        fact = (
            f"{lost[0]:,} of {lost[1]:,} {unit.plural} lost device work, so what most of them"
            " wait for is unknown"
        )
        detail = "See the receipt. Record again with fewer steps, in a fresh process."
        return Verdict(None, "Device work not recorded", fact, detail)
    if breakdown.bound == "other" and not _explains_other(breakdown):
        if unit.is_recording:
            return _without_work(activity)
        fact = (
            "neither host ops nor device work was recorded, so what takes up the"
            f" {unit.plural} is unknown"
        )
        detail = activity.missing.get("kernels", activity.missing.get("ops", ""))
        return Verdict(None, "Host not recorded", fact, detail)
    return None


def _explains_other(breakdown: Breakdown) -> bool:
    """True if the recording has anything besides the marks of steps."""
    activity = breakdown.activity
    return bool(
        activity.has_host_ops
        or activity.has_device
        or len(activity.device_extents)
        or breakdown.unexplained is not None
        # The file may list the parts of iterations in a table.
        or ITERATIONS in activity.traits
    )


def is_unrecorded(breakdown: Breakdown) -> bool:
    """True if the work of the steps was on a thread that was not recorded."""
    if not breakdown.unrecorded:
        return False
    if not breakdown.activity.has_host_ops:
        return True
    return len(breakdown.steps) > 0 and breakdown.bound == "other"


def _plain_trace(activity: Activity) -> Verdict:
    if EMPTY in activity.traits:
        detail = (
            "The recording was empty, or its events are in another file. Record again, while the"
            " program works."
        )
        return Verdict(None, "No events", "the trace holds no events", detail)
    kinds = "steps, ops or allocations"
    if "kernels" in activity.missing:
        kinds = "steps, ops, kernels or allocations"
    detail = f"Which of its events are {kinds} is unknown; the trace view shows them all."
    fact = "it was not written by a framework that nbprof knows"
    return Verdict(None, "Plain trace", fact, detail)


def _without_work(activity: Activity) -> Verdict:
    if activity.unit.is_recording and READ_IN_PART in activity.traits:
        fact = "the part of the file that was read has no step, and too little to find one"
        return Verdict(None, "File truncated", fact, "Copy the file again, or record again.")
    if activity.unit.is_recording and not len(activity.device_extents):
        detail = activity.missing.get("ops", "")
        return Verdict(None, "No work recorded", "no op, call or device work was recorded", detail)
    detail = activity.missing.get(
        "steps", "Mark steps with nbprof.steps() or the framework's step markers."
    )
    return Verdict(None, "Unknown", "no steps were found, so step time is unknown", detail)


def _no_single_bottleneck(breakdown: Breakdown, bound: str, assessment: Assessment) -> Verdict:
    shares = breakdown.shares
    second = sorted(shares, key=lambda category: -shares[category])[1]
    return Verdict(
        None,
        "No single bottleneck",
        f"the largest category, {label(bound).capitalize()}, is {shares[bound]:.0f}% of"
        f" {breakdown.unit.time}",
        f"Next is {label(second)} with {shares[second]:.0f}%. {_mean_time(breakdown)}",
        assessment.confidence,
        tuple(assessment.evidence),
    )


def _mean_time(breakdown: Breakdown) -> str:
    """The mean time of a unit, as a sentence: "A step takes 12 ms."."""
    article = breakdown.unit.a
    return f"{article[0].upper()}{article[1:]} takes {wording.millis(breakdown.mean_ms)}."


def _host_verdict(breakdown: Breakdown, parts: dict[str, float]) -> Verdict:
    """The verdict on a program that spends most of its time on the host, by what it does there."""
    shares = breakdown.shares
    bound, part = breakdown.bound, max(parts, key=parts.__getitem__)
    device_categories = (c for c in CATEGORIES if c not in ("host_compute", "other"))
    other = max(device_categories, key=shares.__getitem__)
    if shares[other] > parts[part]:
        bound, part = other, "host"
    name, percent = "", shares[bound]
    if part != "host":
        name, percent = _TIME_OF_HOST[bound], parts[part]
    assessment = _assess(breakdown, bound, name, _perhaps_recording(breakdown, part, percent))
    if percent < SINGLE_BOTTLENECK_PERCENT:
        return _no_single_part(breakdown, parts, assessment)
    if part == "host":
        answer = _bound(breakdown, bound, assessment)
    else:
        answer = _bound_by_part(breakdown, parts, part, assessment)
    use = breakdown.unexplained
    if part == "waiting" and use is not None and use.waits_by_itself:
        # It would be no faster on an idle machine.
        return answer
    if not breakdown.has_device and contended(breakdown.contention):
        return _contended(breakdown, answer)
    return answer


def _bound_by_part(
    breakdown: Breakdown, parts: dict[str, float], part: str, assessment: Assessment
) -> Verdict:
    """The verdict on a program that a part of the host's time bounds."""
    fact, detail = _EXPLAIN_PART[part](breakdown, parts[part])
    shares = breakdown.shares
    bound = "other"
    if part in ("compute", "overhead") and shares["host_compute"] >= shares["other"]:
        bound = "host_compute"
    second = max((name for name in parts if name != part), key=parts.__getitem__)
    if parts[second] >= checks.INPUT_HIGH:
        detail += f" Next is {_HOST_PARTS[second]} with {parts[second]:.0f}%."
    evidence = tuple(assessment.evidence)
    return Verdict(bound, _TITLES[part], fact, detail, assessment.confidence, evidence)


def _no_single_part(
    breakdown: Breakdown, parts: dict[str, float], assessment: Assessment
) -> Verdict:
    shares = {
        label(category): share
        for category, share in breakdown.shares.items()
        if category not in ("host_compute", "other")
    }
    shares |= {name: parts[part] for part, name in _HOST_PARTS.items()}
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    return Verdict(
        None,
        "No single bottleneck",
        f"the largest part is {first}, {shares[first]:.0f}% of {breakdown.unit.time}",
        f"Next is {second} with {shares[second]:.0f}%. {_mean_time(breakdown)}",
        assessment.confidence,
        tuple(assessment.evidence),
    )


_HOST_PARTS = {
    "compute": "compute on the host",
    "overhead": "framework overhead",
    "python": "Python code",
    "waiting": "waiting",
    "host": "other host time",
}
_TIME_OF_HOST = {"host_compute": "Time in ops", "other": "Time outside ops"}
"""The name of the largest category in the evidence, where the verdict names a part of it."""
_TITLES = {
    "compute": "Compute-bound",
    "overhead": "Overhead-bound",
    "python": "Python-bound",
    "waiting": "Waiting",
}


def _time_of(breakdown: Breakdown, percent: float) -> str:
    step_ms = breakdown.mean_ms
    time = wording.millis(step_ms * percent / 100)
    return f"That is {time} of the {wording.millis(step_ms)} {breakdown.unit.per}"


def _explain_compute(breakdown: Breakdown, percent: float) -> tuple[str, str]:
    """Fact and detail on ops that take their time, and calls of libraries."""
    cpu, use = breakdown.cpu, breakdown.unexplained
    in_top = ""
    in_ops = breakdown.shares["host_compute"] * cpu.compute if cpu is not None else 0.0
    in_libraries = percent - in_ops
    if min(in_ops, in_libraries) >= _BOTH_PERCENT:
        fact = (
            f"{percent:.0f}% of {breakdown.unit.time} is spent in ops that compute ({in_ops:.0f}%)"
            f" and in compiled library code ({in_libraries:.0f}%)"
        )
        return fact, f"{_time_of(breakdown, percent)}.{_busy_cores(breakdown)}"
    if cpu is not None and 2 * in_ops >= percent:
        work = "ops that compute"
        if cpu.top_op:
            in_top = f", {cpu.top_percent:.0f}% of it in {cpu.top_op}"
    else:
        work = "compiled library code"
        if use is not None and use.top_library is not None:
            in_top = in_location(use.top_library)
    fact = f"{percent:.0f}% of {breakdown.unit.time} is spent in {work}"
    return fact, f"{_time_of(breakdown, percent)}{in_top}.{_busy_cores(breakdown)}"


def _explain_overhead(breakdown: Breakdown, percent: float) -> tuple[str, str]:
    """Fact and detail on the work of a framework around ops."""
    cpu, unit, use = breakdown.cpu, breakdown.unit, breakdown.unexplained
    outside_ops = sum(
        work.percent
        for work in breakdown.host_work
        if work.part == "overhead" and work.category == "other"
    )
    if use is not None and use.top_framework is not None and 2 * outside_ops >= percent:
        fact = f"{percent:.0f}% of {unit.time} is spent in the framework, outside ops"
        return fact, f"{_time_of(breakdown, percent)}{in_location(use.top_framework)}."
    fact = (
        f"{percent:.0f}% of {unit.time} is spent by the framework around ops, not in ops that"
        " compute"
    )
    detail = f"{_time_of(breakdown, percent)}: the framework dispatches ops rather than computing"
    if cpu is not None and cpu.op_calls >= 1:
        detail += (
            f"; of the {cpu.op_calls:,.0f} ops {unit.per}, {cpu.tiny_calls:,.0f} take less than"
            " 20 µs"
        )
    return fact, f"{detail}."


def _explain_python(breakdown: Breakdown, percent: float) -> tuple[str, str]:
    """Fact and detail on Python code between ops."""
    use = breakdown.unexplained
    in_top = in_location(use.top) if use is not None else ""
    fact = f"{percent:.0f}% of {breakdown.unit.time} is Python code"
    return fact, f"{_time_of(breakdown, percent)}{in_top}."


def _explain_waiting(breakdown: Breakdown, percent: float) -> tuple[str, str]:
    """Fact and detail on time in which the process sleeps."""
    use = breakdown.unexplained
    in_top = in_location(use.top_waiting) if use is not None else ""
    fact = f"for {percent:.0f}% of {breakdown.unit.time} the program waits without using a core"
    return fact, f"{_time_of(breakdown, percent)}{in_top}."


_EXPLAIN_PART = {
    "compute": _explain_compute,
    "overhead": _explain_overhead,
    "python": _explain_python,
    "waiting": _explain_waiting,
}


def location_text(top: TopFunction) -> str:
    """A line or function of the person's code, and the call in it."""
    function = _INNER.sub("", top.function)
    location = f"{function}, {top.file} line {top.line}"
    if function == "<module>":
        location = f"line {top.line} of {top.file}"
    return f"{top.call}, called in {location}" if top.call else location


def in_location(top: TopFunction | None) -> str:
    """The share of the function that took most of some time, as the end of a sentence on it."""
    if top is None:
        return ""
    return f", {100 * top.named_share:.0f}% of it in {location_text(top)}"


def _busy_cores(breakdown: Breakdown) -> str:
    """The number of busy cores, as a sentence; "" if unknown."""
    contention = breakdown.contention
    cores, own_cores = contention.get("cores", 0.0), contention.get("own_cores", 0.0)
    if cores:
        return f" {own_cores:.1f} of {cores:.0f} cores were busy with it."
    return ""


def contended(measured: Mapping[str, float]) -> bool:
    """True if the program waited for cores that other processes used for most of its runnable
    time.
    """
    cores, other_cores = measured.get("cores", 0.0), measured.get("other_cores", 0.0)
    return (
        cores > 0
        and other_cores >= OTHERS * cores
        and measured.get("waited_percent", 0.0) >= _CONTENDED_PERCENT
    )


def _contended(breakdown: Breakdown, answer: Verdict) -> Verdict:
    """The verdict that other processes took the cores, before the one on the program itself."""
    contention = breakdown.contention
    waited, cores, other_cores = (
        contention[key] for key in ("waited_percent", "cores", "other_cores")
    )
    fact = f"this process waited for a free core {waited:.0f}% of its runnable time"
    detail = (
        f"Other processes used {other_cores:.1f} of the {cores:.0f} cores. Expect"
        f" {breakdown.unit.a} to take less than {wording.millis(breakdown.mean_ms)} on an idle"
        f" machine. {answer.fact[0].upper()}{answer.fact[1:]}. {answer.detail}"
    )
    return replace(answer, title="Contended", fact=fact, detail=detail)


def _bound(breakdown: Breakdown, bound: str, assessment: Assessment) -> Verdict:
    """The verdict on a program that one category bounds."""
    explanation, percent = _explanation(breakdown, bound)
    unit = breakdown.unit
    words = {"p": f"{percent:.0f}", "time": unit.time, "the": unit.the}
    why = _why(breakdown, bound, explanation.why).format(**words)
    return Verdict(
        bound,
        explanation.title,
        explanation.fact.format(**words),
        _detail(breakdown, bound, percent, why),
        assessment.confidence,
        tuple(assessment.evidence),
    )


def _explanation(breakdown: Breakdown, bound: str) -> tuple[Explanation, float]:
    """The explanation of a category, and the percent of the time that it speaks of."""
    percent = breakdown.shares[bound]
    if bound == "compile" and breakdown.captures:
        return _CAPTURING, percent
    if bound != "other":
        return EXPLANATIONS[bound], percent
    waiting = waiting_percent(breakdown.steps)
    if waiting >= percent / 2:
        return _STALLED, waiting
    if not breakdown.activity.has_host_ops:
        return _UNRECORDED, percent - waiting
    return EXPLANATIONS[bound], percent - waiting


def _why(breakdown: Breakdown, bound: str, why: str) -> str:
    """Why a category is large, where the recording says more than its explanation."""
    activity, steps, shares = breakdown.activity, breakdown.counted, breakdown.shares
    if bound == "host_compute" and len(activity.device_extents):
        return f"the host {activity.framework.words.host_work} while the device is idle"
    if bound == "input" and steps["host_to_device_ms"].sum() > steps["input_ms"].sum() / 2:
        return "{the} waits until its data is copied from host memory to the device"
    second = breakdown.second(bound)
    if bound == "device_compute" and shares[second] >= checks.INPUT_HIGH:
        # It is hardly the bottleneck if so much of the step passes without it.
        return (
            f"kernels run on the device. Next is {label(second)} with {shares[second]:.0f}%, in"
            " which the device does not compute"
        )
    return why


def _detail(breakdown: Breakdown, bound: str, percent: float, why: str) -> str:
    """The sentences after the fact: the time, why it is spent, and what follows from that."""
    unit, steps, step_ms = breakdown.unit, breakdown.counted, breakdown.mean_ms
    few = _few(steps, bound) if steps["host"].nunique() == 1 else None
    subject = "That" if few is None else "On average that"
    # Of all steps, as its share is: the mean is of the steps of the hosts that recorded it.
    time = wording.millis(step_ms * percent / 100)
    detail = f"{subject} is {time} of the {wording.millis(step_ms)} {unit.per}: {why}."
    if unit.is_recording and breakdown.busy is not None:
        detail = f"{_device_worked(breakdown.activity, step_ms, breakdown.busy)} {detail}"
    if few is not None:
        detail += _in_few_steps(few, len(steps), unit)
    else:
        detail += _without_part(breakdown, bound, percent)
    return detail + _copies_as_work(breakdown, bound)


def _in_few_steps(few: _FewSteps, steps: int, unit: Unit) -> str:
    return (
        f" {100 * few.share:.0f}% of it is in {few.steps:,} of {steps:,} {unit.plural}; the other"
        f" {steps - few.steps:,} take {wording.millis(few.others_ms)} on average."
    )


def _without_part(breakdown: Breakdown, bound: str, percent: float) -> str:
    """The time of a unit without the category, as a sentence; "" if unknown."""
    unit, step_ms, shares = breakdown.unit, breakdown.mean_ms, breakdown.shares
    if bound == "other" and shares["input"] >= checks.INPUT_MODERATE and breakdown.works_ahead:
        subject, waits, they = f"The {unit.plural}", "wait", "they"
        if unit.is_recording:
            subject, waits, they = "The recording", "waits", "it"
        return (
            f" {subject} {waits} for input as well, which tf.data prepares in the meantime: without"
            f" this time, {they} would wait longer."
        )
    if bound == "input" and breakdown.probed_ms is not None:
        return (
            f" With instant input, {unit.a} takes {wording.millis(breakdown.probed_ms)} (measured"
            " by --probe)."
        )
    if bound in ("device_compute", "host_compute"):
        return ""
    if shares[bound] > (checks.MOST_UNKNOWN if bound == "other" else checks.MOST_GAIN):
        return ""
    left = step_ms - step_ms * percent / 100
    noun = "wait" if bound == "input" else "time"
    return (
        f" Without this {noun}, {unit.a} would take {wording.millis(left)}, {step_ms / left:.1f}×"
        " faster than now."
    )


def _copies_as_work(breakdown: Breakdown, bound: str) -> str:
    """A note that a TPU is busy while it waits for copies; "" where that does not show."""
    busy = breakdown.busy
    if bound not in ("input", "output") or busy is None or busy + breakdown.shares[bound] <= 100:
        return ""
    if not (breakdown.activity.devices["kind"] == "TPU").any():
        return ""
    return (
        f" TPU cores run copies and infeed as ops, so that time counts as busy ({busy:.0f}% of"
        f" {breakdown.unit.time})."
    )


def _device_worked(activity: Activity, step: float, busy: float) -> str:
    """The time that devices worked in a recording: "In these 605 ms the GPU works for 63 ms
    (10%).".
    """
    kinds = set(activity.devices["kind"].astype(str))
    kind = kinds.pop() if len(kinds) == 1 else "device"
    several = len(activity.devices) > 1
    works = f"the {kind}s work on average" if several else f"the {kind} works"
    return (
        f"In these {wording.millis(step)} {works} for {wording.millis(step * busy / 100)}"
        f" ({busy:.0f}%)."
    )


class Assessment(NamedTuple):
    """The evidence for and against a verdict, and the confidence that follows from it."""

    evidence: Evidence
    confidence: str


def _assess(
    breakdown: Breakdown, bound: str, name: str = "", on_recording: Evidence | None = None
) -> Assessment:
    """The evidence for the verdict that `bound` is the largest category, called `name` in it."""
    if breakdown.unit.is_recording:
        evidence = _evidence_of_recording(breakdown)
    else:
        evidence = _evidence_of_steps(breakdown, bound, name or label(bound).capitalize())
    evidence += _slowed(breakdown, bound) + (on_recording or []) + _sampled(breakdown, bound)
    failed = sum(not supports for supports, _ in evidence)
    confidence = {0: "high", 1: "medium"}.get(failed, "low")
    if breakdown.unit.is_recording:
        return Assessment(evidence, confidence)
    uncovered = _uncovered(breakdown)
    if uncovered:
        confidence = "low"
    return Assessment([*evidence, *uncovered, *_excluded(breakdown)], confidence)


def _uncovered(breakdown: Breakdown) -> Evidence:
    """That steps leave out a part of the loop; empty if they cover it."""
    unit = breakdown.unit
    kind = breakdown.counted["kind"].iloc[0]
    covered = covered_by_steps(breakdown.steps)
    if covered is None or covered >= COVERED:
        return []
    text = (
        f"{100 * (1 - covered):.0f}% of the time from the first to the last"
        f" {_unit_of_kind(kind, unit)} is outside {unit.plural}: validation, input or logging, for"
        " example; nbprof.steps(dataset) marks the whole loop"
    )
    return [(False, text)]


def _excluded(breakdown: Breakdown) -> Evidence:
    """The steps that are not in the averages: warm-up, and those of other kinds."""
    unit, steps = breakdown.unit, breakdown.steps
    kind = breakdown.counted["kind"].iloc[0]
    evidence: Evidence = []
    kinds = steps["kind"].to_numpy(object)
    is_warm = steps["warmup"].to_numpy(np.bool_) & (kinds == kind)
    if is_warm.any():
        warm = steps[is_warm]
        # The n-th of each host: they ran side by side.
        times = warm.groupby(warm.groupby("host").cumcount())["step_time_ms"].mean()
        listed = ", ".join(wording.millis(t, 0 if t >= 10 else 2) for t in times)
        first_units = unit.noun if len(times) == 1 else f"{len(times)} {unit.plural}"
        evidence.append((True, f"First {first_units} ({listed}) excluded: warm-up"))
    if (kinds != kind).any():
        other_kinds = steps.loc[kinds != kind, "kind"].value_counts()
        text = ", ".join(f"{n:,} {_unit_of_kind(str(k), unit)}s" for k, n in other_kinds.items())
        evidence.append((True, f"Only {_unit_of_kind(kind, unit)}s are averaged; {text} excluded"))
    return evidence


def _unit_of_kind(kind: str, unit: Unit) -> str:
    """A unit of a kind: "train step"."""
    return kind if kind == unit.noun else f"{kind} {unit.noun}"


def _evidence_of_recording(breakdown: Breakdown) -> Evidence:
    text = "No steps are marked: the recording may include startup besides the work of interest"
    return [(False, text), _complete(breakdown)]


def _evidence_of_steps(breakdown: Breakdown, bound: str, name: str) -> Evidence:
    unit, steps = breakdown.unit, breakdown.counted
    evidence = [
        _largest_in(steps, bound, name, unit),
        _enough_steps(breakdown),
        _steady(steps, unit),
        _complete(breakdown),
    ]
    if unit.agreement is not None:
        text = (
            f"{unit.plural.capitalize()} are an estimate that fits {100 * unit.agreement:.0f}% of"
            " the events"
        )
        evidence.append((True, text))
    return evidence


def _largest_in(steps: pd.DataFrame, bound: str, name: str, unit: Unit) -> tuple[bool, str]:
    """In how many steps the category is the largest, and its share in them."""
    count = len(steps)
    leading = int((_parts(steps).argmax(axis=1) == CATEGORIES.index(bound)).sum())
    every = _every(unit, leading, count)
    if steps["host"].nunique() > 1:
        every += f", counted per {step_count.noun(steps)}"
    few = _few(steps, bound)
    if few is not None:
        has = "has" if few.steps == 1 else "have"
        text = f"only {every}, which {has} {100 * few.share:.0f}% of it"
    else:
        # Some hosts may not have recorded it.
        time = steps["step_time_ms"].to_numpy(np.float64)
        share = 100 * np.nan_to_num(steps[f"{bound}_ms"].to_numpy(np.float64)) / time
        spread = f"{share[0]:.0f}"
        if count > 1:
            spread = f"{share.min():.0f}–{share.max():.0f}"
        text = f"{every} ({spread}%)"
    return leading >= (1 - FEW) * count, f"{name} is the largest part in {text}"


def _enough_steps(breakdown: Breakdown) -> tuple[bool, str]:
    """The number of steps, and whether it is enough for a mean."""
    unit, steps = breakdown.unit, breakdown.counted
    recorded, longest = step_count.longest(breakdown.steps), step_count.longest(steps)
    number = step_count.format_count(steps, unit=unit)
    if longest < recorded:
        number += f" counted of {recorded:,}"
    if longest >= ENOUGH:
        return True, number
    return False, f"Only {number}: capture {ENOUGH} or more{_maybe_warmup(steps, unit)}"


def _steady(steps: pd.DataFrame, unit: Unit) -> tuple[bool, str]:
    """The spread of step time, and whether it is small."""
    # Steps of ranks that run side by side resemble each other: they say no more of the spread than
    # those of one.
    if step_count.longest(steps) <= 1:
        return False, f"One {unit.noun} cannot show the spread of {unit.time}"
    time = steps["step_time_ms"].to_numpy()
    mean, sd = float(time.mean()), float(time.std(ddof=1))
    is_steady = sd <= STEADY * mean
    text = (
        f"{unit.time[0].upper()}{unit.time[1:]} {'is steady' if is_steady else 'varies'}: sd"
        f" {wording.millis(sd)}, {100 * sd / mean:.0f}% of the mean"
    )
    return is_steady, text


def _maybe_warmup(steps: pd.DataFrame, unit: Unit) -> str:
    """A note that the first of a few steps may be warm-up; "" where that is decided."""
    factors = [warmup.first_factor(rows) or 0.0 for _, rows in steps.groupby("host")]
    if max(factors) <= FEW_FACTOR:
        return ""
    return (
        f". The first takes {max(factors):.1f} times the longest of the others: too few"
        f" {unit.plural} to tell whether it is warm-up"
    )


def _every(unit: Unit, leading: int, count: int) -> str:
    if count == 1:
        return f"the only {unit.noun}"
    if leading == count:
        return f"all {count:,} {unit.plural}"
    return f"{leading:,} of {count:,} {unit.plural}"


def _complete(breakdown: Breakdown) -> tuple[bool, str]:
    dropped = breakdown.dropped
    if READ_IN_PART in breakdown.activity.traits:
        return False, "The file is truncated: what it held of the rest is unknown"
    if dropped == 0:
        return True, "Complete trace: no event was dropped"
    return False, f"{wording.plural(dropped, 'event')} {'was' if dropped == 1 else 'were'} dropped"


def _slowed(breakdown: Breakdown, bound: str) -> Evidence:
    """That a GPU waits for its host perhaps only because recording slows the host; empty where it
    would wait anyway.
    """
    activity, shares, busy = breakdown.activity, breakdown.shares, breakdown.busy
    if busy is None or not activity.has_host_ops or not (activity.devices["kind"] == "GPU").any():
        return []
    if shares["host_compute"] + shares["kernel_launch"] < checks.PART_HIGH:
        return []
    if breakdown.bare.slowdown is not None:
        return _slowed_as_measured(breakdown, bound, busy)
    slows_host = activity.framework.slows_host
    if not checks.may_keep_up(busy, slows_host):
        return []
    text = (
        f"Recording slows the host by up to {slows_host:g} times: without it, the device, which is"
        f" busy for {busy:.0f}% of {breakdown.unit.time} here, may rarely wait for the host"
    )
    return [(bound not in ("host_compute", "kernel_launch"), text)]


def _slowed_as_measured(breakdown: Breakdown, bound: str, busy: float) -> Evidence:
    """The same where steps ran without a profiler: the device does the same work in less time."""
    bare, unit = breakdown.bare, breakdown.unit
    slowdown, highest = bare.slowdown, bare.most_slowdown
    if slowdown is None or highest is None or not checks.keeps_up(busy, highest):
        return []
    without = min(busy * slowdown, 100.0)
    text = (
        f"Recording makes {unit.a} {slowdown:.2f} times as long: the device, busy for"
        f" {busy:.0f}% of {unit.time} here, is busy for {without:.0f}% without it"
    )
    return [(bound not in ("host_compute", "kernel_launch"), text)]


def _perhaps_recording(breakdown: Breakdown, part: str, percent: float) -> Evidence:
    """That the largest part of a program without a device may be so only while it is recorded;
    empty if another is smaller even where that part has all that recording cost.
    """
    slowdown, unit = breakdown.bare.slowdown, breakdown.unit
    if slowdown is None or breakdown.has_device or part not in _HOST_PARTS:
        return []
    others = {_HOST_PARTS[name]: share for name, share in breakdown.host_parts.items()}
    del others[_HOST_PARTS[part]]
    for category, share in breakdown.shares.items():
        if category not in ("host_compute", "other"):
            others[label(category)] = share
    second = max(others, key=others.__getitem__)
    cost = 100 * (1 - 1 / slowdown)
    if percent - cost >= others[second]:
        return []
    text = (
        f"Recording makes {unit.a} {slowdown:.2f} times as long: without it, {second},"
        f" {others[second]:.0f}% of {unit.time} here, may be the largest part"
    )
    return [(False, text)]


def _sampled(breakdown: Breakdown, bound: str) -> Evidence:
    """That few samples show what the host did; empty if there are enough, or if another category is
    the largest.
    """
    use = breakdown.unexplained
    if use is None or use.samples is None or use.samples >= _ENOUGH_SAMPLES:
        return []
    if bound != "other" and (bound != "host_compute" or breakdown.has_device):
        return []
    count = "once" if use.samples == 1 else f"{use.samples} times"
    text = (
        f"Python stacks were sampled only {count} outside ops: a longer recording says more of"
        " that time"
    )
    return [(False, text)]


def covered_by_steps(steps: pd.DataFrame) -> float | None:
    """The fraction of the time of the averaged loop, on all hosts, that is in steps; None for fewer
    than two steps on each.

    Gaps to steps of another kind are not part of a loop: there one ends and the next begins.
    """
    if step_count.longest(steps) < 2:
        return None
    kind = counted(steps)["kind"].iloc[0]
    in_steps = between = 0.0
    starts, times = (steps[key].to_numpy(np.float64) for key in ("start_ms", "step_time_ms"))
    looped, host = steps["kind"].to_numpy(object) == kind, pd.factorize(steps["host"])[0]
    for rows in rows_by_code(host):
        start, time, in_loop = starts[rows], times[rows], looped[rows]
        gaps = np.maximum(start[1:] - np.maximum.accumulate(start + time)[:-1], 0.0)
        in_steps += float(time[in_loop].sum())
        between += float(gaps[in_loop[1:] & in_loop[:-1]].sum())
    return in_steps / (in_steps + between) if in_steps + between > 0 else None


def label(category: str) -> str:
    """A category as words."""
    return category.replace("_", " ")


class _FewSteps(NamedTuple):
    """A few steps that have nearly all of a part: their number, their share of it (0 to 1), and the
    mean time of the others, ms.
    """

    steps: int
    share: float
    others_ms: float


def _parts(steps: pd.DataFrame) -> npt.NDArray[np.float64]:
    """float64[steps, categories]: the time of each category in ms, 0 where it is unknown."""
    times = [steps[f"{category}_ms"].to_numpy(np.float64) for category in CATEGORIES]
    result: npt.NDArray[np.float64] = np.nan_to_num(np.stack(times, axis=1))
    return result


def _few(steps: pd.DataFrame, bound: str) -> _FewSteps | None:
    """The steps whose largest part is `bound`, if they are a tenth of all or fewer and have nine
    tenths of it: one that compiled, for example.
    """
    parts = _parts(steps)
    column = CATEGORIES.index(bound)
    largest = parts.argmax(axis=1) == column
    count, total = int(largest.sum()), float(parts[:, column].sum())
    share = float(parts[largest, column].sum()) / total if total > 0 else 0.0
    if not 0 < count <= FEW * len(steps) or share < 1 - FEW:
        return None
    others_ms = float(steps["step_time_ms"].to_numpy(np.float64)[~largest].mean())
    return _FewSteps(count, share, others_ms)
