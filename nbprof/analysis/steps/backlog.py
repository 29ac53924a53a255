"""Device work that was launched before the recording began: it is of no step, and of no figure a
step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CATEGORIES, Activity
from nbprof.analysis import notes
from nbprof.analysis.steps.steps import by_category, time_by_class
from nbprof.core.intervals import extents
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.display import wording
from nbprof.schema import frames

COLUMNS = frames.names("steps.backlog")


def frame(activity: Activity) -> pd.DataFrame:
    """One row a host that had such work: the columns of `p.steps.backlog`."""
    work = activity.backlog.frame()
    if not len(work):
        return pd.DataFrame(columns=COLUMNS)
    rows = work["host"].to_numpy(np.int64)
    host, host_of = np.unique(rows, return_inverse=True)
    start, stop = work["start"].to_numpy(np.int64), work["end"].to_numpy(np.int64)
    begin, end = extents(host_of, len(host), start, stop)
    by_class = time_by_class(begin, end, host_of, start, stop, work["cls"].to_numpy())
    time = by_category(end - begin, by_class) / 1e9
    table = pd.DataFrame(
        {
            "host": [activity.hosts[i] for i in host.tolist()],
            "start_ms": begin / 1e9,
            "time_ms": (end - begin) / 1e9,
            "busy_ms": sum(by_class.values()) / 1e9,
            "device_events": np.bincount(host_of),
            **{f"{category}_ms": time[:, i] for i, category in enumerate(CATEGORIES)},
        }
    )
    return table[COLUMNS]


_MOST_LINES = 3


def notes_on(ahead: pd.DataFrame, hosts: int, steps: int) -> list[Note]:
    """Receipt notes on the backlog; `ahead` is the result of `frame`, `hosts` and `steps` their
    numbers in the profile.
    """
    if len(ahead) > _MOST_LINES:
        busy = f"on each {_busy(ahead['busy_ms'].mean())}, on average"
        events, of_hosts = int(ahead["device_events"].sum()), f" of {len(ahead):,} hosts"
        return [notes.launched_before_recording(events, of_hosts, busy, in_steps=steps > 0)]
    result = []
    for host, events, busy_ms in zip(
        ahead["host"].tolist(),
        ahead["device_events"].tolist(),
        ahead["busy_ms"].tolist(),
        strict=True,
    ):
        of_host = f" of {host}" if hosts > 1 else ""
        result.append(
            notes.launched_before_recording(
                int(events), of_host, _busy(busy_ms), in_steps=steps > 0
            )
        )
    return result


def _busy(ms: float) -> str:
    return f"{wording.millis(ms)} in which a device was busy"


def not_launched_before(activity: Activity, event: Int64s) -> npt.NDArray[np.bool_]:
    """bool[rows]: flags of the rows of a table, by their events, that are not such work."""
    return ~np.isin(event, activity.backlog.event)
