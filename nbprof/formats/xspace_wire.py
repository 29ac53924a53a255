"""The messages of an XSpace file one by one: planes, lines and metadata in Python, events and their stats in lockstep.

Field numbers follow xplane.proto of the OpenXLA project.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nbprof.errors import ReadError
from nbprof.formats import wire
from nbprof.trace import BYTES, DOUBLE, INT, TEXT, UINT, Int64s

# A line time stamp above this is nanoseconds since 1970 (the year 2001), below it is relative to the start of the profile.
EPOCH_NS = 10**18
MOST_PS = 2**62

_STAT_KIND = {2: DOUBLE, 3: UINT, 4: INT, 5: TEXT, 6: BYTES, 7: TEXT}


@dataclass
class Meta:
    """Name, short name and constant stats of one event name."""

    name: str = ""
    display: str = ""
    stats: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Line:
    """One line of a plane with the spans of its events."""

    line_id: int = 0
    name: str = ""
    display: str = ""
    timestamp_ns: int = 0
    span: tuple[int, int] = (0, 0)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass
class PlaneMessage:
    """One plane with its lines and metadata."""

    host: str = ""
    name: str = ""
    lines: list[Line] = field(default_factory=list)
    event_meta: dict[int, Meta] = field(default_factory=dict)
    stat_meta: dict[int, str] = field(default_factory=dict)
    stats: list[tuple[int, int]] = field(default_factory=list)
    blob: int = 0


@dataclass
class Decoded:
    """One line's events (sorted) and the stats on them, with ids as the file has them."""

    meta: Int64s
    start: Int64s
    duration: Int64s
    stat_event: Int64s
    stat_id: Int64s
    stat_kind: npt.NDArray[np.uint8]
    stat_value: Int64s
    stat_end: Int64s
    is_ref: npt.NDArray[np.bool_]
    aggregated: int
    wild: int = 0


def text(data: bytes, at: int, end: int) -> str:
    """A string field."""
    return data[at:end].decode("utf-8", "replace")


def read_plane(data: bytes, at: int, end: int) -> PlaneMessage:
    """One plane, its events still undecoded."""
    plane = PlaneMessage()
    for number, kind, value, stop in wire.fields(data, at, end):
        if kind != wire.LENGTH:
            continue
        if number == 2:
            plane.name = text(data, value, stop)
        elif number == 3:
            plane.lines.append(_read_line(data, value, stop))
        elif number == 4:
            ident, meta = _read_event_meta(data, value, stop)
            plane.event_meta[ident] = meta
        elif number == 5:
            ident, name = _read_stat_meta(data, value, stop)
            plane.stat_meta[ident] = name
        elif number == 6:
            plane.stats.append((value, stop))
    return plane


def _read_event_meta(data: bytes, at: int, end: int) -> tuple[int, Meta]:
    key, meta = 0, Meta()
    for number, kind, value, stop in wire.fields(data, at, end):
        if number == 1 and kind == wire.VARINT:
            key = wire.signed(value)
        elif number == 2 and kind == wire.LENGTH:
            for n, k, v, e in wire.fields(data, value, stop):
                if k != wire.LENGTH:
                    continue
                if n == 2:
                    meta.name = text(data, v, e)
                elif n == 4:
                    meta.display = text(data, v, e)
                elif n == 5:
                    meta.stats.append((v, e))
    return key, meta


def _read_stat_meta(data: bytes, at: int, end: int) -> tuple[int, str]:
    key, name = 0, ""
    for number, kind, value, stop in wire.fields(data, at, end):
        if number == 1 and kind == wire.VARINT:
            key = wire.signed(value)
        elif number == 2 and kind == wire.LENGTH:
            for n, k, v, e in wire.fields(data, value, stop):
                if n == 2 and k == wire.LENGTH:
                    name = text(data, v, e)
    return key, name


def _read_line(data: bytes, at: int, end: int) -> Line:
    line = Line(span=(at, end))
    starts, ends = line.starts, line.ends
    pos = at
    while pos < end:
        # Nearly every field of a line is an event shorter than 128 bytes: tag 0x22, one length byte.
        if data[pos] == 0x22 and pos + 1 < end and data[pos + 1] < 0x80:
            stop = pos + 2 + data[pos + 1]
            if stop > end:
                raise ReadError("an event runs over the end of its line", offset=pos)
            starts.append(pos + 2)
            ends.append(stop)
            pos = stop
            continue
        number, kind, value, pos = next(wire.fields(data, pos, end))
        if number == 4 and kind == wire.LENGTH:
            starts.append(value)
            ends.append(pos)
        elif number == 1 and kind == wire.VARINT:
            line.line_id = wire.signed(value)
        elif number == 2 and kind == wire.LENGTH:
            line.name = text(data, value, pos)
        elif number == 3 and kind == wire.VARINT:
            line.timestamp_ns = wire.signed(value)
        elif number == 11 and kind == wire.LENGTH:
            line.display = text(data, value, pos)
    return line


