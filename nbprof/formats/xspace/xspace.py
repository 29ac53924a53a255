"""Reads `*.xplane.pb` (a serialised `tensorflow.profiler.XSpace`) into a `Trace`, event by event
and exactly.

Planes, lines and names come first (`planes`), then the events in batches (`batches`); here names,
lanes and strings are numbered across files, and what was odd goes into the receipt. Field numbers
follow xplane.proto of the OpenXLA project.

An XSpace that is too large for one message comes in parts, as the records of `*.xplane.riegeli`.
Each has the planes that its events need, with all their names once more, and is let go of before
the next is read. They are put together as XProf does (`MergeXSpace` in xla/tsl/profiler): planes of
one name are one, in them lines of one id; what is stated once more counts once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, Buffer, SourceFile
from nbprof.core.receipt import Cut, Receipt
from nbprof.core.trace import Events, Int32s, Int64s, Module, Plane, Trace
from nbprof.formats import notes as shared_notes
from nbprof.formats.times import LONGEST_PS, far_from_middle
from nbprof.formats.xspace import batches as xspace_batches
from nbprof.formats.xspace import notes
from nbprof.formats.xspace.batches import Batch
from nbprof.formats.xspace.columns import Blobs, LazyArgs, sorted_order
from nbprof.formats.xspace.format import EMPTY
from nbprof.formats.xspace.names import program_idents
from nbprof.formats.xspace.planes import Line, PlaneMessage, read_space
from nbprof.formats.xspace.riegeli import SIGNATURE
from nbprof.formats.xspace.riegeli.chunks import Damage
from nbprof.formats.xspace.riegeli.records import records
from nbprof.formats.xspace.texts import Strings
from nbprof.native import library

# A line's time stamp from here on is nanoseconds since 1970 (the year 2001); below it is relative
# to the start of the profile.
EPOCH_NS = 10**18
# One above this cannot be relative to the start of a profile (46 days); it is the time since the
# machine was started.
_UPTIME_NS = 4 * 10**15
# Records of something else are given up on after so many.
_MOST_STRANGE = 16
# Errors of the profiler, and names of planes in a line, that the receipt repeats.
_MOST_NOTES = 20
_DAMAGED = (
    "The file is damaged, or was truncated while it was written or copied: record or copy it again."
)
_LANE_COLUMNS = [
    "lane",
    "host",
    "process",
    "thread",
    "line_id",
    "plane",
    "kind",
    "device",
    "note",
    "events",
    "order",
]
# What the file says of a line beside these; a thread is shown by its display name, where it has
# one.
_LINE_COLUMNS = ["line", "display_id", "duration"]


def read(
    files: Sequence[SourceFile],
    progress: Callable[[str], None] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Trace:
    """The events of one run, which may be several files, one a host.

    Of a file that was cut off, the planes before the cut are kept, or, of the first plane of the
    only file, the events before it, and the receipt says so; all other damage is an error. Of a
    file of records those that are damaged are left out, and named in the receipt.

    Parameters
    ----------
    files : sequence of SourceFile
        `*.xplane.pb` and `*.xplane.riegeli` files, one a host.
    progress : callable, optional
        Called with a sentence as each file is begun.
    limit_bytes : int
        The most that the records of a file may unpack to.

    Raises
    ------
    ReadError
        The file is no XSpace, was cut off before the end of its first event, or went through a text
        codec; names the file and the byte.
    """
    builder = _Builder(limit_bytes, len(files) == 1)
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
        raise ReadError(
            f"{error.reason}. {_hint(buffer)}", path=label, offset=error.offset
        ) from None


def _hint(buffer: Buffer) -> str:
    if bytes(buffer.data[: 1 << 22]).count(b"\xef\xbf\xbd") > 16:
        return (
            "It has many UTF-8 replacement characters: it was copied as text and is damaged; copy"
            " the original again in binary mode."
        )
    return _DAMAGED


_Clock = tuple[int, int]
"""The nanosecond that becomes time 0, and from which time stamp on a line's is absolute."""


@dataclass
class _Part:
    """The events of one batch; `segments` are (lane, events, their line's time stamp)."""

    file: int
    clock: _Clock
    name: Int32s
    start: Int64s
    duration: Int64s
    segments: list[tuple[int, int, int]]


