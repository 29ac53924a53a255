"""The recorded lanes of a profile as drawn: headings, order, and which start collapsed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

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
        names.update(
            zip(
                zip(host.tolist(), steps["group"].tolist(), strict=True),
                steps["name"].astype(str).tolist(),
                strict=True,
            )
        )
    return names


def section(process: str, device: object = None) -> str:
    """The heading of a group of lanes: "GPU 0" for "/device:GPU:0", "Host" for "/host:CPU"."""
    if match := _PLANE.match(process):
        return f"{match[1].upper()} {match[2]}"
    if process.startswith("/host:"):
        return "Host"
    if not process and (not isinstance(device, str) or not device):
        return "Host"
    if not process:
        process = str(device)
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
    cores = devices[
        (devices["kind"] == "TPU") & devices["chip"].notna() & devices["chip_core"].notna()
    ]
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
    process, kinds, host, thread = (
        table[c].tolist() for c in ("process", "kind", "host", "thread")
    )
    devices = table["device"].tolist() if "device" in table else [-1] * count
    notes = table["note"].tolist() if "note" in table else [""] * count
    order = np.arange(count)
    if "order" in table:
        order = table["order"].to_numpy().argsort(kind="stable")
    titled = cache(section)
    lanes = []
    for i in order.tolist():
        if not totals[i]:
            continue
        under = titled(str(process[i]), devices[i] if isinstance(devices[i], str) else None)
        on_device = bool(_DEVICE.match(under))
        kind: Kind = "host"
        if kinds[i] == "steps":
            kind = "steps"
        elif kinds[i] == "device" or on_device:
            kind = "device"
        # A TPU records its modules and ops itself; on a GPU these are derived from the kernels.
        is_derived = kinds[i] in ("derived", "steps") and not under.startswith("TPU")
        # The span of the recording is not work of the host.
        is_derived |= under == "Profiler" and thread[i] in _RECORDER
        lanes.append(
            Lane(
                i,
                heading(str(host[i]), under, hosts),
                str(thread[i]),
                notes[i] if isinstance(notes[i], str) else "",
                kind,
                str(host[i]),
                str(devices[i]),
                int(totals[i]),
                derived=is_derived,
            )
        )
    aside = table["aside"].tolist() if "aside" in table else [False] * count
    threads = [lane.id for lane in lanes if kinds[lane.id] == "host"]
    # Threads of the notebook's kernel do nothing for the program, but there may be no others.
    working = [i for i in threads if not aside[i]] or threads
    folded = _folded(working, events, bounds, span) | set(threads) - set(working)
    # Not work of the program itself, such as the calls of Python that started it.
    folded |= {lane.id for lane in lanes if lane.kind == "host" and kinds[lane.id] == "derived"}
    return [replace(lane, folded=True) if lane.id in folded else lane for lane in lanes]


def _folded(threads: list[int], events: Events, bounds: Int64s, span: int) -> set[int]:
    """Host threads that start collapsed: nearly empty ones, and all beyond the eight busiest."""
    busy = {i: covered(events, int(bounds[i]), int(bounds[i + 1])) for i in threads}
    busiest = sorted(threads, key=lambda i: -busy[i])[:OPEN_THREADS]
    # The busiest one stays open, also where it is busy for a small part of the time.
    return set(threads) - {i for i in busiest if busy[i] >= LEAST_BUSY * span} - set(busiest[:1])


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
