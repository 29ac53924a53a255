"""One file of the cache: a container that is written once and never changed.

It is read, not mapped: a mapped file that is truncated under its reader, or that another machine
removes from a network disk, would end the kernel; and the checksum has to see every byte anyway.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from functools import partial
from pathlib import Path

import numpy as np

from nbprof.core.codec.container import Container, Damaged
from nbprof.core.codec.values import Octets
from nbprof.run.cache.folder import open_private


class Part(Container):
    """The values of one file of the cache.

    The file stays open: when another kernel removes it from the cache, this one can still read it.

    Raises
    ------
    Damaged
        It is not a complete part.
    OSError
        It cannot be opened, or is not this user's alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = _File(path)
        # With the last profile that reads from it, without a ResourceWarning.
        self.close = weakref.finalize(self, file.close)
        """Closes the file; values that were read stay."""
        try:
            super().__init__(file.read, file.size)
        except Damaged:
            self.close()
            raise


class _File:
    """Reads parts of a file on any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor = open_private(path)
        self._file = io.FileIO(self._descriptor, closefd=False)
        self.size = self._file.seek(0, os.SEEK_END)
        # At the end of the interpreter modules have no content any more.
        self.close = partial(os.close, self._descriptor)

    def read(self, offset: int, length: int) -> Octets:
        data = np.empty(length, np.uint8)
        view = data.data
        done = 0
        try:
            with self._lock:
                self._file.seek(offset)
                while done < length:
                    count = self._file.readinto(view[done:])
                    if not count:
                        raise Damaged(f"{self._path}: it is truncated")
                    done += count
        except (OSError, ValueError) as error:
            # The network disk is gone, or the part was closed.
            raise Damaged(f"{self._path}: {error}") from error
        return data
