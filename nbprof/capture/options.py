"""What a person may ask of a recording, apart from how it is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nbprof.errors import CaptureError

BACKENDS = ("tensorflow", "jax", "torch")
"""The frameworks that can be recorded, in the order of preference."""


@dataclass(frozen=True)
class Options:
    """The choices of one recording, checked.

    Parameters
    ----------
    backend : str
        ``auto``, ``tensorflow``, ``jax`` or ``torch``.
    steps : tuple of int or None, optional
        First and last step to record, counted from 1 within the cell, both included; the last may be None (to the end).
    memory : bool
        Record allocations where the framework has a switch for it.
    python : bool
        Record every Python call as well (many events).
    host_level : int
        0 nothing on the host, 1 what matters most, 2 ops as well, 3 everything.
    logdir : str, optional
        Folder that receives ``plugins/profile/<run>/``; by default ``nbprof-results`` in the working directory.
    save : bool
        False keeps the files in a temporary folder only as long as the profile lives.
    """

    backend: str = "auto"
    steps: tuple[int, int | None] | None = None
    memory: bool = True
    python: bool = False
    host_level: int = 2
    logdir: str | None = None
    save: bool = True

    def __post_init__(self) -> None:
        if self.backend not in ("auto", *BACKENDS):
            raise CaptureError(f"unknown backend {self.backend!r}: choose auto, tensorflow, jax or torch")
        if self.host_level not in (0, 1, 2, 3):
            raise CaptureError(f"the host level is 0, 1, 2 or 3, not {self.host_level!r}")


def parse_steps(text: str) -> tuple[int, int | None]:
    """Return the first and last step that a text such as ``10:20``, ``10:``, ``:20`` or ``7`` asks for.

    Parameters
    ----------
    text : str
        Steps are counted from 1 within the cell, both ends included.

    Raises
    ------
    CaptureError
        If the text is none of these, or the range is empty.
    """
    match = re.fullmatch(r"\s*(\d*)\s*(:?)\s*(\d*)\s*", text)
    if not match or not (match[1] or match[3]):
        raise CaptureError(f"--steps takes A:B, A:, :B or one number (steps are counted from 1), not {text!r}")
    first = int(match[1] or 1)
    last = int(match[3]) if match[3] else (None if match[2] else first)
    if first < 1 or (last is not None and last < first):
        raise CaptureError(f"--steps {text.strip()} holds no step: steps are counted from 1 and A may not be after B")
    return first, last
