"""Reads the run of a source, whether a `Profile` or an answer to a page shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nbprof.activity.given_peaks import checked
from nbprof.core.errors import NbprofError, RawError
from nbprof.core.files import LIMIT_BYTES, RunFiles, printable
from nbprof.formats.chrome import inductor
from nbprof.formats.chrome.runs import NAME as CHROME
from nbprof.formats.msprof.export import exported
from nbprof.run.many import open_run
from nbprof.run.parallel import Workers
from nbprof.run.source import reader
from nbprof.sources.locate import OpenOptions, Source, find
from nbprof.sources.recording import CaptureInfo

if TYPE_CHECKING:
    from nbprof.dialects.gpu.captures import Capture
    from nbprof.run.run import Run


def read_run(
    source: Source,
    run: str | int | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    limit_bytes: int = LIMIT_BYTES,
    peaks: Mapping[str, float] | None = None,
    executor: Workers | None = None,
    graph_capture: Source | None = None,
    read_all: bool = False,
    files: RunFiles | None = None,
) -> Run:
    """The run of a source, see `nbprof.profiles.load.load` for the parameters.

    `files` are those of the run, if they were found already. `read_all` is for callers that draw
    the dashboard next, see `nbprof.run.many.open_run`.
    """
    given_peaks = None if peaks is None else checked(peaks)
    options = OpenOptions(storage_options or {}, limit_bytes, progress)
    if files is None:
        files = _files_of(source, run, options)
    if graph_capture is not None and files.format != CHROME:
        raise NbprofError(
            f"graph_capture is for traces of PyTorch, and {printable(files.name)} is not one."
        )
    captures: list[Capture] = []
    if graph_capture is not None:
        captures = _graph_captures(graph_capture, options)
    return open_run(
        files,
        CaptureInfo.of(files.sidecar),
        progress,
        workers=executor,
        given_peaks=given_peaks,
        graph_captures=captures,
        read_all=read_all,
    )


def _files_of(source: Source, run: str | int | None, options: OpenOptions) -> RunFiles:
    """The files of a run; a recording in a private format is exported first."""
    try:
        return exported(lambda: find(source, run, options), options.progress)
    except RawError as raw:
        from nbprof.formats.nsys import export as nsys_export

        database = nsys_export.export(raw, options.progress)
        if database is None:
            raise
        return find(database, None, options)


def _graph_captures(source: Source, options: OpenOptions) -> list[Capture]:
    """The graphs that were captured in some traces."""
    from nbprof.dialects.chrome.chrome import graph_captures

    files = find(source, None, options)
    captures: list[Capture] = []
    if files.format == CHROME:
        trace = reader(files)(files.files, options.progress)
        programs, _ = inductor.read(inductor.beside(files))
        captures = graph_captures(trace, programs)
    if not captures:
        raise NbprofError(
            f"{printable(files.name)} has no graph capture: pass graph_capture a trace that PyTorch"
            " recorded while the graphs were captured, with ProfilerActivity.CUDA."
        )
    return captures
