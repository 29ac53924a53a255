"""Named values in checksummed blocks: a file of the cache, or the answer of a worker.

    magic | blocks, aligned to 64 bytes | table of contents, JSON | offset, length and CRC-32 of it

The table comes last, so that a container is written in one go; one whose writer was killed has no
table and is not a container. Each value has a block that begins with the JSON that describes it
(see `nbprof.core.codec.values`) and goes on with its small arrays; a large array has a block of its
own. A block is read, and its checksum verified, when the value is asked for.

A packed container compresses each block, and stores equal large blocks once: the frames of one host
have columns in common.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

import nbprof.core.codec.frames  # noqa: F401 -- registers the types of pandas
from nbprof.core.codec.values import Octets, decode, encode
from nbprof.core.version import __version__

MAGIC = b"nbprof\x00\x04"
_END = struct.Struct("<QII8s")
_LENGTH = struct.Struct("<I")
_ALIGNMENT = 64
_CHUNK = 1 << 22
_SMALL = 1024
"""Bytes from which an array has a block of its own."""
_LEVEL = 1


class Damaged(Exception):  # noqa: N818 -- never shown: the cache computes the values again
    """A container that is truncated, changed, or something else altogether."""


class Writer:
    """Writes a container into a file; `close` completes it."""

    def __init__(self, file: IO[bytes], *, packed: bool = False) -> None:
        self._file = file
        self._packed = packed
        self._size = file.write(MAGIC)
        self._blocks: list[tuple[int, int, int]] = []
        self._values: dict[str, int] = {}
        self._numbers: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def add(self, name: str, value: object) -> None:
        """Write one value.

        Raises
        ------
        Unstorable
            A part of it cannot be stored exactly; blocks written before that are never read.
        OSError
            The disk is full or gone.
        """
        small: list[bytes] = []
        arrays: list[int | list[int]] = []
        offset = 0

        def put(data: Octets) -> int:
            nonlocal offset
            if len(data) < _SMALL:
                small.append(data.tobytes())
                arrays.append([offset, len(data)])
                offset += len(data)
            else:
                arrays.append(self._shared_block(data))
            return len(arrays) - 1

        description = _json([encode(value, put), arrays])
        content = b"".join([_LENGTH.pack(len(description)), description, *small])
        self._values[name] = self._block(np.frombuffer(content, np.uint8))

    def close(self) -> None:
        """Write the table of contents."""
        table = _json(
            {
                "version": __version__,
                "packed": self._packed,
                "blocks": self._blocks,
                "values": self._values,
            }
        )
        end = _END.pack(self._size, len(table), zlib.crc32(table), MAGIC)
        self._size += self._file.write(table + end)

    def _shared_block(self, data: Octets) -> int:
        if not self._packed:
            return self._block(data)
        digest = hashlib.sha256(data.data).digest()
        if digest not in self._numbers:
            self._numbers[digest] = self._block(data)
        return self._numbers[digest]

    def _block(self, data: Octets) -> int:
        if self._packed:
            data = np.frombuffer(zlib.compress(data.data, _LEVEL), np.uint8)
        self._size += self._file.write(bytes(-self._size % _ALIGNMENT))
        view = data.data
        crc = 0
        # In pieces: a piece is still in the processor's cache when it is written.
        for start in range(0, len(view), _CHUNK):
            piece = view[start : start + _CHUNK]
            crc = zlib.crc32(piece, crc)
            self._file.write(piece)
        self._blocks.append((self._size, len(view), crc))
        self._size += len(view)
        return len(self._blocks) - 1


class Container:
    """The values of a container, each decoded when it is asked for.

    Parameters
    ----------
    read : callable
        Reads some bytes, given their offset and number, into memory of their own.
    size : int
        Bytes of the container.

    Attributes
    ----------
    version : str
        The version of nbprof that wrote it.

    Raises
    ------
    Damaged
        It is not a complete container.
    """

    def __init__(self, read: Callable[[int, int], Octets], size: int) -> None:
        self.size = size
        self._read = read
        try:
            table = self._table()
            self.version: str = table["version"]
            self._packed: bool = table["packed"]
            self._blocks: list[tuple[int, int, int]] = table["blocks"]
            self._values: dict[str, int] = table["values"]
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(str(error)) from None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def load(self, name: str) -> Any:
        """Decode the value of a name.

        Raises
        ------
        Damaged
            Its bytes are not those that were written.
        KeyError
            There is no value of this name.
        """
        number = self._values[name]
        try:
            return self._decode(self._block(number))
        except Damaged:
            raise
        except Exception as error:
            # The checksum is right, but this installation cannot make the value again: for example
            # a dtype of a library that was removed.
            raise Damaged(f"{name}: {error}") from error

    def _decode(self, content: Octets) -> Any:
        (length,) = _LENGTH.unpack_from(content.data)
        first = _LENGTH.size + length
        tree, arrays = json.loads(content[_LENGTH.size : first].tobytes())

        def get(number: int) -> Octets:
            array = arrays[number]
            if isinstance(array, int):
                return self._block(array)
            offset, size = array
            # A copy: an array may outlive the other arrays of the value.
            return content[first + offset : first + offset + size].copy()

        return decode(tree, get)

    def _table(self) -> Any:
        if self.size < len(MAGIC) + _END.size or self._bytes(0, len(MAGIC)).tobytes() != MAGIC:
            raise Damaged("it does not start like a container")
        end = self._bytes(self.size - _END.size, _END.size)
        offset, length, crc, magic = _END.unpack(end.tobytes())
        if magic != MAGIC or offset + length + _END.size != self.size:
            raise Damaged("it is truncated")
        table = self._bytes(offset, length).tobytes()
        if zlib.crc32(table) != crc:
            raise Damaged("its table of contents was changed")
        return json.loads(table)

    def _block(self, number: int) -> Octets:
        offset, length, crc = self._blocks[number]
        data = self._bytes(offset, length)
        if zlib.crc32(data.data) != crc:
            raise Damaged(f"block {number} was changed")
        if self._packed:
            return np.frombuffer(bytearray(zlib.decompress(data.data)), np.uint8)
        return data

    def _bytes(self, offset: int, length: int) -> Octets:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise Damaged("it is truncated")
        return self._read(offset, length)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
