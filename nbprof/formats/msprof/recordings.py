"""Finds recordings of Ascend's profilers in a place, and groups them to runs.

A recording is a folder `PROF_*` of msprof, or `*_ascend_pt` (`*_ascend_ms`) of torch_npu and
MindSpore, which may contain a `PROF_*`; else the folder around
`mindstudio_profiler_output`, `ASCEND_PROFILER_OUTPUT`, `summary` or `timeline`, or the folder of
the tables. Each is of one process; those of different ranks or devices in one folder that began
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
from nbprof.core.late_pattern import late_pattern
from nbprof.core.receipt import warning
from nbprof.core.sidecar import SIDECAR
from nbprof.core.units import join_some
from nbprof.formats.format import Claim, Place, within

NAME = "msprof"

_MOST_ENTRIES = 200_000
_MSPROF = "Ascend's profiler (msprof)"
_RECORDING = late_pattern(r"PROF_\d+.*|.*_ascend_(pt|ms)")
_OUTPUT = late_pattern(
    r"ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output|analyze|summary|timeline|device_\d+|host"
)
_FOLDER = late_pattern(
    r"PROF_\d+.*|ASCEND_PROFILER_OUTPUT|mindstudio_profiler_(output|log)|.*_ascend_(pt|ms)"
)
# Files of a recording whose folder was renamed, or whose content was packed.
_OLDER = late_pattern(r"(.*/)?device_\d{1,4}/(summary|timeline)")
_TABLE = late_pattern(
    r"(op_summary|op_statistic|task_time|api_statistic|step_trace|kernel_details|operator_memory)"
    r"\w*\.csv|trace_view\.json"
)
# Files that the tools keep for themselves, without number.
_INNER = {"data", "sqlite", "FRAMEWORK", "logs", "mindstudio_profiler_log", "log"}
_TIMELINE = late_pattern(r"(msprof|trace_view|msprof_tx)(_slice)?(_\d+)*\.json$")
_PARTIAL = late_pattern(r"(task_time|hccl|step_trace|ge|acl|runtime_api)(_slice)?(_\d+)*\.json$")
_FACTS = late_pattern(
    r"(info\.json(\.\d+)?|start_info(\.\d+)?|profiler_info(_\d+)?\.json|profiler_metadata\.json)$"
)
_ANALYSED = late_pattern(r"(communication|communication_matrix)\.json$|prof_rule(_\d+)*\.json$")
# Names of databases of torch_npu and MindSpore, msprof, and their tools, without the cache of a
# viewer. Some tools keep them as .dat, with the same bytes.
_DATABASE = late_pattern(
    r"(ascend_(pytorch|mindspore)(_profiler)?(_(?P<rank>\d{1,6}))?|msprof(_\d+)?|analysis"
    r"|communication_analyzer)\.(db|dat)",
    re.IGNORECASE,
)
_CACHES = late_pattern(r"mindstudio_insight_data\.db", re.IGNORECASE)
_TOGETHER_S = 60.0
_TIME = late_pattern(r"_(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})(?:_|$)")
_RANK = late_pattern(r"profiler_info_(\d{1,6})\.json$")
_RANK_NAMED = late_pattern(r"(?:^|[^a-z])rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
_DEVICE = late_pattern(r"device_(\d{1,4})$")


def is_folder(path: str) -> bool:
    """True if a folder of this name or path is output of Ascend's profiler."""
    return bool(_FOLDER.fullmatch(_name(path)) or _OLDER.fullmatch(path))


def is_private(folder: str) -> bool:
    """True if the tools keep files of their own in a folder of this name, which are not read."""
    return folder in _INNER or folder.startswith(".")


def is_sign(name: str) -> bool:
    """True for a table or timeline, which may have been moved out of its folder."""
    return _TABLE.fullmatch(name) is not None or _DATABASE.fullmatch(name) is not None


def counts(folder: str) -> bool:
    """True if the name of a folder states the recorded device."""
    return _DEVICE.fullmatch(folder) is not None


def is_read(name: str) -> bool:
    """True if a file of this name in a recording is read."""
    return bool(use_of(name))


def use_of(name: str) -> str:
    """Use of a file by its name: `table`, `timeline`, `partial` (a part of a timeline), `analysed`,
    `database`, `facts`, or ''.
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
    if match := _RANK.match(name):
        return int(match[1])
    database = _DATABASE.fullmatch(name)
    if database and database["rank"]:
        return int(database["rank"])
    return None


def recording_of(parts: Sequence[str]) -> int:
    """Number of parts of the path of a file that lead to its recording; `parts` are the folders
    that it is in.
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
    return last


