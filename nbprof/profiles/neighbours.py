"""Other runs in the folder of a run, to compare with it without loading them first."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nbprof.core.errors import NbprofError
from nbprof.core.files import RunFiles
from nbprof.run.source import local_files
from nbprof.sources.budget import Budget
from nbprof.sources.locate import OpenOptions, runs
from nbprof.sources.recording import CaptureInfo
from nbprof.tools import header

if TYPE_CHECKING:
    from nbprof.run.run import Run

_MOST = 40
_BUDGET = partial(Budget, 20_000, 64 << 20, 5.0)
"""Limits of the search, as a menu waits for it: a home directory is not searched completely."""


@dataclass(frozen=True)
class Neighbour:
    """A run whose files are not read yet."""

    key: str
    files: RunFiles
    label: str
    created: str

    @classmethod
    def of(cls, files: RunFiles) -> Neighbour:
        """A run by its files."""
        info = CaptureInfo.of(files.sidecar)
        paths = "\n".join(sorted(str(path) for path, _, _ in local_files(files.files)))
        digest = hashlib.blake2b(paths.encode(errors="surrogateescape"), digest_size=16)
        started = info.started if info is not None else ""
        return cls(
            key=f"folder-{digest.hexdigest()}",
            files=files,
            label=header.name_of(files.name, info),
            created=started.replace("T", " ")[:19] or _clock(files.modified),
        )


def neighbours(run: Run, loaded: list[Run]) -> list[Neighbour]:
    """The runs in the folder of a run, newest first, except itself and those that are `loaded`."""
    read_paths: set[Path] = set()
    for other in (run, *loaded):
        read_paths.update(path for path, _, _ in other.source.local)
    for folder in _folders(run):
        try:
            options = OpenOptions(
                limit_bytes=run.source.limit_bytes,
                confinement=run.source.confinement,
                budget=_BUDGET,
            )
            folder_runs = runs(folder, options)
        except (NbprofError, OSError):
            continue
        unread = [files for files in folder_runs if _is_unread(files, read_paths)]
        if unread:
            return [Neighbour.of(files) for files in unread[:_MOST]]
    return []


def _is_unread(files: RunFiles, read_paths: set[Path]) -> bool:
    paths = {path for path, _, _ in local_files(files.files)}
    return bool(paths) and not paths & read_paths


def _folders(run: Run) -> list[Path]:
    """The folders to search: the logdir; without one, the folder of the files and the one above."""
    if not run.source.local:
        return []
    folder = run.source.local[0][0].parent
    if folder.parent.parts[-2:] == ("plugins", "profile"):
        return [folder.parents[2]]
    return [folder, folder.parent] if folder.parent != folder else [folder]


def _clock(seconds: float) -> str:
    try:
        if seconds > 0:
            return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")
        return ""
    except (OverflowError, ValueError, OSError):
        return ""
