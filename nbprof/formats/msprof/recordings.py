"""Recordings of Ascend's profilers in a place: which there are, which of their files are read, and
which are one run.

A recording is a folder `PROF_*` of msprof, or `*_ascend_pt` (`*_ascend_ms`) of torch_npu and
MindSpore, which may hold a `PROF_*` of its own; else the folder around
`mindstudio_profiler_output`, `ASCEND_PROFILER_OUTPUT`, `summary` or `timeline`, or the one that the
tables lie in. Each is of one process; those of different ranks or devices in one folder that began
within a minute are one run.

The module is the `Recordings` of the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nbprof.core.confinement import Confinement, scan
from nbprof.core.errors import RawError, ReadError
from nbprof.core.files import LocalFile, RunFiles, SourceFile, printable
from nbprof.core.sidecar import SIDECAR
from nbprof.formats.format import Claim, Place, within

NAME = "msprof"

_MOST_ENTRIES = 200_000
_MSPROF = "Ascend's profiler (msprof)"
_RECORDING = re.compile(r"PROF_\d+.*|.*_ascend_(pt|ms)")
_OUTPUT = re.compile(
    r"ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output|analyze|summary|timeline|device_\d+|host"
)
_FOLDER = re.compile(
    r"PROF_\d+.*|ASCEND_PROFILER_OUTPUT|mindstudio_profiler_(output|log)|.*_ascend_(pt|ms)"
)
# What is left where the folder of an older recording was renamed, or its content was packed.
_OLDER = re.compile(r"(.*/)?device_\d{1,4}/(summary|timeline)")
_TABLE = re.compile(
    r"(op_summary|op_statistic|task_time|api_statistic|step_trace|kernel_details|operator_memory)\w*\.csv|trace_view\.json"
)
# What the tools keep for themselves, in files without number.
_INNER = {"data", "sqlite", "FRAMEWORK", "logs", "mindstudio_profiler_log", "log"}
_TIMELINE = re.compile(r"(msprof|trace_view|msprof_tx)(_slice)?(_\d+)*\.json$")
_PARTIAL = re.compile(r"(task_time|hccl|step_trace|ge|acl|runtime_api)(_slice)?(_\d+)*\.json$")
_FACTS = re.compile(
    r"(info\.json(\.\d+)?|start_info(\.\d+)?|profiler_info(_\d+)?\.json|profiler_metadata\.json)$"
)
_ANALYSED = re.compile(r"(communication|communication_matrix)\.json$|prof_rule(_\d+)*\.json$")
# What torch_npu and MindSpore, msprof, and their tools call theirs; the cache of a viewer is none.
# Some tools keep them as .dat, with the same bytes.
_DATABASE = re.compile(
    r"(ascend_(pytorch|mindspore)(_profiler)?(_(?P<rank>\d{1,6}))?|msprof(_\d+)?|analysis|communication_analyzer)\.(db|dat)",
    re.IGNORECASE,
)
_CACHES = re.compile(r"mindstudio_insight_data\.db", re.IGNORECASE)
_TOGETHER_S = 60.0
_TIME = re.compile(r"_(\d{17})(?:_|$)")
_RANK = re.compile(r"profiler_info_(\d{1,6})\.json$")
_RANK_NAMED = re.compile(r"(?:^|[^a-z])rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
_DEVICE = re.compile(r"device_(\d{1,4})$")


def is_folder(at: str) -> bool:
    """Whether a folder of this name or path is output of Ascend's profiler."""
    return _FOLDER.fullmatch(at.rpartition("/")[2]) is not None or _OLDER.fullmatch(at) is not None


def is_private(folder: str) -> bool:
    """Whether the tools keep files of their own in a folder of this name, which nothing here
    reads.
    """
    return folder in _INNER or folder.startswith(".")


def is_sign(name: str) -> bool:
    """Whether it is a table or timeline wherever it lies: somebody may have taken it out of its
    folder.
    """
    return _TABLE.fullmatch(name) is not None or _DATABASE.fullmatch(name) is not None


def counts(folder: str) -> bool:
    """Whether a folder of this name says which device was recorded."""
    return _DEVICE.fullmatch(folder) is not None


def is_read(name: str) -> bool:
    """Whether a file of this name is read of a recording."""
    return bool(use_of(name))


def use_of(name: str) -> str:
    """What a file is for by its name: `table`, `timeline`, `partial` (a part of what a timeline
    has), `analysed`, `database`, `facts`, or ''.
    """
    if name.endswith(".csv"):
        return "table"
    if _DATABASE.fullmatch(name):
        return "database"
    for pattern, use in (
        (_TIMELINE, "timeline"),
        (_PARTIAL, "partial"),
        (_ANALYSED, "analysed"),
        (_FACTS, "facts"),
    ):
        if pattern.match(name):
            return use
    return ""


