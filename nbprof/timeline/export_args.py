"""Event args as JSON text, for many events at once."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import BYTES, DOUBLE, TEXT, UINT, ArgColumn, Int64s, Trace
from nbprof.timeline.tracks import Tracks

_OF_INSTANTS = ("ph", "s")
MOST_REPEATED = 200
"""Letters of a value that holds for all events of a name, up to which it is written with each of
them.
"""


def text(value: object) -> str:
    """A JSON string; ASCII, so that a lone surrogate stays what it is."""
    return json.dumps(str(value))


def json_text(value: object) -> str:
    """Encode the value of an arg. Bytes become base64; NaN, infinity and other objects become their
    text.
    """
    if isinstance(value, bytes):
        return text(base64.b64encode(value).decode())
    if isinstance(value, float) and not math.isfinite(value):
        return text(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value)
    return text(value)


class Args:
    """Names and args of the events of one table.

    What holds for all events of a name is written with each of them where it is short, else with
    the first.

    Parameters
    ----------
    trace : Trace
    tracks : Tracks
    marks : bool[events]
        Instants: what kind of event they are, and how far they reach, is no arg of theirs.
    of_trace : bool
        True for the events of the trace; events derived from them have no args.
    """

    def __init__(
        self, trace: Trace, tracks: Tracks, marks: npt.NDArray[np.bool_], *, of_trace: bool
    ) -> None:
        self._trace, self._tracks, self._of_trace, self._marks = trace, tracks, of_trace, marks
        self._each: dict[int, str] = {}
        self._first: dict[int, str] = {}
        for code in (
            np.flatnonzero(tracks.names != tracks.full).tolist()
            if tracks.names is not tracks.full
            else ()
        ):
            self._name(
                code,
                "full_name"
                if of_trace and code in trace.name_args.get("long_name", {})
                else "long_name",
                tracks.full[code],
            )
        if of_trace:
            for key, values in trace.name_args.items():
                for code, value in values.items():
                    self._name(code, key, value)

    def _name(self, code: int, key: str, value: object) -> None:
        written = json_text(value)
        into = self._each if len(written) <= MOST_REPEATED else self._first
        # An event may state for itself what its name states, too, and no key may be there twice.
        key = f"{key} of the name" if self._of_trace and key in self._trace.args else key
        into[code] = into.get(code, "") + f",{text(key)}:{written}"

    def of(self, ids: Int64s, name: npt.NDArray[Any]) -> tuple[list[str], list[str]]:
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
                _add(
                    more,
                    ids,
                    key,
                    column,
                    self._trace,
                    self._marks if key in _OF_INSTANTS else None,
                )
        names: list[str] = display[inverse].tolist()
        return names, [f',"args":{{{part[1:]}}}' if part else "" for part in more.tolist()]

    def texts(self, ids: Int64s, key: str) -> list[str]:
        """An arg of each event in JSON, "" where it has no such text."""
        column = self._trace.args.get(key)
        if column is None or not len(ids):
            return [""] * len(ids)
        events, codes = column.of(TEXT)
        index = np.minimum(np.searchsorted(events, ids), max(len(events) - 1, 0))
        return [
            text(self._trace.strings[codes[i]]) if len(events) and events[i] == e else ""
            for i, e in zip(index, ids, strict=True)
        ]


def _add(
    more: npt.NDArray[np.object_],
    ids: Int64s,
    key: str,
    column: ArgColumn,
    trace: Trace,
    but: npt.NDArray[np.bool_] | None,
) -> None:
    """Adds one arg to the texts of some events, whose ids ascend; not to those marked in `but`."""
    low, high = np.searchsorted(column.event, [ids[0], ids[-1] + 1]) if len(ids) else (0, 0)
    events = column.event[low:high]
    if not len(events):
        return
    index = np.minimum(np.searchsorted(ids, events), len(ids) - 1)
    hit = np.flatnonzero((ids[index] == events) & (True if but is None else ~but[events]))
    rows = index[hit]
    kinds = (
        column.kinds[low:high][hit]
        if not isinstance(column.kind, int)
        else np.full(len(hit), column.kind, np.uint8)
    )
    values = column.value[low:high][hit].astype(np.int64, copy=False)
    head = f",{text(key)}:"
    for kind in np.unique(kinds).tolist():
        kind_rows = np.flatnonzero(kinds == kind)
        more[rows[kind_rows]] += _texts(head, kind, values[kind_rows], trace)


def _texts(head: str, kind: int, values: Int64s, trace: Trace) -> npt.NDArray[np.object_]:
    """Each different value is written once."""
    codes, inverse = np.unique(values, return_inverse=True)
    if kind in (TEXT, BYTES):
        texts: Any = trace.strings if kind == TEXT else trace.blobs
        written = [head + json_text(texts[code]) for code in codes.tolist()]
    elif kind == DOUBLE:
        written = [head + json_text(value) for value in codes.view(np.float64).tolist()]
    else:
        written = [
            f"{head}{value}"
            for value in (codes.view(np.uint64) if kind == UINT else codes).tolist()
        ]
    result = np.empty(len(codes), object)
    result[:] = written
    return np.asarray(result[inverse], object)
