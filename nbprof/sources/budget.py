"""Limits for examining a place per request: entries of folders, bytes of files, and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from nbprof.core.units import size_text

T = TypeVar("T")

ENTRIES, BYTES, SECONDS = 200_000, 256 << 20, 60.0


class Budget:
    """The remaining budget of one request; once it is exhausted, nothing more is examined.

    Parameters
    ----------
    entries : int
        Number of listed files and folders.
    bytes : int
        Bytes read from the beginnings of files.
    seconds : float
        Time from now on.
    stop : callable, optional
        Returns True when the client is gone.
    clock : callable, optional
        Returns seconds.
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
        """True if the client is gone."""
        return self._stop()

    @property
    def over(self) -> bool:
        """True if nothing more should be examined."""
        return self.stopped or bool(self.reason)

    @property
    def reason(self) -> str:
        """The exhausted limit, as the beginning of a sentence; empty while there is none."""
        if self._entries > self._most_entries:
            return f"more than {self._most_entries:,} files are below this folder"
        if self._bytes > self._most_bytes:
            limit = size_text(self._most_bytes)
            return f"more than {limit} had to be read to see which files here are profiles"
        if self._clock() > self._end:
            return f"looking through this folder took longer than {self._seconds:g} s"
        return ""

    def read(self, count: int) -> None:
        """Count bytes that were read."""
        self._bytes += count

    def entries(self, listed: Iterable[T]) -> Iterator[T]:
        """Entries of a folder, until the budget is exhausted."""
        for entry in islice(listed, max(self._most_entries - self._entries + 1, 0)):
            self._entries += 1
            if self.over:
                return
            yield entry
