"""Reads `*.xplane.pb` (a serialised `tensorflow.profiler.XSpace`) into a `Trace`, event by event and exactly.

Planes, lines and names come first (`planes`), then the events in batches (`batches`); here names, lanes and strings are
numbered across files, and what was odd goes into the receipt. Field numbers follow xplane.proto of the OpenXLA project.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer, SourceFile
from nbprof.core.trace import Events, Int32s, Int64s, Module, Plane, Receipt, Trace
from nbprof.formats.xspace import batches as xspace_batches
from nbprof.formats.xspace.batches import MOST_PS, Batch
from nbprof.formats.xspace.columns import Blobs, LazyArgs, sorted_order
from nbprof.formats.xspace.names import program_ident
from nbprof.formats.xspace.planes import Line, PlaneMessage, read_space
from nbprof.formats.xspace.texts import Strings

# A line's time stamp from here on is nanoseconds since 1970 (the year 2001); below it is relative to the start of the profile.
EPOCH_NS = 10**18
# One above this cannot be relative to the start of a profile (46 days); it is the time since the machine was started.
_UPTIME_NS = 4 * 10**15
# Errors of the profiler, and names of planes in a line, that the receipt repeats.
_MOST_NOTES, _MOST_PLANES = 20, 4
_WILD = "have times beyond 53 days: damaged, left out."
_NEGATIVE = "end before they start; their duration is taken as 0."
_UNNAMED = "have no name there; they are shown by number."
_LANE_COLUMNS = ["lane", "host", "process", "thread", "line_id", "plane", "kind", "device", "note", "events", "order"]
# What the file says of a line beside these; a thread is shown by its display name, where it has one.
_LINE_COLUMNS = ["line", "display_id", "duration"]


def read(files: Sequence[SourceFile], progress: Callable[[str], None] | None = None) -> Trace:
    """The events of one run, which may be several files, one a host.

    Of a file that was cut off, the planes before the cut are kept and the receipt says so; all other damage is an error.

    Parameters
    ----------
    files : sequence of SourceFile
        `*.xplane.pb` files, one a host.
    progress : callable, optional
        Called with a sentence as each file is begun.

    Raises
    ------
    ReadError
        The file is no XSpace, was cut off before the end of its first plane, or went through a text codec; names the file and the byte.
    """
    builder = _Builder()
    for file in files:
        if progress:
            progress(f"reading {file.name}")
        builder.add(file)
    return builder.trace()


@contextlib.contextmanager
def _in_file(label: str, buffer: Buffer) -> Iterator[None]:
    """Puts the file and what may have happened to it into errors about its bytes."""
    try:
        yield
    except ReadError as error:
        raise ReadError(f"{error.reason}. {_hint(buffer)}", path=label, offset=error.offset) from None


def _hint(buffer: Buffer) -> str:
    if bytes(buffer.data[: 1 << 22]).count(b"\xef\xbf\xbd") > 16:
        return (
            "It has many UTF-8 replacement characters: it went through a text codec on the way and is damaged; copy the original as binary."
        )
    return "The file is damaged, or was truncated while it was written or copied: record or copy it again."


@dataclass
class _Part:
    """The events of one batch; `segments` are (lane, events, whether their line's time stamp is absolute)."""

    file: int
    name: Int32s
    start: Int64s
    duration: Int64s
    segments: list[tuple[int, int, bool]]


class _Builder:
    """Collects the events of several files, then numbers names, lanes and strings across them."""

    def __init__(self) -> None:
        self.receipt = Receipt()
        self.strings = Strings()
        self.blobs = Blobs()
        self.args = LazyArgs()
        self.hosts: list[str] = []
        self.planes: list[Plane] = []
        self.names: list[str] = []
        self.display: list[str] = []
        self.name_args: dict[str, dict[int, object]] = {}
        self.modules: list[Module] = []
        self.metadata: dict[str, object] = {}
        self.lanes: list[tuple[int, Line]] = []
        self.epochs: list[int] = []
        self.parts: list[_Part] = []
        self.events = 0
        self.aggregated: list[tuple[int, int, int, int]] = []
        self.valueless = 0
        self.odd: dict[str, dict[str, int]] = {}
        """What is odd about events, and in which planes how many are so."""

    def add(self, file: SourceFile) -> None:
        """Reads one file."""
        buffer = file.read()
        if not buffer.size:
            raise ReadError("the file is empty: the profiler was stopped before it wrote anything.", path=file.label)
        with _in_file(file.label, buffer):
            self._add(buffer, file)

    def _add(self, buffer: Buffer, file: SourceFile) -> None:
        space = read_space(buffer.array, buffer.size, self.strings)
        if not space.planes:
            raise ReadError("it has no planes, so it is not an XSpace profile", offset=0)
        for said, texts in (("The profiler reported an error", space.errors), ("The profiler reported", space.warnings)):
            for text in dict.fromkeys(texts[:_MOST_NOTES]):
                self.receipt.warn(f"{said}: {text}")
            if len(texts) > _MOST_NOTES:
                self.receipt.warn(f"{said}: {len(texts) - _MOST_NOTES:,} more.")
        if space.cut >= 0:
            self.receipt.warn(
                f"{file.label} is truncated: it ends inside the field at byte {space.cut:,}. The {len(space.planes):,} planes before "
                "that are complete and shown; what comes after is missing. Copy the file again, or record again."
            )
        host = self._host(space.hostnames, file.name)
        epoch, absolute = _epoch(space.planes)
        self.epochs.append(epoch if absolute >= EPOCH_NS else 0)
        size = xspace_batches.batch_size(sum(len(line.starts) for plane in space.planes for line in plane.lines))
        work: list[Batch] = []
        first: list[int] = []
        for plane in space.planes:
            code = self._plane(plane, host)
            work += xspace_batches.batches(plane, [_base(line, epoch, absolute) for line in plane.lines], size)
            first += [code] * (len(work) - len(first))
        for plane in space.planes:
            for line in plane.lines:
                # Now in the batches, which let go of them one after the other.
                line.starts = np.zeros(0, np.int64)
        xspace_batches.run(buffer, work)
        for code, batch in zip(first, work, strict=True):
            self._batch(batch, code, absolute)

    def _host(self, hostnames: list[str], file: str) -> str:
        own = PurePath(file).name.removesuffix(".pb").removesuffix(".xplane")
        host = hostnames[0] if hostnames else own
        if host in self.hosts:
            self.receipt.warn(
                f"Two files name the same host, {host}; the second is shown as {own}. A run has one file per host: if these are separate "
                "recordings, open them one by one, because their numbers are mixed here."
            )
            host = own if own not in self.hosts else f"{own} ({len(self.hosts)})"
        self.hosts.append(host)
        return host

    def _plane(self, plane: PlaneMessage, host: str) -> int:
        """Numbers the names and lanes of a plane; returns its first name code."""
        first = len(self.names)
        names = plane.events
        self.planes.append(Plane(host, plane.name, dict(plane.facts), plane.ident))
        self.names += names.names
        self.display += names.displays
        for at, known in names.facts.items():
            for key, value in known:
                if key == "Hlo Proto" and isinstance(value, bytes):
                    ident = program_ident(names.names[at], int(names.keys[at]))
                    self.modules.append(Module(names.names[at], ident, value, len(self.hosts) - 1))
                else:
                    self.name_args.setdefault(key, {})[first + at] = value
        self._state("event_metadata", {first + at: data for at, data in names.metadata.items()})
        for at, idents in names.children.items():
            places = names.places(np.array(idents, np.int64)).tolist()
            self._state("event_children", {first + at: [first + p for p in places if p >= 0]})
        self._state("arg_descriptions", {plane.stats.name(ident): text for ident, text in plane.stats.descriptions.items()})
        lanes: dict[int, int] = {}
        for line in plane.lines:
            # Lines of equal id in one plane are one timeline; the first names it.
            line.lane = lanes.setdefault(line.line_id, len(self.lanes))
            if line.lane == len(self.lanes):
                self.lanes.append((len(self.planes) - 1, line))
        return first

    def _state(self, what: str, values: dict[Any, object]) -> None:
        if values:
            cast("dict[Any, object]", self.metadata.setdefault(what, {})).update(values)

    def _batch(self, batch: Batch, first: int, absolute: int) -> None:
        plane = batch.plane
        batch.name += np.int32(first)
        if len(batch.unnamed):
            idents, place = np.unique(batch.unnamed, return_inverse=True)
            batch.name[batch.name < first] = self._unnamed(plane, idents.tolist())[place]
        self._odd(_WILD, plane, batch.wild)
        self._odd(_NEGATIVE, plane, batch.negative)
        self._odd(_UNNAMED, plane, len(batch.unnamed))
        for line, ident, occurrences, duration in batch.aggregated:
            at = int(plane.events.places(np.array([ident]))[0])
            code = first + at if at >= 0 else int(self._unnamed(plane, [ident])[0])
            self.aggregated.append((plane.lines[line].lane, code, occurrences, duration))
        self.valueless += batch.valueless
        for text in batch.hidden:
            self.strings.decode(text)
        self.args.add(batch, self.events, self.strings, self.blobs)
        lines = [plane.lines[i] for i in batch.lines]
        segments = [(ln.lane, count, ln.timestamp_ns >= absolute) for ln, count in zip(lines, batch.counts, strict=True)]
        self.parts.append(_Part(len(self.epochs) - 1, batch.name, batch.start, batch.duration, segments))
        self.events += batch.count

    def _odd(self, what: str, plane: PlaneMessage, count: int) -> None:
        if count:
            planes = self.odd.setdefault(what, {})
            name = plane.name or "a plane without a name"
            planes[name] = planes.get(name, 0) + count

    def _unnamed(self, plane: PlaneMessage, idents: list[int]) -> Int32s:
        """Name codes of ids that the plane has no name for."""
        for ident in idents:
            if ident not in plane.unnamed:
                plane.unnamed[ident] = len(self.names)
                self.names.append(f"event {ident}")
                self.display.append(f"event {ident}")
        return np.array([plane.unnamed[ident] for ident in idents], np.int32)

    def trace(self) -> Trace:
        """All files as one trace."""
        epoch = self._one_clock()
        events = self._sorted()
        self.receipt.events = self.events
        for what, planes in self.odd.items():
            count = sum(planes.values())
            where = ", ".join(list(planes)[:_MOST_PLANES]) + (
                f" and {len(planes) - _MOST_PLANES:,} more" if len(planes) > _MOST_PLANES else ""
            )
            if what == _WILD:
                self.receipt.skip(f"in {where} {what}", count)
            else:
                self.receipt.warn(f"{count:,} {'event' if count == 1 else 'events'} in {where} {what}")
        if self.aggregated:
            count = len(self.aggregated)
            what = "1 aggregated event has a count but no start: it is" if count == 1 else (
                f"{count:,} aggregated events have a count but no start: they are"
            )  # fmt: skip
            self.receipt.info(f"{what} on no lane; see trace.aggregated.")
        if self.valueless:
            self.receipt.info("1 stat has no value." if self.valueless == 1 else f"{self.valueless:,} stats have no value.")
        self.strings.report(self.receipt)
        return Trace(
            events=events,
            names=_objects(self.names),
            display=_objects(self.display),
            lanes=self._lane_table(np.bincount(events.lane, minlength=len(self.lanes))),
            planes=self.planes,
            args=self.args,
            name_args=self.name_args,
            strings=list(self.strings.codes),
            modules=self.modules,
            hosts=self.hosts,
            epoch_ns=epoch,
            receipt=self.receipt,
            metadata=self.metadata,
            blobs=list(self.blobs.codes),
            aggregated=pd.DataFrame(self.aggregated, columns=["lane", "name", "occurrences", "duration"]),
        )

    def _one_clock(self) -> int:
        """Moves the files that have absolute times onto the earliest one's clock; returns its zero, ns."""
        epoch = min((e for e in self.epochs if e), default=0)
        for part in self.parts:
            late = self.epochs[part.file] - epoch
            if late <= 0:
                continue
            if late * 1000 >= MOST_PS:
                self.receipt.warn(
                    f"The clock of {self.hosts[part.file]} is more than 53 days ahead; its times are counted from its own start."
                )
                continue
            at = 0
            for _, count, absolute in part.segments:
                if absolute:
                    part.start[at : at + count] += late * 1000
                at += count
        return self._from_first(epoch)

    def _from_first(self, epoch: int) -> int:
        """Where an event began before the clock did, times count from that event; returns the zero, ns."""
        starts = [part.start for part in self.parts if len(part.start)]
        low = min((int(start.min()) for start in starts), default=0)
        if low >= 0 or max(int(start.max()) for start in starts) - low >= MOST_PS:
            return epoch
        for start in starts:
            start -= low
        return epoch + low // 1000 if epoch else 0

    def _sorted(self) -> Events:
        """The events in the order of a trace."""
        segments = np.array([s[:2] for part in self.parts for s in part.segments], np.int64).reshape(-1, 2)
        lane = np.repeat(segments[:, 0].astype(np.int32), segments[:, 1])
        # One column after the other, so that no more than one is there twice.
        start = _joined([part.start for part in self.parts], np.int64)
        duration = _joined([part.duration for part in self.parts], np.int64)
        name = _joined([part.name for part in self.parts], np.int32)
        self.parts = []
        order = sorted_order(lane, start, duration)
        if order is not None:
            self.args.place = np.empty(len(order), np.int32)
            self.args.place[order] = np.arange(len(order), dtype=np.int32)
            lane, name, start, duration = lane[order], name[order], start[order], duration[order]
        return Events(lane, name, start, duration)

    def _lane_table(self, counts: Int64s) -> pd.DataFrame:
        number = np.arange(len(self.lanes))
        lines = [line for _, line in self.lanes]
        planes = [self.planes[at] for at, _ in self.lanes]
        columns = {
            "lane": number,
            "host": [plane.host for plane in planes],
            "process": [plane.name for plane in planes],
            "thread": [line.display or line.name for line in lines],
            "line_id": [line.line_id for line in lines],
            "plane": [at for at, _ in self.lanes],
            "kind": "",
            "device": -1,
            "note": "",
            "events": counts,
            "order": number,
            "line": [line.name for line in lines],
            "display_id": [line.display_id for line in lines],
            "duration": [line.duration_ps for line in lines],
        }
        return pd.DataFrame(columns, columns=[*_LANE_COLUMNS, *_LINE_COLUMNS])


def _epoch(planes: Sequence[PlaneMessage]) -> tuple[int, int]:
    """The nanosecond that becomes time 0, and from which time stamp on a line's is absolute.

    It is 0 when the collector already made times relative.
    """
    stamps = [line.timestamp_ns for plane in planes for line in plane.lines if len(line.starts)]
    absolute = EPOCH_NS if max(stamps, default=0) >= EPOCH_NS else _UPTIME_NS
    return min((stamp for stamp in stamps if stamp >= absolute), default=0), absolute


def _base(line: Line, epoch: int, absolute: int) -> int | None:
    """What the offsets of a line count from, ps; None where that cannot be."""
    base = (line.timestamp_ns - (epoch if line.timestamp_ns >= absolute else 0)) * 1000
    return base if abs(base) < MOST_PS else None


def _joined(parts: list[Any], dtype: type) -> Any:
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype)
    parts.clear()
    return joined


def _objects(texts: list[str]) -> npt.NDArray[np.object_]:
    out = np.empty(len(texts), object)
    out[:] = texts
    return out
