"""What one host leaves of its profile, so that a run of many needs the events of none: a `Partial`,
made where the bytes lie.

It holds the values that are combined over hosts, by name. No pickle: what comes back from another
machine is only ever data, as in the cache. It begins with the version of nbprof, and one of another
version is not read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import nbprof.run.cache.columns  # noqa: F401 -- makes frames known to values
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__
from nbprof.run.cache.values import Octets, decode, encode

_MAGIC = b"nbprof\x00\x03"
_HEAD = struct.Struct("<II")
_LEVEL = 1
_LEAST_SHARED = 1024
"""Bytes of a block that is stored once, wherever it occurs: frames of one host have columns in
common.
"""


class PartialError(NbprofError):
    """What a worker sent is no partial of this version of nbprof."""


class Partial:
    """The values of one host.

    Parameters
    ----------
    data : bytes
        What `pack` gave.

    Raises
    ------
    PartialError
        It is none, or of another version of nbprof.
    """

    def __init__(self, data: bytes) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            raise PartialError(
                "a worker sent something that is not part of a profile: check that the same nbprof"
                " is installed there."
            )
        (length, packed), at = _HEAD.unpack_from(data, len(_MAGIC)), len(_MAGIC) + _HEAD.size
        head = json.loads(data[at : at + length])
        if head["version"] != __version__:
            raise PartialError(
                f"a worker has nbprof {head['version']} and this process {__version__}: install the"
                " same version in both."
            )
        self._values: dict[str, list[Any]] = head["values"]
        self._shared: list[list[int]] = head["shared"]
        self._packed = memoryview(data)[at + length : at + length + packed]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        tree, blocks, at, length = self._values[name]
        content = zlib.decompress(self._packed[at : at + length])

        def block(number: int) -> Octets:
            first, size = blocks[number]
            if size < 0:
                at, length = self._shared[first]
                return np.frombuffer(
                    bytearray(zlib.decompress(self._packed[at : at + length])), np.uint8
                )
            # Of its own: what is made of it may outlive the rest.
            return np.frombuffer(content, np.uint8, size, first).copy()

        return decode(tree, block)


def pack(values: Mapping[str, Any]) -> bytes:
    """Values by name as the bytes of a `Partial`.

    Raises
    ------
    Unstorable
        One is of a type that is not stored.
    """
    packer = _Packer()
    table: dict[str, list[Any]] = {}
    for name, value in values.items():
        blocks, parts = packer.begin()
        tree = encode(value, packer.put)
        table[name] = [tree, blocks, *packer.add(b"".join(parts))]
    head = {"version": __version__, "values": table, "shared": packer.shared}
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_MAGIC, _HEAD.pack(len(text), packer.size), text, *packer.content])


class _Packer:
    """Puts blocks one after the other, those of one value compressed together; a large one by
    itself, and once.
    """

    def __init__(self) -> None:
        self.content: list[bytes] = []
        self.size = 0
        self.shared: list[tuple[int, int]] = []
        self._known: dict[bytes, int] = {}

    def begin(self) -> tuple[list[tuple[int, int]], list[bytes]]:
        """The blocks of the next value, as (offset, size) or (place among what is shared, -1), and
        the bytes of the former.
        """
        self._blocks: list[tuple[int, int]] = []
        self._parts: list[bytes] = []
        self._at = 0
        return self._blocks, self._parts

    def put(self, data: Octets) -> int:
        """Store a block; gives its number."""
        octets = data.tobytes()
        if len(octets) < _LEAST_SHARED:
            self._blocks.append((self._at, len(octets)))
            self._parts.append(octets)
            self._at += len(octets)
        else:
            if octets not in self._known:
                self._known[octets] = len(self.shared)
                self.shared.append(self.add(octets))
            self._blocks.append((self._known[octets], -1))
        return len(self._blocks) - 1

    def add(self, octets: bytes) -> tuple[int, int]:
        """Compress and store; gives where it begins, and how long it is."""
        packed = zlib.compress(octets, _LEVEL)
        self.content.append(packed)
        self.size += len(packed)
        return self.size - len(packed), len(packed)
