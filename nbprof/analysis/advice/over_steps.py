"""Advice rules about what happens over the steps of a run: slow ones at equal distances, and memory
that grows from one to the next.
"""

from __future__ import annotations

from nbprof.analysis.advice.checks import PART_HIGH, PART_MODERATE
from nbprof.analysis.advice.code import VALIDATED, validation
from nbprof.analysis.advice.facts import INPUT, MEMORY, TRACE, AdviceRule, Facts
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    INFERRED,
    OURS,
    OUTSIDE,
    Found,
    Rule,
    Shown,
    Threshold,
)
from nbprof.analysis.steps.periodic import CHANCE
from nbprof.display import wording

_NAMED = 80
# Categories with other rules, which have a remedy.
_OWN_RULES = ("input", "compile")


def _periodic(facts: Facts, limit: Threshold) -> Found | None:
    rhythm = facts.evidence.periodic
    if rhythm is None or rhythm.chance > limit["chance"] or rhythm.updates:
        return None
    if rhythm.category in _OWN_RULES:
        return None
    share = 100 * rhythm.per_step_ms / facts.mean["step_time"]
    explained_ms = limit["cause"] * rhythm.extra_ms
    named = bool(rhythm.what) and rhythm.what_ms >= explained_ms
    unrecorded = rhythm.category == "other" and rhythm.category_ms >= explained_ms
    if share < limit["moderate"] or not (named or unrecorded):
        return None
    # A rhythm of validation has a finding of another rule as well.
    validated = validation(facts, VALIDATED)
    if validated is not None and validated.gain_ms >= limit["cause"] * rhythm.per_step_ms:
        return None
    nth = ordinal(rhythm.every)
    text = (
        f"Every **{nth}** {facts.unit.noun} takes **{wording.millis(rhythm.extra_ms)}** longer than"
        f" the others (**{rhythm.slow}** of **{rhythm.steps}** {facts.unit.plural}):"
        f" **{wording.millis(rhythm.per_step_ms)}** {facts.unit.per} on average. "
    )
    if named:
        name = wording.tail(rhythm.what, _NAMED).replace("*", "")
        text += (
            f"{name} takes **{wording.millis(rhythm.what_ms)}** more there: it runs"
            f" **{rhythm.more:,.3g}** times, in the others **{rhythm.fewer:,.3g}** times."
        )
    else:
        text += (
            f"**{wording.millis(rhythm.category_ms)}** of that are in no recorded event: a"
            " checkpoint, logging, validation or garbage collection in Python would look like"
            " this."
        )
    fix = (
        f"-if step % {rhythm.every} == 0:\n"
        f"+if step % {10 * rhythm.every} == 0:\n"
        "     save(model)  # or log, or validate"
    )
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=rhythm.per_step_ms,
        fix=fix,
        title=f"Do less in every {nth} {facts.unit.noun}",
    )


def ordinal(number: int) -> str:
    """A number as a place in an order: 8th, 21st."""
    suffix = "th"
    if number % 100 not in (11, 12, 13):
        suffix = _SUFFIXES.get(number % 10, suffix)
    return f"{number}{suffix}"


_MIB = 2**20
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def _slow_unrecorded(facts: Facts, limit: Threshold) -> Found | None:
    slow = facts.evidence.slow_unrecorded
    if slow is None or slow.chance > limit["chance"]:
        return None
    share = 100 * slow.share
    if share < limit["moderate"]:
        return None
    nth = ordinal(slow.every)
    often, extra = len(slow.numbers), wording.millis(slow.extra_ms)
    text = f"Every **{nth}** step takes **{extra}** longer than the others"
    title = f"Record what every {nth} step does"
    like = "A checkpoint, logging, validation or garbage collection in Python would look like this."
    if slow.between:
        text = f"After every **{nth}** step **{extra}** pass until the next"
        title = f"Record what follows every {nth} step"
        like = "A validation, a checkpoint or a callback between epochs would look like this."
        if 2 * slow.of_others_ms >= slow.extra_ms:
            like = f"**{wording.millis(slow.of_others_ms)}** of it are steps of an evaluation."
    begin, end = slow.example
    text += (
        f" (**{often}** times in **{slow.steps:,}** steps without the profiler):"
        f" **{wording.millis(slow.per_step_ms)}** per step on average, **{share:.0f}%** of the"
        " time from the first step of the cell to the last. None of that was recorded."
        f" {like} Steps {begin} to {end} have one of them."
    )
    return Found(
        text,
        severity=limit.severity(share),
        fix=f"-%%nbprof\n+%%nbprof --steps {begin}:{end}",
        title=title,
    )


