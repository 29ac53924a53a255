"""Work on nbprof's own threads, which must write nothing into the user's notebook: it would appear
below the running cell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np


def quietly(work: Callable[..., object], *args: Any) -> None:
    """Call a function, ignoring its exceptions and numpy's floating-point warnings.

    The function itself must report a failure that the user should know about.
    """
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        work(*args)


def silence() -> None:
    """Turn numpy's warnings off on this thread: the `initializer` of a pool of threads."""
    np.seterr(all="ignore")
