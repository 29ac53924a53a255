"""Gives memory back that was freed, but that the C library keeps for later: of a large recording
hundreds of megabytes.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

MANY_EVENTS = 1_000_000
"""Below this, what is kept is little, and is soon used again."""


def give_back() -> None:
    """Returns free memory to the system. Only glibc keeps so much of it and can be told to;
    elsewhere nothing is done.
    """
    if (trim := _trim()) is not None:
        trim(0)


@lru_cache(maxsize=1)
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        # Another C library; on Windows there is no library without a name.
        return None
