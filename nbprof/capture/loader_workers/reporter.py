"""The thread of a worker that samples its stack and reports what is known so far."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from nbprof.capture.loader_workers.folder import Folder
from nbprof.capture.loader_workers.stages import Stage, Stages
from nbprof.core.sample_limits import FIRST_S, INTERVAL_S, LONGEST_S, SHARE
from nbprof.core.worker_times import LONGEST

REPORT_S = 1.0
"""Least time between reports."""
_REPORT_SHARE = 0.002
"""Share of the time that reports may take."""
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


class Reporter:
    """Follows the state of the recording on a separate thread, from `start` to `stop`.

    Parameters
    ----------
    folder : Folder
    stages : Stages
        Whose current one a sample belongs to.
    samples : bool
        Whether to sample the stack.
    report : callable
        Writes the report.
    changed : callable
        Is told the window that is open, or None once the recording is over.
    """

    def __init__(
        self,
        folder: Folder,
        stages: Stages,
        samples: bool,
        report: Callable[[], None],
        changed: Callable[[int | None], None],
    ) -> None:
        self._folder = folder
        self._stages = stages
        self._report = report
        self._changed = changed
        # Without the GIL frames change while they are read.
        self._samples = samples and getattr(sys, "_is_gil_enabled", lambda: True)()
        self._lines: dict[tuple[Stage, CodeType, int], int] = {}
        self._main = threading.get_ident()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; the thread that calls is the one whose stack is sampled."""
        self._thread = threading.Thread(target=self._run, name="nbprof-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        thread, self._thread = self._thread, None
        # A thread that a library holds up must not hold up the worker.
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def clear(self) -> None:
        """Forget the samples so far."""
        self._lines = {}

    def lines(self) -> dict[Line, int]:
        """Samples by stage and line of the person's code; where a stage runs none, by its innermost
        line.
        """
        result: dict[Line, int] = {}
        for (stage, code, line), count in list(self._lines.items()):
            name = str(getattr(code, "co_qualname", code.co_name)).rpartition("<locals>.")[2]
            key = (stage, name[:100], code.co_filename[-LONGEST:], line)
            result[key] = result.get(key, 0) + count
        return result

    def _run(self) -> None:
        sys.setprofile(None)
        with contextlib.suppress(Exception):
            self._loop()

    def _loop(self) -> None:
        began = time.perf_counter()
        next_report, pause = began + REPORT_S, INTERVAL_S
        while not self._ended.wait(pause):
            if self._samples:
                self._sample()
            self._look()
            now = time.perf_counter()
            if now >= next_report:
                self._report()
                took = time.perf_counter() - now
                next_report = now + max(REPORT_S, took / _REPORT_SHARE)
            due = max(time.thread_time() - FIRST_S, 0.0) / SHARE - (now - began)
            pause = max(min(due, LONGEST_S), INTERVAL_S)

    def _look(self) -> None:
        """Pass on which window is open."""
        window = self._folder.window()
        self._changed(window)
        if window is None:
            self._ended.set()

    def _sample(self) -> None:
        current = self._stages.current
        if current is None:
            return
        frame = sys._current_frames().get(self._main)
        code_line = _line_of(frame)
        # It may have left the stage meanwhile.
        if code_line is None or self._stages.current is not current:
            return
        key = (current.stage, *code_line)
        if key in self._lines or len(self._lines) < _MOST_LINES:
            self._lines[key] = self._lines.get(key, 0) + 1


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
