"""Detection of profiles among the files of a place, and of the runs that they form.

Names select the files to examine, and their first bytes decide; then each format groups the files
of each folder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles
from nbprof.core.quiet import thread_pool
from nbprof.core.receipt import Note
from nbprof.formats import register
from nbprof.formats.format import Here, Kind, Member
from nbprof.formats.register import stem, telling
from nbprof.sources import notes
from nbprof.sources.budget import Budget
from nbprof.sources.folders import MAYBE, NAMED, NAMELESS, Folder, Found, Listing, Refused
from nbprof.sources.sniff import HEAD, head_of, recognise

CHEAP_LOOKS, DEAR_LOOKS = 2000, 64
"""Files whose first bytes are read in one place: on a disk or in an archive, and over a network."""
_MOST_TRACES = 20_000
"""Traces of a place that are examined at most if there is a budget."""
# Enough to recognize most files.
_SHORT = 1 << 13


def candidates(folder: Folder, listing: Listing) -> list[Member]:
    """The files of a place that are profiles.

    An XSpace file, and an export of it in the same folder, is accepted by its name and examined
    when it is read. Traces are examined now; if each costs a request, only where a folder may
    contain several runs. Files with other names are examined only in folders that have neither, up
    to a limit; the number of the others is a note of the listing.
    """
    named = _named(listing)
    members, traces = named.members, named.traces
    if listing.budget is not None and len(traces) > _MOST_TRACES:
        listing.doubts.append(notes.newest_traces(len(traces), _MOST_TRACES))
        traces = sorted(traces, key=lambda f: f.modified, reverse=True)[:_MOST_TRACES]
    looks = CHEAP_LOOKS if folder.cheap else DEAR_LOOKS
    several = {id(f) for f in _unclear(traces)}
    unclear = traces if folder.cheap else [f for f in traces if id(f) in several]
    if len(unclear) > looks:
        # The newest runs are the most relevant ones.
        unclear.sort(key=lambda f: f.modified, reverse=True)
    looked = _look(folder, unclear[:looks], several, listing.budget)
    members += _single_files(looked.members)
    listing.refused += [Refused(file, note, named=True) for file, note in looked.refused]
    examined = {id(f) for f in unclear[:looks]} - {id(f) for f in looked.left_out}
    for trace in traces:
        if id(trace) in examined:
            continue
        if folder.cheap and _is_empty(trace):
            # Known without reading the head.
            listing.refused.append(Refused(trace, notes.no_profile(trace.at, "empty"), named=True))
        else:
            members.append(_member(trace, Kind(named.format_of[id(trace)], sure=False)))
    left = looks - min(len(unclear), looks)
    other_files = _other_names(listing, named.folders)
    by_content = _look(folder, other_files[:left], set(), listing.budget)
    members += _single_files(by_content.members)
    listing.refused += [Refused(file, note, named=False) for file, note in by_content.refused]
    _note_unexamined(listing, max(len(other_files) - left, 0) + len(by_content.left_out))
    return members


class _Named(NamedTuple):
    """Files whose names tell their format: profiles, traces to examine with their formats by id,
    and the folders of all these files.
    """

    members: list[Member]
    traces: list[Found]
    format_of: dict[int, str]
    folders: set[str]


def _named(listing: Listing) -> _Named:
    named = _Named([], [], {}, set())
    hosts: dict[str, set[str]] = {}
    single_files = []
    for file in listing.files:
        if file.promise != NAMED:
            continue
        form = telling(file.file.name)
        if form is None:
            continue
        named.folders.add(file.parent)
        if form.by_folder:
            host = _member(file, Kind(form.name, sure=False))
            named.members.append(host)
            hosts.setdefault(host.parent, set()).add(host.stem)
        else:
            single_files.append((file, form))
    for file, form in single_files:
        name = file.file.name
        if file.parent in hosts and form.is_copy(name, stem(name), hosts[file.parent]):
            named.members.append(_member(file, Kind(form.name, sure=False, exporter=True)))
        else:
            named.traces.append(file)
            named.format_of[id(file)] = form.name
    return named


def _other_names(listing: Listing, folders: set[str]) -> list[Found]:
    """Files with other names outside of some folders, the most likely profiles first."""
    other_files = [file for file in listing.files if file.promise in (MAYBE, NAMELESS)]
    candidates = [file for file in other_files if file.parent not in folders]
    return sorted(candidates, key=lambda file: (file.promise, file.at))


def _single_files(members: list[Member]) -> list[Member]:
    """Files that certainly have a format whose recordings are files, not folders."""
    formats = {form.name for form in register.FORMATS if form.recordings is None}
    return [each for each in members if each.kind.format in formats and each.kind.sure]


def _note_unexamined(listing: Listing, count: int) -> None:
    if listing.budget is not None and listing.budget.reason:
        listing.doubts.append(notes.not_examined(listing.budget.reason))
    if count:
        listing.notes.append(("", notes.unknown_names(count)))


def _member(file: Found, kind: Kind) -> Member:
    return Member(file.file, kind, stem(file.file.name), file.parent)


def _unclear(traces: list[Found]) -> list[Found]:
    stems: dict[str, set[str]] = {}
    for trace in traces:
        stems.setdefault(trace.parent, set()).add(stem(trace.file.name).rpartition(".")[0])
    return [f for f in traces if len(stems[f.parent]) > 1]


class _Looked(NamedTuple):
    """Files that are profiles by their heads, other files with a note, and files that were not
    examined because the budget was exhausted.
    """

    members: list[Member]
    refused: list[tuple[Found, Note]]
    left_out: list[Found]


def _look(folder: Folder, files: list[Found], several: set[int], budget: Budget | None) -> _Looked:
    """Examine the heads of files; those in `several` completely, because the rank may come late."""

    def examine(file: Found) -> Member | Note | None:
        if budget is not None and budget.over:
            return None
        try:
            head = b"" if id(file) in several else file.file.head(_SHORT)
            kind = recognise(head, file.file.name, complete=len(head) < _SHORT)
            if not (kind.format and kind.sure) and (len(head) == _SHORT or not head):
                head = head_of(file.file)
                kind = recognise(head, file.file.name, complete=len(head) < HEAD)
            if budget is not None:
                budget.read(len(head))
        except ReadError as error:
            return notes.could_not_examine(file.at, error.reason)
        if not kind.format:
            return notes.no_profile(file.at, kind.what)
        return _member(file, kind)

    if folder.cheap:
        done = [examine(file) for file in files]
    else:
        with thread_pool(16) as pool:
            done = list(pool.map(examine, files))
    looked = _Looked([], [], [])
    for file, result in zip(files, done, strict=True):
        if isinstance(result, Member):
            looked.members.append(result)
        elif result is None:
            looked.left_out.append(file)
        else:
            looked.refused.append((file, result))
    return looked


def _is_empty(file: Found) -> bool:
    try:
        return file.size == 0
    except ReadError:
        # It was removed; reading it reports the error.
        return False


def runs(
    members: Iterable[Member],
    sidecars: Iterable[Found],
    root: str,
    below: Callable[[str], Path | str],
) -> list[RunFiles]:
    """The runs that some files form, newest first.

    Parameters
    ----------
    members : iterable of Member
        Profiles from one place.
    sidecars : iterable of Found
        Files that nbprof wrote next to its recordings.
    root : str
        Name of the place, for a run directly in it.
    below : callable
        Returns the path or label of a folder of the place.
    """
    folders: dict[str, list[Member]] = {}
    for member in members:
        folders.setdefault(member.parent, []).append(member)
    sidecar_of = {s.parent: s.file for s in sidecars}
    named = _across(folders, root, below)
    for parent, its in folders.items():
        last = parent.rpartition("/")[2] or root
        here = Here(
            sorted(its, key=lambda member: member.file.name),
            last,
            below(parent),
            _is_run_folder(below(parent)),
        )
        folder_runs: list[RunFiles] = []
        for form in register.FORMATS:
            folder_runs = form.runs(here, folder_runs)
        sidecar = sidecar_of.get(parent)
        if len(folder_runs) == 1 and sidecar is not None:
            folder_runs = [replace(folder_runs[0], sidecar=sidecar)]
        named += [(parent, last, run) for run in folder_runs]
    return sorted(_distinct(named), key=lambda r: (r.modified, r.name), reverse=True)


def _across(
    folders: dict[str, list[Member]], root: str, below: Callable[[str], Path | str]
) -> list[tuple[str, str, RunFiles]]:
    """Runs with files in several folders, which are removed from `folders`; each with the folder
    around them and its name.
    """
    named: list[tuple[str, str, RunFiles]] = []
    for form in register.FORMATS:
        for group in form.across(folders):
            last = group.outer.rpartition("/")[2] or root
            here = Here(
                sorted(group.members, key=lambda member: member.stem), last, below(group.outer)
            )
            folder_of = {id(member.file): member.parent for member in group.members}
            group_runs = form.runs(here, [])
            if all(_folder_count(run, folder_of) > 1 for run in group_runs):
                named += [(group.outer, last, run) for run in group_runs]
                for folder in group.folders:
                    del folders[folder]
    return named


def _folder_count(run: RunFiles, folder_of: dict[int, str]) -> int:
    return len({folder_of[id(file)] for file in run.files})


def lacks(run: RunFiles, name: str) -> bool:
    """True if a file that cannot be read is, by its name, missing from a run."""
    return register.by_name(run.format).lacks(stem(name), [stem(file.name) for file in run.files])


def _is_run_folder(folder: Path | str) -> bool:
    if isinstance(folder, Path):
        folder = folder.absolute().as_posix()
    return bool(re.search(r"(^|/)plugins/profile/[^/]+$", folder))


def _distinct(named: list[tuple[str, str, RunFiles]]) -> list[RunFiles]:
    """Runs with unique names: equal ones get their folder in front, as in TensorBoard:
    `train/2024_05_01` and `eval/2024_05_01`.
    """
    count_of = Counter(run.name for _, _, run in named)
    distinct: list[RunFiles] = []
    for parent, last, run in named:
        if count_of[run.name] > 1 and parent:
            name = re.sub(r"(^|/)plugins/profile(?=/)", "", parent).lstrip("/")
            if run.name != last:
                name += f"/{run.name}"
            run = replace(run, name=name)
        distinct.append(run)
    return distinct
