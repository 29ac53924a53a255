"""Device work that was launched before the recording began: it is of no step, and of no figure a
step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CATEGORIES, Activity
from nbprof.analysis.steps.steps import by_category, segments
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
    step, length, cls = segments(begin, end, host_of, start, stop, work["cls"].to_numpy())
    time = by_category(len(host), end - begin, step, length, cls) / 1e9
    table = pd.DataFrame(
        {
            "host": [activity.hosts[i] for i in host.tolist()],
            "start_ms": begin / 1e9,
            "time_ms": (end - begin) / 1e9,
            "busy_ms": np.bincount(step, length, len(host)) / 1e9,
            "device_events": np.bincount(host_of),
            **{f"{category}_ms": time[:, i] for i, category in enumerate(CATEGORIES)},
        }
    )
    return table[COLUMNS]


_MOST_LINES = 3


def notes(ahead: pd.DataFrame, hosts: int, steps: int) -> list[Note]:
    """Receipt notes on the backlog; `backlog` is the result of `frame`, `hosts` and `steps` their
    numbers in the profile.
    """
    rows = [
        (
            int(row["device_events"]),
            f" of {row['host']}" if hosts > 1 else "",
            f"{wording.millis(row['busy_ms'])} in which a device was busy",
        )
        for row in ahead.to_dict("records")
    ]
    if len(rows) > _MOST_LINES:
        mean = float(ahead["busy_ms"].mean())
        rows = [
            (
                sum(count for count, _, _ in rows),
                f" of {len(rows):,} hosts",
                f"on each {wording.millis(mean)} in which a device was busy, on average",
            )
        ]
    notes = []
    for count, host_name, busy in rows:
        is_single = count == 1
        subject = f"{count:,} device {'event' if is_single else 'events'}{host_name} ({busy})"
        text = f"{subject} {'was' if is_single else 'were'} launched before the recording began"
        then = (
            ": not counted in any step; the first step begins when"
            f" {'it has' if is_single else 'they have'} ended (p.steps.backlog)"
        )
        notes.append(Note("info", f"{text}{then if steps else ''}."))
    return notes


def not_launched_before(activity: Activity, event: Int64s) -> npt.NDArray[np.bool_]:
    """bool[rows]: flags of the rows of a table, by their events, that are not such work."""
    return ~np.isin(event, activity.backlog.event)
