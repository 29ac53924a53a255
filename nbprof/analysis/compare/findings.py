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
    rows = [
        {
            "rule": rule,
            "title": (was if rule in was.index else now).loc[rule, "title"],
            "state": NEW if rule not in was.index else STILL if rule in now.index else GONE,
            "gain_is": (was if rule in was.index else now).loc[rule, "gain_is"],
            "before_ms": was.loc[rule, "gain_ms_per_step"] if rule in was.index else np.nan,
            "after_ms": now.loc[rule, "gain_ms_per_step"] if rule in now.index else np.nan,
        }
        for rule in rules
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype(
        {"before_ms": "float64", "after_ms": "float64"}
    )


def sentence(rows: pd.DataFrame, verdict: Verdict, before: Side, after: Side) -> str:
    """What the findings that are gone predicted, and what came of it; '' if none is gone.

    The change of the step is of all that changed between the runs, so it is compared with the
    findings together. Gains overlap: the largest is what they predicted.
    """
    gone = rows[rows["state"] == GONE]
    # Another framework has other rules: a finding that it lacks was not mended.
    if not len(gone) or before.overview.get("framework") != after.overview.get("framework"):
        return ""
    largest = gone.sort_values("before_ms", ascending=False, kind="stable")
    unit = unit_of(before, after)
    gain, kind = largest["before_ms"].iloc[0], largest["gain_is"].iloc[0]
    gain_text = f"predicted {kind} **{wording.millis(-gain)}** {unit.per}"
    if len(gone) == 1:
        sentence = (
            "The finding"
            f" **{gone['title'].iloc[0]}**{'' if np.isnan(gain) else f', which {gain_text},'} is"
            " gone"
        )
    else:
        sentence = (
            f"**{len(gone)}** findings are"
            f" gone{'' if np.isnan(gain) else f', the largest of which {gain_text}'}"
        )
    change = verdict.difference.change
    if np.isnan(change) or verdict.kind == "unknown":
        return (
            f"{sentence}; what that saved is unknown without"
            f" {'the durations' if unit.whole else f'{unit.time}s'} of both runs."
        )
    real = verdict.kind in ("real", "some", "typical")
    word = "changed by" if real else "changed within noise:"
    return f"{sentence}; {unit.the} {word} **{wording.rise(wording.millis(change), change)}**."
