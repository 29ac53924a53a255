"""File descriptors reserved for writing the recording of a program that uses up all others."""

from __future__ import annotations

import contextlib
import os

COUNT = 16
"""The profiler's files, one at a time, modules that the analysis imports, and what the kernel opens
to show it.
"""


class Reserve:
    """Holds some file descriptors, as many as there are, until they are released."""

    def __init__(self) -> None:
        self._held: list[int] = []
        with contextlib.suppress(OSError):
            for _ in range(COUNT):
                self._held.append(os.open(os.devnull, os.O_RDONLY))

    def release(self) -> None:
        """Let others have them."""
        while self._held:
            os.close(self._held.pop())
