"""The runs in a folder whose recordings are folders themselves, for the list of runs."""

from __future__ import annotations

from pathlib import Path

from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile, RunFiles
from nbprof.formats.format import Recordings
from nbprof.server.on_disk import OnDisk, Problem
from nbprof.server.paths import join
from nbprof.sources.folders import LocalFolder


def runs_in_folder(
    recordings: Recordings, browser_path: str, folder: LocalFolder
) -> list[OnDisk | Problem]:
    """The runs directly in a folder, newest first, and a problem for each recording that must be
    exported first.

    If the ranks of one run are all that the folder contains, its path stands for the run; otherwise
    each rank is listed separately, because a path of the file browser is one folder.

    Parameters
    ----------
    recordings : Recordings
    browser_path : str
        Path of the folder in the file browser.
    folder : LocalFolder
    """
    runs, raw = recordings.runs_in(folder.path, near=True, confinement=folder.confinement)
    results: list[OnDisk | Problem] = []
    for run in runs:
        alone = len(runs) == 1 and bool(browser_path)
        for part in (
            [run] if alone or _count(recordings, run) == 1 else _parts(recordings, run, folder)
        ):
            try:
                results.append(_on_disk(recordings, part, browser_path, folder.path))
            except NbprofError:
                # A file was removed.
                continue
    return results + [
        Problem(join(browser_path, path), recordings.not_yet(join(browser_path, path)))
        for path in raw
    ]


def _count(recordings: Recordings, run: RunFiles) -> int:
    return len(
        {_folder(recordings, piece.path) for piece in run.files if isinstance(piece, LocalFile)}
    )


def _folder(recordings: Recordings, path: Path) -> Path:
    """The folder of the recording of a file."""
    parts = path.parent.parts
    return Path(*parts[: recordings.recording_of(parts)])


def _parts(recordings: Recordings, run: RunFiles, around: LocalFolder) -> list[RunFiles]:
    """The recordings of a run as separate runs."""
    folders = sorted(
        {_folder(recordings, piece.path) for piece in run.files if isinstance(piece, LocalFile)}
    )
    parts: list[RunFiles] = []
    for folder in folders:
        if folder != around.path:
            parts += recordings.runs_in(folder, confinement=around.confinement)[0]
    return parts


def _on_disk(recordings: Recordings, run: RunFiles, path: str, real: Path) -> OnDisk:
    files = [piece for piece in run.files if isinstance(piece, LocalFile)]
    states = [piece.stat() for piece in files]
    folder = Path(run.folder)
    name = ""
    if folder != real and folder.is_relative_to(real):
        name = folder.relative_to(real).as_posix()
    return OnDisk(
        path=join(path, name),
        real=folder,
        name=run.name,
        modified=run.modified,
        bytes=sum(state.st_size for state in states),
        format=run.format,
        files=tuple(piece.path for piece in files),
        state=tuple(
            (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) for state in states
        ),
        hosts=_count(recordings, run),
    )
