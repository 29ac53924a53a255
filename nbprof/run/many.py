"""A run of many hosts, each read separately: a `CombinedRun` has every frame that follows from the
values that they send, and the events of none.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import Missing, RunFiles
from nbprof.core.garbage import collection_paused
from nbprof.core.receipt import warning
from nbprof.core.strings import python_strings
from nbprof.core.trace import Events, Trace
from nbprof.core.version import __version__
from nbprof.formats.register import by_name
from nbprof.run import parallel, stated
from nbprof.run.cache.run_cache import RunCache, open_run_cache
from nbprof.run.frame import Hosts, Phase, combined_frames, frame
from nbprof.run.partial import PartialError, pack
from nbprof.run.parts import READ, LazyParts, Parts, Units
from nbprof.run.run import Run
from nbprof.run.source import RunSource

if TYPE_CHECKING:
    from nbprof.activity.activity import Activity
    from nbprof.dialects.gpu.captures import Capture
    from nbprof.sources.recording import CaptureInfo

_AT_ONCE = 128
"""Up to this many files, everything is read together: what follows the overview is needed sooner
than it could be read again.
"""
_LANE_COLUMNS = [
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


@collection_paused()
@python_strings()
def partial(
    files: RunFiles,
    capture: CaptureInfo | None,
    given_peaks: Mapping[str, float] | None,
    phases: Sequence[str],
    units: str,
) -> bytes:
    """The frames that some hosts compute in some phases, as the bytes of a `Partial`.

    Parameters
    ----------
    files : RunFiles
        The files of these hosts.
    capture : CaptureInfo, optional
    given_peaks : dict, optional
    phases : sequence of str
    units : str
        What may replace steps, see `nbprof.activity.unit`.

    Raises
    ------
    ReadError
    """
    run = Run.read(files, capture, keep=False, given_peaks=given_peaks, units=units)
    _refuse_unnamed(run)
    # Before the analysis adds to it: notes of the analysis are of all hosts together.
    receipt = deepcopy(run.as_read.receipt)
    notes = [note for note in receipt.entries if note != receipt.about_cut]
    values = {name: frame.of_run(run) for name, frame in combined_frames(*phases).items()}
    failed = [warning("part_failed", sentence) for sentence in run.memo.failures.sentences]
    facts = {
        "epoch_ns": int(run.as_read.epoch_ns),
        "events": receipt.events,
        "notes": [*notes, *failed],
        "skipped": receipt.skipped,
        "keys": receipt.keys,
        "cut": receipt.cut,
    }
    return pack({READ: facts, **values})


def read_hosts(
    version: str,
    files: RunFiles,
    capture: CaptureInfo | None,
    given_peaks: Mapping[str, float] | None,
    phases: Sequence[str],
    units: str,
) -> bytes:
    """The partial of some hosts, in a worker of the same version.

    Raises
    ------
    ReadError
    PartialError
        The worker has another version of nbprof.
    """
    if version != __version__:
        raise PartialError(
            f"a worker has nbprof {__version__}, but the process that asked it has {version}:"
            " install the same version in both."
        )
    return partial(files, capture, given_peaks, phases, units)


class CombinedRun(Run):
    """A run of which no host's events are at hand.

    Parameters
    ----------
    trace : Trace
        Without events.
    parts : LazyParts
        The values of the hosts.
    files : RunFiles
    source, capture, run_cache, given_peaks
        As for `Run`.
    """

    def __init__(
        self,
        trace: Trace,
        parts: LazyParts,
        files: RunFiles,
        source: RunSource,
        capture: CaptureInfo | None = None,
        run_cache: RunCache | None = None,
        given_peaks: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(trace, _no_dialect, source, capture, run_cache, given_peaks)
        self.files = files
        self._lazy_parts = parts
        self.parts: Hosts | None = parts

    @classmethod
    def read_separately(
        cls,
        files: RunFiles,
        capture: CaptureInfo | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        workers: parallel.Workers | None = None,
        given_peaks: Mapping[str, float] | None = None,
        read_all: bool = False,
    ) -> CombinedRun:
        """Reads the files of one run, each by itself, in workers; none if the cache has all values.

        Of many files, those values come first that the overview needs, and the rest is read when a
        frame needs it; with `read_all` everything is read together, which takes less time in all.

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
            files, {name: value for name, value in options.items() if value is not None}
        )
        readers, units = parallel.Readers(workers, read_hosts), Units()
        at_once = read_all or len(files.files) <= _AT_ONCE or by_name(files.format).slow

        def arguments(phases: Sequence[Phase]) -> parallel.Arguments:
            return capture, given_peaks, tuple(phase.value for phase in phases), units.kind

        def read_groups(
            groups: Sequence[parallel.Group], phases: Sequence[Phase]
        ) -> tuple[dict[parallel.Group, bytes], list[Missing]]:
            return parallel.read(files, groups, arguments(phases), readers, progress)

        def prefetch(groups: Sequence[parallel.Group], phases: Sequence[Phase]) -> None:
            parallel.ahead(files, groups, arguments(phases), readers)

        def read_parts(drawn: bool) -> Parts:
            return Parts(
                files,
                parallel.groups(files, workers),
                read_groups,
                prefetch,
                at_once=at_once,
                drawn=drawn,
                units=units,
            )

        parts = LazyParts(read_parts, drawn=read_all)
        trace = run_cache.trace(lambda: _without_events(parts.parts))
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        run = cls(trace, parts, files, source, capture, run_cache, given_peaks)
        run._add_notes_on_files()
        weakref.finalize(run, readers.close)
        # Stored now, so that the hosts are known when the run is opened again without its files.
        _ = run._file_numbers, run._damaged, run.hosts_missing
        return run

    @frame
    def _damaged(self) -> list[list[str]]:
        return [[missing.file, missing.reason] for missing in self._lazy_parts.missing]

    @property
    def _unread_files(self) -> list[Missing]:
        damaged = [Missing(file, reason) for file, reason in self._damaged]
        return [*super()._unread_files, *damaged]

    def read_ahead(self) -> None:
        """The dashboard is drawn next: workers read what only the dashboard needs."""
        self._lazy_parts.read_ahead()

    @frame
    def _file_numbers(self) -> list[int]:
        return self._lazy_parts.parts.numbers

    def _file_number(self, host: int) -> int:
        return self._file_numbers[host]

    @cached_property
    def _stated_activity(self) -> Activity:
        activity = stated.activity(self.stated, self.hosts, self.devices)
        activity.give_peaks(self._given_peaks)
        return activity

    @property
    def activity(self) -> Activity:
        """Facts that the hosts state about themselves; its tables of events raise an error."""
        return self._stated_activity

    @property
    def trace(self) -> Trace:
        """Not available.

        Raises
        ------
        NeedsHostError
        """
        raise stated.NeedsHostError


