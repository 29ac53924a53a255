"""Look-ups that several dialects need: names by a test, hosts of lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Int32s, Int64s, Trace


def names_that(test: Callable[[str], object], names: Iterable[object]) -> npt.NDArray[np.bool_]:
    """bool[names]: the names for which a test is true."""
    return np.array([bool(test(str(name))) for name in names], np.bool_)


def rows_that(trace: Trace, rows: Int64s, test: Callable[[str], object]) -> Int64s:
    """Rows of events whose names pass a test, which sees each of their names once."""
    code = trace.events.name[rows]
    used = np.zeros(len(trace.names), np.bool_)
    used[code] = True
    codes = np.flatnonzero(used)
    used[codes] = names_that(test, trace.names[codes])
    return rows[used[code]]


def text_of(texts: Sequence[object] | npt.NDArray[np.object_], code: int) -> str:
    """The text of a code; empty for a negative one."""
    return str(texts[code]) if code >= 0 else ""


def host_of_lanes(trace: Trace) -> Int32s:
    """int32[lanes]: index into `trace.hosts` of each lane."""
    number = dict(zip(trace.hosts, range(len(trace.hosts)), strict=True))
    return np.asarray(trace.lanes["host"].map(number), np.int32)


def codes_by_name(
    trace: Trace, used: npt.NDArray[np.integer], code: Callable[[str], int]
) -> npt.NDArray[np.int32]:
    """int32[names]: a code for each name that is used; 0 for the others."""
    codes = np.zeros(len(trace.names), np.int32)
    for name in pd.unique(used).tolist():
        codes[name] = code(str(trace.names[name]))
    return codes


def of_host(trace: Trace, host: int) -> str:
    """The words ` of HOST` for a sentence on one of several hosts; empty if there is only one."""
    if len(trace.hosts) == 1:
        return ""
    return f" of {trace.hosts[host]}"
