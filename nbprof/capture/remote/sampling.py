"""The options for sampling running workers."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from nbprof.capture.option_field import documented, option
from nbprof.capture.options import HOST_LEVELS, LOGDIR
from nbprof.core.errors import CaptureError

MOST_MS = 3_600_000
NAME = re.compile(r"\w(?:[\w .+=@()-]{0,58}[\w+=@()-])?")
"""Of a run: a folder on any disk, and a line in TensorBoard's list."""
TOGETHER_MS = 1000
"""Delay before several workers start together, so that all have received the request."""


@documented
@dataclass(frozen=True)
class Sampling:
    """The choices of one sample, checked.

    Raises
    ------
    CaptureError
        Invalid value.
    """

    duration_ms: int = option(
        2000,
        "how long to record, 1 ms to an hour",
        flag="--duration",
        metavar="MS",
        type=int,
        more="Ctrl-C ends it early and keeps what was recorded; a second Ctrl-C stops waiting",
    )
    host_level: int = option(2, HOST_LEVELS, metavar="0-3", type=int)
    device_level: int = option(1, "1 records devices, 0 doesn't", metavar="0-1", type=int)
    python_level: int = option(
        0, "1 records every Python call: many events, a slower program", metavar="0-1", type=int
    )
    retries: int = option(
        3,
        "how many times to retry a worker that was idle, busy with another recording, or"
        " unreachable",
        metavar="N",
        type=int,
    )
    delay_ms: int | None = option(
        None,
        "delay until all workers start together, by their clocks; 0: each starts when it is asked",
        flag="--delay",
        metavar="MS",
        type=int,
        default="1000 for several workers",
    )
    folder: str | None = option(
        None,
        "where the server of vllm:// or sglang:// writes its traces, as this machine sees it",
        metavar="DIR",
    )
    logdir: str | None = option(None, LOGDIR, metavar="DIR", default="nbprof-results")
    save: bool = option(
        True, "keep the files of the run", negative="delete them when the profile is no longer used"
    )
    name: str | None = option(
        None,
        "name of the run's folder",
        metavar="RUN",
        default="the time",
        more="if the name is taken, a number is appended",
    )

    def __post_init__(self) -> None:
        for name, least, maximum, meaning in (
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
                raise CaptureError(f"{meaning}, a whole number, not {value!r}") from None
            if isinstance(value, bool):
                raise CaptureError(f"{meaning}, not {value}")
            if not least <= count <= maximum:
                raise CaptureError(f"{meaning}, not {value:,}")
            object.__setattr__(self, name, count)
        text: object = self.name
        if text is not None and not (isinstance(text, str) and NAME.fullmatch(text)):
            raise CaptureError(
                "the name of a run has up to 60 letters, digits, spaces and any of . _ + = @ ( )"
                f" -, and starts with a letter or digit; it cannot be {text!r}"
            )

    def delay_for(self, workers: int) -> int:
        """Milliseconds between asking so many workers and their start."""
        if self.delay_ms is not None:
            return self.delay_ms
        return TOGETHER_MS if workers > 1 else 0
