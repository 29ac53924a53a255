"""Samples of the stack of a thread that makes batches, by stage and line."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from nbprof.capture.loader_workers.stages import Stage, Stages
from nbprof.core.worker_histogram import LONGEST

_MOST_LINES = 2_000
_DEEPEST = 300
_LIBRARIES = tuple(
    f"{os.sep}{name}{os.sep}"
    for name in (
        "site-packages",
        "dist-packages",
        f"python{sys.version_info.major}.{sys.version_info.minor}",
    )
)
_OWN = str(Path(__file__).parents[2])

Line = tuple[Stage, str, str, int]
"""A stage, and the function, file and line of the person's code that ran in it."""


class Samples:
    """Samples of the thread that makes this object.

    Parameters
    ----------
    stages : Stages
        Whose current one a sample belongs to.
    enabled : bool
        Whether to take any.
    """

    def __init__(self, stages: Stages, *, enabled: bool) -> None:
        self._stages = stages
        # Without the GIL frames change while they are read.
        self._enabled = enabled and getattr(sys, "_is_gil_enabled", lambda: True)()
        self._counts: dict[tuple[Stage, CodeType, int], int] = {}
        self._thread = threading.get_ident()

    def bind(self) -> None:
        """Sample the current thread from now on."""
        self._thread = threading.get_ident()

    def clear(self) -> None:
        """Forget the samples so far."""
        self._counts = {}

    def take(self) -> None:
        """Take one, on another thread."""
        current = self._stages.current
        if not self._enabled or current is None:
            return
        frame = sys._current_frames().get(self._thread)
        code_line = _line_of(frame)
        # It may have left the stage meanwhile.
        if code_line is None or self._stages.current is not current:
            return
        key = (current.stage, *code_line)
        if key in self._counts or len(self._counts) < _MOST_LINES:
            self._counts[key] = self._counts.get(key, 0) + 1

    def values(self) -> list[list[Any]]:
        """As plain values for JSON: samples by stage and line of the person's code; where a stage
        runs none, by its innermost line.
        """
        result: dict[Line, int] = {}
        for (stage, code, line), count in list(self._counts.items()):
            name = str(getattr(code, "co_qualname", code.co_name)).rpartition("<locals>.")[2]
            key = (stage, name[:100], code.co_filename[-LONGEST:], line)
            result[key] = result.get(key, 0) + count
        return [
            [*stage._asdict().values(), name, file, line, count]
            for (stage, name, file, line), count in result.items()
        ]


def _line_of(frame: FrameType | None) -> tuple[CodeType, int] | None:
    """The innermost line of the person's code in a stage; else the innermost line."""
    innermost = None
    for _ in range(_DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        if code.co_filename.startswith(_OWN):
            break
        if innermost is None:
            innermost = (code, frame.f_lineno or 0)
        if is_of_person(code.co_filename):
            return code, frame.f_lineno or 0
        frame = frame.f_back
    return innermost


def is_of_person(file: str) -> bool:
    """Return whether a file belongs neither to Python nor to an installed package."""
    return not file.startswith("<frozen") and not any(part in file for part in _LIBRARIES)
