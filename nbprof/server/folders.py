"""The runs of a folder: searched in a process, selected by the user, checked for changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.core.confinement import state_of
from nbprof.core.errors import ReadError
from nbprof.server.paths import Place, confinement_of, could_not, too_large

if TYPE_CHECKING:
    from nbprof.core.confinement import Confinement
    from nbprof.core.files import RunFiles


@dataclass(frozen=True)
class Chosen:
    """A run of a folder, with a list of all runs.

    Attributes
    ----------
    run : str
        Its name.
    files : tuple of str
        On the disk.
    runs : list of dict
        `name`, `modified` (ISO, UTC) and `hosts` of all runs, newest first.
    """

    run: str
    files: tuple[str, ...]
    runs: list[dict[str, Any]]


def choose(folder: Path, run: str, confinement: Confinement | None) -> Chosen:
    """The run of a name, or the newest. It searches the folders below, so it runs in a process.

    Parameters
    ----------
    folder : Path
        Without links.
    run : str
        The name; the empty text for the newest.
    confinement : Confinement or None
        Runs with files that may not be opened are ignored.

    Raises
    ------
    ReadError
        There is no run, or none of that name; the message lists what there is.
    """
    from nbprof.sources import locate, select_run
    from nbprof.sources.budget import Budget

    options = locate.OpenOptions(confinement=confinement, budget=Budget)
    survey, nothing = locate.survey(folder, options)
    permitted = [
        run_files
        for run_files in survey
        if confinement is None or all(map(confinement.permits, _files(run_files)))
    ]
    if survey and not permitted:
        raise ReadError(
            "its contents are hidden, or a link that points outside the folder that Jupyter serves."
            " Replace the link with a copy of the files.",
            path=str(folder),
        )
    if not permitted:
        # Lists what is there instead.
        raise nothing()
    chosen = select_run.choose(permitted, run, str(folder)) if run else permitted[0]
    listed = [
        {"name": each.name, "modified": _iso(each.modified), "hosts": len(each.files)}
        for each in permitted
    ]
    return Chosen(chosen.name, tuple(map(str, _files(chosen))), listed)


def placed(place: Place, run: str, files: Sequence[str], *, largest: int | None = None) -> Place:
    """The place of a run; its version changes when one of its files changes.

    Raises
    ------
    RefusedError
        A file does not exist any more, or the files are too large together.
    """
    states = []
    confinement = confinement_of(place.root, hidden=place.hidden)
    try:
        for file in files:
            now = state_of(Path(file), confinement)
            states.append((file, now.st_size, now.st_mtime_ns, now.st_ino))
    except OSError as error:
        raise could_not(error, place.browser_path) from None
    count = sum(size for _, size, *_ in states)
    if largest is not None and count > largest:
        raise too_large(place.browser_path, count, largest)
    state = repr((run, states)).encode("utf-8", "surrogateescape")
    version = hashlib.sha256(state).hexdigest()[:32]
    return replace(place, run=run, bytes=count, version=version)


def _files(run: RunFiles) -> list[Path]:
    paths = [getattr(piece, "path", None) for piece in run.with_sidecar]
    return [path for path in paths if isinstance(path, Path)]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
