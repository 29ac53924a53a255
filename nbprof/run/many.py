"""A run of many hosts, each read apart: `CombinedRun` has every frame that follows from what they
leave, and of none the events.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.activity.unit import NONE, WHOLE
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import Missing, RunFiles
from nbprof.core.strings import python_strings
from nbprof.core.trace import Cut, Events, Note, Receipt, Trace
from nbprof.formats.hosts import with_folders
from nbprof.formats.register import by_name, stem
from nbprof.run import combine, parallel, stated
from nbprof.run.cache.run_cache import RunCache, open_run_cache
from nbprof.run.lazy import FIRST, LARGEST, PROGRAMS, REST, SOME, Frames, Hosts, combined, persisted
from nbprof.run.partial import Partial, pack
from nbprof.run.run import GROUPS, Run
from nbprof.run.source import RunSource

if TYPE_CHECKING:
    from nbprof.activity.activity import Activity
    from nbprof.dialects.gpu.captures import Capture
    from nbprof.sources.recording import CaptureInfo

_READ = "read"
_AT_ONCE = 128
"""Of so many files all is read together, as what follows the answer is asked for sooner than it
could be read again.
"""


@python_strings()
def partial(
    files: RunFiles,
    capture: CaptureInfo | None,
    given_peaks: Mapping[str, float] | None,
    whens: Sequence[str],
    units: str,
) -> bytes:
    """What some hosts leave of their files, as the bytes of a `Partial`: the values that are read
    at some times. Runs in a worker.

    `units` says what may stand in the place of steps, see `nbprof.activity.unit`.

    Raises
    ------
    ReadError
    """
    run = Run.read(files, capture, keep=False, given_peaks=given_peaks, units=units)
    # What the analysis says is said of all hosts together: this is what the reader says.
    said = deepcopy(run.as_read.receipt)
    notes = [note for note in said.notes if note != said.about_cut]
    read = {
        "epoch_ns": int(run.as_read.epoch_ns),
        "events": said.events,
        "notes": notes,
        "skipped": said.skipped,
        "cut": said.cut,
    }
    values = {name: get(run) for name, (get, when) in _combined().items() if when in whens}
    read["notes"] = [
        *notes,
        *(Note("warning", sentence) for sentence in run.memo.failures.sentences),
    ]
    return pack({_READ: read, **values})


def _combined() -> dict[str, tuple[Callable[[Run], Any], str]]:
    """How each value that is combined over hosts is got of a run, and when it is, by the name that
    it has there.
    """
    out: dict[str, tuple[Callable[[Run], Any], str]] = {}
    owners: list[tuple[str, type[Frames]]] = [("", Run), *GROUPS.items()]
    for group, owner in owners:
        for attribute, made in vars(owner).items():
            if isinstance(made, combined):
                out[owner.prefix + attribute] = _getter(group, attribute), made.when
    return out


def _getter(group: str, attribute: str) -> Callable[[Run], Any]:
    return lambda run: getattr(getattr(run, group) if group else run, attribute)


class Read:
    """Values of groups of hosts.

    Parameters
    ----------
    partials : sequence of Partial
        One a group.
    groups : list of list of str
        What the hosts are called in the run.
    own : list of list of str
        What they call themselves.
    late_ms : list of float
    """

    def __init__(
        self,
        partials: Sequence[Partial],
        groups: list[list[str]],
        own: list[list[str]],
        late_ms: list[float],
    ) -> None:
        self.groups, self.late_ms = groups, late_ms
        self._partials = partials
        self._renamed = [
            {old: new for old, new in zip(*both, strict=True) if old != new}
            for both in zip(own, groups, strict=True)
        ]

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""
        return [
            _named(one[name], names)
            for one, names in zip(self._partials, self._renamed, strict=True)
        ]

    def reading(self, when: str) -> Hosts:
        """No others are known."""
        raise KeyError(when)


More = Callable[
    [Sequence[parallel.Group], Sequence[str]], "tuple[dict[parallel.Group, bytes], list[Missing]]"
]
"""Reads files in groups, now or again: for what is asked for later."""
Soon = Callable[[Sequence[parallel.Group], Sequence[str]], None]
"""Has them read meanwhile, for what is asked for next."""


@dataclass
class Wanted:
    """What may stand in the place of steps in what is read, see `nbprof.activity.unit`."""

    units: str = NONE


class Parts:
    """The hosts of a run that were read apart.

    Parameters
    ----------
    files : RunFiles
    together : sequence of Group
        The groups in which files are read.
    more, soon : callable
        Read them; see `More` and `Soon`.
    whole : bool
        Read what a tab asks for at once with the answer.
    drawn : bool
        The dashboard is drawn next: see `read_ahead`.
    wanted : Wanted
        What `more` and `soon` read, which is changed where no host has steps.
    """

    def __init__(
        self,
        files: RunFiles,
        together: Sequence[parallel.Group],
        more: More,
        soon: Soon,
        *,
        whole: bool,
        drawn: bool,
        wanted: Wanted | None = None,
    ) -> None:
        wanted = wanted or Wanted()
        self._more, self._soon, self._drawn = more, soon, drawn
        self._expected: set[str] = set()
        few = len(files.files) <= parallel.MANY
        whens = (FIRST, REST, SOME) if few else (FIRST, REST) if whole else (FIRST,)
        together = [(number,) for number in range(len(files.files))] if few else together
        data, self.missing = more(together, whens)
        partials = [Partial(one) for one in data.values()]
        if not any(len(one["_measured_steps"][0]) for one in partials):
            # Only now is it known that no host has steps.
            wanted.units = WHOLE
            data, self.missing = more(together, whens)
            partials = [Partial(one) for one in data.values()]
        self._together = list(data)
        self.numbers = [number for group in data for number in group]
        self._names_of_files = [file.name for file in files.files]
        self.read: list[dict[str, Any]] = [one[_READ] for one in partials]
        self._own: list[list[str]] = [one["hosts"] for one in partials]
        called = with_folders(
            [stem(files.files[number].name) for number in self.numbers],
            [files.files[number] for number in self.numbers],
        )
        names = iter(_distinct([name for own in self._own for name in own], called))
        self.groups = [[next(names) for _ in own] for own in self._own]
        known = [one["epoch_ns"] for one in self.read if one["epoch_ns"]]
        self.epoch_ns: int = min(known, default=0)
        # A host without a clock stands at its own start, as where all are read at once.
        self.late_ms = [
            (one["epoch_ns"] - self.epoch_ns) / 1e6 if one["epoch_ns"] else 0.0 for one in self.read
        ]
        self._read: dict[str, Read] = dict.fromkeys(
            whens, Read(partials, self.groups, self._own, self.late_ms)
        )
        self._ahead()

    @property
    def names(self) -> list[str]:
        """The hosts."""
        return [name for group in self.groups for name in group]

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""
        return self._read[FIRST].values(name)

    def reading(self, when: str) -> Hosts:
        """The hosts with values of that kind, which are read now if they were not before.

        Raises
        ------
        ReadError
            A file is not there any more.
        """
        if when not in self._read:
            self._read[when] = self._again() if when == REST else self._some(when)
            self._ahead()
        return self._read[when]

    def _again(self) -> Read:
        return Read(self._asked(self._together, REST), self.groups, self._own, self.late_ms)

    def read_ahead(self) -> None:
        """The dashboard is drawn next: what its tabs ask for of some hosts alone is read while the
        first frames are made.

        A script that asks for a frame or two may never want it.
        """
        self._drawn = True
        self._ahead()

    def _ahead(self) -> None:
        if not self._drawn or REST not in self._read:
            return
        for when in (*([LARGEST] if self._peaks else []), SOME):
            if when not in self._read and when not in self._expected:
                self._expected.add(when)
                self._soon(self._alone(self._places(when)), (when,))

    def _some(self, when: str) -> Read:
        """Some hosts, each by itself."""
        places = self._places(when)
        partials = self._asked(self._alone(places), when)
        names, own = self.names, [name for group in self._own for name in group]
        epochs = [one[_READ]["epoch_ns"] for one in partials]
        late = [(epoch - self.epoch_ns) / 1e6 if epoch else 0.0 for epoch in epochs]
        return Read(partials, [[names[at]] for at in places], [[own[at]] for at in places], late)

    def _places(self, when: str) -> list[int]:
        return {SOME: self._typical, PROGRAMS: self._first_with_programs, LARGEST: self._largest}[
            when
        ]()

    def _alone(self, places: Sequence[int]) -> list[parallel.Group]:
        return [(self.numbers[at],) for at in places]

    def _asked(self, together: Sequence[parallel.Group], when: str) -> list[Partial]:
        data, missing = self._more(together, (when,))
        if missing or set(data) != set(together):
            lost = missing[0] if missing else Missing("", "")
            raise ReadError(
                f"it was read before, but cannot be read now: {lost.reason}", path=lost.file
            )
        return [Partial(data[group]) for group in together]

    def _typical(self) -> list[int]:
        """Some hosts from the fastest to the slowest, by the mean length of their steps; without
        steps, from the first to the last.

        Where only some hosts have steps, it is some of those: what to change in a step follows from
        them alone.
        """
        steps = combine.measured_steps(self.values("_measured_steps"), self)[0]
        mean = (
            steps.groupby("host")["step_time_ms"].mean()
            if len(steps)
            else pd.Series(dtype=np.float64)
        )
        length = mean.reindex(self.names).to_numpy(np.float64)
        order = np.argsort(length, kind="stable")[: int(np.isfinite(length).sum()) or None]
        return sorted(
            {int(order[round(at)]) for at in np.linspace(0, len(order) - 1, parallel.MANY)}
        )

    def _first_with_programs(self) -> list[int]:
        """The hosts that are the first with a compiled program, while their programs fit into
        memory.
        """
        hosts = self.reading(REST)
        return combine.homes(combine.listed(hosts.values("programs_listed"), hosts))

    def _largest(self) -> list[int]:
        """The host with the highest peak of memory."""
        return self._peaks[:1]

    @cached_property
    def _peaks(self) -> list[int]:
        """The hosts of the allocators whose peak is known, the highest first."""
        summary = combine.memory_summaries(self.values("memory_summary"), self)
        return [int(host) for host in summary["peak_host"].dropna()] if len(summary) else []

    def receipt(self) -> Receipt:
        """What was read of all hosts, and what was skipped."""
        out = Receipt(events=sum(one["events"] for one in self.read))
        for one in self.read:
            for reason, count in one["skipped"].items():
                out.skip(reason, count)
        names = [[self._names_of_files[number] for number in group] for group in self._together]
        out.notes = combine.folded([one["notes"] for one in self.read], self.groups, names)
        for first, one in zip(combine.before(self), self.read, strict=True):
            for cut in one["cut"]:
                out.cut_off(Cut(first + cut.host, cut.file, cut.what))
        if twice := sum(
            old != new
            for own, group in zip(self._own, self.groups, strict=True)
            for old, new in zip(own, group, strict=True)
        ):
            only = "1 file has the same host name as another file and is shown under its file name."
            several = (
                f"{twice:,} files have the same host names as other files and are shown under their"
                " file names."
            )
            out.warn(
                f"{only if twice == 1 else several} If these are separate recordings, open them"
                " separately."
            )
        return out


def _distinct(names: Sequence[str], stems: Sequence[str]) -> list[str]:
    """The names of hosts; of equal ones all but the first are called as their file, and all where
    its folder tells them apart.
    """
    taken: set[str] = set()
    out = []
    for name, own in zip(names, stems, strict=True):
        more = (f"{own} ({number})" for number in itertools.count(2))
        first = (own, name) if own.endswith(f"/{name}") else (name, own)
        new = next(
            candidate for candidate in itertools.chain(first, more) if candidate not in taken
        )
        taken.add(new)
        out.append(new)
    return out


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """A value in which some hosts have other names."""
    if not names:
        return value
    if isinstance(value, pd.DataFrame):
        return value.assign(
            **{
                column: value[column].replace(names)
                for column in ("host", "worker")
                if column in value
            }
        )
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if isinstance(value, tuple):
        return tuple(_named(item, names) for item in value)
    if isinstance(value, dict):
        return {key: _named(item, names) for key, item in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


class CombinedRun(Run):
    """A run of which no host's events are at hand.

    Parameters
    ----------
    trace : Trace
        Without events.
    parts : Hosts
        What the hosts left.
    files : RunFiles
    """

    def __init__(
        self,
        trace: Trace,
        parts: _Later,
        files: RunFiles,
        source: RunSource,
        capture: CaptureInfo | None = None,
        run_cache: RunCache | None = None,
        given_peaks: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(trace, _no_dialect, source, capture, run_cache, given_peaks)
        self.files = files
        self._left = parts
        self.parts: Hosts | None = parts

    @classmethod
    def read_apart(
        cls,
        files: RunFiles,
        capture: CaptureInfo | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        workers: parallel.Workers | None = None,
        given_peaks: Mapping[str, float] | None = None,
        whole: bool = False,
    ) -> CombinedRun:
        """Reads the files of one run, each by itself, by some workers; without any where the cache
        has what was made of them.

        Where there are many files the answer comes first, and the rest is read when something asks
        for it; with `whole` all is read together, which is sooner done.

        Raises
        ------
        ReadError
            No file could be read.
        NbprofError
            The workers cannot work.
        """
        began = time.perf_counter()
        if given_peaks is None and capture is not None:
            given_peaks = capture.peaks
        options = {
            "warmup": capture.warmup if capture is not None else None,
            "peaks": given_peaks or None,
            "apart": 1,
        }
        run_cache = open_run_cache(
            files, {key: value for key, value in options.items() if value is not None}
        )

        def more(
            together: Sequence[parallel.Group], whens: Sequence[str]
        ) -> tuple[dict[parallel.Group, bytes], list[Missing]]:
            return parallel.read(
                files,
                together,
                (capture, given_peaks, tuple(whens), wanted.units),
                readers,
                progress,
            )

        def soon(together: Sequence[parallel.Group], whens: Sequence[str]) -> None:
            parallel.ahead(
                files, together, (capture, given_peaks, tuple(whens), wanted.units), readers
            )

        readers, wanted = parallel.Readers(workers), Wanted()
        at_once = whole or len(files.files) <= _AT_ONCE or by_name(files.format).slow

        def parts(drawn: bool) -> Parts:
            return Parts(
                files,
                parallel.groups(files, workers),
                more,
                soon,
                whole=at_once,
                drawn=drawn,
                wanted=wanted,
            )

        hosts = _Later(parts, drawn=whole)
        trace = run_cache.trace(lambda: without_events(hosts.parts))
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        out = cls(trace, hosts, files, source, capture, run_cache, given_peaks)
        out._tell_of_files()
        weakref.finalize(out, readers.close)
        # Who is there is known when the run is opened again, without asking the files.
        _ = out._numbers, out._damaged, out.hosts_missing
        return out

    @persisted
    def _damaged(self) -> list[list[str]]:
        return [[one.file, one.reason] for one in self._left.missing]

    @property
    def _unread(self) -> list[Missing]:
        return [*super()._unread, *(Missing(file, reason) for file, reason in self._damaged)]

    def read_ahead(self) -> None:
        """The dashboard is drawn next: workers read what only that asks for."""
        self._left.read_ahead()

    @persisted
    def _numbers(self) -> list[int]:
        return self._left.parts.numbers

    def _file_of(self, number: int) -> int:
        return self._numbers[number]

    @cached_property
    def _stated_activity(self) -> Activity:
        out = stated.activity(self.stated, self.hosts, self.devices)
        out.give_peaks(self._given_peaks)
        return out

    @property
    def activity(self) -> Activity:
        """What the hosts state; to ask it for events is an error."""
        return self._stated_activity

    @property
    def trace(self) -> Trace:
        """Not there.

        Raises
        ------
        NeedsHostError
        """
        raise stated.NeedsHostError


class _Later:
    """Parts that are read when they are first needed.

    Parameters
    ----------
    read : callable
        Reads them, given whether the dashboard is drawn next.
    drawn : bool
        Whether that is known from the beginning.
    """

    def __init__(self, read: Callable[[bool], Parts], *, drawn: bool) -> None:
        self._read, self._drawn = read, drawn

    @cached_property
    def parts(self) -> Parts:
        """What the hosts left."""
        return self._read(self._drawn)

    def read_ahead(self) -> None:
        """See `Parts.read_ahead`; no file is read for it where the cache has had all that was asked
        for.
        """
        self._drawn = True
        if "parts" in vars(self):
            self.parts.read_ahead()

    @property
    def missing(self) -> list[Missing]:
        """Files that are not among them."""
        return self.parts.missing

    @property
    def groups(self) -> list[list[str]]:
        return self.parts.groups

    @property
    def late_ms(self) -> list[float]:
        return self.parts.late_ms

    def values(self, name: str) -> list[Any]:
        return self.parts.values(name)

    def reading(self, when: str) -> Hosts:
        return self if when == FIRST else self.parts.reading(when)


def _no_dialect(_trace: Trace) -> Activity:
    raise stated.NeedsHostError


def without_events(parts: Parts) -> Trace:
    """The trace of hosts that were read apart: who they are, and what was read of them."""
    nothing = np.zeros(0, np.int64)
    none = np.zeros(0, object)
    return Trace(
        events=Events(nothing.astype(np.int32), nothing.astype(np.int32), nothing, nothing),
        names=none,
        display=none,
        lanes=pd.DataFrame(
            columns=[
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
        ),
        planes=[],
        args={},
        name_args={},
        strings=[],
        modules=[],
        hosts=list(parts.names),
        epoch_ns=parts.epoch_ns,
        receipt=parts.receipt(),
    )


def apart(files: RunFiles, workers: parallel.Workers | None = None) -> bool:
    """Whether the files of a run are read apart: more than a few, or as somebody asked."""
    return by_name(files.format).apart and len(files.files) > (
        parallel.MANY if workers is None else 1
    )


def opened(
    files: RunFiles,
    capture: CaptureInfo | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    workers: parallel.Workers | None = None,
    write: bool = True,
    given_peaks: Mapping[str, float] | None = None,
    graph_captures: Sequence[Capture] = (),
    whole: bool = False,
) -> Run:
    """The run in some files, read at once or apart.

    Without `write` nothing of a run that is read at once goes to the cache. `whole` is for who
    draws the dashboard: see `read_apart`.

    Raises
    ------
    ReadError
        A file, or each of many, could not be read.
    NbprofError
        The workers cannot work, or `graph_captures` are given of a run that is not read at once.
    """
    if apart(files, workers):
        if graph_captures:
            raise NbprofError(
                "graph_capture is for hosts that are read together: up to eight, without executor."
            )
        return CombinedRun.read_apart(
            files, capture, progress, workers=workers, given_peaks=given_peaks, whole=whole
        )
    first: ReadError | None = None
    while True:
        try:
            return Run.read(
                files,
                capture,
                progress,
                write=write,
                given_peaks=given_peaks,
                graph_captures=graph_captures,
            )
        except ReadError as error:
            first = first or error
            left = _without(files, error)
            if left is None:
                raise first from None
            files = left


def _without(files: RunFiles, error: ReadError) -> RunFiles | None:
    """The files of a run but the one that cannot be read, which costs only its host; None where
    that is all, or no host.
    """
    bad = [file for file in files.files if file.label == error.path]
    if len(bad) != 1 or len(files.files) < 2 or not by_name(files.format).apart:
        return None
    return replace(
        files,
        files=tuple(file for file in files.files if file is not bad[0]),
        unread=(*files.unread, Missing(bad[0].name, error.reason)),
    )
