"""Exports reports of Nsight Systems by the tool itself, where it is installed: their format is
private to it and changes.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from nbprof.core.errors import RawError, ReadError
from nbprof.core.files import printable
from nbprof.core.units import size_text

TOOL = "nsys"
_LAST = 300
_LONGEST_S = 1800
# A database is larger than its report, which is compressed.
_SIZE_FACTOR = 10


def export(error: RawError, progress: Callable[[str], None] | None = None) -> Path | None:
    """The database of the report that an error names; None for an error of another tool, or if the
    tool is not on the PATH.

    A newer database next to the report is used, as `nsys stats` leaves one there. Otherwise one is
    exported to a temporary folder, which is removed when the process ends.

    Parameters
    ----------
    error : RawError
    progress : callable, optional
        Called with a sentence as it is begun.

    Raises
    ------
    ReadError
        The tool failed, took half an hour, or has no room; quotes the end of its message.
    """
    if error.tool != TOOL or len(error.recordings) != 1:
        return None
    report = Path(error.recordings[0])
    database_path = report.with_suffix(".sqlite")
    if database_path.is_file() and database_path.stat().st_mtime >= report.stat().st_mtime:
        return database_path
    tool = shutil.which(TOOL)
    if tool is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="nbprof-nsys-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    needed, free = _SIZE_FACTOR * report.stat().st_size, shutil.disk_usage(folder).free
    if free < needed:
        room = (
            f"{size_text(free)} are free in {folder.parent}, and its database may take"
            f" {size_text(needed)}."
        )
        raise ReadError(f"it was not exported: {room} {error.reason}", path=error.path)
    if progress:
        progress(f"{TOOL} exports {printable(report.name)}")
    result = folder / database_path.name
    _run([tool, "export", "--type", "sqlite", "--output", str(result), str(report)], result, error)
    return result


def _run(command: list[str], result: Path, error: RawError) -> None:
    """Runs the command, which writes `result`; raises ReadError if it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_LONGEST_S,
        )
    except OSError as failed:
        raise ReadError(
            f"{TOOL} could not be started: {failed.strerror}. {error.reason}", path=error.path
        ) from None
    except subprocess.TimeoutExpired:
        raise ReadError(
            f"{TOOL} export did not end within {_LONGEST_S // 60} minutes. {error.reason}",
            path=error.path,
        ) from None
    if done.returncode or not result.is_file():
        message = printable(" ".join((done.stderr or done.stdout).split())[-_LAST:])
        raise ReadError(
            f"{TOOL} export failed with code {done.returncode}: {message}", path=error.path
        )
