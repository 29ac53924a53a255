"""What the runs of `proven.py` come to, and the file that keeps them: a stopped run goes on there.

The file is JSON: `summary`, the sentences of docs/advice.md, and `programs`, a line for each.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

ENOUGH = 0.8
"""Part of the gain of the mended twin that has to be proven."""
OF_PROGRAMS = 75
"""Percent of the programs in which it has to be."""
LONGEST_S = 300.0
KEPT = (
    "experiment",
    "rule",
    "recommended",
    "why",
    "baseline_ms",
    "gain_ms",
    "gain_low_ms",
    "gain_high_ms",
    "equal",
    "difference",
    "spread",
    "pairs",
    "took_s",
)
"""What is kept of a row of `p.tried`; the code is not."""


def entry(out: Mapping[str, Any]) -> dict[str, Any]:
    """What the file keeps of a program."""
    rows = [{key: row.get(key) for key in KEPT} for row in out["rows"]]
    return {**out, "rows": rows, "proven": best(out)}


def best(out: Mapping[str, Any]) -> dict[str, Any] | None:
    """The largest gain that is recommended; None if nothing is."""
    good = [row for row in out["rows"] if row["recommended"]]
    if not good:
        return None
    row = max(good, key=lambda row: row["gain_ms"])
    return {
        "experiment": row["experiment"],
        "rule": row["rule"],
        "predicted_ms": out["predicted"].get(row["rule"]),
        "gain_ms": row["gain_ms"],
        "low_ms": row["gain_low_ms"],
        "high_ms": row["gain_high_ms"],
    }


def read(path: Path) -> dict[str, Any]:
    """The programs of a file; none if it does not exist."""
    if not path.exists():
        return {}
    programs: dict[str, Any] = json.loads(path.read_text())["programs"]
    return programs


def write(path: Path, programs: Mapping[str, Any]) -> None:
    """Replace the file by one with these programs: one that is stopped meanwhile leaves the old."""
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in programs.items()]
    text = (
        f'{{\n "summary": {json.dumps(summary(programs), indent=1)},\n "programs": {{\n'
        + ",\n".join(lines)
        + "\n }\n}\n"
    )
    beside = path.with_suffix(".part")
    beside.write_text(text)
    beside.replace(path)


def is_done(each: Mapping[str, Any] | None, budget_s: float) -> bool:
    """Return whether a program has run to its end with this budget."""
    return each is not None and each.get("budget_s") == budget_s and "seconds" in each


def summary(programs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentences on all programs that have run to their end."""
    done = {name: each for name, each in programs.items() if "seconds" in each}
    if not done:
        return []
    return [*_time(done.values()), *_found(done), *_controls(done), *_predictions(done.values())]


def _time(done: Collection[Mapping[str, Any]]) -> list[str]:
    seconds = [each["seconds"] for each in done]
    budgets = sorted({each["budget_s"] for each in done})
    cores = sorted({each["cores"] for each in done})
    within = sum(each <= LONGEST_S for each in seconds)
    text = (
        f"Each program had {_either(budgets)} s on {_either(cores)} cores; the longest took"
        f" {max(seconds):.0f} s, and {within} of {len(seconds)} at most {LONGEST_S:.0f} s. Intervals"
        " are of 95 %."
    )
    return [text]


def _either(values: Iterable[float]) -> str:
    return " or ".join(f"{value:g}" for value in values)


def _found(done: Mapping[str, Mapping[str, Any]]) -> list[str]:
    parts = {}
    for name, each in done.items():
        if each["planted"]:
            gain_ms = each["proven"]["gain_ms"] if each["proven"] else 0.0
            parts[name] = gain_ms / each["twin_ms"] if each["twin_ms"] > 0 else 0.0
    if not parts:
        return []
    less = [f"{name} ({100 * part:.0f} %)" for name, part in parts.items() if part < ENOUGH]
    percent = 100 * (len(parts) - len(less)) / len(parts)
    text = (
        f"Of {len(parts)} programs with a problem that an experiment mends, {100 * ENOUGH:g} % or"
        f" more of the gain of the mended program were proven in {len(parts) - len(less)}"
        f" ({percent:.0f} %; {OF_PROGRAMS} % are asked for)"
    )
    return [f"{text}{', and less in ' + ', '.join(less) if less else ''}."]


def _controls(done: Mapping[str, Mapping[str, Any]]) -> list[str]:
    controls = {name: each for name, each in done.items() if not each["planted"]}
    if not controls:
        return []
    few = [name for name, each in controls.items() if not any(row["pairs"] for row in each["rows"])]
    recommended, slower, unequal = 0, [], []
    for name, each in controls.items():
        good = {row["experiment"] for row in each["rows"] if row["recommended"]}
        recommended += len(good)
        for row in each["again"]:
            if row["gain_high_ms"] is not None and row["gain_high_ms"] < 0:
                slower.append(f"{row['experiment']} in {name}")
            if row["equal"] is False:
                unequal.append(f"{row['experiment']} in {name}")
    text = (
        f"In {len(controls)} programs without a problem, {recommended} changes were recommended."
        f" Measured once more, slower with 95 % confidence: {_names(slower)}; results not equal:"
        f" {_names(unequal)}."
    )
    if few:
        text += f" Nothing could be measured in {', '.join(few)}."
    return [text]


def _names(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _predictions(done: Iterable[Mapping[str, Any]]) -> list[str]:
    ratios = defaultdict(list)
    for each in done:
        proven = each["proven"] if each["planted"] else None
        if proven and proven["predicted_ms"] is not None:
            ratios[proven["rule"]].append(proven["predicted_ms"] / proven["gain_ms"])
    if not ratios:
        return []
    parts = [
        f"`{rule}` {statistics.median(values):.1f} ({len(values)})"
        for rule, values in sorted(ratios.items())
    ]
    return [f"Predicted ÷ proven, the median of each rule and of how many: {', '.join(parts)}."]
