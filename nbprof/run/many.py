"""A run of many hosts, each read apart: `CombinedRun` has every frame that follows from what they leave, and of none the events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles
from nbprof.core.trace import Events, Receipt, Trace
from nbprof.formats.register import stem
from nbprof.run import combine, parallel, stated
from nbprof.run.cache.run_cache import RunCache, open_run_cache
from nbprof.run.lazy import FIRST, REST, SOME, Frames, Hosts, combined, persisted
from nbprof.run.parallel import Missing
from nbprof.run.partial import Partial, pack
from nbprof.run.run import GROUPS, Run
from nbprof.run.source import RunSource

if TYPE_CHECKING:
    from nbprof.activity.activity import Activity
    from nbprof.sources.recording import CaptureInfo

_READ = "read"


def partial(files: RunFiles, capture: CaptureInfo | None, given_peaks: Mapping[str, float] | None, whens: Sequence[str]) -> bytes:
    """What one host leaves of its file, as the bytes of a `Partial`: the values that are read at some times. Runs in a worker.

    Raises
    ------
    ReadError
    """
    run = Run.read(files, capture, keep=False, given_peaks=given_peaks)
    # What the analysis says is said of all hosts together: this is what the reader says.
    said = deepcopy(run.as_read.receipt)
    read = {"epoch_ns": int(run.as_read.epoch_ns), "events": said.events, "notes": said.notes, "skipped": said.skipped}
    return pack({_READ: read, **{name: get(run) for name, (get, when) in _combined().items() if when in whens}})


def _combined() -> dict[str, tuple[Callable[[Run], Any], str]]:
    """How each value that is combined over hosts is got of a run, and when it is, by the name that it has there."""
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
    """Values of some hosts.

    Parameters
    ----------
    partials : sequence of Partial
        One a host.
    names : list of str
        What they are called in the run.
    own : list of str
        What they call themselves.
    late_ms : list of float
    """

    def __init__(self, partials: Sequence[Partial], names: list[str], own: list[str], late_ms: list[float]) -> None:
        self.names, self.late_ms = names, late_ms
        self._partials = partials
        self._renamed = [(old, new) if old != new else None for old, new in zip(own, names, strict=True)]

    def values(self, name: str) -> list[Any]:
        """The value of that name of each host."""
        return [_named(one[name], change) for one, change in zip(self._partials, self._renamed, strict=True)]

    def reading(self, when: str) -> Hosts:
        """No others are known."""
        raise KeyError(when)


More = Callable[[Sequence[int], Sequence[str]], "tuple[dict[int, bytes], list[Missing]]"]
"""Reads some files, by their numbers, again: for what is asked for later."""


class Parts:
    """The hosts of a run that were read apart.

    Parameters
    ----------
    files : RunFiles
    more : callable
        Reads them; see `More`.
    """

    def __init__(self, files: RunFiles, more: More) -> None:
        self._more = more
        self._all = (FIRST, REST, SOME) if len(files.files) <= parallel.MANY else (FIRST,)
        data, self.missing = more(range(len(files.files)), self._all)
        partials = [Partial(one) for one in data.values()]
        self.numbers = list(data)
        self.read: list[dict[str, Any]] = [one[_READ] for one in partials]
        self._own = [str(one["hosts"][0]) for one in partials]
        self.names = _distinct(self._own, [stem(files.files[number].name) for number in data])
        known = [one["epoch_ns"] for one in self.read if one["epoch_ns"]]
        self.epoch_ns: int = min(known, default=0)
        # A host without a clock stands at its own start, as where all are read at once.
        self.late_ms = [(one["epoch_ns"] - self.epoch_ns) / 1e6 if one["epoch_ns"] else 0.0 for one in self.read]
        self._read: dict[str, Read] = dict.fromkeys(self._all, Read(partials, self.names, self._own, self.late_ms))

    def __len__(self) -> int:
        return len(self.names)

    def values(self, name: str) -> list[Any]:
        """The value of that name of each host."""
        return self._read[FIRST].values(name)

    def reading(self, when: str) -> Hosts:
        """The hosts with values of that kind, which are read now if they were not before.

        Raises
        ------
        ReadError
            A file is not there any more.
        """
        if when not in self._read:
            places = range(len(self)) if when == REST else self._typical()
            data, missing = self._more([self.numbers[at] for at in places], (when,))
            if missing:
                raise ReadError(f"it was read before, and cannot be now: {missing[0].reason}", path=missing[0].file)
            parts = [Partial(data[self.numbers[at]]) for at in places]
            picked = [[of[at] for at in places] for of in (self.names, self._own, self.late_ms)]
            self._read[when] = Read(parts, *picked)  # type: ignore[arg-type]
        return self._read[when]

    def _typical(self) -> list[int]:
        """Some hosts from the fastest to the slowest, by the mean length of their steps; without steps, from the first to the last."""
        steps = [value[0] for value in self.values("_measured_steps")]
        mean = [float(frame["step_time_ms"].mean()) if len(frame) else 0.0 for frame in steps]
        order = np.argsort(mean, kind="stable")
        return sorted({int(order[round(at)]) for at in np.linspace(0, len(order) - 1, parallel.MANY)})

    def receipt(self) -> Receipt:
        """What was read of all hosts, and what was skipped."""
        out = Receipt(events=sum(one["events"] for one in self.read))
        for one in self.read:
            for reason, count in one["skipped"].items():
                out.skip(reason, count)
        out.notes = combine.folded([one["notes"] for one in self.read], self.names)
        if twice := sum(old != new for old, new in zip(self._own, self.names, strict=True)):
            what = "1 file names a host that another names" if twice == 1 else f"{twice:,} files name a host that another names"
            out.warn(f"{what}, too, and is shown under its own name. If these are separate recordings, open them one by one.")
        if self.missing:
            count = len(self.missing)
            first = self.missing[0]
            what = "1 file is" if count == 1 else f"{count:,} files are"
            out.warn(f"{what} not in these numbers, the first {first.file}: {first.reason} All are in p.pods.missing.")
        return out


def _distinct(names: Sequence[str], stems: Sequence[str]) -> list[str]:
    """The names of hosts; of equal ones all but the first are called as their file."""
    taken: set[str] = set()
    out = []
    for name, own in zip(names, stems, strict=True):
        new = next(candidate for candidate in (name, own, *(f"{own} ({i})" for i in range(2, len(names) + 2))) if candidate not in taken)
        taken.add(new)
        out.append(new)
    return out


def _named(value: Any, change: tuple[str, str] | None) -> Any:
    """A value in which a host has another name."""
    if change is None:
        return value
    if isinstance(value, pd.DataFrame):
        return value.assign(**{column: value[column].replace(*change) for column in ("host", "worker") if column in value})
    if isinstance(value, list):
        return [_named(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(_named(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _named(item, change) for key, item in value.items()}
    return change[1] if isinstance(value, str) and value == change[0] else value


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
    ) -> CombinedRun:
        """Reads the files of one run, each by itself, by some workers; without any where the cache has what was made of them.

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
        options = {"warmup": capture.warmup if capture is not None else None, "peaks": given_peaks or None, "apart": 1}
        run_cache = open_run_cache(files, {key: value for key, value in options.items() if value is not None})

        def more(numbers: Sequence[int], whens: Sequence[str]) -> tuple[dict[int, bytes], list[Missing]]:
            return parallel.read(files, numbers, (capture, given_peaks, tuple(whens)), workers, progress)

        hosts = _Later(lambda: Parts(files, more))
        trace = run_cache.trace(lambda: without_events(hosts.parts))
        for note in files.notes:
            trace.receipt.info(note)
        for warning in files.warnings:
            trace.receipt.warn(warning)
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        return cls(trace, hosts, files, source, capture, run_cache, given_peaks)

    def _absent(self) -> list[tuple[str, str, str]]:
        unread = [(stem(one.file), one.file, one.reason) for one in self._left.missing]
        known = {name for name, _, _ in unread}
        return [*unread, *(row for row in super()._absent() if row[0] not in known)]

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
    """Parts that are read when they are first needed."""

    def __init__(self, read: Callable[[], Parts]) -> None:
        self._read = read

    @cached_property
    def parts(self) -> Parts:
        """What the hosts left."""
        return self._read()

    @property
    def missing(self) -> list[Missing]:
        """Files that are not among them."""
        return self.parts.missing

    @property
    def names(self) -> list[str]:
        return self.parts.names

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
        lanes=pd.DataFrame(columns=["lane", "host", "process", "thread", "line_id", "plane", "kind", "device", "note", "events", "order"]),
        planes=[],
        args={},
        name_args={},
        strings=[],
        modules=[],
        hosts=list(parts.names),
        epoch_ns=parts.epoch_ns,
        receipt=parts.receipt(),
    )
