"""Findings on the input where a probe measured the step without it: what was measured takes the
place of what was predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.rule import ABOUT, MEASURED, UP_TO
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
"""The experiment of such a rule that a probe has made."""
_WHOLE = 0.95
"""A finding that predicts this part of the wait or more predicts all of it."""


def measured(
    findings: pd.DataFrame,
    probe: Mapping[str, Any],
    step_ms: float | None,
    worth_percent: float,
    unit: Unit = MARKED,
) -> pd.DataFrame:
    """The findings, with what the input can save at most by the probe; without those on the input
    where that is nothing.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    probe : mapping
        `p.overview["probe"]`; empty where there was none.
    step_ms : float or None
        The mean step, as recorded.
    worth_percent : float
        Percent of the step from which on a saving is worth a finding.
    unit : Unit
        What the figures are given per.
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
    predicted = wording.real(probe.get("predicted_ms"))
    wait = np.inf if predicted is None else step_ms - predicted
    takes, less = wording.millis(without), wording.millis(saved)
    bound = "about" if slowed else "up to"
    sentence = (
        f" Measured with instant input (--probe), {unit.a} takes **{takes}**: faster input saves"
        f" {bound} **{less}**."
    )
    rows = []
    for row in findings.to_dict("records"):
        if row["rule"] in OF_INPUT:
            gain = row["gain_ms_per_step"]
            # A part of the wait stays a part, unless it is more than there is to save.
            all_of_it = not gain < min(_WHOLE * wait, saved)
            row |= {
                "evidence": row["evidence"] + sentence,
                "gain_ms_per_step": saved if all_of_it else gain,
            }
            row |= (
                {"gain_is": ABOUT if slowed else UP_TO, "certainty": MEASURED} if all_of_it else {}
            )
            row["refuted_by"] = "" if _PROBED in row["refuted_by"] else row["refuted_by"]
        rows.append(row)
    result = pd.DataFrame(rows, columns=findings.columns)
    return result.sort_values(
        "gain_ms_per_step", ascending=False, kind="stable", na_position="last", ignore_index=True
    )
