"""Kernel launches: how long the calls take on the host, how long work waits, which work is shorter
than its launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import text_column
from nbprof.analysis.device_time.device_time import CLASS_NAMES, Work, rank_column
from nbprof.core.factorize import all_differ, unique_rows
from nbprof.core.trace import Int64s, Trace
from nbprof.schema import frames

CALL_PS, DELAY_PS = 50_000_000, 100_000_000
"""Calls over 50 µs and delays over 100 µs are counted separately."""
LAUNCHES = frames.names("device_time.launches")


@dataclass
class _Calls:
    """Calls that started work of a device, in time order of each device; texts as codes, times in
    ps.
    """

    host: Int64s
    device: Int64s
    cls: Int64s
    name: Int64s
    called: Int64s
    """Code of the name of the call."""
    start: Int64s
    length: Int64s
    kernels: Int64s
    work: npt.NDArray[np.float64]
    delay: Int64s

    @property
    def call_us(self) -> npt.NDArray[np.float64]:
        return self.length / 1e6

    @property
    def delay_us(self) -> npt.NDArray[np.float64]:
        return self.delay / 1e6


def _calls(done: Work, trace: Trace) -> _Calls:
    launched = np.flatnonzero(done.launch >= 0)
    # Sorted by device and start, so that the first row of a call is its first work.
    first = call = np.arange(len(launched))
    if not all_differ(done.launch[launched]):
        first, call = unique_rows(
            done.launch[launched],
            done.host[launched].astype(np.int64),
            done.device[launched].astype(np.int64),
        )
    row = launched[first]
    work = np.asarray(np.bincount(call, (done.end - done.start)[launched], len(first)), np.float64)
    kernels = np.bincount(call, minlength=len(first))
    start, host, device = (
        trace.events.start[done.launch[row]],
        done.host[row].astype(np.int64),
        done.device[row].astype(np.int64),
    )
    order = np.lexsort((start, device, host))
    row = row[order]
    events, start = done.launch[row], start[order]
    length = trace.events.duration[events]
    return _Calls(
        host=host[order],
        device=device[order],
        cls=done.cls[row],
        name=done.name[row],
        called=trace.events.name[events].astype(np.int64),
        start=start,
        length=length,
        kernels=kernels[order],
        work=work[order],
        delay=np.maximum(done.start[row] - start - length, 0),
    )


_CLASS = np.array(["", *(CLASS_NAMES.get(i, "") for i in range(1, 5))], object)


def each(done: Work, trace: Trace) -> pd.DataFrame:
    """One row per call that started work of a device, in time order: the columns of
    `p.device_time.each_launch`.

    A call that launches a graph starts many kernels: `kernel` is the first of them, `kernel_us`
    their time together. `delay_us` is from the end of the call to the start of the (first) work, 0
    where that began before the call was over.
    """
    calls = _calls(done, trace)
    return pd.DataFrame(
        {
            "host": text_column(np.array(done.hosts, object), calls.host),
            "rank": rank_column(done.ranks, calls.host),
            "device": calls.device,
            "call": text_column(trace.names, calls.called),
            "class": text_column(_CLASS, calls.cls),
            "kernel": text_column(trace.display, calls.name),
            "kernels": calls.kernels,
            "start_ms": calls.start / 1e9,
            "call_us": calls.call_us,
            "kernel_us": calls.work / 1e6,
            "delay_us": calls.delay_us,
            "short": calls.work < calls.length,
        }
    )


def summary(done: Work, trace: Trace) -> pd.DataFrame:
    """One row per device with all its launches (`kernel` empty), then one per kernel, most launches
    first: `p.device_time.launches`.
    """
    calls = _calls(done, trace)
    if not len(calls.host):
        return pd.DataFrame(columns=LAUNCHES)
    times = pd.DataFrame(
        {"call_us": calls.call_us, "kernel_us": calls.work / 1e6, "delay_us": calls.delay_us}
    )
    counts = {
        "kernels": calls.kernels,
        "short": calls.work < calls.length,
        "slow_calls": times["call_us"].to_numpy() > CALL_PS / 1e6,
        "long_delays": times["delay_us"].to_numpy() > DELAY_PS / 1e6,
    }
    # Several names may be shown as one.
    name_code, texts = pd.factorize(trace.display)
    kernel = name_code[calls.name]
    first, by_device = unique_rows(calls.host, calls.device)
    each_first, by_kernel = unique_rows(calls.host, calls.device, calls.cls, kernel)
    parts = []
    for number, (first_row, group) in enumerate(((first, by_device), (each_first, by_kernel))):
        host = calls.host[first_row]
        parts.append(
            _summed(times, counts, group).assign(
                **{
                    "host": np.array(done.hosts, object)[host],
                    "rank": rank_column(done.ranks, host),
                    "device": calls.device[first_row],
                    "class": _CLASS[calls.cls[first_row]] if number else "",
                    "kernel": texts[kernel[first_row]] if number else "",
                    "_all": number,
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    order = ["host", "device", "_all", "launches", "kernel"]
    return table.sort_values(
        order, ascending=[True, True, True, False, True], kind="stable", ignore_index=True
    )[LAUNCHES]


def _summed(
    times: pd.DataFrame, counts: dict[str, npt.NDArray[Any]], group: Int64s
) -> pd.DataFrame:
    """One row a group, in the order of their numbers, which is that in which they come first."""
    grouped = times.groupby(group, sort=False)
    calls = pd.concat(
        [grouped.mean(), grouped.median().add_prefix("median_"), grouped.max().add_prefix("max_")],
        axis=1,
    )
    # Whole numbers, which doubles hold.
    sums = {key: np.bincount(group, values).astype(np.int64) for key, values in counts.items()}
    return calls.assign(**sums, launches=np.bincount(group))
