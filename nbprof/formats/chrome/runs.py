"""Which traces in a folder are ranks of one recording, and not successive recordings.

- `torch.profiler.tensorboard_trace_handler` writes `<worker>.<time>.pt.trace.json[.gz]` at each cycle of its schedule. Two files of one
  worker, or of one rank, are two runs. Files of several workers are ranks of one run if they say so (`distributedInfo` with the same world
  size, or names that differ by the number of a rank) and were written within half an hour, and also without saying so within a minute.
- If every rank wrote the same number of files, the first of each are one run, the second of each the next, and so on.
- In `plugins/profile/<run>/`, traces that state no time in their names are the hosts of that run.
- Any other trace is a run of its own.
- JSON that TensorFlow and JAX export beside an XSpace of the same host is the same recording, cut at a limit of events; it is left aside,
  and a line of the receipt says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile, Missing, RunFiles, SourceFile, copies_of, join_some
from nbprof.core.packed import Unpacked
from nbprof.formats import hosts
from nbprof.formats.format import Here, Member

NAME = "chrome"
_TIMED = re.compile(r"(?P<worker>.+?)\.(?P<time>\d{13}|\d{16}|\d{19})$")
_RANK = re.compile(r"(?<![a-z])(rank|worker|gpu|proc|process|node|host|trainer)([-_.]?)(\d{1,4})(?!\d)", re.IGNORECASE)
_TOGETHER_S, _NEAR_S = 1800.0, 60.0
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
    time: float

    def joins(self, run: list[_Rank]) -> bool:
        """Whether this one was recorded together with those of a run."""
        if any(self.worker == other.worker or (self.rank is not None and self.rank == other.rank) for other in run):
            return False
        near = abs(self.time - run[0].time)
        first = run[0]
        if self.world and first.world:
            return self.world == first.world and near <= _TOGETHER_S
        if self.rank is not None and first.rank is not None and self.job == first.job:
            return near <= _TOGETHER_S or not (self.stamped and first.stamped)
        return self.stamped and first.stamped and near <= _NEAR_S


def is_copy(stem: str, hosts: set[str]) -> bool:
    """Whether a trace is the same recording as one of the hosts beside it."""
    return stem in hosts or stem == _BESIDE


def lacks(stem: str, run: Sequence[str]) -> bool:
    """Whether a file that cannot be read is, by its name, a rank of a run that has no other file of that rank."""
    job, number, time = _parts(stem)
    if not number:
        return False
    parts = [_parts(one) for one in run]
    alike = [one for one in parts if one[0] == job and (one[2] is None) == (time is None)]
    apart = [time is None or one[2] is None or abs(one[2] - time) > _TOGETHER_S for one in alike]
    return bool(alike) and number not in {one[1] for one in parts} and (time is None or not all(apart))


def number_of(stem: str) -> int | None:
    """The number of its rank or host in the name of a file; None where there is none, or not one alone."""
    number = _parts(stem)[1]
    return int(number) if number.isdigit() else None


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """The runs of a folder: those that are there, of which some traces may be a copy, and those of the other traces."""
    members = here.of(NAME)
    if not members:
        return before
    known = {id(file) for run in before for file in run.files}
    stems = {one.stem for one in here.members if id(one.file) in known}
    others = [one for one in members if one.stem != _BESIDE]
    copies = [
        one for one in members if (before and (one.kind.exporter or one.stem in stems)) or (one.stem == _BESIDE and (before or others))
    ]
    left_out = {id(one) for one in copies}
    notes = _notes(copies)
    out = list(before)
    if out:
        out[0] = replace(out[0], notes=out[0].notes + notes)
        notes = ()
    ranks, doubles = _without_doubles([_rank(one) for one in members if id(one) not in left_out])
    groups = _together(ranks, one_run=here.of_one_run)
    for at, group in enumerate(groups):
        files = [r.member for r in group]
        copied = [(double, own) for double, own in doubles if any(one is own for one in group)]
        alone = len(groups) == 1 and not before and (here.of_one_run or len(group) > 1)
        # What the traces state of their ranks is the dialect's to judge.
        lacking = () if any(r.world for r in group) else hosts.warning(r.worker for r in group)
        out.append(
            RunFiles(
                here.name if alone else files[0].stem,
                here.folder,
                tuple(one.file for one in files),
                max(r.time for r in group),
                NAME,
                notes + _again(group, [one for i, other in enumerate(groups) if i != at for one in other]),
                lacking + tuple(_copied(double, own) for double, own in copied),
                copies=tuple(
                    Missing(double.member.file.name, f"It is a copy of {own.member.file.name}, byte for byte.") for double, own in copied
                ),
            )
        )
    return out


def _without_doubles(ranks: list[_Rank]) -> tuple[list[_Rank], list[tuple[_Rank, _Rank]]]:
    """The traces without those that have the bytes of another, but by their names are other ranks; and these, each with that other.

    Otherwise they would be a second run of that rank, and take ranks behind them away from the first.
    """
    stating: dict[int, list[_Rank]] = {}
    for one in ranks:
        if isinstance(one.member.kind.rank, int) and number_of(one.worker) is not None:
            stating.setdefault(one.member.kind.rank, []).append(one)
    doubles: list[tuple[_Rank, _Rank]] = []
    for rank, mine in stating.items():
        if len({one.worker for one in mine}) < 2:
            continue
        # The name of the original has the number that the trace states.
        mine.sort(key=lambda one: number_of(one.worker) != rank)
        by_file = {id(one.member.file): one for one in mine}
        try:
            copies = copies_of([one.member.file for one in mine], _HEAD)
        except ReadError:
            # Whoever reads the run says so.
            continue
        for key, original in copies.items():
            double, own = by_file[key], by_file[id(original)]
            if double.job == own.job and number_of(double.worker) != number_of(own.worker):
                doubles.append((double, own))
    left_out = {id(double) for double, _ in doubles}
    return [one for one in ranks if id(one) not in left_out], doubles


def _copied(double: _Rank, own: _Rank) -> str:
    label, of = double.member.file.label, own.member.file.label
    return f"{label} is a copy of {of}, byte for byte; it was read once. Was one host's file copied over another's?"


def _again(group: list[_Rank], others: list[_Rank]) -> tuple[str, ...]:
    """Files beside a run that were recorded about with it and have the number of one of its ranks, so that they are runs of their own."""
    same = [
        other.member.file.name
        for other in others
        if any(
            one.worker != other.worker and one.rank is not None and one.rank == other.rank and abs(one.time - other.time) <= _TOGETHER_S
            for one in group
        )
    ]
    if not same:
        return ()
    what = "has a rank number of this run, so it is" if len(same) == 1 else "have rank numbers of this run, so they are"
    return (f"{join_some(same, 4)} next to it {what} not part of it: nbprof.runs lists the runs of a folder.",)


def _notes(copies: list[Member]) -> tuple[str, ...]:
    if not copies:
        return ()
    names = join_some([one.file.name for one in copies], 4)
    return (f"{names} next to it is the same recording as JSON, whose exporter stops at a limit of events; it was not read.",)


def _split(stem: str) -> tuple[str, float | None]:
    """The worker of a file and the time, s, that its name states."""
    timed = _TIMED.fullmatch(stem)
    if not timed:
        return stem, None
    digits = timed["time"]
    return timed["worker"], int(digits) / 10 ** (len(digits) - 10)


def _parts(stem: str) -> tuple[str, str, float | None]:
    """The name of a file's worker without the number of its rank, that number (empty where it has none), and the time it states."""
    worker, time = _split(stem)
    return _RANK.sub(r"\1\2#", worker), ".".join(match[3] for match in _RANK.finditer(worker)), time


