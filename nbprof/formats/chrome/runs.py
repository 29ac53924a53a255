"""Which traces in a folder are ranks of one recording, and not successive recordings.

- `torch.profiler.tensorboard_trace_handler` writes `<worker>.<time>.pt.trace.json[.gz]` at each
  cycle of its schedule. Two files of one worker, or of one rank, are two runs. Files of several
  workers are ranks of one run if they say so (`distributedInfo` with the same world size, or names
  that differ by the number of a rank) and were written within half an hour, and also without saying
  so within a minute.
- Times are those in the names of files, else those that the traces state, else those of the last
  change of the files.
- If every rank wrote the same number of files, the first of each are one run, the second of each
  the next, and so on.
- Folders that are called as ranks (`rank0`, `rank1`) hold the ranks of one run by the same rules.
- In `plugins/profile/<run>/`, traces that state no time in their names are the hosts of that run.
- Any other trace is a run of its own.
- JSON that TensorFlow and JAX export beside an XSpace of the same host is the same recording, cut
  at a limit of events; it is left aside, and a line of the receipt says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nbprof.core.confinement import scan
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile, Missing, RunFiles, SourceFile, copies_of
from nbprof.core.packed import Unpacked
from nbprof.core.receipt import Note, info, warning
from nbprof.core.units import join_some
from nbprof.formats import hosts
from nbprof.formats.format import Beside, Here, Member

NAME = "chrome"
_TIMED = re.compile(r"(?P<worker>.+?)\.(?P<time>\d{13}|\d{16}|\d{19})$")
_RANK = re.compile(
    r"(?<![a-z])(rank|worker|gpu|proc|process|node|host|trainer)([-_.]?)(\d{1,4})(?!\d)",
    re.IGNORECASE,
)
# Engines that serve models name the place of a process along each axis of parallelism:
# `dp0_pp0_tp1_dcp0_ep1_rank1`, `17123-TP-1-DP-0`.
_AXIS = re.compile(
    r"(?<![a-z])(dp|ddp|fsdp|tp|pp|cp|dcp|pcp|ep|etp|sp|vp|mp)([-_.]?)(\d{1,4})(?![a-z\d])",
    re.IGNORECASE,
)
_TOGETHER_S, _NEAR_S = 1800.0, 60.0
OF_TORCH = ".pt.trace.json"
"""In the names of traces of PyTorch, which no other profiler records at the same time."""
_BESIDE = "perfetto_trace"
"""JAX writes its trace twice: `<host>.trace.json.gz`, and once more under this name."""
# Ranks write their files of one cycle about together, so only the last runs can still lack one.
_OPEN = 16
_HEAD = 1 << 13
"""Two ranks differ in the first bytes of their traces, which state the rank."""


@dataclass
class _Rank:
    """A trace of one process, with what tells ranks and cycles apart."""

    member: Member
    worker: str
    job: str
    """The worker's name without the number of its rank."""
    rank: int | str | None
    world: int | None
    stamped: bool
    """Whether the name states the time."""
    time: float
    dated: bool
    """Whether `time` is that of the recording, by its name or its clock; else it is that of the
    last change of the file.
    """
    weak: bool
    """Whether `rank` is only a place along axes of parallelism, by which runs of different settings
    are called, too.
    """

    def joins(self, run: _Run) -> bool:
        """Whether this one was recorded together with those of a run."""
        if self.worker in run.workers or (self.rank is not None and self.rank in run.ranks):
            return False
        first = run.members[0]
        near = abs(self.time - first.time)
        if self.world and first.world:
            return self.world == first.world and near <= _TOGETHER_S
        if self.rank is not None and first.rank is not None and self.job == first.job:
            dated = self.dated and first.dated
            if self.weak:
                return dated and near <= _NEAR_S
            return near <= _TOGETHER_S or not dated
        return self.stamped and first.stamped and near <= _NEAR_S


@dataclass
class _Run:
    """Traces that were recorded together, with their workers and ranks: a folder may hold very
    many.
    """

    members: list[_Rank]
    workers: set[str] = field(init=False)
    ranks: set[int | str | None] = field(init=False)

    def __post_init__(self) -> None:
        self.workers = {member.worker for member in self.members}
        self.ranks = {member.rank for member in self.members}

    def add(self, rank: _Rank) -> None:
        """Takes in one more."""
        self.members.append(rank)
        self.workers.add(rank.worker)
        self.ranks.add(rank.rank)


