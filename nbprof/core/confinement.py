"""Opening files that must be below certain folders, even if files are replaced by links meanwhile.

A path that was checked may lead elsewhere when it is opened. So it is resolved first, and then
opened component by component from the folder at its top, following no link. On Windows, which
cannot open a file relative to a folder, the opened file is compared with the one at the resolved
path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

_RELATIVE = {os.open, os.stat} <= os.supports_dir_fd and os.scandir in os.supports_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Passing through a folder needs no right to list it.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_LIST = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_REPLACED = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
_BECAME_LINK = "part of its path became a link while it was being opened"
_TRIES = 20


class ConfinedError(PermissionError):
    """The path leads out of the folders that may be read, or to a hidden name."""


class ReplacedError(OSError):
    """A part of the path was replaced while it was being opened."""


def real_path(path: str | os.PathLike[str]) -> str:
    """`os.path.realpath`, repeated if it raises `OSError` because a link is replaced meanwhile.

    Raises
    ------
    ReplacedError
        It kept changing.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    raise ReplacedError(errno.EAGAIN, "its folders are being changed", os.fspath(path))


@dataclass(frozen=True)
class Confinement:
    """Folders out of which nothing may be read.

    Attributes
    ----------
    folders : tuple of str
        Without links.
    hidden : bool
        Whether names below them may begin with a dot.
    name : str
        What messages call the folders.
    """

    folders: tuple[str, ...]
    hidden: bool = True
    name: str = "the folders that may be read"

    def open(self, path: str | os.PathLike[str], flags: int) -> int:
        """A descriptor of the file or folder that a path leads to.

        Raises
        ------
        ConfinedError, ReplacedError
            It is not below the folders, hidden, or was replaced meanwhile.
        OSError, ValueError
            As the system says.
        """
        folder, parts = self._resolved(path)
        if not _RELATIVE:
            return _compared(Path(folder, *parts), flags)
        with _parent(folder, parts) as (parent, name):
            return os.open(name, flags | _NO_LINK, dir_fd=parent)

    def stat(self, path: str | os.PathLike[str]) -> os.stat_result:
        """The state of the file or folder that a path leads to.

        Raises
        ------
        OSError, ValueError
            As `open`.
        """
        folder, parts = self._resolved(path)
        if not _RELATIVE:
            return Path(folder, *parts).lstat()
        with _parent(folder, parts) as (parent, name):
            state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            raise ReplacedError(errno.ELOOP, _BECAME_LINK, os.fspath(path))
        return state

    def check(self, path: str | os.PathLike[str]) -> None:
        """Refuse a path whose links lead elsewhere now; opening it checks once more.

        Raises
        ------
        OSError, ValueError
            As `open`.
        """
        self._resolved(path)

    def permits(self, path: str | os.PathLike[str]) -> bool:
        """True if `check` accepts a path."""
        try:
            self._resolved(path)
        except (OSError, ValueError):
            return False
        return True

    def _resolved(self, path: str | os.PathLike[str]) -> tuple[str, tuple[str, ...]]:
        """The permitted folder that a path is below, and the parts of the path relative to it."""
        real = PurePath(real_path(path))
        for folder in self.folders:
            # On another machine, such as a Dask worker, the folder may be behind a link.
            top = real_path(folder)
            if real.is_relative_to(top):
                parts = real.relative_to(top).parts
                if not self.hidden and any(part.startswith(".") for part in parts):
                    text = "leads to a hidden file: names that start with a dot are not opened"
                    raise ConfinedError(errno.EACCES, text, os.fspath(path))
                return top, parts
        text = (
            f"is a link that points outside {self.name}. Replace the link with a copy of the file"
        )
        raise ConfinedError(errno.EACCES, text, os.fspath(path))


def state_of(path: Path, confinement: Confinement | None) -> os.stat_result:
    """The state of a file or folder, confined or not.

    Raises
    ------
    OSError, ValueError
        As `Confinement.stat`, or as `os.stat`.
    """
    return path.stat() if confinement is None else confinement.stat(path)


@contextmanager
def scan(path: Path, confinement: Confinement | None) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a folder, valid only inside the `with` block. Their `path` may be the name
    alone.

    Raises
    ------
    OSError, ValueError
        As `Confinement.open`, or as `os.scandir`.
    """
    if confinement is None or not _RELATIVE:
        with os.scandir(path) as entries:
            if confinement is not None:
                confinement.check(path)
            yield entries
        return
    descriptor = confinement.open(path, _LIST)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


@contextmanager
def _parent(folder: str, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """A descriptor of the parent folder, reached without following links, and the last part."""
    descriptor = os.open(folder, _FOLDER)
    name = "."
    try:
        for name in parts[:-1]:
            below = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        name = parts[-1] if parts else "."
        yield descriptor, name
    except OSError as error:
        if error.errno in _REPLACED and _is_link(name, descriptor):
            raise ReplacedError(error.errno, _BECAME_LINK, str(Path(folder, *parts))) from None
        raise
    finally:
        os.close(descriptor)


def _is_link(name: str, parent: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        # It has been replaced once more.
        return True


def _compared(real: Path, flags: int) -> int:
    descriptor = os.open(real, flags)
    try:
        if real_path(real) != str(real) or not os.path.samestat(os.fstat(descriptor), real.lstat()):
            raise ReplacedError(errno.ELOOP, _BECAME_LINK, str(real))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