def _rank(member: Member) -> _Rank:
    worker, time = _split(member.stem)
    job, number, _ = _parts(member.stem)
    rank: int | str | None = member.kind.rank
    if rank is None and number:
        rank = number
    stamped = time is not None
    return _Rank(member, worker, job, rank, member.kind.world_size, stamped, member.file.modified if time is None else time)


def _together(ranks: list[_Rank], *, one_run: bool) -> list[list[_Rank]]:
    """The traces of one folder, run by run."""
    if one_run and ranks and not any(r.stamped for r in ranks):
        return [ranks]
    ranks = sorted(ranks, key=lambda r: (r.time, r.worker))
    workers: dict[str, list[_Rank]] = {}
    for one in ranks:
        workers.setdefault(one.worker, []).append(one)
    if len(workers) == 1:
        return [[one] for one in ranks]
    cycles = [list(cycle) for cycle in zip(*workers.values(), strict=False)]
    even = len({len(files) for files in workers.values()}) == 1
    if even and all(one.joins(cycle[:i]) for cycle in cycles for i, one in enumerate(cycle) if i):
        return [sorted(cycle, key=_order) for cycle in cycles]
    out: list[list[_Rank]] = []
    for one in ranks:
        run = next((run for run in out[: -_OPEN - 1 : -1] if one.joins(run)), None)
        if run is None:
            out.append([one])
        else:
            run.append(one)
    return [sorted(run, key=_order) for run in out]


def _order(one: _Rank) -> tuple[int, str]:
    number = one.rank if isinstance(one.rank, int) else int(str(one.rank).rpartition(".")[2] or 0) if one.rank is not None else 0
    return number, one.worker


def lying_beside(files: RunFiles, name: re.Pattern[str]) -> list[SourceFile]:
    """The files of this name in the folders of a run of Chrome traces; none of a run of another format."""
    if files.format != NAME:
        return []
    locals_ = [file.packed if isinstance(file, Unpacked) else file for file in files.files]
    out: list[SourceFile] = []
    for folder in sorted({file.path.parent for file in locals_ if isinstance(file, LocalFile)}):
        try:
            with os.scandir(folder) as entries:
                out += [LocalFile(Path(folder) / one) for one in sorted(e.name for e in entries if name.match(e.name) and e.is_file())]
        except OSError:
            continue
    return out
