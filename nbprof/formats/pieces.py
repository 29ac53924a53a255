"""The files of a run, wherever they are: each can show its head and be read into memory of our own."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt

from nbprof.errors import ReadError

# Zero bytes behind the data, so that a varint or a word may be read at its very end.
PADDING = 16
_BLOCK = 1 << 24

Format = Literal["xspace", "chrome"]


class Buffer:
    """The bytes of one file in anonymous memory, with zero bytes behind them.

    A user's file is never mapped: if another process cut it short, the kernel of the notebook would be killed. Memory of our own can
    also be given back piece by piece while it is decoded.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, size + PADDING)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        """uint8[size + PADDING]"""

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Buffer:
        """A copy of some bytes."""
        out = cls(len(data))
        out._map[: len(data)] = bytes(data) if not isinstance(data, bytes) else data
        return out

    @property
    def data(self) -> memoryview:
        """The bytes, without those behind them."""
        return memoryview(self._map)[: self.size]

    def fill(self, file: BinaryIO) -> int:
        """Reads a file into the buffer; returns how many bytes came."""
        view, at = memoryview(self._map), 0
        while at < self.size:
            block = file.read(min(_BLOCK, self.size - at))
            if not block:
                break
            view[at : at + len(block)] = block
            at += len(block)
        return at

    def release(self, start: int, stop: int) -> None:
        """Gives the whole pages between two bytes back; they read as zero afterwards."""
        page = mmap.PAGESIZE
        first, last = -(-start // page) * page, stop // page * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


class Piece(Protocol):
    """One file of a run: on disk, in an archive, or behind a URL.

    Attributes
    ----------
    name : base name
    label : what errors and receipts name: a path, a URL, `runs.zip!/a/b.xplane.pb`
    size : bytes, None where unknown
    modified : seconds since 1970, 0.0 where unknown
    """

    @property
    def name(self) -> str:
        """Base name."""

    @property
    def label(self) -> str:
        """What errors name."""

    @property
    def size(self) -> int | None:
        """Bytes."""

    @property
    def modified(self) -> float:
        """Seconds since 1970."""

    def head(self, count: int) -> bytes:
        """The first bytes.

        Raises
        ------
        ReadError
        """

    def read(self) -> Buffer:
        """All bytes.

        Raises
        ------
        ReadError
            It cannot be opened, is empty, or changed while it was read.
        """


@dataclass(frozen=True)
class LocalFile:
    """A file on a disk of this machine."""

    path: Path

    @property
    def name(self) -> str:
        """Base name."""
        return self.path.name

    @property
    def label(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def size(self) -> int | None:
        """Bytes."""
        return self.path.stat().st_size

    @property
    def modified(self) -> float:
        """Seconds since 1970."""
        return self.path.stat().st_mtime

    def head(self, count: int) -> bytes:
        """The first bytes."""
        try:
            with self.path.open("rb") as file:
                return file.read(count)
        except OSError as error:
            raise ReadError(f"could not be opened: {error.strerror or error}", path=self.label) from error

    def read(self) -> Buffer:
        """All bytes."""
        try:
            before = self.path.stat()
            with self.path.open("rb") as file:
                out = Buffer(before.st_size)
                came = out.fill(file)
            after = self.path.stat()
        except OSError as error:
            raise ReadError(f"could not be opened: {error.strerror or error}", path=self.label) from error
        if came != before.st_size or (before.st_size, before.st_mtime_ns, before.st_ino) != (
            after.st_size,
            after.st_mtime_ns,
            after.st_ino,
        ):
            raise ReadError("changed while it was read; load it again when the profiler has finished writing.", path=self.label)
        return out


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, one a host, and the name of the run."""

    name: str
    folder: Path | str
    files: tuple[Piece, ...]
    modified: float
    format: Format = "xspace"
    notes: tuple[str, ...] = field(default=())
    """Lines for the receipt: files beside these that were not read, say."""
