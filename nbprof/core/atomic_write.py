"""Writing files that users ask for: a file is complete or is not written, and an error says why.

Content goes to a temporary file in the same folder, which then replaces the target, so a full disk
or an exception leaves the old file as it was. A replaced file keeps its mode and owner. Symbolic
links are followed: the file behind the link is replaced, the link stays. Devices and FIFOs are
written to directly. One of several hard links gets the new content; the others keep the old.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nbprof.core.errors import NbprofError
from nbprof.core.files import printable
from nbprof.core.units import size_text

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
# Resolving one of these gives the file that the descriptor was opened on; replacing that file would
# bypass the descriptor.
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|thread-self|\d+)/fd/\d+")


@contextmanager
def atomic_write(target: Path, what: str, size: int | None = None) -> Iterator[BinaryIO]:
    """Yield a binary file; when the block ends, its content is at `target`. If the block fails,
    `target` stays as it was.

    Parameters
    ----------
    target : Path
    what : str
        The content in one word, for messages: ``report``.
    size : int, optional
        Number of bytes, if known.

    Raises
    ------
    NbprofError
        The file could not be written. The message names the file and the remedy.
    """
    if not _is_a_name(target):
        raise NbprofError(
            f"{printable(str(target))}: the {what} could not be written: it is not a valid file"
            " name. Choose another."
        )
    try:
        with _opened(target) as file:
            yield file
    except OSError as error:
        reason = f"the {what} could not be written ({error.strerror or error})"
        raise NbprofError(f"{target}: {reason}. {_remedy(error, target, size)}") from error


def _is_a_name(target: Path) -> bool:
    try:
        return b"\0" not in os.fsencode(target)
    except UnicodeEncodeError:
        return False


def is_stream(target: Path) -> bool:
    """True if `target` is a device, a FIFO, a socket, a folder or an open descriptor."""
    if _DESCRIPTOR.fullmatch(str(target.absolute())):
        return True
    try:
        return not stat.S_ISREG(target.stat().st_mode)
    except OSError:
        return False


def _status(target: Path) -> os.stat_result | None:
    """State of the file; None if it, or the file behind a symbolic link, does not exist."""
    try:
        return target.stat()
    except FileNotFoundError:
        return None


@contextmanager
def _opened(target: Path) -> Iterator[BinaryIO]:
    if is_stream(target):
        with open(target, "wb", opener=_open_existing) as file:
            yield file
        return
    status = _status(target)
    if status is not None and not os.access(target, os.W_OK):
        # Renaming would replace a write-protected file.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    with _replacement(Path(os.path.realpath(target)), status) as file:
        yield file


def _open_existing(path: str, flags: int) -> int:
    # Never create: a device that has gone must not come back as a regular file.
    return os.open(path, flags & ~os.O_CREAT)


@contextmanager
def _replacement(path: Path, status: os.stat_result | None) -> Iterator[BinaryIO]:
    """A temporary file that becomes `path`, which has no symbolic link in it."""
    descriptor, part = _temporary(path, status)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            replaceable = part.parent == path.parent and (
                status is None or _same_owner(file.fileno(), status)
            )
        if not (replaceable and _renamed(part, path)):
            _overwrite(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _temporary(path: Path, status: os.stat_result | None) -> tuple[int, Path]:
    """A new file beside `path`, or in the temporary folder if only the file may be written to, but
    not its folder.
    """
    # The name does not contain that of the target, which may already have the maximum length.
    part = path.with_name(f".nbprof-{secrets.token_hex(6)}.part")
    # Readable by nobody who could not read the file that it replaces.
    mode = 0o666 if status is None else stat.S_IMODE(status.st_mode) & 0o777
    try:
        return (
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode),
            part,
        )
    except OSError as error:
        if status is None or error.errno not in _DENIED:
            raise
    descriptor, name = tempfile.mkstemp(prefix="nbprof-")
    return descriptor, Path(name)


def _same_owner(descriptor: int, status: os.stat_result) -> bool:
    """Give the new file the owner and the mode of the old one; False if this user may not."""
    if not hasattr(os, "fchown"):
        # Windows has neither.
        return True
    try:
        new = os.fstat(descriptor)
        if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    except PermissionError:
        return False
    return True


def _renamed(part: Path, path: Path) -> bool:
    """False if `path` is a mount point, as of a container, which cannot be replaced."""
    try:
        part.replace(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _overwrite(part: Path, path: Path) -> None:
    """Copy `part` into the existing file, which keeps its owner that way. Space is reserved first,
    so a full disk leaves it intact.
    """
    with part.open("rb") as source, open(path, "r+b", opener=_open_existing) as file:
        size = os.fstat(source.fileno()).st_size
        if size and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                # Other errors: this file system cannot reserve space.
                if error.errno in _FULL:
                    raise
        shutil.copyfileobj(source, file, 1 << 20)
        file.truncate()


def _remedy(error: OSError, target: Path, size: int | None) -> str:
    if error.errno in _FULL:
        needs = f"It needs {size_text(size)}: free" if size is not None else "Free"
        return f"{needs} some space, or choose a folder on another disk{_free(target)}."
    if error.errno == errno.EISDIR:
        empty = " An empty name is the working folder." if target == Path() else ""
        return f"It is a folder: add the name of a file.{empty}"
    if error.errno in (errno.ENXIO, errno.EPIPE):
        return "Nothing reads from it: choose a file, or - for standard output."
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return (
            f"There is no folder {Path(os.path.realpath(target)).parent}: create it, or choose"
            " another one."
        )
    if error.errno in _DENIED:
        return "Choose a folder that you can write to."
    return "Choose another folder."


def _free(target: Path) -> str:
    with contextlib.suppress(OSError):
        if not is_stream(target):
            return (
                f" ({size_text(shutil.disk_usage(Path(os.path.realpath(target)).parent).free)} are"
                " free here)"
            )
    return ""
