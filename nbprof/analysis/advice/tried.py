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
    """`fused optimizer: 1.20 ms [1.10, 1.30] faster, recommended: …`."""
    gain = wording.real(result["gain_ms"])
    if gain is None:
        return f"{result['title']}, {result['why']}"
    low = wording.number(result["gain_low_ms"], 2)
    high = wording.number(result["gain_high_ms"], 2)
    advice = "not recommended"
    if result["recommended"]:
        advice = "recommended"
    first = ""
    if result["recommended"] and result["pays_after"]:
        first = f"; it pays after {wording.plural(int(result['pays_after']), 'step')}"
    if gain < 0:
        return f"{result['title']} takes {wording.millis(-gain)} a step longer; {result['why']}"
    return (
        f"{result['title']} saves **{wording.millis(gain)}** a step, 95 % interval {low} to {high};"
        f" {advice}: {result['why']}{first}"
    )
