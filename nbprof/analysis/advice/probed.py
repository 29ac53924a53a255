"""Findings on the input after a probe measured the step without it: the measurement replaces the
prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.rule import ABOUT, MEASURED, UP_TO
from nbprof.analysis.steps.bare_parts import BareParts
from nbprof.display import wording

OF_INPUT = frozenset(
    {
        "input_ahead",
        "input_outside_tf_data",
        "cache_missing",
        "map_of_items",
        "map_serial",
        "input_bottleneck",
        "prefetch_missing",
        "loader_none",
        "loader_in_process",
        "loader_workers",
    }
)
"""Rules whose change can only shorten the wait for a batch; copies to the device remain in the
steps of a probe.
"""

_PROBED = "the first batch is repeated"
"""The experiment of such a rule that a probe makes."""
_WHOLE = 0.95
"""A finding that predicts this part of the wait or more predicts all of it."""


def measured(
    findings: pd.DataFrame,
    probe: Mapping[str, Any],
    step_ms: float | None,
    worth_percent: float,
    unit: Unit = MARKED,
    bare: BareParts | None = None,
) -> pd.DataFrame:
    """The findings, with the most that the input can save by the probe; without those on the input
    if it saves nothing.

    Parameters
    ----------
    findings : DataFrame
        `p.advice`.
    probe : mapping
        `p.overview["probe"]`; empty without one.
    step_ms : float or None
        The mean step, as recorded.
    worth_percent : float
        Percent of the step from which on a saving is worth a finding.
    unit : Unit
        The unit that the figures are given per.
    bare : BareParts, optional
        The parts of a step without a profiler: the run of the probe was recorded, too.
    """
    without = wording.real(probe.get("measured_ms"))
    of_input = findings["rule"].isin(OF_INPUT).to_numpy()
    if without is None or step_ms is None or not of_input.any():
        return findings
    saved = step_ms - without
    slowed = bool(probe.get("slowed"))
    if 100 * saved < worth_percent * step_ms:
        # On a quiet machine the second run would have been faster.
        return findings if slowed else findings[~of_input].reset_index(drop=True)
    bound = "about" if slowed else "up to"
    sentence = (
        f" Measured with instant input (--probe), {unit.a} takes **{wording.millis(without)}**:"
        f" faster input saves {bound} **{wording.millis(saved)}**."
    )
    predicted = wording.real(probe.get("predicted_ms"))
    wait = np.inf if predicted is None else step_ms - predicted
    if bare is not None and bare.bare:
        saved, wait = (bare.of_categories(ms, "input") for ms in (saved, min(wait, step_ms)))
    rows = findings.to_dict("records")
    for row in rows:
        if row["rule"] not in OF_INPUT:
            continue
        row["evidence"] += sentence
        if _PROBED in row["refuted_by"]:
            row["refuted_by"] = ""
        # A finding on a part of the wait keeps its gain, unless that is more than can be saved.
        if not row["gain_ms_per_step"] < min(_WHOLE * wait, saved):
            row["gain_ms_per_step"] = saved
            row["gain_is"] = ABOUT if slowed else UP_TO
            row["certainty"] = MEASURED
    result = pd.DataFrame(rows, columns=findings.columns)
    return result.sort_values(
        "gain_ms_per_step", ascending=False, kind="stable", na_position="last", ignore_index=True
    )
