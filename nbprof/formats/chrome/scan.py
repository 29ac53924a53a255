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
    found = native.scan(data)
    if not len(found.span):
        raise Uneven
    return Scanned(
        _part(data, found, base), np.flatnonzero(found.bad), found.span, found.end, found.closed
    )


def _part(data: bytes, found: Columns, base: int) -> Part:
    """The columns of all events; those marked bad are not to be used."""
    texts = [
        text(data[start:end]) if quoted else data[start:end].decode("utf-8", "replace")
        for start, end, quoted in found.text.tolist()
    ]
    start, length = (Times(found.ns[i], found.ps[i], found.state[i]) for i in range(2))
    for first, end, event, row in found.hard.tolist():
        raw = data[first:end]
        if row < 0:
            found.rounded[event] += _put_time(start if row == -1 else length, event, raw)
        else:
            _put_value(found, row, raw, texts)
    top, args = _groups(data, found)
    return Part(
        found.span[:, 0] + base,
        found.phase,
        dict(zip(TEXT_FIELDS, found.fields, strict=True)),
        start,
        length,
        top,
        args,
        texts,
        int(found.rounded[~found.bad].sum()),
    )


def _put_time(times: Times, event: int, raw: bytes) -> bool:
    """Puts a time that is no plain decimal; tells whether it was rounded."""
    exact = picoseconds(raw)
    if exact is None:
        times.put(event, None)
        return False
    times.put(event, exact[0])
    return exact[1]


def _put_value(found: Columns, row: int, raw: bytes, texts: list[str]) -> None:
    """Puts a value that is no plain number."""
    decoded = scalar(raw)
    if decoded is None:
        found.kind[row] = _NO_VALUE
    elif isinstance(decoded[1], str):
        found.kind[row], found.value[row] = TEXT, len(texts)
        texts.append(decoded[1])
    else:
        found.kind[row], found.value[row] = decoded


def _groups(data: bytes, found: Columns) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Rows by key: of fields that have no column of their own, and of args."""
    groups: tuple[dict[str, Rows], dict[str, Rows]] = ({}, {})
    left_out = found.bad[found.event] | (found.kind == _NO_VALUE)
    all_good = not left_out.any()
    edges = found.edges.tolist()
    for number, (start, end) in enumerate(found.key.tolist()):
        name = text(data[start:end])
        for is_arg, group in enumerate(groups):
            kind = 2 * number + is_arg
            # A view would keep the rows of all keys in memory for the sake of one.
            rows: slice | npt.NDArray[np.intp] = slice(edges[kind], edges[kind + 1])
            if not all_good:
                rows = np.flatnonzero(~left_out[rows]) + edges[kind]
            event = found.event[rows].copy()
            if len(event):
                value: npt.NDArray[np.signedinteger[Any]] = found.value[rows].copy()
                if not found.wide[kind]:
                    value = value.astype(np.int32)
                group[name] = Rows(event, found.kind[rows].copy(), value)
    return groups
