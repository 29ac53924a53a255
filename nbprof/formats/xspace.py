"""Reads `*.xplane.pb` (a serialised `tensorflow.profiler.XSpace`) into a `Trace`, event by event and exactly.

Planes, lines and metadata are few and walked in Python; the events of a line, and the stats of its events, are decoded in
lockstep by `wire.columns`. Field numbers follow xplane.proto of the OpenXLA project.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.errors import ReadError
from nbprof.formats import wire
from nbprof.trace import BYTES, DOUBLE, INT, TEXT, UINT, ArgColumn, Events, Int64s, Plane, Receipt, Trace, nest

# A line time stamp above this is nanoseconds since 1970 (the year 2001), below it is relative to the start of the profile.
EPOCH_NS = 10**18

_STAT_KIND = {2: DOUBLE, 3: UINT, 4: INT, 5: TEXT, 6: BYTES, 7: TEXT}


@dataclass
class _Meta:
    name: str = ""
    display: str = ""
    stats: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Line:
    line_id: int = 0
    name: str = ""
    display: str = ""
    timestamp_ns: int = 0
    span: tuple[int, int] = (0, 0)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass
class _Plane:
    host: str = ""
    name: str = ""
    lines: list[_Line] = field(default_factory=list)
    event_meta: dict[int, _Meta] = field(default_factory=dict)
    stat_meta: dict[int, str] = field(default_factory=dict)
    stats: list[tuple[int, int]] = field(default_factory=list)
    blob: int = 0


@dataclass
class _Decoded:
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


def read(paths: list[Path], progress: Callable[[str], None] | None = None) -> Trace:
    """The events of one run, which may be several files, one a host.

    Parameters
    ----------
    paths : list of Path
        `*.xplane.pb` files, one a host.
    progress : callable, optional
        Called with a sentence as each file is begun.

    Raises
    ------
    ReadError
        The file is no XSpace, was cut off, or went through a text codec; names the file and the byte.
    """
    receipt = Receipt()
    builder = _Builder(receipt)
    for path in paths:
        if progress:
            progress(f"reading {path.name}")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ReadError(f"could not be opened: {error.strerror or error}", path=str(path)) from error
        try:
            builder.add(data, _host_of(path))
        except ReadError as error:
            raise ReadError(
                f"{error} {_hint(data)}", path=str(path)
            ) from None
        except UnicodeDecodeError as error:
            raise ReadError(f"a name is not UTF-8 text. {_hint(data)}", path=str(path)) from error
    return builder.trace()


def _host_of(path: Path) -> str:
    return path.name.removesuffix(".pb").removesuffix(".xplane")


def _hint(data: bytes) -> str:
    if data.count(b"\xef\xbf\xbd", 0, 1 << 22) > 16:
        return "(It holds many UTF-8 replacement characters: it went through a text codec on its way and is damaged; copy the original as binary.)"
    return "(The file is damaged or was cut off while it was written or copied: record it again, or copy it again.)"


class _Builder:
    """Collects planes of several files, then numbers names, lanes and strings across them."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.data: list[bytes] = []
        self.buffers: list[wire.Bytes] = []
        self.planes: list[_Plane] = []
        self.hosts: list[str] = []

    def add(self, data: bytes, file_host: str) -> None:
        if not data:
            raise ReadError("the file is empty: the profiler was stopped before it wrote anything")
        blob = len(self.data)
        planes: list[_Plane] = []
        hostnames: list[str] = []
        for number, kind, at, end in wire.fields(data, 0, len(data)):
            if number == 1 and kind == wire.LENGTH:
                planes.append(_read_plane(data, at, end))
            elif number == 2 and kind == wire.LENGTH:
                self.receipt.warn(f"The profiler reported an error: {_text(data, at, end)}")
            elif number == 3 and kind == wire.LENGTH:
                self.receipt.warn(f"The profiler reported: {_text(data, at, end)}")
            elif number == 4 and kind == wire.LENGTH:
                hostnames.append(_text(data, at, end))
        if not planes:
            raise ReadError("no planes are in it, so it is not an XSpace profile.")
        host = hostnames[0] if hostnames else file_host
        if host in self.hosts:
            self.receipt.warn(f"Two files name the same host, {host}; the second is shown as {file_host}.")
            host = file_host if file_host not in self.hosts else f"{file_host} ({len(self.hosts)})"
        self.hosts.append(host)
        for plane in planes:
            plane.host, plane.blob = host, blob
        self.data.append(data)
        self.buffers.append(wire.buffer(data))
        self.planes.extend(planes)

    def trace(self) -> Trace:
        names: list[str] = []
        display: list[str] = []
        strings: dict[str, int] = {}
        name_args: dict[str, dict[int, object]] = {}
        lanes: list[dict[str, object]] = []
        parts: list[tuple[int, _Decoded, npt.NDArray[np.int32]]] = []
        stats: dict[str, list[tuple[Int64s, npt.NDArray[np.uint8], Int64s]]] = {}
        planes: list[Plane] = []
        modules: list[tuple[str, int, bytes]] = []
        epoch = self._epoch()
        offset = 0
        for plane in self.planes:
            data = self.data[plane.blob]
            planes.append(Plane(plane.host, plane.name, {k: v for k, v in _facts(data, plane, plane.stats)}))
            code_of: dict[int, int] = {}
            for ident, meta in plane.event_meta.items():
                code = code_of[ident] = len(names)
                names.append(meta.name)
                display.append(meta.display or meta.name)
                for key, value in _facts(data, plane, meta.stats):
                    if key == "Hlo Proto" and isinstance(value, bytes):
                        modules.append((meta.name, ident, value))
                    else:
                        name_args.setdefault(key, {})[code] = value
            for group in _same_timeline(plane.lines):
                line = group[0]
                decoded = self._decode(plane, group, epoch)
                known, codes = np.unique(decoded.meta, return_inverse=True)
                missing = [int(m) for m in known if int(m) not in code_of]
                if missing:
                    self.receipt.warn(f"{len(missing)} event names are missing in plane {plane.name}; shown as their number.")
                    for ident in missing:
                        code_of[ident] = len(names)
                        names.append(f"event {ident}")
                        display.append(f"event {ident}")
                table = np.array([code_of[int(m)] for m in known], np.int32)
                if decoded.aggregated:
                    self.receipt.info(
                        f"{decoded.aggregated:,} aggregated events in {plane.name} / {line.name} have a count but no start; they are not in the trace."
                    )
                    self.receipt.dropped += 0
                parts.append((len(lanes), decoded, table[codes] if len(codes) else np.zeros(0, np.int32)))
                for key, rows in self._named_stats(plane, decoded, strings):
                    stats.setdefault(key, []).append((rows[0] + offset, rows[1], rows[2]))
                lanes.append(
                    {
                        "lane": len(lanes), "host": plane.host, "process": plane.name, "thread": line.display or line.name,
                        "line_id": line.line_id, "plane": len(planes) - 1, "kind": "", "device": -1, "note": "",
                        "events": len(decoded.start), "order": len(lanes),
                    }
                )
                offset += len(decoded.start)
        self.receipt.events = offset
        lane = np.concatenate([np.full(len(d.start), i, np.int32) for i, d, _ in parts]) if parts else np.zeros(0, np.int32)
        start = np.concatenate([d.start for _, d, _ in parts]) if parts else np.zeros(0, np.int64)
        duration = np.concatenate([d.duration for _, d, _ in parts]) if parts else np.zeros(0, np.int64)
        name = np.concatenate([c for _, _, c in parts]) if parts else np.zeros(0, np.int32)
        parent, depth, self_time = nest(lane, start, duration)
        return Trace(
            events=Events(lane, name, start, duration, parent, depth, self_time),
            names=np.array(names, object), display=np.array(display, object),
            lanes=pd.DataFrame(lanes, columns=_LANE_COLUMNS), planes=planes,
            args={k: _column(rows) for k, rows in stats.items()}, name_args=name_args, strings=list(strings),
            modules=modules, hosts=self.hosts, epoch_ns=epoch, receipt=self.receipt,
        )

    def _epoch(self) -> int:
        """The nanosecond that becomes time 0: 0 when the collector already made times relative."""
        absolute = [ln.timestamp_ns for p in self.planes for ln in p.lines if ln.starts and ln.timestamp_ns >= EPOCH_NS]
        return min(absolute, default=0)

    def _decode(self, plane: _Plane, lines: list[_Line], epoch: int) -> _Decoded:
        done = [_read_events(self.buffers[plane.blob], ln, epoch) for ln in lines]
        merged = done[0] if len(done) == 1 else _concatenate(done)
        negative = merged.duration < 0
        if negative.any():
            self.receipt.warn(f"{int(negative.sum()):,} events in {plane.name} end before they start; their duration is taken as 0.")
            merged.duration[negative] = 0
        return _sorted(merged)

    def _named_stats(
        self, plane: _Plane, decoded: _Decoded, strings: dict[str, int]
    ) -> list[tuple[str, tuple[Int64s, npt.NDArray[np.uint8], Int64s]]]:
        data = self.data[plane.blob]
        found: list[tuple[str, tuple[Int64s, npt.NDArray[np.uint8], Int64s]]] = []
        if not len(decoded.stat_id):
            return found
        # Two ids may carry one name; they are then one arg.
        order = np.argsort(decoded.stat_id, kind="stable")
        ids, first = np.unique(decoded.stat_id[order], return_index=True)
        for ident, rows in zip(ids.tolist(), np.split(order, first[1:]), strict=True):
            name = plane.stat_meta.get(ident, f"stat {ident}")
            value = decoded.stat_value[rows].copy()
            kind = decoded.stat_kind[rows].copy()
            text = np.flatnonzero(kind == TEXT)
            if len(text):
                value[text] = _string_codes(data, plane, decoded, rows[text], strings)
            found.append((name, (decoded.stat_event[rows], kind, value)))
        return found


