"""Where the files of a recording go: scratch while it runs, TensorBoard's layout when it is
whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from pathlib import Path

from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError
from nbprof.core.unfinished import MARK, SCRATCH, mark
from nbprof.core.units import size_text
from nbprof.sources.upload import Upload
from nbprof.sources.urls import is_url

DEFAULT = "nbprof-results"
ENOUGH = 1 << 30
"""With less than these bytes free on the disk of the logdir, a profiler writes elsewhere first."""

LEFT_S = 24 * 3600.0
"""A scratch folder untouched for a day is left over from a killed process."""


class Place:
    """The folder of one recording.

    TensorFlow names a run by the second, so two recordings in one second would overwrite each
    other, and a crash would leave half a run. So the profiler writes into a scratch folder, and the
    finished run is moved, on the same disk, to a name that is free.

    A disk that has little room could lose the run, for a profiler writes once, at its end. Then the
    scratch folder is on another disk, or in memory, and the run stays there if the logdir does not
    take it.

    Parameters
    ----------
    options : Options
        Says which logdir, and whether anything is kept.

    Attributes
    ----------
    temporary : bool
        True where the files are to be deleted when the profile is no longer needed.
    notes : list of str
        Notes for the user, for example that the working directory is read-only.
    upload : Upload or None
        Copies runs to the URL that the logdir is.
    beside : list of Path
        Further runs that were recorded at the same time as the last one that was moved, of other
        frameworks.
    """

    def __init__(self, options: Options) -> None:
        self.notes: list[str] = []
        self.upload = (
            Upload(options.logdir)
            if options.logdir is not None and is_url(options.logdir)
            else None
        )
        self.temporary = self.upload is not None or (not options.save and options.logdir is None)
        self._spare: Path | None = None
        wanted = Path(options.logdir or DEFAULT).expanduser()
        if self.temporary:
            self.logdir = _make_elsewhere()
        else:
            try:
                # The working directory may be gone.
                wanted = self.logdir = wanted.absolute()
                wanted.mkdir(parents=True, exist_ok=True)
                if not options.logdir:
                    ignore_by_git(wanted)
                _clear_leftovers(wanted)
                self.renew()
            except OSError as error:
                self.logdir = _make_elsewhere()
                reason = error.strerror or type(error).__name__
                self.notes.append(
                    f"{wanted} cannot be written ({reason}): the run is saved in {self.logdir}"
                    " instead; choose another location with --logdir DIR"
                )
                self.scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self.logdir))
            return
        self.renew()

    def renew(self) -> None:
        """Have a new scratch folder, for the next recording into the same logdir."""
        at = self.logdir
        if not self.temporary and _free(self.logdir) < ENOUGH:
            with contextlib.suppress(OSError):
                at = self._elsewhere()
        self.scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=at))

    def mark(self, **facts: str) -> None:
        """Say in the scratch folder whose it is, in case that the process is killed. Never
        raises.
        """
        if not self.temporary:
            mark(self.scratch, facts)

    def secure(self) -> None:
        """Have what is now to be written to the scratch folder land elsewhere, if its disk has
        become full meanwhile.
        """
        if self.temporary or self.scratch.parent != self.logdir or _free(self.logdir) >= ENOUGH:
            return
        with contextlib.suppress(OSError):
            if any(path.name != MARK for path in self.scratch.iterdir()):
                # This profiler writes while it records.
                return
            (self.scratch / MARK).unlink(missing_ok=True)
            target = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=self._elsewhere()))
            # The profiler was told at its start where to write to. Removing the folder makes the
            # room that the link takes.
            self.scratch.rmdir()
            try:
                self.scratch.symlink_to(target, target_is_directory=True)
            except (OSError, NotImplementedError):
                self.scratch.mkdir()
                target.rmdir()

    def settle(self, suffix: str = "") -> Path:
        """Move the finished run out of the scratch folder and return its folder, whose name ends in
        `suffix`.

        Runs in the scratch folder that are called as the first one, ``_`` and a name are of other
        frameworks: they become its neighbours.

        Raises
        ------
        CaptureError
            If the profiler wrote nothing, or no disk takes it.
        """
        runs = sorted((self.scratch / "plugins" / "profile").glob("*"))
        if not runs or not any(runs[0].iterdir()):
            raise CaptureError("the profiler wrote no file")
        run, name = runs[0], f"{runs[0].name}{suffix}"
        try:
            target = _move_into(self.logdir, run, name)
        except OSError as error:
            try:
                kept = self._elsewhere()
                target = _move_into(kept, run, name)
            except OSError:
                raise CaptureError(
                    f"the run could not be moved to {self.logdir}: {error.strerror}; it is in {run}"
                ) from error
            self.notes.append(self._why(error, target, kept))
        self.beside = []
        for other in runs[1:]:
            if other.name.startswith(f"{run.name}_"):
                # The run that is shown is whole without it.
                with contextlib.suppress(OSError):
                    name = f"{target.name}{other.name[len(run.name) :]}"
                    self.beside.append(_move_into(target.parents[2], other, name))
        self.discard()
        return target

    def _why(self, error: OSError, run: Path, kept: Path) -> str:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
            reason = (
                f"the disk of {self.logdir} is full: the run needs {size_text(size)}, and"
                f" {size_text(int(_free(self.logdir)))} are free"
            )
        else:
            reason = f"{self.logdir} cannot be written ({error.strerror or type(error).__name__})"
        return (
            f"{reason}. The run is saved in {kept} instead; free some space, or choose another"
            " location with --logdir DIR"
        )

    def _elsewhere(self) -> Path:
        """The logdir for what the other one does not take."""
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
            # Where a run is kept in it, it is not empty.
            with contextlib.suppress(OSError):
                self._spare.rmdir()
                self._spare = None

    def keep(self) -> None:
        """Keep what was to be removed."""
        self.temporary = False

    def remove(self) -> None:
        """Remove everything, where nothing was to be kept."""
        if self.temporary:
            shutil.rmtree(self.logdir, ignore_errors=True)


def _free(folder: Path) -> float:
    """Free bytes of a disk; infinite where that is not known."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return float("inf")


