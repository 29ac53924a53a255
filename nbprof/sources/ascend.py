"""Recordings of Ascend's profilers in a place: which there are, and which of their files are read.

A recording is a folder `PROF_*` of msprof, or `*_ascend_pt` (`*_ascend_ms`) of torch_npu and MindSpore, which may hold a `PROF_*` of its
own; else the folder around `mindstudio_profiler_output`, `ASCEND_PROFILER_OUTPUT`, `summary` or `timeline`, or the one that the tables lie
in. Each is of one process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST_ENTRIES = 200_000
_MAKERS = (
    (re.compile(r".*_ascend_pt"), "Ascend's profiler of PyTorch (torch_npu)"),
    (re.compile(r".*_ascend_ms"), "Ascend's profiler of MindSpore"),
)
MSPROF = "Ascend's profiler (msprof)"
RECORDING = re.compile(r"PROF_\d+.*|.*_ascend_(pt|ms)")
_OUTPUT = re.compile(r"ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output|analyze|summary|timeline|device_\d+|host")
FOLDER = re.compile(r"PROF_\d+.*|ASCEND_PROFILER_OUTPUT|mindstudio_profiler_(output|log)|.*_ascend_(pt|ms)")
# What is left where the folder of an older recording was renamed, or its content was packed.
_OLDER = re.compile(r"(.*/)?device_\d{1,4}/(summary|timeline)")
TABLE = re.compile(r"(op_summary|op_statistic|task_time|api_statistic|step_trace|kernel_details|operator_memory)\w*\.csv|trace_view\.json")
# What the tools keep for themselves, in files without number.
_INNER = {"data", "sqlite", "FRAMEWORK", "logs", "mindstudio_profiler_log", "log"}
TIMELINE = re.compile(r"(msprof|trace_view|msprof_tx)(_slice)?(_\d+)*\.json$")
PARTIAL = re.compile(r"(task_time|hccl|step_trace|ge|acl|runtime_api)(_slice)?(_\d+)*\.json$")
FACTS = re.compile(r"(info\.json(\.\d+)?|start_info(\.\d+)?|profiler_info(_\d+)?\.json|profiler_metadata\.json)$")
ANALYSED = re.compile(r"(communication|communication_matrix)\.json$|prof_rule(_\d+)*\.json$")
_TIME = re.compile(r"_(\d{17})(?:_|$)")
_RANK = re.compile(r"profiler_info_(\d{1,6})\.json$")
_RANK_NAMED = re.compile(r"(?:^|[^a-z])rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
_DEVICE = re.compile(r"device_(\d{1,4})$")


def is_ascend(at: str) -> bool:
    """Whether a folder of this name or path is output of Ascend's profiler."""
    return FOLDER.fullmatch(at.rpartition("/")[2]) is not None or _OLDER.fullmatch(at) is not None


def within(parts: Sequence[str]) -> str:
    """The first of some folders, each in the one before, that is output of Ascend's profiler; '' where none is."""
    return next((part for i, part in enumerate(parts) if is_ascend("/".join(parts[max(i - 1, 0) : i + 1]))), "")


def kept_for_itself(name: str) -> bool:
    """Whether the tools keep files of their own in a folder of this name, which nothing here reads."""
    return name in _INNER or name.startswith(".")


def use_of(name: str) -> str:
    """What a file is for by its name: `table`, `timeline`, `partial` (a part of what a timeline has), `analysed`, `facts`, or ''."""
    if name.endswith(".csv"):
        return "table"
    for pattern, use in ((TIMELINE, "timeline"), (PARTIAL, "partial"), (ANALYSED, "analysed"), (FACTS, "facts")):
        if pattern.match(name):
            return use
    return ""


def recording_of(parts: Sequence[str]) -> int:
    """How many parts of the path of a file lead to its recording; `parts` are the folders that it is in."""
    for i, part in enumerate(parts):
        # An archive may be called as the recording in it, and hold more than one.
        if RECORDING.fullmatch(part) and not part.endswith("!"):
            # A PROF_ may lie in a folder of torch_npu; the outer one is the recording, unless it is a PROF_ itself.
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
        return any(use_of(at.rpartition("/")[2]) in ("table", "timeline", "partial") for at in self.files)

    @property
    def time(self) -> float | None:
        """Seconds, of a clock without zone, when it began by its name."""
        found = _TIME.search(self.name)
        if not found:
            return None
        digits = found[1]
        days = int(digits[:4]) * 372 + int(digits[4:6]) * 31 + int(digits[6:8])
        return days * 86400 + int(digits[8:10]) * 3600 + int(digits[10:12]) * 60 + int(digits[12:14]) + int(digits[14:]) / 1000


