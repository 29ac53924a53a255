"""Replaces impossible times of a trace before it is interpreted, and reports them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from nbprof.core.receipt import Note
from nbprof.core.trace import DOUBLE, ArgColumn, Int64s, Trace
from nbprof.dialects import durations, notes, torchnames
from nbprof.dialects.durations import Spans
from nbprof.dialects.lookups import host_of_lanes, names_that, rows_that
from nbprof.display import wording

RECORDED = "recorded duration (us)"
"""The arg that has what the file states of an event whose duration was replaced."""
RECORDED_START = "recorded start (us)"
"""The same of an event that begins at a time that cannot be."""
_MOST_STREAMS = 4
_NO_LAUNCH = 1 << 62


class Mender:
    """Checks the times of a trace, host by host; a dialect selects the events.

    Attributes
    ----------
    start, duration : int64[events]
        As they are to be.
    misplaced : list of int
        Device work whose time cannot be.
    unmeasured : list of int
        Device work of hosts of which no kernel has a duration.
    recorded_on_device : bool[lanes]
        Lanes of devices that a profiler did not make of others.
    """

    correlation = "correlation"
    """The arg that device work and its launch share."""
    launch_shape: tuple[str, ...] = ("grid", "block")
    """The args that say how much work was launched."""
    too_long = (
        "later work of its stream, the host's wait for the device or the whole recording had ended"
        " by then"
    )
    """Why a duration on a device cannot be."""
    too_far = (
        "long before {their} launch, or long after later work of the stream, the host's wait for"
        " the device or the whole recording"
    )
    """Why a time on a device cannot be."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.start: Int64s = trace.events.start
        self.duration: Int64s = trace.events.duration
        self.misplaced: list[int] = []
        self.unmeasured: list[int] = []
        self._clocks: list[tuple[int, int]] = []
        """A lane of each device whose times were moved, and by how much, ps."""
        lanes = trace.lanes
        self.lane_host = host_of_lanes(trace).astype(np.int64)
        self.lane_device = lanes["device"].to_numpy(np.int64)
        process, thread = (lanes[name].astype(str) for name in ("process", "thread"))
        # Queues of SYCL and of HSA run side by side what was put there.
        self.in_order = (process.str.startswith("GPU") & thread.str.startswith("Stream ")).to_numpy(
            np.bool_
        )
        self.recorded_on_device = (lanes["kind"] == "device").to_numpy(np.bool_)
        self._border = np.searchsorted(trace.events.lane, np.arange(len(lanes) + 1))

    def work(self, host: int) -> Int64s:
        """Kernels, copies and fills of a host."""
        raise NotImplementedError

    def calls(self, host: int) -> Int64s:
        """Calls of a host that may have launched its device work."""
        raise NotImplementedError

    def images(self, host: int) -> Int64s:
        """Events on devices that last as long as the work inside."""
        raise NotImplementedError

    def lanes_of(self, host: int) -> list[tuple[int, int]]:
        """The events of each thread of a host, as first and behind the last."""
        lanes = np.flatnonzero((self.lane_host == host) & (self.lane_device < 0))
        ends = zip(self._border[lanes].tolist(), self._border[lanes + 1].tolist(), strict=True)
        return [(low, high) for low, high in ends if low < high]

    def replace(self, rows: Int64s, duration: Int64s) -> None:
        """Gives events another duration."""
        changed = duration != self.duration[rows]
        if changed.any():
            if self.duration is self.trace.events.duration:
                # Nearly all traces are sound, and may be large.
                self.duration = self.duration.copy()
            self.duration[rows[changed]] = duration[changed]

    def spans(
        self, rows: Int64s, name: Int64s | None = None, launch: Int64s | None = None
    ) -> Spans:
        """Some events, with what they are compared by."""
        events = self.trace.events
        return Spans(
            events.lane[rows],
            events.start[rows],
            self.duration[rows],
            events.name[rows].astype(np.int64) if name is None else name,
            np.full(len(rows), -1, np.int64) if launch is None else launch,
            self.in_order[events.lane[rows]],
        )

    def device(self, host: int) -> None:
        """Kernels, copies and fills."""
        rows = self.measured(self.work(host))
        if not len(rows):
            return
        ident = self.trace.arg(self.correlation, rows=rows)
        calls = self.calls(host)
        launch = self._launch(ident, calls)
        waited, called = self._waits(rows, calls, launch)
        self._align_clocks(host, (rows, ident), calls, launch, waited, called)
        together = self.together(rows, ident)
        spans = self.spans(rows, launch=together)
        linked = launch >= 0
        launched = np.where(linked, self.trace.events.start[launch], _NO_LAUNCH)
        host_end = self._host_end(host)
        wrong = durations.misplaced(spans, host_end, launched, waited, called)
        if wrong.any():
            self.misplaced.extend(rows[wrong].tolist())
            rows, together, called = rows[~wrong], together[~wrong], called[~wrong]
            spans = self.spans(rows, launch=together)
        self.replace_of_device(rows, spans, host_end, waited, called)

    def replace_of_device(
        self,
        rows: Int64s,
        spans: Spans,
        host_end: int,
        waited: tuple[Int64s, Int64s],
        called: Int64s,
    ) -> None:
        """Replaces impossible durations of device work; parameters as of `durations.of_device`."""
        duration = durations.of_device(spans, host_end, waited, called)
        self.replace(rows, duration)
        spans = replace(spans, duration=duration)
        doubtful = durations.outlasting(spans, host_end)
        if not doubtful.any():
            return
        doubtful[doubtful] = self.takes_as_long(rows[doubtful])
        same = np.isin(spans.name, spans.name[doubtful])
        alike = self.launched_alike(rows[same], spans.name[same])
        spans = replace(self.spans(rows[same]), name=alike, duration=spans.duration[same])
        self.replace(rows[same], durations.of_alike(spans, doubtful[same]))

    def takes_as_long(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """Work that takes the same time each time that it is launched alike.

        A copy may be larger than others, and the last collective waits for other ranks.
        """
        names, code = np.unique(self.trace.events.name[rows], return_inverse=True)
        is_collective = names_that(torchnames.is_collective, self.trace.names[names])[code]
        return self.is_kernel(rows) & ~is_collective

    def launched_alike(self, rows: Int64s, name: Int64s) -> Int64s:
        """A code for each combination of name and launch shape.

        Parameters
        ----------
        rows, name : int64[n]
            Events, and the code of each by which its calls are compared.
        """
        shape = [self.trace.text_arg(arg, rows=rows) for arg in self.launch_shape]
        _, code = np.unique(np.array([name, *shape]), axis=1, return_inverse=True)
        return code.ravel()

    def measured(self, rows: Int64s) -> Int64s:
        """Work of a host without its kernels if none of them has a duration."""
        is_kernel = self.is_kernel(rows)
        kernels = rows[is_kernel]
        # One or two may be as short as that.
        if len(kernels) <= durations.FEW_CALLS or self.duration[kernels].any():
            return rows
        self.unmeasured.extend(kernels.tolist())
        return rows[~is_kernel]

    def is_kernel(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n]: work that computes, unlike copies and fills."""
        return np.ones(len(rows), np.bool_)

    def _align_clocks(
        self,
        host: int,
        work: tuple[Int64s, Int64s],
        calls: Int64s,
        launch: Int64s,
        waited: tuple[Int64s, Int64s],
        called: Int64s,
    ) -> None:
        """Moves all events of devices whose clock is not that of their host."""
        start, host_end = self.trace.events.start, self._host_end(host)
        linked = launch >= 0
        rows, ident = work[0][linked], work[1][linked]
        launched, called = start[launch[linked]], called[linked]
        device = self.lane_device[self.trace.events.lane[rows]]
        for number in np.unique(device).tolist():
            of_device = device == number
            shift = durations.clock_shift(
                start[rows[of_device]], launched[of_device], waited, called[of_device], host_end
            )
            if shift:
                # Processes of a host may have the same ids: whichever launched it.
                earliest, latest = self._calls_of(calls, ident[of_device])
                latest = np.where(called[of_device] < _NO_LAUNCH, latest, _NO_LAUNCH)
                shift = durations.clock_shift(
                    start[rows[of_device]], earliest, waited, latest, host_end
                )
            if shift:
                lanes = (self.lane_host == host) & (self.lane_device == number)
                self._move(host, lanes, shift)
                self._clocks.append((int(np.flatnonzero(lanes)[0]), shift))

    def _calls_of(self, calls: Int64s, ident: Int64s) -> tuple[Int64s, Int64s]:
        """Begin of the first and end of the last call with each id, which all have some."""
        events = self.trace.events
        of_call = self.trace.arg(self.correlation, rows=calls)
        order = np.argsort(of_call, kind="stable")
        ids, first = np.unique(of_call[order], return_index=True)
        rows = calls[order]
        begin = np.minimum.reduceat(events.start[rows], first)
        end = np.maximum.reduceat(events.start[rows] + self.duration[rows], first)
        position = np.searchsorted(ids, ident)
        return begin[position], end[position]

    def _move(self, host: int, lanes: npt.NDArray[np.bool_], shift: int) -> None:
        """Moves all events and ends of arrows of lanes; the recording begins with what is first."""
        trace, events = self.trace, self.trace.events
        start = events.start + np.where(lanes[events.lane], shift, 0)
        self.start = start
        trace.events = type(events)(events.lane, events.name, start, events.duration)
        if (flows := trace.flows) is not None:
            on_lanes = np.isin(flows.lane, trace.lanes.get("row", trace.lanes["lane"])[lanes])
            trace.flows = replace(flows, time=flows.time + np.where(on_lanes, shift, 0))
        first = int(start[self.lane_host[events.lane] == host].min())
        if events.start[lanes[events.lane]].min() < first:
            self._begin(host, first)

    def together(self, rows: Int64s, ident: Int64s) -> Int64s:  # noqa: ARG002
        """The launch of each piece of work, -1: work of one launch may run concurrently.

        Parameters
        ----------
        rows : int64[n]
        ident : int64[n]
            The arg `correlation` of each.
        """
        return ident

    def _launch(self, ident: Int64s, calls: Int64s) -> Int64s:
        """The call that each piece of device work states, -1."""
        if not len(calls):
            return np.full(len(ident), -1, np.int64)
        of_call = self.trace.arg(self.correlation, rows=calls)
        order = np.argsort(of_call, kind="stable")
        position = np.minimum(np.searchsorted(of_call[order], ident), len(calls) - 1)
        return np.where(
            (ident > 0) & (of_call[order][position] == ident), calls[order][position], -1
        )

    def _host_end(self, host: int) -> int:
        """When the last event of a host ended that is none of a device."""
        start = self.trace.events.start
        last = 0
        for low, high in self.lanes_of(host):
            last = max(last, int((start[low:high] + self.duration[low:high]).max()))
        return last

    def _waits(
        self, rows: Int64s, calls: Int64s, launch: Int64s
    ) -> tuple[tuple[Int64s, Int64s], Int64s]:
        """Calls that waited for the only device, and the end of the launch of each piece."""
        events = self.trace.events
        waits = rows_that(self.trace, calls, torchnames.waits_for_device)
        if not len(waits) or len(np.unique(self.lane_device[events.lane[rows]])) > 1:
            nothing = np.zeros(0, np.int64)
            return (nothing, nothing), np.full(len(rows), _NO_LAUNCH, np.int64)
        waits = waits[np.argsort(events.start[waits], kind="stable")]
        called = np.where(launch >= 0, events.start[launch] + self.duration[launch], _NO_LAUNCH)
        return (events.start[waits], events.start[waits] + self.duration[waits]), called

    def device_notes(self, host: int) -> None:
        """Shortens annotations on devices to the end of the work inside, if that was replaced."""
        events = self.trace.events
        work = self.work(host)
        wrong = work[self.duration[work] != events.duration[work]]
        images = self.images(host)
        if not len(wrong) or not len(images):
            return
        stated_ends = np.unique(events.start[wrong] + events.duration[wrong])
        end = events.start[images] + events.duration[images]
        nearest = stated_ends[
            np.minimum(np.searchsorted(stated_ends, end - durations.SLACK_PS), len(stated_ends) - 1)
        ]
        for image in images[np.abs(end - nearest) <= durations.SLACK_PS].tolist():
            begin = int(events.start[image])
            behind = images[
                (events.lane[images] == events.lane[image]) & (events.start[images] > begin)
            ]
            covered = work[
                (events.start[work] >= begin)
                & (self.lane_device[events.lane[work]] == self.lane_device[events.lane[image]])
            ]
            # An annotation around others ends behind the last of them.
            later = behind[events.name[behind] != events.name[image]]
            until = int(end.max())
            if self._is_step(image):
                until = int(events.start[later].min(initial=end.max()))
            covered = covered[events.start[covered] < until]
            ended = int((events.start[covered] + self.duration[covered]).max(initial=begin))
            self.replace(np.array([image]), np.array([ended - begin]))

    def _is_step(self, row: int) -> bool:
        return bool(torchnames.STEP.match(str(self.trace.names[self.trace.events.name[row]])))

    def apply(self) -> None:
        """Gives the trace the corrected times; the stated ones become args of the events."""
        events = self.trace.events
        misplaced = np.sort(np.array(self.misplaced, np.int64))
        if len(misplaced):
            self._set_aside(misplaced)
        if self.duration is events.duration and not len(misplaced):
            return
        rows = np.flatnonzero(self.duration != events.duration)
        recorded = {
            RECORDED: ArgColumn(
                rows.astype(np.int32), DOUBLE, (events.duration[rows] / 1e6).view(np.int64)
            )
        }
        if len(misplaced):
            began = (events.start[misplaced] / 1e6).view(np.int64)
            recorded[RECORDED_START] = ArgColumn(misplaced.astype(np.int32), DOUBLE, began)
        self.trace.args = ChainMap(
            recorded, cast("MutableMapping[str, ArgColumn]", self.trace.args)
        )
        self.trace.events = type(events)(events.lane, events.name, self.start, self.duration)

    def _set_aside(self, misplaced: Int64s) -> None:
        """Gives misplaced work no duration and a time within that of its lane; the order stays."""
        events = self.trace.events
        sound = np.ones(len(events), np.bool_)
        sound[misplaced] = False
        self.start = self.start.copy()
        for lane in np.unique(events.lane[misplaced]).tolist():
            low, high = self._border[lane], self._border[lane + 1]
            sound_rows = low + np.flatnonzero(sound[low:high])
            if not len(sound_rows):
                sound_rows = np.flatnonzero(sound)
            rows = misplaced[events.lane[misplaced] == lane]
            if len(sound_rows):
                self.start[rows] = np.clip(
                    self.start[rows], self.start[sound_rows].min(), self.start[sound_rows].max()
                )
        self.replace(misplaced, np.zeros(len(misplaced), np.int64))
        self._begin_with(sound)

    def _begin_with(self, sound: npt.NDArray[np.bool_]) -> None:
        """Lets the recording of a host begin with its first event that has a possible time."""
        start, host = self.trace.events.start, self.lane_host[self.trace.events.lane]
        for number in range(len(self.trace.hosts)):
            of_host = sound & (host == number)
            if of_host.any() and start[(host == number) & ~sound].min(initial=_NO_LAUNCH) < (
                first := int(start[of_host].min())
            ):
                self._begin(number, first)

    def _begin(self, host: int, first: int) -> None:
        """Lets the recording of a host begin no earlier."""
        trace = self.trace
        late = list(trace.late_ps) or [0] * len(trace.hosts)
        if len(late) == len(trace.hosts) and (len(late) == 1 or trace.late_ps):
            late[host] = max(late[host], first)
            trace.late_ps = late

    @property
    def unusable(self) -> Int64s:
        """Device work without a time that can be, ascending."""
        return np.sort(np.array([*self.misplaced, *self.unmeasured], np.int64))

    def about_clocks(self) -> list[Note]:
        """Notes on devices whose clock is not that of their host."""
        if not self._clocks:
            return []
        lanes = self.trace.lanes
        shifts = []
        for lane, shift in self._clocks:
            device = str(lanes["process"].iloc[lane])
            if len(self.trace.hosts) > 1:
                device = f"{lanes['host'].iloc[lane]}, {device}"
            side = "ahead"
            if shift > 0:
                side = "behind"
            shifts.append(f"{device}: {wording.millis(abs(shift) / 1e9)} {side}")
        return [notes.device_clocks(shifts)]

    def about_unusable(self) -> list[Note]:
        """Notes on device work at impossible times or without durations."""
        result = []
        if self.misplaced:
            rows = np.array(self.misplaced, np.int64)
            took = wording.millis(int(self.trace.events.duration[rows].sum()) / 1e9)
            text = self.places(rows)
            result.append(notes.impossible_times(len(rows), text, took, self.too_far))
        if self.unmeasured:
            rows = np.array(self.unmeasured, np.int64)
            result.append(notes.no_device_durations(len(rows), self.places(rows)))
        return result

    def notes(self) -> list[Note]:
        """Notes on replaced durations."""
        events = self.trace.events
        if self.duration is events.duration:
            return []
        rows = np.flatnonzero(self.duration != events.duration)
        on_device = self.recorded_on_device[events.lane[rows]]
        result = []
        if on_device.any():
            result.append(self._replaced(rows[on_device], "device event", self.too_long))
        of_host = self.lane_device[events.lane[rows]] < 0
        if of_host.any():
            evidence = "what is around it had ended by then, or the next step had begun"
            result.append(self._replaced(rows[of_host], "event of the host", evidence))
        return result

    def _replaced(self, rows: Int64s, event_kind: str, evidence: str) -> Note:
        events, names = self.trace.events, self.trace.names
        recorded = events.duration[rows]
        codes, count = np.unique(events.name[rows], return_counts=True)
        commonest = str(names[codes[count.argmax()]])
        named = wording.one_line(commonest)
        if event_kind == "device event":
            named = wording.kernel(commonest)
        if len(codes) > 1:
            named += f" and {wording.plural(len(codes) - 1, 'other name')}"
        return notes.impossible_durations(
            notes.Replaced(
                event_kind=event_kind,
                count=len(rows),
                places=self.places(rows),
                names=named,
                longest=wording.millis(int(recorded.max()) / 1e9),
                excess=wording.millis(int((recorded - self.duration[rows]).sum()) / 1e9),
                evidence=evidence,
            )
        )

    def places(self, rows: Int64s) -> str:
        """Number of events per stream, line or thread."""
        lanes = self.trace.lanes
        places = []
        lane, counts = np.unique(self.trace.events.lane[rows], return_counts=True)
        names = lanes[["host", "process", "thread"]].iloc[lane].astype(str)
        for count, (host, process, thread) in zip(counts, names.to_numpy(), strict=True):
            # "stream 7", but "XLA Ops".
            if not thread[1:2].isupper():
                thread = thread[:1].lower() + thread[1:]
            lane_name = f"{process}, {thread}"
            if len(self.trace.hosts) > 1:
                lane_name = f"{host}, {lane_name}"
            places.append(f"{int(count):,} on {lane_name}")
        text = "; ".join(places[:_MOST_STREAMS])
        more = len(places) - _MOST_STREAMS
        if more > 0:
            text += f"; others on {wording.plural(more, 'more lane')}"
        return text
