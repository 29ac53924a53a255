"""Which of the files below a folder are one run: hosts or ranks of one recording, and not two recordings one after the other.

The rules, folder by folder:

- All `*.xplane.pb` of a folder are the hosts of one run, which is named after the folder. This is how TensorFlow, JAX and PyTorch/XLA
  write: `<logdir>/plugins/profile/<run>/<host>.xplane.pb`. The JSON that they export beside it is the same recording, cut to a million
  events; it is left aside, and a line of the receipt says so.
- `torch.profiler.tensorboard_trace_handler` writes `<worker>.<time>.pt.trace.json[.gz]` at each cycle of its schedule. Two files of one
  worker, or of one rank, are two runs. Files of several workers are ranks of one run if they say so (`distributedInfo` with the same world
  size, or names that differ by the number of a rank) and were written within half an hour, and also without saying so within a minute.
- If every rank wrote the same number of files, the first of each are one run, the second of each the next, and so on.
- In `plugins/profile/<run>/`, traces that state no time in their names are the hosts of that run.
- Any other Chrome trace is a run of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from nbprof.core.files import Piece, RunFiles
from nbprof.sources.folders import Found
from nbprof.sources.sniff import Kind

_STEM = re.compile(
    r"\.(xplane\.pb|pt\.trace\.json|trace\.json|json|pb|trace|(memory_snapshot\.)?(pickle|pkl))?(\.(gz|bz2|xz))?$", re.IGNORECASE
)
_TIMED = re.compile(r"(?P<worker>.+?)\.(?P<time>\d{13}|\d{16}|\d{19})$")
_RANK = re.compile(r"(?<![a-z])(rank|worker|gpu|proc|process|node|host|trainer)([-_.]?)(\d{1,4})(?!\d)", re.IGNORECASE)
_TOGETHER_S, _NEAR_S = 1800.0, 60.0
BESIDE = "perfetto_trace"
"""JAX writes its trace twice: `<host>.trace.json.gz`, and once more under this name."""
# Ranks write their files of one cycle about together, so only the last runs can still lack one.
_OPEN = 16


@dataclass
class Candidate:
    """A file that is a profile, as far as its name or its head tells."""

    found: Found
    kind: Kind

    @property
    def piece(self) -> Piece:
        """The file."""
        return self.found.piece


@dataclass
class _Rank:
    """A trace of one process, with what tells ranks and cycles apart."""

    candidate: Candidate
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


def stem(name: str) -> str:
    """The name of a profile without its suffixes: `host.xplane.pb` and `host.pt.trace.json.gz` are `host`."""
    return _STEM.sub("", name) or name


def runs(candidates: Iterable[Candidate], sidecars: Iterable[Found], root: str, below: Callable[[str], Path | str]) -> list[RunFiles]:
    """The runs that some files make, newest first.

    Parameters
    ----------
    candidates : iterable of Candidate
        Files that are profiles, from one place.
    sidecars : iterable of Found
        What nbprof wrote beside files that it recorded.
    root : str
        Name of the place, for a run that lies right in it.
    below : callable
        Gives the path or label of a folder of the place.
    """
    folders: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        folders.setdefault(candidate.found.parent, []).append(candidate)
    beside = {s.parent: s.piece for s in sidecars}
    named: list[tuple[str, str, RunFiles]] = []
    for parent, members in folders.items():
        last = parent.rpartition("/")[2] or root
        found = _of_folder(members, last, below(parent), tensorboard=_is_run_folder(below(parent)))
        sidecar = beside.get(parent)
        if len(found) == 1 and sidecar is not None:
            found = [replace(found[0], sidecar=sidecar)]
        named += [(parent, last, run) for run in found]
    return sorted(_distinct(named), key=lambda r: (r.modified, r.name), reverse=True)


def lacks(run: RunFiles, name: str) -> bool:
    """Whether a file that cannot be read is, by its name, a rank of a run that has no other file of that rank."""
    job, number, time = _parts(name)
    if run.format != "chrome" or not number:
        return False
    parts = [_parts(piece.name) for piece in run.files]
    alike = [one for one in parts if one[0] == job and (one[2] is None) == (time is None)]
    apart = [time is None or one[2] is None or abs(one[2] - time) > _TOGETHER_S for one in alike]
    return bool(alike) and number not in {one[1] for one in parts} and (time is None or not all(apart))


def hosts_missing(names: Iterable[str]) -> list[str]:
    """Names that are missing in a series of names that differ by one number: 0, 1, 3 lacks 2."""
    split = [re.split(r"(\d+)", name) for name in names]
    if len(split) < 2 or len({len(parts) for parts in split}) != 1:
        return []
    differ = [i for i in range(len(split[0])) if len({parts[i] for parts in split}) > 1]
    if len(differ) != 1 or differ[0] % 2 == 0:
        return []
    at = differ[0]
    numbers = {int(parts[at]) for parts in split}
    # A series from 0 or 1 is a count of hosts; process ids and ports are not.
    lacking = sorted(set(range(min(numbers), max(numbers))) - numbers)
    if min(numbers) > 1 or len(numbers) < len(split) or len(lacking) > len(numbers):
        return []
    width = len(split[0][at]) if len({len(parts[at]) for parts in split}) == 1 else 0
    return ["".join([*split[0][:at], str(n).zfill(width), *split[0][at + 1 :]]) for n in lacking]


def _is_run_folder(folder: Path | str) -> bool:
    text = folder.absolute().as_posix() if isinstance(folder, Path) else folder
    return bool(re.search(r"(^|/)plugins/profile/[^/]+$", text))


def _of_folder(members: list[Candidate], name: str, folder: Path | str, *, tensorboard: bool) -> list[RunFiles]:
    members = sorted(members, key=lambda c: c.piece.name)
    hosts = [c for c in members if c.kind.format == "xspace"]
    chrome = [c for c in members if c.kind.format == "chrome"]
    stems = {stem(c.piece.name) for c in hosts}
    others = [c for c in chrome if stem(c.piece.name) != BESIDE]
    exported = [
        c
        for c in chrome
        if (hosts and (c.kind.exporter or stem(c.piece.name) in stems)) or (stem(c.piece.name) == BESIDE and (hosts or others))
    ]
    chrome = [c for c in chrome if c not in exported]
    out: list[RunFiles] = []
    notes = _notes(exported)
    if hosts:
        pieces = tuple(c.piece for c in hosts)
        out.append(RunFiles(name, folder, pieces, _modified(hosts), "xspace", notes, _lacking(stem(p.name) for p in pieces)))
        notes = ()
    groups = _together([_rank(c) for c in chrome], one_run=tensorboard)
    for at, group in enumerate(groups):
        files = [r.candidate for r in group]
        alone = len(groups) == 1 and not hosts and (tensorboard or len(group) > 1)
        title = name if alone else stem(files[0].piece.name)
        pieces = tuple(c.piece for c in files)
        # What the traces state of their ranks is the dialect's to judge.
        lacking = () if any(r.world for r in group) else _lacking(r.worker for r in group)
        told = notes + _again(group, [one for i, other in enumerate(groups) if i != at for one in other])
        out.append(RunFiles(title, folder, pieces, max(r.time for r in group), "chrome", told, lacking))
    # Beside a trace they belong to it.
    snapshots = [] if out else [c for c in members if c.kind.format == "torch_memory"]
    return out + [RunFiles(stem(c.piece.name), folder, (c.piece,), c.piece.modified, "torch_memory") for c in snapshots]


def _again(group: list[_Rank], others: list[_Rank]) -> tuple[str, ...]:
    """Files beside a run that were recorded about with it and have the number of one of its ranks, so that they are runs of their own."""
    same = [
        other.candidate.piece.name
        for other in others
        if any(
            one.worker != other.worker and one.rank is not None and one.rank == other.rank and abs(one.time - other.time) <= _TOGETHER_S
            for one in group
        )
    ]
    if not same:
        return ()
    what = "states the number of a rank of this run, so it is" if len(same) == 1 else "state numbers of ranks of this run, so they are"
    return (f"{_some(same)} beside it {what} not part of it: nbprof.runs lists the runs of a folder.",)


def _notes(exported: list[Candidate]) -> tuple[str, ...]:
    if not exported:
        return ()
    names = _some([c.piece.name for c in exported])
    return (f"{names} beside it is the same recording as JSON, which its exporter cuts at a million events; it was not read.",)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _lacking(names: Iterable[str]) -> tuple[str, ...]:
    gaps = hosts_missing(names)
    return (f"By the names of the others, {_some(gaps)} should be here too: what happened there is not in the numbers.",) if gaps else ()


def _modified(members: list[Candidate]) -> float:
    return max(c.piece.modified for c in members)


def _split(name: str) -> tuple[str, float | None]:
    """The worker of a file and the time, s, that its name states."""
    name = stem(name)
    timed = _TIMED.fullmatch(name)
    if not timed:
        return name, None
    digits = timed["time"]
    return timed["worker"], int(digits) / 10 ** (len(digits) - 10)


def _parts(name: str) -> tuple[str, str, float | None]:
    """The name of a file's worker without the number of its rank, that number (empty where it has none), and the time it states."""
    worker, time = _split(name)
    return _RANK.sub(r"\1\2#", worker), ".".join(match[3] for match in _RANK.finditer(worker)), time


def _rank(candidate: Candidate) -> _Rank:
    worker, time = _split(candidate.piece.name)
    job, number, _ = _parts(candidate.piece.name)
    rank: int | str | None = candidate.kind.rank
    if rank is None and number:
        rank = number
    stamped = time is not None
    return _Rank(candidate, worker, job, rank, candidate.kind.world_size, stamped, candidate.piece.modified if time is None else time)


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
