"""Which of the files below a place are one run: the formats gather each folder in turn, and runs of one name are told apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from nbprof.core.files import RunFiles
from nbprof.formats import register
from nbprof.formats.format import Here, Member
from nbprof.sources.folders import Found


def runs(members: Iterable[Member], sidecars: Iterable[Found], root: str, below: Callable[[str], Path | str]) -> list[RunFiles]:
    """The runs that some files make, newest first.

    Parameters
    ----------
    members : iterable of Member
        Files that are profiles, from one place.
    sidecars : iterable of Found
        What nbprof wrote beside files that it recorded.
    root : str
        Name of the place, for a run that lies right in it.
    below : callable
        Gives the path or label of a folder of the place.
    """
    folders: dict[str, list[Member]] = {}
    for member in members:
        folders.setdefault(member.parent, []).append(member)
    beside = {s.parent: s.file for s in sidecars}
    named: list[tuple[str, str, RunFiles]] = []
    for parent, its in folders.items():
        last = parent.rpartition("/")[2] or root
        here = Here(sorted(its, key=lambda member: member.file.name), last, below(parent), _is_run_folder(below(parent)))
        found: list[RunFiles] = []
        for form in register.FORMATS:
            found = form.runs(here, found)
        sidecar = beside.get(parent)
        if len(found) == 1 and sidecar is not None:
            found = [replace(found[0], sidecar=sidecar)]
        named += [(parent, last, run) for run in found]
    return sorted(_distinct(named), key=lambda r: (r.modified, r.name), reverse=True)


def lacks(run: RunFiles, name: str) -> bool:
    """Whether a file that cannot be read is, by its name, one that a run lacks."""
    return register.by_name(run.format).lacks(register.stem(name), [register.stem(file.name) for file in run.files])


def _is_run_folder(folder: Path | str) -> bool:
    text = folder.absolute().as_posix() if isinstance(folder, Path) else folder
    return bool(re.search(r"(^|/)plugins/profile/[^/]+$", text))


def _distinct(named: list[tuple[str, str, RunFiles]]) -> list[RunFiles]:
    """Runs of one name are told apart by the folder they are in, as TensorBoard does: `train/2024_05_01` and `eval/2024_05_01`."""
    seen: dict[str, int] = {}
    for _, _, run in named:
        seen[run.name] = seen.get(run.name, 0) + 1
    out: list[RunFiles] = []
    for parent, last, run in named:
        if seen[run.name] > 1 and parent:
            folder = re.sub(r"(^|/)plugins/profile(?=/)", "", parent).lstrip("/")
            if run.name == last:
                out.append(replace(run, name=folder))
            else:
                out.append(replace(run, name=f"{folder}/{run.name}"))
        else:
            out.append(run)
    return out