def read_events(buf: wire.Bytes, line: Line, epoch: int) -> Decoded:
    """Decodes one line: columns over its events, then columns over the stats of all of them."""
    count = len(line.starts)
    meta = np.zeros(count, np.int64)
    offset = np.zeros(count, np.int64)
    duration = np.zeros(count, np.int64)
    aggregated = np.zeros(count, np.bool_)
    stat_of: list[Int64s] = []
    stat_at: list[Int64s] = []
    stat_stop: list[Int64s] = []
    for column in wire.columns(buf, np.array(line.starts, np.int64), np.array(line.ends, np.int64)):
        if column.kind == wire.VARINT:
            if column.number == 1:
                meta[column.message] = column.value
            elif column.number == 2:
                offset[column.message] = column.value
                aggregated[column.message] = False
            elif column.number == 3:
                duration[column.message] = column.value
            elif column.number == 5:
                aggregated[column.message] = True
        elif column.kind == wire.LENGTH and column.number == 4:
            stat_of.append(column.message)
            stat_at.append(column.value)
            stat_stop.append(column.end)
    base = line.timestamp_ns - epoch if line.timestamp_ns >= EPOCH_NS else line.timestamp_ns
    start = offset + np.int64(base * 1000)
    event = np.concatenate(stat_of) if stat_of else np.zeros(0, np.int64)
    order = np.argsort(event, kind="stable")
    event = event[order]
    at = np.concatenate(stat_at)[order] if stat_at else event
    stop = np.concatenate(stat_stop)[order] if stat_stop else event
    ident = np.zeros(len(event), np.int64)
    value = np.zeros(len(event), np.int64)
    value_end = np.zeros(len(event), np.int64)
    kinds = np.zeros(len(event), np.uint8)
    is_ref = np.zeros(len(event), np.bool_)
    for column in wire.columns(buf, at, stop):
        rows = column.message
        if column.number == 1 and column.kind == wire.VARINT:
            ident[rows] = column.value
        elif column.number == 2 and column.kind == wire.FIXED64:
            value[rows] = wire.fixed64(buf, column.value)
            kinds[rows] = DOUBLE
        elif (column.number in (3, 4, 7) and column.kind == wire.VARINT) or (column.number in (5, 6) and column.kind == wire.LENGTH):
            value[rows] = column.value
            value_end[rows] = column.end
            kinds[rows] = _STAT_KIND[column.number]
            is_ref[rows] = column.number == 7
    # Farther than 2^62 ps (53 days) from its line, or longer: no time that was measured.
    wild = (np.abs(offset) > MOST_PS) | (duration > MOST_PS)
    keep = ~(aggregated | wild)
    if not keep.all():
        renumber = np.cumsum(keep) - 1
        has = keep[event]
        event, ident, kinds, value, value_end, is_ref = (
            renumber[event[has]],
            ident[has],
            kinds[has],
            value[has],
            value_end[has],
            is_ref[has],
        )
        meta, start, duration = meta[keep], start[keep], duration[keep]
    return Decoded(
        meta, start, duration, event, ident, kinds, value, value_end, is_ref, int(aggregated.sum()), int((wild & ~aggregated).sum())
    )


def same_timeline(lines: list[Line]) -> list[list[Line]]:
    """Lines of equal id in one plane are one timeline; the first names it."""
    groups: dict[int, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.line_id, []).append(line)
    return list(groups.values())


def concatenate(parts: list[Decoded]) -> Decoded:
    """Several lines as one."""
    base = np.cumsum([0] + [len(p.start) for p in parts[:-1]])
    return Decoded(
        np.concatenate([p.meta for p in parts]),
        np.concatenate([p.start for p in parts]),
        np.concatenate([p.duration for p in parts]),
        np.concatenate([p.stat_event + b for p, b in zip(parts, base, strict=True)]),
        np.concatenate([p.stat_id for p in parts]),
        np.concatenate([p.stat_kind for p in parts]),
        np.concatenate([p.stat_value for p in parts]),
        np.concatenate([p.stat_end for p in parts]),
        np.concatenate([p.is_ref for p in parts]),
        sum(p.aggregated for p in parts),
        sum(p.wild for p in parts),
    )


def sorted_line(line: Decoded) -> Decoded:
    """The line in order of (start, -duration)."""
    step = np.diff(line.start)
    if not ((step < 0) | ((step == 0) & (np.diff(line.duration) > 0))).any():
        return line
    order = np.lexsort((-line.duration, line.start))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    event = place[line.stat_event]
    rows = np.argsort(event, kind="stable")
    return Decoded(
        line.meta[order],
        line.start[order],
        line.duration[order],
        event[rows],
        line.stat_id[rows],
        line.stat_kind[rows],
        line.stat_value[rows],
        line.stat_end[rows],
        line.is_ref[rows],
        line.aggregated,
        line.wild,
    )


def facts(data: bytes, plane: PlaneMessage, spans: list[tuple[int, int]]) -> list[tuple[str, object]]:
    """Stats of a plane or of a name as (name, value); these are few, so they are read one by one."""
    found: list[tuple[str, object]] = []
    for at, end in spans:
        ident, value = 0, None
        for number, kind, v, stop in wire.fields(data, at, end):
            if number == 1 and kind == wire.VARINT:
                ident = wire.signed(v)
            elif number == 2 and kind == wire.FIXED64:
                value = struct.unpack("<d", data[v : v + 8])[0]
            elif number == 3 and kind == wire.VARINT:
                value = v
            elif number == 4 and kind == wire.VARINT:
                value = wire.signed(v)
            elif number == 5 and kind == wire.LENGTH:
                value = text(data, v, stop)
            elif number == 6 and kind == wire.LENGTH:
                value = data[v:stop]
            elif number == 7 and kind == wire.VARINT:
                value = plane.stat_meta.get(v, "")
        found.append((plane.stat_meta.get(ident, f"stat {ident}"), value))
    return found
