"""What bounds the program: the largest part of a step, call or recording, how sure that is, and
what it means.

Sentences take the words for the unit from `Unit`: "of step time", "per call", "of the recording".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES, EMPTY, ITERATIONS, LOST_KERNELS, PLAIN, Activity
from nbprof.activity.unit import Unit
from nbprof.analysis.advice import checks
from nbprof.analysis.contention import OTHERS
from nbprof.analysis.steps import step_count, warmup
from nbprof.analysis.steps.steps import counted, mostly_lost, waiting_percent
from nbprof.core.runs import rows_by_code
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.analysis.cpu import CpuSplit
    from nbprof.analysis.python import PythonUse, TopFunction

SINGLE_BOTTLENECK_PERCENT = 35.0
"""Below this share of the unit no category is called the bottleneck."""
COVERED = 0.8
"""Steps that cover less than this part of the time from the first to the last leave something of
the loop out.
"""
FEW = 0.1
"""A part is of a few steps where so many of them, or fewer, have all but this much of it."""
_ENOUGH_SAMPLES = 20
"""Samples that tell a part of a half from one of a third in most cases."""
ENOUGH = 10
"""Units from which on a mean is called certain."""
STEADY = 0.25
"""The largest standard deviation of a step time that is called steady, as a part of the mean."""

_CONTENDED_PERCENT = 75.0
"""Of the time in which threads were ready to run, that they waited for a core, from which on the
other processes are the answer.
"""

_STALLED = "for {p}% of {time} the host waits for a device that runs nothing"
_UNRECORDED = "for {p}% of {time} no device was busy, and the host was not recorded"

_INNER = re.compile(r"(?:\.<locals>)?\.<(?:listcomp|setcomp|dictcomp|genexpr|lambda)>|\.<locals>")
"""What Python adds to the name of a function for a part of it."""

Evidence = list[tuple[bool, str]]


@dataclass(frozen=True)
class Explanation:
    """What is said where a category is the largest part."""

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


@dataclass(frozen=True)
class Verdict:
    """The answer.

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
        What confidence follows from: whether it speaks for the verdict, and the sentence.
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
        What the host did, with the op, function or line that takes most of the time.
    percent : float
        Of the time of the unit.
    """

    category: str
    part: str
    text: str
    percent: float


@dataclass(frozen=True)
class Breakdown:
    """What a verdict is made of.

    Attributes
    ----------
    activity : Activity
    steps : DataFrame
        Rows of `p.steps.frame`, with what belongs to them inside nbprof.
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
        Whether a pipeline makes batches while the steps do something else.
    cpu : CpuSplit or None
        What host compute consists of, in a program without a device.
    unexplained : PythonUse or None
        What Python did in the time in which nothing was recorded (`other`), where its stacks were
        sampled.
    unrecorded : str
        What the framework ran that is not in the recording, as a sentence; "" where nothing is
        known of it.
    contention : mapping
        Of the cores, see `nbprof.capture.contention`.
    probed_ms : float or None
        What one takes without its input, where a probe measured that.
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

    @property
    def unit(self) -> Unit:
        """What a row of `steps` is."""
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
        """Whether the program has an accelerator."""
        return bool(self.activity.has_device or len(self.activity.device_extents))

    @cached_property
    def host_work(self) -> tuple[HostPart, ...]:
        """Host compute and the time outside ops, split by what the host did; empty where that is
        not known.
        """
        if self.unexplained is None and (self.cpu is None or self.has_device):
            return ()
        return (*_in_ops(self.shares["host_compute"], self.cpu), *_outside_ops(self))

    @property
    def host_parts(self) -> dict[str, float]:
        """Percent of the unit by what the host did, where that tells what to change; {} where it is
        not known.

        `compute` in ops and in libraries, `overhead` of a framework, `python`, `waiting`; and
        `host`, what is known no closer.
        """
        if not self.host_work:
            return {}
        parts = dict.fromkeys(_HOST_PARTS, 0.0)
        for work in self.host_work:
            parts[work.part] += work.percent
        return parts

    def second(self, but: str) -> str:
        """The largest category but one."""
        return max(
            (category for category in CATEGORIES if category != but), key=self.shares.__getitem__
        )


