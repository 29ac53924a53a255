"""Gains in the time of a step without a profiler, where enough steps ran without it."""

from __future__ import annotations

import math

from nbprof.analysis.advice.facts import AdviceRule, Facts
from nbprof.analysis.rule import ON_DEVICE, OUTSIDE, UP_TO, Finding, Found
from nbprof.analysis.steps.bare_parts import BareParts
from nbprof.display import wording

_NOTED = 1.1
"""How many times as long a recorded step is from which on the evidence says so."""
_OF_STEP = "of step time"


def in_bare_time(
    finding: Finding, figures: Found, rule: AdviceRule, facts: Facts
) -> Finding | None:
    """The finding with its gain as a part of the bare step; None if that proves it to be too small.

    Its evidence keeps the recorded times, and says that it does.
    """
    parts = facts.evidence.bare
    if not parts.bare or math.isnan(finding.gain_ms_per_step) or OUTSIDE in rule.saves:
        return finding
    gain, at_most = _gain(finding.gain_ms_per_step, figures, rule, parts)
    step_ms = parts.step_ms
    severity = _severity(finding, 100 * gain / step_ms, rule, facts)
    if not severity:
        return None
    evidence = finding.evidence
    if parts.recorded_ms >= _NOTED * step_ms:
        unit = facts.unit
        evidence += (
            f" Times are as recorded, where {unit.a} takes **{wording.millis(parts.recorded_ms)}**."
        )
    return finding._replace(
        gain_ms_per_step=min(gain, at_most),
        gain_is=finding.gain_is if rule.saved_categories else UP_TO,
        gain_of_ms=step_ms,
        severity=severity,
        evidence=evidence,
    )


def _gain(ms: float, figures: Found, rule: AdviceRule, parts: BareParts) -> tuple[float, float]:
    """The bare part of a recorded gain, and its upper bound."""
    categories = rule.saved_categories
    if not categories:
        return ms, parts.step_ms
    if not parts.device and set(categories) <= set(ON_DEVICE):
        # Without a device its work is that of the host.
        categories = ("host_compute",)
    at_most = sum(parts.bare[category] for category in categories)
    if not math.isnan(figures.recording_cost):
        return parts.of_events(ms, figures.recording_cost), at_most
    return parts.of_categories(ms, *categories), at_most


def _severity(finding: Finding, percent: float, rule: AdviceRule, facts: Facts) -> str:
    """The severity by a smaller share of the step; "" below the threshold of the rule."""
    numbers = rule.threshold.numbers
    recorded_percent = facts.percent_of_step(finding.gain_ms_per_step)
    is_of_step = "moderate" in numbers and _OF_STEP in str(rule.threshold)
    if not is_of_step or percent >= recorded_percent:
        return finding.severity
    # The share that the rule looks at may be larger than the gain.
    if percent < numbers["moderate"] <= recorded_percent:
        return ""
    if finding.severity == "high" and percent < numbers.get("high", 0.0):
        return "medium"
    return finding.severity
