"""Limits as people write them: `410`, "1.2 GB", "5 %"."""

from __future__ import annotations

import math
import re

from nbprof.core.errors import NbprofError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_AMOUNT = re.compile(
    r"\s*((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*(?:([kmgtp]?)(i?)(b|bytes|flops?)?)?\s*",
    re.IGNORECASE,
)
"""A comma only separates thousands: read as one, that of "1,2 GB" would allow ten times as much."""
_PERCENT = re.compile(r"\s*([0-9]+\.?[0-9]*)\s*%\s*")


def amount(value: object, what: str) -> float:
    """A limit as a number; texts may have a unit: "1.2 GB" is 1.2e9, "1.2 GiB" 1.2 x 2**30.

    Raises
    ------
    NbprofError
        It is no number of 0 or more.
    """
    number = math.nan
    if isinstance(value, str):
        if found := _AMOUNT.fullmatch(value):
            factor = 1024 if found[3] else 1000
            number = (
                float(found[1].replace(",", "").replace("_", ""))
                * factor ** _UNITS[(found[2] or "").lower()]
            )
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    if not 0 <= number < math.inf:
        raise NbprofError(
            f"{what}: {value!r} is not a limit; give a number such as 410, or a size such as"
            ' "1.2 GB"'
        )
    return number


def fraction(value: object, what: str) -> float:
    """A percentage as a fraction: 0.05 of "5 %".

    Raises
    ------
    NbprofError
        It is no percentage above 0.
    """
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if not found or not float(found[1]) > 0:
        raise NbprofError(f'{what}: {value!r} is not a percentage; write it as "5 %"')
    return float(found[1]) / 100