def is_copy(name: str, stem: str, hosts: set[str]) -> bool:
    """Whether a trace is the same recording as one of the hosts beside it."""
    return (stem in hosts or stem == _BESIDE) and OF_TORCH not in name


def lacks(stem: str, run: Sequence[str]) -> bool:
    """Whether a file that cannot be read is, by its name, a rank of a run that has no other file of
    that rank.
    """
    job, number, time = _parts(stem)
    if not number:
        return False
    parts = [_parts(member) for member in run]
    alike = [part for part in parts if part[0] == job and (part[2] is None) == (time is None)]
    conflicts = [
        time is None or part[2] is None or abs(part[2] - time) > _TOGETHER_S for part in alike
    ]
    return (
        bool(alike)
        and number not in {part[1] for part in parts}
        and (time is None or not all(conflicts))
    )


def number_of(stem: str) -> int | None:
    """The number of its rank or host in the name of a file; None where there is none, or not one
    alone.
    """
    number = _parts(stem)[1]
    return int(number) if number.isdigit() else None


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """The runs of a folder: those that are there, of which some traces may be a copy, and those of
    the other traces.
    """
    members = here.of(NAME)
    if not members:
        return before
    taken_files = {id(file) for run in before for file in run.files}
    stems = {member.stem for member in here.members if id(member.file) in taken_files}
    traces = [member for member in members if member.stem != _BESIDE]
    copies = [
        member
        for member in members
        if (before and (member.kind.exporter or is_copy(member.file.name, member.stem, stems)))
        or (member.stem == _BESIDE and (before or traces))
    ]
    left_out = {id(copy) for copy in copies}
    notes = _notes(copies)
    result = list(before)
    if result:
        result[0] = replace(result[0], notes=result[0].notes + notes)
        notes = ()
    ranks, doubles = _without_doubles(
        [_rank(member) for member in members if id(member) not in left_out]
    )
    groups = _together(ranks, one_run=here.of_one_run)
    by_rank = _by_rank(groups)
    for index, group in enumerate(groups):
        files = [r.member for r in group]
        copied = [
            (double, original)
            for double, original in doubles
            if any(member is original for member in group)
        ]
        alone = len(groups) == 1 and not before and (here.of_one_run or len(group) > 1)
        # What the traces state of their ranks is the dialect's to judge.
        lacking: tuple[Note, ...] = ()
        if not any(r.world for r in group):
            lacking = hosts.about_missing(r.worker for r in group)
        result.append(
            RunFiles(
                here.name if alone else files[0].stem,
                here.folder,
                tuple(file.file for file in files),
                max(r.time for r in group),
                NAME,
                (
                    *notes,
                    *_choice(group),
                    *_again(index, group, by_rank),
                    *lacking,
                    *(_copied(double, original) for double, original in copied),
                ),
                dated=all(r.dated for r in group),
                copies=tuple(
                    Missing(
                        double.member.file.name,
                        f"It is a copy of {original.member.file.name}, byte for byte.",
                    )
                    for double, original in copied
                ),
            )
        )
    return result


def _without_doubles(ranks: list[_Rank]) -> tuple[list[_Rank], list[tuple[_Rank, _Rank]]]:
    """The traces without those that have the bytes of another, but by their names are other ranks;
    and these, each with that other.

    Otherwise they would be a second run of that rank, and take ranks behind them away from the
    first.
    """
    stating: dict[int, list[_Rank]] = {}
    for trace in ranks:
        if isinstance(trace.member.kind.rank, int) and number_of(trace.worker) is not None:
            stating.setdefault(trace.member.kind.rank, []).append(trace)
    doubles: list[tuple[_Rank, _Rank]] = []
    for rank, stated_ranks in stating.items():
        if len({trace.worker for trace in stated_ranks}) < 2:
            continue
        # The name of the original has the number that the trace states.
        stated_ranks.sort(key=lambda trace: number_of(trace.worker) != rank)
        by_file = {id(trace.member.file): trace for trace in stated_ranks}
        try:
            copies = copies_of([trace.member.file for trace in stated_ranks], _HEAD)
        except ReadError:
            # Whoever reads the run says so.
            continue
        for key, original in copies.items():
            double, original_rank = by_file[key], by_file[id(original)]
            if double.job == original_rank.job and number_of(double.worker) != number_of(
                original_rank.worker
            ):
                doubles.append((double, original_rank))
    left_out = {id(double) for double, _ in doubles}
    return [rank for rank in ranks if id(rank) not in left_out], doubles


