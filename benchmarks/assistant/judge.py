"""Holds what the scripted reader found against what was planted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planted import Planted
from scripted import Conclusion, Place

BENCHMARKS = Path(__file__).resolve().parents[1]
QUIET = 0.3
"""Cores that other programs may use: more take the time that the planted problem should."""
NEAR = 0.05
"""By how much the time of a unit may differ from the program's clock."""
PLANTED = (0.9, 1.5)
"""The range of a category's time, as a part of what was planted there: sleeps end late."""
CONTENDED = "Contended"


@dataclass
class Judged:
    """One profile: what was expected and found, and what of it is wrong."""

    name: str
    expected: str
    found: Conclusion
    wrong: dict[str, str] = field(default_factory=dict)


def judge(
    planted: Planted, truth: Mapping[str, Any], found: Conclusion, *, control: bool
) -> Judged:
    """What is wrong in a conclusion.

    Parameters
    ----------
    planted : Planted
    truth : mapping
        Of `truth.json`.
    found : Conclusion
    control : bool
        True of a program in which nothing is wrong.
    """
    rules = [] if control or planted.contended else [*truth.get("rules", ()), *planted.rules]
    lines = planted.lines or tuple(truth.get("lines", ()))
    verdicts = {CONTENDED} if planted.contended else set(truth["verdicts"])
    expected = "; ".join(" or ".join(each) for each in (sorted(verdicts), rules, lines[:1]) if each)
    judged = Judged(planted.name, expected, found)
    if truth["other_cores"] > QUIET and not planted.contended:
        judged.wrong["recording"] = f"other programs used {truth['other_cores']:.1f} cores"
        return judged
    if found.failed:
        judged.wrong["reader"] = found.failed
        return judged
    if not {found.verdict, found.bound} & verdicts:
        judged.wrong["verdict"] = f"{found.verdict} ({found.bound})"
    named = [finding.rule for finding in found.findings]
    # What is true besides may come first.
    first = next((rule for rule in named if rule in rules or rule not in truth.get("also", ())), "")
    if rules and first not in rules:
        judged.wrong["rule"] = ", ".join(named) or "none"
    if control:
        false = set(named) - set(truth.get("also", ()))
        if false:
            judged.wrong["finding"] = ", ".join(sorted(false))
    elif lines and not any(matches(place, lines, truth) for place in found.places):
        judged.wrong["line"] = "; ".join(map(shown, found.places)) or "none"
    wrong_figure = figure(planted, truth, found)
    if wrong_figure:
        judged.wrong["figure"] = wrong_figure
    return judged


def figure(planted: Planted, truth: Mapping[str, Any], found: Conclusion) -> str:
    """What is wrong with the figure; empty if nothing is."""
    if found.unit_ms is None:
        return "no time of a unit"
    error = found.unit_ms / truth["unit_ms"] - 1
    if abs(error) > NEAR:
        return f"{found.unit_ms:.4g} ms a unit, not {truth['unit_ms']:.4g} ({100 * error:+.0f} %)"
    if planted.planted_ms is None:
        return ""
    low, high = (factor * planted.planted_ms for factor in PLANTED)
    if found.bound_ms is None or not low <= found.bound_ms <= high:
        return f"{found.bound_ms} ms of {found.bound}, not {low:.3g}–{high:.3g}"
    return ""


def matches(place: Place, lines: Iterable[str], truth: Mapping[str, Any]) -> bool:
    """True if the text of a line, or the function that an answer names, has one of the parts."""
    name = Path(place.file).name
    source = truth.get("sources", {}).get(name, "")
    file = BENCHMARKS / "diagnosis" / name
    if file.exists():
        source = file.read_text()
    text = f"{place.text} {''.join(source.splitlines()[place.line - 1 : place.line])}"
    return any(line in text for line in lines)


def shown(place: Place) -> str:
    return f"{Path(place.file).name}:{place.line} {place.text}".strip()


def table(judged: list[Judged]) -> str:
    """The outcomes as a table in Markdown, and their totals."""
    rows = [
        "| profile | expected | found through | calls | tokens | |",
        "|---|---|---|---:|---:|---|",
    ]
    for each in judged:
        found = each.found
        through = ", ".join(f"{part} {tool}" for part, tool in found.through.items())
        wrong = "; ".join(f"{part}: {text}" for part, text in each.wrong.items())
        rows.append(
            f"| {each.name} | {each.expected} | {through} | {len(found.calls)} |"
            f" {found.tokens:,} | {'wrong: ' + wrong if wrong else 'right'} |"
        )
    right = sum(not each.wrong for each in judged)
    calls = [len(each.found.calls) for each in judged]
    tokens = [each.found.tokens for each in judged]
    rows.append(
        f"\n{right} of {len(judged)} right; {sum(calls) / len(calls):.1f} calls (at most"
        f" {max(calls)}) and {sum(tokens) / len(tokens):,.0f} tokens (at most {max(tokens):,}) each"
    )
    return "\n".join(rows)
