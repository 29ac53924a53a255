"""The range of the program that has the time of a finding, as the forward pass or a layer."""

from __future__ import annotations

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.ranges.totals import SEPARATOR, Totals

PLACE_OF_RULE = {
    "other": "other",
    "python_code": "other",
    "library_code": "other",
    "host_waits": "other",
    "pool_waits": "other",
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
"""The kind of time that a finding is about, by rule: one of
`nbprof.analysis.ranges.threads.PLACES`.
"""
LEAST = 0.5
"""The part of that time that a range must have to be named."""


def named(findings: pd.DataFrame, totals: Totals, unit: Unit = MARKED) -> pd.DataFrame:
    """The findings, each with the range that has most of the time that it is about.

    Parameters
    ----------
    findings : DataFrame
        `p.advice`.
    totals : Totals
        Time in ranges of the program.
    unit : Unit
        The unit that the figures are given per.
    """
    if not len(totals.places) or not len(findings):
        return findings
    kinds = [PLACE_OF_RULE.get(str(rule), "") for rule in findings["rule"].tolist()]
    sentences = [_sentence(totals, kind, unit) for kind in kinds]
    return findings.assign(evidence=findings["evidence"] + sentences)


def _sentence(totals: Totals, kind: str, unit: Unit) -> str:
    innermost_range = innermost(totals, kind)
    if innermost_range is None:
        return ""
    path, part = innermost_range
    ms = part * _total(totals, kind) / totals.steps / 1e9
    subject = _SUBJECTS.get(kind, "that time")
    label = f"your range **{path}**"
    if path.startswith("Optimizer."):
        # PyTorch sets it.
        label = f"**{path}**"
    return f" **{100 * part:.0f}%** of {subject} is in {label} ({ms:.2f} ms {unit.per})."


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


def _total(totals: Totals, kind: str) -> float:
    rows = totals.places
    return float(rows.loc[(rows["what"] == kind) & (rows["path"] == ""), "own"].sum())


def innermost(totals: Totals, kind: str) -> tuple[str, float] | None:
    """The innermost range that has at least half of a kind of time, by its names, and its part of
    it; None where none has.
    """
    total = _total(totals, kind)
    rows = totals.places[(totals.places["what"] == kind) & (totals.places["path"] != "")]
    rows = rows[rows["own"] >= LEAST * total]
    if not total or not len(rows):
        return None
    deepest = max(
        rows.to_dict("records"), key=lambda row: (row["path"].count(SEPARATOR), row["own"])
    )
    return deepest["path"].replace(SEPARATOR, "/"), min(deepest["own"] / total, 1.0)