def _in_ops(percent: float, cpu: CpuSplit | None) -> list[HostPart]:
    """The parts of *host compute*."""
    if cpu is None:
        return [HostPart("host_compute", "host", "Ops", percent)]
    top = f": {cpu.top_op}" if cpu.top_op else ""
    return [
        HostPart("host_compute", "compute", f"Ops that compute{top}", percent * cpu.compute),
        HostPart("host_compute", "overhead", "Framework around ops", percent * (1 - cpu.compute)),
    ]


def _outside_ops(found: Breakdown) -> list[HostPart]:
    """The parts of the time in which nothing was recorded."""
    other, use = found.shares["other"], found.unexplained
    if use is None:
        return [HostPart("other", "host", "Not recorded", other)]
    stalled = waiting_percent(found.steps)
    rest = other - stalled
    return [
        HostPart("other", "python", f"Python{_in(use.top)}", rest * use.python),
        HostPart(
            "other",
            "compute",
            f"Compiled code of libraries{_in(use.top_library)}",
            rest * use.library,
        ),
        HostPart(
            "other",
            "overhead",
            f"Framework outside ops{_in(use.top_framework)}",
            rest * use.framework,
        ),
        HostPart(
            "other", "waiting", f"Waiting without a core{_in(use.top_waiting)}", rest * use.waiting
        ),
        HostPart("other", "host", "Waiting for the device", stalled),
    ]


def _in(top: TopFunction | None) -> str:
    """The function or line with most of a part, as the end of its name."""
    return f": {place(top)}" if top is not None else ""


def verdict(found: Breakdown) -> Verdict:
    """What bounds the program."""
    activity = found.activity
    if PLAIN in activity.traits:
        return _plain(activity)
    if LOST_KERNELS in activity.traits and "kernels" in activity.missing:
        # What the host did not do, the device may have done.
        fact = "no kernel was recorded, so what the device did is unknown"
        return Verdict(None, "Kernels not recorded", fact, activity.missing["kernels"])
    if is_unrecorded(found):
        fact = (
            "the framework worked on a thread that was not recorded, so what takes up"
            f" {found.unit.time} is unknown"
        )
        return Verdict(None, "Ops not recorded", fact, found.unrecorded)
    if not len(found.steps):
        return _without_work(activity)
    if (lost := mostly_lost(found.steps)) is not None:
        fact = (
            f"{lost[0]:,} of {lost[1]:,} {found.unit.plural} lost device work, so what most of them"
            " wait for is unknown"
        )
        return Verdict(
            None,
            "Device work not recorded",
            fact,
            "See the receipt. Record again with fewer steps, in a fresh process.",
        )
    bound = found.bound
    recorded = (
        activity.has_host_ops
        or activity.has_device
        or len(activity.device_extents)
        or found.unexplained is not None
    )
    # What iterations consist of may be stated in a table of their own.
    if bound == "other" and not recorded and ITERATIONS not in activity.traits:
        if found.unit.whole:
            return _without_work(activity)
        fact = (
            "neither host ops nor device work was recorded, so what takes up the"
            f" {found.unit.plural} is unknown"
        )
        return Verdict(
            None,
            "Host not recorded",
            fact,
            activity.missing.get("kernels", activity.missing.get("ops", "")),
        )
    host = found.host_parts
    if host and bound in ("host_compute", "other"):
        return _of_host(found, host)
    evidence, confidence = _assess(found, bound)
    if found.shares[bound] < SINGLE_BOTTLENECK_PERCENT:
        return _no_single_bottleneck(found, bound, confidence, evidence)
    return _bound(found, bound, confidence, evidence)


def is_unrecorded(found: Breakdown) -> bool:
    """Whether the work of the steps was on a thread that was not recorded."""
    return bool(found.unrecorded) and (
        not found.activity.has_host_ops or (len(found.steps) > 0 and found.bound == "other")
    )


