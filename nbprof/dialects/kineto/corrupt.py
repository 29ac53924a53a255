"""Durations of a trace that cannot be, replaced before anything is made of it, and what the receipt says of them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from nbprof.core.trace import DOUBLE, ArgColumn, Int64s, Note, Trace
from nbprof.dialects import durations, torchnames
from nbprof.dialects.durations import Spans
from nbprof.dialects.kineto import ranges
from nbprof.dialects.kineto.lanes import ANNOTATION, CALL, COPY, DEVICE_NOTE, FILL, KERNEL, OP, UNKNOWN, Kinds
from nbprof.display import wording

RECORDED = "recorded duration (us)"
"""The arg that has what the file states of an event whose duration was replaced."""
_MOST_STREAMS = 4
_NO_LAUNCH = 1 << 62


@dataclass
class Mended:
    """What was replaced.

    Attributes
    ----------
    notes : list of Note
        Warnings that say so.
    first_waits : int64[k]
        Events of collectives that waited at the start of the recording.
    """

    notes: list[Note] = field(default_factory=list)
    first_waits: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))


def mend(trace: Trace, kind: Kinds) -> Mended:
    """Replaces durations in `trace.events` that cannot be, and leaves out what collectives waited at the start.

    Parameters
    ----------
    trace : Trace
        With split lanes.
    kind : uint8[events]
        Becomes UNKNOWN of device work whose time cannot be.
    """
    events = trace.events
    found = _Mender(trace, kind)
    for host in range(len(trace.hosts)):
        found.threads(host)
        found.steps(host)
        found.device(host)
        found.device_notes(host)
    corrupt = np.flatnonzero(found.duration != events.duration)
    for host in range(len(trace.hosts)):
        found.first_waits(host)
    rows = np.flatnonzero(found.duration != events.duration)
    if found.misplaced:
        kind[found.misplaced] = UNKNOWN
    if not len(rows):
        return Mended(found.about_misplaced())
    waits = np.flatnonzero(found.start != events.start)
    notes = [*found.about_misplaced(), *found.notes(corrupt), *found.about_waits(waits)]
    stated = ArgColumn(rows.astype(np.int32), DOUBLE, (events.duration[rows] / 1e6).view(np.int64))
    trace.args = ChainMap({RECORDED: stated}, cast("MutableMapping[str, ArgColumn]", trace.args))
    trace.events = type(events)(events.lane, events.name, found.start, found.duration)
    return Mended(notes, waits)


class _Mender:
    """The durations of a trace while they are looked at, host by host."""

    def __init__(self, trace: Trace, kind: Kinds) -> None:
        self.trace, self.kind = trace, kind
        self.start: Int64s = trace.events.start.copy()
        self.duration: Int64s = trace.events.duration.copy()
        self.misplaced: list[int] = []
        lanes = trace.lanes
        hosts = {name: i for i, name in enumerate(trace.hosts)}
        self.lane_host = lanes["host"].map(hosts).to_numpy(np.int64)
        self.lane_device = lanes["device"].to_numpy(np.int64)
        process, thread = (lanes[name].astype(str) for name in ("process", "thread"))
        # Queues of SYCL and of HSA run side by side what was put there.
        self.in_order = (process.str.startswith("GPU") & thread.str.startswith("Stream ")).to_numpy(np.bool_)

    def _rows(self, host: int, *kinds: int) -> Int64s:
        wanted = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        rows = np.flatnonzero(wanted[self.kind])
        return rows if len(self.trace.hosts) == 1 else rows[self.lane_host[self.trace.events.lane[rows]] == host]

    def _spans(self, rows: Int64s, name: Int64s | None = None, launch: Int64s | None = None) -> Spans:
        events = self.trace.events
        return Spans(
            events.lane[rows],
            events.start[rows],
            self.duration[rows],
            events.name[rows].astype(np.int64) if name is None else name,
            np.full(len(rows), -1, np.int64) if launch is None else launch,
            self.in_order[events.lane[rows]],
        )

    def threads(self, host: int) -> None:
        """Ops, annotations and calls that end long after what is around them."""
        rows = self._rows(host, OP, ANNOTATION, CALL)
        self.duration[rows] = durations.of_threads(self._spans(rows))

    def steps(self, host: int) -> None:
        """Markers of steps that reach over the next step."""
        rows = self._rows(host, ANNOTATION)
        family = np.full(len(self.trace.names), -1, np.int64)
        number = np.zeros(len(self.trace.names), np.int64)
        families: dict[str, int] = {}
        for code in np.unique(self.trace.events.name[rows]).tolist():
            found = ranges.counted(str(self.trace.names[code]))
            if found is not None and found[1]:
                family[code] = families.setdefault(found[0], len(families))
                number[code] = found[1][-1]
        names = self.trace.events.name[rows]
        rows, names = rows[family[names] >= 0], names[family[names] >= 0]
        self.duration[rows] = durations.of_markers(self._spans(rows, family[names], number[names]))

    def device(self, host: int) -> None:
        """Kernels, copies and fills."""
        rows = self._rows(host, KERNEL, COPY, FILL)
        if not len(rows):
            return
        ident = self.trace.arg("correlation", rows=rows)
        calls = self._rows(host, CALL)
        launch = self._launch(ident, calls)
        waited, called = self._waits(rows, calls, launch)
        spans = self._spans(rows, launch=ident)
        linked = launch >= 0
        launched = np.where(linked, self.trace.events.start[launch], _NO_LAUNCH)
        wrong = durations.misplaced(spans, launched, waited, called)
        if wrong.any():
            self.misplaced.extend(rows[wrong].tolist())
            rows, ident, called = rows[~wrong], ident[~wrong], called[~wrong]
            spans = self._spans(rows, launch=ident)
        self.duration[rows] = durations.of_device(spans, self._host_end(host), waited, called)

    def _launch(self, ident: Int64s, calls: Int64s) -> Int64s:
        """The call that each piece of device work states, -1."""
        if not len(calls):
            return np.full(len(ident), -1, np.int64)
        of_call = self.trace.arg("correlation", rows=calls)
        order = np.argsort(of_call, kind="stable")
        at = np.minimum(np.searchsorted(of_call[order], ident), len(calls) - 1)
        return np.where((ident > 0) & (of_call[order][at] == ident), calls[order][at], -1)

    def _host_end(self, host: int) -> int:
        """When the last event of a host ended that is none of a device."""
        events = self.trace.events
        ends = [0]
        border = np.searchsorted(events.lane, np.arange(len(self.lane_host) + 1))
        for lane in np.flatnonzero((self.lane_host == host) & (self.lane_device < 0)).tolist():
            low, high = border[lane], border[lane + 1]
            if high > low:
                ends.append(int((events.start[low:high] + self.duration[low:high]).max()))
        return max(ends)

    def _waits(self, rows: Int64s, calls: Int64s, launch: Int64s) -> tuple[tuple[Int64s, Int64s], Int64s]:
        """Calls that waited for all work of the only device, and when the launch of each piece of work had ended."""
        events = self.trace.events
        named = np.array([torchnames.waits_for_device(str(name)) for name in self.trace.names], np.bool_)
        waits = calls[named[events.name[calls]]]
        if not len(waits) or len(np.unique(self.lane_device[events.lane[rows]])) > 1:
            nothing = np.zeros(0, np.int64)
            return (nothing, nothing), np.full(len(rows), _NO_LAUNCH, np.int64)
        waits = waits[np.argsort(events.start[waits], kind="stable")]
        called = np.where(launch >= 0, events.start[launch] + self.duration[launch], _NO_LAUNCH)
        return (events.start[waits], events.start[waits] + self.duration[waits]), called

    def device_notes(self, host: int) -> None:
        """Images of annotations on devices, which last as long as the work in them: where that was replaced, they end with what is left."""
        events = self.trace.events
        work = self._rows(host, KERNEL, COPY, FILL)
        wrong = work[self.duration[work] != events.duration[work]]
        notes = self._rows(host, DEVICE_NOTE)
        if not len(wrong) or not len(notes):
            return
        stated_ends = np.unique(events.start[wrong] + events.duration[wrong])
        end = events.start[notes] + events.duration[notes]
        nearest = stated_ends[np.minimum(np.searchsorted(stated_ends, end - durations.SLACK_PS), len(stated_ends) - 1)]
        for note in notes[np.abs(end - nearest) <= durations.SLACK_PS].tolist():
            begin = int(events.start[note])
            behind = notes[(events.lane[notes] == events.lane[note]) & (events.start[notes] > begin)]
            inside = work[(events.start[work] >= begin) & (self.lane_device[events.lane[work]] == self.lane_device[events.lane[note]])]
            # An annotation around others ends behind the last of them.
            later = behind[events.name[behind] != events.name[note]]
            until = int(events.start[later].min(initial=end.max())) if self._is_step(note) else int(end.max())
            inside = inside[events.start[inside] < until]
            self.duration[note] = max(int((events.start[inside] + self.duration[inside]).max(initial=begin)) - begin, 0)

    def _is_step(self, row: int) -> bool:
        return bool(torchnames.STEP.match(str(self.trace.names[self.trace.events.name[row]])))

    def first_waits(self, host: int) -> None:
        """Collectives that waited at the start: they begin when the last rank has come."""
        rows = self._rows(host, KERNEL)
        named = np.array([torchnames.is_collective(str(name)) for name in self.trace.names], np.bool_)
        rows = rows[named[self.trace.events.name[rows]]]
        waits, taken = durations.first_waits(self._spans(rows))
        rows, taken = rows[waits], taken[waits]
        self.start[rows] += self.duration[rows] - taken
        self.duration[rows] = taken

    def about_misplaced(self) -> list[Note]:
        """What the receipt says of device work whose time cannot be."""
        if not self.misplaced:
            return []
        rows = np.array(self.misplaced, np.int64)
        took = wording.millis(int(self.trace.events.duration[rows].sum()) / 1e9)
        begin, their, they = ("begins", "its", "It is") if len(rows) == 1 else ("begin", "their", "They are")
        text = (
            f"{wording.plural(len(rows), 'device event')} ({self._places(rows)}; {took}) {begin} at a time that cannot be: long before "
            f"{their} launch, or long after later work of the stream or the host's wait for the device. {they} in no figure. The profiler "
            "wrote a wrong time: record again."
        )
        return [Note("warning", text)]

    def about_waits(self, rows: Int64s) -> list[Note]:
        """What the receipt says of collectives that waited at the start."""
        if not len(rows):
            return []
        events = self.trace.events
        waited = events.duration[rows] - self.duration[rows]
        name = wording.kernel(str(self.trace.names[events.name[rows[waited.argmax()]]]))
        one = len(rows) == 1
        which = "The first collective" if one else f"{len(rows):,} first collectives of their streams"
        longest, total = (wording.millis(int(value) / 1e9) for value in (waited.max(), waited.sum()))
        text = (
            f"{which} ({name}; {self._places(rows)}) waited {'' if one else 'up to '}{longest} at the start of the recording for ranks "
            f"that came later, as when their profilers start apart: that is warm-up. {'It counts' if one else 'Each counts'} with what "
            f"later calls take, and {total} are left out of all figures."
        )
        return [Note("warning", text)]

    def notes(self, rows: Int64s) -> list[Note]:
        """What the receipt says of replaced durations."""
        kinds = self.kind[rows]
        on_device = np.isin(kinds, (KERNEL, COPY, FILL))
        out = []
        if on_device.any():
            evidence = "later work of its stream, the host's wait for the device or the whole recording had ended by then"
            out.append(self._note(rows[on_device], "device event", evidence))
        of_host = ~on_device & (kinds != DEVICE_NOTE)
        if of_host.any():
            evidence = "what is around it had ended by then, or the next step had begun"
            out.append(self._note(rows[of_host], "event of the host", evidence))
        return out

    def _note(self, rows: Int64s, what: str, evidence: str) -> Note:
        events, names = self.trace.events, self.trace.names
        stated = events.duration[rows]
        less = wording.millis(int((stated - self.duration[rows]).sum()) / 1e9)
        longest = wording.millis(int(stated.max()) / 1e9)
        codes, count = np.unique(events.name[rows], return_counts=True)
        most = str(names[codes[count.argmax()]])
        which = wording.kernel(most) if what == "device event" else wording.one_line(most)
        which += f" and {wording.plural(len(codes) - 1, 'other name')}" if len(codes) > 1 else ""
        one = len(rows) == 1
        stating = f"states a duration of {longest}" if one else f"state durations of up to {longest}"
        text = (
            f"{wording.plural(len(rows), what, what.replace('event', 'events'))} ({self._places(rows)}: {which}) {stating} that cannot be: "
            f"{evidence}. {'It counts' if one else 'Each counts'} with what other calls of its name take, at most until the next work; "
            f"{less} are left out of all figures. The profiler wrote a wrong end: record again for {'its' if one else 'their'} times."
        )
        return Note("warning", text)

    def _places(self, rows: Int64s) -> str:
        """How many events lie on which stream or thread."""
        lanes = self.trace.lanes
        several = len(self.trace.hosts) > 1
        found = []
        for lane, count in zip(*np.unique(self.trace.events.lane[rows], return_counts=True), strict=True):
            host, process, thread = (str(lanes[name].iloc[int(lane)]) for name in ("host", "process", "thread"))
            where = [*([host] if several else []), process, thread[:1].lower() + thread[1:]]
            found.append(f"{int(count):,} on {', '.join(where)}")
        more = len(found) - _MOST_STREAMS
        return "; ".join(found[:_MOST_STREAMS]) + (f"; others on {wording.plural(more, 'more lane')}" if more > 0 else "")
