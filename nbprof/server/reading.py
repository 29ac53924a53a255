"""Progress of reading the files of a run."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, Protocol

from nbprof.core.files import LocalFile
from nbprof.formats.register import by_name
from nbprof.run.many import reads_separately

if TYPE_CHECKING:
    from nbprof.core.files import Buffer, RunFiles

_STEP = 0.01
"""Smallest reported progress."""


class Say(Protocol):
    """Reports progress."""

    def __call__(self, text: str, fraction: float | None = None) -> None:
        """Report a message, and the completed part of the work (0 to 1)."""


def followed(files: RunFiles, say: Say) -> tuple[RunFiles, Callable[[str], None]]:
    """The same files with progress, and the `progress` callable for their reader; both call `say`.

    Loading a byte is half of the work and decoding it the other half; if the reader of the format
    does not report decoding, loading is all of it. For files in archives or behind URLs, only the
    messages of the reader are reported.
    """
    # The progress of other processes is the number of files that they have read.
    if reads_separately(files) or not all(type(piece) is LocalFile for piece in files.files):
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
    """Progress of reading several files."""

    def __init__(self, files: int, total: int, decoded: bool, say: Say) -> None:
        self._total = total
        self._say = say
        self._text = ""
        self._reported = 0.0
        self._lock = threading.Lock()
        self._came = [0] * files
        self._decoded = [0] * files if decoded else None

    def sentence(self, text: str) -> None:
        """Set the message about the current work."""
        with self._lock:
            self._text = text
            self._tell(always=True)

    def came(self, file: int, count: int) -> None:
        """Add bytes of a file that are in memory."""
        with self._lock:
            self._came[file] += count
            self._tell()

    def decoded(self, file: int, offset: int) -> None:
        """Set the byte of a file that decoding has reached."""
        with self._lock:
            if self._decoded is not None:
                self._decoded[file] = max(self._decoded[file], offset)
            self._tell()

    def _tell(self, *, always: bool = False) -> None:
        parts = [self._came] if self._decoded is None else [self._came, self._decoded]
        # A file may grow while it is read, which is an error in the end.
        done = min(sum(map(sum, parts)) / max(len(parts) * self._total, 1), 1.0)
        if always or done >= self._reported + _STEP:
            self._reported = max(done, self._reported)
            self._say(self._text, self._reported)


@dataclass(frozen=True)
class _Followed(LocalFile):
    """A file that reports how much of it was read."""

    far: _Far = field(compare=False)
    number: int = field(compare=False)

    def open(self) -> BinaryIO:
        """The file; only `readinto` counts as progress, not a look at its beginning."""
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
    """Called by a reader that decodes while reading, with the byte it has reached."""

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer)
        self.came(count)
        return count