def _plain(activity: Activity) -> Verdict:
    if EMPTY in activity.traits:
        detail = (
            "The recording was empty, or its events are in another file. Record again, while the"
            " program works."
        )
        return Verdict(None, "No events", "the trace holds no events", detail)
    open_ = (
        "steps, ops, kernels or allocations"
        if "kernels" in activity.missing
        else "steps, ops or allocations"
    )
    detail = f"Which of its events are {open_} is unknown; the trace view shows them all."
    return Verdict(
        None, "Plain trace", "it was not written by a framework that nbprof knows", detail
    )


def _without_work(activity: Activity) -> Verdict:
    if activity.unit.whole:
        detail = activity.missing.get("ops", "")
        return Verdict(None, "No work recorded", "no op, call or device work was recorded", detail)
    detail = activity.missing.get(
        "steps", "Mark steps with nbprof.steps() or the framework's step markers."
    )
    return Verdict(None, "Unknown", "no steps were found, so step time is unknown", detail)


def _no_single_bottleneck(
    found: Breakdown, bound: str, confidence: str, evidence: Evidence
) -> Verdict:
    unit, second = found.unit, sorted(found.shares, key=lambda category: -found.shares[category])[1]
    takes = f"{unit.a[0].upper()}{unit.a[1:]} takes {wording.millis(found.mean_ms)}."
    return Verdict(
        None,
        "No single bottleneck",
        f"the largest category, {label(bound).capitalize()}, is {found.shares[bound]:.0f}% of"
        f" {unit.time}",
        f"Next is {label(second)} with {found.shares[second]:.0f}%. {takes}",
        confidence,
        tuple(evidence),
    )


def _of_host(found: Breakdown, parts: dict[str, float]) -> Verdict:
    """The verdict on a program that spends most of its time on the host, by what it does there."""
    recorded_bound, part = found.bound, max(parts, key=parts.__getitem__)
    other = max(
        (c for c in CATEGORIES if c not in ("host_compute", "other")), key=found.shares.__getitem__
    )
    if found.shares[other] > parts[part]:
        recorded_bound, part = other, "host"
    evidence, confidence = _assess(
        found, recorded_bound, "" if part == "host" else _TIME_OF_HOST[recorded_bound]
    )
    top = found.shares[recorded_bound] if part == "host" else parts[part]
    if top < SINGLE_BOTTLENECK_PERCENT:
        return _no_single_part(found, parts, confidence, evidence)
    if part == "host":
        answer = _bound(found, recorded_bound, confidence, evidence)
    else:
        fact, detail = _SAY[part](found, parts[part])
        in_ops = (
            part in ("compute", "overhead")
            and found.shares["host_compute"] >= found.shares["other"]
        )
        bound = "host_compute" if in_ops else "other"
        answer = Verdict(
            bound, _TITLES[part], fact, f"{detail}{_next(parts, part)}", confidence, tuple(evidence)
        )
    return (
        _contended(found, answer)
        if not found.has_device and contended(found.contention)
        else answer
    )


def _next(parts: dict[str, float], part: str) -> str:
    """The part that comes next, as a sentence; "" where it is small."""
    second = max((name for name in parts if name != part), key=parts.__getitem__)
    return (
        f" Next is {_HOST_PARTS[second]} with {parts[second]:.0f}%."
        if parts[second] >= checks.INPUT_HIGH
        else ""
    )


def _no_single_part(
    found: Breakdown, parts: dict[str, float], confidence: str, evidence: Evidence
) -> Verdict:
    unit = found.unit
    shares = {
        label(category): share
        for category, share in found.shares.items()
        if category not in ("host_compute", "other")
    }
    shares |= {name: parts[part] for part, name in _HOST_PARTS.items()}
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    takes = f"{unit.a[0].upper()}{unit.a[1:]} takes {wording.millis(found.mean_ms)}."
    return Verdict(
        None,
        "No single bottleneck",
        f"the largest part is {first}, {shares[first]:.0f}% of {unit.time}",
        f"Next is {second} with {shares[second]:.0f}%. {takes}",
        confidence,
        tuple(evidence),
    )


