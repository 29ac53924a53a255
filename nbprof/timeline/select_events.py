"""Events by lane, name and time, as a frame."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.runs import expand
from nbprof.core.trace import BYTES, DOUBLE, TEXT, UINT, Events, Int64s, Trace
from nbprof.timeline.lanes import Lane
from nbprof.timeline.tracks import Tracks

Lanes = int | str | re.Pattern[str] | Sequence["int | str | re.Pattern[str]"]
Names = str | re.Pattern[str]


def pick(
    tracks: Tracks,
    lane: Lanes | None = None,
    name: Names | None = None,
    between: tuple[float, float] | None = None,
    kind: str | None = None,
) -> Int64s:
    """Ids of the selected events, in the order of their lanes; see
    `nbprof.tools.trace.accessor.TraceView.events`.
    """
    chosen = lanes(tracks, lane, kind)
    is_selected = np.zeros(tracks.lane_ids, np.bool_)
    is_selected[[each.id for each in chosen]] = True
    has_name = np.ones(len(tracks.full), np.bool_)
    if name is not None:
        has_name = named(tracks, name)
    parts = []
    first = 0
    for events in (tracks.events, tracks.extra):
        rows = _of_lanes(events, is_selected)
        if name is not None:
            rows = rows[has_name[events.name[rows]]]
        if between is not None:
            low, high = window(between)
            rows = rows[events.start[rows] <= high]
            rows = rows[events.start[rows] + events.duration[rows] >= low]
        parts.append(rows + first)
        first += len(events)
    return np.concatenate(parts)


def window(between: object) -> tuple[float, float]:
    """A range of two times in ms, in any order, as ascending ps.

    Raises
    ------
    NbprofError
        It is not a pair of times.
    """
    try:
        first, last = (float(each) * 1e9 for each in between)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        first = last = float("nan")
    if first != first or last != last:
        raise NbprofError(
            "between= takes two times in ms from the start of the profile, such as (120.0, 140.0),"
            f" not {between!r}"
        )
    return min(first, last), max(first, last)


def lanes(tracks: Tracks, lane: Lanes | None, kind: str | None) -> list[Lane]:
    """The requested lanes; by default, only recorded ones."""
    kinds = {"steps", "device", "host"}
    if kind is not None and kind not in kinds:
        raise NbprofError(
            f"there are no events of kind {kind!r}; kinds of lanes are {', '.join(sorted(kinds))}"
        )
    if kind is not None:
        kinds = {kind}
    drawn = [each for each in tracks.lanes if each.kind in kinds]
    # The ids of derived lanes follow those of recorded ones.
    first_derived = tracks.lane_ids
    if len(tracks.extra):
        first_derived = int(tracks.extra.lane.min())
    names = {each.id: each.name for each in drawn if each.id < first_derived}
    choices: Any = [lane]
    if isinstance(lane, Sequence) and not isinstance(lane, str):
        choices = lane
    ids: set[int] = set()
    for choice in choices:
        if choice is None:
            ids.update(names)
        elif isinstance(choice, (str, re.Pattern)):
            test = matcher(choice)
            ids.update(i for i, name in names.items() if test(name))
        else:
            ids.add(int(choice))
    return [each for each in drawn if each.id in ids]


def matcher(text: Names) -> Callable[[str], bool]:
    """A predicate: the substring, the /regular expression/ or the compiled one is in a text.

    Raises
    ------
    NbprofError
        The regular expression is invalid.
    """
    if isinstance(text, str):
        if len(text) < 3 or not (text.startswith("/") and text.endswith("/")):
            part = text
            return lambda value: part in value
        try:
            text = re.compile(text[1:-1])
        except re.error as error:
            raise NbprofError(f"{text} is not a regular expression: {error}") from None
    search = text.search
    return lambda value: search(value) is not None


def named(tracks: Tracks, name: Names) -> npt.NDArray[np.bool_]:
    """Mask of name codes whose full or short name matches."""
    test = matcher(name)
    hit = np.fromiter((test(str(full)) for full in tracks.full), np.bool_, len(tracks.full))
    if tracks.names is not tracks.full:
        for code in np.flatnonzero(~hit & (tracks.names != tracks.full)).tolist():
            hit[code] = test(str(tracks.names[code]))
    return hit


def _of_lanes(events: Events, selected: npt.NDArray[np.bool_]) -> Int64s:
    """The events of selected lanes (bool[lanes]); lanes ascend."""
    bounds = np.searchsorted(events.lane, np.arange(len(selected) + 1, dtype=events.lane.dtype))
    ids = np.flatnonzero(selected)
    return expand(bounds[ids], bounds[ids + 1] - bounds[ids])[1]


def frame(trace: Trace, tracks: Tracks, ids: Int64s, args: Sequence[str] = ()) -> pd.DataFrame:
    """The columns of `p.trace.events()`, then args; times are in µs."""
    count = len(tracks.events)
    host, process, lane = _lane_texts(trace, tracks)
    parts: list[dict[str, npt.NDArray[np.generic]]] = []
    for part_ids, first, events in (
        (ids[ids < count], 0, tracks.events),
        (ids[ids >= count], count, tracks.extra),
    ):
        rows = part_ids - first
        lanes_of_rows = events.lane[rows]
        columns: dict[str, npt.NDArray[np.generic]] = {
            "host": host[lanes_of_rows],
            "process": process[lanes_of_rows],
            "lane": lane[lanes_of_rows],
            "name": tracks.full[events.name[rows]],
            "start_us": events.start[rows] / 1e6,
            "duration_us": events.duration[rows] / 1e6,
            "depth": events.depth[rows],
            "self_us": events.self_time[rows] / 1e6,
            "event": part_ids,
        }
        parts.append(columns)
    recorded, derived = parts
    both = {key: np.concatenate([recorded[key], derived[key]]) for key in recorded}
    result = pd.DataFrame(both, copy=False)
    for arg in args:
        result[arg] = pd.Series(arg_column(trace, arg, result["event"].to_numpy()), dtype=object)
    return result


def _lane_texts(trace: Trace, tracks: Tracks) -> tuple[npt.NDArray[np.object_], ...]:
    """Host, process and name by lane id, of recorded lanes as they were recorded."""
    columns = ("host", "process", "thread")
    texts = tuple(np.full(max(tracks.lane_ids, len(trace.lanes)), "", object) for _ in columns)
    for column, text in zip(columns, texts, strict=True):
        text[: len(trace.lanes)] = trace.lanes[column].to_numpy(object)
    for lane in tracks.lanes:
        if lane.id >= len(trace.lanes):
            for text, value in zip(texts, (lane.host, lane.process, lane.name), strict=True):
                text[lane.id] = value
    return texts


def arg_column(trace: Trace, name: str, events: Int64s) -> npt.NDArray[np.object_]:
    """The values of an arg, None for events without it.

    Raises
    ------
    NbprofError
        No event has it.
    """
    column = trace.args.get(name)
    if column is None:
        raise NbprofError(
            f"no event in this profile has an arg {name!r}; there are"
            f" {', '.join(sorted(trace.args)[:20])}"
        )
    result = np.full(len(events), None, object)
    if not len(column) or not len(events):
        return result
    index = np.minimum(np.searchsorted(column.event, events), len(column) - 1)
    rows = np.flatnonzero(column.event[index] == events)
    kinds, values = column.kinds[index[rows]], column.values[index[rows]]
    for kind in np.unique(kinds).tolist():
        kind_rows = np.flatnonzero(kinds == kind)
        result[rows[kind_rows]] = _values(trace, kind, values[kind_rows])
    return result


def _values(trace: Trace, kind: int, values: Int64s) -> npt.NDArray[np.object_]:
    if kind in (TEXT, BYTES):
        codes, inverse = np.unique(values, return_inverse=True)
        stored: Sequence[object] = trace.blobs
        if kind == TEXT:
            stored = trace.strings
        texts = np.full(len(codes), None, object)
        for row, code in enumerate(codes.tolist()):
            if 0 <= code < len(stored):
                texts[row] = stored[code]
        return np.asarray(texts[inverse], object)
    numbers: npt.NDArray[Any] = values
    if kind == DOUBLE:
        numbers = values.view(np.float64)
    elif kind == UINT:
        numbers = values.view(np.uint64)
    result = np.empty(len(values), object)
    result[:] = numbers.tolist()
    return result
