"""What to change, with evidence and code: at most five findings, largest gain first.

No figure, no advice. A gain is recorded time per step; its rule says whether that bounds what the
change saves, or estimates it. Conditions are those of `nbprof.analysis.advice.checks`: the
recommendations of TensorFlow Profiler's overview page.
"""

from __future__ import annotations

from collections.abc import Iterable
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
"""Rules that hold for inference engines. The others say what to write in a training loop or a
model, which an engine has of its own.
"""
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
    """One row per finding, largest gain first: the columns of `p.advice`. Without step times, only
    what a runtime logged about its memory.

    A profile with `runtime` figures is PyTorch's, which has its own rules.
    """
    evidence = evidence or Evidence()
    # Whether the host or the device limits a step is unknown without kernels.
    if overview["step_time_ms"] is None or evidence.lost_kernels:
        return frame(without_steps(evidence))
    shares = summary["percent"].fillna(0.0).astype(float)
    percent: dict[str, float] = dict(zip(summary["category"].astype(str), shares, strict=True))
    # Of all steps, as the shares are: the means are of the steps of the hosts that recorded a
    # category.
    mean = {
        category: share * float(overview["step_time_ms"]) / 100
        for category, share in percent.items()
    }
    findings = _findings(
        Facts(overview, mean, percent, pipelines, nodes, kernels, runtime, evidence)
    )
    return frame(findings, MOST_GAIN * mean["step_time"] / 100)


def frame(findings: Iterable[Finding], max_gain_ms: float = float("inf")) -> pd.DataFrame:
    """The findings with the largest gains, as the frame `p.advice`. A gain above `most` ms, nearly
    the whole step, is not stated.
    """
    by_gain = sorted(
        findings,
        key=lambda f: -1.0 if np.isnan(f.gain_ms_per_step) else f.gain_ms_per_step,
        reverse=True,
    )
    rows = [
        finding._replace(gain_ms_per_step=float("nan"))
        if finding.gain_ms_per_step > max_gain_ms
        else finding
        for finding in by_gain[:MOST]
    ]
    return pd.DataFrame(rows, columns=list(Finding._fields))


def without_steps(evidence: Evidence) -> list[Finding]:
    """Findings without measured steps: only what the runtime logged about its memory."""
    nothing = pd.DataFrame()
    return _asked(
        host_buffer.RULES, Facts({}, {}, {}, nothing, nothing, nothing, evidence=evidence)
    )


def _findings(facts: Facts) -> list[Finding]:
    """The findings of every rule, in the order of the rules."""
    findings: list[Finding] = []
    if not facts.npu:
        findings = _asked(_fitting(facts), facts)
    elif facts.torch:
        # What else is said to users of GPUs and TPUs does not hold there.
        findings = npu.in_words_of_npus(
            _asked([rule for rule in _fitting(facts) if rule.on_npu], facts)
        )
    if facts.npu:
        findings += npu.findings(facts)
    return [
        finding
        for finding in _merged(findings, facts)
        if not 100 * finding.gain_ms_per_step < WORTH_PERCENT * facts.mean["step_time"]
    ]


def _fitting(facts: Facts) -> list[AdviceRule]:
    """The rules that apply to the framework. Fixes are code of a framework, so a program without
    one gets none.
    """
    if not facts.framework.machine_learning:
        return []
    if facts.evidence.serving:
        return [rule for rule in every() if rule.name in OF_ENGINES]
    if not facts.framework.profiled:
        # What runs outside of ops is all that there is.
        return [rule for rule in every() if rule.applies == ALL and rule.name != "other"]
    if facts.torch:
        foreign: tuple[str, ...] = (TENSORFLOW, JAX, TENSORFLOW_JAX)
    elif facts.framework.xla:
        foreign = (PYTORCH,)
    else:
        foreign = (PYTORCH, TENSORFLOW, JAX, TENSORFLOW_JAX, XLA, TPU)
    return [rule for rule in every() if rule.applies not in foreign]


def _asked(rules: Iterable[AdviceRule], facts: Facts) -> list[Finding]:
    findings = [
        _of_rule(rule, facts) for rule in rules if not (rule.needs_units and facts.unit.whole)
    ]
    return [finding for finding in findings if finding is not None]


def _of_rule(rule: AdviceRule, facts: Facts) -> Finding | None:
    """The finding of one rule; a rule that fails has none, and the others are asked all the
    same.
    """

    def ask() -> Finding | None:
        found = rule.ask(facts)
        return (
            None
            if found is None
            else _beside(rule.finding(found, facts.unit), rule.shortens, facts)
        )

    return guarded(f"The rule {rule.name} of the advice", ask, lambda _: None)


def _beside(finding: Finding, shortens: str, facts: Facts) -> Finding | None:
    """A finding on a GPU as far as it holds beside what goes on meanwhile: the device's work, or
    the host's, which recording slows.
    """
    if facts.gpu_busy_percent is None or not shortens:
        return finding
    if shortens == HOST_TIME:
        return (
            None
            if facts.device_may_be_slower
            else finding._replace(gain_is=finding.gain_is and UP_TO)
        )
    if facts.device_may_be_slower:
        return finding
    # The host is slower for certain: a device that is done earlier waits longer, unless the host
    # waits for it each time.
    if 100 * finding.gain_ms_per_step < PART_MODERATE * facts.mean["step_time"]:
        return None
    return finding._replace(gain_is=finding.gain_is and UP_TO, severity="low")


def _merged(findings: list[Finding], facts: Facts) -> list[Finding]:
    """Without what is the same change twice: a larger batch, and, where only 16-bit numbers let ops
    use the units for matrices, these.
    """
    findings = device.one_batch(findings)
    by_rule = {finding.rule: finding for finding in findings}
    precise, cores = by_rule.get("mixed_precision"), by_rule.get("tensor_cores")
    if precise is None or cores is None or not facts.only_16_bit_cores:
        return findings
    more = max(precise, cores, key=lambda finding: finding.gain_ms_per_step)
    joined = precise._replace(
        gain_ms_per_step=more.gain_ms_per_step,
        gain_is=more.gain_is,
        evidence=f"{precise.evidence} {cores.evidence}",
    )
    high = [finding.severity for finding in (precise, cores) if finding.severity == "high"]
    joined = joined._replace(severity="high" if high else precise.severity)
    return [
        joined if finding is precise else finding for finding in findings if finding is not cores
    ]