def _slowing(facts: Facts, limit: Threshold) -> Found | None:
    slowing = facts.evidence.slowing
    if slowing is None or slowing.last_ms < limit["more"] * slowing.first_ms:
        return None
    text = (
        f"Over **{slowing.steps:,}** steps without the profiler the step time rose from"
        f" **{wording.millis(slowing.first_ms)}** to **{wording.millis(slowing.last_ms)}**, at an"
        " even pace. Something may grow from step to step: a list, a graph that is kept, a buffer"
        " that is copied."
    )
    severity = "high" if slowing.last_ms >= limit["high"] * slowing.first_ms else "medium"
    scalar = "loss.item()" if facts.torch else "float(loss)"
    fix = f"-losses.append(loss)\n+losses.append({scalar})"
    return Found(text, severity=severity, fix=fix)


def _growth(facts: Facts, limit: Threshold) -> Found | None:
    growth = facts.evidence.growth
    if growth is None or growth.steps < limit["steps"] or growth.rising < limit["often"]:
        return None
    if growth.each < limit["least"] * growth.peak:
        return None
    text = (
        f"Memory in use by {growth.memory} grows by **{wording.size(growth.each)}**"
        f" {facts.unit.per}, **{wording.size(growth.grown)}** over **{growth.steps}**"
        f" {facts.unit.plural}, and is not freed"
    )
    if growth.op:
        text += f"; most of it was allocated by {wording.tail(growth.op, _NAMED).replace('*', '')}"
        details = ", ".join(filter(None, (growth.role, growth.shape)))
        if details:
            text += f" ({details})"
        if growth.line:
            preposition = "at"
            if growth.in_function:
                preposition = "in the function at"
            text += f" {preposition} **{growth.line}**"
    text += "."
    severity = "medium"
    if growth.capacity is not None:
        left = max(growth.capacity - growth.peak, 0) / growth.each
        text += f" At this rate memory is full after **{left:,.0f}** more {facts.unit.plural}."
        if left < limit["soon"]:
            severity = "high"
    scalar = "loss.item()" if facts.torch else "float(loss)"
    fix = f"-losses.append(loss)\n+losses.append({scalar})"
    return Found(text, severity=severity, fix=fix)


