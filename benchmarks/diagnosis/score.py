"""What the recordings of `record.py` come to: how often the verdict, the findings, the gains and
the step times are true.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from programs import Program

from nbprof.analysis.rule import ABOUT, AT_LEAST, UP_TO

NEAR = 0.02
"""By how much a step time may differ from the program's own clock."""
NEAR_BARE = 0.03
"""By how much a bare step may differ from it."""
NOISE = 1.96
"""By how many standard errors of the difference of the two step times a realised gain may be on the
wrong side of a bound.
"""
MORE_PER_STEP = frozenset(("tiny_batch", "small_batch"))
"""Rules that put more examples into a step, which takes longer then, and less for each of them."""
SLOWER = 0.05
"""By which share of its time a step without a recording may be longer after a change, as such times
differ by chance.
"""
CLOSE = 1.5
"""The factor within which an estimated gain is called close."""


@dataclass(frozen=True)
class Share:
    """So many of so many, and those that are not."""

    good: int
    of: int
    bad: tuple[str, ...] = ()

    @property
    def percent(self) -> float | None:
        return 100 * self.good / self.of if self.of else None

    def __str__(self) -> str:
        return f"{self.good} of {self.of} ({self.percent:.0f} %)" if self.of else "none"


@dataclass(frozen=True)
class _Gain:
    """What a finding of a plant said, what came of it, and the noise of that; ms a step."""

    name: str
    kind: str
    said: float
    real: float
    noise: float

    @classmethod
    def of(
        cls, name: str, finding: Mapping[str, Any], each: Mapping[str, Any], clock: str
    ) -> _Gain:
        before, after = each["as_is"], each["mended"]
        noise = NOISE * math.hypot(before["step_error_ms"], after["step_error_ms"])
        return cls(
            f"{name}, {finding['rule']}",
            finding["gain_is"],
            finding["gain_ms"],
            before[clock] - after[clock],
            noise,
        )

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.kind} {self.said:.2f} ms, realised {self.real:.2f} ±"
            f" {self.noise:.2f}"
        )


def share(items: Iterable[tuple[str, bool]]) -> Share:
    """Of pairs of a name and whether it is good."""
    pairs = list(items)
    return Share(
        sum(good for _, good in pairs), len(pairs), tuple(name for name, good in pairs if not good)
    )


def score(
    programs: Mapping[str, Program], measured: Mapping[str, Mapping[str, Any]]
) -> dict[str, Share | float | None]:
    """The figures of a run of the benchmark.

    Parameters
    ----------
    programs : mapping
        The truth, by name.
    measured : mapping
        What `record.py` printed, by name.

    Returns
    -------
    dict
        Shares (`verdict`, `verdict_high` …) and medians (`realised_over_predicted`,
        `step_error_percent`); None where nothing was measured.
    """
    mine = [(programs[name], each) for name, each in measured.items()]
    plants = [(p, each) for p, each in mine if p.plant]
    promised = [(p, each) for p, each in plants if p.rules]
    controls = [(p, each) for p, each in mine if not p.plant]
    runs = [
        (f"{p.name}{' (mended)' if which == 'mended' else ''}", one)
        for p, each in mine
        for which, one in each.items()
    ]
    out: dict[str, Share | float | None] = {}
    judged = [(p, each["as_is"]) for p, each in mine if p.bound]
    out["verdict"] = share(
        (f"{p.name}: {one['verdict']}", one["bound"] in p.bound) for p, one in judged
    )
    for level in ("high", "medium", "low"):
        out[f"verdict_{level}"] = share(
            (p.name, one["bound"] in p.bound) for p, one in judged if one["confidence"] == level
        )
    out["verdict_controls"] = share(
        (p.name, one["bound"] in p.bound) for p, one in judged if not p.plant
    )
    out["found_promised"] = share(
        (p.name, any(rule in p.rules for rule in rules(each["as_is"]))) for p, each in promised
    )
    out["found_all"] = share(
        (p.name, any(rule in p.rules for rule in rules(each["as_is"]))) for p, each in plants
    )
    out["found_first"] = share(
        (f"{p.name}: {rules(each['as_is'])[0]}", rules(each["as_is"])[0] in p.rules)
        for p, each in promised
        if any(rule in p.rules for rule in rules(each["as_is"]))
    )
    out["precision"] = share(
        (f"{p.name}: {rule}", rule in p.rules | p.also)
        for p, each in mine
        for rule in rules(each["as_is"])
    )
    out["controls_silent"] = share(
        (f"{p.name}: {', '.join(rules(each['as_is']))}", set(rules(each["as_is"])) <= p.also)
        for p, each in controls
    )
    out["gone_when_mended"] = share(
        (f"{p.name}: {', '.join(rules(each['mended']))}", not set(rules(each["mended"])) & p.rules)
        for p, each in promised
        if any(rule in p.rules for rule in rules(each["as_is"]))
    )
    for clock, suffix in (("clock_ms", ""), ("bare_ms", "_bare")):
        out |= _score_of_gains(promised, clock, suffix)
    # The mended program is the one to which the advice was applied, where the advice is on what was
    # planted.
    first = [(p, each, each["as_is"]["found"][0]) for p, each in promised if each["as_is"]["found"]]
    applied = [
        (p, each, finding)
        for p, each, finding in first
        if finding["rule"] in p.rules - MORE_PER_STEP
    ]
    faster = [
        (
            f"{p.name}, {f['rule']}",
            each["as_is"]["bare_ms"],
            each["mended"]["bare_ms"],
            f["gain_ms"],
        )
        for p, each, f in applied
    ]
    out["applied_half"] = share(
        (f"{name}: {said:.2f} ms said, {before:.2f} → {after:.2f} ms", 2 * (before - after) >= said)
        for name, before, after, said in faster
        if said
    )
    out["applied_not_slower"] = share(
        (f"{name}: {before:.2f} → {after:.2f} ms", after <= (1 + SLOWER) * before)
        for name, before, after, _ in faster
    )
    out["steps"] = share(
        (f"{name}: {one['steps']} of {one['steps_run']}", one["steps"] == one["steps_run"])
        for name, one in runs
    )
    errors = [(name, one["step_ms"] / one["clock_ms"] - 1) for name, one in runs if one["step_ms"]]
    out["step_time"] = share(
        (f"{name}: {100 * error:+.1f} %", abs(error) <= NEAR) for name, error in errors
    )
    out["step_error_percent"] = max((abs(100 * error) for _, error in errors), default=None)
    out["bare_given"] = share(
        (f"{name}: {one['bare_reason']}", one["said_bare_ms"] is not None) for name, one in runs
    )
    known = [(name, one) for name, one in runs if one["said_bare_ms"] and one["own_bare_ms"]]
    even = [(name, one) for name, one in known if _is_even(one)]
    bare_errors = [(name, one["said_bare_ms"] / one["own_bare_ms"][0] - 1) for name, one in even]
    out["bare_step"] = share(
        (f"{name}: {100 * error:+.1f} %", abs(error) <= NEAR_BARE) for name, error in bare_errors
    )
    out["bare_interval"] = share(
        _within(name, one["own_bare_ms"][1:], one["said_bare_interval_ms"])
        for name, one in known
        if not _is_even(one)
    )
    return out


