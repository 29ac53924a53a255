"""The recorded lanes of a profile as drawn: headings, order, and which start collapsed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nbprof.core.intervals import Intervals
from nbprof.core.trace import Events, Int64s

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.timeline.drawable import Drawable

Kind = Literal["steps", "device", "host", "counter"]

OPEN_THREADS = 8
LEAST_BUSY = 0.002
_DEVICE = re.compile(r"(?:GPU|TPU|NPU|XPU|MTIA|CUSTOM)\b")
_PLANE = re.compile(r"/device:(?:CUSTOM:)?([A-Za-z]+):(\d+)")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_PLACE = re.compile(r" \(chip \d+, core \d+\)\Z")
_CHUNK = 1 << 18

# Names of the lanes of PyTorch's recorder that hold no work; its overhead is some.
_RECORDER = ("recording", "marks")


@dataclass(frozen=True)
class Lane:
    """One track of the timeline.

    `id` is the number of the trace's lane, or one behind these for a derived lane or a counter.
    `process` is its heading. A `derived` lane repeats other lanes: the recorder or nbprof made it
    from them. The spans and marks that PyTorch's recorder writes of itself are derived, too.
    """

    id: int
    process: str
    name: str
    note: str
    kind: Kind
    host: str
    device: str
    events: int
    folded: bool = False
    derived: bool = False


def step_names(run: Drawable) -> dict[tuple[int, int], str]:
    """Names of steps by host and group: as in the table of steps, or as recorded."""
    steps = run.steps
    names = {key: str(name) for key, name in run.activity.group_names.items()}
    if len(steps):
        host = steps["host"].map({host: i for i, host in enumerate(run.hosts)})
        keys = zip(host.tolist(), steps["group"].tolist(), strict=True)
        names.update(zip(keys, steps["name"].astype(str).tolist(), strict=True))
    return names


def section(process: str, device: object = None) -> str:
    """The heading of a group of lanes: "GPU 0" for "/device:GPU:0", "Host" for "/host:CPU"."""
    match = _PLANE.match(process)
    if match:
        return f"{match[1].upper()} {match[2]}"
    if not process and isinstance(device, str):
        process = device
    if not process or process.startswith("/host:"):
        return "Host"
    return _CONTROLS.sub(" ", process)


def heading(host: str, process: str, hosts: int) -> str:
    """A section, prefixed with its host if there are several hosts."""
    return f"{host} · {process}" if hosts > 1 else process


def with_places(lanes: list[Lane], devices: pd.DataFrame) -> list[Lane]:
    """The lanes, with the place of TPU cores in their headings: "TPU 2 (chip 1, core 0)".

    Parameters
    ----------
    lanes : list of Lane
    devices : DataFrame
        Of `Activity.devices`.
    """
    has_place = devices[["chip", "chip_core"]].notna().all(axis=1)
    cores = devices[has_place & (devices["kind"] == "TPU")]
    if not len(cores):
        return lanes
    places = {}
    for row in cores[["host", "device", "chip", "chip_core"]].to_dict("records"):
        suffix = f" (chip {int(row['chip'])}, core {int(row['chip_core'])})"
        places[row["host"], f"TPU {row['device']}"] = suffix
    result = []
    for lane in lanes:
        suffix = places.get((lane.host, lane.process.removeprefix(f"{lane.host} · ")), "")
        result.append(replace(lane, process=lane.process + suffix))
    return result


def without_place(process: str) -> str:
    """A heading without what `with_places` adds."""
    return _PLACE.sub("", process)


def recorded(run: Drawable, span: int) -> list[Lane]:
    """The lanes of the trace with events, in the order of drawing.

    `span` is the length of the profile, ps.
    """
    trace = run.trace
    table, events = trace.lanes, trace.events
    count, hosts = len(table), len(run.hosts)
    bounds = np.searchsorted(events.lane, np.arange(count + 1))
    totals = np.diff(bounds)
    # Columns as lists: a look into a frame for each of 5,000 lanes would take a second.
    process, kinds = table["process"].tolist(), table["kind"].tolist()
    host, thread = table["host"].tolist(), table["thread"].tolist()
    devices = _optional(table, "device", -1)
    notes = _optional(table, "note", "")
    order = np.argsort(_optional(table, "order", 0), kind="stable")
    titled = cache(section)
    lanes = []
    for i in order[totals[order] > 0].tolist():
        under = titled(str(process[i]), devices[i])
        kind: Kind = "host"
        if kinds[i] == "steps":
            kind = "steps"
        elif kinds[i] == "device" or _DEVICE.match(under):
            kind = "device"
        # A TPU records its modules and ops itself; on a GPU these are derived from the kernels.
        is_derived = kinds[i] in ("derived", "steps") and not under.startswith("TPU")
        # The span of the recording is not work of the host.
        is_derived |= under == "Profiler" and thread[i] in _RECORDER
        note = notes[i]
        if not isinstance(note, str):
            note = ""
        lane = Lane(
            i,
            heading(str(host[i]), under, hosts),
            str(thread[i]),
            note,
            kind,
            str(host[i]),
            str(devices[i]),
            int(totals[i]),
            derived=is_derived,
        )
        lanes.append(lane)
    aside = _optional(table, "aside", False)
    threads = [lane.id for lane in lanes if kinds[lane.id] == "host"]
    # Threads of the notebook's kernel do nothing for the program, but there may be no others.
    working = [i for i in threads if not aside[i]] or threads
    folded = _folded(working, events, bounds, span) | set(threads) - set(working)
    result = []
    for lane in lanes:
        # Not work of the program itself, such as the calls of Python that started it.
        is_aside = lane.kind == "host" and kinds[lane.id] == "derived"
        result.append(replace(lane, folded=is_aside or lane.id in folded))
    return result


def _optional(table: pd.DataFrame, column: str, missing: object) -> list[Any]:
    """The values of a column that not all traces have."""
    if column in table:
        return table[column].tolist()
    return [missing] * len(table)


def _folded(threads: list[int], events: Events, bounds: Int64s, span: int) -> set[int]:
    """Host threads that start collapsed: nearly empty ones, and all beyond the eight busiest."""
    busy = {i: covered(events, int(bounds[i]), int(bounds[i + 1])) for i in threads}
    busiest = sorted(threads, key=lambda i: -busy[i])[:OPEN_THREADS]
    folded = set(threads)
    for rank, lane in enumerate(busiest):
        # The busiest one stays open, also where it is busy for a small part of the time.
        if rank == 0 or busy[lane] >= LEAST_BUSY * span:
            folded.remove(lane)
    return folded


def covered(events: Events, first: int, stop: int) -> int:
    """Time in which at least one of some events runs, ps; they are in the order of their starts."""
    total, covered_until = 0, np.iinfo(np.int64).min
    for low in range(first, stop, _CHUNK):
        rows = slice(low, min(low + _CHUNK, stop))
        end = events.start[rows] + events.duration[rows]
        # Only the length counts, so it does not matter whether touching events are merged.
        total += Intervals.union(np.maximum(events.start[rows], covered_until), end).total()
        covered_until = max(int(end.max()), covered_until)
    return total
