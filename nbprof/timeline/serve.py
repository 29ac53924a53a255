"""Answers the requests of a page about the events of a run, and packs the answers.

A request is JSON with a field `ask`; times are ns since the origin of the profile. Its answer has
`ok`, and an `error` as a sentence where that is false. Lanes, rows and links are built when they
are first needed, and kept. Several threads may ask at a time: tiles have a lock of their own, so
that the picture moves while a search goes on.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.core.quiet import quietly
from nbprof.display import codec
from nbprof.timeline.drawable import Drawable
from nbprof.timeline.request import MOST_EVENTS, MOST_LANES, BadRequest, Request

if TYPE_CHECKING:
    from nbprof.timeline.details import Details
    from nbprof.timeline.find import Finder, Hits
    from nbprof.timeline.index import Index
    from nbprof.timeline.links import Links
    from nbprof.timeline.slices import Direction, Slices
    from nbprof.timeline.tracks import Tracks

T = TypeVar("T")
Answer = dict[str, Any]

STEPS = ("previous", "next", "parent", "child", "previous_same", "next_same")
TARGETS = ("op", "kernel", "input", "function", "step", "gap", "memory_peak", "name")
MOST_QUERY = 500
MOST_GAPS = 10_000
MOST_NAME = 65_536
MANY = 200_000
"""Lanes with this many events get their tile data before it is needed."""
_MOST_REASON = 300


class Timeline:
    """The timeline of one run.

    Parameters
    ----------
    run : Drawable
    """

    def __init__(self, run: Drawable) -> None:
        self.run = run
        self._values: dict[str, Any] = {}
        self._creating = threading.RLock()
        self._drawing = threading.Lock()
        self._asking = threading.Lock()
        self._searching = threading.Lock()

    def _once(self, name: str, make: Callable[[], T]) -> T:
        with self._creating:
            if name not in self._values:
                self._values[name] = make()
            value: T = self._values[name]
            return value

    @property
    def tracks(self) -> Tracks:
        """The lanes as they are drawn."""
        from nbprof.timeline.tracks import tracks

        return self._once("tracks", lambda: tracks(self.run))

    @property
    def index(self) -> Index:
        """Index of events by lane, level and time."""
        from nbprof.timeline.index import Index

        return self._once("index", lambda: Index(self.tracks))

    @property
    def strip(self) -> dict[str, Any]:
        """The whole profile at a glance."""
        from nbprof.timeline.density import strip

        return self._once(
            "strip", lambda: self.run.persist("timeline_strip", lambda: strip(self.tracks))
        )

    @property
    def links(self) -> Links:
        """Links between events: arrows, launches and stacks."""
        from nbprof.timeline.links import Links

        return self._once("links", lambda: Links(self.run, self.tracks))

    @property
    def slices(self) -> Slices:
        """Slices by event."""
        from nbprof.timeline.slices import Slices

        # No cycle: a profile that is let go is out of memory at once.
        reference = weakref.proxy(self)
        return self._once(
            "slices",
            lambda: Slices(
                self.tracks,
                lambda: (reference.index.main.stack.level, reference.index.extra.stack.level),
            ),
        )

    @property
    def details(self) -> Details:
        """All details of one slice."""
        from nbprof.timeline.details import Details

        return self._once("details", lambda: Details(self.run, self.slices, self.links))

    @property
    def finder(self) -> Finder:
        """Searches."""
        from nbprof.timeline.find import Finder

        return self._once("finder", lambda: Finder(self.run.trace, self.slices))

    @property
    def lanes(self) -> int:
        """One more than the largest id of a lane."""
        return self._once("lanes", lambda: self.tracks.lane_ids)

    @property
    def events(self) -> int:
        """One more than the largest id of an event."""
        return len(self.tracks.events) + len(self.tracks.extra)

    def prepare(self) -> None:
        """Starts to build the data of tiles in a thread, while the page draws its first picture."""
        if len(self.tracks.events) >= MANY and "prepared" not in self._values:
            self._values["prepared"] = True
            # Without threads it is built when it is needed.
            with contextlib.suppress(RuntimeError):
                threading.Thread(
                    target=quietly,
                    args=(_prepare, self.index, self._drawing),
                    name="nbprof-tiles",
                    daemon=True,
                ).start()

    def hits(self, query: str) -> Hits | None:
        """The hits of a search; None for an empty text."""
        if not query.strip():
            return None
        with self._searching:
            return self.finder.hits(query)

    def answer(self, request: object) -> Answer:
        """The answer to a request, as JSON values and columns; never raises."""
        try:
            asked = Request(request)
            kind = asked.ask
            if kind not in _ANSWERS:
                raise BadRequest(f"Unknown request {kind[:40]!r}.")
            locks, answers = _ANSWERS[kind]
            with contextlib.ExitStack() as locked:
                for lock in locks:
                    locked.enter_context(getattr(self, lock))
                return {"ok": True, **answers(self, asked)}
        except Exception as error:
            return refusal(error)


def _prepare(index: Index, lock: threading.Lock) -> None:
    # A failure here repeats when the data is requested, and is an answer then. A page that asks for
    # tiles meanwhile waits for one row.
    with lock:
        _ = index.main.blocks
    for lane, level in index.main.long_rows():
        with lock:
            index.main.coarsen(lane, level, index.tracks.origin)


def refusal(error: Exception) -> Answer:
    """The answer to a failed request, with the error as a sentence."""
    if isinstance(error, (NbprofError, IndexError)):
        text = str(error)
    else:
        text = f"This could not be answered ({type(error).__name__}: {error})."
    return {"ok": False, "error": text[:_MOST_REASON]}


class Drawn(Drawable, Protocol):
    """A run with its timeline."""

    @property
    def timeline(self) -> Timeline: ...  # noqa: D102


def reply(run: Drawn, request: object) -> bytes:
    """The packed answer of a run; never raises."""
    answer = run.timeline.answer(request)
    try:
        return codec.contain(_columns(answer))
    except Exception as error:
        return codec.contain(refusal(error))


def _columns(value: Any) -> Any:
    """The answer with int64 columns as int32 or float64: JavaScript cannot compute with int64."""
    if isinstance(value, dict):
        return {name: _columns(item) for name, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.dtype.itemsize == 8:
        narrow = not len(value) or (int(value.min()) >= -(2**31) and int(value.max()) < 2**31)
        return value.astype(np.int32 if narrow else np.float64)
    return value


def _open(timeline: Timeline, request: Request) -> Answer:  # noqa: ARG001
    from nbprof.core.version import __version__
    from nbprof.timeline.lane_header import head, notes

    tracks, index = timeline.tracks, timeline.index
    timeline.prepare()
    units = {counter.id: counter.unit for counter in tracks.counters}
    lanes, hosts = [], len(timeline.run.hosts)
    for lane in tracks.lanes:
        header = {**head(lane, hosts), "depths": max(index.rows(lane.id), 1)}
        if lane.id in units:
            header["unit"] = units[lane.id]
        lanes.append(header)
    return {
        "key": timeline.run.source.content_key(),
        "version": __version__,
        "lanes": lanes,
        "end_ns": max(tracks.end - tracks.origin, 0) / 1000,
        "total": timeline.events,
        "strip": timeline.strip,
        "notes": timeline._once(
            "notes", lambda: notes(tracks, [index.main.stack, index.extra.stack])
        ),
    }


def _tiles(timeline: Timeline, request: Request) -> Answer:
    from nbprof.timeline.tiles import tiles

    level, want = request.level(), request.tile_rows(timeline.lanes)
    hits = timeline.hits(request.text("query", "", MOST_QUERY))
    return tiles(timeline.index, {"level": level, "want": want}, None if hits is None else hits.ids)


def _slice(timeline: Timeline, request: Request) -> Answer:
    return timeline.details.info(request.integer("event", 0, timeline.events - 1))


def _step(timeline: Timeline, request: Request) -> Answer:
    event, to = request.integer("event", 0, timeline.events - 1), request.one_of("to", *STEPS)
    target = timeline.slices.step(event, cast("Direction", to))
    return {"slice": timeline.slices.ref_or_none(target)}


def _first(timeline: Timeline, request: Request) -> Answer:
    start, end = request.window()
    lanes = request.integers("lanes", timeline.lanes, MOST_LANES)
    event = timeline.slices.first(start, end, lanes)
    return {"slice": timeline.slices.ref_or_none(event)}


def _range(timeline: Timeline, request: Request) -> Answer:
    from nbprof.timeline.ranges import range_info

    lanes = None
    if "lanes" in request:
        lanes = request.integers("lanes", timeline.lanes, MOST_LANES)
    return range_info(timeline.slices, *request.window(), lanes)


def _many(timeline: Timeline, request: Request) -> Answer:
    from nbprof.timeline.ranges import many_info

    return many_info(timeline.slices, request.integers("events", timeline.events, MOST_EVENTS))


def _search(timeline: Timeline, request: Request) -> Answer:
    return timeline.finder.search(request.text("query", "", MOST_QUERY))


def _hit(timeline: Timeline, request: Request) -> Answer:
    query = request.text("query", "", MOST_QUERY)
    target: dict[str, Any]
    if "index" in request:
        target = {"index": request.integer("index", -(2**53), 2**53)}
    elif "event" in request:
        target = {"event": request.integer("event", 0, timeline.events - 1), "by": _by(request)}
    elif "time_ns" in request:
        target = {"time_ns": request.number("time_ns"), "by": _by(request)}
    elif request.yes("longest"):
        target = {"longest": True}
    else:
        raise BadRequest("A hit is requested by index, event, time_ns or longest.")
    return timeline.finder.hit(query, target)


def _by(request: Request) -> int:
    by = request.integer("by", -1, 1)
    if not by:
        raise BadRequest("by is 0; it is 1 for the next hit or -1 for the one before.")
    return by


def _locate(timeline: Timeline, request: Request) -> Answer:
    from nbprof.timeline.locate import Locator

    target: dict[str, Any] = {"kind": request.one_of("kind", *TARGETS)}
    target |= {
        name: request.text(name, limit=MOST_NAME)
        for name in ("name", "host", "device", "where")
        if name in request
    }
    if "step" in request:
        target["step"] = request.integer("step", -(2**53), 2**53)
    if "time_ms" in request:
        target["time_ms"] = request.number("time_ms")
    return Locator(timeline.run, timeline.slices, timeline.finder).locate(target)


def _gaps(timeline: Timeline, request: Request) -> Answer:
    from nbprof.timeline import gaps

    start = end = None
    if "from" in request or "to" in request:
        start, end = request.window()
    return gaps.answer(timeline.slices, start, end, request.integer("most", 1, MOST_GAPS, 100))


_ANSWERS: dict[str, tuple[tuple[str, ...], Callable[[Timeline, Request], Answer]]] = {
    "open": (("_asking",), _open),
    "tiles": (("_drawing",), _tiles),
    "slice": (("_asking",), _slice),
    "step": (("_asking",), _step),
    "first": (("_asking",), _first),
    "range": (("_asking",), _range),
    "many": (("_asking",), _many),
    "search": (("_searching",), _search),
    "hit": (("_searching",), _hit),
    "locate": (("_searching", "_asking"), _locate),
    "gaps": (("_asking",), _gaps),
}
"""By `ask`: the locks of a request, in the order in which they are always taken, and its answer."""
