"""The options of experiments, checked before a program runs."""

from __future__ import annotations

import math

from nbprof.core.errors import CaptureError

BUDGET_S = 60.0
"""Seconds that experiments may take by default."""
LONGEST_S = 3600.0


def check_try(requested: object, budget: object) -> None:
    """Validate the values of ``--try`` and ``--budget``.

    Raises
    ------
    CaptureError
        There is no experiment of that name or for that rule, or the budget is not a number of
        seconds up to an hour.
    """
    if not isinstance(requested, str):
        raise CaptureError(f"'try_' takes a rule or an experiment, not {requested!r}")
    number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
    if not number or not math.isfinite(budget) or not 0 < budget <= LONGEST_S:  # type: ignore[arg-type,operator]
        raise CaptureError(
            f"the budget is a number of seconds above 0 and at most {LONGEST_S:,.0f}, not"
            f" {budget!r}"
        )
    if requested:
        # Imported late: most recordings try nothing.
        from nbprof.capture.experiments.register import check

        check(requested)
