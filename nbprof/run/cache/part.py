"""One file of the cache: named values in checksummed blocks, written once and never changed.

A part is: 8 bytes that say what it is, blocks (each aligned to 64 bytes), a table of contents in
JSON, and 24 bytes that say where that table begins, how long it is and what its CRC-32 is. The
table comes last so that a part is written in one go, column by column; a part whose writer was
killed has no table and is no part. Each value has a block of JSON that describes it (see
`nbprof.run.cache.values`) and the blocks that this JSON refers to; a block is checked when it is
read.

Columns are read, not mapped: a mapped file that is cut short under its reader, or that another
machine removes from a network disk, would end the kernel; and the checksum has to see every byte
anyway.
"""

from __future__ import annotations

import io
import json
import os
import struct
import threading
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

import nbprof.run.cache.columns  # noqa: F401 -- makes frames known to values
from nbprof.run.cache.folder import open_private
from nbprof.run.cache.values import decode, encode

MAGIC = b"nbprof\x00\x01"
_END = struct.Struct("<QII8s")
_ALIGN = 64
_CHUNK = 1 << 22

Octets = npt.NDArray[np.uint8]


class Damaged(Exception):  # noqa: N818 -- never shown: what is damaged is made again
    """A part that is cut off, changed, or made by something else."""


class Writer:
    """Writes a part into an open file; `close` completes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = file.write(MAGIC)
        self._blocks: list[tuple[int, int, int]] = []
        self._values: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._at

    def add(self, name: str, value: object) -> None:
        """Writes one value.

        Raises
        ------
        Unstorable
            The value holds something that cannot be stored exactly; what was written of it is only
            lost room.
        OSError
            The disk is full or gone.
        """
        tree = encode(value, self._block)
        text = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode("ascii")
        self._values[name] = self._block(np.frombuffer(text, np.uint8))

    def close(self) -> None:
        """Writes the table of contents."""
        table = json.dumps(
            {"blocks": self._blocks, "values": self._values}, separators=(",", ":")
        ).encode("ascii")
        at = self._at
        self._file.write(table)
        self._at += len(table) + self._file.write(
            _END.pack(at, len(table), zlib.crc32(table), MAGIC)
        )

    def _block(self, data: Octets) -> int:
        padding = -self._at % _ALIGN
        self._file.write(bytes(padding))
        self._at += padding
        view = data.data
        crc = 0
        # In pieces, so that a column is still in the processor's cache when it is written after its
        # checksum.
        for first in range(0, len(view), _CHUNK):
            piece = view[first : first + _CHUNK]
            crc = zlib.crc32(piece, crc)
            self._file.write(piece)
        self._blocks.append((self._at, len(view), crc))
        self._at += len(view)
        return len(self._blocks) - 1


class Part:
    """The values of one file, each read when it is asked for.

    The file stays open: when another kernel removes it from the cache, this one still has it.

    Raises
    ------
    Damaged
        It is no complete part.
    OSError
        It cannot be opened, or is not this user's alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        descriptor = open_private(path)
        self._file = io.FileIO(descriptor, closefd=False)
        # Closed with the last profile that reads from it, without the complaint of a file that
        # nobody closed.
        self.close = weakref.finalize(self, os.close, descriptor)
        """Gives the file back; values that were read stay."""
        try:
            self.size = self._file.seek(0, 2)
            table = self._table()
            self._blocks: list[tuple[int, int, int]] = table["blocks"]
            self._values: dict[str, int] = table["values"]
        except (Damaged, ValueError, KeyError, TypeError) as error:
            self.close()
            raise Damaged(str(error)) from None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def load(self, name: str) -> Any:
        """The value of that name.

        Raises
        ------
        Damaged
            Its bytes are not those that were written.
        KeyError
            There is none.
        """
        block = self._values[name]
        try:
            return decode(json.loads(self._read(block).tobytes()), self._read)
        except Damaged:
            raise
        except Exception as error:
            # The checksum fits, but this installation cannot make the value again (a dtype of a
            # library that is gone).
            raise Damaged(f"{self.path}: {name}: {error}") from error

    def _table(self) -> Any:
        if self.size < len(MAGIC) + _END.size or bytes(self._bytes(0, len(MAGIC))) != MAGIC:
            raise Damaged("it does not start like a cache part")
        at, length, crc, magic = _END.unpack(bytes(self._bytes(self.size - _END.size, _END.size)))
        if magic != MAGIC or at + length + _END.size != self.size:
            raise Damaged("it is truncated")
        table = bytes(self._bytes(at, length))
        if zlib.crc32(table) != crc:
            raise Damaged("its table of contents was changed")
        return json.loads(table)

    def _read(self, block: int) -> Octets:
        at, length, crc = self._blocks[block]
        data = self._bytes(at, length)
        if zlib.crc32(data.data) != crc:
            raise Damaged(f"{self.path}: block {block} was changed")
        return data

    def _bytes(self, at: int, length: int) -> Octets:
        if at < 0 or length < 0 or at + length > self.size:
            raise Damaged(f"{self.path}: it is truncated")
        data = np.empty(length, np.uint8)
        view = data.data
        done = 0
        try:
            with self._lock:
                self._file.seek(at)
                while done < length:
                    got = self._file.readinto(view[done:])
                    if not got:
                        raise Damaged(f"{self.path}: it is truncated")
                    done += got
        except (OSError, ValueError) as error:
            # A network disk that is gone, or a part that was closed.
            raise Damaged(f"{self.path}: {error}") from error
        return data
