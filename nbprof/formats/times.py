"""The longest time that events of any format may take, or be away from the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int64s

LONGEST_NS = 7 * 24 * 3600 * 10**9
"""A week: longer events, and events farther from the others, are damage."""
LONGEST_PS = 1000 * LONGEST_NS


def far_from_middle(times_ns: Int64s) -> npt.NDArray[np.bool_]:
    """Times, one or more, that are more than a week from the middle one."""
    low, high = int(times_ns.min()), int(times_ns.max())
    if high - low <= LONGEST_NS:
        return np.zeros(len(times_ns), np.bool_)
    half = (len(times_ns) - 1) // 2
    middle = int(np.partition(times_ns, half)[half])
    # A difference may be beyond 64 bits.
    return (times_ns > min(middle + LONGEST_NS, high)) | (times_ns < max(middle - LONGEST_NS, low))