def _copied(double: _Rank, original: _Rank) -> Note:
    label, original_label = double.member.file.label, original.member.file.label
    return warning(
        "copied_file",
        f"{label} is a copy of {original_label}, byte for byte; it was read once. Was one host's"
        " file copied over another's?",
    )


class _Placed(NamedTuple):
    """A trace of a folder, its place among all of them, and the number of its group."""

    place: int
    group: int
    trace: _Rank


def _by_rank(groups: list[list[_Rank]]) -> dict[int | str, list[_Placed]]:
    """The traces of each rank."""
    result: dict[int | str, list[_Placed]] = {}
    position = 0
    for number, group in enumerate(groups):
        for member in group:
            if member.rank is not None:
                result.setdefault(member.rank, []).append(_Placed(position, number, member))
            position += 1
    return result


def _again(
    number: int, group: list[_Rank], by_rank: dict[int | str, list[_Placed]]
) -> tuple[Note, ...]:
    """Files beside a run that were recorded about with it and have the number of one of its ranks,
    so that they are runs of their own.
    """
    hosts: dict[int, str] = {}
    for member in group:
        for other in by_rank[member.rank] if member.rank is not None else ():
            near = abs(member.time - other.trace.time) <= _TOGETHER_S
            if other.group != number and member.worker != other.trace.worker and near:
                hosts[other.place] = other.trace.member.file.name
    same = [hosts[position] for position in sorted(hosts)]
    if not same:
        return ()
    if len(same) == 1:
        sentence = "has a rank number of this run, so it is"
    else:
        sentence = "have rank numbers of this run, so they are"
    text = (
        f"{join_some(same, 4)} next to it {sentence} not part of it: nbprof.runs lists the runs"
        " of a folder."
    )
    return (info("repeated_ranks", text),)


def _notes(copies: list[Member]) -> tuple[Note, ...]:
    if not copies:
        return ()
    names = join_some([copy.file.name for copy in copies], 4)
    text = (
        f"{names} next to it is the same recording as JSON, whose exporter truncates at an event"
        " limit; it was not read."
    )
    return (info("same_recording", text),)


def _split(stem: str) -> tuple[str, float | None]:
    """The worker of a file and the time, s, that its name states."""
    timed = _TIMED.fullmatch(stem)
    if not timed:
        return stem, None
    digits = timed["time"]
    return timed["worker"], int(digits) / 10 ** (len(digits) - 10)


def _parts(stem: str) -> tuple[str, str, float | None]:
    """The name of a file's worker without the number of its rank, that number (empty where it has
    none), and the time it states.

    Where a name has only places along axes of parallelism, these are the number, with dots between
    them and one at the end.
    """
    worker, time = _split(stem)
    ranks, axes = ([match[3] for match in pattern.finditer(worker)] for pattern in (_RANK, _AXIS))
    number = ".".join(ranks) if ranks else "".join(f"{axis}." for axis in axes)
    return _AXIS.sub(r"\1\2#", _RANK.sub(r"\1\2#", worker)), number, time


def _rank(member: Member) -> _Rank:
    worker, time = _split(member.stem)
    job, number, _ = _parts(member.stem)
    rank: int | str | None = member.kind.rank
    if rank is None and number:
        rank = number
    clock = member.kind.clock if time is None else time
    return _Rank(
        member=member,
        worker=worker,
        job=job,
        rank=rank,
        world=member.kind.world_size,
        stamped=time is not None,
        time=member.file.modified if clock is None else clock,
        dated=clock is not None,
        weak=isinstance(rank, str) and rank.endswith("."),
    )


def _together(ranks: list[_Rank], *, one_run: bool) -> list[list[_Rank]]:
    """The traces of one folder, run by run."""
    if one_run and ranks and not any(r.stamped for r in ranks) and not _recorded_separately(ranks):
        return [ranks]
    ranks = sorted(ranks, key=lambda r: (r.time, r.worker))
    workers: dict[str, list[_Rank]] = {}
    for rank in ranks:
        workers.setdefault(rank.worker, []).append(rank)
    if len(workers) == 1:
        return [[rank] for rank in ranks]
    cycles = [list(cycle) for cycle in zip(*workers.values(), strict=False)]
    even = len({len(files) for files in workers.values()}) == 1
    if even and all(map(_is_one_run, cycles)):
        return [sorted(cycle, key=_order) for cycle in cycles]
    result: list[_Run] = []
    for rank in ranks:
        run = next((run for run in result[: -_OPEN - 1 : -1] if rank.joins(run)), None)
        if run is None:
            result.append(_Run([rank]))
        else:
            run.add(rank)
    return [sorted(run.members, key=_order) for run in result]