_HOST_PARTS = {
    "compute": "compute on the host",
    "overhead": "framework overhead",
    "python": "Python code",
    "waiting": "waiting",
    "host": "other host time",
}
_TIME_OF_HOST = {"host_compute": "Time in ops", "other": "Time outside ops"}
"""What is said to be the largest part where the verdict names a part of it."""
_TITLES = {
    "compute": "Compute-bound",
    "overhead": "Overhead-bound",
    "python": "Python-bound",
    "waiting": "Waiting",
}


def _time_of(found: Breakdown, percent: float) -> str:
    step = found.mean_ms
    return (
        f"That is {wording.millis(step * percent / 100)} of the {wording.millis(step)}"
        f" {found.unit.per}"
    )


def _compute(found: Breakdown, percent: float) -> tuple[str, str]:
    """Ops that take their time, and calls of libraries."""
    cpu, use = found.cpu, found.unexplained
    in_ops = found.shares["host_compute"] * cpu.compute if cpu is not None else 0.0
    if cpu is not None and 2 * in_ops >= percent:
        fact = f"{percent:.0f}% of {found.unit.time} is spent in ops that compute"
        most = f", {cpu.top_percent:.0f}% of it in {cpu.top_op}" if cpu.top_op else ""
        return fact, f"{_time_of(found, percent)}{most}.{_cores(found)}"
    top = use.top_library if use is not None else None
    fact = f"{percent:.0f}% of {found.unit.time} is spent in compiled library code"
    most = f", {100 * top.line_share:.0f}% of it in {place(top)}" if top is not None else ""
    return fact, f"{_time_of(found, percent)}{most}.{_cores(found)}"


def _overhead(found: Breakdown, percent: float) -> tuple[str, str]:
    """What a framework does around ops."""
    cpu, unit, use = found.cpu, found.unit, found.unexplained
    outside = sum(
        work.percent
        for work in found.host_work
        if work.part == "overhead" and work.category == "other"
    )
    if use is not None and use.top_framework is not None and 2 * outside >= percent:
        fact = f"{percent:.0f}% of {unit.time} is spent in the framework, outside ops"
        return fact, f"{_time_of(found, percent)}, most of it in {place(use.top_framework)}."
    fact = (
        f"{percent:.0f}% of {unit.time} is spent by the framework around ops, not in ops that"
        " compute"
    )
    detail = f"{_time_of(found, percent)}: the framework dispatches ops rather than computing"
    if cpu is not None and cpu.op_calls >= 1:
        detail += (
            f"; of the {cpu.op_calls:,.0f} ops {unit.per}, {cpu.tiny_calls:,.0f} take less than"
            " 20 µs"
        )
    return fact, f"{detail}."


def _python(found: Breakdown, percent: float) -> tuple[str, str]:
    """Python code between ops."""
    top = found.unexplained.top if found.unexplained is not None else None
    fact = f"{percent:.0f}% of {found.unit.time} is Python code"
    most = f", {100 * top.share:.0f}% of it in {place(top)}" if top is not None else ""
    return fact, f"{_time_of(found, percent)}{most}."


def _waiting(found: Breakdown, percent: float) -> tuple[str, str]:
    """Time in which the process sleeps."""
    top = found.unexplained.top_waiting if found.unexplained is not None else None
    fact = f"for {percent:.0f}% of {found.unit.time} the program waits without using a core"
    most = f", most of it in {place(top)}" if top is not None else ""
    return fact, f"{_time_of(found, percent)}{most}."


_SAY = {"compute": _compute, "overhead": _overhead, "python": _python, "waiting": _waiting}


