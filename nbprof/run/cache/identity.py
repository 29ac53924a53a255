"""Which entry of the cache belongs to which files: by what is in them, whatever they are called and
wherever they lie.

The key of an entry is a digest of the bytes of all files of the run, of their base names (a host
may be named after its file), of the options that change what is read, and of nbprof itself. Reading
and hashing a file again only to find that it is still the same would take most of the time that the
cache saves, so a place remembers the key beside what the file system says of each file (device,
inode, size, times). That is trusted only if the files were last changed clearly before they were
looked at: a change within the same tick of the clock would not show.
"""

from __future__ import annotations

import contextlib
import hashlib
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

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer, LocalFile, SourceFile, Stamp
from nbprof.core.packed import Unpacked
from nbprof.core.version import __version__
from nbprof.run.cache.folder import Folder

T = TypeVar("T")

LAYOUT = 2
"""Raised when the same values are stored in another way."""

# Folders of the package with the built front end, and with what Python makes of the modules.
_NOT_CODE = ("labextension", "static", "__pycache__")
_KEY = re.compile(r"[0-9a-f]+-[0-9a-f]{40}")
_SETTLED_NS = 2_000_000_000
_CHUNK = 8 << 20
_BLOCK = 1 << 20
_THREADS = 4


def stamp(piece: SourceFile) -> Stamp | None:
    """The stamp of a piece; None for one of which nothing is known but its bytes, or that cannot be
    looked at.
    """
    state = getattr(piece, "stamp", None)
    try:
        current = state() if state is not None else None
    except ReadError:
        # Whoever reads it says so.
        return None
    return current if isinstance(current, Stamp) else None


def digest(buffer: Buffer) -> str:
    """The digest of a file's bytes: SHA-256 over the SHA-256 of each 8 MiB, so that several threads
    can work on it.
    """
    data = buffer.data

    def one(offset: int) -> bytes:
        return hashlib.sha256(data[offset : offset + _CHUNK]).digest()

    return _of_all(_side_by_side(one, buffer.size))


def digest_of_file(file: LocalFile, stop: Callable[[], bool] | None = None) -> str | None:
    """The same of a file on a disk, without the memory that its bytes would take.

    With `stop`, which gives up where it says so (None), on one thread alone: nobody waits then, and
    a process that ends starts no threads.

    Raises
    ------
    ReadError, OSError
        It cannot be read.
    """

    def one(offset: int) -> bytes | None:
        chunk_digest = hashlib.sha256()
        left = _CHUNK
        with file.open() as opened:
            opened.seek(offset)
            while left and (some := opened.read(min(_BLOCK, left))):
                if stop is not None and stop():
                    return None
                chunk_digest.update(some)
                left -= len(some)
        return chunk_digest.digest()

    size = file.size or 0
    parts = (
        _side_by_side(one, size)
        if stop is None
        else [one(offset) for offset in range(0, size, _CHUNK)]
    )
    digests = [part for part in parts if part is not None]
    return _of_all(digests) if len(digests) == len(parts) else None


def _side_by_side(digest_at: Callable[[int], T], size: int) -> list[T]:
    starts = range(0, size, _CHUNK)
    if len(starts) > 1:
        # A process may have as many threads as it is allowed already.
        with (
            contextlib.suppress(RuntimeError),
            ThreadPoolExecutor(min(_THREADS, len(starts))) as pool,
        ):
            return list(pool.map(digest_at, starts))
    return list(map(digest_at, starts))


def _of_all(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def watched(piece: SourceFile) -> tuple[Watched, SourceFile]:
    """What keeps the digest of a piece, and the piece to be read instead of it. Of one that lies
    packed, the packed bytes are hashed.
    """
    if isinstance(piece, Unpacked):
        outer = Watched(piece.packed)
        return outer, replace(piece, packed=outer)
    outer = Watched(piece)
    return outer, outer


class Watched:
    """A piece that keeps the digest of what was read from it.

    Attributes
    ----------
    state : Stamp or None
        As it was before anything was read.
    settled : bool
        Whether any change since then shows in its stamp.
    digest : str or None
        None while it is not known: a file on a disk that is settled is hashed by `complete`, when
        nobody waits for it.
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
        """What errors name."""
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
        """A file, of which no digest is made."""
        return self._piece.open()

    def read(self) -> Buffer:
        """All bytes, once more from memory if they were looked at before.

        Raises
        ------
        ReadError
            As the piece says.
        """
        buffer, self._held = self._held or self._piece.read(), None
        if self.digest is None and not self._later:
            self.digest = digest(buffer)
        return buffer

    def look(self, *, hold: bool) -> None:
        """Makes the digest known before anything is read; with `hold`, bytes that had to be brought
        into memory stay for the next `read`.

        Raises
        ------
        ReadError
            As the piece says.
        """
        if isinstance(self._piece, LocalFile):
            with contextlib.suppress(OSError, ReadError):
                self.digest = digest_of_file(self._piece)
            return
        buffer = self.read()
        self._held = buffer if hold else None

    def forget(self) -> None:
        """Lets go of what `look` held, and of the digest: what is read next may be something
        else.
        """
        self._held = self.digest = None

    @property
    def holds(self) -> bool:
        """Whether the bytes that were looked at are those that will be read."""
        return self._held is not None

    def anew(self) -> None:
        """Has the digest of the next reading made at once."""
        self.forget()
        self._later = False

    def complete(self, stop: Callable[[], bool]) -> bool:
        """Makes the digest of what was read, if it is not known yet; False if the file has changed
        since, or `stop` says so.

        Raises
        ------
        ReadError, OSError
            The file is not there any more.
        """
        if self.digest is None and isinstance(self._piece, LocalFile):
            current = digest_of_file(self._piece, stop)
            if current is None or stamp(self._piece) != self.state:
                return False
            self.digest = current
        return self.digest is not None


@cache
def software() -> str:
    """A digest of all that decides what is made of the same bytes: nbprof's modules, and the
    libraries whose types are stored.

    Sizes and times of nbprof's own modules are in it, so that who works on nbprof never meets the
    results of yesterday's code.
    """
    root = Path(__file__).parents[2]
    modules: list[tuple[str, int, int]] = []
    below = [str(root)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    modules.append((entry.path, (state := entry.stat()).st_size, state.st_mtime_ns))
                elif entry.is_dir() and entry.name not in _NOT_CODE:
                    below.append(entry.path)
    modules.sort()
    parts = [LAYOUT, __version__, pd.__version__, np.__version__, sys.byteorder, modules]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def key(pieces: Sequence[Watched], options: dict[str, Any]) -> str | None:
    """The name of the entry of these pieces; None while the digest of one is not known."""
    if any(piece.digest is None for piece in pieces):
        return None
    read = [[piece.name, piece.digest] for piece in pieces]
    description = json.dumps([software(), options, read], sort_keys=True).encode()
    return f"{sum(piece.size or 0 for piece in pieces):x}-{hashlib.sha256(description).hexdigest()[:40]}"


class Place:
    """The files of a run as they lie somewhere, and the entry that they had when they were last
    read.

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
        """The entry of these files, if they are certainly unchanged since it was noted."""
        noted = self._folder.noted(self._name) if self._complete else None
        if not isinstance(noted, dict) or noted.get("stamps") != self._stamps:
            return None
        entry_key = noted.get("key")
        return entry_key if isinstance(entry_key, str) and _KEY.fullmatch(entry_key) else None

    def note(self, key: str) -> None:
        """Remembers the entry, where the files had been left alone for long enough when they were
        looked at.
        """
        if self._settled:
            self._folder.note(self._name, {"stamps": self._stamps, "key": key})