def _host_growth(facts: Facts, limit: Threshold) -> Found | None:
    growth = facts.evidence.host_growth
    if growth is None or growth.steps < limit["steps"] or growth.rising < limit["rising"]:
        return None
    if growth.jump > limit["jump"] or growth.grown < limit["least_mib"] * _MIB:
        return None
    if growth.grown < limit["least"] * growth.resident:
        return None
    text = (
        f"Host memory of the process grows by **{wording.size(growth.each)}** per step,"
        f" **{wording.size(growth.grown)}** over **{growth.steps:,}** steps without the profiler,"
        f" at an even pace, to **{wording.size(growth.resident)}**. Arrays in a list, a graph that"
        " is kept, or a cache that still fills would look like this."
    )
    severity = "medium"
    if growth.capacity > growth.resident:
        left = (growth.capacity - growth.resident) / growth.each
        text += f" At this rate it fills the machine after **{left:,.0f}** more steps."
        if left < limit["soon"]:
            severity = "high"
    text += " %nbprof memory lists what variables keep."
    scalar = "float(loss)"
    if facts.torch:
        scalar = "loss.item()"
    fix = f"-losses.append(loss)\n+losses.append({scalar})"
    return Found(text, severity=severity, fix=fix)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "periodic",
        _periodic,
        threshold=Threshold(
            (
                "chance ≤ {chance:percent}, ≥ {moderate:g} % of step time on average (high"
                " from {high:g} %), ≥ {cause:percent} of it explained"
            ),
            chance=CHANCE,
            moderate=PART_MODERATE,
            high=PART_HIGH,
            cause=0.5,
        ),
        source=OURS,
        target=TRACE,
        applies=ALL,
        looks_at=(
            "Regularly spaced steps that are slower than the others, and what runs only in them"
        ),
        on_npu=True,
        refuted_by="another recording has no such steps, or has them at another interval",
        gain_is=ABOUT,
        saves=(OUTSIDE,),
        needs_units=True,
        done=Shown("The steps have no such rhythm"),
    ),
    Rule(
        "slow_unrecorded",
        _slow_unrecorded,
        threshold=Threshold(
            (
                "chance ≤ {chance:percent}, ≥ {moderate:g} % of the time of all steps (high from"
                " {high:g} %)"
            ),
            chance=CHANCE,
            moderate=PART_MODERATE,
            high=PART_HIGH,
        ),
        source=OURS,
        target=INPUT,
        applies=ALL,
        looks_at=(
            "Regularly spaced slow steps, or long times between steps, by the clock of the steps"
            " that ran without the profiler, if none of them was recorded"
        ),
        on_npu=True,
        certainty=INFERRED,
        refuted_by="another run of the cell has no such steps, or has them at another interval",
        gain_is="",
        needs_units=True,
        done=Shown("One of these steps is recorded"),
    ),
    Rule(
        "slowing",
        _slowing,
        threshold=Threshold(
            "the last of 12 parts of the run takes ≥ {more:g} times the first (high from {high:g})",
            more=1.2,
            high=2,
        ),
        source=OURS,
        target=INPUT,
        applies=ALL,
        looks_at="Whether steps without the profiler take longer and longer, by their clock",
        title="Find what grows from step to step",
        on_npu=True,
        certainty=INFERRED,
        refuted_by="another program took the cores more and more, or the data get larger",
        gain_is="",
        needs_units=True,
        done=Shown("The step time stays the same"),
    ),
    Rule(
        # Memory that doubles within 1,000 steps ends any training run.
        "memory_growth",
        _growth,
        threshold=Threshold(
            (
                "≥ {steps:g} steps, more in ≥ {often:percent} of them than in the one before,"
                " by ≥ {least:percent} of the peak per step (high if full within {soon:,.0f}"
                " steps)"
            ),
            steps=10,
            often=0.9,
            least=0.001,
            soon=1000,
        ),
        source=OURS,
        target=MEMORY,
        applies=ALL,
        looks_at="Least memory in use in each step, after the warm-up",
        title="Do not keep data from one {noun} to the next",
        on_npu=True,
        refuted_by="a longer recording of the same loop stays at the same memory",
        gain_is="",
        needs_units=True,
        done=Shown("Memory stays the same"),
    ),
    Rule(
        "host_memory_growth",
        _host_growth,
        threshold=Threshold(
            (
                "≥ {steps:g} steps without the profiler, of 12 parts of them ≥ {rising:percent} in"
                " order (Kendall), no rise between two of them over {jump:percent} of the whole,"
                " ≥ {least_mib:g} MiB and ≥ {least:percent} of resident memory in all (high if"
                " full within {soon:,.0f} steps)"
            ),
            steps=20,
            rising=0.9,
            jump=0.3,
            least_mib=32,
            least=0.02,
            soon=10_000,
        ),
        source=OURS,
        target=MEMORY,
        applies=ALL,
        looks_at=(
            "Memory of the process in RAM that is in no file and not shared, over the steps that"
            " ran without the profiler"
        ),
        title="Find what keeps host memory from step to step",
        on_npu=True,
        certainty=INFERRED,
        refuted_by="a longer run of the cell stays at the same memory: a cache or buffer filled",
        gain_is="",
        needs_units=True,
        done=Shown("Host memory stays the same"),
    ),
)
