"""The part of a profile that is scored, as plain values."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

TOP = 1
"""Rows of the Python frames that count as named."""

NOTHING = {
    "unit": None,
    "count": 0,
    "unit_ms": None,
    "verdict": "none",
    "text": "no profile",
    "python": None,
}
"""The answer where nothing was recorded."""


def answer(profile: Any, source: str = "") -> dict[str, Any]:
    """What a profile says of its unit, what bounds it, and where Python spends its time."""
    overview, frame = profile.overview, profile.steps.frame
    unit = overview.get("unit") or {"kind": "step", "agreement": None}
    times = frame["step_time_ms"] if len(frame) else pd.Series(dtype=float)
    # A unit per host and step: each host runs all of them.
    hosts = frame["host"].nunique() if len(frame) else 1
    return {
        "unit": unit["kind"] if len(frame) else None,
        "agreement": unit.get("agreement"),
        "how": unit.get("how", ""),
        "count": len(frame) // max(hosts, 1),
        "unit_ms": float(times.mean()) if len(times) else None,
        "verdict": overview["verdict"],
        "text": f"{overview['verdict_text']}. {overview['verdict_detail']}",
        "bound": overview["bound"],
        "python": [*named(overview, source), *(python_rows(profile, source) or [])] or None,
    }


def named(overview: Any, source: str) -> list[str]:
    """What the overview names in the largest part of the host's time, with the text of the line of
    the cell that it numbers.
    """
    parts = overview.get("host_parts")
    if parts is None or not len(parts):
        return []
    text = str(parts.sort_values("percent", ascending=False)["text"].iloc[0])
    number = re.search(r"\bline (\d+)", text)
    lines = source.splitlines()
    if number is not None and "Cell" in text and int(number[1]) <= len(lines):
        text += f" | {lines[int(number[1]) - 1].strip()}"
    return [text]


def python_rows(profile: Any, source: str) -> list[str] | None:
    """The rows that `p.python` puts first, each as one text; None where nothing was sampled."""
    python = getattr(profile, "python", None)
    if python is None:
        return None
    rows = []
    for name in ("functions", "lines"):
        frame = getattr(python, name, None)
        if callable(frame):
            frame = frame()
        if isinstance(frame, pd.DataFrame):
            rows += [row_text(row, source) for row in frame.head(TOP).to_dict("records")]
    return rows or None


def row_text(row: dict[Any, Any], source: str) -> str:
    """The texts of a row, and the text of the line of the cell that it numbers."""
    texts = [str(value) for value in row.values() if isinstance(value, str)]
    number = row.get("line")
    lines = source.splitlines()
    in_cell = any(
        "cell" in text.lower() or "ipykernel" in text or "ipython-input" in text for text in texts
    )
    if in_cell and isinstance(number, int) and 1 <= number <= len(lines):
        texts.append(lines[number - 1].strip())
    return " | ".join(texts)
