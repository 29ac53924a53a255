"""Turns the columns that the compiled reader makes of a stretch of events into a `Part`.

What that leaves aside is read here, or named to be read one by one with repairs (`loose`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import TEXT, Int64s
from nbprof.formats.chrome.part import TEXT_FIELDS, Part, Rows, Times
from nbprof.formats.chrome.values import picoseconds, scalar, text
from nbprof.native import chrome as native
from nbprof.native.chrome import Columns, Uneven

_NO_VALUE = 0


@dataclass
class Scanned:
    """A part, which of its events are to be read again by themselves, and where its events and its
    list end.

    `events` int64[n, 2] are the first byte of each event and the byte behind it; `end` is the byte
    behind the last one, or behind the bracket that closes the list if `closed`.
    """

    part: Part
    again: Int64s
    events: Int64s
    end: int
    closed: bool


def scan(data: bytes, base: int = 0) -> Scanned:
    """The events of a stretch that begins in the list of events, outside of any event, and ends
    there.

    Parameters
    ----------
    data : bytes
    base : int
        The byte of the file at which it begins.

    Raises
    ------
    Uneven
        It can't be read in one go.
    """
    columns = native.scan(data)
    if not len(columns.span):
        raise Uneven
    part, again = _part(data, columns, base), np.flatnonzero(columns.bad)
    return Scanned(part, again, columns.span, columns.end, columns.closed)


def _part(data: bytes, columns: Columns, base: int) -> Part:
    """The columns of all events; those marked bad are not to be used."""
    texts: list[str] = []
    for first, end, quoted in columns.text.tolist():
        raw = data[first:end]
        texts.append(text(raw) if quoted else raw.decode("utf-8", "replace"))
    start, length = (Times(columns.ns[i], columns.ps[i], columns.state[i]) for i in range(2))
    for first, end, event, row in columns.hard.tolist():
        raw = data[first:end]
        if row < 0:
            columns.rounded[event] += _put_time(start if row == -1 else length, event, raw)
        else:
            _put_value(columns, row, raw, texts)
    top, args = _groups(data, columns)
    return Part(
        columns.span[:, 0] + base,
        columns.phase,
        dict(zip(TEXT_FIELDS, columns.fields, strict=True)),
        start,
        length,
        top,
        args,
        texts,
        int(columns.rounded[~columns.bad].sum()),
    )


def _put_time(times: Times, event: int, raw: bytes) -> bool:
    """Puts a time that is no plain decimal; tells whether it was rounded."""
    exact = picoseconds(raw)
    if exact is None:
        times.put(event, None)
        return False
    times.put(event, exact[0])
    return exact[1]


def _put_value(columns: Columns, row: int, raw: bytes, texts: list[str]) -> None:
    """Puts a value that is no plain number."""
    decoded = scalar(raw)
    if decoded is None:
        columns.kind[row] = _NO_VALUE
    elif isinstance(decoded[1], str):
        columns.kind[row], columns.value[row] = TEXT, len(texts)
        texts.append(decoded[1])
    else:
        columns.kind[row], columns.value[row] = decoded


def _groups(data: bytes, columns: Columns) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Rows by key: of fields that have no column of their own, and of args."""
    groups: tuple[dict[str, Rows], dict[str, Rows]] = ({}, {})
    left_out = columns.bad[columns.event] | (columns.kind == _NO_VALUE)
    all_good = not left_out.any()
    edges = columns.edges.tolist()
    for number, (start, end) in enumerate(columns.key.tolist()):
        name = text(data[start:end])
        for is_arg, group in enumerate(groups):
            kind = 2 * number + is_arg
            # A view would keep the rows of all keys in memory for the sake of one.
            rows: slice | npt.NDArray[np.intp] = slice(edges[kind], edges[kind + 1])
            if not all_good:
                rows = np.flatnonzero(~left_out[rows]) + edges[kind]
            event = columns.event[rows].copy()
            if len(event):
                value: npt.NDArray[np.signedinteger[Any]] = columns.value[rows].copy()
                if not columns.wide[kind]:
                    value = value.astype(np.int32)
                group[name] = Rows(event, columns.kind[rows].copy(), value)
    return groups
