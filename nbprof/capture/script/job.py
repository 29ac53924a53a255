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
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from nbprof.capture.ranks import Position
from nbprof.core.sidecar import SIDECAR
from nbprof.core.unfinished import look, mark
from nbprof.core.units import plural
from nbprof.sources.recording import CaptureInfo, RankEnd

if TYPE_CHECKING:
    from nbprof.capture.clock import StepClock

VARIABLE = "NBPROF_RUN"
"""Environment variable with the name of the run, for jobs whose launcher states no identity."""
PREFIX = ".job-"
_NAME, _LOCK, _STEPS = "name", "lock", "steps"
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
        The name of the run's folder.
    rank, size : int
    """

    def __init__(self, job: Job, logdir: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.rank, self.size = job.position.rank, job.position.size
        self._logdir = logdir
        self._home = logdir / f"{PREFIX}{job.identity}"
        self._folder = self._home / f"rank{self.rank}"
        self._steps: mmap.mmap | None = None
        _clear_leftovers(logdir)
        self._folder.mkdir(parents=True, exist_ok=True)
        mark(self._folder, {"rank": self.rank})
        self.name = self._agreed(environment.get(VARIABLE) or time.strftime("%Y_%m_%d_%H_%M_%S"))
        # Nothing but the last words of a rank that is killed depends on it.
        with contextlib.suppress(OSError, ValueError), (self._folder / _STEPS).open("w+b") as file:
            file.truncate(8)
            self._steps = mmap.mmap(file.fileno(), 8)

    def _agreed(self, proposal: str) -> str:
        """The name that the first rank proposed, once it is free."""
        runs = self._logdir / "plugins" / "profile"
        name, number = proposal, 2
        while (runs / name).exists():
            name = f"{proposal}_{number}"
            number += 1
        with self._locked():
            file = self._home / _NAME
            with contextlib.suppress(OSError):
                return file.read_text(encoding="utf-8")
            file.write_text(name, encoding="utf-8")
            return name

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
            of_job = replace((info or CaptureInfo()).of_any_rank(), ranks=before)
        rows = {row["rank"]: row for row in of_job.ranks}
        rows |= {end.rank: end._asdict() for end in ends}
        of_job.ranks = [rows[rank] for rank in sorted(rows)]
        of_job.processes = self.size
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
            arrived = len(ended | running) == self.size
            if (arrived and running <= {self.rank}) or time.monotonic() > end:
                return
            time.sleep(_POLL_S)

    def _note_killed(self) -> None:
        killed = []
        for folder in sorted(self._home.glob("rank*")):
            if folder != self._folder and _is_dead(folder):
                killed.append(
                    RankEnd(self._rank(folder), _last_words(folder), False, time.time(), True)
                )
        if not killed:
            return
        with self._locked():
            recorded = {row["rank"] for row in self._ends if row["recorded"]}
            self._write([end._replace(recorded=end.rank in recorded) for end in killed])
        for end in killed:
            shutil.rmtree(self._home / f"rank{end.rank}", ignore_errors=True)

    @staticmethod
    def _rank(folder: Path) -> int:
        return int(folder.name.removeprefix("rank"))

    @property
    def _ends(self) -> list[dict[str, Any]]:
        info = CaptureInfo.read(self.run)
        return info.ranks if info is not None else []

    @property
    def speaks(self) -> bool:
        """True for the rank that shows the run: the first of those that were not killed."""
        killed = {row["rank"] for row in self._ends if row["killed"]}
        for rank in range(self.rank):
            if rank not in killed and not _is_dead(self._home / f"rank{rank}"):
                return False
        return True

    def leave(self) -> None:
        """Remove what is only there while the job runs."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if not any(self._home.glob("rank*")):
            shutil.rmtree(self._home, ignore_errors=True)


def _is_dead(folder: Path) -> bool:
    """Return whether the process of a rank has ended, as far as this machine knows."""
    rank = look(folder)
    if not rank.facts:
        return False
    if not rank.running:
        return True
    try:
        # Until its launcher has asked for it.
        return bool(psutil.Process(rank.facts["pid"]).status() == psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError):
        return False


def _last_words(folder: Path) -> str:
    """Describe a rank whose process has gone."""
    when = "before it had ended a step"
    with contextlib.suppress(OSError, struct.error):
        (steps,) = struct.unpack("q", (folder / _STEPS).read_bytes())
        if steps:
            when = f"after {plural(steps, 'complete step')}"
    return f"script was killed {when}: its process ended without a chance to save its recording"


def _clear_leftovers(logdir: Path) -> None:
    """Remove the folders of jobs that were killed as a whole."""
    for folder in logdir.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_S:
                shutil.rmtree(folder, ignore_errors=True)
