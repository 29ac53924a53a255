"""The options for sampling running workers."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from nbprof.core.errors import CaptureError

MOST_MS = 3_600_000
NAME = re.compile(r"\w(?:[\w .+=@()-]{0,58}[\w+=@()-])?")
"""Of a run: a folder on any disk, and a line in TensorBoard's list."""
TOGETHER_MS = 1000
"""Delay before several workers start together, so that all have received the request."""


@dataclass(frozen=True)
class Sampling:
    """The choices of one sample, checked.

    Parameters
    ----------
    duration_ms : int
        How long to record, 1 ms to an hour.
    host_level : int
        0 nothing on the host, 1 the most important events, 2 also ops, 3 everything.
    device_level, python_level : int
        1 records devices, and every Python call; 0 doesn't.
    retries : int
        How often to retry a worker that was idle, busy or unreachable, 0 to 100.
    delay_ms : int, optional
        Delay until all workers start together, by their clocks. 0: each starts when it is asked. By default, several workers start after
        a second and a single one at once.
    logdir : str, optional
        Folder that receives ``plugins/profile/<run>/``; by default ``nbprof-results`` in the working directory.
    save : bool
        False keeps the files in a temporary folder only as long as the profile lives.
    name : str, optional
        Name of the run's folder; by default the time when it began. If a run of that name exists, a number is appended.
    """

    duration_ms: int = 2000
    host_level: int = 2
    device_level: int = 1
    python_level: int = 0
    retries: int = 3
    delay_ms: int | None = None
    logdir: str | None = None
    save: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        for name, least, most, what in (
            ("duration_ms", 1, MOST_MS, "the duration must be 1 ms to 3,600,000 ms (an hour)"),
            ("host_level", 0, 3, "the host level must be 0, 1, 2 or 3"),
            ("device_level", 0, 1, "the device level must be 0 or 1"),
            ("python_level", 0, 1, "the Python level must be 0 or 1"),
            ("retries", 0, 100, "the number of retries must be 0 to 100"),
            ("delay_ms", 0, MOST_MS, "the delay must be 0 ms to 3,600,000 ms (an hour)"),
        ):
            value = getattr(self, name)
            if name == "delay_ms" and value is None:
                continue
            try:
                count = operator.index(value)
            except TypeError:
                raise CaptureError(f"{what}, a whole number, not {value!r}") from None
            if isinstance(value, bool) or not least <= count <= most:
                raise CaptureError(f"{what}, not {value:,}" if not isinstance(value, bool) else f"{what}, not {value}")
            object.__setattr__(self, name, count)
        text: object = self.name
        if text is not None and not (isinstance(text, str) and NAME.fullmatch(text)):
            raise CaptureError(
                "the name of a run has up to 60 letters, digits, spaces and any of . _ + = @ ( ) -, and starts with a letter or digit; "
                f"it cannot be {text!r}"
            )

    def delay_for(self, workers: int) -> int:
        """Milliseconds between asking so many workers and their start."""
        if self.delay_ms is not None:
            return self.delay_ms
        return TOGETHER_MS if workers > 1 else 0
