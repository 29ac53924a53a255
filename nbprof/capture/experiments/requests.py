"""The options of experiments, checked before a program runs."""

from __future__ import annotations

import math
from typing import NamedTuple

from nbprof.core.errors import CaptureError

BUDGET_S = 60.0
"""Seconds that experiments may take by default."""
LONGEST_S = 3600.0


class Caller(NamedTuple):
    """The formats of what a person wrote to ask for experiments, for errors.

    Attributes
    ----------
    rule, budget : str
    """

    rule: str
    budget: str


OPTION = Caller("--try {}", "--budget {}")
ARGUMENT = Caller("try_={!r}", "budget={!r}")
METHOD = Caller("p.try_({!r})", "p.try_(budget={!r})")


def check_try(requested: object, budget: object, caller: Caller) -> None:
    """Validate the rule or experiment that is requested, and the budget.

    Raises
    ------
    CaptureError
        There is no experiment of that name or for that rule, or the budget is not a number of
        seconds up to an hour.
    """
    if not isinstance(requested, str):
        raise CaptureError(
            f"{caller.rule.format(requested)}: it takes the name of a rule or of an experiment"
        )
    number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
    if not number or not math.isfinite(budget) or not 0 < budget <= LONGEST_S:  # type: ignore[arg-type,operator]
        raise CaptureError(
            f"{caller.budget.format(budget)}: the budget is a number of seconds above 0 and at"
            f" most {LONGEST_S:,.0f}"
        )
    if requested:
        # Imported late: most recordings try nothing.
        from nbprof.capture.experiments.register import check

        check(requested, caller.rule.format(requested))
