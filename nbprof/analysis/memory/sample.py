"""The moments of a timeline that are drawn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_POINTS = 1000


def sample(in_use: npt.NDArray[np.float64], limit: int = MOST_POINTS) -> npt.NDArray[np.int64]:
    """The rows to keep of a timeline: of each of `most` boxes the first row with the largest use,
    so that every maximum stays.

    The boxes are those of XProf: `c` of `n // most` rows, then the rest of one more.
    """
    count = len(in_use)
    if count <= limit:
        return np.arange(count)
    width = count // limit
    narrow = limit * (width + 1) - count
    sizes = np.where(np.arange(limit) < narrow, width, width + 1)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    safe = np.where(np.isnan(in_use), -np.inf, in_use)
    return np.array(
        [
            start + int(np.argmax(safe[start : start + size]))
            for start, size in zip(starts, sizes, strict=True)
        ],
        np.int64,
    )
