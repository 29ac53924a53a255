"""The rules of Ascend's own tools, computed from the tables of msprof.

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
    reported : DataFrame, optional
        The tables `prof_rule`, gathered: findings of msprof itself.
    """
    rows = []
    for rule in every():
        row = guarded(
            f"The rule {rule.name} of the Ascend rules", partial(_row, rule, facts), lambda _: None
        )
        if row is not None:
            rows.append(row)
    if reported is not None and len(reported):
        rows += _reported(reported)
    table = pd.DataFrame(rows, columns=COLUMNS)
    order = table["state"].map({FOUND: 0, CLEAR: 1, UNKNOWN: 2})
    table = table.assign(_state=order, _share=-table["share"].fillna(-1))
    table = table.sort_values(["_state", "_share"], kind="stable", ignore_index=True)
    return table.drop(columns=["_state", "_share"]).astype(
        {"value": "float64", "limit": "float64", "share": "float64"}
    )


def _row(rule: AscendRule, facts: Facts) -> dict[str, object]:
    """The result of a rule; its state is UNKNOWN if its tables were not recorded."""
    row: dict[str, object] = {
        "rule": rule.name,
        "about": rule.about,
        "title": rule.title,
        "state": UNKNOWN,
        "severity": "",
        "value": None,
        "limit": rule.threshold.numbers.get("limit"),
        "unit": rule.unit,
        "share": None,
        "evidence": rule.lacks,
        "fix": "",
        "ops": "",
        "source": "computed",
    }
    tables = [getattr(facts, name) for name in rule.needs]
    if any(table is None or not len(table) for table in tables):
        return row
    measured = rule.ask(facts)
    if measured is None:
        return row
    row |= {
        "state": CLEAR,
        "value": measured.value,
        "share": measured.share,
        "evidence": measured.evidence,
    }
    if measured.found:
        names = list(dict.fromkeys(map(str, measured.ops)))
        row |= {
            "state": FOUND,
            "severity": severity(measured.share),
            "fix": rule.fix,
            "ops": ", ".join(names[:MOST_OPS]),
        }
    return row


def severity(share: float | None) -> str:
    """High from 20 % of the time, Medium from 5 %, otherwise Low."""
    if share is not None:
        for least, name in _SEVERE:
            if share >= least:
                return name
    return _NO_SHARE


def _reported(table: pd.DataFrame) -> list[dict[str, object]]:
    """Findings of msprof itself, from its file; one without a suggestion found nothing."""
    columns = ("part", "rule_type", "description", "subtype", "suggestion", "tuning_data")
    result: list[dict[str, object]] = []
    for part, kind, description, subtype, suggestion, tuning in zip(
        *(texts(table, name).tolist() for name in columns), strict=True
    ):
        result.append(
            {
                "rule": "prof_rule",
                "about": "msprof",
                "title": " · ".join(text for text in (part, kind, subtype) if text),
                "state": FOUND if suggestion else CLEAR,
                "severity": _NO_SHARE if suggestion else "",
                "value": None,
                "limit": None,
                "unit": "",
                "share": None,
                "evidence": description,
                "fix": suggestion,
                "ops": wording.shortened(tuning, 400),
                "source": "prof_rule",
            }
        )
    return result
