"""A `Run`: the frames of one profile, read from its files.

The frames are declared in `nbprof/run/frames`, one module per subject; `nbprof/run/frame.py` says
how. To add one, write its analysis, and a method that calls it in the family that it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pandas as pd

from nbprof.activity.unit import ANY, NAMED
from nbprof.analysis.device_time.device_time import rank_of
from nbprof.core import trim
from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile, Missing, RunFiles, SourceFile, about_skipped, some
from nbprof.core.loop_times import LoopTimes, choose
from nbprof.core.receipt import Note
from nbprof.core.sidecar import of_rank
from nbprof.formats.chrome import graph_annotations, inductor
from nbprof.formats.register import by_name, stem
from nbprof.formats.torch_snapshot.beside import beside
from nbprof.run import absent
from nbprof.run.cache.run_cache import open_run_cache
from nbprof.run.frame import cached
from nbprof.run.frames.receipt import ReceiptFrames
from nbprof.run.frames.torch_ops import TorchOpFrames
from nbprof.run.source import Dialect, RunSource, dialect, reader
from nbprof.sources.recording import CaptureInfo

if TYPE_CHECKING:
    from nbprof.dialects.gpu.captures import Capture
    from nbprof.run.origin import Origin
    from nbprof.timeline.drawable import Drawable
    from nbprof.timeline.serve import Timeline


class Run(ReceiptFrames, TorchOpFrames):
    """The frames of one profile, each computed when it is first needed.

    Parameters
    ----------
    trace, interpret, source, capture, run_cache, given_peaks
        As for `Recording`.

    Attributes
    ----------
    origin : Origin or None
        The program, if this process recorded it.
    """

    origin: Origin | None = None

    @classmethod
    def read(
        cls,
        files: RunFiles,
        capture: CaptureInfo | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        keep: bool = True,
        write: bool = True,
        given_peaks: Mapping[str, float] | None = None,
        graph_captures: Sequence[Capture] = (),
        units: str = ANY,
    ) -> Run:
        """Reads the files of one run.

        Parameters
        ----------
        files : RunFiles
        capture : CaptureInfo, optional
            How it was recorded.
        progress : callable, optional
            Gets a message from time to time.
        keep : bool
            False for files that nobody will open again: no cache is used.
        write : bool
            False to use the cache and to add nothing to it.
        given_peaks : dict, optional
            Peaks of the devices by the names of `given_peaks.KEYS`, instead of those given when it
            was recorded, or in the files.
        graph_captures : sequence of Capture
            The graphs that a run of PyTorch replays, from the traces that captured them.
        units : str
            What may replace steps if none are marked, see `nbprof.activity.unit`.

        Raises
        ------
        ReadError
            A file is damaged or has another format.
        """
        began = time.perf_counter()
        if given_peaks is None and capture is not None:
            given_peaks = capture.peaks
        sidecars = _Sidecars.read(files, graph_captures)
        loops = LoopTimes.unpacked(capture.loops) if capture is not None and capture.loops else None
        if units == ANY and loops is not None:
            units = NAMED
        iterations = choose(loops)
        # Everything that changes what is computed from the files, and so is part of the cache key.
        options: dict[str, Any] = {
            "warmup": capture.warmup if capture is not None else None,
            "peaks": given_peaks or None,
            "beside": sidecars.digest,
            "units": units if units != ANY else None,
        }
        if iterations is not None and capture is not None:
            loops_text = json.dumps(capture.loops)
            options["iterations"] = hashlib.sha256(loops_text.encode()).hexdigest()
        if capture is not None and capture.step_times:
            # Findings follow from what recording cost.
            times_text = json.dumps(capture.step_times)
            options["step_times"] = hashlib.sha256(times_text.encode()).hexdigest()
        if capture is not None and capture.host_memory:
            memory_text = json.dumps(capture.host_memory)
            options["host_memory"] = hashlib.sha256(memory_text.encode()).hexdigest()
        run_cache = open_run_cache(
            files,
            {name: value for name, value in options.items() if value is not None},
            keep=keep,
            write=write,
        )
        trace = run_cache.trace(lambda: reader(files)(run_cache.pieces, progress))
        trace.units = units
        trace.iterations = iterations
        if trace.receipt.events >= trim.MANY_EVENTS:
            trim.give_back()
        source = RunSource.of(files, analysed_s=time.perf_counter() - began)
        if not keep:
            # The files are deleted with the profile.
            source.local = ()
        run = cls(trace, sidecars.dialect, source, capture, run_cache, given_peaks)
        run.graph_captures = graph_captures
        run.snapshot_pieces = beside(files)
        run.files = files
        run._add_notes_on_files()
        trace.receipt.add(*sidecars.notes)
        return run

    def _add_notes_on_files(self) -> None:
        """Adds to the receipt what was noticed about the files before they were read."""
        receipt = self.as_read.receipt
        if self.files is not None:
            # Warnings last.
            receipt.add(*sorted(self.files.notes, key=lambda note: note.level))
        if self._unread_files:
            receipt.add(about_skipped(self._unread_files, listed=self._has_file_per_host))

    def host(self, number: int) -> Run:
        """One of several hosts, read completely as if it were the run.

        Raises
        ------
        ReadError
            Its file no longer exists.
        NbprofError
            The hosts of this run have no files of their own.
        """
        files = self.files
        if files is None or not self._has_file_per_host or len(files.files) < len(self.hosts):
            raise NbprofError(
                "this run does not have one file per host, so single hosts cannot be opened."
            )
        file = self._file_number(number)
        return Run.read(
            some(files, [file]),
            self._capture_of(files.files[file], self.hosts[number]),
            given_peaks=self._given_peaks or None,
            graph_captures=self.graph_captures,
        )

    def _capture_of(self, file: SourceFile, host: str) -> CaptureInfo | None:
        """The info of one host, from the file of its rank if there is one."""
        rank, capture = rank_of(host), self.capture
        if capture is None or not capture.ranks or rank is None or not isinstance(file, LocalFile):
            return capture
        return CaptureInfo.of(file.sibling(of_rank(rank))) or capture

    def _file_number(self, host: int) -> int:
        """The number of the file of a host."""
        return host

    def read_ahead(self) -> None:
        """Prefetches what the dashboard needs from the files, if it was not read yet."""

    @cached
    def timeline(self) -> Timeline:
        """The events drawn in a time window, and queries over them. It lives as long as the run."""
        from nbprof.timeline.serve import Timeline

        # A strong reference back would keep the columns of a discarded run until the garbage
        # collector runs.
        return Timeline(cast("Drawable", weakref.proxy(self)))

    @cached
    def hosts_missing(self) -> pd.DataFrame:
        """Hosts and files of hosts that the run lacks completely or in part: `host file reason`.

        Not stored, as it depends on other files of the folder.
        """
        unread: list[Missing] = []
        if self.files is not None and self._has_file_per_host:
            unread = [*self.files.copies, *self._unread_files]
        processes = self.stated["environment"].get("processes")
        failed: dict[int, str] = {}
        if self.capture is not None and self.capture.ranks:
            processes = self.capture.processes
            for row in self.capture.ranks:
                if row["error"]:
                    failed[row["rank"]] = f"Its {row['error']}."
        return absent.rows(self.hosts, self._stems, unread, self.hosts_in_part, processes, failed)

    @property
    def hosts_failed(self) -> int:
        """How many of the hosts are ranks that failed after they had recorded something."""
        rows = self.capture.ranks if self.capture is not None else []
        failed = {row["rank"] for row in rows if row["error"]}
        return sum(rank_of(host) in failed for host in self.hosts)

    @property
    def hosts_in_part(self) -> list[tuple[str, Missing]]:
        """The hosts whose files are truncated or damaged, and which part was read."""
        if not self._has_file_per_host:
            return []
        has_stems = bool(self._stems)
        return [
            (
                self.hosts[partly_read.host] if has_stems else stem(partly_read.file),
                Missing(partly_read.file, partly_read.what),
            )
            for partly_read in self.as_read.receipt.cut
        ]

    @property
    def _unread_files(self) -> list[Missing]:
        """The files of the run that cannot be read."""
        return list(self.files.unread) if self.files is not None else []

    @property
    def _has_file_per_host(self) -> bool:
        return self.files is not None and by_name(self.files.format).separate_hosts

    @property
    def _stems(self) -> list[str]:
        """The name of each host's file without suffixes; empty if hosts have no own files."""
        files = self.files
        if files is None or not self._has_file_per_host or len(files.files) < len(self.hosts):
            return []
        numbers = map(self._file_number, range(len(self.hosts)))
        return [stem(files.files[number].name) for number in numbers]


class _Sidecars(NamedTuple):
    """Files next to those of a run that change how it is interpreted.

    Attributes
    ----------
    digest : str, optional
        Of their content; None if there are none.
    dialect : callable
        The dialect of the run, which takes them into account.
    notes : list of Note
        Sidecar files that could not be read.
    """

    digest: str | None
    dialect: Dialect
    notes: list[Note]

    @classmethod
    def read(cls, files: RunFiles, graph_captures: Sequence[Capture]) -> _Sidecars:
        programs, program_notes = inductor.read(inductor.beside(files))
        annotations, annotation_notes = graph_annotations.read(graph_annotations.beside(files))
        notes = [*program_notes, *annotation_notes]
        if not (graph_captures or programs or annotations):
            return cls(None, dialect(files.format), notes)
        from nbprof.dialects.chrome.chrome import interpret

        captures = [(capture.kinds, capture.kernels, capture.origins) for capture in graph_captures]
        content: tuple[Any, ...] = (captures, programs)
        if annotations:
            content = (*content, annotations)
        return cls(
            hashlib.sha256(repr(content).encode()).hexdigest(),
            partial(
                interpret,
                graph_captures=graph_captures,
                programs=programs,
                annotations=annotations,
            ),
            notes,
        )