def _same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def _make_elsewhere() -> Path:
    """A new folder where there is room: for temporary files, or in memory."""
    places = []
    # Python finds none where it cannot write a few bytes.
    with contextlib.suppress(OSError):
        places.append(Path(tempfile.gettempdir()))
    places += [
        path
        for path in (Path("/dev/shm"), Path("/var/tmp"))  # noqa: S108
        if path.is_dir() and os.access(path, os.W_OK)
    ]  # noqa: RUF100, S108
    with_room = [path for path in places if _free(path) >= ENOUGH]
    best = with_room[0] if with_room else max(places, key=_free, default=None)
    return Path(tempfile.mkdtemp(prefix="nbprof-", dir=best))


def _move_into(logdir: Path, run: Path, name: str) -> Path:
    """Move a run to a name that is free in a logdir, and return where it is.

    Other processes of a job may take the same name in that moment. On another disk it appears when
    it is whole.
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
        # It gathers what went wrong, as texts.
        number = next(
            (
                number
                for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)
                if os.strerror(number) in str(error)
            ),
            errno.EIO,
        )
        raise OSError(number, os.strerror(number)) from error
    finally:
        if copy is not None:
            shutil.rmtree(copy, ignore_errors=True)


def _clear_leftovers(logdir: Path) -> None:
    """Remove the scratch folders of processes that were killed: no recording lasts as long."""
    for folder in logdir.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > LEFT_S:
                shutil.rmtree(folder, ignore_errors=True)


def ignore_by_git(folder: Path) -> None:
    """Keep recordings out of the user's Git repository, unless it says otherwise."""
    marker = folder / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
