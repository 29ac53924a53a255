"""Validation of requests, which come from a page."""

from __future__ import annotations

from typing import Any

from nbprof.core.errors import NbprofError

MOST_ROWS = 8192
"""Rows of tiles that one request may want: a screen has some hundred."""

MOST_TILES = 4096
"""Tiles that these may be together."""

MOST_LANES = 100_000
MOST_EVENTS = 100_000
MOST_TEXT = 4096
_FAR = 2.0**63
_MOST_DEPTH = 65_535
_MOST_TILE = 2**53
_LEVELS = (-20, 63)


class BadRequest(NbprofError):  # noqa: N818 -- as HTTP says it
    """An invalid request; the message names the fault."""


class Request:
    """The fields of a request, checked for type and range.

    Raises
    ------
    BadRequest
        By every method.
    """

    def __init__(self, request: object) -> None:
        if not isinstance(request, dict):
            raise BadRequest('A request is an object with a field "ask".')
        self._fields = request

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    @property
    def ask(self) -> str:
        """The kind of request."""
        return self.text("ask", limit=40)

    def text(self, name: str, missing: str | None = None, limit: int = MOST_TEXT) -> str:
        """A text."""
        value = self._value(name, missing)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        if len(value) > limit:
            raise BadRequest(f"{name} has {len(value):,} characters; the limit is {limit:,}.")
        return value

    def one_of(self, name: str, *choices: str) -> str:
        """One of several choices."""
        value = self.text(name, limit=40)
        if value not in choices:
            raise self._wrong(name, f"one of {', '.join(choices)}")
        return value

    def integer(self, name: str, low: int, high: int, missing: int | None = None) -> int:
        """An integer in low…high, both included."""
        return self._integer(name, self._value(name, missing), low, high)

    def number(self, name: str, missing: float | None = None) -> float:
        """A finite number that int64 could hold."""
        value = self._value(name, missing)
        # No float is made of an integer before it is known to fit; NaN is not less than anything.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _FAR:
            raise self._wrong(name, "a number")
        return float(value)

    def window(self) -> tuple[float, float]:
        """`from` and `to`, ns, in order."""
        start, end = self.number("from"), self.number("to")
        if start > end:
            raise BadRequest(f"from ({start:g}) is after to ({end:g}).")
        return start, end

    def yes(self, name: str) -> bool:
        """True if an option is set."""
        value = self._value(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def integers(self, name: str, limit: int, largest: int) -> list[int]:
        """A list of integers in 0…limit-1."""
        values = self._fields.get(name)
        if not isinstance(values, list):
            raise self._wrong(name, "a list of numbers")
        if len(values) > largest:
            raise BadRequest(f"{name} has {len(values):,} entries; the limit is {largest:,}.")
        return [self._integer(name, value, 0, limit - 1) for value in values]

    def tile_rows(self, lanes: int) -> list[list[int]]:
        """The rows of `tiles`: lane, first and last level, first and last tile, all included."""
        rows = self._fields.get("want")
        if not isinstance(rows, list) or len(rows) > MOST_ROWS:
            raise self._wrong("want", f"a list of at most {MOST_ROWS:,} rows")
        result = []
        tiles = 0
        for row in rows:
            if not isinstance(row, list) or len(row) != 5:
                raise self._wrong("want", "rows of lane, depth, depth_to, tile and tile_to")
            lane = self._integer("want", row[0], 0, lanes - 1)
            depth, depth_to = (self._integer("want", n, 0, _MOST_DEPTH) for n in row[1:3])
            tile, tile_to = (self._integer("want", n, -_MOST_TILE, _MOST_TILE) for n in row[3:])
            tiles += max(tile_to - tile + 1, 0)
            result.append([lane, depth, depth_to, tile, tile_to])
        if tiles > MOST_TILES:
            raise BadRequest(
                f"{tiles:,} tiles of rows were requested; the limit is {MOST_TILES:,}."
            )
        return result

    def level(self) -> int:
        """Level of zoom: a bin is 2**level ns."""
        return self.integer("level", *_LEVELS)

    def _value(self, name: str, missing: object) -> Any:
        value = self._fields.get(name)
        if value is None:
            if missing is None:
                raise BadRequest(f"{name} is missing.")
            return missing
        return value

    def _integer(self, name: str, value: object, low: int, high: int) -> int:
        # JSON of JavaScript has one kind of number.
        if isinstance(value, float) and value.is_integer() and abs(value) < _FAR:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number")
        if not low <= value <= high:
            limits = "there is none" if high < low else f"it goes from {low:,} to {high:,}"
            raise BadRequest(f"{name} is {value:,}; {limits}.")
        return value

    def _wrong(self, name: str, fault: str) -> BadRequest:
        return BadRequest(f"{name} is not {fault}.")
