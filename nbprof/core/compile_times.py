"""Compilations of a recorded program, as a recording stores them next to the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeGuard

VERSION = 1
MOST = 1_000
"""Compilations that a recording stores at most."""
MOST_EARLIER = 500
"""Compilations from before a recording that it stores at most."""
LONGEST = 400
"""Characters of each text."""
LONGEST_BREAKS = 4_000
"""Characters of the graph breaks of a compilation."""
_LONGEST_PATH = 1_000
_LATEST_NS = 2**62

FIRST, AGAIN, MADE_AGAIN, REDEFINED = "first", "again", "made_again", "redefined"
"""What was known of the function: never seen; seen, for other arguments or another state; only
another function object of the same code, made in this recording or in an earlier one.
"""
PLACED, UNKNOWN = "placed", ""
"""Traced before, but not compiled for where the arguments are now; nothing is known."""
STATES = (FIRST, AGAIN, MADE_AGAIN, REDEFINED, PLACED, UNKNOWN)
BACKWARD = " (backward)"
"""End of the name of a backward pass, which is compiled on its own."""


@dataclass(frozen=True)
class Compilation:
    """One compilation.

    Parameters
    ----------
    framework : str
        ``jax``, ``torch`` or ``tensorflow``.
    function : str
        Its name; "" if unknown.
    file : str
        Where its code begins; "" if unknown.
    line : int
        0 if unknown.
    start_ns : int
        In ns since 1970.
    duration_ns : int
    step : int
        The step of the cell that waited, from 1; 0 if none was marked.
    trace_ns, lower_ns, compile_ns : int or None
        Time in the phases, which exclude each other. None if unknown.
    cache : str
        ``hit`` or ``miss`` of the cache on disk; "" where none was asked.
    state : str
        One of `STATES`.
    reason : str
        What the framework gave as the reason.
    argument, before, after : str
        What differs from an earlier compilation, where the recorder saw the values.
    breaks : str
        Graph breaks in it: lines of ``file:line: reason``; a last line counts those left out.
    number : str
        As Dynamo numbers it in traces: ``2/0``; "" of other frameworks.
    """

    framework: str
    function: str = ""
    file: str = ""
    line: int = 0
    start_ns: int = 0
    duration_ns: int = 0
    step: int = 0
    trace_ns: int | None = None
    lower_ns: int | None = None
    compile_ns: int | None = None
    cache: str = ""
    state: str = UNKNOWN
    reason: str = ""
    argument: str = ""
    before: str = ""
    after: str = ""
    breaks: str = ""
    number: str = ""


@dataclass(frozen=True)
class Compilations:
    """All of a recording.

    Attributes
    ----------
    rows : tuple of Compilation
        In the order of their ends.
    began_ns : int
        When the cell began, in ns since 1970.
    left_out : int
        Compilations after the first `MOST`.
    earlier : tuple of Compilation
        What was compiled behind graph breaks before the recording began, and may run in it.
    """

    rows: tuple[Compilation, ...] = ()
    began_ns: int = 0
    left_out: int = 0
    earlier: tuple[Compilation, ...] = ()


def short(text: str) -> str:
    """A text, truncated as in a row."""
    return text[:LONGEST]


def listed(lines: Iterable[str]) -> str:
    """Different lines as one text: as many as fit into `LONGEST_BREAKS`, and how many more."""
    different = list(dict.fromkeys(lines))
    length = 0
    for number, line in enumerate(different):
        length += len(line) + 1
        # The last line needs room as well.
        if length > LONGEST_BREAKS - 40:
            return "\n".join([*different[:number], f"and {len(different) - number:,} more"])
    return "\n".join(different)


def packed(
    rows: Iterable[Compilation],
    began_ns: int,
    left_out: int,
    earlier: Iterable[Compilation] = (),
) -> dict[str, Any]:
    """As plain values for JSON; empty without compilations."""
    packed_rows, packed_earlier = (list(map(_plain, each)) for each in (rows, earlier))
    if not packed_rows and not packed_earlier:
        return {}
    values = {
        "version": VERSION,
        "rows": packed_rows[:MOST],
        "began_ns": began_ns,
        "left_out": left_out + max(len(packed_rows) - MOST, 0),
    }
    return {**values, "earlier": packed_earlier[-MOST_EARLIER:]} if packed_earlier else values


def _plain(row: Compilation) -> dict[str, Any]:
    """The values of a row that it does not have by default."""
    empty = _EMPTY
    return {name: value for name, value in asdict(row).items() if value != empty.get(name)}


def unpacked(values: object) -> Compilations:
    """The compilations that `packed` packed; none of another version, and no damaged rows."""
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return Compilations()
    rows, began, left_out = (values.get(name) for name in ("rows", "began_ns", "left_out"))
    if not isinstance(rows, list) or not _is_count(began) or not _is_count(left_out):
        return Compilations()
    earlier = values.get("earlier")
    if not isinstance(earlier, list):
        earlier = []
    return Compilations(_rows(rows[:MOST]), began, left_out, _rows(earlier[:MOST_EARLIER]))


def _rows(values: list[object]) -> tuple[Compilation, ...]:
    return tuple(filter(None, map(_row, values)))


def _row(values: object) -> Compilation | None:
    if not isinstance(values, dict) or "framework" not in values:
        return None
    for name, value in values.items():
        if name not in _CHECKS or not _CHECKS[name](value):
            return None
    return Compilation(**values)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST_NS


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _is_breaks(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_BREAKS


def _is_path(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_PATH


def _is_state(value: object) -> bool:
    return value in STATES


_EMPTY = {field.name: field.default for field in fields(Compilation) if field.name != "framework"}
_TEXTS = (
    "framework",
    "function",
    "cache",
    "reason",
    "argument",
    "before",
    "after",
    "number",
)
_COUNTS = ("line", "start_ns", "duration_ns", "step", "trace_ns", "lower_ns", "compile_ns")
_CHECKS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(_TEXTS, _is_text),
    **dict.fromkeys(_COUNTS, _is_count),
    "file": _is_path,
    "breaks": _is_breaks,
    "state": _is_state,
}