def rank_of(name: str) -> int | None:
    """The rank that the name of a file of facts, or of a database, tells."""
    if found := _RANK.match(name):
        return int(found[1])
    told = _DATABASE.fullmatch(name)
    return int(told["rank"]) if told and told["rank"] else None


def recording_of(parts: Sequence[str]) -> int:
    """How many parts of the path of a file lead to its recording; `parts` are the folders that it
    is in.
    """
    for i, part in enumerate(parts):
        # An archive may be called as the recording in it, and hold more than one.
        if _RECORDING.fullmatch(part) and not part.endswith("!"):
            # A PROF_ may lie in a folder of torch_npu; the outer one is the recording, unless it is
            # a PROF_ itself.
            return i + 1
    last = len(parts)
    while last and _OUTPUT.fullmatch(parts[last - 1]):
        last -= 1
    return last if last < len(parts) else len(parts)


@dataclass
class Recording:
    """What one process recorded.

    Attributes
    ----------
    path : str
        Folder, below the place that was looked through.
    files : list of str
        Paths of the files that are read, below that place.
    devices : set of int
        By the names of its folders.
    rank : int or None
        By the name of a file of facts, or its own.
    raw : bool
        It has data that msprof has not exported.
    """

    path: str
    files: list[str] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)
    rank: int | None = None
    raw: bool = False

    @property
    def name(self) -> str:
        """The last part of its folder."""
        return self.path.rpartition("/")[2]

    @property
    def shown(self) -> bool:
        """Whether there is anything in it to be shown."""
        return any(
            use_of(at.rpartition("/")[2]) in ("table", "timeline", "partial", "database")
            for at in self.files
        )

    @property
    def time(self) -> float | None:
        """Seconds, of a clock without zone, when it began by its name."""
        found = _TIME.search(self.name)
        if not found:
            return None
        digits = found[1]
        days = int(digits[:4]) * 372 + int(digits[4:6]) * 31 + int(digits[6:8])
        return (
            days * 86400
            + int(digits[8:10]) * 3600
            + int(digits[10:12]) * 60
            + int(digits[12:14])
            + int(digits[14:]) / 1000
        )


