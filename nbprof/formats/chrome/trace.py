"""Puts the files of a run on one clock, and their lanes, events and args in order: the last step from Chrome events to a `Trace`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nbprof.core.trace import COUNTER_COLUMNS, INT, TEXT, ArgColumn, Events, Flows, Int32s, Int64s, Plane, Trace, no_counters
from nbprof.formats.chrome.part import Rows
from nbprof.formats.chrome.values import LONGEST_PS

if TYPE_CHECKING:
    from nbprof.formats.chrome.build import Builder, File

LANE_COLUMNS = ["lane", "host", "process", "thread", "line_id", "plane", "kind", "device", "note", "events", "order"]
LANE_COLUMNS += ["pid", "tid", "labels", "sort"]


def assemble(builder: Builder) -> Trace:
    """The trace of all files that a builder has collected."""
    files, receipt = builder.files, builder.receipt
    epoch, shifts = _clock(builder)
    planes: list[Plane] = []
    lanes: list[dict[str, object]] = []
    maps = [_lanes(builder, file, planes, lanes) for file in files]
    lane = np.concatenate([m[f.cut.track] for f, m in zip(files, maps, strict=True)]).astype(np.int32)
    start = np.concatenate([f.cut.time + s for f, s in zip(files, shifts, strict=True)])
    duration = np.concatenate([f.cut.duration for f in files])
    used, name = _names(builder)
    order = sort_events(lane, start, duration)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    events = Events(lane[order], name[order], start[order], duration[order])
    receipt.events = len(order)
    counts = np.bincount(events.lane, minlength=len(lanes))
    for row, count in zip(lanes, counts.tolist(), strict=True):
        row["events"] = count
    table = pd.DataFrame(lanes, columns=LANE_COLUMNS)
    names = np.array([*used, ""], object)[:-1]
    flows = [_moved(f.flows, m, s) for f, m, s in zip(files, maps, shifts, strict=True)]
    if not any(len(f.id) for f in flows):
        joined = None
    else:
        joined = Flows(*(np.concatenate([getattr(f, k) for f in flows]) for k in ("phase", "id", "category", "lane", "time", "enclosing")))
    args = _args(builder, place)
    return Trace(
        events=events,
        names=names,
        display=names,
        lanes=table,
        planes=planes,
        args=args,
        name_args={},
        strings=list(builder.texts),
        modules=[],
        hosts=[f.host for f in files],
        epoch_ns=epoch,
        receipt=receipt,
        metadata=builder.metadata,
        flows=joined,
        counters=_counters(files, maps, shifts),
    )


def _clock(builder: Builder) -> tuple[int, list[int]]:
    """The moment 0 in ns, and by how many ps each file's times are moved."""
    files = builder.files
    firsts = [f.first for f in files if len(f.cut.row) or len(f.flows.id) or f.counters]
    if not firsts:
        return 0, [0] * len(files)
    epoch = min(firsts)
    if max(firsts) - epoch > LONGEST_PS // 1000:
        builder.receipt.warn("The clocks of this run's files are more than a week apart; each file is drawn from its own start.")
        return epoch, [0] * len(files)
    return epoch, [max(f.first - epoch, 0) * 1000 for f in files]


def _lanes(builder: Builder, file: File, planes: list[Plane], lanes: list[dict[str, object]]) -> Int32s:
    """Adds the lanes and planes of a file; returns lane by track."""
    texts, names = list(builder.texts), file.names
    seen: dict[int, int] = {}
    for track in file.tracks:
        seen.setdefault(track.pid, len(seen))

    def rank(i: int) -> tuple[int, int, int, int]:
        track = file.tracks[i]
        return (
            names.process_sort.get(track.pid, 0),
            seen[track.pid],
            names.thread_sort.get((track.pid, track.tid), 0) if track.thread is None else 1 << 62,
            i,
        )

    out = np.zeros(len(file.tracks), np.int32)
    plane_of: dict[int, int] = {}
    for i in sorted(range(len(file.tracks)), key=rank):
        track = file.tracks[i]
        pid, tid = (texts[c] if c >= 0 else "" for c in (track.pid, track.tid))
        process = names.process.get(track.pid, "") or pid
        labels = names.labels.get(track.pid, "")
        if track.pid not in plane_of:
            plane_of[track.pid] = len(planes)
            stats: dict[str, object] = {"pid": pid, "labels": labels, "sort_index": names.process_sort.get(track.pid, 0)}
            planes.append(Plane(file.host, process, stats))
        thread = names.thread.get((track.pid, track.tid), "") or tid if track.thread is None else track.thread
        out[i] = len(lanes)
        lanes.append(
            {
                "lane": len(lanes),
                "host": file.host,
                "process": process,
                "thread": thread,
                "line_id": _number(tid, i),
                "plane": plane_of[track.pid],
                "kind": "",
                "device": -1,
                "note": "",
                "events": 0,
                "order": len(lanes),
                "pid": pid,
                "tid": tid,
                "labels": labels,
                "sort": names.thread_sort.get((track.pid, track.tid), 0),
            }
        )
    return out


def _number(tid: str, otherwise: int) -> int:
    """A thread's number where it has one that fits int64."""
    if len(tid) <= 18 and tid.removeprefix("-").isdecimal():
        return int(tid)
    return otherwise