def _is_even(one: Mapping[str, Any]) -> bool:
    """True if the program's steps took the same time before and after the recording: where not,
    nobody knows what those in between would have taken.
    """
    _, before, after = one["own_bare_ms"]
    return bool(max(before, after) <= (1 + NEAR_BARE) * min(before, after))


def _within(name: str, values: Iterable[float], interval: tuple[float, float]) -> tuple[str, bool]:
    """Whether values are in an interval, and the name with all of them."""
    low, high = interval
    values = list(values)
    numbers = ", ".join(f"{value:.2f}" for value in values)
    text = f"{name}: [{low:.2f}, {high:.2f}], took {numbers} ms"
    return text, low <= min(values) and max(values) <= high


def _score_of_gains(
    promised: Iterable[tuple[Program, Mapping[str, Any]]], clock: str, suffix: str
) -> dict[str, Share | float | None]:
    """The figures on gains, held against the change of the step by a clock of the program."""
    gains = [
        _Gain.of(p.name, f, each, clock)
        for p, each in promised
        for f in each["as_is"]["found"]
        if f["rule"] in p.rules and f["gain_ms"]
    ]
    bounds, parts, guesses = (
        [gain for gain in gains if gain.kind == kind] for kind in (UP_TO, AT_LEAST, ABOUT)
    )
    median = statistics.median(gain.real / gain.said for gain in guesses) if guesses else None
    return {
        f"within_bound{suffix}": share(
            (str(gain), gain.real - gain.noise <= gain.said) for gain in bounds
        ),
        f"at_least{suffix}": share(
            (str(gain), gain.real + gain.noise >= gain.said) for gain in parts
        ),
        f"close{suffix}": share(
            (str(gain), 1 / CLOSE <= gain.real / gain.said <= CLOSE) for gain in guesses
        ),
        f"realised_over_predicted{suffix}": median,
    }


def rules(one: Mapping[str, Any]) -> list[str]:
    """The rules that found something, in their order."""
    return [finding["rule"] for finding in one["found"]]


WORDS = {
    "verdict": "Verdict right",
    "verdict_high": "… where its confidence is high",
    "verdict_medium": "… medium",
    "verdict_low": "… low",
    "verdict_controls": "… of controls",
    "found_promised": "Planted problem found, where a rule is promised",
    "found_first": "… and named first",
    "found_all": "Planted problem found, of all",
    "precision": "Findings that are true",
    "controls_silent": "Controls without a false finding",
    "gone_when_mended": "Finding gone after the mend",
    "within_bound": "Realised gain within the bound, for findings that say *up to*",
    "at_least": "… at least as large, for *at least*",
    "close": f"… within a factor of {CLOSE:g}, where it says *about*",
    "realised_over_predicted": "Realised over predicted gain for *about*, median",
    "within_bound_bare": "Without a recording: realised gain within the bound of *up to*",
    "at_least_bare": "… at least as large, for *at least*",
    "close_bare": f"… within a factor of {CLOSE:g}, where it says *about*",
    "realised_over_predicted_bare": "… realised over predicted gain for *about*, median",
    "applied_half": (
        "The first advice, applied: without a recording, the step gains at least half of what it"
        " says"
    ),
    "applied_not_slower": "… gets no slower",
    "steps": "Steps found exactly",
    "step_time": f"Step time within {100 * NEAR:.0f} % of the program's clock",
    "step_error_percent": "Largest difference of a step time, %",
    "bare_given": "A bare step time is given",
    "bare_step": (
        f"… within {100 * NEAR_BARE:.0f} % of the program's own clock, where its bare steps took the"
        " same time before and after the recording"
    ),
    "bare_interval": "… with an interval that holds both, where they did not",
}


def table(figures: Mapping[str, Share | float | None]) -> str:
    """The figures as a table in Markdown."""
    lines = ["| | |", "|---|---:|"]
    for key, words in WORDS.items():
        value = figures[key]
        lines.append(
            f"| {words} |"
            f" {value if isinstance(value, Share) else '–' if value is None else f'{value:.2f}'} |"
        )
    return "\n".join(lines)
