"""Single values of a Chrome trace in JSON: texts, numbers and times, exactly as they were written.

Used for what the columns of `scan` meet rarely (exponents, NaN, very long numbers, escapes) and by
`loose` for everything. Decimals never go through a float, unless a float is what the arg is.
"""

from __future__ import annotations

import json
import math
import re
import struct
from decimal import Decimal, InvalidOperation

from nbprof.core.trace import DOUBLE, INT, TEXT, UINT

_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[bytes, tuple[int, int]] = {
    b"true": (INT, 1),
    b"false": (INT, 0),
    b"True": (INT, 1),
    b"False": (INT, 0),
}
_NOTHING = frozenset((b"null", b"None"))
_FLOATS = {
    b"nan": math.nan,
    b"infinity": math.inf,
    b"inf": math.inf,
    b"-infinity": -math.inf,
    b"-inf": -math.inf,
}
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

# A time of 2^63 ns is in the year 2262; what lies beyond is no time.
FARTHEST_US = 9_200_000_000_000_000

Scalar = tuple[int, int | str]


def text(raw: bytes) -> str:
    """The text of a JSON string, given without its quotes; what is not valid in it is kept as it
    stands, or as U+FFFD.
    """
    if b"\\" not in raw:
        return raw.decode("utf-8", "replace")
    written = raw.decode("utf-8", "replace")
    try:
        result = str(json.loads(f'"{written}"', strict=False))
    except ValueError:
        result = _ESCAPE.sub(lambda m: _SIMPLE[m[1]] if m[1] else chr(int(m[2], 16)), written)
    # Halves of a surrogate pair can't be written to a file or a page again.
    if result.isascii():
        return result
    return result.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_nothing(raw: bytes) -> bool:
    """Whether an unquoted word says that there is no value."""
    return raw in _NOTHING


def bits(value: float) -> int:
    """The bits of a double as int64."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def scalar(raw: bytes) -> Scalar | None:
    """Kind and value of an unquoted word: a number, a truth value; anything else is a text. None
    for null.
    """
    if raw in _NOTHING:
        return None
    word = _WORDS.get(raw)
    if word is not None:
        return word
    if _NUMBER.fullmatch(raw):
        if raw.lstrip(b"-").isdigit():
            return _integer(raw)
        return DOUBLE, bits(float(raw))
    special = _FLOATS.get(raw.lower())
    if special is not None:
        return DOUBLE, bits(special)
    return TEXT, raw.decode("utf-8", "replace")


def _integer(raw: bytes) -> Scalar:
    if len(raw) > 24:
        return TEXT, raw.decode()
    value = int(raw)
    if -(1 << 63) <= value < 1 << 63:
        return INT, value
    if 0 <= value < 1 << 64:
        return UINT, value - (1 << 64)
    return TEXT, raw.decode()


def picoseconds(raw: bytes) -> tuple[int, bool] | None:
    """A time in µs as text -> whole picoseconds, and whether digits below one had to be rounded;
    None where it is no time.
    """
    try:
        value = Decimal(raw.decode("ascii").strip())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite():
        return None
    if value == 0:
        return 0, False
    if value.adjusted() > 16 or abs(value) > FARTHEST_US:
        return None
    if value.adjusted() < -12:
        return 0, True
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    complete = int("".join(map(str, digits[:60])))
    exponent += len(digits) - len(digits[:60]) + 6
    if exponent >= 0:
        result, rest = complete * 10**exponent, 0
    else:
        result, rest = divmod(complete, 10**-exponent)
        result += 2 * rest >= 10**-exponent
    return (-result if sign else result), rest != 0
