"""Findings of `p.advice`, with evidence and code: at most five, largest gain first.

A finding without a figure is not made. A gain is time per step, without a profiler where that is
known, else as recorded; its rule states whether the gain bounds or estimates the saving. Conditions
are those of `nbprof.analysis.advice.checks`: the recommendations of TensorFlow Profiler's overview
page.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.advice import (
    code,
    device,
    hlo,
    host,
    host_buffer,
    loaders,
    npu,
    over_steps,
    several,
    step,
    training,
    versions,
)
from nbprof.analysis.advice import input as input_rules
from nbprof.analysis.advice.checks import MOST_GAIN, PART_HIGH, PART_MODERATE
from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.advice.facts import AdviceRule, Facts
from nbprof.analysis.ops.torch_runtime import Runtime
from nbprof.analysis.rule import (
    ALL,
    HOST_TIME,
    JAX,
    PYTORCH,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TPU,
    UP_TO,
    XLA,
    Finding,
)
from nbprof.core.guard import guarded

TOPICS = (
    input_rules,
    loaders,
    step,
    host,
    code,
    hlo,
    training,
    device,
    several,
    over_steps,
    host_buffer,
    versions,
)
"""The modules whose `RULES` run, in this order; findings with equal gain, or none, keep it."""
MOST = 5
OF_ENGINES = ("straggler",)
"""Rules that hold for inference engines; the others are about code that an engine brings itself."""
WORTH_PERCENT = 1.0
"""Percent of step time: a finding that would save less is dropped."""


def every() -> tuple[AdviceRule, ...]:
    """All rules, in the order of the topics."""
    return tuple(rule for topic in TOPICS for rule in topic.RULES)


def advice(
    overview: dict[str, Any],
    summary: pd.DataFrame,
    pipelines: pd.DataFrame,
    nodes: pd.DataFrame,
    kernels: pd.DataFrame,
    runtime: Runtime | None = None,
    evidence: Evidence | None = None,
) -> pd.DataFrame:
    """One row per finding, largest gain first: the frame `p.advice`.

    Without step times, it has only what a runtime logged about its memory. A profile with `runtime`
    figures is PyTorch's, which has its own rules.
    """
    evidence = evidence or Evidence()
    # Without kernels it is unknown whether the host or the device limits a step.
    if overview["step_time_ms"] is None or evidence.lost_kernels:
        return frame(without_steps(evidence))
    shares = summary["percent"].fillna(0.0).astype(float)
    percent: dict[str, float] = dict(zip(summary["category"].astype(str), shares, strict=True))
    # Of all steps, as the shares are: the summary's own means are of the steps of the hosts that
    # recorded a category.
    step_time_ms = float(overview["step_time_ms"])
    mean = {category: share * step_time_ms / 100 for category, share in percent.items()}
    facts = Facts(overview, mean, percent, pipelines, nodes, kernels, runtime, evidence)
    return frame(_findings(facts), MOST_GAIN * mean["step_time"] / 100)


def frame(findings: Iterable[Finding], max_gain_ms: float = float("inf")) -> pd.DataFrame:
    """The findings with the largest gains, as the frame `p.advice`.

    A gain above `max_gain_ms`, nearly the whole step, is not stated, nor is one of nearly the whole
    bare step.
    """
    rows = []
    for finding in sorted(findings, key=_gain_order, reverse=True)[:MOST]:
        most_ms = max_gain_ms
        if not np.isnan(finding.gain_of_ms):
            most_ms = MOST_GAIN * finding.gain_of_ms / 100
        if finding.gain_ms_per_step > most_ms:
            finding = finding._replace(gain_ms_per_step=float("nan"))
        rows.append(finding)
    return pd.DataFrame(rows, columns=list(Finding._fields))


def _gain_order(finding: Finding) -> float:
    return -1.0 if np.isnan(finding.gain_ms_per_step) else finding.gain_ms_per_step


def without_steps(evidence: Evidence) -> list[Finding]:
    """Findings without measured steps: only what the runtime logged about its memory."""
    empty = pd.DataFrame()
    return _ask(host_buffer.RULES, Facts({}, {}, {}, empty, empty, empty, evidence=evidence))


def _findings(facts: Facts) -> list[Finding]:
    """The findings of every rule, in the order of the rules."""
    rules = _applicable_rules(facts)
    if not facts.npu:
        findings = _ask(rules, facts)
    else:
        findings = npu.findings(facts)
        if facts.torch:
            # Other advice for GPUs and TPUs does not hold for NPUs.
            for_npus = _ask([rule for rule in rules if rule.on_npu], facts)
            findings = npu.in_words_of_npus(for_npus) + findings
    merged = _merge_same_changes(findings, facts)
    # A finding with an unknown gain stays.
    return [finding for finding in merged if not _gain_percent(finding, facts) < WORTH_PERCENT]


def _gain_percent(finding: Finding, facts: Facts) -> float:
    """The gain in percent of the step that it is a part of; NaN if unknown."""
    step_ms = facts.mean["step_time"]
    if not np.isnan(finding.gain_of_ms):
        step_ms = finding.gain_of_ms
    return 100 * finding.gain_ms_per_step / step_ms if step_ms else float("nan")


def _applicable_rules(facts: Facts) -> list[AdviceRule]:
    """The rules that apply to the framework.

    Fixes are code of a framework, so a program without one gets none.
    """
    if not facts.framework.machine_learning:
        return []
    if facts.evidence.serving:
        return [rule for rule in every() if rule.name in OF_ENGINES]
    if not facts.framework.profiled:
        # Nothing but time outside of ops is recorded.
        return [rule for rule in every() if rule.applies == ALL and rule.name != "other"]
    if facts.torch:
        foreign: tuple[str, ...] = (TENSORFLOW, JAX, TENSORFLOW_JAX)
    elif facts.framework.xla:
        foreign = (PYTORCH,)
    else:
        foreign = (PYTORCH, TENSORFLOW, JAX, TENSORFLOW_JAX, XLA, TPU)
    return [rule for rule in every() if rule.applies not in foreign]


def _ask(rules: Iterable[AdviceRule], facts: Facts) -> list[Finding]:
    """The findings of rules; a rule that fails does not take the others."""
    findings = []
    for rule in rules:
        if rule.needs_units and facts.unit.is_recording:
            continue
        finding = guarded(
            f"The rule {rule.name} of the advice", partial(_ask_rule, rule, facts), lambda _: None
        )
        if finding is not None:
            findings.append(finding)
    return findings


def _ask_rule(rule: AdviceRule, facts: Facts) -> Finding | None:
    figures = rule.ask(facts)
    if figures is None:
        return None
    finding: Finding | None = rule.finding(figures, facts.unit)
    if finding is not None and facts.evidence.bare.bare:
        # Imported late, as few profiles have steps without the profiler.
        from nbprof.analysis.advice import bare_gain

        finding = bare_gain.in_bare_time(finding, figures, rule, facts)
    if finding is None:
        return None
    is_bare = not np.isnan(finding.gain_of_ms) and not np.isnan(figures.recording_cost)
    return _limit_to_slower_side(finding, rule.shortens, facts, is_bare=is_bare)


def _limit_to_slower_side(
    finding: Finding, shortens: str, facts: Facts, *, is_bare: bool = False
) -> Finding | None:
    """A finding on a GPU, reduced to what shortens the step: only the slower of device and host
    does, and recording slows the host, unless what it cost is taken from the gain (`is_bare`).
    """
    if facts.gpu_busy_percent is None or not shortens:
        return finding
    at_most = finding._replace(gain_is=finding.gain_is and UP_TO)
    if shortens == HOST_TIME:
        if facts.device_may_be_slower:
            return None
        return finding if is_bare else at_most
    if facts.device_may_be_slower:
        return finding
    # The host is slower for certain: a device that finishes earlier waits longer, unless the host
    # waits for it each time.
    worth = PART_MODERATE if np.isnan(finding.gain_of_ms) else PART_HIGH
    if _gain_percent(finding, facts) < worth:
        return None
    return at_most._replace(severity="low")


def _merge_same_changes(findings: list[Finding], facts: Facts) -> list[Finding]:
    """Findings without those that advise the same change as another one.

    These are two rules on a larger batch, and two on 16-bit numbers if ops need these to use the
    units for matrices.
    """
    findings = device.one_batch(findings)
    by_rule = {finding.rule: finding for finding in findings}
    precision, cores = by_rule.get("mixed_precision"), by_rule.get("tensor_cores")
    if precision is None or cores is None or not facts.only_16_bit_cores:
        return findings
    larger = max(precision, cores, key=lambda finding: finding.gain_ms_per_step)
    joined = precision._replace(
        gain_ms_per_step=larger.gain_ms_per_step,
        gain_is=larger.gain_is,
        evidence=f"{precision.evidence} {cores.evidence}",
    )
    if "high" in (precision.severity, cores.severity):
        joined = joined._replace(severity="high")
    findings = [finding for finding in findings if finding is not cores]
    findings[findings.index(precision)] = joined
    return findings
