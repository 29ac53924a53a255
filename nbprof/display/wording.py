"""Human-readable numbers and names: units, digits, dashes for missing values."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd

from nbprof.core.units import duration_text, size_text
from nbprof.core.units import listed as listed
from nbprof.core.units import plural as plural

MISSING = "–"
LEAST_MS = 0.01
"""Shorter times have no significant digit in ms and are shown in µs."""
UNSEEN = (
    "\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
"""Characters that are invisible or change the direction of text, for a class of a regular
expression.
"""
_NO_LINE = re.compile(f"[\x00-\x1f{UNSEEN}]+")


def number(value: Any, digits: int = 0) -> str:
    """`1,234.5`, with a true minus; `–` for missing values."""
    value = real(value)
    if value is None:
        return MISSING
    text = f"{abs(value):,.{digits}f}"
    if value < 0 and not _is_zero(text):
        return f"−{text}"
    return text


def _is_zero(text: str) -> bool:
    """True if a formatted number was rounded to zero."""
    return not any(digit in "123456789" for digit in text)


def percent(value: Any, digits: int = 1) -> str:
    """`61.0%`; `< 0.1%` for a part too small to round to something."""
    value = real(value)
    if value is None:
        return MISSING
    least = 10.0**-digits
    if 0 < value < least / 2:
        return f"< {least:.{digits}f}%"
    return f"{number(value, digits)}%"


def size(value: Any) -> str:
    """`43.40 MiB`, `–` for missing values; see `nbprof.core.units.size_text`."""
    value = real(value)
    return MISSING if value is None else size_text(value)


def duration(seconds: Any) -> str:
    """`130 ms`, `14.2 s`, `3 min 05 s`; see `nbprof.core.units.duration_text`."""
    seconds = real(seconds)
    return MISSING if seconds is None else duration_text(seconds)


def micros(us: Any, digits: int = 1) -> str:
    """`25.0 µs`, `81.49 ms` or `12.35 s`: microseconds in a suitable unit."""
    us = real(us)
    if us is None:
        return MISSING
    if abs(us) >= 1e3:
        return millis(us / 1e3)
    return f"{number(us, digits)} µs"


def millis(ms: Any, digits: int = 2) -> str:
    """`6.20 ms`, from 10 s on `12.35 s`: milliseconds in a suitable unit."""
    ms = real(ms)
    if ms is None:
        return MISSING
    if 0 < abs(ms) < LEAST_MS:
        return micros(1e3 * ms)
    unit, size = time_unit(ms)
    if size > 1:
        digits = 2
    return f"{number(ms / size, digits)} {unit}"


def rise(text: str, value: Any) -> str:
    """The text of a number, with a plus if it is positive and not rounded to 0: `+6.20 ms`."""
    if (real(value) or 0.0) > 0 and not _is_zero(text):
        return f"+{text}"
    return text


def millis_two(first: Any, second: Any, between: str, digits: int = 2) -> str:
    """`6.20 to 8.40 ms`, `800.00 ms to 12.35 s`: two times, with a common unit only once."""
    low, high = millis(first, digits), millis(second, digits)
    number_of_low, _, unit = low.rpartition(" ")
    if number_of_low and unit == high.rpartition(" ")[2]:
        low = number_of_low
    return f"{low}{between}{high}"


def time_unit(ms: float | None) -> tuple[str, float]:
    """A suitable unit for a time in ms, and its length in ms."""
    if ms is None or abs(ms) < 1e4:
        return "ms", 1.0
    return "s", 1e3


def times(count: float) -> str:
    """`once`, `3 times`."""
    return "once" if round(count) == 1 else f"{number(count)} times"


def gain(
    gain_ms: Any, gain_is: str, per: str | None = None, gain_percent: float | None = None
) -> str:
    """`up to −1.20 ms per step`, or `about`, or `at least`; empty without a gain.

    `per` replaces "per step", and `gain_percent` is the share: `about −93.00 ms, 15% of the
    recording`.
    """
    saved = real(gain_ms)
    if saved is None:
        return ""
    time = millis(-saved)
    if gain_percent is not None:
        time += f", {percent(gain_percent, 0)}"
    return f"{gain_is} {time} {per or 'per step'}"


def shortened(text: object, limit: int) -> str:
    """The text, or its beginning and an ellipsis, of at most `limit` characters."""
    text = str(text)
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1]}…"


def shortened_middle(text: str, limit: int) -> str:
    """The text, or its beginning, an ellipsis and its end, of at most `limit` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…{text[-(limit - limit // 2 - 1) :]}"


def real(value: Any) -> float | None:
    """The number as float; None if it is missing, NaN or infinite."""
    if value is None or value is pd.NA or isinstance(value, str):
        return None
    result = float(value)
    return result if math.isfinite(result) else None


def tail(name: str, limit: int = 48) -> str:
    """A long op name without its first segments, because the last ones distinguish ops."""
    name = one_line(name)
    if len(name) <= limit:
        return name
    parts = re.split(r"(?<=/)|(?<=::)", name)
    while len(parts) > 1 and sum(map(len, parts)) + 2 > limit:
        parts.pop(0)
    last_parts = "".join(parts)
    if len(last_parts) + 2 > limit:
        return f"…{last_parts[-(limit - 1) :]}"
    if name.endswith(f"/{last_parts}"):
        return f"…/{last_parts}"
    return f"…{last_parts}"


def kernel(name: str, limit: int = 60) -> str:
    """A kernel name without return type, namespaces and argument list."""
    text = re.sub(r"^void\s+", "", one_line(name)).replace("(anonymous namespace)::", "")
    text = text[: _arguments(text)] or text
    head, angle, rest = text.partition("<")
    text = head.rsplit("::", 1)[-1] + angle + rest
    return shortened(text, limit)


def _arguments(text: str) -> int:
    """Index of the argument list of a demangled name: the first parenthesis outside templates."""
    depth = 0
    for i, char in enumerate(text):
        if char == "(" and depth == 0:
            return i
        depth += (char == "<") - (char == ">")
    return len(text)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that puts worker-2 before worker-10."""
    key = []
    for part in re.split(r"(\d+)", name):
        key.append((0, int(part), "") if part.isdecimal() else (1, 0, part))
    return key


def one_line(text: str) -> str:
    """Foreign text with spaces in place of control characters, line breaks and invisible ones."""
    return _NO_LINE.sub(" ", text)


def bold_parts(marked: str) -> list[tuple[bool, str]]:
    """A marked text as (is bold, text) parts: `**…**` is bold, everything else literal."""
    pieces = marked.split("**")
    if len(pieces) % 2 == 0:  # an unpaired mark is literal
        pieces[-2:] = [f"{pieces[-2]}**{pieces[-1]}"]
    return [(i % 2 == 1, piece) for i, piece in enumerate(pieces) if piece]


def plain(marked: str) -> str:
    """A marked text without its marks."""
    return "".join(text for _, text in bold_parts(marked))
