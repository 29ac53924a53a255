"""Release of freed memory that the C library keeps: hundreds of megabytes for a large recording."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

MANY_EVENTS = 1_000_000
"""Below this, the C library keeps little memory, and reuses it soon."""


def give_back() -> None:
    """Return free memory to the system; does nothing unless the C library is glibc."""
    if (trim := _trim()) is not None:
        trim(0)


@lru_cache(maxsize=1)
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        # Another C library, or Windows, which has no library without a name.
        return None
