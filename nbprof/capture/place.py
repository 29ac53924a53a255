"""Where the files of a recording go: scratch while it runs, TensorBoard's layout when it is whole."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path

from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError

DEFAULT = "nbprof-results"

LEFT_S = 24 * 3600.0
"""A scratch folder untouched for a day is left over from a killed process."""


class Place:
    """The folder of one recording.

    TensorFlow names a run by the second, so two recordings in one second would overwrite each other, and a crash would leave half a
    run. So the profiler writes into a scratch folder, and the finished run is moved, on the same disk, to a name that is free.

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
    """

    def __init__(self, options: Options) -> None:
        self.notes: list[str] = []
        self.temporary = not options.save and options.logdir is None
        wanted = Path(options.logdir or DEFAULT).expanduser()
        if self.temporary:
            self.logdir = Path(tempfile.mkdtemp(prefix="nbprof-"))
        else:
            try:
                # The working directory may be gone.
                wanted = self.logdir = wanted.absolute()
                wanted.mkdir(parents=True, exist_ok=True)
                if not options.logdir:
                    ignore_by_git(wanted)
                _clear_leftovers(wanted)
                self.scratch = Path(tempfile.mkdtemp(prefix=".recording-", dir=wanted))
            except OSError as error:
                self.logdir = Path(tempfile.mkdtemp(prefix="nbprof-"))
                reason = error.strerror or type(error).__name__
                self.notes.append(
                    f"{wanted} cannot be written ({reason}): the run is kept in {self.logdir} instead; choose another place with "
                    "--logdir DIR"
                )
                self.scratch = Path(tempfile.mkdtemp(prefix=".recording-", dir=self.logdir))
            return
        self.renew()

    def renew(self) -> None:
        """Have a new scratch folder, for the next recording into the same logdir."""
        self.scratch = Path(tempfile.mkdtemp(prefix=".recording-", dir=self.logdir))

    def settle(self, suffix: str = "") -> Path:
        """Move the finished run out of the scratch folder and return its folder, whose name ends in `suffix`.

        Raises
        ------
        CaptureError
            If the profiler wrote nothing, or the disk does not take it.
        """
        runs = sorted((self.scratch / "plugins" / "profile").glob("*"))
        if not runs or not any(runs[0].iterdir()):
            raise CaptureError("the profiler wrote no file")
        home = self.logdir / "plugins" / "profile"
        try:
            home.mkdir(parents=True, exist_ok=True)
            name = f"{runs[0].name}{suffix}"
            target = _move(runs[0], home, name)
        except OSError as error:
            raise CaptureError(f"the run could not be moved to {home}: {error.strerror}; it is in {runs[0]}") from error
        self.discard()
        return target

    def discard(self) -> None:
        """Remove the scratch folder."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything, where nothing was to be kept."""
        if self.temporary:
            shutil.rmtree(self.logdir, ignore_errors=True)


def _move(run: Path, home: Path, name: str) -> Path:
    """Move a run to a name that is free, and return where it is; other processes of a job may take the same name in that moment."""
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


def _clear_leftovers(logdir: Path) -> None:
    """Remove the scratch folders of processes that were killed: no recording lasts as long."""
    for folder in logdir.glob(".recording-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > LEFT_S:
                shutil.rmtree(folder, ignore_errors=True)


def ignore_by_git(folder: Path) -> None:
    """Keep recordings out of the user's Git repository, unless it says otherwise."""
    marker = folder / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
