"""The values of some hosts that a worker sends to the process that combines them, so that this one
needs no events: a packed container. It is only ever read by the version of nbprof that wrote it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from nbprof.core.codec.container import Container, Damaged, Writer
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__


class PartialError(NbprofError):
    """The answer of a worker is not a partial of this version of nbprof."""


class Partial:
    """The values of one group of hosts, by name.

    Parameters
    ----------
    data : bytes
        As `pack` returned them.

    Raises
    ------
    PartialError
        The bytes are something else, or of another version of nbprof.
    """

    def __init__(self, data: bytes) -> None:
        octets = np.frombuffer(data, np.uint8)
        try:
            self._container = Container(
                lambda offset, length: octets[offset : offset + length], len(octets)
            )
        except Damaged:
            raise PartialError(
                "a worker sent something that is not part of a profile: check that the same nbprof"
                " is installed there."
            ) from None
        version = self._container.version
        if version != __version__:
            raise PartialError(
                f"a worker has nbprof {version} and this process {__version__}: install the same"
                " version in both."
            )

    def __contains__(self, name: str) -> bool:
        return name in self._container

    def __getitem__(self, name: str) -> Any:
        return self._container.load(name)


def pack(values: Mapping[str, Any]) -> bytes:
    """Values by name as the bytes of a `Partial`.

    Raises
    ------
    Unstorable
        A value has a type that is not stored.
    """
    file = io.BytesIO()
    writer = Writer(file, packed=True)
    for name, value in values.items():
        writer.add(name, value)
    writer.close()
    return file.getvalue()
