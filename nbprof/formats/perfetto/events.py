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
from nbprof.core.runs import rows_by_value
from nbprof.core.trace import TEXT, Int32s, Int64s, Receipt
from nbprof.core.wire import FIXED64
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.chrome.part import Rows, joined
from nbprof.formats.chrome.slices import packed
from nbprof.formats.perfetto import annotations as perfetto_annotations
from nbprof.formats.perfetto import sequences as perfetto_sequences
from nbprof.formats.perfetto.fields import Fields, Spec, numbered
from nbprof.formats.perfetto.sequences import Sequences
from nbprof.formats.perfetto.slices import Pairs, pair
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
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 22, 23, 30, 31, 36, 42, 44, 45, 46, 47, 48)),
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
        own, start, end = self.fields.spans(EVENT, 23)
        if len(own):
            codes = np.full(self.fields.count, -1, np.int32)
            codes[own] = self.texts.spans(self.buf, start, end)
            name = np.where(codes >= 0, codes, name)
            lost &= codes < 0
        if lost.any():
            self.receipt.warn(
                f"Events whose names are not in the file, shown by number: {int(lost.sum()):,}."
            )
            name[lost] = self.texts.numbered("name", ident[lost])
        return name

    def _categories(self) -> Int32s:
        """The categories of each event as one text, joined by commas."""
        row, ident = self.fields.numbers(EVENT, 3)
        codes = self.texts.of_table(self.sequences, perfetto_sequences.CATEGORY)
        code = self.sequences.lookup(perfetto_sequences.CATEGORY, row, ident, codes)
        own, start, end = self.fields.spans(EVENT, 22)
        if len(own):
            row, code = (
                np.concatenate([row, own]),
                np.concatenate([code, self.texts.spans(self.buf, start, end)]),
            )
        row, code = row[code >= 0], code[code >= 0]
        out = np.full(self.fields.count, -1, np.int32)
        out[row[::-1]] = code[::-1]
        if (row[1:] <= row[:-1]).any():
            several = np.flatnonzero(np.bincount(row)[row] > 1)
            listed = self.texts.listed
            groups: dict[int, list[int]] = {}
            for at, one in zip(row[several].tolist(), code[several].tolist(), strict=True):
                groups.setdefault(at, []).append(one)
            known: dict[tuple[int, ...], int] = {}
            for at, ones in groups.items():
                key = tuple(ones)
                if key not in known:
                    known[key] = self.texts.code(",".join(listed[one] for one in key))
                out[at] = known[key]
        return out

    def _types(self) -> npt.NDArray[np.uint8]:
        stated = self.fields.small(EVENT, 9)
        out = stated.astype(np.uint8)
        out[(stated < _BEGIN) | (stated > _COUNTER)] = 0
        out[~self.usable] = 0
        self.receipt.skip(
            "left out: track events of a type that is not read (states, metadata, samples, those of"
            " old recorders).",
            int(((out == 0) & self.usable).sum()),
        )
        return out

    def _find_tracks(self) -> Int32s:
        """The number of the track of each event, in `places` and `uuids`."""
        uuid = self.fields.number(EVENT, 11)
        lacks = self.usable & ~self.fields.has(EVENT, 11)
        if lacks.any():
            default = self.sequences.default
            stated = np.array(
                [one.track if one.track is not None else 0 for one in self.sequences.defaults]
                + [0],
                np.int64,
            )
            told = np.array([one.track is not None for one in self.sequences.defaults] + [False])
            uuid = np.where(lacks & told[default], stated[default], uuid)
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
            place = self.tracks.place(uuids[track], listed[name] if name >= 0 else "")
            table[track] = number.setdefault(place.key, len(number))
            if table[track] == len(self.places):
                self.places.append(place)
                self.uuids.append(uuids[track])
        return table[code]

    def add_to(self, builder: Builder, host: str) -> None:
        """Puts the events into a trace."""
        begins = self.type == _BEGIN
        spans = np.flatnonzero(begins | (self.type == _END))
        # Nearly always all packets from one on: then nothing is copied.
        some: slice | Int64s = spans
        if len(spans) and spans[-1] - spans[0] + 1 == len(spans):
            some = slice(int(spans[0]), int(spans[-1]) + 1)
        pairs = pair(self.track[some], self.time[some], begins[some])
        receipt = self.receipt
        receipt.skip("left out: ends of slices without a begin.", len(pairs.lost))
        marks = np.flatnonzero(self.type == _INSTANT)
        if isinstance(some, slice):
            for column in (pairs.begin, pairs.end, pairs.open):
                column += some.start
        else:
            pairs = Pairs(
                spans[pairs.begin], spans[pairs.end], spans[pairs.open], spans[pairs.lost]
            )
        begin, end, open_ = pairs.begin, pairs.end, pairs.open
        lasted = np.zeros(len(self.time), np.int64)
        lasted[begin] = self.time[end] - self.time[begin]
        if len(open_):
            receipt.warn(f"Slices without an end, drawn to the end of the trace: {len(open_):,}.")
            lasted[open_] = int((self.time + lasted)[self.type > 0].max()) - self.time[open_]
        # In the order of the file, which tells what is around what where times are equal.
        is_slice = begins | (self.type == _INSTANT) if len(marks) else begins
        event = np.flatnonzero(is_slice)
        duration = lasted[event]
        slice_of = _SliceOf(len(self.time), event, begin, end)
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
        grouped = np.array([place.group is not None for place in self.places] + [False])
        mine = np.flatnonzero(grouped[track])
        if len(mine):
            np.minimum.at(low, track[mine], start[mine])
            np.maximum.at(high, track[mine], start[mine] + duration[mine])
        groups: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}
        table = np.zeros(len(self.places) + 1, np.int32)
        for one in used.tolist():
            place = self.places[one]
            groups.setdefault(place.group or place.key, []).append(
                (int(low[one]), int(high[one]), one)
            )
        names: dict[tuple[object, ...], int] = {}
        for chains in groups.values():
            sub = packed(list(chains)) if len(chains) > 1 else {chains[0][2]: 0}
            lanes: dict[int, int] = {}
            for _, _, one in chains:
                place = self.places[one]
                if sub[one] not in lanes:
                    label = self._label(names, place)
                    lanes[sub[one]] = builder.lane(
                        host, place.process, label, pid=place.pid, tid=place.tid, labels=place.labels,
                        process_sort=place.process_sort, sort=place.sort,
                    )  # fmt: skip
                table[one] = lanes[sub[one]]
                self.first_lane.setdefault((place.process, place.pid), lanes[sub[one]])
        return table[track]

    @staticmethod
    def _label(names: dict[tuple[object, ...], int], place: Place) -> str:
        """The name of a row; further ones of that name are numbered."""
        if place.tid:
            return place.thread
        key = (place.process, place.pid, place.thread)
        names[key] = names.get(key, 0) + 1
        return place.thread if names[key] == 1 else f"{place.thread} {names[key]}"

    def _args(
        self, builder: Builder, slice_of: _SliceOf, event: Int64s, marks: Int64s
    ) -> dict[str, Values]:
        """Args by name: annotations, those of ends behind those of begins, then what an event
        states otherwise.
        """
        out: dict[str, Values] = {}
        spans = self.fields.spans(EVENT, 4)
        wanted = slice_of[spans[0]] >= 0
        if not wanted.all():
            self._homeless("Annotations of", int((~wanted).sum()))
            spans = (spans[0][wanted], spans[1][wanted], spans[2][wanted])
        found, damaged = perfetto_annotations.read(self.buf, spans, self.sequences, self.texts)
        if damaged:
            self.receipt.warn(f"Annotations that could not be read, left out: {damaged:,}.")
        typed = sum(
            len(self.fields.spans(EVENT, number)[0]) + len(self.fields.numbers(EVENT, number)[0])
            for number in _TYPED
        )
        if typed:
            self.receipt.info(
                "Event fields other than annotations (call stacks, log messages, source"
                f" locations), not read: {typed:,}."
            )
        for key, rows in found.items():
            out[key] = Rows(slice_of[rows.event], rows.kind, rows.value)
        if (self.category[event] >= 0).any():
            category = Coded(self.category[event])
            out["cat"] = (
                category if "cat" not in out else joined([rows_of(out["cat"]), rows_of(category)])
            )
        if len(marks):
            order = slice_of[marks]
            out["ph"] = Rows(
                order,
                np.full(len(order), TEXT, np.uint8),
                np.full(len(order), builder.texts["i"], np.int64),
            )
        return out

    def _homeless(self, what: str, count: int) -> None:
        """Says of what is left out that it belongs to nothing that is drawn."""
        self.receipt.info(
            f"{what} events other than slices (counter samples, omitted events), not shown:"
            f" {count:,}."
        )

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
            for one, values in ((row, value), (packed_row, packed_value)):
                rows.append(one.astype(np.int64))
                idents.append(values)
                last.append(np.full(len(one), terminates))
        event, ident, final = np.concatenate(rows), np.concatenate(idents), np.concatenate(last)
        known = slice_of[event] >= 0
        if not known.all():
            self._homeless("Arrow ends at", int((~known).sum()))
        event, ident, final = event[known], ident[known], final[known]
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
        out: list[tuple[int, int]] = []
        for one, a, b in zip(row.tolist(), start.tolist(), end.tolist(), strict=True):
            data = bytes(self.buf.data[a:b])
            if kind == FIXED64:
                out += [
                    (one, value)
                    for value in np.frombuffer(data[: len(data) // 8 * 8], "<i8").tolist()
                ]
            else:
                try:
                    out += [(one, value) for value in perfetto_sequences.numbers_of({1: [data]}, 1)]
                except ReadError:
                    damaged += 1
        if damaged:
            self.receipt.warn(
                f"Lists of counter values or ids of arrows that are damaged, left out: {damaged:,}."
            )
        table = np.array(out, np.int64).reshape(-1, 2)
        return table[:, 0].astype(np.int32), table[:, 1]

    def _counters(self, builder: Builder, host: str) -> None:
        """Samples of counters: events of their own, and values that slices carry."""
        single = np.flatnonzero(self.type == _COUNTER)
        uuid: list[Int64s] = []
        time: list[Int64s] = []
        value: list[npt.NDArray[np.float64]] = []
        order: list[Int64s] = []
        if len(single):
            kinds = np.array([*self.uuids, 0], np.int64)[self.track[single]]
            integer, double = self.fields.has(EVENT, 30)[single], self.fields.has(EVENT, 44)[single]
            doubles = self.fields.number(EVENT, 44, kind=FIXED64)[single].view(np.float64)
            values = np.where(
                double, doubles, self.fields.number(EVENT, 30)[single].astype(np.float64)
            )
            there = integer | double
            self.receipt.skip("left out: samples of counters without a value.", int((~there).sum()))
            at = single[there]
            uuid, time, value, order = [kinds[there]], [self.time[at]], [values[there]], [at]
        for tracks, given, kind in ((31, 12, wire.VARINT), (45, 46, FIXED64)):
            whose, event, values = self._extra(tracks, given, kind)
            uuid.append(whose)
            time.append(self.time[event])
            value.append(values)
            order.append(event)
        uuids, times, values, at = (
            np.concatenate(uuid),
            np.concatenate(time),
            np.concatenate(value),
            np.concatenate(order),
        )
        state_ = self.sequences.state[at]
        unread = 0
        for mine in rows_by_value(uuids):
            one = int(uuids[mine[0]])
            track = self.tracks.tracks.get(one) or Track()
            if track.builtin:
                unread += len(mine)
                continue
            place = self.tracks.place(one, "counter")
            sample = values[mine] * track.unit
            if track.adds:
                # What has been added since the state of the sequence began.
                turn = np.lexsort((at[mine], state_[mine]))
                total = np.cumsum(sample[turn])
                first = np.flatnonzero(np.append(True, np.diff(state_[mine][turn]) != 0))
                before = np.repeat(
                    total[first] - sample[turn][first], np.diff(np.append(first, len(turn)))
                )
                sample = np.empty(len(turn))
                sample[turn] = total - before
            home = (place.process, place.pid)
            if home not in self.first_lane:
                # A process that has nothing else has a lane for its counters.
                self.first_lane[home] = builder.lane(
                    host,
                    place.process,
                    "counters",
                    pid=place.pid,
                    labels=place.labels,
                    process_sort=place.process_sort,
                )
            turn = np.argsort(times[mine], kind="stable")
            builder.counter(self.first_lane[home], place.thread, times[mine][turn], sample[turn])
        if unread:
            self.receipt.info(f"Thread time and instruction samples, not shown: {unread:,}.")

    def _extra(
        self, tracks: int, given: int, kind: int
    ) -> tuple[Int64s, Int64s, npt.NDArray[np.float64]]:
        """Values of counters that events carry: track, event and value of each. The tracks are
        those of the event, or the default ones.
        """
        row, value = self.fields.numbers(EVENT, given, kind=kind)
        more_row, more = self._packed(given, kind)
        row, value = np.concatenate([row, more_row]), np.concatenate([value, more])
        used = self.type[row] > 0
        row, value = row[used], value[used]
        event = row.astype(np.int64)
        values = value.view(np.float64) if kind == FIXED64 else value.astype(np.float64)
        if not len(row):
            return row.astype(np.int64), event, values
        nth = _nth(row)
        own_row, own = self.fields.numbers(EVENT, tracks)
        places = dict(
            zip(
                zip(own_row.tolist(), _nth(own_row).tolist(), strict=True),
                own.tolist(),
                strict=True,
            )
        )
        has_own = np.isin(row, own_row)
        default = self.sequences.default[row]
        lists = [
            one.counters if kind != FIXED64 else one.double_counters
            for one in self.sequences.defaults
        ]
        out = np.zeros(len(row), np.int64)
        known = np.ones(len(row), np.bool_)
        without = np.flatnonzero(~has_own)
        for mine in (without[group] for group in rows_by_value(default[without])):
            one = int(default[mine[0]])
            listed = np.array(lists[one] if one >= 0 else [], np.int64)
            fits = nth[mine] < len(listed)
            known[mine] = fits
            out[mine[fits]] = listed[nth[mine[fits]]]
        for at in np.flatnonzero(has_own).tolist():
            found = places.get((int(row[at]), int(nth[at])))
            known[at] = found is not None
            out[at] = found or 0
        self.receipt.skip("left out: values of counters without a track.", int((~known).sum()))
        return out[known], event[known], values[known]


class _SliceOf:
    """The slice of packets, -1 for none; what ends one belongs to it. Made when it is first asked
    for: most traces have no args.
    """

    def __init__(self, packets: int, event: Int64s, begin: Int64s, end: Int64s) -> None:
        self._packets = packets
        self._event = event
        self._begin, self._end = begin, end

    def __getitem__(self, rows: Int32s | Int64s) -> Int32s:
        return self._table[rows] if len(rows) else np.zeros(0, np.int32)

    @cached_property
    def _table(self) -> Int32s:
        out = np.full(self._packets, -1, np.int32)
        out[self._event] = np.arange(len(self._event), dtype=np.int32)
        out[self._end] = out[self._begin]
        return out


def rows_of(values: Values) -> Rows:
    """Values of an arg as rows."""
    if isinstance(values, Rows):
        return values
    assert isinstance(values, Coded)
    at = np.flatnonzero(values.codes >= 0).astype(np.int32)
    return Rows(at, np.full(len(at), TEXT, np.uint8), values.codes[at].astype(np.int64))


def _nth(row: Int32s) -> Int64s:
    """For rows in runs, which one of its run each is."""
    place = np.arange(len(row))
    first = np.append(True, row[1:] != row[:-1]) if len(row) else np.zeros(0, np.bool_)
    return place - np.maximum.accumulate(np.where(first, place, 0)) if len(row) else place


def _numbered(ident: Int64s) -> Int64s:
    """Ids of arrows as numbers that are no text: those of 2^63 and more are numbered anew, below
    -1.
    """
    large = ident < 0
    if not large.any():
        return ident
    out = ident.copy()
    out[large] = -2 - np.unique(ident[large], return_inverse=True)[1].reshape(-1)
    return out
