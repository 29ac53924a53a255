"""Findings of `p.advice`, with evidence and code: at most five, largest gain first.

A finding without a figure is not made. A gain is recorded time per step; its rule states whether
the gain bounds or estimates the saving. Conditions are those of `nbprof.analysis.advice.checks`:
the recommendations of TensorFlow Profiler's overview page.
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
    npu,
    over_steps,
    several,
    step,
    training,
    versions,
)
from nbprof.analysis.advice import input as input_rules
from nbprof.analysis.advice.checks import MOST_GAIN, PART_MODERATE
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

    A gain above `max_gain_ms`, nearly the whole step, is not stated.
    """
    rows = []
    for finding in sorted(findings, key=_gain_order, reverse=True)[:MOST]:
        if finding.gain_ms_per_step > max_gain_ms:
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
    smallest = WORTH_PERCENT * facts.mean["step_time"]
    merged = _merge_same_changes(findings, facts)
    # A finding with an unknown gain stays.
    return [finding for finding in merged if not 100 * finding.gain_ms_per_step < smallest]


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
    return _limit_to_slower_side(rule.finding(figures, facts.unit), rule.shortens, facts)


def _limit_to_slower_side(finding: Finding, shortens: str, facts: Facts) -> Finding | None:
    """A finding on a GPU, reduced to what shortens the step: only the slower of device and host
    does, and recording slows the host.
    """
    if facts.gpu_busy_percent is None or not shortens:
        return finding
    at_most = finding._replace(gain_is=finding.gain_is and UP_TO)
    if shortens == HOST_TIME:
        return None if facts.device_may_be_slower else at_most
    if facts.device_may_be_slower:
        return finding
    # The host is slower for certain: a device that finishes earlier waits longer, unless the host
    # waits for it each time.
    if 100 * finding.gain_ms_per_step < PART_MODERATE * facts.mean["step_time"]:
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
