"""Times of the lines of the notebook's cells.

Profilers state the first line of a function, whichever of its lines called them. Only code of cells
is followed, and only on the thread that the recording began on: by ``sys.monitoring`` from Python
3.12 on, which does not slow other code, before by ``sys.settrace``, which Python calls for each
function, as the recorders of stacks do.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import threading
import time
from array import array
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from nbprof.capture import notes
from nbprof.core.cells import stem
from nbprof.core.line_times import MOST, LineTimes
from nbprof.core.receipt import Note, info

_TOOLS = (4, 3)
"""Ids of ``sys.monitoring`` that are not reserved for a kind of tool."""
_BEGIN = re.compile(r"get_ipython\(\)\.run_line_magic\('nbprof_begin', (.*)\)$")
"""The first line ``%%nbprof`` as IPython runs it."""
MAX_CELLS, MAX_CHARACTERS = 50, 20_000
CALLS = 1 << 14
"""The number of calls is reported each time that so many more were made."""


class LineClock:
    """Notes each change of the line, from `start` to `stop`.

    Parameters
    ----------
    called : callable, optional
        Called with the number of Python functions that were called on the thread, each time that
        `CALLS` more were; it may stop the clock.
    """

    def __init__(self, called: Callable[[int], None] | None = None) -> None:
        self.trouble: Note | None = None
        self.calls = 0
        self.called = called
        self._times, self._lines = array("q"), array("i")
        self._numbers: dict[tuple[str, int], int] = {}
        """By cell and line, from 1."""
        self._stack: list[int] = []
        """The current lines of the functions that run, innermost last."""
        self._cells: dict[str, str] = {}
        self.thread = 0
        self.on = False
        self._truncated = False
        self._tracer: _Monitoring | _Tracing = (
            _Monitoring(self) if sys.version_info >= (3, 12) else _Tracing(self)
        )

    def start(self) -> LineClock:
        """Begin; a cell that is running already is followed from here on."""
        self.thread = threading.get_ident()
        frames = _frames_of_cells()
        self.on = True
        self.trouble = self._tracer.start([frame for frame in frames if self.is_cell(frame.f_code)])
        self.on = self.trouble is None
        if not self.on:
            return self
        for frame in frames:
            self.enter()
            # The line that began the recording is not the user's.
            if not _BEGIN.match(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
                self.reach(frame.f_code, frame.f_lineno)
        return self

    def stop(self) -> LineTimes | None:
        """End, on any thread; returns None if no line of a cell ran."""
        self.called = None
        if self.on:
            # Asked before it is off: the first call after that ends the tracing.
            displaced, self.on = self._tracer.displaced, False
            if displaced:
                self._truncate()
            else:
                self._note(0)
        if self.trouble is None:
            self._tracer.stop()
        if not self._numbers:
            return None
        # The clock of the machine may be set back meanwhile.
        times = np.maximum.accumulate(np.frombuffer(self._times, np.int64))
        lines = np.frombuffer(self._lines, np.int32)
        return LineTimes(self._source(), list(self._numbers), times, lines, self._truncated)

    def _source(self) -> dict[str, str]:
        """The text of the cells that ran, and of recent earlier ones that define functions.

        XLA may have compiled the latter before.
        """
        used = {cell for cell, _ in self._numbers}
        texts = {name: cell_text(path) for path, name in self._cells.items() if name in used}
        earlier = [path for path in linecache.cache if stem(path) and stem(path) not in texts]
        for path in earlier[: -MAX_CELLS - 1 : -1]:
            text = cell_text(path)
            if "def " in text and len(text) <= MAX_CHARACTERS:
                texts[stem(path)] = text
        return texts

    def is_cell(self, code: CodeType) -> bool:
        """Return whether this is the code of a cell, or of a function in one."""
        path = code.co_filename
        if path not in self._cells:
            self._cells[path] = stem(path)
        return bool(self._cells[path])

    @property
    def here(self) -> bool:
        """True if this thread is followed now."""
        return self.on and threading.get_ident() == self.thread

    def count(self) -> None:
        """A function of Python is called."""
        if threading.get_ident() == self.thread:
            self.calls += 1
            if self.called is not None and not self.calls % CALLS:
                self.called(self.calls)

    def enter(self) -> None:
        """A function of a cell begins, or goes on."""
        self._stack.append(0)

    def reach(self, code: CodeType, line: int) -> None:
        """One of its lines begins."""
        if self._stack:
            number = self._numbers.setdefault(
                (self._cells[code.co_filename], line), len(self._numbers) + 1
            )
            self._stack[-1] = number
            self._note(number)

    def leave(self) -> None:
        """It returns, or yields."""
        if self._stack:
            self._stack.pop()
            self._note(-self._stack[-1] if self._stack else 0)

    def _note(self, number: int) -> None:
        self._times.append(time.time_ns())
        self._lines.append(number)
        if self.on and len(self._times) >= MOST:
            self.on = False
            self._truncate()

    def _truncate(self) -> None:
        """Attribute the rest of the recording to no line."""
        self._truncated = True
        self._times.append(self._times[-1] if self._times else time.time_ns())
        self._lines.append(0)


def cell_text(path: str) -> str:
    """The text of a cell as it was written."""
    lines = linecache.getlines(path)
    begin = _BEGIN.match(lines[0]) if lines else None
    if begin:
        lines = [f"%%nbprof {ast.literal_eval(begin[1])}".rstrip() + "\n", *lines[1:]]
    return "".join(lines)


def _frames_of_cells() -> list[FrameType]:
    """The frames of cells that are running on this thread, outermost first."""
    frame: FrameType | None = sys._getframe()
    frames = []
    while frame is not None:
        if stem(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


class _Tracing:
    """By ``sys.settrace``."""

    def __init__(self, clock: LineClock) -> None:
        self._clock = clock
        self._running: list[FrameType] = []

    def start(self, running: list[FrameType]) -> Note | None:
        if sys.gettrace() is not None:
            return info(
                notes.LINES_NOT_TIMED,
                "lines of cells are not timed while a debugger or a coverage tool traces them",
            )
        self._running = running
        for frame in running:
            frame.f_trace = self._within
        sys.settrace(self._call)
        return None

    @property
    def displaced(self) -> bool:
        """True if a debugger that the cell called has taken the tracing over."""
        return threading.get_ident() == self._clock.thread and sys.gettrace() != self._call

    def stop(self) -> None:
        for frame in self._running:
            if frame.f_trace == self._within:
                frame.f_trace = None
        self._running = []
        # Tracing is per thread: on another thread the next call ends it.
        if sys.gettrace() == self._call:
            sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _: Any) -> Any:
        clock = self._clock
        if clock.called is not None:
            clock.count()
        if not clock.on:
            # Counting calls goes on when there is no room for more lines.
            if clock.called is None and sys.gettrace() == self._call:
                sys.settrace(None)
            return None
        if not clock.is_cell(frame.f_code):
            return None
        clock.enter()
        return self._within

    def _within(self, frame: FrameType, event: str, _: Any) -> Any:
        clock = self._clock
        if not clock.on:
            return None
        if event == "line":
            clock.reach(frame.f_code, frame.f_lineno)
        elif event == "return":
            clock.leave()
        return self._within


class _Monitoring:
    """By ``sys.monitoring``, which several tools may use at once."""

    displaced = False

    def __init__(self, clock: LineClock) -> None:
        self._clock = clock
        self._codes: dict[int, CodeType] = {}
        self._tool = -1
        self._acts: dict[int, Callable[..., Any]] = {}

    def start(self, running: list[FrameType]) -> Note | None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        free = [tool for tool in _TOOLS if monitoring.get_tool(tool) is None]
        if not free:
            return info(
                notes.LINES_NOT_TIMED,
                "lines of cells are not timed while other tools use all of sys.monitoring",
            )
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "nbprof")
        events = monitoring.events
        self._acts = {
            events.PY_START: self._start,
            events.PY_RESUME: self._resume,
            events.PY_THROW: self._resume,
            events.LINE: self._line,
            events.PY_RETURN: self._leave,
            events.PY_YIELD: self._leave,
            events.PY_UNWIND: self._leave,
        }
        for event, act in self._acts.items():
            monitoring.register_callback(self._tool, event, act)
        # Code that an earlier recording disabled is asked about once more.
        monitoring.restart_events()
        for frame in running:
            self._follow(frame.f_code)
        # Events of exceptions cannot be limited to some code.
        monitoring.set_events(self._tool, events.PY_START | events.PY_THROW | events.PY_UNWIND)
        return None

    def stop(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.set_events(self._tool, 0)
        for code in self._codes.values():
            monitoring.set_local_events(self._tool, code, 0)
        self._codes = {}
        for event in self._acts:
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)

    def _follow(self, code: CodeType) -> None:
        if id(code) not in self._codes:
            monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
            events = monitoring.events
            self._codes[id(code)] = code
            monitoring.set_local_events(
                self._tool,
                code,
                events.PY_RESUME | events.LINE | events.PY_RETURN | events.PY_YIELD,
            )

    def _start(self, code: CodeType, _: int) -> Any:
        clock = self._clock
        if clock.called is not None:
            clock.count()
            if not clock.is_cell(code):
                return None
        if not clock.is_cell(code):
            return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]
        self._follow(code)
        if clock.here:
            clock.enter()
        return None

    def _resume(self, code: CodeType, *_: object) -> None:
        if id(code) in self._codes and self._clock.here:
            self._clock.enter()

    def _line(self, code: CodeType, line: int) -> Any:
        clock = self._clock
        if not clock.on:
            return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]
        if clock.here:
            clock.reach(code, line)
        return None

    def _leave(self, code: CodeType, *_: object) -> None:
        if id(code) in self._codes and self._clock.here:
            self._clock.leave()
