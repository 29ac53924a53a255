"""What a folder of Ascend's profilers holds, told by names alone. Its tables are not read yet; a reader of them starts here."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nbprof.formats.folders import is_ascend
from nbprof.formats.pieces import printable

_MOST_ENTRIES = 20_000
_MOST_TIMELINES = 100
_MAKERS = (
    (re.compile(r".*_ascend_pt"), "Ascend's profiler of PyTorch (torch_npu)"),
    (re.compile(r".*_ascend_ms"), "Ascend's profiler of MindSpore"),
)
_MSPROF = "Ascend's profiler (msprof)"
# <module>_<ids or time>.csv, as op_summary_0_1_1.csv; torch_npu writes kernel_details.csv. A number of its own is a slice or a time.
_MODULE = re.compile(r"(?P<module>[a-z][a-z_]*?)(_slice)?(_\d+)*\.(?P<suffix>csv|json|db)$")
_TIMELINE = re.compile(r"(msprof|trace_view)(_slice)?(_\d+)*\.json$")
_RECORDING = re.compile(r"PROF_\d+.*|.*_ascend_(pt|ms)")


@dataclass(frozen=True)
class Output:
    """What was found.

    Attributes
    ----------
    maker : str
        Who wrote it, for a sentence.
    recordings : tuple of str
        Names of the recordings: the folders `PROF_*` or `*_ascend_pt`.
    files : tuple of str
        Kinds of tables and traces, without their numbers, the most frequent first.
    timelines : tuple of Path
        Traces of all events, each of which opens by itself, in the order of their names, 2 before 10.
    """

    maker: str
    recordings: tuple[str, ...]
    files: tuple[str, ...]
    timelines: tuple[Path, ...]

    def __str__(self) -> str:
        count = len(self.recordings)
        which = ", ".join(printable(name) for name in self.recordings[:2]) + (f" and {count - 2:,} more" if count > 2 else "")
        what = f"{count:,} recordings" if count > 1 else "a recording" if count else "output"
        kinds = ", ".join(printable(name) for name in self.files[:6]) + (f" and {len(self.files) - 6} more" if len(self.files) > 6 else "")
        return f"{what} of {self.maker}{f': {which}' if which else ''}{f', with {kinds}' if kinds else ''}"


def _natural(path: Path) -> list[tuple[int, str]]:
    """For sorting: 2 before 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def output(folder: Path, at: str = "") -> Output:
    """What a folder of Ascend's profiler, or a folder above, holds; `at` is a file below that gave it away by its name."""
    marked = (folder / at).parent if at and not at.endswith("/") else None
    recordings: dict[str, None] = {}
    files: Counter[str] = Counter()
    timelines: list[Path] = []
    maker = ""
    above = [part for part in folder.absolute().parts if _RECORDING.fullmatch(part)]
    left = _MOST_ENTRIES
    queue = [(folder, bool(above) or is_ascend(folder.name) or folder == marked)]
    recordings.update(dict.fromkeys(above[:1]))
    while queue and left > 0:
        here, ours = queue.pop()
        try:
            with os.scandir(here) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        left -= len(found)
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                # torch_npu keeps the PROF_ folder of its recording inside.
                if _RECORDING.fullmatch(entry.name) and not ours:
                    recordings[entry.name] = None
                queue.append((here / entry.name, ours or is_ascend(entry.name) or here / entry.name == marked))
            elif (match := _MODULE.fullmatch(entry.name)) and ours:
                files[f"{match['module']}.{match['suffix']}"] += 1
                if _TIMELINE.fullmatch(entry.name) and len(timelines) < _MOST_TIMELINES:
                    timelines.append(here / entry.name)
    for name in [*recordings, *folder.absolute().parts]:
        maker = maker or next((text for pattern, text in _MAKERS if pattern.fullmatch(name)), "")
    return Output(
        maker or _MSPROF, tuple(recordings), tuple(name for name, _ in files.most_common()), tuple(sorted(timelines, key=_natural))
    )
