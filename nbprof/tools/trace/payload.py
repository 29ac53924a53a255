"""The timeline: tracks of slices, thinned to what a saved notebook can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nbprof.core.nesting import self_times_of
from nbprof.display.codec import Delta, coded, numbers, short, smallest
from nbprof.display.wording import one_line, plural
from nbprof.timeline import arrows
from nbprof.timeline.arrows import Arrows
from nbprof.timeline.gaps import busy, first_largest, sections
from nbprof.timeline.lane_header import MOST_NAME, head, notes
from nbprof.timeline.slices import Slices
from nbprof.timeline.tracks import Counter, Tracks
from nbprof.tools.parts import Empty
from nbprof.tools.tool import MOST_EVENTS
from nbprof.tools.trace import density, parts
from nbprof.tools.trace.longest import Ints, longest

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_GAPS = 50
"""Of each device."""
MOST_SAMPLES = 500
"""Samples of one counter."""
_PS = 1000


def payload(run: Run, limit: int = MOST_EVENTS) -> parts.Trace:
    """All lanes and step markers, of the other events the longest of each lane, and the density of
    the rest.

    Parameters
    ----------
    run : Run
    limit : int
        Events in all; 0 leaves only the lanes and the density.
    """
    timeline = run.timeline
    tracks = timeline.tracks
    if not len(tracks.events) and not len(tracks.extra) and not tracks.counters:
        return nothing()
    # Times count from the start of the profile, as in every frame; an event before it moves the
    # origin.
    tick = tick_ns(tracks.end - tracks.origin)
    always = {lane.id for lane in tracks.lanes if lane.kind == "steps"}
    tables = (tracks.events, tracks.extra)
    retained = longest([(events.lane, events.duration) for events in tables], always, limit)
    # Whoever looks at the timeline next needs the same rows.
    index = timeline.index
    stacks = [index.main.stack, index.extra.stack]
    levels = [each.level for each in stacks]
    joined, lacks = _joined(run, tracks, retained, limit)
    columns = _Columns(tracks, retained, levels, tick, joined)
    counters = {counter.id: counter for counter in tracks.counters}
    return parts.Trace(
        empty=None,
        key="",
        tick_ns=tick,
        origin_ns=tracks.origin / _PS,
        end=max((tracks.end - tracks.origin) // (tick * _PS), 0),
        names=columns.names,
        category=np.pad(
            tracks.category[columns.used].astype(np.uint8),
            (0, len(columns.names) - len(columns.used)),
        ),
        lanes=[
            columns.lane(
                head(lane, len(run.hosts)),
                max(index.rows(lane.id), 1),
                counters.get(lane.id),
            )
            for lane in tracks.lanes
        ],
        shown=sum(map(len, retained)),
        total=len(tracks.events) + len(tracks.extra),
        rest=density.rest(tracks, retained, levels, tick * _PS),
        strip=parts.Strip(**timeline.strip),
        gaps=_gaps(timeline.slices),
        links=columns.links(joined),
        lacks=lacks,
        notes=notes(tracks, stacks),
    )


def _joined(run: Run, tracks: Tracks, retained: list[Ints], limit: int) -> tuple[Arrows, list[str]]:
    """The arrows between the kept events, and what else was recorded of them."""

    def make() -> tuple[Arrows, list[str]]:
        links = run.timeline.links
        complete = sum(map(len, retained)) == len(tracks.events) + len(tracks.extra)
        joined = arrows.arrows(links, *retained)
        lacks = arrows.lacks(links, complete=complete)
        if joined.left_out:
            lacks.append(plural(joined.left_out, "more arrow"))
        return joined, lacks

    if limit != MOST_EVENTS:
        return make()
    return run.persist("timeline_arrows", make)


class _Columns:
    """The kept events, and how one lane is cut out of them."""

    def __init__(
        self,
        tracks: Tracks,
        retained: list[Ints],
        levels: list[density.Levels],
        tick: int,
        joined: Arrows,
    ) -> None:
        self._origin, self._unit, self._of_trace = tracks.origin, tick * _PS, tracks.events
        unit = tick * _PS
        columns = []
        first = 0
        for events, rows, level in zip(
            (tracks.events, tracks.extra), retained, levels, strict=True
        ):
            start = events.start[rows] - tracks.origin
            # The end of every event is rounded like its start: what was nested stays nested.
            begin, end = start // unit, (start + np.maximum(events.duration[rows], 0)) // unit
            self_time = np.minimum(
                np.maximum(self_times_of(rows, events.parent, events.duration), 0) // unit,
                end - begin,
            )
            columns.append(
                (
                    events.lane[rows],
                    begin,
                    end - begin,
                    self_time,
                    level[rows],
                    events.name[rows],
                    rows + first,
                )
            )
            first += len(events)
        lane, self._start, self._duration, self._self_time, self._level, name, self._event = map(
            np.concatenate, zip(*columns, strict=True)
        )
        self.used, names = np.unique(name, return_inverse=True)
        self._names = smallest(names)
        self.names = [one_line(str(tracks.names[code]))[:MOST_NAME] for code in self.used]
        self._op = self._ops(joined.op, joined.op_of)
        # Of all lanes at once: there may be thousands.
        self._bounds = np.searchsorted(
            lane, np.arange(max((track.id for track in tracks.lanes), default=-1) + 2)
        ).tolist()
        self._length, self._nested_time = (
            self._duration.astype(np.uint32),
            self._duration - self._self_time,
        )
        self._has_op = self._op != 0

    def _ops(self, texts: list[str], op: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """The op of each event as 1 + its place among the names, 0 where none is known; ops that no
        slice is called by follow the names.
        """
        position = {name: i for i, name in reversed(list(enumerate(self.names, 1)))}
        codes = [0]
        for text in texts:
            name = one_line(text)[:MOST_NAME]
            if name not in position:
                self.names.append(name)
                position[name] = len(self.names)
            codes.append(position[name])
        return np.pad(smallest(np.array(codes)[op + 1]), (0, len(self._event) - len(op)))

    def links(self, joined: Arrows) -> parts.Links:
        """The arrows, and launches that are not among the kept events."""
        start = self._of_trace.start
        work = (start[joined.work] - self._origin) // self._unit
        call = (start[joined.call] - self._origin) // self._unit
        limits = np.iinfo(np.int32)
        return parts.Links(
            kind=joined.kind,
            from_=Delta(joined.start),
            to=Delta(joined.finish),
            left_out=joined.left_out,
            work=Delta(joined.work),
            on=smallest(self._of_trace.lane[joined.call]),
            delay=np.clip(work - call, limits.min, limits.max).astype(np.int32),
        )

    def lane(self, header: dict[str, Any], depths: int, counter: Counter | None) -> parts.Lane:
        """The kept events of a lane with this header and so many levels."""
        ident = header["id"]
        part = slice(self._bounds[ident], self._bounds[ident + 1])
        time, value = (None, None) if counter is None else _samples(counter, self._origin)
        return parts.Lane(
            **header,
            depths=depths,
            start=Delta(self._start[part]),
            duration=self._length[part],
            # Of most events nothing, so that it packs better than self times, which mostly repeat
            # the durations.
            inside=smallest(self._nested_time[part]),
            name_code=self._names[part],
            depth=_levels(self._level[part]),
            event=Delta(self._event[part]),
            op=smallest(self._op[part]) if self._has_op[part].any() else None,
            time=time,
            value=value,
            unit=None if counter is None else counter.unit,
        )


def _levels(level: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint8 | np.uint16]:
    if len(level) and level.max() >= 256:
        return level
    return level.astype(np.uint8)


def _samples(
    counter: Counter, origin: int
) -> tuple[Delta | npt.NDArray[np.float64], npt.NDArray[Any]]:
    """A counter's samples; of too many, the lowest, the highest and the last of equally long runs
    of them.

    The last is there because a sample holds until the next, however long that is. Of a share of
    time it is the mean of equal parts of the time: what it is at a moment says nothing of the time
    around it.
    """
    time, value = counter.samples
    if len(time) > MOST_SAMPLES and counter.unit == "percent":
        time, value = _means(time, value, MOST_SAMPLES - 1)
    elif len(time) > MOST_SAMPLES:
        edges = np.linspace(0, len(time), MOST_SAMPLES // 3 + 1).astype(np.int64)
        lowest = _first_of(np.minimum.reduceat(value, edges[:-1]), value, edges)
        highest = _first_of(np.maximum.reduceat(value, edges[:-1]), value, edges)
        rows = np.unique([lowest, highest, edges[1:] - 1])
        time, value = time[rows], value[rows]
    if counter.unit == "percent":
        # Shares are drawn, with three digits.
        return _in_ns(time - origin), value.astype(np.float32)
    return _in_ns(time - origin), numbers(value)


def _in_ns(time: Ints) -> Delta | npt.NDArray[np.float64]:
    """Times as nanoseconds: in whole ones, as the slices beside them begin, where 31 bits hold
    them.
    """
    ns = time // _PS
    if len(ns) and ns.min() >= 0 and ns.max() < 2**31:
        return Delta(ns)
    return short(time / _PS)


def _means(
    time: Ints, value: npt.NDArray[np.float64], parts: int
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Means of equal parts of the time, and the last value; the values hold until the next."""
    edges = np.linspace(float(time[0]), float(time[-1]), parts + 1)
    reached = np.append(0.0, np.cumsum(value[:-1] * np.diff(time)))
    mean = np.diff(np.interp(edges, time.astype(np.float64), reached)) / np.diff(edges)
    return edges.astype(np.int64), np.append(mean, value[-1])


