"""What one host leaves of its profile, so that a run of many needs the events of none: a `Partial`, made where the bytes lie.

It holds the values that are combined over hosts, by name. No pickle: what comes back from another machine is only ever data, as in the
cache. It begins with the version of nbprof, and one of another version is not read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

import nbprof.run.cache.columns  # noqa: F401 -- makes frames known to values
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__
from nbprof.run.cache.values import Octets, decode, encode

_MAGIC = b"nbprof\x00\x02"
_HEAD = struct.Struct("<II")
_LEVEL = 1


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
            raise PartialError("a worker sent something that is no part of a profile: check that the same nbprof is installed there.")
        (length, packed), at = _HEAD.unpack_from(data, len(_MAGIC)), len(_MAGIC) + _HEAD.size
        head = json.loads(data[at : at + length])
        if head["version"] != __version__:
            raise PartialError(f"a worker has nbprof {head['version']} and this process {__version__}: install the same version in both.")
        self._values: dict[str, list[Any]] = head["values"]
        self._packed = memoryview(data)[at + length : at + length + packed]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        tree, blocks, at, length = self._values[name]
        content = zlib.decompress(self._packed[at : at + length])

        def block(number: int) -> Octets:
            first, size = blocks[number]
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
    table: dict[str, list[Any]] = {}
    content: list[bytes] = []
    at = 0
    for name, value in values.items():
        blocks: list[tuple[int, int]] = []
        parts: list[bytes] = []
        tree = encode(value, partial(_put, blocks, parts))
        content.append(zlib.compress(b"".join(parts), _LEVEL))
        table[name] = [tree, blocks, at, len(content[-1])]
        at += len(content[-1])
    head = json.dumps({"version": __version__, "values": table}, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_MAGIC, _HEAD.pack(len(head), at), head, *content])


def _put(blocks: list[tuple[int, int]], parts: list[bytes], data: Octets) -> int:
    blocks.append((sum(blocks[-1]) if blocks else 0, len(data)))
    parts.append(data.tobytes())
    return len(blocks) - 1
