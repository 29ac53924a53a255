"""The runs in a folder whose recordings are folders themselves, for the list of runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile, RunFiles
from nbprof.formats.format import Recordings
from nbprof.server.on_disk import OnDisk, Problem, state_key
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
        parts = [run]
        folders = _folders(recordings, run)
        alone = len(runs) == 1 and bool(browser_path)
        if len(folders) > 1 and not alone:
            parts = _parts(recordings, folders, folder)
        for part in parts:
            # A file may have been removed.
            with contextlib.suppress(NbprofError):
                results.append(_on_disk(recordings, part, browser_path, folder.path))
    for name in raw:
        path = join(browser_path, name)
        results.append(Problem(path, recordings.not_yet(path)))
    return results


def _folders(recordings: Recordings, run: RunFiles) -> list[Path]:
    """The folders of the recordings of a run."""
    folders = set()
    for piece in run.files:
        if isinstance(piece, LocalFile):
            parts = piece.path.parent.parts
            folders.add(Path(*parts[: recordings.recording_of(parts)]))
    return sorted(folders)


def _parts(recordings: Recordings, folders: list[Path], around: LocalFolder) -> list[RunFiles]:
    """The recordings in some folders as separate runs."""
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
        state=tuple(map(state_key, states)),
        hosts=len(_folders(recordings, run)),
    )
