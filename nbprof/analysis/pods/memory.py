"""Time that a host spends in the driver to allocate and free device memory, by step: what a full
device costs it.

An allocator that caches its memory makes no such calls in steady state. Where it found none free,
it frees what it has cached and tries again, which takes the host long, since each call may wait for
the device. Source: the notes of PyTorch on its CUDA allocator.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.steps.steps import counted
from nbprof.core.intervals import Intervals

ALLOCATE = "allocate"
COLUMNS = {"host": "object", "group": "int64", "name": "object", "calls": "int64", "ms": "float64"}
_MS = 1e9


def calls(activity: Activity, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per counted step with such calls.

    Parameters
    ----------
    activity : Activity
    steps : DataFrame
        As `run.steps`.

    Returns
    -------
    DataFrame
        `host group name calls ms`: the step, the call with the most time in it, how many there are,
        and the ms in which at least one ran.
    """
    calls, used = activity.calls.frame(), counted(steps)
    texts = [str(text) for text in activity.texts.values]
    if ALLOCATE not in texts or not len(used) or not len(calls):
        return none()
    calls = calls[(calls["kind"] == texts.index(ALLOCATE)) & (calls["end"] > calls["start"])]
    calls = calls.assign(
        ps=calls["end"] - calls["start"],
        name=np.array(texts, object)[calls["name"].to_numpy(np.int64)],
    )
    parts = []
    for host, of_host in calls.groupby("host", sort=True):
        # Calls are split at the borders of steps, and touching ones are not merged: each interval
        # is in one step.
        of_host = of_host.sort_values("start", kind="stable")
        start = of_host["start"].to_numpy(np.int64)
        running = Intervals.union(start, of_host["end"].to_numpy(np.int64), merge_touching=False)
        group = of_host["group"].to_numpy(np.int64)[np.searchsorted(start, running.start)]
        parts.append(pd.DataFrame({"host": host, "group": group, "ms": running.length / _MS}))
    if not parts:
        return none()
    table = pd.concat(parts).groupby(["host", "group"], sort=True)["ms"].sum().reset_index()
    of_step = calls.groupby(["host", "group"])["event"].nunique().rename("calls").reset_index()
    longest = (
        calls.groupby(["host", "group", "name"])["ps"]
        .sum()
        .reset_index()
        .sort_values("ps", ascending=False, kind="stable")
    )
    longest = longest.drop_duplicates(["host", "group"])[["host", "group", "name"]]
    table = table.merge(of_step, on=["host", "group"]).merge(longest, on=["host", "group"])
    table["host"] = np.array(activity.hosts, object)[table["host"].to_numpy(np.int64)]
    table = table.merge(used[["host", "group"]].drop_duplicates(), on=["host", "group"])
    return table[list(COLUMNS)].astype(COLUMNS)


def none() -> pd.DataFrame:
    """The table of hosts without such calls."""
    return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
