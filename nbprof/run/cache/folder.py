"""The folder of the cache: location, size limit, contents.

    <folder>/entries/<bytes of the run>-<key>/*.part    values computed from the files of one run
    <folder>/places/<digest of the labels>.json         the entry that belongs to some files
    <folder>/places/<digest of the question>.json       the answer of a command about some files
    <folder>/new/                                       files that are being written

A file is written under a temporary name and renamed when it is complete; nothing is ever changed
in place, so several kernels need no lock. When the disk fails, values are not cached.

Whoever can write an entry can change what a profile shows. Therefore a file is only read if this
user owns it and the folders of the cache around it, and others cannot write to them. This holds
for root as well.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

SUFFIX = ".part"
MOST_BYTES = 4 << 30
MOST_OF_DISK = 0.05
_LEFTOVER_S = 24 * 3600
_MOST_ENTRIES = 1000
_MOST_PLACES = 4096
_MOST_NOTED = 1 << 22
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass
class Entry:
    """The cached values of one run: folder, bytes, and time of last use (seconds since 1970)."""

    path: Path
    bytes: int
    used: float


def enabled() -> bool:
    """False if `NBPROF_CACHE=0` turns the cache off."""
    return os.environ.get("NBPROF_CACHE", "").strip().lower() not in ("0", "off", "no", "false")


def location() -> Path:
    """The folder: `NBPROF_CACHE_DIR`, or the cache folder of this user on this platform."""
    chosen = os.environ.get("NBPROF_CACHE_DIR", "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("nbprof", appauthor=False))


def usable() -> Folder | None:
    """The folder of the cache; None if it is turned off, has no place, or is not this user's."""
    if not enabled():
        return None
    # No home folder, a package that is being updated: a profile opens without a cache.
    with contextlib.suppress(OSError, RuntimeError):
        folder = Folder(location())
        if folder.path.is_absolute() and folder.owned():
            return folder
    return None


