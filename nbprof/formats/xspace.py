"""Reads `*.xplane.pb` (a serialised `tensorflow.profiler.XSpace`) into a `Trace`, event by event and exactly.

Planes, lines and metadata are few and walked in Python; the events of a line, and the stats of its events, are decoded in
lockstep by `wire.columns`. Field numbers follow xplane.proto of the OpenXLA project.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.errors import ReadError
from nbprof.formats import wire
from nbprof.formats.pieces import Piece
from nbprof.formats.xspace_wire import (
    EPOCH_NS,
    Decoded,
    Line,
    PlaneMessage,
    concatenate,
    facts,
    read_events,
    read_plane,
    same_timeline,
    sorted_line,
    text,
)
from nbprof.trace import TEXT, ArgColumn, Events, Int64s, Module, Plane, Receipt, Trace

StatRows = tuple[Int64s, npt.NDArray[np.uint8], Int64s]


def read(pieces: Sequence[Piece], progress: Callable[[str], None] | None = None) -> Trace:
    """The events of one run, which may be several files, one a host.

    Parameters
    ----------
    pieces : sequence of Piece
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
    for piece in pieces:
        if progress:
            progress(f"reading {piece.name}")
        builder.add(bytes(piece.read().data), Path(piece.label))
    return builder.trace()


@contextlib.contextmanager
def _in_file(path: Path, data: bytes) -> Iterator[None]:
    """Puts the file and what may have happened to it into errors about its bytes."""
    try:
        yield
    except ReadError as error:
        raise ReadError(f"{error.reason} {_hint(data)}", path=str(path), offset=error.offset) from None


def _host_of(path: Path) -> str:
    return path.name.removesuffix(".pb").removesuffix(".xplane")


def _hint(data: bytes) -> str:
    if data.count(b"\xef\xbf\xbd", 0, 1 << 22) > 16:
        return (
            "(It holds many UTF-8 replacement characters: it went through a text codec on its way and is damaged; "
            "copy the original as binary.)"
        )
    return "(The file is damaged or was cut off while it was written or copied: record it again, or copy it again.)"


