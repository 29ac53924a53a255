"""What to change on an NPU: the rules of Ascend's own tools, computed from the tables of msprof.

msprof wrote its advice to `prof_rule_*.json` until 2024, and asks for those of PyTorch and MindSpore since; for TensorFlow no tool computes
them. Thresholds are those of msprof, msprof-analyze and msadvisor; where they have none, the help of the rule says that the limit is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pandas as pd

from nbprof.analysis.ascend.ascend import texts

FOUND, CLEAR, UNKNOWN = "found", "not found", "not known"
COLUMNS = ["rule", "about", "title", "state", "severity", "value", "limit", "unit", "share", "evidence", "fix", "ops", "source"]
MOST_OPS = 10
_SEVERE = ((0.2, "High"), (0.05, "Medium"))
"""Parts of the time from which a finding is of that severity."""
_NO_SHARE = "Low"


@dataclass
class Facts:
    """What rules look at; a frame that was not recorded is None.

    Attributes
    ----------
    iterations, summary : DataFrame
        Of `ascend_iterations`.
    ops, types : DataFrame
        Of `ascend_ops`.
    pmu : DataFrame
        Of `ascend_pmu.frame`.
    waits : DataFrame
        Of `ascend_waits.frame`.
    fusion, api : DataFrame
        Of `ascend_tables`.
    ai_cores : dict
        Cores for matrices of a device, by (recording, device).
    vector_cores : dict
        Its vector cores.
    """

    iterations: pd.DataFrame | None = None
    summary: pd.DataFrame | None = None
    ops: pd.DataFrame | None = None
    types: pd.DataFrame | None = None
    pmu: pd.DataFrame | None = None
    waits: pd.DataFrame | None = None
    fusion: pd.DataFrame | None = None
    api: pd.DataFrame | None = None
    ai_cores: dict[tuple[str, int], int] = field(default_factory=dict)
    vector_cores: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def main(self) -> pd.DataFrame | None:
        """The summary of the main model of each device, where it has iterations that are not warm-up."""
        if self.summary is None or not len(self.summary):
            return None
        rows = self.summary[self.summary["main"] & (self.summary["counted"] > 0) & self.summary["iteration_ms"].notna()]
        return rows if len(rows) else None


@dataclass
class Found:
    """What a rule measured. `value` against `limit` in `unit` ("fraction", "us", "ms", "" for a count); `share` of the device's time."""

    value: float | None
    found: bool
    evidence: str
    ops: Iterable[str] = ()
    share: float | None = None


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    name, about, title : str
        `about` groups rules on screen.
    needs : tuple of str
        Fields of `Facts` without which nothing is known.
    limit : float or None
    unit : str
    fix : str
        What to do, when it is found.
    check : callable
        None where a number that it needs was not recorded.
    lacks : str
        The sentence then, and where a field is absent.
    """

    name: str
    about: str
    title: str
    needs: tuple[str, ...]
    limit: float | None
    unit: str
    fix: str
    check: Callable[[Facts], Found | None]
    lacks: str


def frame(facts: Facts, stated: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every rule with its result, findings first, by the time that they concern; the columns of `SCHEMA["ascend.rules.frame"]`.

    Parameters
    ----------
    facts : Facts
    stated : DataFrame, optional
        The tables `prof_rule`, gathered: what msprof itself found.
    """
    from nbprof.analysis.ascend import rules_ops as ascend_rules_ops
    from nbprof.analysis.ascend import rules_run as ascend_rules_run

    rows = [_row(rule, facts) for rule in (*ascend_rules_run.RULES, *ascend_rules_ops.RULES)]
    if stated is not None and len(stated):
        rows += _stated(stated)
    out = pd.DataFrame(rows, columns=COLUMNS)
    order = out["state"].map({FOUND: 0, CLEAR: 1, UNKNOWN: 2})
    share = out["share"].fillna(-1)
    return (
        out.assign(_state=order, _share=-share)
        .sort_values(["_state", "_share"], kind="stable", ignore_index=True)
        .drop(columns=["_state", "_share"])
        .astype({"value": "float64", "limit": "float64", "share": "float64"})
    )


def _row(rule: Rule, facts: Facts) -> tuple[object, ...]:
    there = all(getattr(facts, name) is not None and len(getattr(facts, name)) for name in rule.needs)
    found = rule.check(facts) if there else None
    if found is None:
        return (rule.name, rule.about, rule.title, UNKNOWN, "", None, rule.limit, rule.unit, None, rule.lacks, "", "", "computed")
    return (
        rule.name,
        rule.about,
        rule.title,
        FOUND if found.found else CLEAR,
        severity(found.share) if found.found else "",
        found.value,
        rule.limit,
        rule.unit,
        found.share,
        found.evidence,
        rule.fix if found.found else "",
        ", ".join(list(dict.fromkeys(map(str, found.ops)))[:MOST_OPS]) if found.found else "",
        "computed",
    )


def severity(share: float | None) -> str:
    """High from a fifth of the time on, Medium from a twentieth on, else Low."""
    return next((name for least, name in _SEVERE if share is not None and share >= least), _NO_SHARE)


def _stated(table: pd.DataFrame) -> list[tuple[object, ...]]:
    """Findings of msprof itself, as its file has them; one without a suggestion found nothing."""
    columns = ("part", "rule_type", "description", "subtype", "suggestion", "tuning_data")
    rows = zip(*(texts(table, name).tolist() for name in columns), strict=True)
    out: list[tuple[object, ...]] = []
    for part, kind, description, subtype, suggestion, tuning in rows:
        about = " · ".join(text for text in (part, kind, subtype) if text)
        state = FOUND if suggestion else CLEAR
        out.append(("prof_rule", "msprof", about, state, _NO_SHARE if suggestion else "", None, None, "", None, description, suggestion))
        out[-1] += (_shortened(tuning), "prof_rule")
    return out


def _shortened(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
