"""The folders of a recording: scratch while it runs, TensorBoard's layout when it is complete."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nbprof.capture import notes
from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note
from nbprof.core.unfinished import MARK, SCRATCH, mark
from nbprof.core.units import size_text
from nbprof.sources.upload import Upload
from nbprof.sources.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from nbprof.sources.recording import CaptureInfo

DEFAULT = "nbprof-results"
ENOUGH = 1 << 30
"""With less than these bytes free on the disk of the logdir, a profiler writes elsewhere first."""

_DATED = re.compile(r"\d{4}(_\d\d){5}")

LEFT_S = 24 * 3600.0
"""A scratch folder untouched for a day is left over from a killed process."""


class Member(Protocol):
    """A rank of a job, as its recording needs it."""

    rank: int

    @property
    def run(self) -> Path:
        """The folder of the run of all ranks."""

    def joins(self, steps: int) -> bool:
        """Return whether its recording, of so many steps, becomes part of the run."""

    def state(self, info: CaptureInfo | None, *, over: bool, error: str = "") -> None:
        """State in that folder that this rank has recorded so far, or how it ended."""

    def files_of(self, run: Path) -> Mapping[Path, str]:
        """The files of a run of this rank, with their names among those of the other ranks."""


class RunFolder:
    """The folder of one recording.

    TensorFlow names a run by the second, so two recordings in one second would overwrite each
    other, and a crash would leave half a run. So the profiler writes into a scratch folder, and the
    finished run is moved, on the same disk, to a free name.

    A disk with little space could lose the run, since a profiler writes once, at its end. Then the
    scratch folder is on another disk, or in memory, and the run stays there if the logdir does not
    take it.

    Parameters
    ----------
    options : Options
        The logdir, and whether the run is saved.

    Attributes
    ----------
    temporary : bool
        True where the files are to be deleted when the profile is no longer needed.
    notes : list of Note
        For the receipt, for example that the working directory is read-only.
    upload : Upload or None
        Copies runs to the logdir if that is a URL.
    member : Member or None
        This process as a rank of a job that records into one folder.
    companion_runs : list of Path
        Runs of other frameworks that were recorded at the same time as the last settled run.
    """

    def __init__(self, options: Options) -> None:
        self.notes: list[Note] = []
        self.member: Member | None = None
        self.upload: Upload | None = None
        if options.logdir is not None and is_url(options.logdir):
            self.upload = Upload(options.logdir)
        self.temporary = self.upload is not None or (not options.save and options.logdir is None)
        self._spare: Path | None = None
        if self.temporary:
            self.logdir = _make_elsewhere()
            self.renew()
            return
        logdir = Path(options.logdir or DEFAULT).expanduser()
        try:
            # The working directory may be gone.
            logdir = self.logdir = logdir.absolute()
            logdir.mkdir(parents=True, exist_ok=True)
            if not options.logdir:
                ignore_by_git(logdir)
            _clear_leftovers(logdir)
            self.renew()
        except OSError as error:
            self.logdir = _make_elsewhere()
            self.notes.append(notes.logdir_not_writable(logdir, self.logdir, error))
            self.scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self.logdir))

    def renew(self) -> None:
        """Create a new scratch folder, for the next recording into the same logdir."""
        parent = self.logdir
        if not self.temporary and _free(self.logdir) < ENOUGH:
            with contextlib.suppress(OSError):
                parent = self._elsewhere()
        self.scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=parent))

    def mark(self, **facts: str) -> None:
        """Note the owner in the scratch folder, in case the process is killed. Never raises."""
        if not self.temporary:
            mark(self.scratch, facts)

    def secure(self) -> None:
        """Redirect the scratch folder to another disk if its disk has become full meanwhile."""
        if self.temporary or self.scratch.parent != self.logdir or _free(self.logdir) >= ENOUGH:
            return
        with contextlib.suppress(OSError):
            if any(path.name != MARK for path in self.scratch.iterdir()):
                # This profiler writes while it records.
                return
            (self.scratch / MARK).unlink(missing_ok=True)
            target = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self._elsewhere()))
            # The profiler got the path at its start. Removing the folder frees the space that the
            # link takes.
            self.scratch.rmdir()
            try:
                self.scratch.symlink_to(target, target_is_directory=True)
            except (OSError, NotImplementedError):
                self.scratch.mkdir()
                target.rmdir()

    def settle(self, suffix: str = "", started: datetime | None = None) -> Path:
        """Move the finished run out of the scratch folder and return its new folder.

        Runs in the scratch folder whose name is that of the first one, ``_`` and another name are
        of other frameworks: they are moved to the same folder.

        Parameters
        ----------
        suffix : str
            Appended to the name of the run.
        started : datetime, optional
            When it was recorded: a run that its profiler named by the time at which it wrote the
            files is named by that instead.

        Raises
        ------
        CaptureError
            If the profiler wrote nothing, or no disk takes it.
        """
        runs = sorted((self.scratch / "plugins" / "profile").glob("*"))
        if not runs or not any(runs[0].iterdir()):
            raise CaptureError("the profiler wrote no file")
        if self.member is not None and not self.temporary:
            return self._join(self.member, runs[0], suffix)
        run, name = runs[0], runs[0].name
        if started is not None and _DATED.fullmatch(name):
            name = started.strftime("%Y_%m_%d_%H_%M_%S")
        name = f"{name}{suffix}"
        try:
            target = _move_into(self.logdir, run, name)
        except OSError as error:
            try:
                spare = self._elsewhere()
                target = _move_into(spare, run, name)
            except OSError:
                raise CaptureError(
                    f"the run could not be moved to {self.logdir}: {error.strerror}; it is in {run}"
                ) from error
            self.notes.append(notes.run_moved(self._obstacle(error, target), spare))
        self.companion_runs = []
        for other in runs[1:]:
            if other.name.startswith(f"{run.name}_"):
                # The main run is complete without it.
                with contextlib.suppress(OSError):
                    name = f"{target.name}{other.name[len(run.name) :]}"
                    self.companion_runs.append(_move_into(target.parents[2], other, name))
        self.discard()
        return target

    def _join(self, member: Member, run: Path, suffix: str) -> Path:
        """Move the files of one rank into the folder of its job, and return that."""
        target = member.run.with_name(f"{member.run.name}{suffix}")
        try:
            target.mkdir(parents=True, exist_ok=True)
            for file, name in member.files_of(run).items():
                part = target / f".{name}.part"
                shutil.move(file, part)
                part.replace(target / name)
        except OSError as error:
            raise CaptureError(
                f"the run could not be moved to {self.logdir}: {error.strerror}; it is in {run}"
            ) from error
        self.companion_runs = []
        self.discard()
        return target

    def _obstacle(self, error: OSError, run: Path) -> str:
        """Why the logdir did not take a run."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return f"{self.logdir} cannot be written ({error.strerror or type(error).__name__})"
        size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        return (
            f"the disk of {self.logdir} is full: the run needs {size_text(size)}, and"
            f" {size_text(int(_free(self.logdir)))} are free"
        )

    def _elsewhere(self) -> Path:
        """The logdir for runs that do not fit into the requested one."""
        if self._spare is None:
            self._spare = _make_elsewhere()
        return self._spare

    def discard(self) -> None:
        """Remove the scratch folder."""
        if self.scratch.is_symlink():
            shutil.rmtree(self.scratch.resolve(), ignore_errors=True)
            with contextlib.suppress(OSError):
                self.scratch.unlink()
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self._spare is not None:
            # It is not empty if a run was saved in it.
            with contextlib.suppress(OSError):
                self._spare.rmdir()
                self._spare = None

    def keep(self) -> None:
        """Keep a temporary logdir."""
        self.temporary = False

    def remove(self) -> None:
        """Remove the logdir if it is temporary."""
        if self.temporary:
            shutil.rmtree(self.logdir, ignore_errors=True)