def _is_one_run(cycle: list[_Rank]) -> bool:
    """Whether each trace joins those before it."""
    run = _Run(cycle[:1])
    for rank in cycle[1:]:
        if not rank.joins(run):
            return False
        run.add(rank)
    return True


def _recorded_separately(ranks: list[_Rank]) -> bool:
    """Whether traces were recorded at such different times, by their own clocks, that they are not
    of one run.
    """
    times = [rank.time for rank in ranks if rank.dated]
    return len(times) == len(ranks) and max(times) - min(times) > _TOGETHER_S


def _order(rank: _Rank) -> tuple[list[int], str]:
    if isinstance(rank.rank, int):
        places = [rank.rank]
    else:
        places = [int(axis) for axis in str(rank.rank or "").split(".") if axis]
    return places, rank.worker


def across(folders: Mapping[str, list[Member]]) -> list[Beside]:
    """Folders beside each other that are called as ranks and hold traces alone."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for folder, members in folders.items():
        outer, _, name = folder.rpartition("/")
        job, number, _ = _parts(name)
        if (
            number
            and not number.endswith(".")
            and all(member.kind.format == NAME for member in members)
        ):
            groups.setdefault((outer, job), {})[folder] = number
    result = []
    for (outer, _), numbers in groups.items():
        if len(numbers) < 2 or len(set(numbers.values())) < len(numbers) or outer in folders:
            continue
        members = [_in_rank(member, folder) for folder in numbers for member in folders[folder]]
        result.append(Beside(outer, list(numbers), members))
    return result


def _in_rank(member: Member, folder: str) -> Member:
    """A trace of a folder that is called as a rank, as if its name were that of the folder."""
    name, (worker, _) = folder.rpartition("/")[2], _split(member.stem)
    time = member.stem[len(worker) :]
    # A node has several ranks, each with its number in the name of its file.
    return replace(member, stem=f"{name}_{member.stem}" if _parts(member.stem)[1] else name + time)


def _choice(group: list[_Rank]) -> tuple[Note, ...]:
    """Why several traces are read as ranks of one run, where they do not state it themselves."""
    if len(group) < 2 or all(member.world for member in group):
        return ()
    files = join_some([_where(member) for member in group], 3)
    times = [member.time for member in group]
    spread = max(times) - min(times)
    named = all(member.rank is not None for member in group)
    if named:
        why = "by the numbers of ranks in their names"
    else:
        why = "because different workers wrote them"
    if all(member.dated for member in group):
        if spread >= 1:
            when = f" and times that differ by {spread:.0f} s"
        else:
            when = " and times that are the same"
    elif spread > _TOGETHER_S:
        when = (
            f", though the files were last changed {_length(spread)} apart and do not have a"
            " recording time"
        )
    else:
        when = ", because they do not have a recording time"
    text = (
        f"{files} are read as the ranks of one run {why}{when}. To open a single file, pass its"
        " path."
    )
    return (info("ranks_of_one_run", text),)


def _where(rank: _Rank) -> str:
    """The name of a file, with the folder where that is called as the rank."""
    name, folder = rank.member.file.name, rank.member.parent.rpartition("/")[2]
    if folder and rank.member.stem.startswith(folder):
        return f"{folder}/{name}"
    return name


def _length(seconds: float) -> str:
    """`3 days`, `5 hours`."""
    for size, unit in ((86400, "day"), (3600, "hour")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"
    return f"{seconds / 60:.0f} minutes"


def lying_beside(files: RunFiles, name: re.Pattern[str]) -> list[SourceFile]:
    """The files of this name in the folders of a run of Chrome traces; none of a run of another
    format.
    """
    if files.format != NAME:
        return []
    result: list[SourceFile] = []
    for first in in_folders(files):
        try:
            with scan(first.path.parent, first.confinement) as entries:
                result += [
                    first.sibling(file)
                    for file in sorted(
                        e.name for e in entries if name.match(e.name) and e.is_file()
                    )
                ]
        except OSError:
            continue
    return result


def in_folders(files: RunFiles) -> list[LocalFile]:
    """A file of each folder of this machine that holds files of a run, by folder."""
    locals_ = [file.packed if isinstance(file, Unpacked) else file for file in files.files]
    by_folder = {file.path.parent: file for file in locals_ if isinstance(file, LocalFile)}
    return [by_folder[folder] for folder in sorted(by_folder)]