def place(top: TopFunction) -> str:
    """Where in the person's code, and what was called there."""
    function = _INNER.sub("", top.function)
    where = (
        f"line {top.line} of {top.file}"
        if function == "<module>"
        else f"{function}, {top.file} line {top.line}"
    )
    return f"{top.call}, called in {where}" if top.call else where


def _cores(found: Breakdown) -> str:
    """How many of the cores were busy, as a sentence; "" where it is not known."""
    cores, used = found.contention.get("cores", 0.0), found.contention.get("own_cores", 0.0)
    return f" {used:.1f} of {cores:.0f} cores were busy with it." if cores else ""


def contended(measured: Mapping[str, float]) -> bool:
    """Whether threads of the program waited for cores, which others used, for most of the time in
    which they could have run.
    """
    cores, others = measured.get("cores", 0.0), measured.get("other_cores", 0.0)
    return (
        cores > 0
        and others >= OTHERS * cores
        and measured.get("waited_percent", 0.0) >= _CONTENDED_PERCENT
    )


def _contended(found: Breakdown, answer: Verdict) -> Verdict:
    """That other processes took the cores, before what the program does with those that it had."""
    waited, cores, others = (
        found.contention[key] for key in ("waited_percent", "cores", "other_cores")
    )
    fact = f"this process waited for a free core {waited:.0f}% of its runnable time"
    detail = f"Other processes used {others:.1f} of the {cores:.0f} cores."
    quiet = (
        f"Expect {found.unit.a} to take less than {wording.millis(found.mean_ms)} on an idle"
        " machine."
    )
    rest = f"{answer.fact[0].upper()}{answer.fact[1:]}. {answer.detail}"
    return replace(answer, title="Contended", fact=fact, detail=f"{detail} {quiet} {rest}")


def _bound(found: Breakdown, bound: str, confidence: str, evidence: Evidence) -> Verdict:
    top, explanation, shown = found.shares[bound], EXPLANATIONS[bound], found.shares[bound]
    title, fact, why = explanation.title, explanation.fact, explanation.why
    waiting = waiting_percent(found.steps) if bound == "other" else 0.0
    if waiting >= top / 2:
        title, fact, shown = "Stalled", _STALLED, waiting
        why = (
            "a call waits while no kernel or copy runs; p.device_time.idle shows how long work was"
            " queued in that time"
        )
    else:
        shown -= waiting
        if bound == "other" and not found.activity.has_host_ops:
            fact, why = (
                _UNRECORDED,
                "no device runtime call that launches, copies or waits was recorded in that time",
            )
    if found.captures and bound == "compile":
        title, fact = "Capture-bound", "{p}% of {time} is spent capturing a graph"
        why = "launches are captured into a graph within {the}, which happens once"
    why = _why(found, bound, why)
    words = {"p": f"{shown:.0f}", "time": found.unit.time, "the": found.unit.the}
    detail = _detail(found, bound, shown, why.format(**words))
    return Verdict(bound, title, fact.format(**words), detail, confidence, tuple(evidence))


def _why(found: Breakdown, bound: str, why: str) -> str:
    """Why a category is large, where the recording says more than its explanation."""
    activity, used = found.activity, found.counted
    if bound == "host_compute" and len(activity.device_extents):
        return f"the host {activity.framework.words.host_work} while the device is idle"
    if bound == "input" and used["host_to_device_ms"].sum() > used["input_ms"].sum() / 2:
        return "{the} waits until its data is copied from host memory to the device"
    second = found.second(bound)
    if bound == "device_compute" and found.shares[second] >= checks.INPUT_HIGH:
        # It is hardly the bottleneck if so much of the step passes without it.
        next_ = (
            f"Next is {label(second)} with {found.shares[second]:.0f}%, in which the device does"
            " not compute"
        )
        return f"kernels run on the device. {next_}"
    return why


