"""What the answers of nbprof come to: how many there are, and how often each part is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cells import Units

NEAR = 0.02
"""By how much the time of a unit may differ from the program's clock."""

FIGURES = {
    "answered": "Answered",
    "unit": "Unit of work right",
    "count": "Counted exactly",
    "time": f"Unit time within {100 * NEAR:.0f} % of the program's clock",
    "verdict": "Verdict right",
    "named": "Function or line named, where Python bounds",
    "controls": "Controls without a claimed loop",
}


class Truth(Protocol):
    """What is true of a cell or a file."""

    @property
    def name(self) -> str: ...
    @property
    def units(self) -> Units: ...
    @property
    def bound(self) -> frozenset[str]: ...
    @property
    def named(self) -> tuple[str, ...]: ...
    @property
    def control(self) -> bool: ...
    @property
    def counted(self) -> bool: ...


@dataclass(frozen=True)
class Outcome:
    """One part of one answer: whether it is right, and what nbprof says where it is not."""

    right: bool
    text: str


@dataclass
class Share:
    """So many of so many, and those that are not."""

    good: int = 0
    of: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def percent(self) -> float | None:
        return 100 * self.good / self.of if self.of else None

    def add(self, name: str, outcome: Outcome) -> None:
        self.of += 1
        self.good += outcome.right
        if not outcome.right:
            self.wrong.append(f"{name}: {outcome.text}")

    def __str__(self) -> str:
        return f"{self.good} of {self.of} ({self.percent:.0f} %)" if self.of else "–"


def judge(
    truth: Truth, said: Mapping[str, Any], unit_ms: float | None = None
) -> dict[str, Outcome]:
    """Which parts of an answer are right; a part that is not judged is left out.

    Parameters
    ----------
    truth : Truth
        What is true.
    said : mapping
        What `answer.answer` gave, or `{"failed": text}`; of a cell with its `seconds`.
    unit_ms : float, optional
        How long a unit takes, where the answer has no clock of the cell.
    """
    failed = said.get("failed")
    if failed is not None:
        said = {"unit": None, "verdict": "failed", "text": failed}
    kind, count = said.get("unit"), said.get("count", 0)
    verdict = said["verdict"]
    answered = verdict not in ("Unknown", "none", "failed")
    parts = {"answered": Outcome(answered, f"{verdict}: {said.get('text', '')[:200]}")}
    shown = f"{count} of kind {kind}, not {_units(truth.units)}"
    if truth.units:
        parts["unit"] = Outcome(kind in truth.units, shown)
    if truth.counted:
        parts["count"] = Outcome(count in truth.units.get(str(kind), ()), shown)
    if truth.control:
        # Who is silent, or speaks of the recording, claims none.
        silent = kind in (None, "recording")
        parts["controls"] = Outcome(silent or kind in truth.units, shown)
    expected = _expected_ms(truth, said, unit_ms)
    if expected is not None:
        parts["time"] = _time(said.get("unit_ms"), expected)
    if truth.bound:
        accepted = " or ".join(sorted(truth.bound))
        text = f"{verdict}, not {accepted}: {said.get('text', '')[:160]}"
        parts["verdict"] = Outcome(verdict in truth.bound, text)
    if truth.named:
        rows = said.get("python") or []
        found = any(name in row for name in truth.named for row in rows)
        parts["named"] = Outcome(
            found, f"{'; '.join(rows) or 'nothing sampled'}, not {truth.named[0]}"
        )
    return parts


def _units(units: Units) -> str:
    return " or ".join(f"{'/'.join(map(str, counts))} {kind}" for kind, counts in units.items())


def _expected_ms(truth: Truth, said: Mapping[str, Any], unit_ms: float | None) -> float | None:
    """How long a unit takes by the program's clock: of the count that nbprof found, if that is
    right.
    """
    if unit_ms is not None:
        return unit_ms
    seconds = said.get("seconds")
    if not seconds or not truth.units:
        return None
    accepted = truth.units.get(str(said.get("unit")), ())
    best = next(iter(truth.units.values()))
    count = said["count"] if said.get("count") in accepted else best[0]
    return 1000 * float(seconds) / count


def _time(said: float | None, expected: float) -> Outcome:
    if said is None:
        return Outcome(False, f"no time, not {expected:.3g} ms")
    error = said / expected - 1
    return Outcome(abs(error) <= NEAR, f"{said:.4g} ms, not {expected:.4g} ({100 * error:+.1f} %)")


def score(judged: Iterable[tuple[str, Mapping[str, Outcome]]]) -> dict[str, Share]:
    """The figures of a set."""
    shares = {key: Share() for key in FIGURES}
    for name, parts in judged:
        for key, outcome in parts.items():
            shares[key].add(name, outcome)
    return shares


def table(sets: Mapping[str, Mapping[str, Share]]) -> str:
    """The figures as a table in Markdown, a column a set."""
    lines = [f"| | {' | '.join(sets)} |", f"|---|{'---:|' * len(sets)}"]
    for key, words in FIGURES.items():
        lines.append(f"| {words} | {' | '.join(str(shares[key]) for shares in sets.values())} |")
    return "\n".join(lines)
