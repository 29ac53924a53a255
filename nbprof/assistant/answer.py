"""Answers for an assistant: JSON of a bounded size, with the text of profiles in strings alone."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.plain_json import plain
from nbprof.display.wording import UNSEEN, middle_cut, plural
from nbprof.profiles.named import selected
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN

LONGEST_TEXT = 400
"""Characters of a text in a row; the middle of a longer one is cut."""
_UNSEEN = re.compile(f"[{UNSEEN}]")
_ROOM = 600
"""Bytes for what an answer says besides its rows."""


class Bounds(NamedTuple):
    """How much an answer may hold."""

    rows: int
    bytes: int


def encode(value: Any) -> str:
    """JSON, with characters that are not to be seen escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def table(
    frame: pd.DataFrame,
    name: str,
    *,
    columns: list[str] | None = None,
    filter: str = "",
    sort: str = "",
    limit: int = 20,
    bounds: Bounds,
) -> dict[str, Any]:
    """Rows of a frame, and what was left out.

    Parameters
    ----------
    frame : DataFrame
    name : str
        As in the schema, for the units.
    columns : list of str, optional
        All of them by default.
    filter : str
        See `nbprof.profiles.where`.
    sort : str
        A column; `-self_us` is largest first.
    limit : int
    bounds : Bounds
        On `limit` and on the answer.

    Raises
    ------
    NbprofError
        A column that is not there, or an invalid filter or limit.
    """
    if limit < 0:
        raise NbprofError(f"limit is a number of rows, not {limit}.")
    chosen = selected(frame, filter, [sort] if sort else [], columns or [])
    asked = min(limit, bounds.rows)
    rows: list[list[Any]] = []
    size, shortened = _ROOM, 0
    units = {
        col.name: col.unit
        for col in [*SCHEMA.get(name, []), *WHERE_KNOWN.get(name, [])]
        if col.unit and col.name in chosen.columns
    }
    size += len(encode([list(chosen.columns), units]).encode())
    for values in chosen.head(asked).itertuples(index=False, name=None):
        row = [bounded(value) for value in values]
        size += len(encode(row).encode()) + 1
        if size > bounds.bytes:
            break
        shortened += sum(isinstance(value, str) and len(value) > LONGEST_TEXT for value in values)
        rows.append(row)
    out: dict[str, Any] = {
        "frame": name,
        "columns": list(chosen.columns),
        "units": units,
        "rows": rows,
    }
    out |= {"rows_in_frame": len(frame), "rows_that_match": len(chosen), "rows_here": len(rows)}
    cut = []
    if len(rows) < len(chosen):
        why = (
            f"limit={limit:,}"
            if len(rows) == limit
            else f"{bounds.rows:,} rows"
            if len(rows) == bounds.rows
            else f"{bounds.bytes:,} bytes"
        )
        cut.append(f"{len(chosen) - len(rows):,} matching rows left out at {why}")
    if shortened:
        cut.append(f"{plural(shortened, 'text')} shortened to {LONGEST_TEXT} characters")
    return out | {"cut": "; ".join(cut)}


def bounded(value: Any, most: int = LONGEST_TEXT) -> Any:
    """Convert a value to JSON, with texts of at most `most` characters."""
    return plain(value, text=lambda text: middle_cut(text, most), number=_rounded)


def _rounded(value: float) -> float:
    # Times in µs still tell nanoseconds apart over days.
    return float(f"{value:.12g}")