def _detail(found: Breakdown, bound: str, shown: float, why: str) -> str:
    unit, used, step, busy = found.unit, found.counted, found.mean_ms, found.busy
    # Of all steps, as its share is: the mean is of the steps of the hosts that recorded it.
    time = step * shown / 100
    left = step - time
    few = _few(used, bound) if used["host"].nunique() == 1 else None
    that = "That" if few is None else "On average that"
    detail = f"{that} is {wording.millis(time)} of the {wording.millis(step)} {unit.per}: {why}."
    if unit.whole and busy is not None:
        detail = f"{_device_worked(found.activity, step, busy)} {detail}"
    top = found.shares[bound]
    if few is not None:
        rest = len(used) - few.steps
        detail += (
            f" {100 * few.share:.0f}% of it is in {few.steps:,} of {len(used):,} {unit.plural}; the"
            f" other {rest:,} take "
        )
        detail += f"{wording.millis(few.others_ms)} on average."
    elif bound == "other" and found.shares["input"] >= checks.INPUT_MODERATE and found.works_ahead:
        waits, they = ("waits", "it") if unit.whole else ("wait", "they")
        subject = "The recording" if unit.whole else f"The {unit.plural}"
        detail += (
            f" {subject} {waits} for input as well, which tf.data prepares in the meantime: without"
            f" this time, {they} would wait longer."
        )
    elif bound == "input" and found.probed_ms is not None:
        detail += (
            f" With instant input, {unit.a} takes {wording.millis(found.probed_ms)} (measured by"
            " --probe)."
        )
    elif bound not in ("device_compute", "host_compute") and top <= (
        checks.MOST_UNKNOWN if bound == "other" else checks.MOST_GAIN
    ):
        what = "wait" if bound == "input" else "time"
        detail += (
            f" Without this {what}, {unit.a} would take {wording.millis(left)}, {step / left:.1f}×"
            " faster than now."
        )
    if (
        bound in ("input", "output")
        and busy is not None
        and busy + top > 100
        and (found.activity.devices["kind"] == "TPU").any()
    ):
        detail += (
            f" TPU cores run copies and infeed as ops, so that time counts as busy ({busy:.0f}% of"
            f" {unit.time})."
        )
    return detail


def _device_worked(activity: Activity, step: float, busy: float) -> str:
    """How long devices worked in a recording: "In these 605 ms the GPU works for 63 ms (10%)."."""
    kinds = set(activity.devices["kind"].astype(str))
    kind = kinds.pop() if len(kinds) == 1 else "device"
    several = len(activity.devices) > 1
    works = f"the {kind}s work on average" if several else f"the {kind} works"
    return (
        f"In these {wording.millis(step)} {works} for {wording.millis(step * busy / 100)}"
        f" ({busy:.0f}%)."
    )


def _assess(found: Breakdown, bound: str, name: str = "") -> tuple[Evidence, str]:
    """What speaks for the verdict and against it, and how sure it is therefore; `name` is that of
    the category in the sentence.
    """
    unit, steps, used = found.unit, found.steps, found.counted
    evidence = (
        _of_recording(found)
        if unit.whole
        else _of_steps(found, bound, name or label(bound).capitalize())
    )
    evidence += _slowed(found, bound) + _sampled(found, bound)
    failed = sum(not ok for ok, _ in evidence)
    level = {0: "high", 1: "medium"}.get(failed, "low")
    if unit.whole:
        return evidence, level
    kind = used["kind"].iloc[0]
    covered = covered_by_steps(steps)
    if covered is not None and covered < COVERED:
        outside = (
            f"{100 * (1 - covered):.0f}% of the time from the first to the last"
            f" {_of_kind(kind, unit)} is outside {unit.plural}"
        )
        evidence.append(
            (
                False,
                (
                    f"{outside}: validation, input or logging, for example; nbprof.steps(dataset)"
                    " marks the whole loop"
                ),
            )
        )
        level = "low"
    warm = steps[steps["warmup"].astype(bool) & (steps["kind"] == kind)]
    if len(warm):
        # The n-th of each host: they ran side by side.
        times = warm.groupby(warm.groupby("host").cumcount())["step_time_ms"].mean()
        first = ", ".join(wording.millis(t, 0 if t >= 10 else 2) for t in times)
        which = unit.noun if len(times) == 1 else f"{len(times)} {unit.plural}"
        evidence.append((True, f"First {which} ({first}) excluded: warm-up"))
    others = steps.loc[steps["kind"] != kind, "kind"].value_counts()
    if len(others):
        text = ", ".join(f"{n:,} {_of_kind(str(other), unit)}s" for other, n in others.items())
        evidence.append((True, f"Only {_of_kind(kind, unit)}s are averaged; {text} excluded"))
    return evidence, level


