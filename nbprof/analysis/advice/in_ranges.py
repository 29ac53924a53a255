"""Where in the ranges of the program is what a finding speaks of: the forward pass, the optimizer,
a layer.
"""

from __future__ import annotations

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.ranges.totals import SEPARATOR, Totals

PLACE_OF_RULE = {
    "other": "other",
    "python_code": "other",
    "host_waits": "other",
    "kernel_launch": "launch",
    "small_kernels": "launch",
    "allocator": "allocate",
    "waits": "wait",
    "pinned_memory": "copy",
    "copies_exposed": "copy",
    "output": "copy",
    "host_ops": "ops",
    "tiny_ops": "ops",
    "collectives": "collectives",
    **dict.fromkeys(
        ("loader_none", "loader_in_process", "loader_workers", "input_ahead", "input_copies"),
        "input",
    ),
}
"""By rule, the kind of time that its finding speaks of, one of `nbprof.analysis.ranges.threads.PLACES`."""
LEAST = 0.5
"""Part of that time which a range must have to be named."""


def named(found: pd.DataFrame, totals: Totals, unit: Unit = MARKED) -> pd.DataFrame:
    """The findings, with the range that has most of the time of which each speaks.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    totals : Totals
        Time in ranges of the program.
    unit : Unit
        What the figures are given per.
    """
    if not len(totals.places) or not len(found):
        return found
    sentences = [
        _sentence(totals, PLACE_OF_RULE.get(str(rule), ""), unit) for rule in found["rule"].tolist()
    ]
    return found.assign(evidence=found["evidence"] + sentences)


def _sentence(totals: Totals, what: str, unit: Unit) -> str:
    place = innermost(totals, what)
    if place is None:
        return ""
    path, part = place
    ms = part * _total(totals, what) / totals.steps / 1e9
    subject = _SUBJECTS.get(what, "that time")
    return (
        f" **{100 * part:.0f}%** of {subject} is in your range **{path}** ({ms:.2f} ms {unit.per})."
    )


_SUBJECTS = {
    "launch": "the time of launches",
    "wait": "the time of such calls",
    "allocate": "the time of such calls",
    "copy": "the time of calls that copy",
    "ops": "the time of ops",
    "collectives": "the time of collectives",
    "input": "the wait for input",
    "other": "the time outside ops",
}


def _total(totals: Totals, what: str) -> float:
    rows = totals.places
    return float(rows.loc[(rows["what"] == what) & (rows["path"] == ""), "own"].sum())


def innermost(totals: Totals, what: str) -> tuple[str, float] | None:
    """The innermost range that has at least half of a kind of time, by its names, and its part of
    it; None where none has.
    """
    total = _total(totals, what)
    rows = totals.places[(totals.places["what"] == what) & (totals.places["path"] != "")]
    rows = rows[rows["own"] >= LEAST * total]
    if not total or not len(rows):
        return None
    deepest = max(
        rows.to_dict("records"), key=lambda row: (row["path"].count(SEPARATOR), row["own"])
    )
    return deepest["path"].replace(SEPARATOR, "/"), min(deepest["own"] / total, 1.0)
