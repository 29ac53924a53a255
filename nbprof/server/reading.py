"""Progress of reading the files of a run."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, Protocol

from nbprof.core.files import LocalFile
from nbprof.formats.register import by_name
from nbprof.run.many import apart

if TYPE_CHECKING:
    from nbprof.core.files import Buffer, RunFiles

_STEP = 0.01
"""The least that is told."""


class Say(Protocol):
    """Passes on a sentence, and how much is done of what it says (0 to 1)."""

    def __call__(self, text: str, fraction: float | None = None) -> None:
        """Passes it on."""


def followed(files: RunFiles, say: Say) -> tuple[RunFiles, Callable[[str], None]]:
    """The same files, and what to give their reader as its progress: `say` is told of each
    sentence, and of how far reading is.

    A byte counts half when it is in memory, and half when it is decoded. Where a file lies packed
    in another one, or elsewhere, nothing is known of that, and the sentences come alone; of a
    format whose reader does not say how far decoding is, the way from the disk is all.
    """
    # Files that are read by other processes are followed by how many of them have been.
    if apart(files) or not all(type(piece) is LocalFile for piece in files.files):
        return files, say
    far = _Far(
        len(files.files),
        sum(piece.size or 0 for piece in files.files),
        by_name(files.format).says_decoded,
        say,
    )
    pieces = tuple(
        _Followed(piece.path, far, i, confinement=piece.confinement)
        for i, piece in enumerate(files.files)
        if isinstance(piece, LocalFile)
    )
    return replace(files, files=pieces), far.sentence


class _Far:
    """How far the reading of some files is."""

    def __init__(self, files: int, total: int, decoded: bool, say: Say) -> None:
        self._total = total
        self._say = say
        self._text = ""
        self._told = 0.0
        self._lock = threading.Lock()
        self._came = [0] * files
        self._decoded = [0] * files if decoded else None

    def sentence(self, text: str) -> None:
        """What is being done."""
        with self._lock:
            self._text = text
            self._tell(always=True)

    def came(self, file: int, count: int) -> None:
        """So many more bytes of a file are in memory."""
        with self._lock:
            self._came[file] += count
            self._tell()

    def decoded(self, file: int, offset: int) -> None:
        """A file is decoded as far as this byte."""
        with self._lock:
            if self._decoded is not None:
                self._decoded[file] = max(self._decoded[file], offset)
            self._tell()

    def _tell(self, *, always: bool = False) -> None:
        parts = [self._came] if self._decoded is None else [self._came, self._decoded]
        # More may come than there was, of a file that grows; then it is refused in the end.
        done = min(sum(map(sum, parts)) / max(len(parts) * self._total, 1), 1.0)
        if always or done >= self._told + _STEP:
            self._told = max(done, self._told)
            self._say(self._text, self._told)


@dataclass(frozen=True)
class _Followed(LocalFile):
    """A file that says how much of it was read."""

    far: _Far = field(compare=False)
    number: int = field(compare=False)

    def open(self) -> BinaryIO:
        """The file; what is read into memory of somebody's own counts, a look at its beginning does
        not.
        """
        counted = _Counted(super().open().detach())  # type: ignore[attr-defined]
        counted.came = lambda count: self.far.came(self.number, count)
        counted.decoded = lambda offset: self.far.decoded(self.number, offset)
        return counted

    def read(self) -> Buffer:
        """All bytes."""
        buffer = super().read()
        buffer.decoded = lambda offset: self.far.decoded(self.number, offset)
        return buffer


class _Counted(io.BufferedReader):
    came: Callable[[int], None]
    decoded: Callable[[int], None]
    """Called by a reader that decodes the file as it comes, with the byte it has reached."""

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer)
        self.came(count)
        return count