def _free(folder: Path) -> float:
    """Free bytes of a disk; infinite if unknown."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return float("inf")


def _same_disk(first: Path, second: Path) -> bool:
    return first.stat().st_dev == second.stat().st_dev


def _make_elsewhere() -> Path:
    """Create a folder on a disk with enough space: for temporary files, or in memory."""
    parents = []
    # Python finds no folder for temporary files if it cannot write a few bytes.
    with contextlib.suppress(OSError):
        parents.append(Path(tempfile.gettempdir()))
    for path in (Path("/dev/shm"), Path("/var/tmp")):  # noqa: S108
        if path.is_dir() and os.access(path, os.W_OK):
            parents.append(path)
    # The first one with enough space, else the one with most.
    parent = max(parents, key=lambda path: min(_free(path), ENOUGH), default=None)
    return Path(tempfile.mkdtemp(prefix="nbprof-", dir=parent))


def _move_into(logdir: Path, run: Path, name: str) -> Path:
    """Move a run to a free name in a logdir, and return its new folder.

    Other processes of a job may take the same name at the same time. On another disk it appears
    when it is complete.
    """
    home = logdir / "plugins" / "profile"
    home.mkdir(parents=True, exist_ok=True)
    copy = None
    try:
        if not _same_disk(run, home):
            copy = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=logdir))
            run = Path(shutil.copytree(run, copy / run.name))
        target, number = home / name, 2
        while True:
            try:
                if not target.exists():
                    return run.rename(target)
            except OSError:
                if not target.exists():
                    raise
            target = home / f"{name}_{number}"
            number += 1
    except shutil.Error as error:
        code = _error_code(error)
        raise OSError(code, os.strerror(code)) from error
    finally:
        if copy is not None:
            shutil.rmtree(copy, ignore_errors=True)


def _error_code(error: shutil.Error) -> int:
    """The code of an error of `shutil`, which contains those of several files as texts."""
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE):
        if os.strerror(code) in str(error):
            return code
    return errno.EIO


def _clear_leftovers(logdir: Path) -> None:
    """Remove the scratch folders of killed processes; no recording takes as long as `LEFT_S`."""
    for folder in logdir.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > LEFT_S:
                shutil.rmtree(folder, ignore_errors=True)


def ignore_by_git(folder: Path) -> None:
    """Keep recordings out of the user's Git repository, unless it says otherwise."""
    marker = folder / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
