"""Answers for an assistant: JSON of a bounded size, with the text of profiles in strings alone."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.plain_json import plain
from nbprof.display.wording import UNSEEN, plural, shortened_middle
from nbprof.profiles.named import selected
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN

LONGEST_TEXT = 400
"""Characters of a text in a row; the middle of a longer one is cut."""
_UNSEEN = re.compile(f"[{UNSEEN}]")
_OVERHEAD = 600
"""Bytes of an answer besides its rows."""


class Bounds(NamedTuple):
    """Limits of an answer."""

    rows: int
    bytes: int


def encode(value: Any) -> str:
    """JSON, with invisible characters escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


class Query(NamedTuple):
    """A selection of rows of a frame.

    Attributes
    ----------
    columns : list of str, optional
        By default all of them.
    filter : str
        See `nbprof.profiles.where`.
    sort : str
        A column; `-self_us` is largest first.
    limit : int
    """

    columns: list[str] | None = None
    filter: str = ""
    sort: str = ""
    limit: int = 20


def table(frame: pd.DataFrame, name: str, query: Query, bounds: Bounds) -> dict[str, Any]:
    """Rows of a frame, and a note on those that were left out.

    Parameters
    ----------
    frame : DataFrame
    name : str
        As in the schema, for the units.
    query : Query
    bounds : Bounds
        Limits of the answer.

    Raises
    ------
    NbprofError
        The frame has no such column, or the filter or limit is invalid.
    """
    if query.limit < 0:
        raise NbprofError(f"limit is a number of rows, not {query.limit}.")
    sort = [query.sort] if query.sort else []
    matches = selected(frame, query.filter, sort, query.columns or [])
    columns = list(matches.columns)
    units = {}
    for col in [*SCHEMA.get(name, []), *WHERE_KNOWN.get(name, [])]:
        if col.unit and col.name in columns:
            units[col.name] = col.unit
    rows: list[list[Any]] = []
    size, shortened = _OVERHEAD + len(encode([columns, units]).encode()), 0
    limited = matches.head(min(query.limit, bounds.rows))
    for values in limited.itertuples(index=False, name=None):
        row = [bounded(value) for value in values]
        size += len(encode(row).encode()) + 1
        if size > bounds.bytes:
            break
        shortened += sum(isinstance(value, str) and len(value) > LONGEST_TEXT for value in values)
        rows.append(row)
    notes = []
    if len(rows) < len(matches):
        left_out = len(matches) - len(rows)
        notes.append(f"{left_out:,} matching rows left out at {_reached(len(rows), query, bounds)}")
    if shortened:
        notes.append(f"{plural(shortened, 'text')} shortened to {LONGEST_TEXT} characters")
    return {
        "frame": name,
        "columns": columns,
        "units": units,
        "rows": rows,
        "rows_in_frame": len(frame),
        "rows_that_match": len(matches),
        "rows_here": len(rows),
        "cut": "; ".join(notes),
    }


def _reached(rows: int, query: Query, bounds: Bounds) -> str:
    """The limit that an answer of some rows has reached."""
    if rows == query.limit:
        return f"limit={query.limit:,}"
    if rows == bounds.rows:
        return f"{bounds.rows:,} rows"
    return f"{bounds.bytes:,} bytes"


def bounded(value: Any, longest: int = LONGEST_TEXT) -> Any:
    """Convert a value to JSON, with texts of at most `longest` characters."""
    return plain(value, text=lambda text: shortened_middle(text, longest), number=_rounded)


def _rounded(value: float) -> float:
    # Times in µs keep nanoseconds over days.
    return float(f"{value:.12g}")
