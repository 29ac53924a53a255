"""Keys of the cache: an entry belongs to the content of files, not to their location.

The key of an entry is a digest of the bytes of all files of the run, of their base names (a host
may be named after its file), of the options that change what is read, and of nbprof itself. Reading
and hashing files again only to find them unchanged would take most of the time that the cache
saves, so the key is also stored by location, together with the state of each file in the file
system (device, inode, size, times). This is trusted only if the files had not changed for a while
when they were examined: a change within the same tick of the clock does not show in the state.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer, LocalFile, SourceFile, Stamp
from nbprof.core.packed import Unpacked
from nbprof.core.version import __version__
from nbprof.run.cache.folder import Folder

T = TypeVar("T")

LAYOUT = 3
"""Increased when the stored form of the same values changes."""

# Folders of the package with the built front end and with bytecode.
_NOT_CODE = ("labextension", "static", "__pycache__")
_KEY = re.compile(r"[0-9a-f]+-[0-9a-f]{40}")
_SETTLED_NS = 2_000_000_000
_CHUNK = 8 << 20
_BLOCK = 1 << 20
_THREADS = 4


def stamp(piece: SourceFile) -> Stamp | None:
    """The stamp of a piece; None if its kind has no stamp or it cannot be accessed."""
    if not hasattr(piece, "stamp"):
        return None
    try:
        current = piece.stamp()
    except ReadError:
        # Reading it reports the error.
        return None
    return current if isinstance(current, Stamp) else None


def digest(buffer: Buffer) -> str:
    """Digest of the bytes of a file: SHA-256 over the SHA-256 of each 8 MiB, in several threads."""
    data = buffer.data

    def chunk_digest(offset: int) -> bytes:
        return hashlib.sha256(data[offset : offset + _CHUNK]).digest()

    return _combined(_in_threads(chunk_digest, buffer.size))


def digest_of_file(file: LocalFile, stop: Callable[[], bool] | None = None) -> str | None:
    """The same digest of a file on a disk, without loading the file into memory.

    With `stop`, only one thread works, because a process that is ending cannot start others; the
    result is None once `stop` returns True.

    Raises
    ------
    ReadError, OSError
        It cannot be read.
    """

    def chunk_digest(offset: int) -> bytes | None:
        state = hashlib.sha256()
        left = _CHUNK
        with file.open() as opened:
            opened.seek(offset)
            while left and (block := opened.read(min(_BLOCK, left))):
                if stop is not None and stop():
                    return None
                state.update(block)
                left -= len(block)
        return state.digest()

    size = file.size or 0
    if stop is None:
        digests = _in_threads(chunk_digest, size)
    else:
        digests = [chunk_digest(offset) for offset in range(0, size, _CHUNK)]
    complete = [chunk for chunk in digests if chunk is not None]
    return _combined(complete) if len(complete) == len(digests) else None


def _in_threads(digest_at: Callable[[int], T], size: int) -> list[T]:
    starts = range(0, size, _CHUNK)
    if len(starts) > 1:
        # The process may have reached its limit of threads.
        with (
            contextlib.suppress(RuntimeError),
            ThreadPoolExecutor(min(_THREADS, len(starts))) as pool,
        ):
            return list(pool.map(digest_at, starts))
    return list(map(digest_at, starts))


def _combined(digests: list[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()


def watched(piece: SourceFile) -> tuple[Watched, SourceFile]:
    """A `Watched` for a piece, and the piece to be read instead of it. For a compressed file, the
    compressed bytes are hashed.
    """
    if isinstance(piece, Unpacked):
        outer = Watched(piece.packed)
        return outer, replace(piece, packed=outer)
    outer = Watched(piece)
    return outer, outer


class Watched:
    """A file that remembers the digest of the bytes read from it.

    Attributes
    ----------
    state : Stamp or None
        Before anything was read.
    settled : bool
        True if any change since then shows in the stamp.
    digest : str or None
        None while unknown: a settled file on a disk is hashed later, by `complete`.
    """

    def __init__(self, piece: SourceFile) -> None:
        self._piece = piece
        self._held: Buffer | None = None
        self.digest: str | None = None
        seen_ns = time.time_ns()
        self.state = stamp(piece)
        self.settled = self.state is not None and self.state.changed_ns < seen_ns - _SETTLED_NS
        self._later = self.settled and isinstance(piece, LocalFile)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._piece, name)

    @property
    def name(self) -> str:
        """Base name."""
        return self._piece.name

    @property
    def label(self) -> str:
        """The file in error messages."""
        return self._piece.label

    @property
    def size(self) -> int | None:
        """Bytes."""
        return self._piece.size

    @property
    def modified(self) -> float:
        """Seconds since 1970."""
        return self._piece.modified

    def head(self, count: int) -> bytes:
        """The first bytes."""
        return self._piece.head(count)

    def open(self) -> BinaryIO:
        """A file; reading it computes no digest."""
        return self._piece.open()

    def read(self) -> Buffer:
        """All bytes; those that `look` held are returned once.

        Raises
        ------
        ReadError
        """
        buffer, self._held = self._held or self._piece.read(), None
        if self.digest is None and not self._later:
            self.digest = digest(buffer)
        return buffer

    def look(self, *, hold: bool) -> None:
        """Compute the digest before anything is read; with `hold`, bytes that had to be loaded stay
        in memory for the next `read`.

        Raises
        ------
        ReadError
        """
        if isinstance(self._piece, LocalFile):
            with contextlib.suppress(OSError, ReadError):
                self.digest = digest_of_file(self._piece)
            return
        buffer = self.read()
        self._held = buffer if hold else None

    def forget(self) -> None:
        """Release the bytes that `look` held and the digest; the next read may give other bytes."""
        self._held = self.digest = None

    @property
    def holds(self) -> bool:
        """True if `read` returns the bytes that `look` has hashed."""
        return self._held is not None

    def anew(self) -> None:
        """Compute the digest during the next read, not later."""
        self.forget()
        self._later = False

    def complete(self, stop: Callable[[], bool]) -> bool:
        """Compute the digest if it is unknown; False if the file has changed, or if `stop` says so.

        Raises
        ------
        ReadError, OSError
            The file no longer exists.
        """
        if self.digest is None and isinstance(self._piece, LocalFile):
            current = digest_of_file(self._piece, stop)
            if current is None or stamp(self._piece) != self.state:
                return False
            self.digest = current
        return self.digest is not None


@cache
def software() -> str:
    """Digest of the code that computes cached values: modules of nbprof, and the libraries whose
    types are stored.

    It includes sizes and times of the modules, so developers of nbprof never see results of older
    code.
    """
    root = Path(__file__).parents[2]
    modules: list[tuple[str, int, int]] = []
    below = [str(root)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    state = entry.stat()
                    modules.append((entry.path, state.st_size, state.st_mtime_ns))
                elif entry.is_dir() and entry.name not in _NOT_CODE:
                    below.append(entry.path)
    modules.sort()
    for library in ("numpy", "pandas"):
        # Found, not imported.
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin is not None:
            state = os.stat(spec.origin)  # noqa: PTH116
            modules.append((spec.origin, state.st_size, state.st_mtime_ns))
    parts = [LAYOUT, __version__, sys.byteorder, modules]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def key(pieces: Sequence[Watched], options: dict[str, Any]) -> str | None:
    """The name of the entry of these pieces; None while a digest is unknown."""
    if any(piece.digest is None for piece in pieces):
        return None
    read = [[piece.name, piece.digest] for piece in pieces]
    description = json.dumps([software(), options, read], sort_keys=True).encode()
    size = sum(piece.size or 0 for piece in pieces)
    return f"{size:x}-{hashlib.sha256(description).hexdigest()[:40]}"


class Location:
    """The files of a run at some location, and the entry that they had when they were last read.

    Parameters
    ----------
    folder : Folder
    pieces : sequence of Watched
    options : dict
        Plain values that change what is read.
    """

    def __init__(self, folder: Folder, pieces: Sequence[Watched], options: dict[str, Any]) -> None:
        self._folder = folder
        self._stamps = [list(piece.state.facts) for piece in pieces if piece.state is not None]
        self._complete = len(self._stamps) == len(pieces)
        self._settled = all(piece.settled for piece in pieces)
        description = json.dumps(
            [
                software(),
                options,
                [p.label if "://" in p.label else str(Path(p.label).absolute()) for p in pieces],
            ],
            sort_keys=True,
        )
        self._name = hashlib.sha256(description.encode()).hexdigest()[:40]

    def key(self) -> str | None:
        """The entry of these files, if they are certainly unchanged since `note`."""
        noted = self._folder.noted(self._name) if self._complete else None
        if not isinstance(noted, dict) or noted.get("stamps") != self._stamps:
            return None
        entry_key = noted.get("key")
        if isinstance(entry_key, str) and _KEY.fullmatch(entry_key):
            return entry_key
        return None

    def note(self, key: str) -> None:
        """Store the entry, if the files had not changed for a while when they were examined."""
        if self._settled:
            self._folder.note(self._name, {"stamps": self._stamps, "key": key})
