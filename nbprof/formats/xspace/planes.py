"""The outer messages of an XSpace file: planes, lines and facts. Events stay undecoded.

Planes are walked one by one, and their fields, of which names may be many, read all at once. Field
numbers follow xplane.proto of the OpenXLA project.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import numpy as np

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.wire import LENGTH, VARINT, CutError, Int64s
from nbprof.formats.xspace import general as xspace_general
from nbprof.formats.xspace.names import EventNames, StatNames, event_names, facts, stat_names
from nbprof.formats.xspace.split import Other, event_starts, starts_of_whole
from nbprof.formats.xspace.texts import Strings

_PLANE_DEPTH, _FACT_DEPTH = 1, 2
_NO_SPANS = np.zeros((0, 2), np.int64)


@dataclass
class Line:
    """One line of a plane; `starts` are the bytes of the tags of its events."""

    starts: Int64s
    line_id: int = 0
    name: str = ""
    display_id: int = 0
    display: str = ""
    timestamp_ns: int = 0
    duration_ps: int = 0
    lane: int = -1
    """Filled by the reader."""


@dataclass
class PlaneMessage:
    """One plane, and what it states once: names by id, facts."""

    ident: int
    name: str
    lines: list[Line]
    stats: StatNames
    events: EventNames
    facts: list[tuple[str, object]] = field(default_factory=list)
    unnamed: dict[int, int] = field(default_factory=dict)
    """Name codes of ids of events that the plane has no name for; filled by the reader."""
    known: dict[int, int] = field(default_factory=dict)
    """Name codes of ids that other parts of the plane have names for; filled by the reader."""


@dataclass
class Space:
    """One file. `truncated_at` is the byte of the field that is incomplete, or -1; it is one of the
    only plane's where that `is_partial`.
    """

    planes: list[PlaneMessage]
    errors: list[str]
    warnings: list[str]
    hostnames: list[str]
    truncated_at: int
    is_partial: bool


@dataclass
class _Top:
    """The fields of a file: where the contents of each are by number.

    `stopped` is the byte of the last field that was not among the plainest; where reading failed,
    of the one that it failed in.
    """

    contents: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    stopped: int = 0

    def texts(self, data: memoryview, number: int, strings: Strings) -> list[str]:
        """All texts of a field."""
        return [strings.decode(data[a:b]) for a, b in self.contents.get(number, [])]


@dataclass
class _Fields:
    """The fields of a plane: where the contents of each are by number, int64[fields, 2], and the
    last number of each.
    """

    contents: dict[int, Int64s] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)

    def spans(self, number: int) -> Int64s:
        """Where the contents of a field are."""
        return self.contents.get(number, _NO_SPANS)


def read_space(buf: wire.Bytes, size: int, strings: Strings, *, in_part: bool = True) -> Space:
    """Everything in a file but the content of its events.

    Parameters
    ----------
    buf : uint8[size + PADDING]
    strings : Strings
        Counts texts that are no UTF-8.
    in_part : bool
        Whether part of a plane is read where the file ends in its first one.

    Raises
    ------
    ReadError
        A field does not fit its message; a `CutError` when the file ends before its first plane
        does, or its first event.
    """
    data = buf.data
    top = _Top()
    stopped, partial = -1, None
    try:
        _walk(data, size, top)
    except CutError as error:
        stopped = top.stopped
        # Whole planes are worth keeping; without one, what is whole of the first.
        if 1 not in top.contents:
            if not in_part:
                raise
            partial = _cut_plane(buf, size, stopped, error)
            top.contents[1], stopped = [partial.span], partial.stop
    inner = _plane_fields(buf, top.contents.get(1, []))
    if partial is not None:
        inner[0].contents[3] = np.concatenate([inner[0].spans(3), partial.line])
    starts, other_fields = event_starts(
        buf, [(a, b) for plane in inner for a, b in plane.spans(3).tolist()]
    )
    if partial is not None and not sum(map(len, starts)):
        raise partial.error
    lines = (_line(data, *line, strings) for line in zip(starts, other_fields, strict=True))
    stats = stat_names(buf, [plane.spans(5) for plane in inner], strings)
    events = event_names(buf, [plane.spans(4) for plane in inner], stats, strings)
    planes = [
        PlaneMessage(
            plane.numbers.get(1, 0),
            "".join(_texts(data, plane.spans(2), strings)[-1:]),
            [next(lines) for _ in plane.spans(3)],
            stat_table,
            event_table,
        )
        for plane, stat_table, event_table in zip(inner, stats, events, strict=True)
    ]
    _facts(buf, inner, planes, strings)
    return Space(
        planes,
        top.texts(data, 2, strings),
        top.texts(data, 3, strings),
        top.texts(data, 4, strings),
        stopped,
        partial is not None,
    )


@dataclass
class _CutPlane:
    """The complete fields of a plane that the file ends in, those of the line behind them, and the
    byte of the field that is incomplete.
    """

    span: tuple[int, int]
    line: Int64s
    stop: int
    error: CutError


def _cut_plane(buf: wire.Bytes, size: int, pos: int, error: CutError) -> _CutPlane:
    """The plane whose tag is at a byte.

    Raises
    ------
    CutError
        It is none, or is damaged as well.
    """
    data = buf.data
    try:
        start = stop = _content(data, pos, size, 1)
        with contextlib.suppress(CutError):
            while stop < size:
                stop = wire.read_field(data, stop, size, _PLANE_DEPTH)[3]
        partial = _CutPlane((start, stop), _NO_SPANS, stop, error)
        with contextlib.suppress(CutError):
            line = _content(data, stop, size, 3)
            partial.stop = starts_of_whole(buf, line, size)[1]
            partial.line = np.array([[line, partial.stop]])
    except ReadError:
        raise error from None
    return partial


def _content(data: memoryview, pos: int, size: int, wanted: int) -> int:
    """The begin of the content of a message whose tag is at a byte; a `CutError` where there is
    another field.
    """
    number, kind, after = wire.read_tag(data, pos, size)
    if (number, kind) != (wanted, LENGTH):
        raise CutError("the data ends inside another field", offset=pos)
    return wire.read_varint(data, after, size)[1]


def _walk(data: memoryview, end: int, result: _Top) -> None:
    """The fields of a file: what comes before the byte where it ends too early is kept."""
    pos = 0
    while pos < end:
        result.stopped = pos
        number, kind, value, pos = wire.read_field(data, pos, end)
        if kind == LENGTH:
            result.contents.setdefault(number, []).append((value, pos))


def _plane_fields(buf: wire.Bytes, spans: list[tuple[int, int]]) -> list[_Fields]:
    planes = [_Fields() for _ in spans]
    start, end = np.array(spans, np.int64).reshape(-1, 2).T
    for column in wire.columns(buf, start, end, _PLANE_DEPTH):
        order = np.argsort(column.message, kind="stable")
        content = np.stack([column.value[order], column.end[order]], axis=1)
        edges = np.searchsorted(column.message[order], np.arange(len(planes) + 1)).tolist()
        for index, plane in enumerate(planes):
            rows = content[edges[index] : edges[index + 1]]
            if len(rows) and column.kind == LENGTH:
                plane.contents[column.number] = rows
            elif len(rows) and column.kind == VARINT:
                plane.numbers[column.number] = int(rows[-1, 0])
    return planes


def _texts(data: memoryview, spans: Int64s, strings: Strings) -> list[str]:
    return [strings.decode(data[a:b]) for a, b in spans.tolist()]


def _line(data: memoryview, starts: Int64s, other_fields: list[Other], strings: Strings) -> Line:
    line = Line(starts)
    for number, kind, value, stop in other_fields:
        if kind == LENGTH:
            if number == 2:
                line.name = strings.decode(data[value:stop])
            elif number == 11:
                line.display = strings.decode(data[value:stop])
        elif kind == VARINT:
            if number == 1:
                line.line_id = wire.signed(value)
            elif number == 3:
                line.timestamp_ns = wire.signed(value)
            elif number == 9:
                line.duration_ps = wire.signed(value)
            elif number == 10:
                line.display_id = wire.signed(value)
    return line


def _facts(
    buf: wire.Bytes, inner: list[_Fields], planes: list[PlaneMessage], strings: Strings
) -> None:
    spans = [plane.spans(6) for plane in inner]
    owner = np.repeat(np.arange(len(inner)), [len(each) for each in spans])
    span = np.concatenate([_NO_SPANS, *spans])
    rows = xspace_general.stats(buf, owner, span[:, 0], span[:, 1], _FACT_DEPTH)
    for index, fact in zip(
        owner.tolist(),
        facts(buf, rows, [planes[i].stats for i in owner.tolist()], strings),
        strict=True,
    ):
        planes[index].facts.append(fact)
