"""Limits as people write them: `410`, "1.2 GB", "5 %"."""

from __future__ import annotations

import math
import re

from nbprof.core.errors import NbprofError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_AMOUNT = re.compile(
    r"\s*((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)"
    r"\s*(?:([kmgtp]?)(i?)(b|bytes|flops?)?)?\s*",
    re.IGNORECASE,
)
"""A comma only separates thousands: read as one, that of "1,2 GB" would allow ten times as much."""
_PERCENT = re.compile(r"\s*([0-9]+\.?[0-9]*)\s*%\s*")


def amount(value: object, check: str) -> float:
    """Convert a limit to a number; "1.2 GB" is 1.2e9, "1.2 GiB" 1.2 x 2**30.

    Parameters
    ----------
    value : object
    check : str
        Name of the check, for the message.

    Raises
    ------
    NbprofError
        The value is not a number of 0 or more.
    """
    number = math.nan
    if isinstance(value, str):
        match = _AMOUNT.fullmatch(value)
        if match:
            factor = 1024 if match[3] else 1000
            digits = match[1].replace(",", "").replace("_", "")
            number = float(digits) * factor ** _UNITS[(match[2] or "").lower()]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    if not 0 <= number < math.inf:
        raise NbprofError(
            f"{check}: {value!r} is not a limit; give a number such as 410, or a size such as"
            ' "1.2 GB"'
        )
    return number


def fraction(value: object, check: str) -> float:
    """Convert a percentage, such as "5 %", to a fraction.

    Parameters
    ----------
    value : object
    check : str
        Name of the check, for the message.

    Raises
    ------
    NbprofError
        The value is not a percentage above 0.
    """
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if not match or not float(match[1]) > 0:
        raise NbprofError(f'{check}: {value!r} is not a percentage; write it as "5 %"')
    return float(match[1]) / 100
