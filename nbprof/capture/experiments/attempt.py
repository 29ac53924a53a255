"""One experiment while it is measured: its turns so far, and whether more of them are of use."""

from __future__ import annotations

from dataclasses import dataclass, field

from nbprof.capture.experiments.equality import UNKNOWN, Equality
from nbprof.capture.experiments.experiment import Experiment
from nbprof.capture.experiments.turn import Timing

LEAST_AGAIN = 8
"""Turns in all that a second look at them takes at least, for its interval to be finite."""
_MORE = 1.5
"""Times as many turns as the first look had, from which on a second one may say more."""


@dataclass
class Attempt:
    """An experiment with its turns.

    Attributes
    ----------
    experiment : Experiment
    rule : str
        What it is run for.
    unchanged, changed : list of Timing
        Turns without and with the change, in pairs.
    first : Timing, optional
        The turn with the change whose results were compared.
    results : Equality
    seconds : float
        All that was spent on it.
    first_look : int
        Pairs of turns when its gain was first looked at; 0 before.
    is_open : bool
        True if it is unknown whether the change is worth it, and more turns may tell.
    """

    experiment: Experiment
    rule: str
    unchanged: list[Timing] = field(default_factory=list)
    changed: list[Timing] = field(default_factory=list)
    first: Timing | None = None
    results: Equality = UNKNOWN
    seconds: float = 0.0
    first_look: int = 0
    is_open: bool = False

    @property
    def pairs(self) -> int:
        """Turns of each."""
        return len(self.changed)

    @property
    def pair_s(self) -> float:
        """Mean time of a pair; 0 before the first."""
        total = sum(timing.total_s for timing in (*self.unchanged, *self.changed))
        return total / max(self.pairs, 1)

    @property
    def promise(self) -> float:
        """Part of an unchanged step that the change seems to save, by the turns so far."""
        before = sum(timing.step_s for timing in self.unchanged)
        after = sum(timing.step_s for timing in self.changed)
        return (before - after) / before if before else 0.0

    def needed(self, least: int) -> int:
        """Pairs in all from which on another look is of use, of at least so many."""
        if not self.first_look:
            return least
        return max(LEAST_AGAIN, round(_MORE * self.first_look))

    def seconds_to(self, pairs: int) -> float:
        """Time until it has so many pairs, if it is begun anew."""
        first_s = self.first.total_s if self.first is not None else 0.0
        return first_s + max(pairs - self.pairs, 0) * self.pair_s
