"""The files of a run, wherever they are: each can return its first bytes or be read into memory."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from nbprof.core.confinement import ConfinedError, Confinement, state_of
from nbprof.core.errors import ReadError
from nbprof.core.receipt import Note, warning
from nbprof.core.units import join_some, size_text

# Zero bytes after the data, so that a varint or a word can be read at its very end.
PADDING = 16
BLOCK = 1 << 24
_HUGE = 1 << 22
LIMIT_BYTES = 1 << 34
"""Default limit for a decompressed file: 16 GiB. A file of a few MB can claim any size."""

# Private memory: pages of a shared mapping stay with the kernel when they are released.
_ANONYMOUS: dict[str, int] = {}
if hasattr(mmap, "MAP_ANONYMOUS"):
    _ANONYMOUS["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def _memory(size: int) -> mmap.mmap | bytearray:
    """Zero bytes in anonymous memory, or, where a system maps none (Pyodide), in a bytearray."""
    try:
        return mmap.mmap(-1, size, **_ANONYMOUS)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        return bytearray(size)


class Buffer:
    """The bytes of one file in anonymous memory, followed by zero bytes.

    A user's file is never mapped: if another process truncated it, the kernel of the notebook would
    be killed. Anonymous memory can also be released piece by piece while it is decoded.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = _memory(size + PADDING)
        mapped = self._map
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_HUGEPAGE") and size >= _HUGE:
            # 500 times fewer pages save half the time of reading. Not every kernel supports it.
            with contextlib.suppress(OSError):
                mapped.madvise(mmap.MADV_HUGEPAGE)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        """uint8[size + PADDING]"""
        self.decoded: Callable[[int], None] | None = None
        """Called by the reader, on any thread, with the byte that decoding has reached."""

    def reached(self, offset: int) -> None:
        """Report that decoding has reached a byte."""
        if self.decoded is not None:
            self.decoded(offset)

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Buffer:
        """A copy of some bytes."""
        buffer = cls(len(data))
        buffer._map[: len(data)] = bytes(data)
        return buffer

    @property
    def data(self) -> memoryview:
        """The bytes without the padding."""
        return memoryview(self._map)[: self.size]

    def fill(self, file: BinaryIO) -> int:
        """Read a file into the buffer and return the number of bytes read."""
        view, offset = memoryview(self._map), 0
        # Into the buffer directly if the file can: each byte is copied once less.
        readinto = getattr(file, "readinto", None)
        while offset < self.size:
            part = view[offset : min(offset + BLOCK, self.size)]
            if readinto is not None:
                came = readinto(part)
            else:
                block = file.read(len(part))
                came = len(block)
                part[:came] = block
            if not came:
                break
            offset += came
        return offset

    def release(self, start: int, stop: int) -> None:
        """Release the full pages between two bytes; they read as zero afterwards."""
        page = mmap.PAGESIZE
        first, last = -(-start // page) * page, stop // page * page
        if not isinstance(self._map, mmap.mmap):
            return
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


class Growing:
    """A buffer for an unknown number of bytes.

    Raises
    ------
    ReadError
        More than `limit` bytes were added; `label` names the file.
    """

    _PART = 1 << 26

    def __init__(self, label: str, limit: int) -> None:
        self.size = 0
        self._label = label
        self._limit = limit
        # Mappings, not bytes objects: the allocator may keep freed memory, but no closed mapping.
        self._parts: list[mmap.mmap | bytearray] = []

    def room(self, count: int) -> None:
        """Raise `ReadError` if `count` more bytes exceed the limit."""
        if self.size + count > self._limit:
            raise too_large(self._label, self._limit)

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self.room(len(data))
        view = memoryview(data)
        while view:
            offset = self.size % self._PART
            if not offset:
                self._parts.append(_memory(self._PART))
            count = min(len(view), self._PART - offset)
            self._parts[-1][offset : offset + count] = view[:count]
            self.size += count
            view = view[count:]

    def buffer(self) -> Buffer:
        """The bytes as one buffer; this object is empty afterwards."""
        buffer = Buffer(self.size)
        for offset in range(0, self.size, self._PART):
            part = self._parts.pop(0)
            count = min(self._PART, self.size - offset)
            buffer._map[offset : offset + count] = memoryview(part)[:count]
            if isinstance(part, mmap.mmap):
                part.close()
        self.size = 0
        return buffer


def too_large(label: str, limit: int) -> ReadError:
    """The error for a file that decompresses to more than the limit."""
    return ReadError(
        f"it decompresses to more than {size_text(limit)}, the limit that keeps a damaged or"
        " malicious file from filling the memory. If it is meant to be this large, raise the"
        " limit: nbprof.load(..., limit_bytes=...).",
        path=label,
    )


def printable(name: str) -> str:
    """A file name for messages, with replacement characters for what cannot be printed."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


class SourceFile(Protocol):
    """One file of a run: on disk, in an archive, or behind a URL."""

    @property
    def name(self) -> str:
        """Base name."""

    @property
    def label(self) -> str:
        """Name in errors and receipts."""

    @property
    def size(self) -> int | None:
        """Bytes; None if unknown."""

    @property
    def modified(self) -> float:
        """Seconds since 1970; 0.0 if unknown."""

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
            It cannot be opened, is empty, or changed while being read.
        """

    def open(self) -> BinaryIO:
        """A seekable file.

        Raises
        ------
        ReadError
        """


@dataclass(frozen=True)
class Stamp:
    """State of a file that changes with its content, known without reading it.

    Attributes
    ----------
    facts : tuple
        Sizes, times, numbers and checksums from the file system or storage.
    changed_ns : int
        Time of the last change, ns since 1970: another change within the same tick of the clock
        does not show in the facts. 0 if the facts include a checksum of the content.
    """

    facts: tuple[str | int, ...]
    changed_ns: int


@dataclass(frozen=True)
class LocalFile:
    """A file on a disk of this machine.

    Attributes
    ----------
    path : Path
    confinement : Confinement or None
        The folders that it must be in whenever it is opened; None for no restriction.
    """

    path: Path
    confinement: Confinement | None = field(default=None, compare=False, kw_only=True)

    def sibling(self, name: str) -> LocalFile:
        """A file of that name in the same folder."""
        return LocalFile(self.path.with_name(name), confinement=self.confinement)

    @property
    def name(self) -> str:
        """Base name."""
        return printable(self.path.name)

    @property
    def label(self) -> str:
        """The path."""
        return printable(str(self.path))

    @property
    def size(self) -> int | None:
        """Bytes."""
        return self.stat().st_size

    @property
    def modified(self) -> float:
        """Seconds since 1970."""
        return self.stat().st_mtime

    def stat(self) -> os.stat_result:
        """State of the file in the file system.

        Raises
        ------
        ReadError
        """
        try:
            return state_of(self.path, self.confinement)
        except (OSError, ValueError) as error:
            raise could_not_open(error, self.path) from None

    def stamp(self) -> Stamp:
        """State of the file: device, inode, size and times."""
        now = self.stat()
        facts = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        return Stamp(facts, max(now.st_mtime_ns, now.st_ctime_ns))

    def open(self) -> BinaryIO:
        """The file; a pipe, socket, device or folder is an error at once."""
        try:
            # Without O_NONBLOCK, opening a pipe waits until a process writes into it.
            flags = (
                os.O_RDONLY
                | getattr(os, "O_NONBLOCK", 0)
                | getattr(os, "O_BINARY", 0)
                | getattr(os, "O_CLOEXEC", 0)
            )
            open_path = os.open if self.confinement is None else self.confinement.open
            descriptor = open_path(self.path, flags)
        except (OSError, ValueError) as error:
            raise could_not_open(error, self.path) from None
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise no_file(mode, self.label)
        return os.fdopen(descriptor, "rb")

    def head(self, count: int) -> bytes:
        """The first bytes."""
        try:
            with self.open() as file:
                return file.read(count)
        except OSError as error:
            raise could_not_open(error, self.path) from None

    def read(self) -> Buffer:
        """All bytes."""
        with self.open() as file:
            before = os.fstat(file.fileno())
            buffer = Buffer(before.st_size)
            try:
                came = buffer.fill(file)
            except OSError as error:
                raise could_not_open(error, self.path) from None
            more = bool(file.read(1))
            after = os.fstat(file.fileno())
        now = self.stat()
        if more or came != before.st_size or not _same(before, after) or not _same(before, now):
            raise ReadError(
                "changed while being read; load it again when the profiler has finished writing.",
                path=self.label,
            )
        return buffer


def _same(first: os.stat_result, second: os.stat_result) -> bool:
    fields = ("st_size", "st_mtime_ns", "st_ino")
    return all(getattr(first, name) == getattr(second, name) for name in fields)


def could_not_open(error: Exception, path: Path) -> ReadError:
    """The error for a file or folder of this machine that could not be opened."""
    label = printable(str(path))
    if isinstance(error, ValueError):
        return ReadError(
            "the path contains a NUL character, which file names cannot have.", path=label
        )
    if isinstance(error, ConfinedError):
        return ReadError(f"{error.strerror}.", path=label)
    if isinstance(error, PermissionError):
        return ReadError(
            "permission denied. Ask its owner for read permission, or copy it.", path=label
        )
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        # OSError: it is not a link, or was just replaced.
        with contextlib.suppress(OSError):
            target = printable(os.readlink(path))  # noqa: PTH115 - as the link has it
            return ReadError(f"the link points to {target}, which does not exist.", path=label)
        return ReadError(
            f"there is no such file or folder (the working directory is {Path.cwd()}).", path=label
        )
    reason = getattr(error, "strerror", None) or error
    return ReadError(f"could not be read: {reason}.", path=label)


def no_file(mode: int, label: str) -> ReadError:
    """The message for a path that is not a file."""
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    name = next((name for is_kind, name in kinds if is_kind(mode)), "no ordinary file")
    return ReadError(f"this is {name}, not a file. Write the profile to a file first.", path=label)


@dataclass(frozen=True)
class Missing:
    """A file that is missing from the run, with the reason."""

    file: str
    reason: str


def about_skipped(unread: Sequence[Missing], *, listed: bool) -> Note:
    """The note on files of hosts that cannot be read, at least one.

    With `listed`, p.pods.missing has them all.
    """
    first = unread[0]
    if len(unread) == 1:
        text = "A file was skipped, and the figures do not include its host"
        return warning("skipped_files", f"{text}: {first.file}: {first.reason}")
    names = join_some([file.file for file in unread], 3)
    text = (
        f"{len(unread):,} files were skipped, and the figures do not include their hosts: {names}."
        f" The first: {first.reason}"
    )
    if listed:
        text += " All are in p.pods.missing."
    return warning("skipped_files", text)


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, one per host."""

    name: str
    folder: Path | str
    files: tuple[SourceFile, ...]
    modified: float
    format: str
    """Name of their `Format`."""
    notes: tuple[Note, ...] = field(default=())
    """Notes for the receipt, such as files next to these that were not read."""
    limit_bytes: int = LIMIT_BYTES
    """Limit for decompressing one of the files."""
    sidecar: SourceFile | None = None
    """The file that nbprof wrote next to the others when it recorded them."""
    dated: bool = False
    """True if `modified` is the time of the recording; else it is the last change of a file."""
    newest_of: int = 1
    """Number of runs of which this one was chosen because it is the newest."""
    copies: tuple[Missing, ...] = field(default=())
    """Files of hosts that turned out to be copies of other files of the run."""
    unread: tuple[Missing, ...] = field(default=())
    """Files of hosts that cannot be read."""

    @property
    def with_sidecar(self) -> tuple[SourceFile, ...]:
        """The files, and the sidecar if there is one."""
        if self.sidecar is None:
            return self.files
        return (*self.files, self.sidecar)


def some(files: RunFiles, numbers: Sequence[int]) -> RunFiles:
    """A run of some of the files."""
    return replace(
        files,
        files=tuple(files.files[number] for number in numbers),
        notes=(),
        copies=(),
        unread=(),
    )


def copies_of(files: Sequence[SourceFile], head: int) -> dict[int, SourceFile]:
    """The earlier file with the same bytes, by the `id` of each copy.

    The first `head` bytes distinguish most files.
    """
    original: dict[int, SourceFile] = {}
    if len(files) < 2:
        return original
    of_known_size = [file for file in files if file.size is not None]
    for same_size in _alike(of_known_size, lambda file: file.size):
        # The head contains times, so hosts rarely have equal ones: few files are read.
        for same_head in _alike(same_size, lambda file: file.head(head)):
            for first, *copies in _alike(same_head, _digest):
                for copy in copies:
                    original[id(copy)] = first
    return original


def _digest(file: SourceFile) -> bytes:
    return hashlib.blake2b(file.read().data).digest()


def _alike(
    files: Sequence[SourceFile], feature: Callable[[SourceFile], object]
) -> list[list[SourceFile]]:
    """Groups of two or more files with the same feature."""
    groups: dict[object, list[SourceFile]] = {}
    for file in files:
        groups.setdefault(feature(file), []).append(file)
    return [group for group in groups.values() if len(group) > 1]
