"""Which recordings of Ascend's profilers are one run, wherever they lie, and which still have to be exported.

Recordings of different ranks or devices in one folder that began within a minute are one run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nbprof.core.errors import RawError, ReadError
from nbprof.core.files import LocalFile, Piece, RunFiles, printable
from nbprof.sources import sniff
from nbprof.sources.ascend import MSPROF, Recording, listed, recording_of, recordings

if TYPE_CHECKING:
    from nbprof.sources.folders import Folder, Listing

_TOGETHER_S = 60.0
SIDECAR = "nbprof.json"


def runs(folder: Path, *, near: bool = False) -> tuple[list[RunFiles], list[Recording]]:
    """The runs of Ascend's profilers below a folder, newest first, and the recordings that msprof has not exported.

    With `near` only those that lie right in it.
    """
    return _runs(recordings(folder, near=near), _Local(folder))


def below(folder: Folder, listing: Listing) -> tuple[list[RunFiles], list[Recording]]:
    """The same of a place that has been listed: a folder of this machine, an archive, a URL."""
    if not listing.ascend:
        return [], []
    if isinstance(path := folder.below(""), Path):
        return runs(path)
    files = {found.at: found.piece for found in listing.npu}
    found = listed(files, listing.npu_devices, inside=bool(listing.within))
    beside = {found.parent: found.piece for found in listing.files if found.piece.name == SIDECAR}
    return _runs(found, _Listed(folder, files, beside))


class _Local:
    """Recordings on a disk of this machine."""

    local = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def below(self, at: str) -> Path:
        return self.folder / at

    def piece(self, at: str) -> Piece:
        return LocalFile(self.folder / at)

    def name(self) -> str:
        """What a folder inside a recording is called by: the recording, where its name has one."""
        parts = self.folder.absolute().parts
        at = recording_of(parts)
        return parts[at - 1] if at else self.folder.name

    def home(self, at: str) -> tuple[Path | str, str, Piece] | None:
        """The folder that nbprof made for a recording, its name, and what it wrote there."""
        parent = self.folder / at
        found = next((one for one in (parent, parent.absolute().parent) if (one / SIDECAR).is_file()), None)
        return None if found is None else (found, found.absolute().name, LocalFile(found / SIDECAR))


class _Listed:
    """Recordings in an archive or behind a URL."""

    local = False

    def __init__(self, folder: Folder, files: dict[str, Piece], beside: dict[str, Piece]) -> None:
        self.folder = folder
        self.files = files
        self.beside = beside

    def below(self, at: str) -> Path | str:
        return self.folder.below(at)

    def piece(self, at: str) -> Piece:
        return self.files[at]

    def name(self) -> str:
        parts = self.folder.label.rstrip("/").split("/")
        at = recording_of(parts)
        return parts[at - 1] if 0 < at < len(parts) else self.folder.name

    def home(self, at: str) -> tuple[Path | str, str, Piece] | None:
        for one in dict.fromkeys((at, at.rpartition("/")[0])):
            if one in self.beside:
                return self.folder.below(one), one.rpartition("/")[2] or self.folder.name, self.beside[one]
        return None


def _runs(found: list[Recording], place: _Local | _Listed) -> tuple[list[RunFiles], list[Recording]]:
    ready = [one for one in found if one.shown]
    raw = [one for one in found if not one.shown and one.raw]
    groups: list[list[Recording]] = []
    for one in sorted(ready, key=lambda r: (r.time or 0.0, r.path)):
        home = next((group for group in reversed(groups) if _joins(one, group)), None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    out = [_run(place, group, raw) for group in groups]
    return sorted(out, key=lambda run: (run.modified, run.name), reverse=True), raw


def _joins(one: Recording, group: list[Recording]) -> bool:
    """Whether a recording is of another rank or device of the same run."""
    first = group[0]
    if one.path.rpartition("/")[0] != first.path.rpartition("/")[0]:
        return False
    if one.rank is not None and first.rank is not None:
        apart = one.rank not in {other.rank for other in group}
    else:
        apart = bool(one.devices) and all(other.devices and one.devices.isdisjoint(other.devices) for other in group)
        # Each process of a job of torch_npu has a folder of its own; they tell the device nowhere in their names.
        apart |= not one.devices and one.name.endswith(("_ascend_pt", "_ascend_ms"))
    if one.time is None or first.time is None:
        return apart and one.rank is not None and (one.time is None) == (first.time is None)
    return apart and one.time - first.time <= _TOGETHER_S


def _run(place: _Local | _Listed, group: list[Recording], raw: list[Recording]) -> RunFiles:
    group = sorted(group, key=lambda r: (r.rank if r.rank is not None else min(r.devices, default=0), r.path))
    pieces = tuple(place.piece(at) for one in group for at in one.files)
    at = group[0].path if len(group) == 1 else group[0].path.rpartition("/")[0]
    parent = place.below(at)
    name = printable(group[0].name or place.name()) if len(group) == 1 else f"{printable(group[0].name)} and {len(group) - 1} more"
    sidecar: Piece | None = None
    # What nbprof recorded is called by the folder that it made for the recording.
    if (home := place.home(at)) is not None:
        parent, sidecar = home[0], home[2]
        name = printable(home[1])
    warnings = tuple(
        f"{printable(one.name)} beside it is not exported yet, and not in the numbers: {_export(place, one)}"
        for one in raw
        if one.path.rpartition("/")[0] == group[0].path.rpartition("/")[0]
    )
    return RunFiles(name, parent, pieces, max((p.modified for p in pieces), default=0.0), "msprof", warnings=warnings, sidecar=sidecar)


def _export(place: _Local | _Listed, one: Recording) -> str:
    return how_to_export(str(place.below(one.path))) if place.local else how_to_export(one.name, local=False)


def how_to_export(path: str, *, local: bool = True) -> str:
    """What turns raw data into files that can be read."""
    shown = printable(path)
    how = f"run  msprof --export=on --output={shown}  where CANN is installed, then load it again."
    if path.endswith("_ascend_pt"):
        how = f'run  torch_npu.profiler.profiler.analyse("{shown}")  where torch_npu is installed, then load it again.'
    return how if local else f"copy it to a disk, {how}"


def unread(folder: Folder, raw: list[Recording]) -> ReadError:
    """The error for output of Ascend's profilers in which there is nothing that can be read: how to get it."""
    if not raw:
        here = folder.below("")
        database = next((file.name for file in here.rglob("*.db")), "") if isinstance(here, Path) else ""
        text = f"output of {MSPROF} is here, but neither a table (CSV) nor a timeline (JSON) that nbprof reads."
        if how := sniff.database_of_ascend(database):
            text += f" It has the database {printable(database)}, which nbprof does not read. {how}"
        return ReadError(text, path=folder.label)
    names = ", ".join(printable(one.name or folder.name) for one in raw[:3]) + (f" and {len(raw) - 3:,} more" if len(raw) > 3 else "")
    what = "a raw recording" if len(raw) == 1 else f"{len(raw)} raw recordings"
    text = f"this is {what} of {MSPROF}, {names}, not exported yet: "
    here = folder.below("")
    if not isinstance(here, Path):
        # The tool of CANN can't look into it.
        return ReadError(text + how_to_export(raw[0].name or folder.name, local=False), path=folder.label)
    paths = [str(here / one.path) if one.path else str(here) for one in raw]
    return RawError(text + how_to_export(paths[0]), path=folder.label, what=MSPROF, recordings=paths)