@dataclass
class Recording:
    """The files of one recorded process.

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
    def has_data(self) -> bool:
        """True if the recording has anything to show."""
        uses = set(map(use_of, map(_name, self.files)))
        return not uses.isdisjoint(("table", "timeline", "partial", "database"))

    @property
    def time(self) -> float | None:
        """Seconds, of a clock without zone, when it began by its name."""
        match = _TIME.search(self.name)
        if not match:
            return None
        year, month, day, hour, minute, second, milliseconds = map(int, match.groups())
        days = year * 372 + month * 31 + day
        return days * 86400 + hour * 3600 + minute * 60 + second + milliseconds / 1000


def recordings(
    folder: Path, *, near: bool = False, confinement: Confinement | None = None
) -> list[Recording]:
    """The recordings below a folder; with `near` those right in it alone."""
    recordings: dict[str, Recording] = {}
    loose: dict[str, list[str]] = {}
    queue = [("", bool(within(is_folder, folder.absolute().parts)))]
    left = _MOST_ENTRIES
    while queue and left > 0:
        folder_path, ours = queue.pop()
        try:
            with scan(folder / folder_path, confinement) as entries:
                here = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        left -= len(here)
        ours = ours or is_folder(folder_path)
        # Tables that somebody took out of their folders.
        is_recording = ours or any(map(is_sign, here))
        key = folder_path
        if ours:
            key = _home(folder_path)
        recording = recordings.get(key) or Recording(key)
        for name in sorted(here):
            below = f"{folder_path}/{name}".removeprefix("/")
            if here[name]:
                device = _DEVICE.fullmatch(name)
                if device:
                    recording.devices.add(int(device[1]))
                    recording.raw |= ours
                if _is_searched(below, ours=ours, near=near):
                    queue.append((below, ours))
            elif is_recording and use_of(name):
                recording.files.append(below)
            elif _FACTS.fullmatch(name):
                loose.setdefault(folder_path, []).append(below)
        if is_recording and (recording.files or recording.devices):
            recordings[key] = recording
    return _finished(recordings, loose)


def _is_searched(folder: str, *, ours: bool, near: bool) -> bool:
    """True if recordings are looked for in a folder; `ours` if it is in one itself."""
    name = _name(folder)
    if name.startswith("."):
        return False
    if ours:
        return name not in _INNER
    return not near or is_folder(folder)


def _home(folder: str) -> str:
    """The path of the recording that a folder is in."""
    parts = folder.split("/")
    return "/".join(parts[: recording_of(parts)])


def listed(
    files: Iterable[str], devices: Iterable[str], *, within_recording: bool
) -> list[Recording]:
    """The recordings of a place that lists full paths.

    Parameters
    ----------
    files : iterable of str
        Paths, below the place, of files that are read, and of files next to such.
    devices : iterable of str
        Paths of the folders `device_<id>`.
    within_recording : bool
        The place itself is in a recording.
    """
    folders: dict[str, list[str]] = {}
    for file in files:
        folders.setdefault(file.rpartition("/")[0], []).append(file)
    recordings: dict[str, Recording] = {}

    def recording(folder: str, files: Sequence[str] = ()) -> Recording | None:
        if within_recording or within(is_folder, folder.split("/")):
            key = _home(folder)
        elif any(map(is_sign, map(_name, files))):
            key = folder
        else:
            return None
        return recordings.setdefault(key, Recording(key))

    loose: dict[str, list[str]] = {}
    for folder, folder_files in folders.items():
        home = recording(folder, folder_files)
        if home is None:
            loose[folder] = folder_files
        else:
            home.files += folder_files
            matches = map(_DEVICE.fullmatch, folder.split("/"))
            home.devices.update(int(match[1]) for match in matches if match)
    for folder in devices:
        device = _DEVICE.fullmatch(_name(folder))
        home = recording(folder) if device else None
        if device and home:
            home.devices.add(int(device[1]))
            home.raw = True
    return _finished(recordings, loose)


def _finished(recordings: dict[str, Recording], loose: dict[str, list[str]]) -> list[Recording]:
    """Recordings with their ranks and without redundant files, in the order of their paths.

    `loose` are files, by folder, outside of folders with the name of a recording: in a renamed one,
    the files that state its device and clock.
    """
    for folder, files in loose.items():
        path = _home(folder)
        if path in recordings and path != folder:
            recordings[path].files += [file for file in files if _FACTS.fullmatch(_name(file))]
    result = sorted(recordings.values(), key=lambda r: r.path)
    for recording in result:
        recording.files = sorted(_without_redundant(recording.files))
        for file in recording.files:
            rank = rank_of(_name(file))
            if rank is not None:
                recording.rank = rank
        match = _RANK_NAMED.search(recording.name)
        if recording.rank is None and match:
            recording.rank = int(match[1])
    return result


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _without_redundant(files: list[str]) -> list[str]:
    """The files of a recording without those whose content others have as well: in torch_npu's, the
    files of the PROF_ inside.
    """
    has_output = any("ASCEND_PROFILER_OUTPUT/" in file for file in files)
    by_folder: dict[str, list[str]] = {}
    for file in files:
        is_inner = has_output and "/PROF_" in f"/{file}"
        if not is_inner or use_of(_name(file)) == "facts":
            by_folder.setdefault(file.rpartition("/")[0], []).append(file)
    result = []
    for paths in by_folder.values():
        has_timeline = any(use_of(_name(path)) == "timeline" for path in paths)
        for path in paths:
            name = _name(path)
            # A timeline includes these, except for the marks of iterations.
            included = use_of(name) == "partial" and not name.startswith("step_trace")
            if not (has_timeline and included):
                result.append(path)
    return result


def runs_in(
    folder: Path, *, near: bool = False, confinement: Confinement | None = None
) -> tuple[list[RunFiles], list[str]]:
    """The runs of Ascend's profilers below a folder, newest first, and the paths of those that
    msprof has not exported.

    With `near` only those right in it.
    """
    return _runs(
        recordings(folder, near=near, confinement=confinement), _Local(folder, confinement)
    )


def runs_at(
    location: Place, claim: Claim, sidecars: Mapping[str, SourceFile]
) -> tuple[list[RunFiles], list[str]]:
    """Runs at a location whose files are listed already: a folder, an archive or a URL.

    Returns
    -------
    As `runs_in`.
    """
    path = location.below("")
    if isinstance(path, Path):
        return runs_in(path, confinement=getattr(location, "confinement", None))
    recordings = listed(claim.files, claim.folders, within_recording=bool(claim.within))
    return _runs(recordings, _Listed(location, claim.files, sidecars))


class _Local:
    """Recordings on a disk of this machine."""

    local = True

    def __init__(self, folder: Path, confinement: Confinement | None) -> None:
        self.folder = folder
        self.confinement = confinement

    def below(self, path: str) -> Path:
        return self.folder / path

    def file(self, path: str) -> SourceFile:
        return LocalFile(self.folder / path, confinement=self.confinement)

    def name(self) -> str:
        """Name of a folder inside a recording: that of the recording, where it has one."""
        parts = self.folder.absolute().parts
        depth = recording_of(parts)
        return parts[depth - 1] if depth else self.folder.name

    def home(self, path: str) -> tuple[Path | str, str, SourceFile] | None:
        """The folder that nbprof made for a recording, its name, and what it wrote there."""
        parent = self.folder / path
        for folder in (parent, parent.absolute().parent):
            sidecar = folder / SIDECAR
            if sidecar.is_file():
                file = LocalFile(sidecar, confinement=self.confinement)
                return folder, folder.absolute().name, file
        return None


class _Listed:
    """Recordings in an archive or behind a URL."""

    local = False

    def __init__(
        self,
        folder: Place,
        files: Mapping[str, SourceFile],
        sidecar_files: Mapping[str, SourceFile],
    ) -> None:
        self.folder = folder
        self.files = files
        self.sidecars = sidecar_files

    def below(self, path: str) -> Path | str:
        return self.folder.below(path)

    def file(self, path: str) -> SourceFile:
        return self.files[path]

    def name(self) -> str:
        parts = self.folder.label.rstrip("/").split("/")
        depth = recording_of(parts)
        if 0 < depth < len(parts):
            return parts[depth - 1]
        return self.folder.name

    def home(self, path: str) -> tuple[Path | str, str, SourceFile] | None:
        for folder_path in dict.fromkeys((path, path.rpartition("/")[0])):
            if folder_path in self.sidecars:
                name = _name(folder_path) or self.folder.name
                return self.folder.below(folder_path), name, self.sidecars[folder_path]
        return None


def _runs(
    recordings: list[Recording], location: _Local | _Listed
) -> tuple[list[RunFiles], list[str]]:
    raw: list[str] = []
    groups: list[list[Recording]] = []
    for recording in sorted(recordings, key=lambda r: (r.time or 0.0, r.path)):
        if recording.has_data:
            joined = [group for group in groups if _joins(recording, group)]
            if not joined:
                joined = [[]]
                groups += joined
            joined[-1].append(recording)
        elif recording.raw:
            raw.append(recording.path)
    raw.sort()
    result = [_run(location, group, raw) for group in groups]
    return sorted(result, key=lambda run: (run.modified, run.name), reverse=True), raw


def _joins(recording: Recording, group: list[Recording]) -> bool:
    """True if a recording is of another rank or device of the same run."""
    first = group[0]
    if recording.path.rpartition("/")[0] != first.path.rpartition("/")[0]:
        return False
    if not _is_other_rank(recording, group):
        return False
    if recording.time is not None and first.time is not None:
        return recording.time - first.time <= _TOGETHER_S
    return recording.rank is not None and recording.time == first.time


def _is_other_rank(recording: Recording, group: list[Recording]) -> bool:
    """True if no recording of a group is of the same rank, or of the same devices."""
    if recording.rank is not None and group[0].rank is not None:
        return all(recording.rank != other.rank for other in group)
    if not recording.devices:
        # Each process of a job of torch_npu has a folder, without the device in its name.
        return recording.name.endswith(("_ascend_pt", "_ascend_ms"))
    return all(other.devices and recording.devices.isdisjoint(other.devices) for other in group)


def _position(recording: Recording) -> tuple[int, str]:
    """Sorts the recordings of a run by rank, or device."""
    if recording.rank is not None:
        return recording.rank, recording.path
    return min(recording.devices, default=0), recording.path


def _run(location: _Local | _Listed, group: list[Recording], raw: list[str]) -> RunFiles:
    group = sorted(group, key=_position)
    files = tuple(location.file(file) for member in group for file in member.files)
    first = group[0]
    outer = first.path.rpartition("/")[0]
    if len(group) == 1:
        path, name = first.path, printable(first.name or location.name())
    else:
        path, name = outer, join_some([printable(member.name) for member in group], 1)
    parent = location.below(path)
    sidecar: SourceFile | None = None
    home = location.home(path)
    if home is not None:
        # A recording of nbprof goes by the folder that was created for it.
        parent, name, sidecar = home
        name = printable(name)
    notes = []
    for raw_path in raw:
        if raw_path.rpartition("/")[0] == outer:
            text = (
                f"{printable(_name(raw_path))} next to it is not exported yet and not included in"
                f" the figures: {_export(location, raw_path)}"
            )
            notes.append(warning("not_exported", text))
    return RunFiles(
        name,
        parent,
        files,
        max((file.modified for file in files), default=0.0),
        NAME,
        notes=tuple(notes),
        sidecar=sidecar,
    )


def _export(location: _Local | _Listed, path: str) -> str:
    if location.local:
        return _how_to_export(str(location.below(path)))
    return _how_to_export(_name(path), local=False)


def _how_to_export(path: str, *, local: bool = True) -> str:
    """The command that exports raw data to files that can be read."""
    path_text = printable(path)
    how = (
        f"run  msprof --export=on --output={path_text}  where CANN is installed, then load it"
        " again."
    )
    if path.endswith("_ascend_pt"):
        how = (
            f'run  torch_npu.profiler.profiler.analyse("{path_text}")  where torch_npu is'
            " installed, then load it again."
        )
    return how if local else f"copy it to a disk, {how}"


def not_yet(path: str) -> str:
    """The error for raw data at a path."""
    return f"is a raw recording of {_MSPROF}, not exported yet: {_how_to_export(path)}"


def nothing(location: Place, unread: Sequence[str]) -> ReadError:
    """The error for output of Ascend's profilers in which there is nothing that can be read: how to
    get it.
    """
    here = location.below("")
    if not unread:
        text = (
            f"it has output of {_MSPROF}, but no table (CSV), timeline (JSON) or database (DB) that"
            " nbprof can read."
        )
        return ReadError(text, path=location.label)
    names = [_name(path) or location.name for path in unread]
    listed_names = join_some(list(map(printable, names)), 3)
    subject = "a raw recording"
    if len(unread) > 1:
        subject = f"{len(unread)} raw recordings"
    text = f"this is {subject} of {_MSPROF}, {listed_names}, not exported yet: "
    if not isinstance(here, Path):
        # The tool of CANN can't look into it.
        return ReadError(text + _how_to_export(names[0], local=False), path=location.label)
    paths = [str(here / path) for path in unread]
    return RawError(
        text + _how_to_export(paths[0]),
        path=location.label,
        recorder=_MSPROF,
        recordings=paths,
        tool=NAME,
    )


def cache_of(name: str) -> str:
    """The file to load in place of a viewer's cache database; '' for other names."""
    if not _CACHES.fullmatch(name):
        return ""
    return "Load the folder that MindStudio Insight created it from."
