"""Idle time breakdown: the host had not launched yet, the next kernel followed at once, or another
cause.

Between two pieces of work of a stream, or of a device on all streams, lies a gap. It is a **host
wait** where the next work was launched after the gap began; else a **kernel wait** where it is
shorter than what one kernel takes to follow another; else **other**: the work was queued, and
waited for an event, another stream or another rank.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import (
    CATEGORY_OF_CLASS,
    HOST_COMPILE,
    HOST_COMPUTE,
    HOST_PREPARE,
    HOST_WAIT_DEVICE,
    HOST_WAIT_INPUT,
    Activity,
)
from nbprof.analysis.device_time.device_time import Work
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.sweep import flatten
from nbprof.core.intervals import Intervals, gaps_between
from nbprof.core.trace import Int64s, Trace
from nbprof.schema import frames

FOLLOWS_PS = 30_000_000
"""A shorter gap is the normal delay between two kernels: 30 µs."""
CATEGORIES = ("host_wait", "kernel_wait", "other")
CAUSES = (
    "outside any recorded op or call",
    "in other host work",
    "preparing launches",
    "in an op",
    "in a call that allocates or frees memory",
    "in a launch",
    "in a copy or fill call",
    "waiting for the device",
    "waiting for input",
)
"""What the host was doing during a host wait; the last that applies counts."""
_LOADING, _OP, _WAITING = (
    CAUSES.index(name) for name in ("waiting for input", "in an op", "waiting for the device")
)
_OF_CALL = {
    kind: CAUSES.index(name)
    for name, kinds in {
        "in a launch": ("launch", "graph"),
        "in a copy or fill call": ("copy", "copy H2D", "fill"),
        "waiting for the device": ("copy D2H", "sync"),
        "in a call that allocates or frees memory": ("allocate",),
        "in other host work": ("other",),
    }.items()
    for kind in kinds
}
# What the breakdown of steps knows beyond ops and calls: TensorFlow's executor is neither, and
# prepares launches.
_OF_WORK = np.zeros(max(CATEGORY_OF_CLASS) + 1, np.int16)
_OF_WORK[[HOST_COMPUTE, HOST_COMPILE]] = CAUSES.index("in other host work")
_OF_WORK[HOST_PREPARE] = CAUSES.index("preparing launches")
_OF_WORK[HOST_WAIT_DEVICE] = _WAITING
_OF_WORK[HOST_WAIT_INPUT] = _LOADING
IDLE = frames.names("device_time.idle")
CAUSE = frames.names("device_time.idle_causes")
_MS = 1e9


def _gaps(done: Work, rows: Int64s, begun: Int64s) -> tuple[Int64s, Int64s, npt.NDArray[np.int64]]:
    """Begin, end and category of the gaps between works in time order; `begun` is when each was
    launched (-1: not known).
    """
    gaps = gaps_between(done.start[rows], done.end[rows])
    launched = begun[rows[gaps.following]]
    category = np.where(gaps.end - gaps.start < FOLLOWS_PS, 1, 2)
    category[(launched >= 0) & (launched > gaps.start)] = 0
    return gaps.start, gaps.end, category


def frame(done: Work, trace: Trace, follows_ps: int = FOLLOWS_PS) -> pd.DataFrame:
    """Idle time of each stream and of each device as a whole (`stream` empty) by category: the
    columns of `p.device_time.idle`.
    """
    threads = trace.lanes["thread"].astype(str).tolist()
    begun = _launched(done, trace)
    rows_ = []
    for host, device, rows in done.devices():
        streams = done.streams(rows)
        every = np.arange(rows.start, rows.stop)
        for stream, of_stream in [("", every), *((threads[lane], rows) for lane, rows in streams)]:
            begin, end, category = _gaps(done, of_stream, begun)
            if follows_ps != FOLLOWS_PS:
                category = np.where(category == 0, 0, np.where(end - begin < follows_ps, 1, 2))
            length = end - begin
            total = int(length.sum())
            # Where no launch is known, nothing tells what the host was waited for.
            for code, name in enumerate(CATEGORIES):
                if code == 0 and not (done.launch[of_stream] >= 0).any():
                    continue
                lengths = length[category == code]
                some = len(lengths) > 0
                rows_.append(
                    (
                        done.hosts[host],
                        done.ranks[host],
                        device,
                        stream,
                        name,
                        len(lengths),
                        lengths.sum() / _MS,
                        100 * lengths.sum() / total if total else np.nan,
                        lengths.mean() / 1e6 if some else np.nan,
                        float(np.median(lengths)) / 1e6 if some else np.nan,
                        lengths.max() / 1e6 if some else np.nan,
                    )
                )
    return pd.DataFrame(rows_, columns=IDLE).astype({"rank": "Int64"})


def _launched(done: Work, trace: Trace) -> Int64s:
    return (
        np.where(done.launch >= 0, trace.events.start[done.launch], -1)
        if len(done)
        else np.zeros(0, np.int64)
    )


def not_launched_ms(done: Work, trace: Trace, steps: pd.DataFrame) -> float:
    """Mean time of `steps` (`host start_ms step_time_ms`) in which no device of their host works
    and the next work is not launched, ms.

    Infinite where no launch is known. Of a piece of work whose launch is not known, among others
    whose is, nobody knows what it waited for.
    """
    if not len(steps) or not (done.launch >= 0).any():
        return float("inf")
    begun, time = _launched(done, trace), 0
    for host, name in enumerate(done.hosts):
        host_steps = steps[steps["host"] == name]
        of_host = Intervals.union(*step_bounds(host_steps))
        if not len(of_host):
            continue
        first, last = of_host.start[0], of_host.end[-1]
        rows = np.flatnonzero(done.host == host)
        rows = rows[np.argsort(done.start[rows], kind="stable")]
        # Before the first work, too, and after the last, when nothing more is launched.
        begin = np.append(first - 1, np.maximum.accumulate(done.end[rows]))
        end, launched = np.append(done.start[rows], last), np.append(begun[rows], last)
        waits = (end > begin) & (launched > begin)
        time += of_host.overlap(Intervals(begin[waits], end[waits]))
    return time / _MS / len(steps)


def causes(done: Work, activity: Activity, trace: Trace) -> pd.DataFrame:
    """What the host did while a device waited for its next launch: the columns of
    `p.device_time.idle_causes`.

    Each moment counts once: waiting for input before waiting for the device, before copies,
    launches, calls for memory, ops, what prepares launches, and the rest.
    """
    begun = _launched(done, trace)
    # Column by column: of a frame all columns of all rows of a host would be copied.
    ops, calls, launched = (
        activity.host_ops.frame(),
        activity.calls.frame(),
        activity.launches.frame(),
    )
    of_op, op_start, op_end = (ops[key].to_numpy(np.int64) for key in ("host", "start", "end"))
    of_call, call_start, call_end, call_kind = (
        calls[key].to_numpy(np.int64) for key in ("host", "start", "end", "kind")
    )
    loading, launcher, launch = (
        ops["dataset"].to_numpy(np.bool_),
        launched["host"].to_numpy(np.int64),
        launched["event"].to_numpy(np.int64),
    )
    work = activity.work.frame()
    threads = np.flatnonzero(work["device"].to_numpy() < 0)
    of_work, work_start, work_end, work_cls = (
        work[key].to_numpy()[threads] for key in ("host", "start", "end", "cls")
    )
    work_cls = _OF_WORK[work_cls]
    kinds = activity.texts.values if len(calls) else np.zeros(0, object)
    of_kind = np.array([_OF_CALL.get(str(kind), 0) for kind in kinds], np.int64)
    out = []
    segments: dict[int, tuple[Int64s, Int64s, npt.NDArray[np.int16]]] = {}
    for host, device, rows in done.devices():
        if host not in segments:
            host_rows, called, is_known = (
                np.flatnonzero(of_op == host),
                np.flatnonzero(of_call == host),
                np.flatnonzero(of_work == host),
            )
            start = np.concatenate([op_start[host_rows], call_start[called], work_start[is_known]])
            end = np.concatenate([op_end[host_rows], call_end[called], work_end[is_known]])
            cls = np.concatenate(
                [
                    np.where(loading[host_rows], _LOADING, _OP),
                    of_kind[call_kind[called]],
                    work_cls[is_known],
                ]
            ).astype(np.int16)
            if not len(calls):
                # A recorder that lists no calls still has those that launched something.
                event = launch[launcher == host]
                start = np.concatenate([start, trace.events.start[event]])
                end = np.concatenate(
                    [end, trace.events.start[event] + trace.events.duration[event]]
                )
                cls = np.concatenate([cls, np.full(len(event), _OF_CALL["launch"], np.int16)])
            has_class = cls > 0
            segments[host] = flatten(start[has_class], end[has_class], cls[has_class])
        begin, end, category = _gaps(done, np.arange(rows.start, rows.stop), begun)
        waits = Intervals(begin[category == 0], end[category == 0])
        total = waits.total()
        if not total:
            continue
        low, high, cls = segments[host]
        by_cause = [Intervals(low[cls == code], high[cls == code]) for code in range(len(CAUSES))]
        spent = np.array([cause.overlap(waits) for cause in by_cause])
        spent[0] = total - spent[1:].sum()
        for code in np.argsort(-spent, kind="stable").tolist():
            if spent[code] > 0:
                out.append(
                    (
                        done.hosts[host],
                        done.ranks[host],
                        device,
                        CAUSES[code],
                        spent[code] / _MS,
                        100 * spent[code] / total,
                    )
                )
    return pd.DataFrame(out, columns=CAUSE).astype(
        {"rank": "Int64", "idle_ms": "f8", "percent": "f8", "cause": object}
    )
