"""The ranks of a job as hosts of one run: they agree on its folder without a connection.

All ranks see the same launcher or, on several machines, the same identifier of the job. In the
logdir there is a hidden folder of that identity while the job runs: with the name of the run, and a
folder for each rank that tells who it is and how many steps it has ended. So a rank that is killed
leaves its last words.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from nbprof.capture.ranks import Position
from nbprof.core.errors import CaptureError
from nbprof.core.sidecar import SIDECAR
from nbprof.core.unfinished import look, mark
from nbprof.core.units import plural
from nbprof.sources.recording import PROCESS, SCRIPT, CaptureInfo, RankEnd

if TYPE_CHECKING:
    from nbprof.capture.clock import StepClock

VARIABLE = "NBPROF_RUN"
"""Environment variable with the name of the run, for jobs whose launcher states no identity."""
PREFIX = ".job-"
_NAME, _LOCK, _STEPS, _SHOWN = "name", "lock", "steps", "shown"
_VALID = re.compile(r"\w[\w.+=@, -]{0,199}")
_OF_JOB = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
)
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_POLL_S = 0.05
_LEFT_S = 24 * 3600.0


class Job(NamedTuple):
    """A job.

    Attributes
    ----------
    identity : str
        The same in all its ranks, and in no other job that writes to the logdir.
    position : Position
    """

    identity: str
    position: Position


def requested_name(environment: Mapping[str, str]) -> str:
    """The name of the run that the environment asks for; "" if it asks for none.

    Raises
    ------
    CaptureError
        It cannot be the name of a folder on every disk.
    """
    name = environment.get(VARIABLE, "")
    if name and not _VALID.fullmatch(name):
        raise CaptureError(
            f"{VARIABLE} is {name!r}, which cannot be the name of a run: use at most 200 letters,"
            " digits, spaces and _ . + = @ , -, beginning with a letter or a digit"
        )
    return name


def job(position: Position, environment: Mapping[str, str]) -> Job:
    """The job of a process."""
    facts = [f"{name}={environment.get(name, '')}" for name in (VARIABLE, *_OF_JOB)]
    if not environment.get(VARIABLE) and _on_one_machine(position, environment):
        # Ports and identifiers are often those of the last job, but not the launcher.
        facts.append(_launcher(position.variable))
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    return Job(digest[:12], position)


def _on_one_machine(position: Position, environment: Mapping[str, str]) -> bool:
    if environment.get("SLURM_STEP_NUM_NODES", "1") != "1":
        return False
    sizes = [environment[name] for name in _LOCAL_SIZES if name in environment]
    return all(size == str(position.size) for size in sizes)


def _launcher(variable: str) -> str:
    """Identify the first process above this one that is not part of a rank."""
    process = psutil.Process()
    with contextlib.suppress(psutil.Error):
        for parent in psutil.Process().parents():
            process = parent
            # A shell or another wrapper of one rank has its variables.
            if variable not in parent.environ():
                break
    return f"{process.pid} {_started(process)}"


def _started(process: psutil.Process) -> str:
    """When a process started: on Linux in ticks, which all processes read alike."""
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[19]
    return f"{process.create_time():.2f}"


class Member:
    """A rank of a job: this process.

    Parameters
    ----------
    job : Job
    logdir : Path

    Attributes
    ----------
    name : str
        The name of the run's folder, which this job alone writes to.
    started : str
        When its first rank began, in ISO form with the time zone: the time of the run.
    rank, size : int
    unit : str
        What the other ranks are, in sentences.
    """

    unit = SCRIPT

    def __init__(self, job: Job, logdir: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.rank, self.size = job.position.rank, job.position.size
        self._logdir = logdir
        self._home = logdir / f"{PREFIX}{job.identity}"
        self._steps: mmap.mmap | None = None
        _clear_leftovers(logdir)
        with self._locked():
            self._clear_earlier_job()
            self.name, self.started = self._agreed(requested_name(environment))
            self._enter()

    @property
    def _folder(self) -> Path:
        return self._home / f"rank{self.rank}"

    def _enter(self) -> None:
        """Make the folder that says that this rank runs; the caller holds the lock."""
        self._folder.mkdir(parents=True, exist_ok=True)
        mark(self._folder, {"rank": self.rank, "ticks": _started(psutil.Process())})
        # Nothing but the last words of a rank that is killed depends on it.
        with contextlib.suppress(OSError, ValueError), (self._folder / _STEPS).open("w+b") as file:
            file.truncate(8)
            self._steps = mmap.mmap(file.fileno(), 8)

    def _clear_earlier_job(self) -> None:
        """Remove what a job with the same identifiers left that was killed as a whole.

        A rank begins once in a job, so its folder is of an earlier one.
        """
        ranks = list(self._home.glob("rank*"))
        if self._folder in ranks or all(map(_is_dead, ranks)):
            (self._home / _NAME).unlink(missing_ok=True)
            for folder in (*ranks, self._home / _SHOWN):
                shutil.rmtree(folder, ignore_errors=True)

    def _agreed(self, requested: str) -> tuple[str, str]:
        """The name of the run and its time, which the first rank chooses; it makes the folder."""
        file = self._home / _NAME
        with contextlib.suppress(OSError, ValueError):
            name, started = json.loads(file.read_text(encoding="utf-8"))
            return str(name), str(started)
        now = datetime.now().astimezone()
        proposal = requested or now.strftime("%Y_%m_%d_%H_%M_%S")
        runs = self._logdir / "plugins" / "profile"
        runs.mkdir(parents=True, exist_ok=True)
        name, number = proposal, 2
        while not _created(runs / name):
            name = f"{proposal}_{number}"
            number += 1
        agreed = name, now.isoformat(timespec="seconds")
        file.write_text(json.dumps(agreed), encoding="utf-8")
        return agreed

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one rank at a time run the block, where the file system can tell."""
        self._home.mkdir(parents=True, exist_ok=True)
        with (self._home / _LOCK).open("a") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            except (ImportError, OSError):
                pass
            yield

    def joins(self, steps: int) -> bool:
        """Return whether its recording, of so many steps, becomes part of the run."""
        del steps
        return True

    def stepped(self, clock: StepClock) -> None:
        """A step has ended. Never raises."""
        if self._steps is not None:
            with contextlib.suppress(ValueError, struct.error):
                self._steps[:] = struct.pack("q", clock.seen)

    def files_of(self, run: Path) -> dict[Path, str]:
        """The files of a run that this rank recorded, with their names among those of others."""
        names = {}
        for file in sorted(file for file in run.iterdir() if file.is_file()):
            name = file.name
            if f"rank{self.rank}." not in name:
                head, dot, rest = name.partition(".")
                name = f"{head}_rank{self.rank}{dot}{rest}"
            names[file] = name
        return names

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return self._logdir / "plugins" / "profile" / self.name

    def state(self, info: CaptureInfo | None, *, over: bool, error: str = "") -> None:
        """State in the folder of the run that this rank has recorded so far, or how it ended.

        Parameters
        ----------
        info : CaptureInfo or None
            None if it recorded nothing.
        over : bool
            True at its end.
        error : str
            How it failed; "" if it did not.
        """
        if over:
            # Their ends come before this one, which may follow from them.
            self._note_killed()
        end = RankEnd(self.rank, error, info is not None, time.time() if over else 0.0)
        with self._locked():
            self._write([end], info)

    def note_end(self, error: str) -> None:
        """State how this rank ends, whose recording may not be possible to end. Never raises."""
        with contextlib.suppress(OSError):
            recorded = any(row["rank"] == self.rank and row["recorded"] for row in self._ends)
            with self._locked():
                self._write([RankEnd(self.rank, error, recorded, time.time())])

    def _write(self, ends: list[RankEnd], info: CaptureInfo | None = None) -> None:
        """Write the facts of the whole job; the caller holds the lock."""
        run = self.run
        run.mkdir(parents=True, exist_ok=True)
        of_job = CaptureInfo.read(run)
        recorded = [row["rank"] for row in of_job.ranks if row["recorded"]] if of_job else []
        if of_job is None or (info is not None and self.rank <= min([*recorded, self.rank])):
            before = of_job.ranks if of_job is not None else []
            of_any = (info or CaptureInfo()).of_any_rank()
            of_job = replace(of_any, ranks=before, started=self.started)
        rows = {row["rank"]: row for row in of_job.ranks}
        rows |= {end.rank: end._asdict() for end in ends}
        of_job.ranks = [rows[rank] for rank in sorted(rows)]
        of_job.processes = self.size or len(rows)
        of_job.note_failures()
        part = run / f".{SIDECAR}.part"
        part.write_text(json.dumps(of_job.to_dict()), encoding="utf-8")
        part.replace(run / SIDECAR)

    def wait_for_others(self, limit_s: float) -> None:
        """Wait until all other ranks have ended, at most so long; note those that were killed."""
        end = time.monotonic() + limit_s
        while True:
            self._note_killed()
            ended = {row["rank"] for row in self._ends if row["ended"]}
            running = {self._rank(folder) for folder in self._home.glob("rank*")}
            arrived = len(ended | running) == self.size or not self.size
            if (arrived and running <= {self.rank}) or time.monotonic() > end:
                return
            time.sleep(_POLL_S)

    def _note_killed(self) -> None:
        if not self._dead():
            return
        with self._locked():
            # A rank that was about to begin or to end when it was looked at has done so by now.
            dead = self._dead()
            ended = {row["rank"] for row in self._ends if row["ended"]}
            recorded = {row["rank"] for row in self._ends if row["recorded"]}
            killed = [
                RankEnd(rank, self._last_words(folder), rank in recorded, time.time(), True)
                for rank, folder in dead.items()
                if rank not in ended
            ]
            if killed:
                self._write(killed)
        for folder in dead.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _dead(self) -> dict[int, Path]:
        """The folders of other ranks whose process is gone."""
        folders = sorted(self._home.glob("rank*"))
        return {
            self._rank(each): each for each in folders if each != self._folder and _is_dead(each)
        }

    def _last_words(self, folder: Path) -> str:
        """Describe a rank whose process has gone."""
        when = "before it had ended a step"
        with contextlib.suppress(OSError, struct.error):
            (steps,) = struct.unpack("q", (folder / _STEPS).read_bytes())
            if steps:
                when = f"after {plural(steps, 'complete step')}"
        return f"{self.unit} was killed {when}: it ended without a chance to save its recording"

    @property
    def running(self) -> int:
        """How many other processes of the run have not ended."""
        folders = self._home.glob("rank*")
        return sum(folder != self._folder and not _is_dead(folder) for folder in folders)

    @property
    def has_others(self) -> bool:
        """True if another process is or was part of the run."""
        there = {row["rank"] for row in self._ends} | set(map(self._rank, self._home.glob("rank*")))
        return bool(there - {self.rank})

    @staticmethod
    def _rank(folder: Path) -> int:
        return int(folder.name.removeprefix("rank"))

    @property
    def any_recorded(self) -> bool:
        """True if a rank has recorded anything."""
        return any(row["recorded"] for row in self._ends)

    @property
    def failure(self) -> str:
        """The known failure of the job; "" without one."""
        info = CaptureInfo.read(self.run)
        return info.error if info is not None else ""

    @property
    def _ends(self) -> list[dict[str, Any]]:
        info = CaptureInfo.read(self.run)
        return info.ranks if info is not None else []

    def shows(self) -> bool:
        """Return whether this rank, which has not failed, shows the run: one does, the first."""
        with self._locked():
            for folder in self._home.glob("rank*"):
                if self._rank(folder) < self.rank and not _is_dead(folder):
                    return False
            return _created(self._home / _SHOWN)

    def leave(self) -> None:
        """Remove what is only there while the job runs."""
        with self._locked():
            self._remove_folder()

    def leave_failed(self) -> bool:
        """Leave after a failure; returns whether this rank shows the run.

        The last one here does, since it knows how the others ended. Whether ranks of other machines
        were killed is not known here.
        """
        with self._locked():
            remaining = [folder for folder in self._home.glob("rank*") if folder != self._folder]
            self._remove_folder()
            return not any(map(_runs_here, remaining))

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if not any(self._home.glob("rank*")):
            shutil.rmtree(self._home, ignore_errors=True)