_LANE_COLUMNS = ["lane", "host", "process", "thread", "line_id", "plane", "kind", "device", "note", "events", "order"]


def _string_codes(data: bytes, plane: _Plane, decoded: _Decoded, rows: Int64s, strings: dict[str, int]) -> Int64s:
    cache: dict[bytes | int, int] = {}
    out = np.empty(len(rows), np.int64)
    refs = decoded.is_ref[rows].tolist()
    for i, (ref, at, end) in enumerate(
        zip(refs, decoded.stat_value[rows].tolist(), decoded.stat_end[rows].tolist(), strict=True)
    ):
        key: bytes | int = at if ref else data[at:end]
        code = cache.get(key)
        if code is None:
            text = plane.stat_meta.get(at, "") if ref else data[at:end].decode("utf-8", "replace")
            code = cache[key] = strings.setdefault(text, len(strings))
        out[i] = code
    return out


def _column(rows: list[tuple[Int64s, npt.NDArray[np.uint8], Int64s]]) -> ArgColumn:
    event = np.concatenate([r[0] for r in rows])
    kind = np.concatenate([r[1] for r in rows])
    value = np.concatenate([r[2] for r in rows])
    order = np.argsort(event, kind="stable")
    return ArgColumn(event[order].astype(np.int32), kind[order], value[order])


