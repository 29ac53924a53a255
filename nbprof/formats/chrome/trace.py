"""Puts the files of a run on one clock, and their lanes, events and args in order: the last step
from Chrome events to a `Trace`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.core.trace import TEXT, Events, Flows, Int32s, Plane, Trace
from nbprof.formats.build import (
    LANE_COLUMNS,
    LazyArgs,
    counter_table,
    joined_flows,
    lane_row,
    one_clock,
    sort_events,
    used_names,
)
from nbprof.formats.chrome.build import Builder, File
from nbprof.formats.chrome.part import Rows


def assemble(builder: Builder) -> Trace:
    """The trace of all files that a builder has collected."""
    files, receipt = builder.files, builder.receipt
    epoch, shifts = _clock(builder)
    planes: list[Plane] = []
    lanes: list[dict[str, object]] = []
    maps = [_lanes(builder, file, planes, lanes) for file in files]
    lane = np.concatenate([m[f.drawn.track] for f, m in zip(files, maps, strict=True)]).astype(
        np.int32
    )
    start = np.concatenate([f.drawn.time + s for f, s in zip(files, shifts, strict=True)])
    duration = np.concatenate([f.drawn.duration for f in files])
    used, name = used_names(
        list(builder.texts), np.concatenate([f.part.text["name"][f.drawn.row] for f in files])
    )
    order = sort_events(lane, start, duration)
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    events = Events(lane[order], name[order], start[order], duration[order])
    receipt.events = len(order)
    counts = np.bincount(events.lane, minlength=len(lanes))
    for row, count in zip(lanes, counts.tolist(), strict=True):
        row["events"] = count
    table = pd.DataFrame(lanes, columns=LANE_COLUMNS)
    names = np.array([*used, ""], object)[:-1]
    flows = [_moved(f.flows, m, s) for f, m, s in zip(files, maps, shifts, strict=True)]
    args = _args(builder, position)
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
        late_ps=shifts,
        flows=joined_flows(flows),
        counters=counter_table(
            [
                (int(lanes[lane]), series, time + shift, value)
                for file, lanes, shift in zip(files, maps, shifts, strict=True)
                for lane, series, time, value in file.counters
            ]
        ),
    )


def _clock(builder: Builder) -> tuple[int, list[int]]:
    """The moment 0 in ns, and by how many ps each file's times are moved."""
    files = builder.files
    rows = [bool(len(f.drawn.row) or len(f.flows.id) or f.counters) for f in files]
    epoch, shifts = one_clock(
        [f.first for f, has in zip(files, rows, strict=True) if has], builder.receipt
    )
    after = iter(shifts)
    return epoch, [next(after) * 1000 if has else 0 for has in rows]


def _lanes(
    builder: Builder, file: File, planes: list[Plane], lanes: list[dict[str, object]]
) -> Int32s:
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

    result = np.zeros(len(file.tracks), np.int32)
    plane_of: dict[int, int] = {}
    for i in sorted(range(len(file.tracks)), key=rank):
        track = file.tracks[i]
        pid, tid = (texts[c] if c >= 0 else "" for c in (track.pid, track.tid))
        process = names.process.get(track.pid, "") or pid
        labels = names.labels.get(track.pid, "")
        if track.pid not in plane_of:
            plane_of[track.pid] = len(planes)
            stats: dict[str, object] = {
                "pid": pid,
                "labels": labels,
                "sort_index": names.process_sort.get(track.pid, 0),
            }
            planes.append(Plane(file.host, process, stats))
        if track.thread is None:
            thread = names.thread.get((track.pid, track.tid), "") or tid
        else:
            thread = track.thread
        result[i] = len(lanes)
        sort = names.thread_sort.get((track.pid, track.tid), 0)
        lanes.append(
            lane_row(
                len(lanes),
                file.host,
                process,
                thread,
                pid,
                tid,
                labels,
                sort,
                plane=plane_of[track.pid],
                unnumbered=i,
            )
        )
    return result


def _moved(flows: Flows, lanes: Int32s, shift: int) -> Flows:
    lane = np.where(flows.lane >= 0, lanes[flows.lane] if len(lanes) else -1, -1).astype(np.int32)
    return Flows(flows.phase, flows.id, flows.category, lane, flows.time + shift, flows.enclosing)


def _args(builder: Builder, position: Int32s) -> LazyArgs:
    """Args by name; `position` is where each slice of the files, in their order, is among the
    events.
    """
    rows: dict[str, list[tuple[Rows, Int32s]]] = {}
    offset, count = 0, len(position)
    text_i = builder.texts["i"]
    for file in builder.files:
        slice_positions = position[offset : offset + len(file.drawn.row)]
        offset += len(file.drawn.row)
        # Where the args of each event of the file go; those of events that make no slice go behind
        # the last.
        index = np.full(len(file.part), count, np.int32)
        index[file.drawn.row] = slice_positions
        for end, begin in file.drawn.ends.items():
            index[end] = index[begin]
        for group in (file.part.top, file.part.args):
            for key, arg_rows in group.items():
                if (index[arg_rows.event] < count).any():
                    rows.setdefault(key, []).append((arg_rows, index))
        cat = file.part.text["cat"]
        have = np.flatnonzero(cat >= 0).astype(np.int32)
        rows.setdefault("cat", []).append(
            (Rows(have, np.full(len(have), TEXT, np.uint8), cat[have].astype(np.int64)), index)
        )
        marks = file.drawn.row[file.drawn.instant].astype(np.int32)
        order = np.sort(marks)
        if len(marks):
            rows.setdefault("ph", []).append(
                (
                    Rows(order, np.full(len(order), TEXT, np.uint8), np.full(len(order), text_i)),
                    index,
                )
            )
    return LazyArgs({k: v for k, v in rows.items() if any(len(r) for r, _ in v)}, count)
