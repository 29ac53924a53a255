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
from nbprof.core.trace import Int64s, Note
from nbprof.display import wording
from nbprof.schema import frames

COLUMNS = frames.names("steps.backlog")


def frame(activity: Activity) -> pd.DataFrame:
    """One row a host that had such work: the columns of `p.steps.backlog`."""
    work = activity.backlog.frame()
    if not len(work):
        return pd.DataFrame(columns=COLUMNS)
    rows = work["host"].to_numpy(np.int64)
    host, of = np.unique(rows, return_inverse=True)
    start, stop = work["start"].to_numpy(np.int64), work["end"].to_numpy(np.int64)
    begin, end = extents(of, len(host), start, stop)
    at, length, cls = segments(begin, end, of, start, stop, work["cls"].to_numpy())
    time = by_category(len(host), end - begin, at, length, cls) / 1e9
    out = pd.DataFrame(
        {
            "host": [activity.hosts[i] for i in host.tolist()],
            "start_ms": begin / 1e9,
            "time_ms": (end - begin) / 1e9,
            "busy_ms": np.bincount(at, length, len(host)) / 1e9,
            "device_events": np.bincount(of),
            **{f"{category}_ms": time[:, i] for i, category in enumerate(CATEGORIES)},
        }
    )
    return out[COLUMNS]


_MOST_LINES = 3


def notes(found: pd.DataFrame, hosts: int, steps: int) -> list[Note]:
    """What the receipt says of it; `found` is `frame`, `hosts` and `steps` are how many the profile
    has.
    """
    rows = [
        (
            int(row["device_events"]),
            f" of {row['host']}" if hosts > 1 else "",
            f"{wording.millis(row['busy_ms'])} in which a device was busy",
        )
        for row in found.to_dict("records")
    ]
    if len(rows) > _MOST_LINES:
        mean = float(found["busy_ms"].mean())
        rows = [
            (
                sum(count for count, _, _ in rows),
                f" of {len(rows):,} hosts",
                f"on each {wording.millis(mean)} in which a device was busy, on average",
            )
        ]
    out = []
    for count, where, busy in rows:
        one = count == 1
        what = f"{count:,} device {'event' if one else 'events'}{where} ({busy})"
        text = f"{what} {'was' if one else 'were'} launched before the recording began"
        then = (
            ": not counted in any step; the first step begins when"
            f" {'it has' if one else 'they have'} ended (p.steps.backlog)"
        )
        out.append(Note("info", f"{text}{then if steps else ''}."))
    return out


def apart(activity: Activity, event: Int64s) -> npt.NDArray[np.bool_]:
    """bool[rows]: which rows of a table, by their events, are no such work."""
    return ~np.isin(event, activity.backlog.event)