def _text(data: bytes, at: int, end: int) -> str:
    return data[at:end].decode("utf-8", "replace")



def _read_plane(data: bytes, at: int, end: int) -> _Plane:
    plane = _Plane()
    for number, kind, value, stop in wire.fields(data, at, end):
        if kind != wire.LENGTH:
            continue
        if number == 2:
            plane.name = _text(data, value, stop)
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


def _read_event_meta(data: bytes, at: int, end: int) -> tuple[int, _Meta]:
    key, meta = 0, _Meta()
    for number, kind, value, stop in wire.fields(data, at, end):
        if number == 1 and kind == wire.VARINT:
            key = wire.signed(value)
        elif number == 2 and kind == wire.LENGTH:
            for n, k, v, e in wire.fields(data, value, stop):
                if k != wire.LENGTH:
                    continue
                if n == 2:
                    meta.name = _text(data, v, e)
                elif n == 4:
                    meta.display = _text(data, v, e)
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
                    name = _text(data, v, e)
    return key, name


def _read_line(data: bytes, at: int, end: int) -> _Line:
    line = _Line(span=(at, end))
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
            line.name = _text(data, value, pos)
        elif number == 3 and kind == wire.VARINT:
            line.timestamp_ns = wire.signed(value)
        elif number == 11 and kind == wire.LENGTH:
            line.display = _text(data, value, pos)
    return line