MOST_CHILDREN = 16
"""Processes of a script that are recorded; of more, the first."""


class Parent(Member):
    """A script whose processes are recorded too, in the run of the script.

    It has a number among them only if it is in the run itself.

    Attributes
    ----------
    follows : bool
        Its processes are recorded.

    Parameters
    ----------
    identity : str
    logdir : Path
    """

    follows = True
    unit = PROCESS

    def __init__(self, identity: str, logdir: Path) -> None:
        super().__init__(Job(identity, Position(-1, 0, "")), logdir)

    def _clear_earlier_job(self) -> None:
        """There is none: no other script has the identity."""

    def _enter(self) -> None:
        """Its own process is known to be there as long as its processes are."""

    def joins(self, steps: int) -> bool:
        """Return whether its own recording becomes part of the run.

        One without steps, of a script that only started the others and waited, does not: it would
        stand beside them as a host that lacks all of theirs.
        """
        if not steps and self.any_recorded:
            return False
        with self._locked():
            self.rank = max(self._numbers(), default=-1) + 1
        return True

    def _numbers(self) -> set[int]:
        """The numbers that are taken; the caller holds the lock."""
        here = {self._rank(folder) for folder in self._home.glob("rank*")}
        return here | {row["rank"] for row in self._ends}

    def stepped(self, clock: StepClock) -> None:
        """A step has ended, of which nobody else needs to know."""

    def state(self, info: CaptureInfo | None, *, over: bool, error: str = "") -> None:
        """State what it has recorded, or how it ended; nothing if it is not in the run."""
        self._note_killed()
        if self.rank < 0 and error and not any(row["error"] for row in self._ends):
            # The failure of one of its processes is often its own.
            with self._locked():
                self.rank = max(self._numbers(), default=-1) + 1
        if self.rank >= 0:
            super().state(info, over=over, error=error)

    def note_end(self, error: str) -> None:
        """State how it ends, if it is in the run."""
        if self.rank >= 0:
            super().note_end(error)

    def shows(self) -> bool:
        """It shows the run, at its end."""
        return True

    def leave_failed(self) -> bool:
        """Leave after a failure."""
        self.leave()
        return True

    def _remove_folder(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class Child(Parent):
    """A process that a recorded script started: this process.

    Parameters
    ----------
    identity : str
    logdir : Path
    rank : int, optional
        Its rank, where a launcher has given it one.

    Raises
    ------
    CaptureError
        As many are recorded already as may be.
    """

    def __init__(self, identity: str, logdir: Path, rank: int | None = None) -> None:
        self._rank_of_launcher = rank
        super().__init__(identity, logdir)

    def _enter(self) -> None:
        taken = self._numbers()
        if len(taken) >= MOST_CHILDREN:
            raise CaptureError(f"{MOST_CHILDREN} processes of the script are recorded already")
        self.rank = max(taken, default=-1) + 1
        if self._rank_of_launcher is not None and self._rank_of_launcher not in taken:
            self.rank = self._rank_of_launcher
        Member._enter(self)

    def joins(self, steps: int) -> bool:
        """It is part of the run."""
        del steps
        return True

    def stepped(self, clock: StepClock) -> None:
        """A step has ended. Never raises."""
        Member.stepped(self, clock)

    def state(self, info: CaptureInfo | None, *, over: bool, error: str = "") -> None:
        """State what it has recorded, or how it ended."""
        Member.state(self, info, over=over, error=error)

    def shows(self) -> bool:
        """The script shows the run."""
        return False

    def leave_failed(self) -> bool:
        """Leave after a failure."""
        self.leave()
        return False

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if not (self._home / _NAME).exists():
            # The script has ended before.
            shutil.rmtree(self._home, ignore_errors=True)


def _created(folder: Path) -> bool:
    """Make a folder; returns False if it is there already."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _is_dead(folder: Path) -> bool:
    """Return whether the process of a rank has ended, as far as this machine knows."""
    rank = look(folder)
    if not rank.facts:
        return False
    if not rank.running:
        return True
    if not rank.is_here:
        return False
    try:
        process = psutil.Process(rank.facts["pid"])
        # Until its launcher has asked for it, or if another process has its number.
        is_zombie = bool(process.status() == psutil.STATUS_ZOMBIE)
        return is_zombie or _started(process) != rank.facts["ticks"]
    except (psutil.Error, ValueError, KeyError):
        return False


def _runs_here(folder: Path) -> bool:
    """Return whether the process of a rank runs on this machine."""
    return look(folder).is_here and not _is_dead(folder)


def _clear_leftovers(logdir: Path) -> None:
    """Remove the folders of jobs that were killed as a whole."""
    for folder in logdir.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_S:
                shutil.rmtree(folder, ignore_errors=True)
