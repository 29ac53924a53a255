"""Events by lane, name and time, as a frame."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.errors import NbprofError
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
    is_selected = np.zeros(max((each.id for each in tracks.lanes), default=-1) + 1, np.bool_)
    is_selected[[each.id for each in chosen]] = True
    hit = None if name is None else named(tracks, name)
    parts = []
    first = 0
    for events in (tracks.events, tracks.extra):
        rows = _of_lanes(events, is_selected)
        if hit is not None:
            rows = rows[hit[events.name[rows]]]
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
    drawn = [each for each in tracks.lanes if each.kind != "counter" and kind in (None, each.kind)]
    # The ids of derived lanes follow those of recorded ones.
    first_derived = max((each.id for each in tracks.lanes), default=0) + 1
    if len(tracks.extra):
        first_derived = int(tracks.extra.lane.min())
    recorded = [each for each in drawn if each.id < first_derived]
    several = isinstance(lane, Sequence) and not isinstance(lane, str)
    choices: Any = lane if several else [lane]
    ids: set[int] = set()
    for choice in choices:
        if choice is None:
            ids |= {each.id for each in recorded}
        elif isinstance(choice, (str, re.Pattern)):
            test = matcher(choice)
            ids |= {each.id for each in recorded if test(each.name)}
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
    if not len(events):
        return np.zeros(0, np.int64)
    bounds = np.searchsorted(events.lane, np.arange(int(events.lane[-1]) + 2))
    parts = [
        np.arange(bounds[i], bounds[i + 1])
        for i in range(len(bounds) - 1)
        if i < len(selected) and selected[i] and bounds[i] < bounds[i + 1]
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def frame(trace: Trace, tracks: Tracks, ids: Int64s, args: Sequence[str] = ()) -> pd.DataFrame:
    """The columns of `p.trace.events()`, then args; times are in µs."""
    event_count = len(tracks.events)
    size = max((lane.id for lane in tracks.lanes), default=-1) + 1
    texts = {key: np.full(size, "", object) for key in ("host", "process", "lane")}
    table = trace.lanes
    for key, column in (("host", "host"), ("process", "process"), ("lane", "thread")):
        values = table[column].to_numpy(object)
        texts[key][: min(len(values), size)] = values[:size]
    for each in tracks.lanes:
        if each.id >= len(table):
            texts["host"][each.id] = each.host
            texts["process"][each.id] = each.process
            texts["lane"][each.id] = each.name
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for part, events in (
        (ids[ids < event_count], tracks.events),
        (ids[ids >= event_count] - event_count, tracks.extra),
    ):
        values_of = {
            **{key: text[events.lane[part]] for key, text in texts.items()},
            "name": tracks.full[events.name[part]],
            "start_us": events.start[part] / 1e6,
            "duration_us": events.duration[part] / 1e6,
            "depth": events.depth[part],
            "self_us": events.self_time[part] / 1e6,
        }
        for key, value in values_of.items():
            columns[key] = value if key not in columns else np.concatenate([columns[key], value])
    columns["event"] = np.concatenate([ids[ids < event_count], ids[ids >= event_count]])
    result = pd.DataFrame(columns, copy=False)
    for arg in args:
        result[arg] = pd.Series(arg_column(trace, arg, result["event"].to_numpy()), dtype=object)
    return result


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
        values_table = trace.strings if kind == TEXT else trace.blobs
        texts = np.empty(len(codes), object)
        texts[:] = [values_table[c] if 0 <= c < len(values_table) else None for c in codes.tolist()]
        return np.asarray(texts[inverse], object)
    numbers: npt.NDArray[Any] = values
    if kind == DOUBLE:
        numbers = values.view(np.float64)
    elif kind == UINT:
        numbers = values.view(np.uint64)
    result = np.empty(len(values), object)
    result[:] = numbers.tolist()
    return result
