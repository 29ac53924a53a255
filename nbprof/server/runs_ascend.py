"""The runs in a folder that Ascend's profilers wrote, for the list of runs."""

from __future__ import annotations

from pathlib import Path

from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile, RunFiles
from nbprof.server.found import OnDisk, Problem
from nbprof.sources import ascend, ascend_runs


def found(shown: str, real: Path) -> list[OnDisk | Problem]:
    """The runs right in a folder, newest first, and a problem for each recording that is not exported yet.

    The folder stands for several ranks that are one run where it holds nothing else; else each is listed by itself, as what a path of the
    file browser leads to has to be one folder.

    Parameters
    ----------
    shown : str
        The folder as the file browser calls it.
    real : Path
    """
    runs, raw = ascend_runs.runs(real, near=True)
    out: list[OnDisk | Problem] = []
    for run in runs:
        alone = len(runs) == 1 and bool(shown)
        for part in [run] if alone or _recordings(run) == 1 else _parts(run, real):
            try:
                out.append(_on_disk(part, shown, real))
            except NbprofError:
                # It has vanished.
                continue
    for one in raw:
        how = ascend_runs.how_to_export(_join(shown, one.path))
        out.append(Problem(_join(shown, one.path), f"is a raw recording of {ascend.MSPROF}, not exported yet: {how}"))
    return out


def _recordings(run: RunFiles) -> int:
    return len({_folder(piece.path) for piece in run.files if isinstance(piece, LocalFile)})


def _folder(path: Path) -> Path:
    """The folder of the recording that a file is of."""
    parts = path.parent.parts
    return Path(*parts[: ascend.recording_of(parts)])


def _parts(run: RunFiles, real: Path) -> list[RunFiles]:
    """Each recording of a run as a run."""
    folders = sorted({_folder(piece.path) for piece in run.files if isinstance(piece, LocalFile)})
    return [one for folder in folders for one in ascend_runs.runs(folder)[0] if folder != real]


def _on_disk(run: RunFiles, shown: str, real: Path) -> OnDisk:
    files = [piece for piece in run.files if isinstance(piece, LocalFile)]
    states = [piece.stat() for piece in files]
    folder = Path(run.folder)
    at = folder.relative_to(real).as_posix() if folder != real and folder.is_relative_to(real) else ""
    return OnDisk(
        path=_join(shown, at),
        real=folder,
        name=run.name,
        modified=run.modified,
        bytes=sum(state.st_size for state in states),
        format=run.format,
        files=tuple(piece.path for piece in files),
        state=tuple((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) for state in states),
        hosts=_recordings(run),
    )


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