def _of_kind(kind: str, unit: Unit) -> str:
    """A unit of a kind: "train step"."""
    return kind if kind == unit.noun else f"{kind} {unit.noun}"


def _of_recording(found: Breakdown) -> Evidence:
    return [
        (
            False,
            "No steps are marked: the recording may include startup besides the work of interest",
        ),
        _complete(found.dropped),
    ]


def _of_steps(found: Breakdown, bound: str, name: str) -> Evidence:
    unit, steps = found.unit, found.counted
    recorded = step_count.most(found.steps)
    parts = steps[[f"{c}_ms" for c in CATEGORIES]].fillna(0.0).to_numpy()
    count = len(steps)
    leading = int((parts.argmax(axis=1) == CATEGORIES.index(bound)).sum())
    time = steps["step_time_ms"].to_numpy()
    mean = float(time.mean())
    sd = float(time.std(ddof=1)) if count > 1 else 0.0
    # Some hosts may not have recorded it.
    share = 100 * steps[f"{bound}_ms"].fillna(0.0).to_numpy(np.float64) / time
    spread = f" ({share.min():.0f}–{share.max():.0f}%)" if count > 1 else f" ({share[0]:.0f}%)"
    every = _every(unit, leading, count)
    number = step_count.format_count(steps, unit=unit)
    if steps["host"].nunique() > 1:
        every += f", counted per {step_count.noun(steps)}"
    few = _few(steps, bound)
    if few is not None:
        spread = f", which {'has' if few.steps == 1 else 'have'} {100 * few.share:.0f}% of it"
    # Steps of ranks that run side by side resemble each other: they say no more of the spread than
    # those of one.
    longest = step_count.most(steps)
    if longest < recorded:
        number += f" counted of {recorded:,}"
    steady = longest > 1 and sd <= STEADY * mean
    of_time = f"{unit.time[0].upper()}{unit.time[1:]}"
    spread_text = (
        f"{of_time} {'is steady' if steady else 'varies'}: sd {wording.millis(sd)},"
        f" {100 * sd / mean:.0f}% of the mean"
    )
    alone = f"One {unit.noun} cannot show the spread of {unit.time}"
    out = [
        (
            leading >= (1 - FEW) * count,
            f"{name} is the largest part in {every if few is None else f'only {every}'}{spread}",
        ),
        (
            longest >= ENOUGH,
            (
                number
                if longest >= ENOUGH
                else f"Only {number}: capture {ENOUGH} or more{_maybe_warmup(steps, unit)}"
            ),
        ),
        (steady, spread_text if longest > 1 else alone),
        _complete(found.dropped),
    ]
    if unit.agreement is not None:
        out.append(
            (
                True,
                (
                    f"{unit.plural.capitalize()} are an estimate that fits"
                    f" {100 * unit.agreement:.0f}% of the events"
                ),
            )
        )
    return out


def _maybe_warmup(steps: pd.DataFrame, unit: Unit) -> str:
    """That the first of a few steps may be warm-up, where their number leaves that open; ""
    elsewhere.
    """
    factors = [warmup.first_factor(rows) or 0.0 for _, rows in steps.groupby("host")]
    if max(factors) <= warmup.FEW_FACTOR:
        return ""
    return (
        f". The first takes {max(factors):.1f} times the longest of the others: too few"
        f" {unit.plural} to tell whether it is warm-up"
    )


