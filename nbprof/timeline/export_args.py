"""Event args as JSON text, for many events at once."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.factorize import lookup
from nbprof.core.trace import BYTES, DOUBLE, TEXT, UINT, ArgColumn, Int64s, Trace
from nbprof.timeline.tracks import Tracks

_OF_INSTANTS = ("ph", "s")
MOST_REPEATED = 200
"""Characters up to which an arg of a name is written with each of its events."""


def text(value: object) -> str:
    """A JSON string; ASCII, so that a lone surrogate stays what it is."""
    return json.dumps(str(value))


def json_text(value: object) -> str:
    """The value of an arg in JSON; bytes as base64, NaN, infinity and other objects as text."""
    if isinstance(value, bytes):
        return text(base64.b64encode(value).decode())
    if isinstance(value, float) and not math.isfinite(value):
        return text(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value)
    return text(value)


class Args:
    """Names and args of the events of one table, as JSON.

    An arg of a name is written with each of its events where it is short, else with the first.

    Parameters
    ----------
    trace : Trace
    tracks : Tracks
    marks : bool[events]
        Instants, whose `ph` and `s` are not written as args.
    of_trace : bool
        True for the events of the trace; events derived from them have no args.
    """

    def __init__(
        self, trace: Trace, tracks: Tracks, marks: npt.NDArray[np.bool_], *, of_trace: bool
    ) -> None:
        self._trace, self._tracks, self._of_trace, self._marks = trace, tracks, of_trace, marks
        self._each: dict[int, str] = {}
        self._first: dict[int, str] = {}
        name_args: Mapping[str, Mapping[int, object]] = {}
        if of_trace:
            name_args = trace.name_args
        has_long_name = name_args.get("long_name", {})
        if tracks.names is not tracks.full:
            for code in np.flatnonzero(tracks.names != tracks.full).tolist():
                key = "long_name"
                if code in has_long_name:
                    key = "full_name"
                self._name(code, key, tracks.full[code])
        for key, values in name_args.items():
            for code, value in values.items():
                self._name(code, key, value)

    def _name(self, code: int, key: str, value: object) -> None:
        written = json_text(value)
        into = self._each
        if len(written) > MOST_REPEATED:
            into = self._first
        # An event may have the arg of its name itself, and a key must not occur twice.
        if self._of_trace and key in self._trace.args:
            key = f"{key} of the name"
        into[code] = into.get(code, "") + f",{text(key)}:{written}"

    def texts_of(self, ids: Int64s, name: npt.NDArray[Any]) -> tuple[list[str], list[str]]:
        """Names in JSON, and what comes behind them: `,"args":{...}`, or nothing."""
        codes, first, inverse = np.unique(name, return_index=True, return_inverse=True)
        display, each = np.empty(len(codes), object), np.empty(len(codes), object)
        once = []
        for i, code in enumerate(codes.tolist()):
            display[i] = text(self._tracks.names[code])
            each[i] = self._each.get(code, "")
            once.append(self._first.pop(code, ""))
        more = each[inverse]
        for index, part in zip(first.tolist(), once, strict=True):
            more[index] += part
        if self._of_trace:
            for key, column in self._trace.args.items():
                is_of_instants = key in _OF_INSTANTS
                _add(more, ids, key, column, self._trace, self._marks if is_of_instants else None)
        names: list[str] = display[inverse].tolist()
        filled = np.flatnonzero(more)
        more[filled] = [f',"args":{{{part[1:]}}}' for part in more[filled].tolist()]
        behind: list[str] = more.tolist()
        return names, behind

    def column(self, ids: Int64s, key: str) -> list[str]:
        """An arg of each event in JSON, "" where it has no such text."""
        result = [""] * len(ids)
        column = self._trace.args.get(key)
        if column is None:
            return result
        codes = lookup(*column.of(TEXT), ids)
        for row in np.flatnonzero(codes >= 0).tolist():
            result[row] = text(self._trace.strings[codes[row]])
        return result


def _add(
    more: npt.NDArray[np.object_],
    ids: Int64s,
    key: str,
    column: ArgColumn,
    trace: Trace,
    without: npt.NDArray[np.bool_] | None,
) -> None:
    """Adds one arg to the texts of events, whose ids ascend, except those marked in `without`."""
    if not len(ids):
        return
    low, high = np.searchsorted(column.event, [ids[0], ids[-1] + 1])
    events = column.event[low:high]
    if not len(events):
        return
    index = np.minimum(np.searchsorted(ids, events), len(ids) - 1)
    is_hit = ids[index] == events
    if without is not None:
        is_hit &= ~without[events]
    hit = np.flatnonzero(is_hit)
    rows = index[hit]
    # Not `kinds`, which is built for all events of a column of one kind.
    if isinstance(column.kind, int):
        kinds = np.full(len(hit), column.kind, np.uint8)
    else:
        kinds = column.kind[low:high][hit]
    values = column.value[low:high][hit].astype(np.int64, copy=False)
    head = f",{text(key)}:"
    for kind in np.unique(kinds).tolist():
        kind_rows = np.flatnonzero(kinds == kind)
        more[rows[kind_rows]] += _texts(head, kind, values[kind_rows], trace)


def _texts(head: str, kind: int, values: Int64s, trace: Trace) -> npt.NDArray[np.object_]:
    """Each different value is written once."""
    codes, inverse = np.unique(values, return_inverse=True)
    if kind in (TEXT, BYTES):
        stored: Sequence[object] = trace.blobs
        if kind == TEXT:
            stored = trace.strings
        written = [json_text(stored[code]) for code in codes.tolist()]
    elif kind == DOUBLE:
        written = list(map(json_text, codes.view(np.float64).tolist()))
    elif kind == UINT:
        written = list(map(str, codes.view(np.uint64).tolist()))
    else:
        written = list(map(str, codes.tolist()))
    result = np.empty(len(codes), object)
    result[:] = [head + value for value in written]
    return np.asarray(result[inverse], object)
