"""Recordings of Ascend's profilers below a folder: which there are, which of them are one run, and which still have to be exported.

A recording is a folder `PROF_*` of msprof, or `*_ascend_pt` (`*_ascend_ms`) of torch_npu and MindSpore, which may hold a `PROF_*` of its
own; else the folder around `mindstudio_profiler_output`, `ASCEND_PROFILER_OUTPUT`, `summary` or `timeline`, or the one that the tables lie
in. Each is of one process. Recordings of different ranks or devices that began within a minute are one run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nbprof.errors import RawError, ReadError
from nbprof.formats.pieces import LocalFile, Piece, RunFiles, printable

_MOST_ENTRIES = 200_000
_MAKERS = (
    (re.compile(r".*_ascend_pt"), "Ascend's profiler of PyTorch (torch_npu)"),
    (re.compile(r".*_ascend_ms"), "Ascend's profiler of MindSpore"),
)
MSPROF = "Ascend's profiler (msprof)"
RECORDING = re.compile(r"PROF_\d+.*|.*_ascend_(pt|ms)")
_OUTPUT = re.compile(r"ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output|analyze|summary|timeline|device_\d+|host")
FOLDER = re.compile(r"PROF_\d+.*|ASCEND_PROFILER_OUTPUT|mindstudio_profiler_(output|log)|.*_ascend_(pt|ms)")
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
_TOGETHER_S = 60.0
SIDECAR = "nbprof.json"


def is_ascend(name: str) -> bool:
    """Whether a folder of this name is output of Ascend's profiler."""
    return FOLDER.fullmatch(name) is not None


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
        if RECORDING.fullmatch(part):
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
    above = folder.absolute().parts
    inside = any(is_ascend(part) for part in above)
    queue = [("", inside)]
    left = _MOST_ENTRIES
    while queue and left > 0:
        at, ours = queue.pop()
        try:
            with os.scandir(folder / at) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        left -= len(here)
        ours = ours or is_ascend(at.rpartition("/")[2])
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
                if entry.name not in _INNER and not entry.name.startswith(".") and (ours or not near or is_ascend(entry.name)):
                    queue.append((below, ours))
            elif (ours or bare) and use_of(entry.name):
                one.files.append(below)
                if rank := _RANK.match(entry.name):
                    one.rank = int(rank[1])
        if (ours or bare) and (one.files or one.devices):
            found[key] = one
    for one in found.values():
        named = _RANK_NAMED.search(one.name)
        if one.rank is None and named:
            one.rank = int(named[1])
        one.files = sorted(_chosen(one.files))
    return sorted(found.values(), key=lambda r: r.path)


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


def runs(folder: Path, *, near: bool = False) -> tuple[list[RunFiles], list[Recording]]:
    """The runs of Ascend's profilers below a folder, newest first, and the recordings that msprof has not exported.

    With `near` only those that lie right in it.
    """
    found = recordings(folder, near=near)
    ready = [one for one in found if one.shown]
    raw = [one for one in found if not one.shown and one.raw]
    groups: list[list[Recording]] = []
    for one in sorted(ready, key=lambda r: (r.time or 0.0, r.path)):
        home = next((group for group in reversed(groups) if _joins(one, group)), None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    out = [_run(folder, group, raw) for group in groups]
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


def _run(folder: Path, group: list[Recording], raw: list[Recording]) -> RunFiles:
    group = sorted(group, key=lambda r: (r.rank if r.rank is not None else min(r.devices, default=0), r.path))
    pieces: tuple[Piece, ...] = tuple(LocalFile(folder / at) for one in group for at in one.files)
    parent = folder / group[0].path if len(group) == 1 else (folder / group[0].path).parent
    name = (
        printable(group[0].name or _recording_name(folder)) if len(group) == 1 else f"{printable(group[0].name)} and {len(group) - 1} more"
    )
    # What nbprof recorded is called by the folder that it made for the recording.
    home = next((at for at in (parent, parent.absolute().parent) if (at / SIDECAR).is_file()), None)
    if home is not None:
        parent, name = home, printable(home.absolute().name)
    warnings = tuple(
        f"{printable(one.name)} beside it is not exported yet, and not in the numbers: {how_to_export(str(folder / one.path))}"
        for one in raw
        if one.path.rpartition("/")[0] == group[0].path.rpartition("/")[0]
    )
    sidecar = LocalFile(home / SIDECAR) if home is not None else None
    return RunFiles(name, parent, pieces, max((p.modified for p in pieces), default=0.0), "msprof", warnings=warnings, sidecar=sidecar)


def _recording_name(folder: Path) -> str:
    """What a folder inside a recording is called by: the recording, where its name has one."""
    parts = folder.absolute().parts
    at = recording_of(parts)
    return parts[at - 1] if at else folder.name


def how_to_export(path: str) -> str:
    """What turns raw data into files that can be read."""
    return f"run  msprof --export=on --output={printable(path)}  where CANN is installed, then load it again."


def unread(folder: Path, raw: list[Recording]) -> ReadError:
    """The error for output of Ascend's profilers in which there is nothing that can be read: how to get it."""
    label = printable(str(folder))
    if not raw:
        return ReadError(f"output of {MSPROF} is here, but neither a table (CSV) nor a timeline (JSON) that nbprof reads.", path=label)
    names = ", ".join(printable(one.name or folder.name) for one in raw[:3]) + (f" and {len(raw) - 3:,} more" if len(raw) > 3 else "")
    what = "a raw recording" if len(raw) == 1 else f"{len(raw)} raw recordings"
    paths = [str(folder / one.path) if one.path else str(folder) for one in raw]
    text = f"this is {what} of {MSPROF}, {names}, not exported yet: {how_to_export(paths[0])}"
    return RawError(text, path=label, what=MSPROF, recordings=paths)