def _every(unit: Unit, leading: int, count: int) -> str:
    if count == 1:
        return f"the only {unit.noun}"
    return (
        f"all {count:,} {unit.plural}"
        if leading == count
        else f"{leading:,} of {count:,} {unit.plural}"
    )


def _complete(dropped: int) -> tuple[bool, str]:
    if dropped == 0:
        return True, "Complete trace: no event was dropped"
    return False, f"{wording.plural(dropped, 'event')} {'was' if dropped == 1 else 'were'} dropped"


def _slowed(found: Breakdown, bound: str) -> Evidence:
    """That a GPU which waits for its host may not do so without the recording, which slows the
    host; nothing where it would for certain.
    """
    activity, shares, busy = found.activity, found.shares, found.busy
    if busy is None or not activity.has_host_ops or not (activity.devices["kind"] == "GPU").any():
        return []
    if shares["host_compute"] + shares[
        "kernel_launch"
    ] < checks.PART_HIGH or not checks.may_keep_up(busy, activity.framework.slows_host):
        return []
    text = (
        f"Recording slows the host by up to {activity.framework.slows_host:g} times: without it,"
        f" the device, which is busy for {busy:.0f}% of {found.unit.time} here, may rarely wait for"
        " the host"
    )
    return [(bound not in ("host_compute", "kernel_launch"), text)]


def _sampled(found: Breakdown, bound: str) -> Evidence:
    """That few samples tell what the host did; nothing where there are enough, or where another
    category is the largest.
    """
    use = found.unexplained
    by_samples = ("other",) if found.has_device else ("host_compute", "other")
    if (
        use is None
        or use.samples is None
        or use.samples >= _ENOUGH_SAMPLES
        or bound not in by_samples
    ):
        return []
    count = "once" if use.samples == 1 else f"{use.samples} times"
    return [
        (
            False,
            (
                f"Python stacks were sampled only {count} outside ops: a longer recording says more"
                " of that time"
            ),
        )
    ]


def covered_by_steps(steps: pd.DataFrame) -> float | None:
    """The part of the time of the averaged loop, on all hosts, that is in steps; None for fewer
    than two on each.

    Gaps to steps of another kind are no part of a loop: there one ends and the next is made.
    """
    if step_count.most(steps) < 2:
        return None
    kind = counted(steps)["kind"].iloc[0]
    inside = between = 0.0
    starts, times = (steps[key].to_numpy(np.float64) for key in ("start_ms", "step_time_ms"))
    looped, host = (steps["kind"] == kind).to_numpy(), pd.factorize(steps["host"])[0]
    for rows in rows_by_code(host):
        start, time, in_loop = starts[rows], times[rows], looped[rows]
        gaps = np.maximum(start[1:] - np.maximum.accumulate(start + time)[:-1], 0.0)[
            in_loop[1:] & in_loop[:-1]
        ]
        inside, between = inside + float(time[in_loop].sum()), between + float(gaps.sum())
    return inside / (inside + between) if inside + between > 0 else None


def label(category: str) -> str:
    """A category as words."""
    return category.replace("_", " ")


class _Few(NamedTuple):
    """A few steps that have nearly all of a part: how many of all, their share of it (0 to 1), and
    the mean time of the others, ms.
    """

    steps: int
    share: float
    others_ms: float


def _few(steps: pd.DataFrame, bound: str) -> _Few | None:
    """The steps whose largest part is `bound`, if they are a tenth of all or fewer and have nine
    tenths of it: one that compiled, say.
    """
    parts = steps[[f"{c}_ms" for c in CATEGORIES]].fillna(0.0).to_numpy()
    column = CATEGORIES.index(bound)
    largest = parts.argmax(axis=1) == column
    count, total = int(largest.sum()), float(parts[:, column].sum())
    share = float(parts[largest, column].sum()) / total if total > 0 else 0.0
    if not 0 < count <= FEW * len(steps) or share < 1 - FEW:
        return None
    return _Few(count, share, float(steps["step_time_ms"].to_numpy(np.float64)[~largest].mean()))