def maker(names: Iterable[str]) -> str:
    """Who wrote a recording, by the names of its folders."""
    for name in names:
        for pattern, text in _MAKERS:
            if pattern.fullmatch(name):
                return text
    return MSPROF


def recordings(folder: Path, *, near: bool = False) -> list[Recording]:
    """The recordings below a folder; with `near` those right in it alone."""
    found: dict[str, Recording] = {}
    loose: dict[str, list[str]] = {}
    queue = [("", bool(within(folder.absolute().parts)))]
    left = _MOST_ENTRIES
    while queue and left > 0:
        at, ours = queue.pop()
        try:
            with os.scandir(folder / at) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        left -= len(here)
        ours = ours or is_ascend(at)
        # Tables that somebody took out of their folders.
        bare = not ours and any(TABLE.fullmatch(entry.name) for entry in here)
        parts = tuple(at.split("/")) if at else ()
        key = "/".join(parts[: recording_of(parts)]) if ours else at
        one = found.get(key) or Recording(key)
        for entry in here:
            below = f"{at}/{entry.name}" if at else entry.name
            if entry.is_dir(follow_symlinks=False):
                if device := _DEVICE.fullmatch(entry.name):
                    one.devices.add(int(device[1]))
                    one.raw |= ours
                if not entry.name.startswith(".") and (entry.name not in _INNER if ours else not near or is_ascend(below)):
                    queue.append((below, ours))
            elif (ours or bare) and use_of(entry.name):
                one.files.append(below)
            elif FACTS.fullmatch(entry.name):
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
        ours = inside or bool(within(parts))
        if not ours and not any(TABLE.fullmatch(at.rpartition("/")[2]) for at in files):
            return None
        key = "/".join(parts[: recording_of(parts)]) if ours else folder
        return found.setdefault(key, Recording(key))

    loose: dict[str, list[str]] = {}
    for folder, its in folders.items():
        if (one := recording(folder, its)) is None:
            loose[folder] = its
        else:
            one.files += its
            one.devices |= {int(device[1]) for part in folder.split("/") if (device := _DEVICE.fullmatch(part))}
    for folder in devices:
        device = _DEVICE.fullmatch(folder.rpartition("/")[2])
        if device and (one := recording(folder)) is not None:
            one.devices.add(int(device[1]))
            one.raw = True
    return _finished(found, loose)


def _finished(found: dict[str, Recording], loose: dict[str, list[str]]) -> list[Recording]:
    """Recordings with their ranks, each file that says something new, in the order of their paths.

    `loose` are files, by folder, that no name of a folder says to be of a recording: of a renamed one, what states its device and clock.
    """
    for folder, files in loose.items():
        parts = folder.split("/")
        if (at := "/".join(parts[: recording_of(parts)])) in found and at != folder:
            found[at].files += [file for file in files if FACTS.fullmatch(file.rpartition("/")[2])]
    out = sorted(found.values(), key=lambda r: r.path)
    for one in out:
        one.files = sorted(_chosen(one.files))
        ranks = [int(rank[1]) for at in one.files if (rank := _RANK.match(at.rpartition("/")[2]))]
        named = _RANK_NAMED.search(one.name)
        one.rank = ranks[-1] if ranks else int(named[1]) if named else None
    return out


def _chosen(files: list[str]) -> list[str]:
    """The files of a recording without those that say the same once more: of torch_npu's, those of the PROF_ inside."""
    if any("ASCEND_PROFILER_OUTPUT/" in at for at in files):
        files = [at for at in files if "/PROF_" not in "/" + at or use_of(at.rpartition("/")[2]) == "facts"]
    by_folder: dict[str, list[str]] = {}
    for at in files:
        by_folder.setdefault(at.rpartition("/")[0], []).append(at)
    out = []
    for inside in by_folder.values():
        whole = any(use_of(at.rpartition("/")[2]) == "timeline" for at in inside)
        # A timeline has what these have; the marks of iterations are read from where they are whole.
        out += [
            at for at in inside if not (whole and use_of(name := at.rpartition("/")[2]) == "partial" and not name.startswith("step_trace"))
        ]
    return out
