"""Findings whose remedy an experiment has tried (`--try`): each says what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from nbprof.display import wording
from nbprof.schema import frames


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """`p.tried` of stored rows; those without a value for a required column are left out."""
    records = list(rows)
    columns: dict[str, list[Any]] = {}
    for column in frames.SCHEMA["tried"]:
        values = [record.get(column.name) for record in records]
        if column.dtype == "object":
            values = [str(value or "") for value in values]
        elif column.dtype in ("bool", "int64"):
            values = [value or 0 for value in values]
        columns[column.name] = values
    if not records:
        return frames.empty("tried")
    return frames.build("tried", columns)


def with_results(findings: pd.DataFrame, tried: pd.DataFrame) -> pd.DataFrame:
    """The findings, each with a sentence on the experiments that were run for it."""
    if not len(tried):
        return findings
    rows = findings.to_dict("records")
    for row in rows:
        of_rule = tried[tried["rule"] == row["rule"]]
        for result in of_rule.to_dict("records"):
            row["evidence"] += f" Tried: {sentence(result)}."
    return pd.DataFrame(rows, columns=findings.columns)


def sentence(result: Mapping[str, Any]) -> str:
    """`fused optimizer **−23 %** [21, 25] of a step, results equal`, and why it is not recommended.

    In brackets is the interval of what it saves.
    """
    gain, step = wording.real(result["gain_ms"]), wording.real(result["baseline_ms"])
    if gain is None or not step:
        return f"{result['title']}, {result['why']}"
    saves, low, high = (
        _percent(100 * float(result[name]) / step)
        for name in ("gain_ms", "gain_low_ms", "gain_high_ms")
    )
    sign = "−" if gain >= 0 else "+"
    interval = f"[{low}, {high}] of a step"
    text = f"{result['title']} **{sign}{saves.removeprefix('−')} %** {interval}, {_results(result)}"
    if not result["recommended"]:
        return f"{text}; not recommended: {result['why']}"
    if result["pays_after"]:
        text += f"; it pays after {wording.plural(int(result['pays_after']), 'step')}"
    return text


def _percent(value: float) -> str:
    return f"{value:.{0 if abs(value) >= 10 else 1}f}".replace("-", "−")


def _results(result: Mapping[str, Any]) -> str:
    equal = result["equal"]
    if equal is None or pd.isna(equal):
        return "results not compared"
    return "results equal" if equal else "results not equal"