class _Builder:
    """Collects planes of several files, then numbers names, lanes and strings across them."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.data: list[bytes] = []
        self.paths: list[Path] = []
        self.buffers: list[wire.Bytes] = []
        self.planes: list[PlaneMessage] = []
        self.hosts: list[str] = []

    def add(self, data: bytes, path: Path) -> None:
        if not data:
            raise ReadError("the file is empty: the profiler was stopped before it wrote anything.", path=str(path))
        with _in_file(path, data):
            self._add(data, path)

    def _add(self, data: bytes, path: Path) -> None:
        file_host = _host_of(path)
        blob = len(self.data)
        planes: list[PlaneMessage] = []
        hostnames: list[str] = []
        for number, kind, at, end in wire.fields(data, 0, len(data)):
            if number == 1 and kind == wire.LENGTH:
                planes.append(read_plane(data, at, end))
            elif number == 2 and kind == wire.LENGTH:
                self.receipt.warn(f"The profiler reported an error: {text(data, at, end)}")
            elif number == 3 and kind == wire.LENGTH:
                self.receipt.warn(f"The profiler reported: {text(data, at, end)}")
            elif number == 4 and kind == wire.LENGTH:
                hostnames.append(text(data, at, end))
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
        self.paths.append(path)
        self.buffers.append(wire.buffer(data))
        self.planes.extend(planes)

    def trace(self) -> Trace:
        names: list[str] = []
        display: list[str] = []
        strings: dict[str, int] = {}
        name_args: dict[str, dict[int, object]] = {}
        lanes: list[dict[str, object]] = []
        parts: list[tuple[int, Decoded, npt.NDArray[np.int32]]] = []
        stats: dict[str, list[StatRows]] = {}
        planes: list[Plane] = []
        modules: list[Module] = []
        epoch = self._epoch()
        offset = 0
        for plane in self.planes:
            data = self.data[plane.blob]
            planes.append(Plane(plane.host, plane.name, dict(self._facts(plane, plane.stats))))
            code_of: dict[int, int] = {}
            for ident, meta in plane.event_meta.items():
                code = code_of[ident] = len(names)
                names.append(meta.name)
                display.append(meta.display or meta.name)
                for key, value in self._facts(plane, meta.stats):
                    if key == "Hlo Proto" and isinstance(value, bytes):
                        modules.append(Module(meta.name, ident, value))
                    else:
                        name_args.setdefault(key, {})[code] = value
            for group in same_timeline(plane.lines):
                line = group[0]
                with _in_file(self.paths[plane.blob], data):
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
                if decoded.wild:
                    self.receipt.skip(f"in {plane.name} have times of over 53 days: damaged, left out.", decoded.wild)
                if decoded.aggregated:
                    self.receipt.info(
                        f"{decoded.aggregated:,} aggregated events in {plane.name} / {line.name} have a count but no start: left out."
                    )
                parts.append((len(lanes), decoded, table[codes] if len(codes) else np.zeros(0, np.int32)))
                for key, rows in self._named_stats(plane, decoded, strings):
                    stats.setdefault(key, []).append((rows[0] + offset, rows[1], rows[2]))
                lanes.append(
                    {
                        "lane": len(lanes),
                        "host": plane.host,
                        "process": plane.name,
                        "thread": line.display or line.name,
                        "line_id": line.line_id,
                        "plane": len(planes) - 1,
                        "kind": "",
                        "device": -1,
                        "note": "",
                        "events": len(decoded.start),
                        "order": len(lanes),
                    }
                )
                offset += len(decoded.start)
        self.receipt.events = offset
        lane = np.concatenate([np.full(len(d.start), i, np.int32) for i, d, _ in parts]) if parts else np.zeros(0, np.int32)
        start = np.concatenate([d.start for _, d, _ in parts]) if parts else np.zeros(0, np.int64)
        duration = np.concatenate([d.duration for _, d, _ in parts]) if parts else np.zeros(0, np.int64)
        name = np.concatenate([c for _, _, c in parts]) if parts else np.zeros(0, np.int32)
        return Trace(
            events=Events(lane, name, start, duration),
            names=np.array(names, object),
            display=np.array(display, object),
            lanes=pd.DataFrame(lanes, columns=_LANE_COLUMNS),
            planes=planes,
            args={k: _column(rows) for k, rows in stats.items()},
            name_args=name_args,
            strings=list(strings),
            modules=modules,
            hosts=self.hosts,
            epoch_ns=epoch,
            receipt=self.receipt,
        )

    def _epoch(self) -> int:
        """The nanosecond that becomes time 0: 0 when the collector already made times relative."""
        absolute = [ln.timestamp_ns for p in self.planes for ln in p.lines if ln.starts and ln.timestamp_ns >= EPOCH_NS]
        return min(absolute, default=0)

    def _facts(self, plane: PlaneMessage, spans: list[tuple[int, int]]) -> list[tuple[str, object]]:
        data = self.data[plane.blob]
        with _in_file(self.paths[plane.blob], data):
            return facts(data, plane, spans)

    def _decode(self, plane: PlaneMessage, lines: list[Line], epoch: int) -> Decoded:
        done = [read_events(self.buffers[plane.blob], ln, epoch) for ln in lines]
        merged = done[0] if len(done) == 1 else concatenate(done)
        negative = merged.duration < 0
        if negative.any():
            self.receipt.warn(f"{int(negative.sum()):,} events in {plane.name} end before they start; their duration is taken as 0.")
            merged.duration[negative] = 0
        return sorted_line(merged)

    def _named_stats(self, plane: PlaneMessage, decoded: Decoded, strings: dict[str, int]) -> list[tuple[str, StatRows]]:
        data = self.data[plane.blob]
        found: list[tuple[str, StatRows]] = []
        if not len(decoded.stat_id):
            return found
        # Two ids may carry one name; they are then one arg.
        order = np.argsort(decoded.stat_id, kind="stable")
        ids, first = np.unique(decoded.stat_id[order], return_index=True)
        for ident, rows in zip(ids.tolist(), np.split(order, first[1:]), strict=True):
            name = plane.stat_meta.get(ident, f"stat {ident}")
            value = decoded.stat_value[rows].copy()
            kind = decoded.stat_kind[rows].copy()
            texts = np.flatnonzero(kind == TEXT)
            if len(texts):
                value[texts] = _string_codes(data, plane, decoded, rows[texts], strings)
            found.append((name, (decoded.stat_event[rows], kind, value)))
        return found


_LANE_COLUMNS = ["lane", "host", "process", "thread", "line_id", "plane", "kind", "device", "note", "events", "order"]


def _string_codes(data: bytes, plane: PlaneMessage, decoded: Decoded, rows: Int64s, strings: dict[str, int]) -> Int64s:
    cache: dict[bytes | int, int] = {}
    out = np.empty(len(rows), np.int64)
    refs = decoded.is_ref[rows].tolist()
    for i, (ref, at, end) in enumerate(zip(refs, decoded.stat_value[rows].tolist(), decoded.stat_end[rows].tolist(), strict=True)):
        key: bytes | int = at if ref else data[at:end]
        code = cache.get(key)
        if code is None:
            value = plane.stat_meta.get(at, "") if ref else text(data, at, end)
            code = cache[key] = strings.setdefault(value, len(strings))
        out[i] = code
    return out


def _column(rows: list[StatRows]) -> ArgColumn:
    event = np.concatenate([r[0] for r in rows])
    kind = np.concatenate([r[1] for r in rows])
    value = np.concatenate([r[2] for r in rows])
    order = np.argsort(event, kind="stable")
    return ArgColumn(event[order].astype(np.int32), kind[order], value[order])
