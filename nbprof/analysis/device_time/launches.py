"""Kernel launches: how long the calls take on the host, how long work waits, which work is shorter than its launch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import text_column
from nbprof.analysis.device_time.device_time import CLASS_NAMES, Work, rank_column
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Trace
from nbprof.schema import frames

CALL_PS, DELAY_PS = 50_000_000, 100_000_000
"""Calls over 50 µs and delays over 100 µs are counted separately."""
EACH = frames.names("device_time.each_launch")
LAUNCHES = frames.names("device_time.launches")


def each(done: Work, trace: Trace) -> pd.DataFrame:
    """One row per call that started work of a device, in time order: the columns of `p.device_time.each_launch`.

    A call that launches a graph starts many kernels: `kernel` is the first of them, `kernel_us` their time together. `delay_us` is from the
    end of the call to the start of the (first) work, 0 where that began before the call was over.
    """
    known = np.flatnonzero(done.launch >= 0)
    # Sorted by device and start, so that the first row of a call is its first work.
    first, call = unique_rows(done.launch[known], done.host[known].astype(np.int64), done.device[known].astype(np.int64))
    row = known[first]
    events, start = done.launch[row], trace.events.start
    length = np.bincount(call, (done.end - done.start)[known], len(first))
    called = trace.events.duration[events]
    delay = np.maximum(done.start[row] - start[events] - called, 0)
    host = done.host[row].astype(np.int64)
    out = pd.DataFrame(
        {
            "host": text_column(np.array(done.hosts, object), host),
            "rank": rank_column(done.ranks, host),
            "device": done.device[row].astype(np.int64),
            "call": text_column(trace.names, trace.events.name[events].astype(np.int64)),
            "class": text_column(np.array(["", *(CLASS_NAMES.get(i, "") for i in range(1, 5))], object), done.cls[row]),
            "kernel": text_column(trace.display, done.name[row]),
            "kernels": np.bincount(call, minlength=len(first)),
            "start_ms": start[events] / 1e9,
            "call_us": called / 1e6,
            "kernel_us": length / 1e6,
            "delay_us": delay / 1e6,
            "short": length < called,
        }
    )
    order = np.lexsort((start[events], done.device[row], host))
    return out.iloc[order].reset_index(drop=True)


_KEYS = ["host", "device", "class", "kernel"]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per device with all its launches (`kernel` empty), then one per kernel, most launches first: `p.device_time.launches`."""
    if not len(rows):
        return pd.DataFrame(columns=LAUNCHES)
    whole = _summed(rows.assign(**{"class": "", "kernel": ""})).assign(_all=0)
    by_kernel = _summed(rows).assign(_all=1)
    out = pd.concat([whole, by_kernel], ignore_index=True)
    order = ["host", "device", "_all", "launches", "kernel"]
    return out.sort_values(order, ascending=[True, True, True, False, True], kind="stable", ignore_index=True)[LAUNCHES]


def _summed(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(
        slow=rows["call_us"] > CALL_PS / 1e6,
        late=rows["delay_us"] > DELAY_PS / 1e6,
    )
    return (
        rows.groupby(_KEYS, sort=False, observed=True)
        .agg(
            rank=("rank", "first"),
            launches=("call_us", "size"),
            kernels=("kernels", "sum"),
            median_call_us=("call_us", "median"),
            max_call_us=("call_us", "max"),
            median_kernel_us=("kernel_us", "median"),
            median_delay_us=("delay_us", "median"),
            max_delay_us=("delay_us", "max"),
            call_us=("call_us", "mean"),
            kernel_us=("kernel_us", "mean"),
            delay_us=("delay_us", "mean"),
            short=("short", "sum"),
            slow_calls=("slow", "sum"),
            long_delays=("late", "sum"),
        )
        .reset_index()
        .astype({"rank": "Int64", "short": "int64", "slow_calls": "int64", "long_delays": "int64"})
    )