def recordings(
    folder: Path, *, near: bool = False, confinement: Confinement | None = None
) -> list[Recording]:
    """The recordings below a folder; with `near` those right in it alone."""
    found: dict[str, Recording] = {}
    loose: dict[str, list[str]] = {}
    queue = [("", bool(within(is_folder, folder.absolute().parts)))]
    left = _MOST_ENTRIES
    while queue and left > 0:
        at, ours = queue.pop()
        try:
            with scan(folder / at, confinement) as entries:
                here = sorted(
                    (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries
                )
        except OSError:
            continue
        left -= len(here)
        ours = ours or is_folder(at)
        # Tables that somebody took out of their folders.
        bare = not ours and any(is_sign(name) for name, _ in here)
        parts = tuple(at.split("/")) if at else ()
        key = "/".join(parts[: recording_of(parts)]) if ours else at
        one = found.get(key) or Recording(key)
        for name, is_dir in here:
            below = f"{at}/{name}" if at else name
            if is_dir:
                if device := _DEVICE.fullmatch(name):
                    one.devices.add(int(device[1]))
                    one.raw |= ours
                if not name.startswith(".") and (
                    name not in _INNER if ours else not near or is_folder(below)
                ):
                    queue.append((below, ours))
            elif (ours or bare) and use_of(name):
                one.files.append(below)
            elif _FACTS.fullmatch(name):
                loose.setdefault(at, []).append(below)
        if (ours or bare) and (one.files or one.devices):
            found[key] = one
    return _finished(found, loose)


def listed(files: Iterable[str], devices: Iterable[str], *, inside: bool) -> list[Recording]:
    """The recordings of a place that lists whole paths.

    Parameters
    ----------
    files : iterable of str
        Paths of files that are read or stand beside such, below the place.
    devices : iterable of str
        Paths of the folders `device_<id>`.
    inside : bool
        The place itself lies in a recording.
    """
    folders: dict[str, list[str]] = {}
    for at in files:
        folders.setdefault(at.rpartition("/")[0], []).append(at)
    found: dict[str, Recording] = {}

    def recording(folder: str, files: Sequence[str] = ()) -> Recording | None:
        parts = tuple(folder.split("/")) if folder else ()
        ours = inside or bool(within(is_folder, parts))
        if not ours and not any(is_sign(at.rpartition("/")[2]) for at in files):
            return None
        key = "/".join(parts[: recording_of(parts)]) if ours else folder
        return found.setdefault(key, Recording(key))

    loose: dict[str, list[str]] = {}
    for folder, its in folders.items():
        if (one := recording(folder, its)) is None:
            loose[folder] = its
        else:
            one.files += its
            one.devices |= {
                int(device[1]) for part in folder.split("/") if (device := _DEVICE.fullmatch(part))
            }
    for folder in devices:
        device = _DEVICE.fullmatch(folder.rpartition("/")[2])
        if device and (one := recording(folder)) is not None:
            one.devices.add(int(device[1]))
            one.raw = True
    return _finished(found, loose)


def _finished(found: dict[str, Recording], loose: dict[str, list[str]]) -> list[Recording]:
    """Recordings with their ranks, each file that says something new, in the order of their paths.

    `loose` are files, by folder, that no name of a folder says to be of a recording: of a renamed
    one, what states its device and clock.
    """
    for folder, files in loose.items():
        parts = folder.split("/")
        if (at := "/".join(parts[: recording_of(parts)])) in found and at != folder:
            found[at].files += [file for file in files if _FACTS.fullmatch(file.rpartition("/")[2])]
    out = sorted(found.values(), key=lambda r: r.path)
    for one in out:
        one.files = sorted(_told_once(one.files))
        ranks = [rank for at in one.files if (rank := rank_of(at.rpartition("/")[2])) is not None]
        named = _RANK_NAMED.search(one.name)
        one.rank = ranks[-1] if ranks else int(named[1]) if named else None
    return out


def _told_once(files: list[str]) -> list[str]:
    """The files of a recording without those that say the same once more: of torch_npu's, those of
    the PROF_ inside.
    """
    if any("ASCEND_PROFILER_OUTPUT/" in at for at in files):
        files = [
            at
            for at in files
            if "/PROF_" not in "/" + at or use_of(at.rpartition("/")[2]) == "facts"
        ]
    by_folder: dict[str, list[str]] = {}
    for at in files:
        by_folder.setdefault(at.rpartition("/")[0], []).append(at)
    out = []
    for inside in by_folder.values():
        whole = any(use_of(at.rpartition("/")[2]) == "timeline" for at in inside)
        # A timeline has what these have; the marks of iterations are read from where they are
        # whole.
        out += [
            at
            for at in inside
            if not (
                whole
                and use_of(name := at.rpartition("/")[2]) == "partial"
                and not name.startswith("step_trace")
            )
        ]
    return out


def runs_in(
    folder: Path, *, near: bool = False, confinement: Confinement | None = None
) -> tuple[list[RunFiles], list[str]]:
    """The runs of Ascend's profilers below a folder, newest first, and the paths of those that
    msprof has not exported.

    With `near` only those that lie right in it.
    """
    return _runs(
        recordings(folder, near=near, confinement=confinement), _Local(folder, confinement)
    )


def runs_at(
    place: Place, claim: Claim, sidecars: Mapping[str, SourceFile]
) -> tuple[list[RunFiles], list[str]]:
    """The same of a place that has been walked over: a folder of this machine, an archive, a
    URL.
    """
    if isinstance(path := place.below(""), Path):
        return runs_in(path, confinement=getattr(place, "confinement", None))
    found = listed(claim.files, claim.folders, inside=bool(claim.within))
    return _runs(found, _Listed(place, claim.files, sidecars))


class _Local:
    """Recordings on a disk of this machine."""

    local = True

    def __init__(self, folder: Path, confinement: Confinement | None) -> None:
        self.folder = folder
        self.confinement = confinement

    def below(self, at: str) -> Path:
        return self.folder / at

    def file(self, at: str) -> SourceFile:
        return LocalFile(self.folder / at, confinement=self.confinement)

    def name(self) -> str:
        """What a folder inside a recording is called by: the recording, where its name has one."""
        parts = self.folder.absolute().parts
        at = recording_of(parts)
        return parts[at - 1] if at else self.folder.name

    def home(self, at: str) -> tuple[Path | str, str, SourceFile] | None:
        """The folder that nbprof made for a recording, its name, and what it wrote there."""
        parent = self.folder / at
        found = next(
            (one for one in (parent, parent.absolute().parent) if (one / SIDECAR).is_file()), None
        )
        return (
            None
            if found is None
            else (
                found,
                found.absolute().name,
                LocalFile(found / SIDECAR, confinement=self.confinement),
            )
        )


class _Listed:
    """Recordings in an archive or behind a URL."""

    local = False

    def __init__(
        self, folder: Place, files: Mapping[str, SourceFile], beside: Mapping[str, SourceFile]
    ) -> None:
        self.folder = folder
        self.files = files
        self.beside = beside

    def below(self, at: str) -> Path | str:
        return self.folder.below(at)

    def file(self, at: str) -> SourceFile:
        return self.files[at]

    def name(self) -> str:
        parts = self.folder.label.rstrip("/").split("/")
        at = recording_of(parts)
        return parts[at - 1] if 0 < at < len(parts) else self.folder.name

    def home(self, at: str) -> tuple[Path | str, str, SourceFile] | None:
        for one in dict.fromkeys((at, at.rpartition("/")[0])):
            if one in self.beside:
                return (
                    self.folder.below(one),
                    one.rpartition("/")[2] or self.folder.name,
                    self.beside[one],
                )
        return None


def _runs(found: list[Recording], place: _Local | _Listed) -> tuple[list[RunFiles], list[str]]:
    ready = [one for one in found if one.shown]
    raw = [one.path for one in found if not one.shown and one.raw]
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
        apart = bool(one.devices) and all(
            other.devices and one.devices.isdisjoint(other.devices) for other in group
        )
        # Each process of a job of torch_npu has a folder of its own; they tell the device nowhere
        # in their names.
        apart |= not one.devices and one.name.endswith(("_ascend_pt", "_ascend_ms"))
    if one.time is None or first.time is None:
        return apart and one.rank is not None and (one.time is None) == (first.time is None)
    return apart and one.time - first.time <= _TOGETHER_S


def _run(place: _Local | _Listed, group: list[Recording], raw: list[str]) -> RunFiles:
    group = sorted(
        group, key=lambda r: (r.rank if r.rank is not None else min(r.devices, default=0), r.path)
    )
    files = tuple(place.file(at) for one in group for at in one.files)
    at = group[0].path if len(group) == 1 else group[0].path.rpartition("/")[0]
    parent = place.below(at)
    name = (
        printable(group[0].name or place.name())
        if len(group) == 1
        else f"{printable(group[0].name)} and {len(group) - 1} more"
    )
    sidecar: SourceFile | None = None
    # What nbprof recorded is called by the folder that it made for the recording.
    if (home := place.home(at)) is not None:
        parent, sidecar = home[0], home[2]
        name = printable(home[1])
    warnings = tuple(
        f"{printable(path.rpartition('/')[2])} next to it is not exported yet and not included in"
        f" the figures: {_export(place, path)}"
        for path in raw
        if path.rpartition("/")[0] == group[0].path.rpartition("/")[0]
    )
    return RunFiles(
        name,
        parent,
        files,
        max((p.modified for p in files), default=0.0),
        NAME,
        warnings=warnings,
        sidecar=sidecar,
    )


def _export(place: _Local | _Listed, path: str) -> str:
    return (
        _how_to_export(str(place.below(path)))
        if place.local
        else _how_to_export(path.rpartition("/")[2], local=False)
    )


def _how_to_export(path: str, *, local: bool = True) -> str:
    """What turns raw data into files that can be read."""
    shown = printable(path)
    how = f"run  msprof --export=on --output={shown}  where CANN is installed, then load it again."
    if path.endswith("_ascend_pt"):
        how = (
            f'run  torch_npu.profiler.profiler.analyse("{shown}")  where torch_npu is installed,'
            " then load it again."
        )
    return how if local else f"copy it to a disk, {how}"


def not_yet(path: str) -> str:
    """What is said of raw data at a path."""
    return f"is a raw recording of {_MSPROF}, not exported yet: {_how_to_export(path)}"


def nothing(place: Place, unread: Sequence[str]) -> ReadError:
    """The error for output of Ascend's profilers in which there is nothing that can be read: how to
    get it.
    """
    here = place.below("")
    if not unread:
        text = (
            f"it has output of {_MSPROF}, but no table (CSV), timeline (JSON) or database (DB) that"
            " nbprof can read."
        )
        return ReadError(text, path=place.label)
    names = ", ".join(printable(path.rpartition("/")[2] or place.name) for path in unread[:3]) + (
        f" and {len(unread) - 3:,} more" if len(unread) > 3 else ""
    )
    what = "a raw recording" if len(unread) == 1 else f"{len(unread)} raw recordings"
    text = f"this is {what} of {_MSPROF}, {names}, not exported yet: "
    if not isinstance(here, Path):
        # The tool of CANN can't look into it.
        return ReadError(
            text + _how_to_export(unread[0].rpartition("/")[2] or place.name, local=False),
            path=place.label,
        )
    paths = [str(here / path) if path else str(here) for path in unread]
    return RawError(
        text + _how_to_export(paths[0]), path=place.label, what=_MSPROF, recordings=paths, tool=NAME
    )


def cache_of(name: str) -> str:
    """What to load in place of a database that a viewer keeps for itself; '' for other names."""
    return (
        "Load the folder that MindStudio Insight created it from."
        if _CACHES.fullmatch(name)
        else ""
    )
