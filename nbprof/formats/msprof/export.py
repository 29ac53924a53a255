"""Exports raw recordings of msprof by the tool itself, where it is installed: their format is
private to it and changes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from nbprof.core.errors import RawError, ReadError
from nbprof.core.files import RunFiles, printable

TOOL = "msprof"
_LAST = 300


def exported(
    find: Callable[[], RunFiles], progress: Callable[[str], None] | None = None
) -> RunFiles:
    """The result of `find`; raw recordings are exported first if the tool is on the PATH.

    Raises
    ------
    ReadError
        As `find` and `export` raise it; a `RawError` where the tool is not here.
    """
    try:
        return find()
    except RawError as raw:
        if not export(raw, progress):
            raise
        return find()


def export(error: RawError, progress: Callable[[str], None] | None = None) -> bool:
    """Exports the recordings that an error names; False if the tool is not on the PATH.

    Parameters
    ----------
    error : RawError
    progress : callable, optional
        Called with a sentence as each is begun.

    Raises
    ------
    ReadError
        The tool failed; quotes the end of its message.
    """
    tool = shutil.which(TOOL)
    if tool is None or not error.recordings or error.tool != TOOL:
        return False
    for folder in error.recordings:
        if progress:
            progress(f"{TOOL} exports {printable(Path(folder).name)}")
        command = [tool, "--export=on", f"--output={folder}"]
        try:
            done = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
            )  # noqa: RUF100, S603
        except OSError as failed:
            raise ReadError(
                f"{TOOL} could not be started: {failed.strerror}. {error.reason}", path=error.path
            ) from None
        if done.returncode:
            export_error = printable(" ".join((done.stderr or done.stdout).split())[-_LAST:])
            raise ReadError(
                f"{' '.join(command[1:])} of {TOOL} failed with code {done.returncode}:"
                f" {export_error}",
                path=folder,
            )
    return True