@dataclass
class _Known:
    """A plane as far as it has been read: what comes once more in a later record is not taken once
    more.
    """

    plane: int
    lanes: dict[int, int] = field(default_factory=dict)
    """Lanes by the id of their line."""
    codes: dict[tuple[int, str], int] = field(default_factory=dict)
    """Name codes by id and name."""
    idents: dict[int, int] = field(default_factory=dict)
    """Name codes by id alone, for events of a record that does not name them."""
    stats: dict[int, str] = field(default_factory=dict)
    unnamed: dict[int, int] = field(default_factory=dict)


@dataclass
class _File:
    """What is known of a file while it is read."""

    first: int
    """Its first plane."""
    parts: int
    """And its first part."""
    records: bool = False
    known: dict[str, _Known] = field(default_factory=dict)
    hostnames: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    truncations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    stamps: set[int] = field(default_factory=set)
    clock: _Clock | None = None


class _Builder:
    """Collects the events of several files, then numbers names, lanes and strings across them."""

    def __init__(self, limit: int, in_part: bool) -> None:
        self.limit = limit
        self.in_part = in_part
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
        self.clocks: list[_Clock] = []
        self.parts: list[_Part] = []
        self.events = 0
        self.aggregated: list[tuple[int, int, int, int]] = []
        self.valueless = 0
        self.odd: dict[str, dict[str, int]] = {}
        """What is odd about events, and in which planes how many are so."""
        self.file = _File(0, 0)

    def add(self, file: SourceFile) -> None:
        """Reads one file."""
        self.file = _File(len(self.planes), len(self.parts))
        if file.name.lower().endswith(".riegeli") or file.head(len(SIGNATURE)) == SIGNATURE:
            self._records(file)
        else:
            buffer = file.read()
            if not buffer.size:
                raise ReadError(EMPTY, path=file.label)
            with _in_file(file.label, buffer):
                self._space(buffer, "The file")
                if len(self.planes) == self.file.first:
                    raise ReadError("it has no planes, so it is not an XSpace profile", offset=0)
        self._close(file)

    def _records(self, file: SourceFile) -> None:
        """Reads the records of a file, one at a time."""
        self.file.records = True
        skipped = self.file.skipped
        state = (file.size, file.modified)
        read = 0
        with file.open() as opened:
            decoded = getattr(opened, "decoded", None)
            for record in records(opened, file.label, self.limit):
                byte_range = f"bytes {record.begin:,} to {record.end:,}"
                if isinstance(record, Damage):
                    skipped.append(
                        f"{byte_range} were skipped: {record.reason}. Their content is missing."
                    )
                    continue
                try:
                    self._space(record.buffer, f"The record at byte {record.begin:,}")
                    read += 1
                except ReadError as error:
                    why = f"{error.reason} (byte {error.offset or 0:,} of the record)"
                    skipped.append(f"{byte_range} were skipped: {why}. Their content is missing.")
                    if not read and len(skipped) >= _MOST_STRANGE:
                        break
                if decoded is not None:
                    decoded(record.end)
        if (file.size, file.modified) != state:
            raise ReadError(
                "changed while being read; load it again when the profiler has finished writing.",
                path=file.label,
            )
        if not read:
            if skipped:
                why = f"none of its records is an XSpace: {skipped[0]}"
            else:
                why = "it contains no records."
            raise ReadError(f"{why} {_DAMAGED}", path=file.label)
        if len(self.planes) == self.file.first:
            raise ReadError(
                "its records have no planes, so it is not an XSpace profile.", path=file.label
            )

    def _space(self, buffer: Buffer, label: str) -> None:
        """Reads an XSpace, or one of the records that it comes in. What raises an error has left
        nothing behind.
        """
        file = self.file
        space = read_space(buffer.array, buffer.size, self.strings, in_part=self.in_part)
        clock = self._clock(space.planes)
        size = xspace_batches.batch_size(
            sum(len(line.starts) for plane in space.planes for line in plane.lines)
        )
        work: list[Batch] = []
        owner: list[int] = []
        for index, plane in enumerate(space.planes):
            work += xspace_batches.batches(
                plane, [_base(line.timestamp_ns, clock) for line in plane.lines], size
            )
            owner += [index] * (len(work) - len(owner))
        file_stamps = {
            line.timestamp_ns for plane in space.planes for line in plane.lines if len(line.starts)
        }
        for plane in space.planes:
            for line in plane.lines:
                # Now in the batches, which let go of them one after the other.
                line.starts = np.zeros(0, np.int64)
        xspace_batches.run(buffer, work)
        file.stamps |= file_stamps
        file.clock = clock if file_stamps else file.clock
        file.hostnames += space.hostnames
        file.errors += space.errors
        file.warnings += space.warnings
        if space.truncated_at >= 0:
            planes = 0 if space.is_partial else len(space.planes)
            text = notes.truncated(space.truncated_at, planes)
            file.truncations.append(f"{label} is truncated: {text}")
        # Planes of one record are planes of their own, as they are in a file that is not in parts.
        before = dict(file.known)
        first = len(self.planes)
        codes = [self._plane(plane, before.get(plane.name)) for plane in space.planes]
        for added in self.planes[first:]:
            added.is_cut = space.is_partial
        for index, batch in zip(owner, work, strict=True):
            self._batch(batch, codes[index], clock)

    def _clock(self, planes: Sequence[PlaneMessage]) -> _Clock:
        """What times of a record count from until all are read: as in those before it, unless only
        this one has absolute ones.
        """
        own_stats, before = (
            _clock_of(
                {line.timestamp_ns for plane in planes for line in plane.lines if len(line.starts)}
            ),
            self.file.clock,
        )
        if before is None or (own_stats[0] and (not before[0] or own_stats[1] > before[1])):
            return own_stats
        return before

    def _close(self, file: SourceFile) -> None:
        """What is known only when all of a file has been read."""
        file_trace = self.file
        for texts, note, more_of_them in (
            (file_trace.errors, notes.profiler_error, notes.more_profiler_errors),
            (file_trace.warnings, notes.profiler_message, notes.more_profiler_messages),
        ):
            # A part of an XSpace repeats those of the whole.
            texts = list(dict.fromkeys(texts)) if file_trace.records else texts
            for text in dict.fromkeys(texts[:_MOST_NOTES]):
                self.receipt.add(note(text))
            if len(texts) > _MOST_NOTES:
                self.receipt.add(more_of_them(len(texts) - _MOST_NOTES))
        if damaged := [*file_trace.truncations, *file_trace.skipped]:
            more = len(damaged) - 1
            other_lines = (
                ""
                if not more
                else (
                    " 1 more part of it is damaged."
                    if more == 1
                    else f" {more:,} more parts of it are damaged."
                )
            )
            self.receipt.cut_off(Cut(len(self.hosts), file.name, damaged[0] + other_lines))
        host = self._host(file_trace.hostnames, file.name)
        for plane in self.planes[file_trace.first :]:
            plane.host = host
        clock = _clock_of(file_trace.stamps)
        self.clocks.append(clock)
        for part in self.parts[file_trace.parts :]:
            index = 0
            for _, count, stamp in part.segments if part.clock != clock else ():
                now, then = _base(stamp, clock), _base(stamp, part.clock)
                if now is not None and then is not None and now != then:
                    part.start[index : index + count] += now - then
                index += count

    def _host(self, hostnames: list[str], file: str) -> str:
        own_events = (
            PurePath(file).name.removesuffix(".pb").removesuffix(".riegeli").removesuffix(".xplane")
        )
        host = hostnames[0] if hostnames else own_events
        if host in self.hosts:
            self.receipt.add(notes.equal_hosts(host, own_events))
            host = (
                own_events if own_events not in self.hosts else f"{own_events} ({len(self.hosts)})"
            )
        self.hosts.append(host)
        return host

    def _plane(self, plane: PlaneMessage, known_names: _Known | None) -> Int32s:
        """Numbers the names and lanes of a plane, of which some may be known; returns its name
        codes by place, and -1 behind them.
        """
        if known_names is None:
            known_names = _Known(len(self.planes))
            self.planes.append(Plane("", plane.name, dict(plane.facts), plane.ident))
            self.file.known[plane.name] = known_names
        else:
            facts = self.planes[known_names.plane].stats
            facts.update({name: value for name, value in plane.facts if name not in facts})
        first = len(self.names)
        codes = self._names(plane, known_names)
        names = plane.events
        programs: list[tuple[int, bytes]] = []
        for index, facts_of in names.facts.items():
            for key, value in facts_of if codes[index] >= first else ():
                if key == "Hlo Proto" and isinstance(value, bytes):
                    programs.append((index, value))
                else:
                    self.name_args.setdefault(key, {})[int(codes[index])] = value
        idents = program_idents(
            (names.names[index], int(names.keys[index]), dict(names.facts[index]).get("program_id"))
            for index, _ in programs
        )
        for (index, data), ident in zip(programs, idents, strict=True):
            self.modules.append(Module(names.names[index], ident, data, len(self.hosts)))
        self._state(
            "event_metadata",
            {
                int(codes[offset]): data
                for offset, data in names.metadata.items()
                if codes[offset] >= first
            },
        )
        for index, idents in names.children.items():
            if codes[index] >= first:
                places = names.places(np.array(idents, np.int64))
                self._state(
                    "event_children", {int(codes[index]): codes[places[places >= 0]].tolist()}
                )
        self._state(
            "arg_descriptions",
            {plane.stats.name(ident): text for ident, text in plane.stats.descriptions.items()},
        )
        for line in plane.lines:
            # Lines of equal id in one plane are one timeline; the first names it.
            line.lane = known_names.lanes.setdefault(line.line_id, len(self.lanes))
            if line.lane == len(self.lanes):
                self.lanes.append((known_names.plane, line))
        return codes

    def _names(self, plane: PlaneMessage, known_names: _Known) -> Int32s:
        first, names = len(self.names), plane.events
        if self.file.records:
            plane.unnamed = known_names.unnamed
            for ident, name in known_names.stats.items():
                plane.stats.names.setdefault(ident, name)
            known_names.stats = plane.stats.names
        codes = np.arange(first, first + len(names.names) + 1, dtype=np.int32)
        codes[-1] = -1
        if known_names.codes:
            keys = list(zip(names.keys.tolist(), names.names, strict=True))
            new = [index for index, key in enumerate(keys) if key not in known_names.codes]
            known_names.codes |= {keys[index]: first + i for i, index in enumerate(new)}
            codes[:-1] = [known_names.codes[key] for key in keys]
            self.names += [names.names[index] for index in new]
            self.display += [names.displays[index] for index in new]
        else:
            self.names += names.names
            self.display += names.displays
            if self.file.records:
                known_names.codes = dict(
                    zip(
                        zip(names.keys.tolist(), names.names, strict=True),
                        codes.tolist(),
                        strict=False,
                    )
                )
        if self.file.records:
            known_names.idents = {
                **dict(zip(names.keys.tolist(), codes.tolist(), strict=False)),
                **known_names.idents,
            }
            plane.known = known_names.idents
        return codes

    def _state(self, label: str, values: dict[Any, object]) -> None:
        if values:
            cast("dict[Any, object]", self.metadata.setdefault(label, {})).update(values)

    def _batch(self, batch: Batch, codes: Int32s, clock: _Clock) -> None:
        plane = batch.plane
        batch.name = codes[batch.name]
        if len(batch.unnamed):
            idents, inverse = np.unique(batch.unnamed, return_inverse=True)
            batch.name[batch.name < 0] = self._unnamed(plane, idents.tolist())[inverse]
        self._odd("distant", plane, batch.wild)
        self._odd("negative", plane, batch.negative)
        self._odd(
            "unnamed",
            plane,
            (
                sum(ident not in plane.known for ident in batch.unnamed.tolist())
                if plane.known
                else len(batch.unnamed)
            ),
        )
        for line, ident, occurrences, duration in batch.aggregated:
            index = int(plane.events.places(np.array([ident]))[0])
            code = int(codes[index]) if index >= 0 else int(self._unnamed(plane, [ident])[0])
            self.aggregated.append((plane.lines[line].lane, code, occurrences, duration))
        self.valueless += batch.valueless
        for text in batch.hidden:
            self.strings.decode(text)
        self.args.add(batch, self.events, self.strings, self.blobs)
        lines = [plane.lines[i] for i in batch.lines]
        segments = [
            (ln.lane, count, ln.timestamp_ns) for ln, count in zip(lines, batch.counts, strict=True)
        ]
        self.parts.append(
            _Part(len(self.hosts), clock, batch.name, batch.start, batch.duration, segments)
        )
        self.events += batch.count

    def _odd(self, label: str, plane: PlaneMessage, count: int) -> None:
        if count:
            planes = self.odd.setdefault(label, {})
            name = plane.name or "a plane without a name"
            planes[name] = planes.get(name, 0) + count

    def _unnamed(self, plane: PlaneMessage, idents: list[int]) -> Int32s:
        """Name codes of ids that the plane has no name for."""
        for ident in idents:
            if ident not in plane.unnamed and ident in plane.known:
                plane.unnamed[ident] = plane.known[ident]
            elif ident not in plane.unnamed:
                plane.unnamed[ident] = len(self.names)
                self.names.append(f"event {ident}")
                self.display.append(f"event {ident}")
        return np.array([plane.unnamed[ident] for ident in idents], np.int32)

    def trace(self) -> Trace:
        """All files as one trace."""
        epoch, late_ps = self._one_clock()
        self._lanes_by_plane()
        events = self._sorted()
        self.receipt.events = self.events
        native = library.load()
        if native.library is None:
            self.receipt.add(shared_notes.native_reader_missing("XSpace files", 8, native.reason))
        for label, planes in self.odd.items():
            count = sum(planes.values())
            in_planes = notes.in_planes(list(planes))
            if label == "distant":
                self.receipt.skip(notes.distant_times(in_planes), count, key="distant_times")
            elif label == "negative":
                self.receipt.add(shared_notes.negative_durations(count, in_planes))
            else:
                self.receipt.add(notes.unnamed_events(in_planes, count))
        if self.aggregated:
            self.receipt.add(notes.aggregated_events(len(self.aggregated)))
        if self.valueless:
            self.receipt.add(notes.valueless_stats(self.valueless))
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
            late_ps=late_ps,
            blobs=list(self.blobs.codes),
            aggregated=pd.DataFrame(
                self.aggregated, columns=["lane", "name", "occurrences", "duration"]
            ),
        )

    def _lanes_by_plane(self) -> None:
        """Puts the lanes of each plane together: a later record may have had more of them."""
        order = sorted(range(len(self.lanes)), key=lambda lane: self.lanes[lane][0])
        if order == list(range(len(order))):
            return
        position = {lane: index for index, lane in enumerate(order)}
        self.lanes = [self.lanes[lane] for lane in order]
        self.aggregated = [(position[lane], *rest) for lane, *rest in self.aggregated]  # type: ignore[misc]
        for part in self.parts:
            part.segments = [(position[lane], count, stamp) for lane, count, stamp in part.segments]

    def _one_clock(self) -> tuple[int, list[int]]:
        """Moves files with absolute times onto the earliest one's clock; returns its zero, ns, and
        how many ps later each begins.
        """
        epochs = [epoch if absolute >= EPOCH_NS else 0 for epoch, absolute in self.clocks]
        epoch = min((e for e in epochs if e), default=0)
        lates = [max(epoch_ - epoch, 0) * 1000 for epoch_ in epochs]
        for part in self.parts:
            late = lates[part.file]
            if not late:
                continue
            if late > LONGEST_PS:
                self.receipt.add(notes.clock_far_ahead(self.hosts[part.file]))
                continue
            index = 0
            for _, count, stamp in part.segments:
                if stamp >= self.clocks[part.file][1]:
                    part.start[index : index + count] += late
                index += count
        first = self._from_first(epoch)
        return first[0], [(late if late <= LONGEST_PS else 0) - first[1] for late in lates]

    def _from_first(self, epoch: int) -> tuple[int, int]:
        """Where an event began before the clock did, times count from that event; returns the zero,
        ns, and by how many ps it moved.
        """
        starts = [part.start for part in self.parts if len(part.start)]
        low = min((int(start.min()) for start in starts), default=0)
        if low >= 0 or max(int(start.max()) for start in starts) - low > LONGEST_PS:
            return epoch, 0
        for start in starts:
            start -= low
        return (epoch + low // 1000 if epoch else 0), low

    def _sorted(self) -> Events:
        """The events in the order of a trace."""
        segments = np.array(
            [s[:2] for part in self.parts for s in part.segments], np.int64
        ).reshape(-1, 2)
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
        planes = [self.planes[index] for index, _ in self.lanes]
        columns = {
            "lane": number,
            "host": [plane.host for plane in planes],
            "process": [plane.name for plane in planes],
            "thread": [line.display or line.name for line in lines],
            "line_id": [line.line_id for line in lines],
            "plane": [index for index, _ in self.lanes],
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


def _clock_of(stamps: set[int]) -> _Clock:
    """The clock of the lines that have these time stamps; its zero is 0 when the collector already
    made times relative.
    """
    absolute = EPOCH_NS if max(stamps, default=0) >= EPOCH_NS else _UPTIME_NS
    times = np.array([stamp for stamp in stamps if stamp >= absolute], np.int64)
    if not len(times):
        return 0, absolute
    # A line whose stamp is damaged does not place all others.
    return int(times[~far_from_middle(times)].min()), absolute


def _base(stamp: int, clock: _Clock) -> int | None:
    """What the offsets of a line count from, ps; None where that cannot be."""
    epoch, absolute = clock
    base = (stamp - (epoch if stamp >= absolute else 0)) * 1000
    return base if abs(base) <= LONGEST_PS else None


def _joined(parts: list[Any], dtype: type) -> Any:
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype)
    parts.clear()
    return joined


def _objects(texts: list[str]) -> npt.NDArray[np.object_]:
    result = np.empty(len(texts), object)
    result[:] = texts
    return result
