"""The timeline: tracks of slices, thinned to what a saved notebook can carry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.views.codec import Delta, smallest
from nbprof.views.tables import floats
from nbprof.views.wording import one_line

if TYPE_CHECKING:
    from nbprof.run import Run

MOST_EVENTS = 20_000
MOST_NAME = 600
_OPEN_THREADS = 8
_LEAST_BUSY = 0.002
_PS = 1000
_KINDS = {"steps": "steps", "device": "device", "host": "host", "counter": "counter"}

Ints = npt.NDArray[np.int64]


def payload(run: Run, most: int = MOST_EVENTS) -> dict[str, Any]:
    """The `Trace` part: all lanes, all step markers, and of the other events the longest of each lane, at most `most` in all."""
    trace = run.trace
    events = trace.events
    if not len(events.start):
        return nothing()
    lanes = trace.lanes.reset_index(drop=True)
    kept = keep(np.asarray(events.lane), np.asarray(events.duration), _always(lanes), most)
    # Times count from the start of the profile, as in every frame; an event before it moves the origin.
    first = min(int(events.start.min()), 0)
    # The end of every event is rounded like its start: what was nested stays nested.
    tick = _tick_ns(int((events.start + events.duration).max()) - first)
    start = (events.start[kept] - first) // (tick * _PS)
    ends = (events.start[kept] + events.duration[kept] - first) // (tick * _PS)
    own = np.minimum(np.maximum(events.self_time[kept], 0) // (tick * _PS), ends - start)
    used, names = np.unique(events.name[kept], return_inverse=True)
    columns = _Columns(np.asarray(events.lane)[kept], start, ends - start, own, np.asarray(events.depth)[kept], smallest(names))
    totals = np.bincount(events.lane, minlength=len(lanes))
    busy = np.zeros(len(lanes))
    np.add.at(busy, events.lane, np.where(events.depth == 0, events.duration, 0))
    order = [i for i in _order(lanes) if totals[i]]
    folded = _folded(lanes, busy, order, float(ends.max() * tick * _PS))
    shown = getattr(trace, "display", trace.names)
    category = np.asarray(run.activity.name_category)
    texts = [one_line(str(shown[code]))[:MOST_NAME] for code in used]
    colours = category[used].astype(np.uint8) if len(category) else np.zeros(len(used), np.uint8)
    marks = [] if len(_always(lanes)) else _steps(run, tick, len(texts))
    return {
        "empty": None,
        "tick_ns": tick,
        "end": max(int(ends.max()), *(int(lane["start"].values[-1] + lane["duration"][-1]) for lane, _ in marks), 0),
        "names": [*texts, *(name for _, names in marks for name in names)],
        "category": np.concatenate([colours, *(np.zeros(len(names), np.uint8) for _, names in marks)]),
        "lanes": [lane for lane, _ in marks]
        + [columns.lane(lanes.iloc[i], i, int(totals[i]), i in folded, len(run.hosts) > 1) for i in order],
        "shown": len(kept),
        "total": len(events.start),
    }


def _steps(run: Run, tick: int, code: int) -> list[tuple[dict[str, Any], list[str]]]:
    """Lanes made of the steps of each host, for a profile without a device to show them on; with the names they add from `code` on."""
    lanes: list[tuple[dict[str, Any], list[str]]] = []
    for host, steps in run.steps.groupby("host", sort=False) if len(run.steps) else ():
        start = np.round(floats(steps["start_ms"]) * 1e6 / tick).astype(np.int64)
        duration = np.round(floats(steps["step_time_ms"]) * 1e6 / tick).astype(np.uint32)
        names = [one_line(str(name)) for name in steps["name"]]
        lane = {
            "process": f"{host} · Host" if len(run.hosts) > 1 else "Host",
            "name": "Steps",
            "note": "",
            "kind": "steps",
            "events": len(steps),
            "depths": 1,
            "start": Delta(start),
            "duration": duration,
            "self": duration,
            "name_code": smallest(code + np.arange(len(steps))),
            "depth": np.zeros(len(steps), np.uint8),
            "folded": False,
        }
        lanes.append((lane, names))
        code += len(names)
    return lanes


def keep(lane: npt.NDArray[np.int32], duration: Ints, always: set[int], most: int) -> Ints:
    """Indices of the events to keep, ascending: all of the lanes in `always`, of the others the longest of each, fairly shared.

    Each lane may keep the same number; what a short lane does not need goes to the long ones. The longest of a lane include the
    parents of all that stay, so that no slice hangs in the air.
    """
    if len(lane) <= most:
        return np.arange(len(lane))
    counts = np.bincount(lane)
    free = np.isin(np.arange(len(counts)), list(always), invert=True)
    quota = _share(np.where(free, counts, 0), most - int(counts[~free].sum()))
    # Within a lane: longest first; of equals the first, which is the parent.
    ranked = np.lexsort((np.arange(len(lane)), -duration, lane))
    place = np.arange(len(lane)) - (np.cumsum(counts) - counts)[lane[ranked]]
    forced = np.isin(lane[ranked], list(always))
    return np.sort(ranked[forced | (place < quota[lane[ranked]])])


def _share(counts: npt.NDArray[Any], budget: int) -> Ints:
    """How many each lane keeps so that the sum is at most the budget and every lane keeps at least one."""
    if counts.sum() <= budget:
        return counts.astype(np.int64)
    low, high = 1, max(int(counts.max()), 1)
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(counts, middle).sum() <= budget:
            low = middle
        else:
            high = middle - 1
    return np.minimum(counts.astype(np.int64), low)


class _Columns:
    """The kept events, and how one lane is cut out of them."""

    def __init__(self, lane: Any, start: Ints, duration: Ints, own: Ints, depth: Any, names: Any) -> None:
        self._start, self._duration, self._own, self._depth, self._names = start, duration, own, depth, names
        self._lane = lane

    def lane(self, row: Any, code: int, events: int, folded: bool, many_hosts: bool) -> dict[str, Any]:
        part = slice(*np.searchsorted(self._lane, [code, code + 1]))
        depth = np.minimum(self._depth[part], 255).astype(np.uint8)
        process = section(str(row.get("process", "")), row.get("device"))
        note = row.get("note")
        return {
            "process": f"{row['host']} · {process}" if many_hosts else process,
            "name": one_line(str(row.get("thread", ""))),
            "note": one_line(note) if isinstance(note, str) else "",
            "kind": _KINDS.get(str(row["kind"]), "device" if process.startswith(("GPU", "TPU", "NPU")) else "host"),
            "events": events,
            "depths": int(depth.max()) + 1 if len(depth) else 1,
            "start": Delta(self._start[part]),
            "duration": self._duration[part].astype(np.uint32),
            # Beside the durations, which it mostly repeats: gzip finds that within its window.
            "self": self._own[part].astype(np.uint32),
            "name_code": self._names[part],
            "depth": depth,
            "folded": folded,
        }


def section(process: str, device: object = None) -> str:
    """The heading of a group of lanes: "GPU 0" for "/device:GPU:0", "Host" for "/host:CPU"."""
    if match := re.match(r"/device:(?:CUSTOM:)?([A-Za-z]+):(\d+)", process):
        return f"{match[1].upper()} {match[2]}"
    if process.startswith("/host:"):
        return "Host"
    if not process:
        return "Host" if not isinstance(device, str) or not device else one_line(device)
    return one_line(process)


def _always(lanes: pd.DataFrame) -> set[int]:
    return {int(i) for i in np.flatnonzero(lanes["kind"].to_numpy() == "steps")}


def _order(lanes: pd.DataFrame) -> list[int]:
    if "order" not in lanes.columns:
        return list(range(len(lanes)))
    return [int(i) for i in lanes["order"].argsort(kind="stable")]


def _folded(lanes: pd.DataFrame, busy: npt.NDArray[np.float64], order: list[int], span: float) -> set[int]:
    """Host threads that are collapsed at first: those with next to nothing in them, and all beyond the eight busiest."""
    threads = [i for i in order if lanes["kind"].iloc[i] == "host"]
    busiest = sorted(threads, key=lambda i: -busy[i])[:_OPEN_THREADS]
    return {i for i in threads if i not in busiest or busy[i] < _LEAST_BUSY * span}


def _tick_ns(span_ps: int) -> int:
    """Nanoseconds of a tick: as few as let the profile fit into 31 bits of ticks."""
    return span_ps // (_PS * (2**31 - 1)) + 1


def nothing() -> dict[str, Any]:
    """A `Trace` part without events."""
    empty = {"title": "No events in this run", "text": "The profile holds no timed event, so there is nothing to draw."}
    return {
        "empty": empty,
        "tick_ns": 1,
        "end": 0,
        "names": [],
        "category": np.zeros(0, np.uint8),
        "lanes": [],
        "shown": 0,
        "total": 0,
    }
