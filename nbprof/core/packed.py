"""Reading of compressed files (gzip, bzip2, xz), and errors of compressed files and archives."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, Buffer, Growing, SourceFile, printable, too_large

DAMAGED = "the archive is damaged or truncated ({}). Copy it again, or pack the profile again."
# Exceptions of the libraries for damaged bytes, on purpose or not.
_BROKEN = (
    *(
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        OSError,
    ),
    *(ValueError, LookupError, OverflowError, RuntimeError),
)
_BLOCK = 1 << 22
_LONGEST_MESSAGE = 200
_RATIO, _SMALL = 100, 1 << 25
"""Traces shrink to a tenth or a fiftieth; a file that unpacks to more than so many times its size,
and to more than 32 MiB, is a bomb.
"""
_FEED = 1 << 9
PACKINGS = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"))
"""First bytes of compressed files."""


@contextlib.contextmanager
def in_archive(label: str) -> Iterator[None]:
    """Turn the exceptions of a damaged archive into a `ReadError` that names it."""
    try:
        yield
    except ReadError as error:
        if error.path:
            raise
        raise ReadError(error.reason, path=label, offset=error.offset) from None
    except NotImplementedError as error:
        raise ReadError(
            f"its compression is not supported here ({error}). Pack it as an ordinary zip or tar.",
            path=label,
        ) from None
    except _BROKEN as error:
        message = printable(str(error)) or type(error).__name__
        # A message may quote a large part of the damaged file.
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]}…"
        raise ReadError(DAMAGED.format(message), path=label) from None
    except Exception as error:
        # The exceptions of isal, which may not be installed.
        if not type(error).__module__.startswith(("isal", "igzip")):
            raise
        raise ReadError(DAMAGED.format(printable(str(error))), path=label) from None


def allowed(packed: int | None, limit: int, times: int = 1) -> int:
    """Bytes that a compressed file may unpack to: `times` the limit of the user; with the default
    limit, also in proportion to its size.
    """
    allowance = times * limit
    if packed is None or limit != LIMIT_BYTES:
        return allowance
    return min(allowance, max(_RATIO * packed, _SMALL))


def encrypted(label: str) -> ReadError:
    """The error for a member that needs a password."""
    return ReadError(
        "it is encrypted. Unpack it with its password and load its contents.", path=label
    )


def opened(file: IO[bytes], packing: str) -> BinaryIO:
    """The decompressed content of a file as a stream; isal reads gzip several times as fast."""
    if packing == "gzip":
        try:
            from isal import igzip

            return cast(BinaryIO, igzip.open(file, "rb"))  # type: ignore[no-untyped-call]
        except ImportError:
            return cast(BinaryIO, gzip.open(file, "rb"))
    return cast(BinaryIO, (bz2.open if packing == "bzip2" else lzma.open)(file, "rb"))


def read_all(file: IO[bytes], label: str, limit: int, size: int | None = None) -> Buffer:
    """The content of a stream in memory; `size` is the expected number of bytes, if known."""
    if size is not None and size > limit:
        raise too_large(label, limit)
    buffer = Buffer(size) if size is not None else None
    if buffer is not None:
        came = buffer.fill(cast(BinaryIO, file))
        if came != size:
            raise ReadError(DAMAGED.format(f"{came:,} of {size:,} bytes are there"), path=label)
        # The checksum is verified at the end of the stream.
        file.read(1)
        return buffer
    grown = Growing(label, limit)
    while block := file.read(_BLOCK):
        grown.add(block)
    return grown.buffer()


@dataclass(frozen=True)
class Unpacked:
    """A compressed file (gzip, bzip2, xz) with the interface of its content."""

    packed: SourceFile
    packing: str
    limit: int = LIMIT_BYTES

    @property
    def name(self) -> str:
        """Base name, without the suffix of the packing."""
        return re.sub(r"\.(gz|bz2|xz)$", "", self.packed.name, flags=re.IGNORECASE)

    @property
    def label(self) -> str:
        """Label of the packed file."""
        return self.packed.label

    @property
    def size(self) -> int | None:
        """Compressed size: the other one is known once the file is read."""
        return self.packed.size

    @property
    def modified(self) -> float:
        """Seconds since 1970."""
        return self.packed.modified

    def head(self, count: int) -> bytes:
        """The first bytes inside."""
        return unpack(self.packed.head(count), self.packing, count)

    def open(self) -> BinaryIO:
        """The content as a stream, which raises `ReadError` if it is damaged or too large."""
        packed = self.packed.open()
        with in_archive(self.label):
            file = opened(packed, self.packing)
        return io.BufferedReader(
            _Guarded(file, packed, self.label, allowed(self.packed.size, self.limit))
        )

    def read(self) -> Buffer:
        """All bytes inside."""
        packed = self.packed.read()
        with (
            in_archive(self.label),
            opened(io.BufferedReader(_Bytes(packed)), self.packing) as file,
        ):
            return read_all(file, self.label, allowed(packed.size, self.limit))


class _Guarded(io.RawIOBase):
    """The content of a compressed file up to a limit; damage is a `ReadError`."""

    def __init__(self, file: BinaryIO, packed: BinaryIO, label: str, limit: int) -> None:
        self._file = file
        self._packed = packed
        self._label = label
        self._limit = limit
        self._came = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        with in_archive(self._label):
            part = self._file.read(len(target))
        self._came += len(part)
        if self._came > self._limit:
            raise too_large(self._label, self._limit)
        target[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()


class _Bytes(io.RawIOBase):
    """A buffer as a raw seekable file."""

    def __init__(self, buffer: Buffer) -> None:
        self._data = buffer.data
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        if base + offset < 0:
            raise OSError("a seek before the beginning")
        self._position = base + offset
        return self._position

    def readinto(self, target: Any) -> int:
        part = self._data[self._position : self._position + len(target)]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)


def as_file(buffer: Buffer) -> BinaryIO:
    """A buffer as a seekable file, without a copy."""
    return io.BufferedReader(_Bytes(buffer))


def unpack(head: bytes, packing: str, limit: int) -> bytes:
    """The first bytes inside a compressed file, at most `limit`; fewer if it is damaged."""
    try:
        if packing == "gzip":
            return _inflated(head, limit)
        if packing == "bzip2":
            return bz2.BZ2Decompressor().decompress(head, limit)
        return lzma.LZMADecompressor(memlimit=1 << 28).decompress(head, limit)
    except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError):
        return b""


def _inflated(head: bytes, limit: int) -> bytes:
    """The content of gzip data before its first damage.

    Data is fed in small pieces, because an error loses everything that one call has unpacked.
    """
    unpacker, content = zlib.decompressobj(31), b""
    for offset in range(0, len(head), _FEED):
        try:
            content += unpacker.decompress(head[offset : offset + _FEED], limit - len(content))
        except zlib.error:
            break
        if len(content) >= limit:
            break
    return content
