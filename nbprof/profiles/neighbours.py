"""Other runs in the folder that a run was read from, for a comparison that nobody has loaded them
for.
"""

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
from nbprof.sources.locate import Ways, runs
from nbprof.sources.recording import CaptureInfo
from nbprof.tools import header

if TYPE_CHECKING:
    from nbprof.run.run import Run

_MOST = 40
_BUDGET = partial(Budget, 20_000, 64 << 20, 5.0)
"""A menu that opens at a click waits for this: a home directory is not searched to its end."""


@dataclass(frozen=True)
class Neighbour:
    """A run that was found and not read."""

    key: str
    files: RunFiles
    label: str
    created: str

    @classmethod
    def of(cls, files: RunFiles) -> Neighbour:
        """A run by its files."""
        info = CaptureInfo.of(files.sidecar)
        paths = "\n".join(sorted(str(path) for path, _, _ in local_files(files.files)))
        started = info.started if info is not None else ""
        return cls(
            key=(
                f"folder-{hashlib.blake2b(paths.encode(errors='surrogateescape'), digest_size=16).hexdigest()}"
            ),
            files=files,
            label=header.name_of(files.name, info),
            created=started.replace("T", " ")[:19] or _clock(files.modified),
        )


def neighbours(run: Run, known: list[Run]) -> list[Neighbour]:
    """The runs in the folder of a run, newest first, without itself and without those that are
    `known`.
    """
    places = {path for other in (run, *known) for path, _, _ in other.source.local}
    for folder in _folders(run):
        try:
            ways = Ways(
                limit_bytes=run.source.limit_bytes,
                confinement=run.source.confinement,
                budget=_BUDGET,
            )
            found = runs(folder, ways)
        except (NbprofError, OSError):
            continue
        others = [files for files in found if _is_apart(files, places)]
        if others:
            return [Neighbour.of(files) for files in others[:_MOST]]
    return []


def _is_apart(files: RunFiles, places: set[Path]) -> bool:
    paths = {path for path, _, _ in local_files(files.files)}
    return bool(paths) and not paths & places


def _folders(run: Run) -> list[Path]:
    """Where to look: the logdir; of a run in none, the folder that its files are in, then the one
    above.
    """
    if not run.source.local:
        return []
    folder = run.source.local[0][0].parent
    if folder.parent.parts[-2:] == ("plugins", "profile"):
        return [folder.parents[2]]
    return [folder, folder.parent] if folder.parent != folder else [folder]


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).isoformat(" ", "seconds") if seconds > 0 else ""
    except (OverflowError, ValueError, OSError):
        return ""
