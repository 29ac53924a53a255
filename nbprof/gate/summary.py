"""All checks of a session as a Markdown table, for the summary of a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SIGNS = {"pass": "✓ pass", "fail": "✗ **fail**", "unknown": "? unknown"}


class Row(NamedTuple):
    """What became of one check of a test."""

    test: str
    check: str
    outcome: str
    text: str


def counted(rows: Sequence[Row]) -> str:
    """How many checks had which outcome: `12 pass, 1 unknown`."""
    return ", ".join(f"{count} {name}" for name in _SIGNS if (count := sum(row.outcome == name for row in rows)))


def markdown(rows: Sequence[Row]) -> str:
    """A heading and a table, failures first."""
    order = {name: at for at, name in enumerate(("fail", "unknown", "pass"))}
    lines = [f"### nbprof: {counted(rows)}", "", "| | test | check | |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: order.get(row.outcome, 0)):
        cells = _SIGNS.get(row.outcome, row.outcome), _code(row.test), row.check, _cell(row.text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def append(path: Path, rows: Sequence[Row]) -> None:
    """Put the table behind what is in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(markdown(rows) + "\n")


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
    return "<br>".join(line.strip() for line in escaped.splitlines())


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"
