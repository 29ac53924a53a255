"""Track events as slices, instants, counters and arrows.

Format: https://perfetto.dev/docs/reference/trace-packet-proto (`TrackEvent`),
https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.receipt import Receipt
from nbprof.core.runs import rows_by_value, run_starts
from nbprof.core.trace import TEXT, Int32s, Int64s
from nbprof.core.wire import FIXED64
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.chrome.part import Rows, joined
from nbprof.formats.chrome.slices import packed
from nbprof.formats.perfetto import annotations as perfetto_annotations
from nbprof.formats.perfetto import notes
from nbprof.formats.perfetto import sequences as perfetto_sequences
from nbprof.formats.perfetto.fields import NUMBER, SMALL, Fields, Spec, numbered
from nbprof.formats.perfetto.sequences import Sequences
from nbprof.formats.perfetto.slices import pair
from nbprof.formats.perfetto.texts import Texts
from nbprof.formats.perfetto.tracks import Place, Track, Tracks

# Fields that are counted and not read: tasks, log messages, Chrome's own data, source locations,
# correlation ids, call stacks.
_TYPED = (
    5,
    21,
    24,
    25,
    26,
    27,
    28,
    29,
    32,
    33,
    34,
    35,
    38,
    39,
    40,
    41,
    43,
    49,
    50,
    52,
    53,
    54,
    55,
    56,
)
SPEC: Spec = {
    **dict.fromkeys((10, 11), NUMBER),
    9: SMALL,
    **dict.fromkeys((3, 4, 12, 22, 23, 30, 31, 36, 42, 44, 45, 46, 47, 48)),
    **dict.fromkeys(_TYPED),
}
"""The fields of a track event that are read."""
EVENT = 11
"""Where a packet has it."""
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4


@dataclass
class Events:
    """The track events of one file on their way into a trace.

    `usable` tells which packets are events that can be read, `time` is ns; `type` (0 for what is
    none), `track` (a number of `places`), `name` and `category` (codes) are of all packets.
    """

    fields: Fields
    buf: wire.Bytes
    sequences: Sequences
    tracks: Tracks
    texts: Texts
    receipt: Receipt
    usable: npt.NDArray[np.bool_]
    time: Int64s
    type: npt.NDArray[np.uint8] = field(init=False)
    track: Int32s = field(init=False)
    name: Int32s = field(init=False)
    category: Int32s = field(init=False)
    places: list[Place] = field(default_factory=list)
    uuids: list[int] = field(default_factory=list)
    first_lane: dict[tuple[str, str], int] = field(default_factory=dict)
    """The lane of each process that its counters go to."""

    def __post_init__(self) -> None:
        self.name = self._names()
        self.category = self._categories()
        self.type = self._types()
        self.track = self._find_tracks()

    def _names(self) -> Int32s:
        ident, table = self.fields.number(EVENT, 10), perfetto_sequences.NAME
        name = self.sequences.lookup(table, None, ident, self.texts.of_table(self.sequences, table))
        lost = (name < 0) & (ident != 0) & self.usable
        owner, start, end = self.fields.spans(EVENT, 23)
        if len(owner):
            codes = np.full(self.fields.count, -1, np.int32)
            codes[owner] = self.texts.spans(self.buf, start, end)
            name = np.where(codes >= 0, codes, name)
            lost &= codes < 0
        if lost.any():
            self.receipt.add(notes.unnamed_events(int(lost.sum())))
            name[lost] = self.texts.numbered("name", ident[lost])
        return name

    def _categories(self) -> Int32s:
        """The categories of each event as one text, joined by commas."""
        row, ident = self.fields.numbers(EVENT, 3)
        codes = self.texts.of_table(self.sequences, perfetto_sequences.CATEGORY)
        code = self.sequences.lookup(perfetto_sequences.CATEGORY, row, ident, codes)
        owner, start, end = self.fields.spans(EVENT, 22)
        if len(owner):
            row = np.concatenate([row, owner])
            code = np.concatenate([code, self.texts.spans(self.buf, start, end)])
        row, code = row[code >= 0], code[code >= 0]
        result = np.full(self.fields.count, -1, np.int32)
        result[row[::-1]] = code[::-1]
        if (row[1:] <= row[:-1]).any():
            several = np.flatnonzero(np.bincount(row)[row] > 1)
            listed = self.texts.listed
            groups: dict[int, list[int]] = {}
            for event, category in zip(row[several].tolist(), code[several].tolist(), strict=True):
                groups.setdefault(event, []).append(category)
            for event, categories in groups.items():
                names = [listed[category] for category in categories]
                result[event] = self.texts.code(",".join(names))
        return result

    def _types(self) -> npt.NDArray[np.uint8]:
        stated_type = self.fields.small(EVENT, 9)
        types = stated_type.astype(np.uint8)
        types[(stated_type < _BEGIN) | (stated_type > _COUNTER)] = 0
        types[~self.usable] = 0
        unread = int(((types == 0) & self.usable).sum())
        self.receipt.skip(notes.UNREAD_TYPES, unread, key="unread_event_types")
        return types

    def _find_tracks(self) -> Int32s:
        """The number of the track of each event, in `places` and `uuids`."""
        uuid = self.fields.number(EVENT, 11)
        lacks = self.usable & ~self.fields.has(EVENT, 11)
        if lacks.any():
            default = self.sequences.default
            tracks = [defaults.track for defaults in self.sequences.defaults]
            has_track = np.array([track is not None for track in (*tracks, None)])
            default_tracks = np.array([track or 0 for track in (*tracks, None)], np.int64)
            uuid = np.where(lacks & has_track[default], default_tracks[default], uuid)
        code, uuids = numbered(uuid)
        return self._placed(code, uuids)

    def _placed(self, code: Int32s, uuids: list[int]) -> Int32s:
        """Tracks that are drawn in one place are one track."""
        first = np.full(len(uuids), -1, np.int64)
        events = np.flatnonzero(self.type > 0)[::-1]
        first[code[events]] = events
        listed = self.texts.listed
        number: dict[tuple[object, ...], int] = {}
        table = np.zeros(len(uuids), np.int32)
        # In the order in which events come upon them.
        for track in np.argsort(first, kind="stable").tolist():
            if first[track] < 0:
                continue
            name = int(self.name[first[track]])
            title = "" if name < 0 else listed[name]
            location = self.tracks.locate(uuids[track], title)
            table[track] = number.setdefault(location.key, len(number))
            if table[track] == len(self.places):
                self.places.append(location)
                self.uuids.append(uuids[track])
        return table[code]

    def add_to(self, builder: Builder, host: str) -> None:
        """Puts the events into a trace."""
        begins, ends = self.type == _BEGIN, self.type == _END
        other = pair(self.track, self.time, begins, ends)
        lost = int((ends & (other < 0)).sum())
        self.receipt.skip(notes.ENDS_WITHOUT_BEGIN, lost, key="ends_without_begin")
        marks = np.flatnonzero(self.type == _INSTANT)
        # In the order of the file, which tells what is around what where times are equal.
        event = np.flatnonzero(begins | (self.type == _INSTANT) if len(marks) else begins)
        other_of_event = other[event]
        duration = self.time[other_of_event]
        duration -= self.time[event]
        alone = np.flatnonzero(other_of_event < 0)
        duration[alone] = 0
        open_ = alone[begins[event[alone]]]
        if len(open_):
            self.receipt.add(notes.open_slices(len(open_)))
            duration[open_] = int(self.time[self.type > 0].max()) - self.time[event[open_]]
        slice_of = _SliceOf(event, np.flatnonzero(ends & (other >= 0)), other)
        lane = self._lanes(builder, host, event, duration)
        args = self._args(builder, slice_of, event, marks)
        name = self.name[event]
        if len(name) and int(name.min()) < 0:
            name = np.where(name < 0, np.int32(builder.texts[""]), name)
        builder.add(lane, name, self.time[event], duration, args)
        self._arrows(builder, slice_of, lane)
        self._counters(builder, host)

    def _lanes(self, builder: Builder, host: str, event: Int64s, duration: Int64s) -> Int32s:
        """The lane of each slice. Tracks of one name beside each other share lanes where they don't
        overlap.
        """
        track, start = self.track[event], self.time[event]
        used = np.flatnonzero(np.bincount(track, minlength=len(self.places)))
        low = np.full(len(self.places), np.iinfo(np.int64).max)
        high = np.full(len(self.places), np.iinfo(np.int64).min)
        grouped = np.array([location.group is not None for location in self.places] + [False])
        rows = np.flatnonzero(grouped[track])
        if len(rows):
            np.minimum.at(low, track[rows], start[rows])
            np.maximum.at(high, track[rows], start[rows] + duration[rows])
        groups: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}
        table = np.zeros(len(self.places) + 1, np.int32)
        for code in used.tolist():
            location = self.places[code]
            groups.setdefault(location.group or location.key, []).append(
                (int(low[code]), int(high[code]), code)
            )
        names: dict[tuple[object, ...], int] = {}
        for chains in groups.values():
            sub = packed(list(chains)) if len(chains) > 1 else {chains[0][2]: 0}
            lanes: dict[int, int] = {}
            for _, _, code in chains:
                location = self.places[code]
                if sub[code] not in lanes:
                    label = self._label(names, location)
                    lanes[sub[code]] = builder.lane(
                        host,
                        location.process,
                        label,
                        pid=location.pid,
                        tid=location.tid,
                        labels=location.labels,
                        process_sort=location.process_sort,
                        sort=location.sort,
                    )
                table[code] = lanes[sub[code]]
                self.first_lane.setdefault((location.process, location.pid), lanes[sub[code]])
        return table[track]

    @staticmethod
    def _label(names: dict[tuple[object, ...], int], location: Place) -> str:
        """The name of a row; further ones of that name are numbered."""
        if location.tid:
            return location.thread
        key = (location.process, location.pid, location.thread)
        names[key] = names.get(key, 0) + 1
        if names[key] == 1:
            return location.thread
        return f"{location.thread} {names[key]}"

    def _args(
        self, builder: Builder, slice_of: _SliceOf, event: Int64s, marks: Int64s
    ) -> dict[str, Values]:
        """Args by name: annotations, those of ends behind those of begins, then what an event
        states otherwise.
        """
        result: dict[str, Values] = {}
        spans = self.fields.spans(EVENT, 4)
        on_slice = slice_of[spans[0]] >= 0
        if not on_slice.all():
            count = int((~on_slice).sum())
            self.receipt.add(notes.details_without_slice("Annotations of", count))
            spans = (spans[0][on_slice], spans[1][on_slice], spans[2][on_slice])
        arrays, damaged = perfetto_annotations.read(self.buf, spans, self.sequences, self.texts)
        if damaged:
            self.receipt.add(notes.damaged_annotations(damaged))
        typed = sum(
            len(self.fields.spans(EVENT, number)[0]) + len(self.fields.numbers(EVENT, number)[0])
            for number in _TYPED
        )
        if typed:
            self.receipt.add(notes.unread_event_fields(typed))
        for key, rows in arrays.items():
            result[key] = Rows(slice_of[rows.event], rows.kind, rows.value)
        if (self.category[event] >= 0).any():
            categories = [rows_of(Coded(self.category[event]))]
            if "cat" in result:
                categories.insert(0, rows_of(result["cat"]))
            result["cat"] = joined(categories)
        if len(marks):
            order = slice_of[marks]
            result["ph"] = Rows(
                order,
                np.full(len(order), TEXT, np.uint8),
                np.full(len(order), builder.texts["i"], np.int64),
            )
        return result

    def _arrows(self, builder: Builder, slice_of: _SliceOf, lane: Int32s) -> None:
        """Points of arrows: the first of an id begins, those that follow are steps, one that
        terminates it ends.
        """
        rows: list[Int64s] = []
        idents: list[Int64s] = []
        last: list[npt.NDArray[np.bool_]] = []
        for number, kind, terminates in (
            (47, FIXED64, False),
            (36, wire.VARINT, False),
            (48, FIXED64, True),
            (42, wire.VARINT, True),
        ):
            row, value = self.fields.numbers(EVENT, number, kind=kind)
            packed_row, packed_value = self._packed(number, kind)
            for event_row, values in ((row, value), (packed_row, packed_value)):
                rows.append(event_row.astype(np.int64))
                idents.append(values)
                last.append(np.full(len(event_row), terminates))
        event, ident, final = np.concatenate(rows), np.concatenate(idents), np.concatenate(last)
        valid = slice_of[event] >= 0
        if not valid.all():
            count = int((~valid).sum())
            self.receipt.add(notes.details_without_slice("Arrow ends at", count))
        event, ident, final = event[valid], ident[valid], final[valid]
        if len(event):
            order = np.lexsort((event, final, self.time[event], ident))
            event, ident, final = event[order], ident[order], final[order]
            fresh = np.append(True, ident[1:] != ident[:-1])
            fresh[1:] |= final[:-1]
            phase = np.where(final, 2, np.where(fresh, 0, 1)).astype(np.uint8)
            builder.flows(phase, _numbered(ident), "flow", lane[slice_of[event]], self.time[event])

    def _packed(self, number: int, kind: int) -> tuple[Int32s, Int64s]:
        """The same numbers where a writer packs them."""
        row, start, end = self.fields.spans(EVENT, number)
        damaged = 0
        result: list[tuple[int, int]] = []
        for owner, a, b in zip(row.tolist(), start.tolist(), end.tolist(), strict=True):
            data = bytes(self.buf.data[a:b])
            values: list[int] = []
            if kind == FIXED64:
                values = np.frombuffer(data[: len(data) // 8 * 8], "<i8").tolist()
            else:
                try:
                    values = perfetto_sequences.numbers_of({1: [data]}, 1)
                except ReadError:
                    damaged += 1
            result += [(owner, value) for value in values]
        if damaged:
            self.receipt.add(notes.damaged_lists(damaged))
        table = np.array(result, np.int64).reshape(-1, 2)
        return table[:, 0].astype(np.int32), table[:, 1]

    def _counters(self, builder: Builder, host: str) -> None:
        """Samples of counters: events of their own, and values that slices carry."""
        samples = [
            self._counter_events(),
            self._extra(31, 12, wire.VARINT),
            self._extra(45, 46, FIXED64),
        ]
        uuids, events, values = (np.concatenate(column) for column in zip(*samples, strict=True))
        times = self.time[events]
        states = self.sequences.state[events]
        unread = 0
        for rows in rows_by_value(uuids):
            track_uuid = int(uuids[rows[0]])
            track = self.tracks.tracks.get(track_uuid) or Track()
            if track.builtin:
                unread += len(rows)
                continue
            location = self.tracks.locate(track_uuid, "counter")
            sample = values[rows] * track.unit
            if track.adds:
                sample = _added_up(sample, events[rows], states[rows])
            home = (location.process, location.pid)
            if home not in self.first_lane:
                # A process that has nothing else has a lane for its counters.
                self.first_lane[home] = builder.lane(
                    host,
                    location.process,
                    "counters",
                    pid=location.pid,
                    labels=location.labels,
                    process_sort=location.process_sort,
                )
            order = np.argsort(times[rows], kind="stable")
            builder.counter(
                self.first_lane[home], location.thread, times[rows][order], sample[order]
            )
        if unread:
            self.receipt.add(notes.thread_time_samples(unread))

    def _counter_events(self) -> tuple[Int64s, Int64s, npt.NDArray[np.float64]]:
        """Values of events that are samples of a counter: track, event and value of each."""
        event = np.flatnonzero(self.type == _COUNTER)
        if not len(event):
            return np.zeros(0, np.int64), event, np.zeros(0)
        uuid = np.array([*self.uuids, 0], np.int64)[self.track[event]]
        has_integer = self.fields.has(EVENT, 30)[event]
        has_double = self.fields.has(EVENT, 44)[event]
        integers = self.fields.number(EVENT, 30)[event].astype(np.float64)
        doubles = self.fields.number(EVENT, 44, kind=FIXED64)[event].view(np.float64)
        values = np.where(has_double, doubles, integers)
        has_value = has_integer | has_double
        count = int((~has_value).sum())
        self.receipt.skip(notes.COUNTERS_WITHOUT_VALUE, count, key="counters_without_value")
        return uuid[has_value], event[has_value], values[has_value]

    def _extra(
        self, tracks: int, values_field: int, kind: int
    ) -> tuple[Int64s, Int64s, npt.NDArray[np.float64]]:
        """Values of counters that events carry: track, event and value of each. The tracks are
        those of the event, or the default ones.
        """
        row, value = self.fields.numbers(EVENT, values_field, kind=kind)
        more_row, more = self._packed(values_field, kind)
        row, value = np.concatenate([row, more_row]), np.concatenate([value, more])
        used = self.type[row] > 0
        row, value = row[used], value[used]
        event = row.astype(np.int64)
        values = value.view(np.float64) if kind == FIXED64 else value.astype(np.float64)
        if not len(row):
            return row.astype(np.int64), event, values
        nth = _nth(row)
        own_row, own_track = self.fields.numbers(EVENT, tracks)
        own_keys = zip(own_row.tolist(), _nth(own_row).tolist(), strict=True)
        places = dict(zip(own_keys, own_track.tolist(), strict=True))
        has_own = np.isin(row, own_row)
        default = self.sequences.default[row]
        lists = [defaults.counters for defaults in self.sequences.defaults]
        if kind == FIXED64:
            lists = [defaults.double_counters for defaults in self.sequences.defaults]
        # Of the packets for which no defaults apply.
        lists.append([])
        result = np.zeros(len(row), np.int64)
        valid = np.ones(len(row), np.bool_)
        without = np.flatnonzero(~has_own)
        for group in rows_by_value(default[without]):
            rows = without[group]
            listed = np.array(lists[default[rows[0]]], np.int64)
            fits = nth[rows] < len(listed)
            valid[rows] = fits
            result[rows[fits]] = listed[nth[rows[fits]]]
        for position in np.flatnonzero(has_own).tolist():
            location = places.get((int(row[position]), int(nth[position])))
            valid[position] = location is not None
            result[position] = location or 0
        count = int((~valid).sum())
        self.receipt.skip(notes.COUNTERS_WITHOUT_TRACK, count, key="counters_without_track")
        return result[valid], event[valid], values[valid]


class _SliceOf:
    """The slice of packets, -1 for none; what ends one belongs to it. Made when it is first asked
    for: most traces have no args.
    """

    def __init__(self, event: Int64s, end: Int64s, other: Int32s) -> None:
        self._event, self._end, self._other = event, end, other

    def __getitem__(self, rows: Int32s | Int64s) -> Int32s:
        return self._table[rows] if len(rows) else np.zeros(0, np.int32)

    @cached_property
    def _table(self) -> Int32s:
        result = np.full(len(self._other), -1, np.int32)
        result[self._event] = np.arange(len(self._event), dtype=np.int32)
        result[self._end] = result[self._other[self._end]]
        return result


def rows_of(values: Values) -> Rows:
    """Values of an arg as rows."""
    if isinstance(values, Rows):
        return values
    assert isinstance(values, Coded)
    rows = np.flatnonzero(values.codes >= 0).astype(np.int32)
    return Rows(rows, np.full(len(rows), TEXT, np.uint8), values.codes[rows].astype(np.int64))


def _nth(row: Int32s) -> Int64s:
    """For rows in runs, which one of its run each is."""
    starts = run_starts(row)
    lengths = np.diff(np.append(starts, len(row)))
    return np.arange(len(row)) - np.repeat(starts, lengths)


def _numbered(ident: Int64s) -> Int64s:
    """Ids of arrows as numbers that are no text: those of 2^63 and more are numbered anew, below
    -1.
    """
    large = ident < 0
    if not large.any():
        return ident
    result = ident.copy()
    result[large] = -2 - np.unique(ident[large], return_inverse=True)[1].reshape(-1)
    return result


def _added_up(
    steps: npt.NDArray[np.float64], events: Int64s, states: Int32s
) -> npt.NDArray[np.float64]:
    """Values of a counter of which samples state the change: their sums since the state of the
    sequence began.
    """
    order = np.lexsort((events, states))
    total = np.cumsum(steps[order])
    first = np.flatnonzero(np.append(True, np.diff(states[order]) != 0))
    before = np.repeat(total[first] - steps[order][first], np.diff(np.append(first, len(order))))
    result = np.empty(len(order))
    result[order] = total - before
    return result
