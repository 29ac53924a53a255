"""What to change on an NPU: the rules of Ascend's own tools, computed from the tables of msprof.

msprof wrote its advice to `prof_rule_*.json` until 2024, and asks for those of PyTorch and
MindSpore since; for TensorFlow no tool computes them. Thresholds are those of msprof,
msprof-analyze and msadvisor; where they have none, the source of the rule says that it is ours.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from nbprof.analysis.ascend import rules_ops, rules_run
from nbprof.analysis.ascend.ascend import texts
from nbprof.analysis.ascend.facts import AscendRule, Facts
from nbprof.core.guard import guarded
from nbprof.display import wording

FOUND, CLEAR, UNKNOWN = "found", "not found", "not known"
COLUMNS = [
    "rule",
    "about",
    "title",
    "state",
    "severity",
    "value",
    "limit",
    "unit",
    "share",
    "evidence",
    "fix",
    "ops",
    "source",
]
MOST_OPS = 10
_SEVERE = ((0.2, "High"), (0.05, "Medium"))
"""Shares of time from which a finding has that severity."""
_NO_SHARE = "Low"


def every() -> tuple[AscendRule, ...]:
    """All rules, those of iterations and the host before those of ops."""
    return (*rules_run.RULES, *rules_ops.RULES)


def frame(facts: Facts, reported: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every rule with its result, findings first, by the time that they concern; the columns of
    `SCHEMA["ascend.rules.frame"]`.

    Parameters
    ----------
    facts : Facts
    stated : DataFrame, optional
        The tables `prof_rule`, gathered: what msprof itself found.
    """
    computed = [
        guarded(
            f"The rule {rule.name} of the Ascend rules", partial(_row, rule, facts), lambda _: None
        )
        for rule in every()
    ]
    rows = [row for row in computed if row is not None]
    if reported is not None and len(reported):
        rows += _stated(reported)
    table = pd.DataFrame(rows, columns=COLUMNS)
    order = table["state"].map({FOUND: 0, CLEAR: 1, UNKNOWN: 2})
    share = table["share"].fillna(-1)
    return (
        table.assign(_state=order, _share=-share)
        .sort_values(["_state", "_share"], kind="stable", ignore_index=True)
        .drop(columns=["_state", "_share"])
        .astype({"value": "float64", "limit": "float64", "share": "float64"})
    )


def _row(rule: AscendRule, facts: Facts) -> tuple[object, ...]:
    there = all(
        getattr(facts, name) is not None and len(getattr(facts, name)) for name in rule.needs
    )
    measured = rule.ask(facts) if there else None
    limit = rule.threshold.numbers.get("limit")
    if measured is None:
        return (
            rule.name,
            rule.about,
            rule.title,
            UNKNOWN,
            "",
            None,
            limit,
            rule.unit,
            None,
            rule.lacks,
            "",
            "",
            "computed",
        )
    return (
        rule.name,
        rule.about,
        rule.title,
        FOUND if measured.found else CLEAR,
        severity(measured.share) if measured.found else "",
        measured.value,
        limit,
        rule.unit,
        measured.share,
        measured.evidence,
        rule.fix if measured.found else "",
        ", ".join(list(dict.fromkeys(map(str, measured.ops)))[:MOST_OPS]) if measured.found else "",
        "computed",
    )


def severity(share: float | None) -> str:
    """High from 20 % of the time, Medium from 5 %, otherwise Low."""
    return next(
        (name for least, name in _SEVERE if share is not None and share >= least), _NO_SHARE
    )


def _stated(table: pd.DataFrame) -> list[tuple[object, ...]]:
    """Findings of msprof itself, as its file has them; one without a suggestion found nothing."""
    columns = ("part", "rule_type", "description", "subtype", "suggestion", "tuning_data")
    rows = zip(*(texts(table, name).tolist() for name in columns), strict=True)
    out: list[tuple[object, ...]] = []
    for part, kind, description, subtype, suggestion, tuning in rows:
        about = " · ".join(text for text in (part, kind, subtype) if text)
        state = FOUND if suggestion else CLEAR
        out.append(
            (
                "prof_rule",
                "msprof",
                about,
                state,
                _NO_SHARE if suggestion else "",
                None,
                None,
                "",
                None,
                description,
                suggestion,
            )
        )
        out[-1] += (wording.cut(tuning, 400), "prof_rule")
    return out
