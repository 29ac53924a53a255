"""How much of a place may be examined for one request: entries of folders, bytes of files, and
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from nbprof.core.units import size_text

T = TypeVar("T")

ENTRIES, BYTES, SECONDS = 200_000, 256 << 20, 60.0


class Budget:
    """What is left for one request; once something of it is used up, nothing more is looked at.

    Parameters
    ----------
    entries : int
        Files and folders that are listed.
    bytes : int
        Of the beginnings of files that are read.
    seconds : float
        From now on.
    stop : callable, optional
        Says whether nobody waits any more.
    clock : callable, optional
        Seconds.
    """

    def __init__(
        self,
        entries: int = ENTRIES,
        bytes: int = BYTES,
        seconds: float = SECONDS,
        *,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_entries, self._most_bytes, self._seconds = entries, bytes, seconds
        self._entries = self._bytes = 0
        self._stop, self._clock = stop, clock
        self._end = clock() + seconds

    @property
    def stopped(self) -> bool:
        """Whether nobody waits any more."""
        return self._stop()

    @property
    def over(self) -> bool:
        """Whether nothing more is to be looked at."""
        return self.stopped or bool(self.reason)

    @property
    def reason(self) -> str:
        """What is used up, as the beginning of a sentence; empty while nothing is."""
        if self._entries > self._most_entries:
            return f"more than {self._most_entries:,} files are below this folder"
        if self._bytes > self._most_bytes:
            limit = size_text(self._most_bytes)
            return f"more than {limit} had to be read to see which files here are profiles"
        if self._clock() > self._end:
            return f"looking through this folder took longer than {self._seconds:g} s"
        return ""

    def read(self, count: int) -> None:
        """Some bytes were read."""
        self._bytes += count

    def entries(self, listed: Iterable[T]) -> Iterator[T]:
        """Entries of a folder as long as there is something left."""
        for entry in islice(listed, max(self._most_entries - self._entries + 1, 0)):
            self._entries += 1
            if self.over:
                return
            yield entry
