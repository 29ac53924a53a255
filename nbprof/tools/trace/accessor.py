"""`p.trace`: every event on its lane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.timeline import export as writer
from nbprof.timeline import gaps, select_events
from nbprof.timeline.ranges import by_name, work_lanes
from nbprof.timeline.sums import Rows, in_lane
from nbprof.timeline.tracks import Tracks
from nbprof.tools.accessor import View

_FAR = 2.0**62
"""ps"""


class TraceView(View):
    """Every event on its lane."""

    def _there(self) -> bool:
        return len(self._profile.run.trace.events) > 0

    @property
    def lanes(self) -> pd.DataFrame:
        """One row per recorded lane, in the order of the file, with the number of its events;
        `tracks` has those that are drawn.
        """
        lanes = self._profile.run.trace.lanes
        return lanes[["lane", "host", "process", "thread", "kind", "device", "events"]].copy()

    @property
    def tracks(self) -> pd.DataFrame:
        """One row per lane as the timeline draws them, in its order: recorded ones with events,
        derived ones, and counters.
        """
        rows = [
            (t.id, t.host, t.process, t.name, t.kind, t.events, t.derived)
            for t in self._profile.run.timeline.tracks.lanes
        ]
        columns = ["lane", "host", "process", "name", "kind", "events", "derived"]
        return pd.DataFrame(rows, columns=columns).astype(
            {"lane": "int64", "events": "int64", "derived": "bool"}
        )

    def events(
        self,
        lane: select_events.Lanes | None = None,
        name: select_events.Names | None = None,
        between: tuple[float, float] | None = None,
        args: Sequence[str] = (),
        kind: str | None = None,
    ) -> pd.DataFrame:
        """Events as a frame, in time order on each lane. Start, duration and self time are in µs.

        Parameters
        ----------
        lane : int, str, pattern, or several of these, optional
            Number of a lane, a text that its name holds, a text `/regular expression/`, or a
            compiled expression. All recorded lanes when left out; derived ones are there by number,
            see `tracks`.
        name : str or pattern, optional
            A text that the event's name holds, full or as it is drawn; or an expression, as for
            `lane`.
        between : (float, float), optional
            Only events that touch this range, in ms after the start of the profile.
        args : sequence of str
            Args to add as columns; NA where an event has no such arg.
        kind : str, optional
            Only lanes of this kind: steps, device or host.

        Returns
        -------
        DataFrame
            One row per event: `host` `process` `lane` `name` (in full), `start_us` after the start
            of the profile, `duration_us`, `depth` (how many events of its lane contain it),
            `self_us` (without the events in it), `event` (its number in the profile), and the args.

        Raises
        ------
        NbprofError
            An arg that no event has, an unknown kind, or an invalid regular expression.

        Examples
        --------
        >>> kernels = {"lane": "Stream", "name": "/gemm|conv/"}
        >>> p.trace.events(**kernels, between=(120.0, 140.0))   # doctest: +SKIP
        """
        run = self._profile.run
        tracks = run.timeline.tracks
        return select_events.frame(
            run.trace,
            tracks,
            select_events.pick(tracks, lane, name, between, kind),
            [args] if isinstance(args, str) else args,
        )

    def find(self, text: str) -> pd.DataFrame:
        """The events that a search in the timeline finds, in time order, with the columns of
        `events`.

        Parameters
        ----------
        text : str
            A part of a name or of a text among the args, in any case; a `/regular expression/`; an
            integer also finds args equal to it.

        Raises
        ------
        NbprofError
            The expression is invalid, or could take forever.

        Examples
        --------
        >>> p.trace.find("all_reduce")["duration_us"].sum()   # doctest: +SKIP
        """
        run = self._profile.run
        hits = run.timeline.finder.hits(text)
        if hits.error:
            raise NbprofError(hits.error)
        events = select_events.frame(run.trace, run.timeline.tracks, hits.ids.astype(np.int64))
        return events.sort_values("start_us", kind="stable", ignore_index=True)

    def range(
        self, from_ms: float, to_ms: float, lanes: select_events.Lanes | None = None
    ) -> pd.DataFrame:
        """Time between two moments by name, most self time first. Times are in µs, and only the
        part within the range counts.

        `on` is the kind of lane: a launch on the host may have the name of its kernel on the
        device; it is a separate row.

        Parameters
        ----------
        from_ms, to_ms : float
            After the start of the profile.
        lanes : int, str, pattern, or several of these, optional
            As `lane` of `events`; when left out all lanes that hold work themselves, those of
            devices that say it again left out.

        Returns
        -------
        DataFrame
            One row per name and side: `name`, `on` (host or device), `count`, `self_us`, `total_us`
            (with nested events), `percent` (`self_us` of the range; lanes run at the same time, so
            the sum may exceed 100).

        Examples
        --------
        >>> p.trace.range(120.0, 140.0).head()   # doctest: +SKIP
        """
        slices = self._profile.run.timeline.slices
        tracks = slices.tracks
        low, high = _within(tracks, select_events.window((from_ms, to_ms)))
        chosen = work_lanes(slices) if lanes is None else select_events.lanes(tracks, lanes, None)
        sets: dict[str, list[Rows]] = {}
        for lane in chosen:
            sets.setdefault(lane.kind, []).extend(
                in_lane(slices.part_of(lane.id), lane.id, low, high)
            )
        names = by_name(slices, sets)
        columns = {
            "name": names.name,
            "on": names.on,
            "count": names.count,
            "self_us": names.self_time / 1e6,
            "total_us": names.total / 1e6,
        }
        result = pd.DataFrame(columns)
        result["percent"] = 0.0
        if high > low:
            result["percent"] = result["self_us"] * (1e8 / (high - low))
        return result.sort_values(
            ["self_us", "count"], ascending=False, kind="stable", ignore_index=True
        )

    def gaps(self, most: int = gaps.MOST) -> pd.DataFrame:
        """The longest times in which a device ran nothing, longest first, and what the host did
        meanwhile. `start_ms` is after the start of the profile, durations are in µs.

        Parameters
        ----------
        most : int
            How many rows, over all devices.
        """
        run = self._profile.run
        return gaps.frame(run, most, run.timeline.slices)

    def export(
        self,
        path: str | Path,
        *,
        between: tuple[float, float] | None = None,
        lanes: select_events.Lanes | None = None,
        counters: bool = True,
    ) -> Path:
        """Writes a Chrome trace in JSON, which Perfetto and chrome://tracing open: every event,
        arg, counter and flow arrow.

        Times keep their picoseconds. Events that overlap only partly are placed on further threads,
        `name (2)` and so on, as Perfetto drops them otherwise. A file of that name is replaced.

        Parameters
        ----------
        path : str or path
            Ends in `.json`, or in `.json.gz` to be compressed.
        between : (float, float), optional
            Only events that touch this range, in ms after the start of the profile.
        lanes : int, str, pattern, or several of these, optional
            As `lane` of `events`; all recorded ones when left out.
        counters : bool
            Whether to write counters, too.

        Raises
        ------
        NbprofError
            Another ending, or the file could not be written.

        Examples
        --------
        >>> p.trace.export("trace.json.gz", lanes="Stream")   # doctest: +SKIP
        """
        return writer.export(
            self._profile.run, path, between=between, lanes=lanes, counters=counters
        )


def _within(tracks: Tracks, window: tuple[float, float]) -> tuple[int, int]:
    """A window in whole ps; one from or to far beyond the profile ends next to it, since nothing
    is there.
    """
    first, last = window
    if abs(first) > _FAR:
        first = min(max(first, tracks.origin - 1), tracks.end + 1)
    if abs(last) > _FAR:
        last = min(max(last, tracks.origin - 1), tracks.end + 1)
    return round(first), round(last)
