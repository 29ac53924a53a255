"""Durations as workers report them, by bucket of a histogram. Workers import it, so it imports
nothing.
"""

from __future__ import annotations

LONGEST = 500
"""Characters of a text in a report."""
_STEPS = 8
"""Buckets of a histogram per power of two: a duration is known to within 7 %."""


def bucket_of(took_ns: int) -> int:
    """The bucket of a duration: 8 of equal width to each power of two."""
    took_ns = max(took_ns, _STEPS)
    octave = took_ns.bit_length() - 1
    return octave * _STEPS + ((took_ns >> (octave - 3)) & (_STEPS - 1))


def middle_of(bucket: int) -> float:
    """The duration in ns in the middle of a bucket."""
    octave, step = divmod(bucket, _STEPS)
    return float((_STEPS + step + 0.5) * 2.0 ** (octave - 3))
