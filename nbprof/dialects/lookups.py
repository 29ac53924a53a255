"""Look-ups that several dialects need: names by a test, hosts of lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Trace


def names_that(test: Callable[[str], object], names: Iterable[object]) -> npt.NDArray[np.bool_]:
    """bool[names]: the names for which a test is true."""
    return np.array([bool(test(str(name))) for name in names], np.bool_)


def host_of_lanes(trace: Trace) -> Int32s:
    """int32[lanes]: index into `trace.hosts` of each lane."""
    number = {name: i for i, name in enumerate(trace.hosts)}
    return np.asarray(trace.lanes["host"].map(number), np.int32)


def of_host(trace: Trace, host: int) -> str:
    """The words ` of HOST` for a sentence on one of several hosts; empty if there is only one."""
    return f" of {trace.hosts[host]}" if len(trace.hosts) > 1 else ""