def _no_dialect(_trace: Trace) -> Activity:
    raise stated.NeedsHostError


def _without_events(parts: Parts) -> Trace:
    """The trace of hosts that were read separately: their names, and what was read of them."""
    no_codes = np.zeros(0, np.int32)
    no_times = np.zeros(0, np.int64)
    no_texts = np.zeros(0, object)
    return Trace(
        events=Events(no_codes, no_codes, no_times, no_times),
        names=no_texts,
        display=no_texts,
        lanes=pd.DataFrame(columns=_LANE_COLUMNS),
        planes=[],
        args={},
        name_args={},
        strings=[],
        modules=[],
        hosts=list(parts.names),
        epoch_ns=parts.epoch_ns,
        receipt=parts.receipt(),
    )


def reads_separately(files: RunFiles, workers: parallel.Workers | None = None) -> bool:
    """The hosts of a run are read separately: more than a few, or with workers that were given."""
    limit = parallel.MANY if workers is None else 1
    return by_name(files.format).separate_hosts and len(files.files) > limit


def _refuse_unnamed(run: Run) -> None:
    """Raises a `ReadError` for a host whose events have no names: beside others it is missing."""
    trace = run.as_read
    if trace.planes and all(plane.is_cut for plane in trace.planes):
        raise ReadError(trace.receipt.cut[0].what, path=trace.receipt.cut[0].file)


def open_run(
    files: RunFiles,
    capture: CaptureInfo | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    workers: parallel.Workers | None = None,
    write: bool = True,
    given_peaks: Mapping[str, float] | None = None,
    graph_captures: Sequence[Capture] = (),
    read_all: bool = False,
) -> Run:
    """The run in some files, whose hosts are read together or separately.

    Without `write`, nothing of a run whose hosts are read together goes to the cache. `read_all` is
    for callers that draw the dashboard: see `CombinedRun.read_separately`.

    Raises
    ------
    ReadError
        A file, or each of many, could not be read.
    NbprofError
        The workers cannot work, or `graph_captures` are given for hosts that are read separately.
    """
    if reads_separately(files, workers):
        if graph_captures:
            raise NbprofError(
                "graph_capture is for hosts that are read together: up to eight, without executor."
            )
        return CombinedRun.read_separately(
            files, capture, progress, workers=workers, given_peaks=given_peaks, read_all=read_all
        )
    first_error: ReadError | None = None
    while True:
        try:
            run = Run.read(
                files,
                capture,
                progress,
                write=write,
                given_peaks=given_peaks,
                graph_captures=graph_captures,
            )
            if first_error is not None:
                _refuse_unnamed(run)
            return run
        except ReadError as error:
            first_error = first_error or error
            remaining = _without(files, error)
            if remaining is None:
                raise first_error from None
            files = remaining


def _without(files: RunFiles, error: ReadError) -> RunFiles | None:
    """The files of a run but the one that cannot be read; None if no other file has a host."""
    unread = [file for file in files.files if file.label == error.path]
    if len(unread) != 1 or len(files.files) < 2 or not by_name(files.format).separate_hosts:
        return None
    return replace(
        files,
        files=tuple(file for file in files.files if file is not unread[0]),
        unread=(*files.unread, Missing(unread[0].name, error.reason)),
    )
