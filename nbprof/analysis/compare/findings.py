"""Advice before and after: the findings of the run before, and whether the run after has them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis.compare.compare import Side, unit_of
from nbprof.analysis.compare.verdict import Verdict
from nbprof.display import wording
from nbprof.schema import frames

COLUMNS = frames.names("comparison.findings")
GONE, STILL, NEW = "gone", "still found", "new"


def findings(before: Side, after: Side) -> pd.DataFrame:
    """One row a finding of either run, those before in their order: the columns of
    `comparison.findings`.
    """
    was, now = (
        side.advice.set_index("rule", drop=False) if len(side.advice) else side.advice
        for side in (before, after)
    )
    rules = list(dict.fromkeys([*was.index, *now.index]))
    rows = []
    for rule in rules:
        in_before, in_after = rule in was.index, rule in now.index
        state = NEW
        if in_before:
            state = STILL if in_after else GONE
        finding = (was if in_before else now).loc[rule]
        rows.append(
            {
                "rule": rule,
                "title": finding["title"],
                "state": state,
                "gain_is": finding["gain_is"],
                "before_ms": was.loc[rule, "gain_ms_per_step"] if in_before else np.nan,
                "after_ms": now.loc[rule, "gain_ms_per_step"] if in_after else np.nan,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS).astype(
        {"before_ms": "float64", "after_ms": "float64"}
    )


def sentence(rows: pd.DataFrame, verdict: Verdict, before: Side, after: Side) -> str:
    """The gains that the findings that are gone predicted, and the change of the step; '' if none
    is gone.

    The change of the step is of all that changed between the runs, so it is compared with the
    findings together. Gains overlap: the largest is the prediction.
    """
    gone = rows[rows["state"] == GONE]
    # Another framework has other rules: a finding that it lacks was not fixed.
    if not len(gone) or before.overview.get("framework") != after.overview.get("framework"):
        return ""
    largest = gone.sort_values("before_ms", ascending=False, kind="stable").iloc[0]
    unit = unit_of(before, after)
    gain = largest["before_ms"]
    predicted = ""
    if not np.isnan(gain):
        predicted = f"predicted {largest['gain_is']} **{wording.millis(-gain)}** {unit.per}"
    if len(gone) == 1:
        subject = f"The finding **{gone['title'].iloc[0]}**"
        sentence = f"{subject}, which {predicted}, is gone" if predicted else f"{subject} is gone"
    else:
        sentence = f"**{len(gone)}** findings are gone"
        if predicted:
            sentence += f", the largest of which {predicted}"
    change = verdict.difference.change
    if np.isnan(change) or verdict.kind == "unknown":
        times = "the durations" if unit.is_recording else f"{unit.time}s"
        return f"{sentence}; what that saved is unknown without {times} of both runs."
    real = verdict.kind in ("real", "some", "typical")
    word = "changed by" if real else "changed within noise:"
    return f"{sentence}; {unit.the} {word} **{wording.rise(wording.millis(change), change)}**."
