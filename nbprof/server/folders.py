"""The runs of a folder: found in a process, selected by the user, and checked for changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.core.errors import ReadError
from nbprof.server.paths import Place, confinement_of, could_not, too_large

if TYPE_CHECKING:
    from nbprof.core.confinement import Confinement
    from nbprof.core.files import RunFiles


@dataclass(frozen=True)
class Chosen:
    """One run of a folder, and which others there are.

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
    """The run of that name, or the newest. It looks into the folders below, so it is for a process.

    Parameters
    ----------
    folder : Path
        Without links.
    run : str
        The name; the empty text for the newest.
    confinement : Confinement or None
        Runs of which a file may not be opened are left out.

    Raises
    ------
    ReadError
        There is no run, or none of that name; says what there is.
    """
    from nbprof.sources import locate, select_run
    from nbprof.sources.budget import Budget

    ways = locate.Ways(confinement=confinement, budget=Budget)
    survey, nothing = locate.survey(folder, ways)
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
        # It says what is there instead.
        raise nothing()
    chosen = select_run.choose(permitted, run, str(folder)) if run else permitted[0]
    listed = [
        {"name": each.name, "modified": _iso(each.modified), "hosts": len(each.files)}
        for each in permitted
    ]
    return Chosen(chosen.name, tuple(map(str, _files(chosen))), listed)


def placed(place: Place, run: str, files: Sequence[str], *, largest: int | None = None) -> Place:
    """The place of a run: its version is another one when one of its files has changed.

    Raises
    ------
    RefusedError
        A file is gone, or they are too large together.
    """
    states = []
    confinement = confinement_of(place.root, hidden=place.hidden)
    try:
        for file in files:
            now = Path(file).stat() if confinement is None else confinement.stat(file)
            states.append((file, now.st_size, now.st_mtime_ns, now.st_ino))
    except OSError as error:
        raise could_not(error, place.shown) from None
    count = sum(size for _, size, *_ in states)
    if largest is not None and count > largest:
        raise too_large(place.shown, count, largest)
    version = hashlib.sha256(repr((run, states)).encode("utf-8", "surrogateescape")).hexdigest()[
        :32
    ]
    return replace(place, run=run, bytes=count, version=version)


def _files(run: RunFiles) -> list[Path]:
    pieces = [*run.files, *([run.sidecar] if run.sidecar is not None else [])]
    return [path for piece in pieces if isinstance(path := getattr(piece, "path", None), Path)]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