class Folder:
    """The cache in one folder.

    Parameters
    ----------
    path : Path
        Created on the first write, with access for this user only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def limit(self) -> int:
        """Maximum size in bytes: `NBPROF_CACHE_SIZE` (bytes, or 500M, 2G), else the smaller of
        4 GiB and 5 % of the free disk.
        """
        text = os.environ.get("NBPROF_CACHE_SIZE", "").strip().upper()
        text = text.removesuffix("B").removesuffix("I")
        with contextlib.suppress(ValueError, OverflowError):
            return max(int(float(text.rstrip("KMGT")) * _UNITS.get(text[-1:], 1)), 0)
        above = self.path
        while not above.exists() and above != above.parent:
            above = above.parent
        try:
            free = shutil.disk_usage(above).free
        except OSError:
            return 0
        # The cache itself counts as free space, or the limit would shrink as it fills.
        return min(MOST_BYTES, int(MOST_OF_DISK * (free + sum(e.bytes for e in self.entries()))))

    def entries(self) -> list[Entry]:
        """All entries, least recently used first."""
        entries = []
        for path in _entries(self.path / "entries"):
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                entries.append(
                    Entry(path, sum(part.stat().st_size for part in _entries(path)), used)
                )
        return sorted(entries, key=lambda e: (e.used, e.path.name))

    def parts(self, key: str) -> list[Path]:
        """The files of an entry, none if it does not exist. Counts as use of the entry."""
        entry = self.path / "entries" / key
        if not _is_private_folder(entry):
            return []
        parts = sorted(path for path in _entries(entry) if path.suffix == SUFFIX)
        if parts:
            with contextlib.suppress(OSError):
                os.utime(entry)
        return parts

    def has_size(self, size: int) -> bool:
        """True if there is an entry of a run of that many bytes. Without one, the run is certainly
        not cached, and need not be read to find out.
        """
        return any(path.name.startswith(f"{size:x}-") for path in _entries(self.path / "entries"))

    def add(self, key: str, name: str, write: Callable[[IO[bytes]], None]) -> Path:
        """Add a file to an entry, then remove old entries beyond the limit.

        Raises
        ------
        OSError
            The disk is full or write-protected.
        """
        entry = self.path / "entries" / key
        with self._new() as (file, temporary):
            write(file)
            file.close()
            # Only now: with an empty entry, every file of that size would be hashed when opened.
            self._make(entry)
            temporary.replace(entry / f"{name}{SUFFIX}")
        self._tidy(entry)
        return entry / f"{name}{SUFFIX}"

    def room(self, key: str) -> int:
        """Bytes that can be added to an entry."""
        return self.limit() - sum(
            path.stat().st_size for path in _entries(self.path / "entries" / key)
        )

    def note(self, name: str, content: Any) -> None:
        """Write a small JSON file into `places`; errors are ignored."""
        with contextlib.suppress(OSError):
            if not self.owned():
                return
            self._make(self.path / "places")
            with self._new() as (file, temporary):
                file.write(json.dumps(content).encode())
                file.close()
                temporary.replace(self.path / "places" / f"{name}.json")

    def noted(self, name: str) -> Any:
        """The content that `note` wrote, or None."""
        try:
            with os.fdopen(open_private(self.path / "places" / f"{name}.json"), "rb") as file:
                return json.loads(file.read(_MOST_NOTED))
        except (OSError, ValueError, RecursionError):
            return None

    def clear(self) -> int:
        """Remove everything and return its size in bytes. Other kernels keep their open files."""
        before = sum(entry.bytes for entry in self.entries())
        for name in ("entries", "places", "new"):
            _remove(self.path / name)
        return before - sum(entry.bytes for entry in self.entries())

    def owned(self) -> bool:
        """True if only this user can write to it, or if it does not exist yet."""
        try:
            # The folder itself may be a link to a larger disk.
            if not is_private(self.path.stat()):
                return False
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return all(_is_private_folder(self.path / name) for name in ("entries", "places", "new"))

    def _make(self, path: Path) -> None:
        for each in (self.path, self.path / path.relative_to(self.path).parts[0], path):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def _new(self) -> Iterator[tuple[IO[bytes], Path]]:
        self._make(self.path / "new")
        temporary = self.path / "new" / os.urandom(16).hex()
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file, temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _tidy(self, just_written: Path) -> None:
        """Remove the least recently used entries beyond the limit, except the one just written, and
        leftovers of killed writers.
        """
        entries = self.entries()
        total, limit = sum(e.bytes for e in entries), self.limit()
        count = len(entries)
        for entry in entries:
            if total <= limit and count <= _MOST_ENTRIES:
                break
            if entry.path != just_written:
                _remove(entry.path)
                total -= entry.bytes
                count -= 1
        long_ago = time.time() - _LEFTOVER_S
        for path in _entries(self.path / "new"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    path.unlink()
        places = _entries(self.path / "places")
        for path in sorted(places, key=_age)[: max(len(places) - _MOST_PLACES, 0)]:
            with contextlib.suppress(OSError):
                path.unlink()


def is_private(state: os.stat_result) -> bool:
    """True if this user owns a file or folder and it is not writable by everybody."""
    if not hasattr(os, "geteuid"):
        # Windows protects the folder of a user from other users.
        return True
    return state.st_uid == os.geteuid() and not state.st_mode & stat.S_IWOTH


def open_private(path: Path) -> int:
    """A descriptor of a file of the cache; opening a FIFO does not block.

    Raises
    ------
    OSError
        It cannot be opened, is not a regular file, or other users can write to it.
    """
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_CLOEXEC", 0)
    )
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and is_private(state):
        return descriptor
    os.close(descriptor)
    raise PermissionError(
        errno.EPERM, "it is not a file that only this user can write to", str(path)
    )


def _is_private_folder(path: Path) -> bool:
    """True also if it does not exist."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and is_private(state)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> None:
    """Remove a folder and its content as far as possible (Windows keeps open files)."""
    shutil.rmtree(path, ignore_errors=True)
