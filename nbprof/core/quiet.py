"""Work on nbprof's own threads, which must write nothing into the user's notebook: it would appear
below the running cell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np


def quietly(work: Callable[..., object], *args: Any) -> None:
    """Does some work; neither what it raises nor numpy's warnings of divisions and the like are
    written anywhere.

    What has to be told when the work fails, the work itself must tell.
    """
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        work(*args)


def silence() -> None:
    """Turns numpy's warnings off on this thread: the `initializer` of a pool of threads. What is
    raised there, who waits for it gets.
    """
    np.seterr(all="ignore")
