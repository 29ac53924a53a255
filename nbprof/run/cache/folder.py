"""The cache's folder: where it is, how large it may get, what is in it, and how a file gets in.

    <folder>/entries/<bytes of the run>-<key>/*.part    what was made of the files of one run
    <folder>/places/<digest of the labels>.json         which entry belongs to which files, see `nbprof.run.cache.identity`
    <folder>/new/                                       files that are being written

Files are written under a name of their own and renamed when they are whole; nothing is ever changed
in place, so several kernels need no lock. Every failure of the disk means only that something is
not kept.

Whoever writes an entry decides what is said of a profile. So nothing is read, by root either,
unless this user owns the file and the folders of the cache that it is in, and others may not write
to them.
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
    """What is kept of one run: its folder, its bytes, and when it was last used (seconds since
    1970).
    """

    path: Path
    bytes: int
    used: float


def enabled() -> bool:
    """Whether there is a cache: `NBPROF_CACHE=0` turns it off."""
    return os.environ.get("NBPROF_CACHE", "").strip().lower() not in ("0", "off", "no", "false")


def location() -> Path:
    """The folder: `NBPROF_CACHE_DIR`, or the platform's place for the caches of this user."""
    chosen = os.environ.get("NBPROF_CACHE_DIR", "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("nbprof", appauthor=False))


class Folder:
    """The cache in one folder.

    Parameters
    ----------
    path : Path
        It is made, for this user alone, when something is first written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def limit(self) -> int:
        """How many bytes it may hold: `NBPROF_CACHE_SIZE` (bytes, or 500M, 2G), else 4 GiB or 5 %
        of the free disk, whichever is less.
        """
        text = (
            os.environ.get("NBPROF_CACHE_SIZE", "")
            .strip()
            .upper()
            .removesuffix("B")
            .removesuffix("I")
        )
        with contextlib.suppress(ValueError, OverflowError):
            return max(int(float(text.rstrip("KMGT")) * _UNITS.get(text[-1:], 1)), 0)
        above = self.path
        while not above.exists() and above != above.parent:
            above = above.parent
        try:
            free = shutil.disk_usage(above).free
        except OSError:
            return 0
        # What the cache itself holds counts as free, or it would shrink as it fills.
        return min(MOST_BYTES, int(MOST_OF_DISK * (free + sum(e.bytes for e in self.entries()))))

    def entries(self) -> list[Entry]:
        """What is in it, longest unused first."""
        entries = []
        for path in _inside(self.path / "entries"):
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                entries.append(
                    Entry(path, sum(part.stat().st_size for part in _inside(path)), used)
                )
        return sorted(entries, key=lambda e: (e.used, e.path.name))

    def parts(self, key: str) -> list[Path]:
        """The files of an entry; none where there is no such entry. Counts as use of it."""
        entry = self.path / "entries" / key
        if not _is_private_folder(entry):
            return []
        parts = sorted(path for path in _inside(entry) if path.suffix == SUFFIX)
        if parts:
            with contextlib.suppress(OSError):
                os.utime(entry)
        return parts

    def has_size(self, size: int) -> bool:
        """Whether there is an entry of a run of that many bytes; without one, the run need not be
        read to know that it is not there.
        """
        return any(path.name.startswith(f"{size:x}-") for path in _inside(self.path / "entries"))

    def add(self, key: str, name: str, write: Callable[[IO[bytes]], None]) -> Path:
        """Adds a file to an entry, then makes room.

        Raises
        ------
        OSError
            The disk is full, or nothing may be written there.
        """
        entry = self.path / "entries" / key
        with self._new() as (file, temporary):
            write(file)
            file.close()
            # Only now: an entry of nothing would have each file of that size hashed when it is
            # opened.
            self._make(entry)
            temporary.replace(entry / f"{name}{SUFFIX}")
        self._tidy(entry)
        return entry / f"{name}{SUFFIX}"

    def room(self, key: str) -> int:
        """How many bytes an entry may still grow by."""
        return self.limit() - sum(
            path.stat().st_size for path in _inside(self.path / "entries" / key)
        )

    def note(self, name: str, content: Any) -> None:
        """Writes a small JSON file into `places`; failing is silent."""
        with contextlib.suppress(OSError):
            if not self.owned():
                return
            self._make(self.path / "places")
            with self._new() as (file, temporary):
                file.write(json.dumps(content).encode())
                file.close()
                temporary.replace(self.path / "places" / f"{name}.json")

    def noted(self, name: str) -> Any:
        """What `note` wrote, or None."""
        try:
            with os.fdopen(open_private(self.path / "places" / f"{name}.json"), "rb") as file:
                return json.loads(file.read(_MOST_NOTED))
        except (OSError, ValueError, RecursionError):
            return None

    def clear(self) -> int:
        """Removes everything, and returns how many bytes that were. Other kernels keep what they
        have open.
        """
        before = sum(entry.bytes for entry in self.entries())
        for name in ("entries", "places", "new"):
            _remove(self.path / name)
        return before - sum(entry.bytes for entry in self.entries())

    def owned(self) -> bool:
        """Whether it is this user's alone, or not there yet; what others may have put there is not
        read.
        """
        try:
            # The folder itself may be a link, to a larger disk.
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
        """Removes what was longest unused beyond the limit, never the entry just written; and what
        killed writers left.
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
        for path in _inside(self.path / "new"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    path.unlink()
        places = _inside(self.path / "places")
        for path in sorted(places, key=_age)[: max(len(places) - _MOST_PLACES, 0)]:
            with contextlib.suppress(OSError):
                path.unlink()


def is_private(state: os.stat_result) -> bool:
    """Whether this user owns a file or folder, and not everybody may write to it."""
    if not hasattr(os, "geteuid"):
        # Windows keeps the folder of a user from others.
        return True
    return state.st_uid == os.geteuid() and not state.st_mode & stat.S_IWOTH


def open_private(path: Path) -> int:
    """A descriptor of a file of the cache; a FIFO in its place is not waited for.

    Raises
    ------
    OSError
        It cannot be opened, is no regular file, or is not this user's alone.
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
    """True also where it is not there."""
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


def _inside(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> None:
    """Removes a folder and what is in it, as far as that is allowed (Windows keeps files that are
    open).
    """
    shutil.rmtree(path, ignore_errors=True)
