"""Sizes and durations in words: the rule for all that nbprof shows, on screen, in messages and in
reports.

Measured times of steps, ops and calls are formatted by `nbprof.display.wording.millis` and
`micros`.
"""

from __future__ import annotations

from collections.abc import Sequence

_KIB = 1024.0
_UNITS = (("TiB", 4, 2), ("GiB", 3, 2), ("MiB", 2, 2), ("KiB", 1, 1))
"""Unit, power of 1024, digits."""


def scale_bytes(value: float) -> tuple[float, str, int]:
    """Scale a number of bytes to the largest binary unit that it reaches.

    Returns
    -------
    scaled : float
    unit : str
        B, KiB, MiB, GiB or TiB.
    digits : int
        Decimals to show.
    """
    for unit, power, digits in _UNITS:
        if abs(value) >= _KIB**power:
            return value / _KIB**power, unit, digits
    return value, "B", 0


def size_text(value: float) -> str:
    """Format a number of bytes: `43.40 MiB`, `512 B`.

    Memory and files alike have binary units, as in the messages of PyTorch, TensorFlow and XLA.
    Decimal units are left to rates (GB/s), which vendors state so, and to limits that users write
    themselves.
    """
    scaled, unit, digits = scale_bytes(value)
    text = f"{abs(scaled):,.{digits}f} {unit}"
    return f"−{text}" if scaled < 0 else text


def plural(count: int, singular: str, many: str = "") -> str:
    """`1 step`, `32 steps`."""
    if count == 1:
        return f"1 {singular}"
    return f"{count:,} {many or singular + 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def join_some(names: Sequence[str], limit: int = 10) -> str:
    """The first names of a list as a text, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def duration_text(seconds: float, digits: int = 1) -> str:
    """Format how long something took or may take: `130 ms`, `14.2 s`, `3 min 05 s`, `2 h 05 min`.

    Parameters
    ----------
    seconds : float
    digits : int
        Decimals of seconds.
    """
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if round(seconds, digits) < 60:
        return f"{seconds:.{digits}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60:,} h {minutes % 60:02} min"