def _first_of(
    extremes: npt.NDArray[np.float64], values: npt.NDArray[np.float64], edges: Ints
) -> Ints:
    """By run of values, the place of the first that is wanted there; NaN is what is found where
    there is one.
    """
    same = values == np.repeat(extremes, np.diff(edges))
    rows = np.flatnonzero(same | np.isnan(values))
    return rows[np.searchsorted(rows, edges[:-1])]


def _gaps(slices: Slices) -> parts.Gaps:
    """The longest times in which each device ran nothing."""
    rows = []
    for (_, process), lanes in sections(slices).items():
        work = busy(slices, lanes, slices.tracks.origin, slices.tracks.end + 1)
        start, length = work.end[:-1], work.start[1:] - work.end[:-1]
        largest = first_largest(length, MOST_GAPS)
        rows += [
            (process, slices.ns(int(start[i])), int(length[i]) / _PS)
            for i in largest.tolist()
            if length[i] > 0
        ]
    rows.sort(key=lambda row: (-row[2], row[1]))
    return parts.Gaps(
        process=coded(process for process, _, _ in rows),
        start=np.array([start for _, start, _ in rows], np.float64),
        duration=np.array([length for _, _, length in rows], np.float64),
    )


def _no_links() -> parts.Links:
    none = np.zeros(0, np.uint8)
    return parts.Links(
        kind=none, from_=none, to=none, left_out=0, work=none, on=none, delay=none.astype(np.int32)
    )


def _no_gaps() -> parts.Gaps:
    return parts.Gaps(process=coded([]), start=np.zeros(0), duration=np.zeros(0))


def tick_ns(span_ps: int) -> int:
    """Nanoseconds of a tick: as few as let the profile fit into 31 bits of ticks."""
    return span_ps // (_PS * (2**31 - 1)) + 1


def nothing() -> parts.Trace:
    """The part without events."""
    none = np.zeros(0, np.uint8)
    return parts.Trace(
        empty=Empty(
            title="No events in this run",
            text="The profile has no timed events, so there is nothing to draw.",
        ),
        key="",
        tick_ns=1,
        origin_ns=0.0,
        end=0,
        names=[],
        category=none,
        lanes=[],
        shown=0,
        total=0,
        rest=density.nothing(),
        strip=parts.Strip(above=none, below=none, below_is="device"),
        gaps=_no_gaps(),
        links=_no_links(),
        lacks=[],
        notes=[],
    )