def _read_events(buf: wire.Bytes, line: _Line, epoch: int) -> _Decoded:
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
        elif (column.number in (3, 4, 7) and column.kind == wire.VARINT) or (
            column.number in (5, 6) and column.kind == wire.LENGTH
        ):
            value[rows] = column.value
            value_end[rows] = column.end
            kinds[rows] = _STAT_KIND[column.number]
            is_ref[rows] = column.number == 7
    keep = ~aggregated
    if not keep.all():
        renumber = np.cumsum(keep) - 1
        has = keep[event]
        event, ident, kinds, value, value_end, is_ref = (
            renumber[event[has]], ident[has], kinds[has], value[has], value_end[has], is_ref[has],
        )
        meta, start, duration = meta[keep], start[keep], duration[keep]
    return _Decoded(meta, start, duration, event, ident, kinds, value, value_end, is_ref, int((~keep).sum()))


def _same_timeline(lines: list[_Line]) -> list[list[_Line]]:
    """Lines of equal id in one plane are one timeline; the first names it."""
    groups: dict[int, list[_Line]] = {}
    for line in lines:
        groups.setdefault(line.line_id, []).append(line)
    return list(groups.values())


def _concatenate(parts: list[_Decoded]) -> _Decoded:
    base = np.cumsum([0] + [len(p.start) for p in parts[:-1]])
    return _Decoded(
        np.concatenate([p.meta for p in parts]), np.concatenate([p.start for p in parts]),
        np.concatenate([p.duration for p in parts]),
        np.concatenate([p.stat_event + b for p, b in zip(parts, base, strict=True)]),
        np.concatenate([p.stat_id for p in parts]), np.concatenate([p.stat_kind for p in parts]),
        np.concatenate([p.stat_value for p in parts]), np.concatenate([p.stat_end for p in parts]),
        np.concatenate([p.is_ref for p in parts]), sum(p.aggregated for p in parts),
    )


def _sorted(line: _Decoded) -> _Decoded:
    step = np.diff(line.start)
    if not ((step < 0) | ((step == 0) & (np.diff(line.duration) > 0))).any():
        return line
    order = np.lexsort((-line.duration, line.start))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    event = place[line.stat_event]
    rows = np.argsort(event, kind="stable")
    return _Decoded(
        line.meta[order], line.start[order], line.duration[order], event[rows], line.stat_id[rows],
        line.stat_kind[rows], line.stat_value[rows], line.stat_end[rows], line.is_ref[rows], line.aggregated,
    )


def _facts(data: bytes, plane: _Plane, spans: list[tuple[int, int]]) -> list[tuple[str, object]]:
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
                value = _text(data, v, stop)
            elif number == 6 and kind == wire.LENGTH:
                value = data[v:stop]
            elif number == 7 and kind == wire.VARINT:
                value = plane.stat_meta.get(v, "")
        found.append((plane.stat_meta.get(ident, f"stat {ident}"), value))
    return found


