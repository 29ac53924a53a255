"""The trace in Chrome's JSON format, for Perfetto and chrome://tracing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from nbprof.analysis.ops.self_time import overlapping
from nbprof.core import nesting
from nbprof.core.atomic_write import atomic_write, is_stream
from nbprof.core.errors import NbprofError
from nbprof.core.trace import TEXT, Events, Int64s, Trace
from nbprof.timeline import arrows, select_events
from nbprof.timeline.export_args import Args, text
from nbprof.timeline.levels import stack
from nbprof.timeline.links import LAUNCHES

if TYPE_CHECKING:
    from nbprof.timeline.lanes import Lane
    from nbprof.timeline.serve import Drawn

_CHUNK = 1 << 15
_LEVEL = 1
"""gzip level: text this repetitive compresses well at the fastest one."""
_US = 10**6
_EXACT = 2**53 // 10 - 1
# Up to 25 days from the start float64 tells the ns of a time in µs; later no decimals would.
_BOTH_READ = _US << 41
"""Times in ps that float64 holds to the tenth."""


def export(
    run: Drawn,
    path: str | Path,
    *,
    between: tuple[float, float] | None = None,
    lanes: select_events.Lanes | None = None,
    counters: bool = True,
) -> Path:
    """Writes the file in parts; see `nbprof.tools.trace.accessor.TraceView.export`."""
    target = Path(path).expanduser()
    if not target.name.endswith((".json", ".json.gz")) and not is_stream(target):
        raise NbprofError(
            f"{target}: the file name of a Chrome trace must end in .json or .json.gz"
        )
    events = select_events.pick(run.timeline.tracks, lanes, None, between)
    if not len(events) and not (lanes is None and between is None):
        raise NbprofError(
            f"{target}: nothing was written: no event is in this range and on these lanes"
            " (p.trace.tracks)"
        )
    export = Export(run, events, between, counters)
    with atomic_write(target, "trace") as file:
        if target.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
                _write(export, cast(BinaryIO, packed))
        else:
            _write(export, file)
    return target


def _write(export: Export, file: BinaryIO) -> None:
    file.write(export.head().encode())
    first = True
    for lines in export.lines():
        if lines:
            file.write((b"" if first else b",\n") + ",\n".join(lines).encode("ascii"))
            first = False
    file.write(b"\n]}\n")


class Export:
    """The lines of one trace: each an object of `traceEvents`."""

    def __init__(
        self, run: Drawn, events: Int64s, between: tuple[float, float] | None, counters: bool
    ) -> None:
        self._run, self._trace = run, run.trace
        tracks = self._tracks = run.timeline.tracks
        self._between, self._counters = between, counters
        self._origin = self._earliest()
        self._marks = marks(run.trace)
        self._further = tuple(threads(events) for events in (tracks.events, tracks.extra))
        event_count = len(tracks.events)
        is_event = events < event_count
        # Once, not for each lane: there may be as many lanes as events.
        self._parts = (
            (events[is_event], tracks.events),
            (events[~is_event] - event_count, tracks.extra),
        )
        self._lanes = self._used_lanes()
        self._pid: dict[tuple[str, str], int] = {}
        for lane in self._lanes:
            self._pid.setdefault((lane.host, lane.process), len(self._pid) + 1)
        self._tid: dict[tuple[int, int], int] = {}
        """By lane and number of the further thread."""
        self._threads = self._numbers()
        for location, numbers in self._threads.items():
            # Numbers of threads are those of no process: an equal one would be its main thread.
            for number in numbers:
                self._tid[location, number] = len(self._pid) + len(self._tid) + 1

    def _earliest(self) -> int:
        """The earliest time of anything written: Perfetto takes no times before 0."""
        times = [counter.time for counter in self._tracks.counters]
        if self._trace.flows is not None:
            times.append(self._trace.flows.time)
        return min([self._tracks.origin, *(int(time.min()) for time in times if len(time))])

    def _used_lanes(self) -> list[Lane]:
        """The lanes that have an event or a counter to write."""
        is_used = np.zeros(self._tracks.lane_ids, np.bool_)
        for ids, table in self._parts:
            is_used[table.lane[ids]] = True
        if self._counters:
            is_used[[counter.id for counter in self._tracks.counters]] = True
        return [lane for lane in self._tracks.lanes if is_used[lane.id]]

    def _numbers(self) -> dict[int, list[int]]:
        """The numbers of the threads that each lane is written as, by lane."""
        depths = {lane.id: {0} for lane in self._lanes}
        for (ids, table), further in zip(self._parts, self._further, strict=True):
            for key in np.unique(table.lane[ids].astype(np.int64) << 32 | further[ids]).tolist():
                depths[key >> 32].add(key & 0xFFFFFFFF)
        return {lane: sorted(numbers) for lane, numbers in depths.items()}

    def head(self) -> str:
        """The text before the events."""
        epoch = self._trace.epoch_ns + self._origin // 1000
        facts: dict[str, Any] = {"displayTimeUnit": "ns"}
        if epoch > 0:
            facts["baseTimeNanoseconds"] = epoch
        return json.dumps(facts)[:-1] + ', "traceEvents": [\n'

    def lines(self) -> Iterator[list[str]]:
        """Names, events lane by lane, flows and counters, in lists of bounded length."""
        yield list(self._names())
        for (ids, table), further in zip(self._parts, self._further, strict=True):
            is_track = table is self._tracks.events
            args = Args(self._trace, self._tracks, self._marks, of_trace=is_track)
            for offset in range(0, len(ids), _CHUNK):
                yield self._slices(ids[offset : offset + _CHUNK], table, further, args)
                if is_track:
                    yield self._instants(ids[offset : offset + _CHUNK], further, args)
        yield from self._flows()
        yield from self._arrows()
        if self._counters:
            yield from self._samples()

    def _names(self) -> Iterator[str]:
        for index, ((_, process), pid) in enumerate(self._pid.items()):
            yield _metadata("process_name", f'"pid":{pid}', f'"name":{text(process)}')
            yield _metadata("process_sort_index", f'"pid":{pid}', f'"sort_index":{index}')
        for lane in self._lanes:
            if lane.kind == "counter":
                continue
            pid = self._pid[lane.host, lane.process]
            for number in self._threads[lane.id]:
                tid = self._tid[lane.id, number]
                name = lane.name
                if number:
                    name = f"{lane.name} ({number + 1})"
                thread = f'"pid":{pid},"tid":{tid}'
                yield _metadata("thread_name", thread, f'"name":{text(name)}')
                yield _metadata("thread_sort_index", thread, f'"sort_index":{tid}')

    def _heads(self, lane: npt.NDArray[Any], further: npt.NDArray[Any]) -> list[str]:
        """Process and thread of events."""
        keys, inverse = np.unique(lane.astype(np.int64) << 32 | further, return_inverse=True)
        pid_of = {lane.id: self._pid[lane.host, lane.process] for lane in self._lanes}
        heads = np.empty(len(keys), object)
        for row, key in enumerate(keys.tolist()):
            lane_id, number = key >> 32, key & 0xFFFFFFFF
            heads[row] = f'"pid":{pid_of[lane_id]},"tid":{self._tid[lane_id, number]},"ts":'
        result: list[str] = heads[inverse].tolist()
        return result

    def _slices(
        self, ids: Int64s, table: Any, further: npt.NDArray[np.int32], args: Args
    ) -> list[str]:
        if table is self._tracks.events:
            ids = ids[~self._marks[ids]]
        heads = self._heads(table.lane[ids], further[ids])
        start = table.start[ids] - self._origin
        starts = _micros(start)
        lengths = _micros(nested_durations(start, np.maximum(table.duration[ids], 0)))
        names, more = args.texts_of(ids, table.name[ids])
        return [
            f'{{"ph":"X",{head}{start},"dur":{length},"name":{name}{arg}}}'
            for head, start, length, name, arg in zip(
                heads, starts, lengths, names, more, strict=True
            )
        ]

    def _instants(self, ids: Int64s, further: npt.NDArray[np.int32], args: Args) -> list[str]:
        """Instant events of the file."""
        events = self._tracks.events
        ids = ids[self._marks[ids]]
        heads = self._heads(events.lane[ids], further[ids])
        names, more = args.texts_of(ids, events.name[ids])
        scopes = args.column(ids, "s")
        starts = _micros(events.start[ids] - self._origin)
        lines = []
        for head, start, scope, name, arg in zip(heads, starts, scopes, names, more, strict=True):
            if scope not in _SCOPES:
                scope = _OF_THREAD
            lines.append(f'{{"ph":"i",{head}{start},"s":{scope},"name":{name}{arg}}}')
        return lines

    def _flows(self) -> Iterator[list[str]]:
        """Points of the arrows of the file, on the thread that their slice is on."""
        points = self._run.timeline.links.flows
        if points is None:
            return
        flows, events = points.flows, self._tracks.events
        drawn = np.zeros(len(self._trace.lanes), np.bool_)
        drawn[[lane.id for lane in self._lanes if lane.id < len(drawn)]] = True
        first_of: dict[int, int] = {}
        for lane in np.flatnonzero(drawn).tolist():
            first_of.setdefault(int(points.row_of[lane]), lane)
        low, high = self._window()
        in_window = (flows.time >= low) & (flows.time <= high)
        rows = np.flatnonzero(in_window & np.isin(flows.lane, list(first_of)))
        strings = self._trace.strings
        categories = {-1: '""'}
        for code in np.unique(flows.category[rows]).tolist():
            if code >= 0:
                categories[code] = text(strings[code])
        for offset in range(0, len(rows), _CHUNK):
            part = rows[offset : offset + _CHUNK]
            slices = points.slices(part)
            on = (slices >= 0) & drawn[events.lane[slices]]
            rest = np.array(list(map(first_of.__getitem__, flows.lane[part].tolist())), np.int64)
            lanes = np.where(on, events.lane[slices], rest)
            heads = self._heads(lanes, np.where(on, self._further[0][slices], 0))
            times = _micros(flows.time[part] - self._origin)
            lines = []
            for phase, head, time, ident, code, encloses in zip(
                flows.phase[part].tolist(),
                heads,
                times,
                points.number[part].tolist(),
                flows.category[part].tolist(),
                flows.enclosing[part].tolist(),
                strict=True,
            ):
                start = f'"ph":"{"stf"[phase]}",{head}{time},"id":{ident}'
                category = categories[code]
                end = _ENCLOSING if encloses else ""
                lines.append(f'{{{start},"cat":{category},"name":{category}{end}}}')
            yield lines

    def _arrows(self) -> Iterator[list[str]]:
        """Arrows that the file has not drawn, between what is written: from launches to their work,
        and those that events state.
        """
        links = self._run.timeline.links
        written = np.zeros(len(self._tracks.events), np.bool_)
        written[self._parts[0][0]] = True
        if links.flows is None or not any(links.flows.has(category) for category in LAUNCHES):
            launch, work = _launches(self._run)
            both = written[launch] & written[work]
            yield from self._arrow("launch", launch[both], work[both])
        kind, start, finish = arrows.from_args(links, np.flatnonzero(written))
        for code, category in ((1, "producer"), (2, "fwdbwd"), (3, "flow")):
            yield from self._arrow(category, start[kind == code], finish[kind == code])

    def _arrow(self, category: str, start: Int64s, finish: Int64s) -> Iterator[list[str]]:
        events, further = self._tracks.events, self._further[0]
        for offset in range(0, len(start), _CHUNK):
            lines = []
            rows = slice(offset, offset + _CHUNK)
            behind = f',"cat":"{category}","name":"{category}"{_ENCLOSING}}}'
            for phase, ids in (("s", start[rows]), ("f", finish[rows])):
                heads = self._heads(events.lane[ids], further[ids])
                times = _micros(events.start[ids] - self._origin)
                for number, (head, time) in enumerate(zip(heads, times, strict=True), offset + 1):
                    lines.append(f'{{"ph":"{phase}",{head}{time},"id":{number}{behind}')
            yield lines

    def _window(self) -> tuple[float, float]:
        """The range of the export, ps."""
        if self._between is None:
            return -np.inf, np.inf
        return select_events.window(self._between)

    def _samples(self) -> Iterator[list[str]]:
        by_id = {lane.id: lane for lane in self._lanes}
        low, high = self._window()
        for counter in self._tracks.counters:
            lane = by_id[counter.id]
            pid = self._pid[lane.host, lane.process]
            head = f'{{"ph":"C","pid":{pid},"name":{text(counter.label)},"ts":'
            in_window = (counter.time >= low) & (counter.time <= high)
            rows = np.flatnonzero(in_window & np.isfinite(counter.value))
            unit = text(counter.unit)
            for offset in range(0, len(rows), _CHUNK):
                part = rows[offset : offset + _CHUNK]
                times = _micros(counter.time[part] - self._origin)
                values = counter.value[part].tolist()
                yield [
                    f'{head}{time},"args":{{{unit}:{value!r}}}}}'
                    for time, value in zip(times, values, strict=True)
                ]


_ENCLOSING = ',"bp":"e"'
_OF_THREAD = '"t"'
_SCOPES = ('"g"', '"p"', '"t"')


def marks(trace: Trace) -> npt.NDArray[np.bool_]:
    """bool[events]: instants of the file, which slices without length are not."""
    result = np.zeros(len(trace.events), np.bool_)
    column = trace.args.get("ph")
    if column is not None:
        events, codes = column.of(TEXT)
        instants = [c for c in np.unique(codes).tolist() if trace.strings[c] in ("i", "I")]
        result[events[np.isin(codes, instants)]] = True
        result &= trace.events.duration == 0
    return result


def nested_durations(start: Int64s, duration: Int64s) -> Int64s:
    """Durations in ps with which events stay nested in a viewer that truncates times to ns.

    Perfetto truncates the start and the duration of an event separately, so that an event may end
    a ns after the one around it, and is then dropped. A duration that would lose the ns
    in which the event ends is raised to it.
    """
    end = start + duration
    end[(end < start) & (duration > 0)] = np.iinfo(np.int64).max
    result: Int64s = np.maximum(end - start, (end // 1000 - start // 1000) * 1000)
    return result


def _micros(times: Int64s) -> list[str]:
    """Times in ps as µs in decimals, nothing rounded."""
    times, low = _clear(times)
    whole_us, rest = np.divmod(np.abs(times), _US)
    digits, more = 6, "4"
    if not (rest % 1000).any():
        # Recorded in ns, as by most tools: three digits are all there are.
        digits, more = 3, "0004"
        rest = rest // 1000
    parts = [
        f"{micros}.{fraction:0{digits}d}" if fraction else str(micros)
        for micros, fraction in zip(whole_us.tolist(), rest.tolist(), strict=True)
    ]
    for i in low.tolist():
        parts[i] += more
    for i in np.flatnonzero(times < 0).tolist():
        parts[i] = "-" + parts[i]
    return parts


def _clear(times: Int64s) -> tuple[Int64s, Int64s]:
    """Times in ps whose ns survive truncation of float64 µs, and those that need 0.4 ps for it.

    That is less than a ps, so a reader of the decimals gets the recorded time. Only hours from the
    start, where float64 is coarser than that, times near the start or the end of a ns are moved
    into it by some ps.
    """
    ns = times // 1000
    retained = _truncated(times)
    low = np.flatnonzero((times > 0) & (times % _US != 0) & (retained < ns))
    clear = _truncated(times[low], 4) == ns[low]
    beyond = np.flatnonzero((retained > ns) & (times <= _BOTH_READ))
    far, low = np.concatenate([low[~clear], beyond]), low[clear]
    if len(far):
        times = times.copy()
        step = np.ceil(2 * np.spacing(times[far] / _US) * _US).astype(np.int64)
        begin = ns[far] * 1000
        times[far] = np.clip(times[far], begin + step, begin + 999 - step)
    return times, low


def _truncated(times: Int64s, tenths: int = 0) -> Int64s:
    """The ns of times in ps (and tenths of a ps) after a round trip through float64 µs."""
    whole_us, rest = np.divmod(times, _US)
    # Rounded once, as by a reader of the decimals: what is too large for float64 to hold before the
    # division is divided in two parts.
    micros = np.where(
        times <= _EXACT,
        (np.minimum(times, _EXACT) * 10 + tenths) / (10 * _US),
        whole_us + (rest * 10 + tenths) / (10 * _US),
    )
    result: Int64s = (micros * 1000.0).astype(np.int64)
    return result


def _launches(run: Drawn) -> tuple[Int64s, Int64s]:
    """Launches on the host and the work on a device that each asked for; event ids."""
    launches = run.activity.launches.frame()
    launch, work = launches["event"].to_numpy(np.int64), launches["target"].to_numpy(np.int64)
    linked = work >= 0
    return launch[linked], work[linked]


_ROUNDS = 8


def threads(events: Events) -> npt.NDArray[np.int32]:
    """The further thread of its lane that each event goes to, 0 for none; int32[n].

    An event that begins within another and outlasts it goes to the next thread, with all events
    inside it, until no such event is left. Where many rounds are needed (a long staircase), the
    rest is laid out level by level, on which events do not overlap.
    """
    result = np.zeros(len(events), np.int32)
    rows = np.arange(len(events))
    for number in range(_ROUNDS):
        lane, start = events.lane[rows], events.start[rows]
        length = np.maximum(events.duration[rows], 0)
        parent = events.parent if number == 0 else None
        # PyTorch's events may run a little past the one around them.
        if parent is None or _past(start + length, parent):
            parent = nesting.parents(lane, start, length)
        over = overlapping(lane, start, start + length, parent)
        if not over.any():
            return result
        rows = rows[_with_inner(over, parent)]
        result[rows] = number + 1
    rest = Events(events.lane[rows], events.name[rows], events.start[rows], events.duration[rows])
    result[rows] = _ROUNDS + stack(rest).level.astype(np.int32)
    return result


def _past(end: Int64s, parent: npt.NDArray[np.int32]) -> bool:
    """True for events that end after the one around them."""
    nested = np.flatnonzero(parent >= 0)
    return bool((end[nested] > end[parent[nested]]).any())


def _with_inner(
    marked: npt.NDArray[np.bool_], parent: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Marked events and all events inside them; distances double in each round."""
    marked, above = marked.copy(), parent.copy()
    open_ = np.flatnonzero(above >= 0)
    while len(open_):
        marked[open_] |= marked[above[open_]]
        above[open_] = above[above[open_]]
        open_ = open_[above[open_] >= 0]
    return marked


def _metadata(name: str, thread: str, args: str) -> str:
    return f'{{"ph":"M","name":"{name}",{thread},"args":{{{args}}}}}'
