"""Makes a `Trace` of the events of Chrome traces: lanes and their names, one clock, slices, flows,
counters, args.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nbprof.core.receipt import Receipt
from nbprof.core.trace import TEXT, ArgColumn, Flows, Int64s
from nbprof.formats.chrome import notes, slices
from nbprof.formats.chrome.part import Part, Texts, Times, join
from nbprof.formats.chrome.slices import dense, letters, relative

_OTHERS = {
    "N": "object records",
    "O": "object records",
    "D": "object records",
    "P": "samples",
    "c": "clock marks",
    "v": "memory dumps",
    "V": "memory dumps",
    "(": "contexts",
    ")": "contexts",
    "=": "links",
}
_FLOW_PHASE = {"s": 0, "t": 1, "f": 2}


@dataclass
class Track:
    """One lane before it has its place."""

    pid: int
    tid: int
    thread: str | None = None
    """Name of a lane of async events or counters."""


@dataclass
class Names:
    """What the metadata events say about processes and threads."""

    process: dict[int, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    process_sort: dict[int, int] = field(default_factory=dict)
    thread: dict[tuple[int, int], str] = field(default_factory=dict)
    thread_sort: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass
class File:
    """The slices, flows and counters of one file; times in ps after `first` (ns)."""

    host: str
    part: Part
    first: int
    drawn: slices.Slices
    tracks: list[Track]
    names: Names
    flows: Flows
    counters: list[tuple[int, str, Int64s, np.ndarray]]


def _both(pid: int, tid: int) -> int:
    """A pair of text codes (or -1) as one number."""
    return (pid << 32) | (tid & 0xFFFFFFFF)


def _pairs(part: Part, rows: Int64s) -> Int64s:
    """(pid, tid) of events as one number each."""
    return (part.text["pid"][rows].astype(np.int64) << 32) | (
        part.text["tid"][rows].astype(np.int64) & 0xFFFFFFFF
    )


class Builder:
    """Collects files, then numbers lanes and names across them."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.texts = Texts()
        self.files: list[File] = []
        self.metadata: dict[str, object] = {}

    def add(self, host: str, parts: list[Part], base_ns: int) -> None:
        """Adds the events of one file.

        Parameters
        ----------
        host : str
        parts : list of Part
            It is empty afterwards, so that nothing is in memory twice.
        base_ns : int
            What the file's times count from.
        """
        part = join(parts, self.texts)
        parts.clear()
        if part.rounded:
            self.receipt.add(notes.rounded_times(part.rounded))
        phase = part.phase
        names = self._read_names(part, np.flatnonzero(phase == ord("M")))
        valid = np.isin(phase, letters(*"XBEbenSFTpiIRCstfM"))
        self._count_others(part, np.flatnonzero(~valid))
        first, good = slices.clock(part, valid & (phase != ord("M")), self.receipt)
        tracks: list[Track] = []
        unfinished = self._slices(part, good, first, tracks)
        flows, counters = (
            self._flows(part, good, first, tracks),
            self._counters(part, good, first, tracks),
        )
        # The times are those of the slices from here on.
        part.start = part.length = Times.none(0)
        self.files.append(
            File(host, part, base_ns + first, unfinished, tracks, names, flows, counters)
        )

    def _count_others(self, part: Part, rows: Int64s) -> None:
        codes, counts = np.unique(part.phase[rows], return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            letter = chr(code)
            if code in (0, 255):
                self.receipt.skip(notes.NO_PHASE, count, key="invalid_phase")
            elif letter in _OTHERS:
                # Nothing of what ran is missing without them.
                self.receipt.add(notes.unused_phase(_OTHERS[letter], letter, count))
            else:
                self.receipt.skip(notes.unknown_phase(letter), count, key="unknown_phase")

    def _read_names(self, part: Part, rows: Int64s) -> Names:
        result = Names()
        if not len(rows):
            return result
        texts = list(self.texts)
        count = len(part)
        name, labels = (dense(part.args.get(k), count, text=True) for k in ("name", "labels"))
        sort = part.args.get("sort_index")
        if sort is not None:
            order = dict(zip(sort.event.tolist(), sort.value.tolist(), strict=True))
        else:
            order = {}
        pid, tid = part.text["pid"], part.text["tid"]
        other: dict[str, int] = {}
        for row in rows.tolist():
            label = texts[part.text["name"][row]] if part.text["name"][row] >= 0 else ""
            p, t = int(pid[row]), int(tid[row])
            if label == "process_name" and name[row] >= 0:
                result.process[p] = texts[name[row]]
            elif label == "process_labels" and labels[row] >= 0:
                result.labels[p] = texts[labels[row]]
            elif label == "thread_name" and name[row] >= 0:
                result.thread[p, t] = texts[name[row]]
            elif label == "process_sort_index" and row in order:
                result.process_sort[p] = order[row]
            elif label == "thread_sort_index" and row in order:
                result.thread_sort[p, t] = order[row]
            elif label not in (
                "process_name",
                "process_labels",
                "thread_name",
                "process_sort_index",
                "thread_sort_index",
            ):
                other[label] = other.get(label, 0) + 1
        if other:
            self.receipt.add(notes.unused_metadata(other))
        return result

    def _slices(
        self, part: Part, good: np.ndarray, first: int, tracks: list[Track]
    ) -> slices.Slices:
        phase, receipt = part.phase, self.receipt
        rows, duration = slices.complete(part, np.flatnonzero(good & (phase == ord("X"))), receipt)
        time = relative(part, rows, first)
        begun, begun_time, begun_length, ends = self._begins(
            part, good, first, int((time + duration).max(initial=0))
        )
        marks = np.flatnonzero(good & np.isin(phase, letters(*"iIR")))
        mark_time = relative(part, marks, first)
        row = np.concatenate([rows, begun, marks])
        start = np.concatenate([time, begun_time, mark_time])
        length = np.concatenate([duration, begun_length, np.zeros(len(marks), np.int64)])
        instant = np.zeros(len(row), bool)
        instant[len(rows) + len(begun) :] = True
        keep = self._not_far_marks(part, row, start, length, instant)
        row, start, length, instant = row[keep], start[keep], length[keep], instant[keep]
        track = self._tracks(part, row, tracks)
        more, more_ends = self._chains(part, good, first, tracks)
        ends.update(more_ends)
        extra = np.array(more, np.int64).reshape(-1, 5)
        return slices.Slices(
            np.concatenate([row, extra[:, 0]]),
            np.concatenate([track, extra[:, 1]]),
            np.concatenate([start, extra[:, 2]]),
            np.concatenate([length, extra[:, 3]]),
            np.concatenate([instant, extra[:, 4] > 0]),
            ends,
        )

    def _not_far_marks(
        self, part: Part, row: Int64s, start: Int64s, length: Int64s, instant: np.ndarray
    ) -> np.ndarray:
        """Global marks (Record Window End, hours later) must not stretch the timeline."""
        keep = np.ones(len(row), bool)
        scope = part.top.get("s")
        if scope is None or instant.all() or not instant.any():
            return keep
        wide = dense(scope, len(part), text=True)
        low, high = int(start[~instant].min()), int((start + length)[~instant].max())
        room = max((high - low) // 10, 10**9)
        result = (
            instant
            & (wide[row] == self.texts.get("g", -2))
            & ((start > high + room) | (start < low - room))
        )
        keep[result] = False
        # PyTorch writes one in every file, which says nothing of the program.
        of_pytorch = part.text["name"][row] == self.texts.get("Record Window End", -2)
        count = int((result & ~of_pytorch).sum())
        if count:
            self.receipt.add(notes.far_marks(count))
        return keep

    def _tracks(self, part: Part, row: Int64s, tracks: list[Track]) -> Int64s:
        """Lane of each row by (pid, tid), in order of appearance."""
        both = _pairs(part, row)
        # Few pairs in long runs are the rule: only where the pair changes it has to be looked at.
        begins = np.flatnonzero(np.concatenate([[True], both[1:] != both[:-1]])[: len(both)])
        kinds, inverse = np.unique(both[begins], return_inverse=True)
        codes = np.repeat(inverse, np.diff(np.append(begins, len(both))))
        first = np.full(len(kinds), len(part), np.int64)
        np.minimum.at(first, inverse, row[begins])
        order = np.argsort(first)
        tracks += [
            Track(int(k >> 32), k & 0x7FFFFFFF if not k & 0x80000000 else -1)
            for k in kinds[order].tolist()
        ]
        position = np.empty(len(kinds), np.int64)
        position[order] = np.arange(len(kinds))
        return position[codes]

    def _begins(
        self, part: Part, good: np.ndarray, first: int, end: int
    ) -> tuple[Int64s, Int64s, Int64s, dict[int, int]]:
        """Slices from B and E: rows, times, durations, and which row each end belongs to."""
        rows = np.flatnonzero(good & np.isin(part.phase, letters("B", "E")))
        nothing = np.zeros(0, np.int64)
        if not len(rows):
            return nothing, nothing, nothing, {}
        time = relative(part, rows, first)
        order = rows[np.argsort(time, kind="stable")]
        pid, tid = part.text["pid"].tolist(), part.text["tid"].tolist()
        begins = part.phase == ord("B")
        pairs, left, lost = slices.pair(
            order.tolist(), lambda r: (pid[r], tid[r]), begins, part.text["name"], by_name=False
        )
        self.receipt.skip(notes.NO_BEGIN, lost, key="ends_without_begin")
        if left:
            self.receipt.add(notes.no_end(len(left)))
        end = max(end, int(time.max()))
        begun = np.array([p[0] for p in pairs] + left, np.int64)
        index = relative(part, begun, first)
        stop = np.concatenate(
            [
                relative(part, np.array([p[1] for p in pairs], np.int64), first),
                np.full(len(left), end),
            ]
        )
        return begun, index, stop - index, {e: b for b, e in pairs}

    def _chains(
        self, part: Part, good: np.ndarray, first: int, tracks: list[Track]
    ) -> tuple[list[tuple[int, ...]], dict[int, int]]:
        """Async slices (row, track, time, duration, instant), each chain on a lane that it has for
        itself while it lasts.
        """
        rows = np.flatnonzero(good & np.isin(part.phase, letters(*"benSFTp")))
        if not len(rows):
            return [], {}
        count = len(part)
        time = dict(zip(rows.tolist(), relative(part, rows, first).tolist(), strict=True))
        order = rows[np.argsort(relative(part, rows, first), kind="stable")].tolist()
        texts = list(self.texts)
        pid, cat = part.text["pid"].tolist(), part.text["cat"].tolist()
        ids = [part.top.get(k) for k in ("id", "id2", "scope")]
        ident = [(dense(r, count, text=True).tolist(), dense(r, count).tolist()) for r in ids]

        def key(row: int) -> tuple[object, ...]:
            shared = ident[1][0][row] >= 0 and '"global"' in texts[ident[1][0][row]]
            return (-1 if shared else pid[row], cat[row], *(v[row] for pair in ident for v in pair))

        begins = np.isin(part.phase, letters("b", "S"))
        steps = np.isin(part.phase, letters(*"nTp"))
        nests = [r for r in order if not steps[r]]
        pairs, left, lost = slices.pair(nests, key, begins, part.text["name"], by_name=True)
        self.receipt.skip(notes.NO_ASYNC_BEGIN, lost, key="async_ends_without_begin")
        last = max(time.values())
        if left:
            self.receipt.add(notes.no_async_end(len(left)))
        intervals = [(b, time[b], time[e] - time[b], 0) for b, e in pairs] + [
            (b, time[b], last - time[b], 0) for b in left
        ]
        intervals += [(r, time[r], 0, 1) for r in order if steps[r]]
        spans: dict[tuple[object, ...], tuple[int, int]] = {}
        for row, index, length, _ in intervals:
            low, high = spans.get(key(row), (index, index))
            spans[key(row)] = (min(low, index), max(high, index + length))
        groups: dict[tuple[int, int], list[tuple[int, int, object]]] = {}
        home = {key(row): (pid[row], cat[row]) for row, *_ in reversed(intervals)}
        for chain, (low, high) in spans.items():
            groups.setdefault(home[chain], []).append((low, high, chain))
        positions: dict[object, int] = {}
        for (process, category), chains in groups.items():
            base = len(tracks)
            lanes = slices.packed(chains)
            label = texts[category] if category >= 0 else "async"
            for i in range(max(lanes.values()) + 1):
                tracks.append(Track(process, -1, f"{label} {i + 1}" if i else label))
            positions.update({chain: base + lane for chain, lane in lanes.items()})
        return [
            (row, positions[key(row)], index, length, mark)
            for row, index, length, mark in intervals
        ], {e: b for b, e in pairs}

    def _flows(self, part: Part, good: np.ndarray, first: int, tracks: list[Track]) -> Flows:
        rows = np.flatnonzero(good & np.isin(part.phase, letters(*_FLOW_PHASE)))
        count = len(part)
        starts = np.array(
            [(_both(t.pid, t.tid), i) for i, t in enumerate(tracks) if t.thread is None], np.int64
        ).reshape(-1, 2)
        starts = starts[np.argsort(starts[:, 0])]
        both = _pairs(part, rows)
        index = np.minimum(np.searchsorted(starts[:, 0], both), max(len(starts) - 1, 0))
        lane = np.full(len(rows), -1, np.int32)
        if len(starts):
            lane = np.where(starts[index, 0] == both, starts[index, 1], -1).astype(np.int32)
        ids = part.top.get("id")
        ident = dense(ids, count)
        if ids is not None:
            # Texts are numbered below -1, so that no text is taken for a correlation id; one of
            # digits is the number that it says.
            texts = np.flatnonzero((ids.kind == TEXT) & np.isin(ids.event, rows))
            codes, inverse = np.unique(ids.value[texts], return_inverse=True)
            words = list(self.texts) if len(codes) else []
            track_codes = [
                int(w) if (w := words[c]).isdecimal() and len(w) < 19 else -2 - c
                for c in codes.tolist()
            ]
            ident[ids.event[texts]] = np.array(track_codes, np.int64)[inverse.ravel()]
        kind = np.zeros(256, np.uint8)
        for letter, code in _FLOW_PHASE.items():
            kind[ord(letter)] = code
        enclosing = dense(part.top.get("bp"), count, text=True)[rows] == self.texts.get("e", -2)
        return Flows(
            kind[part.phase[rows]],
            ident[rows],
            part.text["cat"][rows],
            lane,
            relative(part, rows, first),
            enclosing,
        )

    def _counters(
        self, part: Part, good: np.ndarray, first: int, tracks: list[Track]
    ) -> list[tuple[int, str, Int64s, np.ndarray]]:
        """Samples by series: (lane, name of the series, times, values)."""
        is_counter = good & (part.phase == ord("C"))
        if not is_counter.any():
            return []
        texts = list(self.texts)
        lane_of: dict[int, int] = {}
        for i, track in enumerate(tracks):
            lane_of.setdefault(track.pid, i)
        ids = part.top.get("id")
        number, word = dense(ids, len(part)), dense(ids, len(part), text=True)
        result: list[tuple[int, str, Int64s, np.ndarray]] = []
        words = 0
        for key, rows in part.args.items():
            in_counter = is_counter[rows.event]
            words += int((in_counter & (rows.kind == TEXT)).sum())
            in_counter &= rows.kind != TEXT
            if not in_counter.any():
                continue
            event = rows.event[in_counter]
            values = ArgColumn(event, rows.kind[in_counter], rows.value[in_counter]).floats()
            head = np.stack(
                [part.text["pid"][event], part.text["name"][event], number[event], word[event]]
            )
            series, inverse = np.unique(head, axis=1, return_inverse=True)
            for i, (pid, name, num, txt) in enumerate(series.T.tolist()):
                if pid not in lane_of:
                    lane_of[pid] = len(tracks)
                    tracks.append(Track(pid, -1, "counters"))
                label = texts[name] if name >= 0 else ""
                if num >= 0 or txt >= 0:
                    label += f" [{num if num >= 0 else texts[txt]}]"
                series_rows = np.flatnonzero(inverse.ravel() == i)
                full = f"{label} {key}" if key and key != "value" and key != label else label
                result.append(
                    (
                        lane_of[pid],
                        full,
                        relative(part, event[series_rows].astype(np.int64), first),
                        values[series_rows],
                    )
                )
        if words:
            self.receipt.add(notes.counter_texts(words))
        return result