def sort_events(lane: Int32s, start: Int64s, duration: Int64s) -> Int64s:
    """The order by (lane, start, -duration); equal ones keep that of the file. Quick where lanes are nearly sorted already."""
    order = np.argsort(lane.astype(np.uint16) if len(lane) and lane.max() < 1 << 16 else lane, kind="stable")
    if not len(order):
        return order
    by_lane = lane[order]
    bounds = np.flatnonzero(np.diff(by_lane)) + 1
    times = start[order]
    falls = np.flatnonzero((np.diff(times) < 0) & (np.diff(by_lane) == 0))
    edges = np.concatenate([[0], bounds, [len(order)]])
    for i in np.unique(np.searchsorted(edges, falls, side="right") - 1).tolist():
        low, high = int(edges[i]), int(edges[i + 1])
        inner = np.argsort(times[low:high], kind="stable")
        order[low:high] = order[low:high][inner]
        times[low:high] = times[low:high][inner]
    # Among equal starts the longer one is the outer one.
    lengths = duration[order]
    tie = (np.diff(times) == 0) & (np.diff(by_lane) == 0)
    wrong = tie & (np.diff(lengths) > 0)
    if wrong.any():
        group = np.concatenate([[0], np.cumsum(~tie)])
        rows = np.flatnonzero(np.isin(group, group[1:][wrong]))
        inner = np.lexsort((-lengths[rows], group[rows]))
        order[rows] = order[rows][inner]
    return order


def _names(builder: Builder) -> tuple[list[str], Int32s]:
    """The names that events have, and the code into them by slice, file after file."""
    texts = list(builder.texts)
    codes = [f.part.text["name"][f.cut.row] for f in builder.files]
    every = np.concatenate(codes)
    present = np.zeros(len(texts) + 1, bool)
    present[every] = True
    table = (np.cumsum(present) - 1).astype(np.int32)
    used = [texts[i] if i < len(texts) else "" for i in np.flatnonzero(present).tolist()]
    return used, table[every]


def _moved(flows: Flows, lanes: Int32s, shift: int) -> Flows:
    lane = np.where(flows.lane >= 0, lanes[flows.lane] if len(lanes) else -1, -1).astype(np.int32)
    return Flows(flows.phase, flows.id, flows.category, lane, flows.time + shift, flows.enclosing)


def _counters(files: list[File], maps: list[Int32s], shifts: list[int]) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"lane": np.int32(lanes[lane]), "series": series, "time": time + shift, "value": value})
        for file, lanes, shift in zip(files, maps, shifts, strict=True)
        for lane, series, time, value in file.counters
    ]
    if not parts:
        return no_counters()
    out = pd.concat(parts, ignore_index=True)
    return out.sort_values(["lane", "series", "time"], kind="stable", ignore_index=True)[list(COUNTER_COLUMNS)]


def _args(builder: Builder, place: Int32s) -> LazyArgs:
    """Args by name; `place` is where each slice of the files, in their order, lies among the events."""
    rows: dict[str, list[tuple[Rows, Int32s]]] = {}
    offset, count = 0, len(place)
    text_i = builder.texts["i"]
    for file in builder.files:
        mine = place[offset : offset + len(file.cut.row)]
        offset += len(file.cut.row)
        # Where the args of each event of the file go; those of events that make no slice go behind the last.
        at = np.full(len(file.part), count, np.int32)
        at[file.cut.row] = mine
        for end, begin in file.cut.ends.items():
            at[end] = at[begin]
        for group in (file.part.top, file.part.args):
            for key, found in group.items():
                if (at[found.event] < count).any():
                    rows.setdefault(key, []).append((found, at))
        cat = file.part.text["cat"]
        have = np.flatnonzero(cat >= 0).astype(np.int32)
        rows.setdefault("cat", []).append((Rows(have, np.full(len(have), TEXT, np.uint8), cat[have].astype(np.int64)), at))
        marks = file.cut.row[file.cut.instant].astype(np.int32)
        order = np.sort(marks)
        if len(marks):
            rows.setdefault("ph", []).append((Rows(order, np.full(len(order), TEXT, np.uint8), np.full(len(order), text_i)), at))
    return LazyArgs({k: v for k, v in rows.items() if any(len(r) for r, _ in v)}, count)


class LazyArgs(Mapping[str, ArgColumn]):
    """Arg columns that are put in the order of the events when they are first asked for."""

    def __init__(self, rows: dict[str, list[tuple[Rows, Int32s]]], events: int) -> None:
        self._rows = rows
        self._events = events
        self._done: dict[str, ArgColumn] = {}
        # A thread that writes to the cache asks for columns too.
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> ArgColumn:
        """The column of one arg."""
        with self._lock:
            column = self._done.get(key)
            if column is None:
                column = self._done[key] = self._column(self._rows[key])
                del self._rows[key][:]
            return column

    def __iter__(self) -> Iterator[str]:
        """Names of the args."""
        return iter(self._rows)

    def __len__(self) -> int:
        """How many args there are."""
        return len(self._rows)

    def _column(self, groups: list[tuple[Rows, Int32s]]) -> ArgColumn:
        event = np.concatenate([place[rows.event] for rows, place in groups])
        kind = np.concatenate([rows.kind for rows, _ in groups])
        value = np.concatenate([rows.value for rows, _ in groups])
        # The last one that names an event wins: an end's args go over those of its begin, args over fields.
        last = np.full(self._events + 1, -1, np.int64)
        last[event] = np.arange(len(event))
        order = last[:-1][last[:-1] >= 0]
        kind, value = kind[order], value[order]
        same = len(kind) > 0 and bool((kind == kind[0]).all())
        if same and kind[0] in (INT, TEXT) and value.min() >= -(1 << 31) and value.max() < 1 << 31:
            value = value.astype(np.int32)
        return ArgColumn(event[order], int(kind[0]) if same else kind, value)
