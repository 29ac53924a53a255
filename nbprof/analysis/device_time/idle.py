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
from nbprof.analysis import sweep
from nbprof.analysis.device_time.device_time import Work
from nbprof.analysis.figures import largest, mean, median, percent
from nbprof.analysis.steps.step_rows import step_bounds
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
"""Activities of the host during a host wait; the last that applies counts."""
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
            # Without a known launch, the cause on the host is unknown.
            for code, name in enumerate(CATEGORIES):
                if code == 0 and not (done.launch[of_stream] >= 0).any():
                    continue
                lengths = length[category == code]
                rows_.append(
                    (
                        done.hosts[host],
                        done.ranks[host],
                        device,
                        stream,
                        name,
                        len(lengths),
                        lengths.sum() / _MS,
                        percent(lengths.sum(), total),
                        mean(lengths) / 1e6,
                        median(lengths) / 1e6,
                        largest(lengths) / 1e6,
                    )
                )
    return _with_ranks(pd.DataFrame(rows_, columns=IDLE))


def _with_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    rows["rank"] = pd.array(rows["rank"].to_numpy(), "Int64")
    return rows


def _launched(done: Work, trace: Trace) -> Int64s:
    if not len(done):
        return np.zeros(0, np.int64)
    return np.where(done.launch >= 0, trace.events.start[done.launch], -1)


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
    """Work of the host while a device waited for its next launch: the columns of
    `p.device_time.idle_causes`.

    Each moment counts once: waiting for input before waiting for the device, before copies,
    launches, calls for memory, ops, preparation of launches, and the rest.
    """
    begun = _launched(done, trace)
    class_of_call = _class_of_call(activity)
    rows: list[tuple[object, ...]] = []
    by_host: dict[int, dict[int, Intervals]] = {}
    for host, device, device_rows in done.devices():
        if host not in by_host:
            by_host[host] = _host_causes(activity, trace, host, class_of_call)
        begin, end, category = _gaps(done, np.arange(device_rows.start, device_rows.stop), begun)
        waits = Intervals(begin[category == 0], end[category == 0])
        total = waits.total()
        if not total:
            continue
        spent = np.zeros(len(CAUSES), np.int64)
        for code, time in sweep.times(by_host[host], waits.overlap).items():
            spent[code] = time
        spent[0] = total - spent.sum()
        for code in np.argsort(-spent, kind="stable").tolist():
            if spent[code] > 0:
                figures = (CAUSES[code], spent[code] / _MS, 100 * spent[code] / total)
                rows.append((done.hosts[host], done.ranks[host], device, *figures))
    table = pd.DataFrame(rows, columns=CAUSE)
    return _with_ranks(table.astype({"idle_ms": "f8", "percent": "f8", "cause": object}))


def _class_of_call(activity: Activity) -> Int64s:
    """By code of `Activity.texts`: the class of a call of that kind, 0 for other texts."""
    kinds = activity.texts.values if len(activity.calls) else np.zeros(0, object)
    return np.array([_OF_CALL.get(str(kind), 0) for kind in kinds], np.int64)


def _host_causes(
    activity: Activity, trace: Trace, host: int, class_of_call: Int64s
) -> dict[int, Intervals]:
    """The `layers` of the causes of a host, indexes into `CAUSES`."""
    ops, calls, work = activity.host_ops, activity.calls, activity.work
    of_host = np.flatnonzero(ops.host == host), np.flatnonzero(calls.host == host)
    on_threads = np.flatnonzero((work.device < 0) & (work.host == host))
    parts = [
        (ops, of_host[0], np.where(ops.dataset[of_host[0]], _LOADING, _OP)),
        (calls, of_host[1], class_of_call[calls.kind[of_host[1]]]),
        (work, on_threads, _OF_WORK[work.cls[on_threads]]),
    ]
    spans_of_parts = [
        (rows.start[index], rows.end[index], cls.astype(np.int8)) for rows, index, cls in parts
    ]
    if not len(activity.calls):
        # A recorder that lists no calls still has those that launched something.
        launches, events = activity.launches, trace.events
        event = launches.event[launches.host == host]
        start = events.start[event]
        cls = np.full(len(event), _OF_CALL["launch"], np.int8)
        spans_of_parts.append((start, start + events.duration[event], cls))

    def spans(code: int) -> tuple[Int64s, Int64s]:
        starts = [start[cls == code] for start, _, cls in spans_of_parts]
        ends = [end[cls == code] for _, end, cls in spans_of_parts]
        return np.concatenate(starts), np.concatenate(ends)

    return sweep.layers(range(1, len(CAUSES)), spans)
