"""Step markers, and their precedence if there are several sources.

Three sources mark the begin and end of steps: the user's markers (``nbprof.step`` or the
framework's own), Keras callbacks and, in PyTorch, the optimizer. A step of Keras runs from the end
of one batch to the end of the next, so it includes waiting for data. If a user's marker opens
inside or around such a step, that marker is the step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from nbprof.capture.pace import Waits
from nbprof.capture.step_times import StepTimer


class Marker(Protocol):
    """An open span in the framework's trace that can still become a step, or not."""

    def close(self, step: int | None, batches: int = 1) -> None:
        """End the span as the root of a step, or with None as an ordinary event."""


OpenMarker = Callable[[str, int], Marker]

WAIT = "nbprof.steps: next item"
"""Name of the span around the wait of ``nbprof.steps`` in traces."""

KERAS_WAIT = "Keras: next batch"
"""Name of the span around the wait of a loop of Keras."""

GRAIN_WAIT = "grain: next batch"
"""Name of the span around the wait of a loop for grain."""

STAGE = {"_ipl_stage_id": 1, "_ipl_stage_name": "nbprof.steps", "_ipl_stage_cat": "unknown"}
"""Arguments that mark a span as a stage of an input pipeline in XSpace files, also for XProf; the
category of the stage is unknown.
"""

GIVEN_UP = {"nbprof_given_up": 1}
"""Arguments of a span that was opened for a step and became none, in XSpace files."""


def stage(name: str) -> dict[str, object]:
    """`STAGE` for a span of another name."""
    return {**STAGE, "_ipl_stage_name": name.partition(":")[0]}


EPOCH, LOOP, EVALUATION = "epoch", "loop", "evaluation"
"""Boundaries between steps: an epoch, another loop that marks its steps, or an evaluation that is
not part of a step.
"""

_MAX_BOUNDARIES = 10_000


def boundary(kind: str, before: int, batches: int = 0, ms: float = 0.0) -> dict[str, Any]:
    """An entry of `CaptureInfo.boundaries`."""
    return {"before": before, "kind": kind, "batches": batches, "ms": ms}


class Span(Protocol):
    """An open span in the framework's trace."""

    def close(self) -> None:
        """End it."""


class ContextSpan:
    """A context manager of the framework as a span: entered at once, left when it is closed."""

    def __init__(self, context: AbstractContextManager[object]) -> None:
        self._context = context
        context.__enter__()

    def close(self) -> None:
        """End it."""
        self._context.__exit__(None, None, None)


@dataclass
class _Root:
    """The outermost marker that the user has open on one thread."""

    number: int
    origin: str
    began_ns: int
    depth: int = 1
    holds_framework: bool = False


class StepClock:
    """Counts the steps of one recording and marks them in the trace.

    Parameters
    ----------
    window : tuple of int or None, optional
        First and last step to record (from 1, both included).
    every : int
        Not 0: the window comes again each so many steps.
    batches_of : str
        Not empty: the window counts the batches of this kind (``train``, ``test``, ``predict``)
        instead of the steps.
    begin_window, end_window : callable
        Called before the first and after the last step of the window.
    on_step : callable, optional
        Called with the clock after each step.
    joined : bool
        The program runs already, so a step began before this clock did: it is not counted, and the
        first one begins where it ends.

    Attributes
    ----------
    seen, marked : int
        Steps that ended, and those of them that carry a marker in the trace.
    first : int
        The first step of the window that comes or runs, as `counted` counts.
    open_marker, open_wait : callable or None
        Open a span that may become a step, and one around a wait of a step; None while nothing
        records.
    recorded_step : callable or None
        Called after each recorded step with its kind, its begin and its end in ns of
        `time.perf_counter_ns`, on the thread that ends it.
    first_step : callable or None
        Called once, when the first recorded step has ended.
    in_earlier_step : bool
        True until the step has ended in which the clock joined a running program.
    waits : Waits
        The time that steps spent waiting for input, if it can be measured.
    times : StepTimer
        When each step began and ended.
    origins : dict of str to int
        How steps were found, and how many in each way.
    boundaries : list of dict
        Epochs and evaluations, as `CaptureInfo.boundaries` stores them.
    """

    def __init__(
        self,
        *,
        window: tuple[int, int | None] | None = None,
        every: int = 0,
        batches_of: str = "",
        begin_window: Callable[[], None] = lambda: None,
        end_window: Callable[[], None] = lambda: None,
        on_step: Callable[[StepClock], None] | None = None,
        joined: bool = False,
    ) -> None:
        self.joined = joined
        self.in_earlier_step = joined
        self.window = window
        self.every = every
        self.batches_of = batches_of
        self.origins: dict[str, int] = {}
        self.boundaries: list[dict[str, Any]] = []
        self.seen = 0
        self.marked = 0
        self.kind = ""
        self.batches = 1
        self.alive = True
        self.failed_at = 0
        self.fault = ""
        self.open_marker: OpenMarker | None = None
        self.open_wait: Callable[[str], Span] | None = None
        self.recorded_step: Callable[[str, int, int], None] | None = None
        self.first_step: Callable[[], None] | None = None
        self.started = time.perf_counter()
        self.waits = Waits()
        self.times = StepTimer()
        self._began_ns = 0
        self._begin_window = begin_window
        self._end_window = end_window
        self._on_step = on_step
        self.first, self._last = window or (0, None)
        self._in_window = False
        self._batches_seen = 0
        self._after_step: Callable[[], None] | None = None
        self._marker: Marker | None = None
        self._open = False
        self._owner = 0
        # By thread: loops on two threads have separate steps, which are counted as they end.
        self._roots: dict[int, _Root] = {}
        self._last_number = 0
        self._lock = threading.RLock()
        self.root_inside = False
        self._entered = False

    @property
    def current_step(self) -> int | None:
        """The number of the step that runs, or that an exception has ended; else None."""
        following = self.seen + 1
        open_now = bool(self._roots) or (self._open and self._entered)
        if open_now or self.failed_at == following:
            return following
        return None

    @property
    def in_step(self) -> bool:
        """True while a step runs, or while time already belongs to the next one."""
        return bool(self._roots) or self._open

    def after_step(self, act: Callable[[], None]) -> None:
        """Call `act` once, when the step that runs now has ended, on the thread that ends it."""
        self._after_step = act

    # Steps that nbprof finds (Keras, optimizers).

    def enter(self, kind: str) -> None:
        """From here on, time belongs to the next step, if it comes at all."""
        if not self.alive or self.in_earlier_step:
            return
        if not self._open and (not self._roots or self.batches_of):
            self._arm()
        if self._roots or self._open:
            return
        self._owner = threading.get_ident()
        self._open, self._entered, self.root_inside, self.kind = True, False, False, kind
        self._began_ns = time.perf_counter_ns()
        # Read once: a bound may end the recording on its own thread.
        open_marker = self.open_marker
        if open_marker is not None:
            self._marker = open_marker(kind, self.seen + 1)

    def loop(self, kind: str) -> None:
        """A loop over batches begins; one that was left open by an exception ends here."""
        self.leave()
        self.enter(kind)

    def begin(self, kind: str) -> None:
        """A batch begins."""
        if self._open and self.kind != kind and self._is_owner():
            self.leave()
        self.enter(kind)
        if self._is_owner():
            self._entered = True

    def end(self, kind: str, batches: int = 1, origin: str = "") -> None:
        """A batch has ended; the next step begins here.

        Parameters
        ----------
        kind : str
        batches : int
        origin : str
            How batches are found, such as ``batches of Keras``.
        """
        if not self.alive:
            return
        if self.in_earlier_step:
            self.in_earlier_step = False
            self.enter(kind)
            return
        now_ns = time.perf_counter_ns()
        if kind and kind == self.batches_of:
            self._batches_seen += batches
        if not self._is_owner():
            if self.batches_of:
                # Inside a marker of the user, batches are not steps, but they still count.
                self._leave_window()
            return
        if self.root_inside or self._roots:
            # The user's marker inside or around is the step, which has been counted.
            self._drop()
            self._leave_window()
        else:
            self.batches = max(self.batches, batches)
            marker, self._marker, self._open = self._marker, None, False
            if marker is not None:
                marker.close(self.seen + 1, batches)
                # The recording may have ended since the marker was opened; then it is in no file.
                self.marked += self.open_marker is not None
            self._count(kind, origin, self._began_ns, now_ns)
        self.enter(kind)

    def bounds(self, kind: str) -> None:
        """An epoch or a loop begins before the next step."""
        if self.alive and not self._roots and len(self.boundaries) < _MAX_BOUNDARIES:
            self.boundaries.append(boundary(kind, self.seen + 1))

    def leave(self) -> None:
        """The loop ends: the time since the last batch is not a step."""
        if self._is_owner():
            self._drop()

    # Steps that a user marks.

    def root_begins(self, *, of_framework: bool = False, origin: str = "") -> int:
        """A user's marker is about to open.

        Parameters
        ----------
        of_framework : bool
            A marker of the framework is a root in the trace at any depth; ``nbprof.step`` inside
            another one leaves no mark.
        origin : str
            What the marker is, such as ``marked by nbprof.step``.

        Returns
        -------
        int
            Its step number if it is the outermost of its thread, else 0.
        """
        if not self.alive:
            return 0
        with self._lock:
            self.root_inside = True
            thread = threading.get_ident()
            root = self._roots.get(thread)
            if root is not None:
                root.depth += 1
                root.holds_framework |= of_framework
                return 0
            self._last_number = number = max(self.seen, self._last_number) + 1
            root = self._roots[thread] = _Root(number, origin, 0)
            self._arm()
            root.began_ns = time.perf_counter_ns()
            return number

    def holds_framework(self, thread: int) -> bool:
        """Return whether the outermost marker of a thread contains one of the framework."""
        root = self._roots.get(thread)
        return root is not None and root.holds_framework

    def root_ends(self, kind: str, outcome: str = "done", thread: int = 0) -> None:
        """A user's marker has closed: ``done``, ``failed`` or ``unused``.

        Parameters
        ----------
        kind, outcome : str
        thread : int
            The thread that opened it, if known.
        """
        if not self.alive or not self._roots:
            return
        now_ns = time.perf_counter_ns()
        with self._lock:
            thread = thread or threading.get_ident()
            # Another thread may close it than the one that opened it.
            if thread not in self._roots:
                thread = next(iter(self._roots), 0)
            root = self._roots.get(thread)
            if root is None:
                return
            root.depth -= 1
            if not root.depth:
                del self._roots[thread]
            self.root_inside = True
            if outcome != "done" and root.number == self._last_number:
                self._last_number -= 1
            if outcome == "failed":
                self.failed_at = self.seen + 1
            elif outcome == "done" and not root.depth:
                if self.open_marker is not None:
                    self.marked += 1
                self._count(kind, root.origin, root.began_ns, now_ns)

    def stop(self) -> None:
        """Close the open marker and do nothing from now on."""
        self._drop()
        self.alive = False

    def release(self) -> None:
        """The recording is over: drop the references to its owner."""
        self._begin_window = self._end_window = lambda: None
        self._on_step = self._after_step = self.recorded_step = self.first_step = None

    def abandon(self) -> None:
        """Forget everything without touching the framework (after a fork, after an error)."""
        self.alive = False
        self._marker = None
        self._open = False

    @property
    def open_loop(self) -> str:
        """The kind of step that is open; empty if none is."""
        if not self._open:
            return ""
        return self.kind

    @property
    def in_marker(self) -> bool:
        """True inside a user's marker."""
        return bool(self._roots)

    def adopt(self) -> None:
        """The loop goes on in this thread, which owns the open marker from here on.

        Only for markers that may be closed in another thread than the one that opened them.
        """
        if self._open:
            self._owner = threading.get_ident()

    def _is_owner(self) -> bool:
        return self._open and self._owner == threading.get_ident()

    def _drop(self) -> None:
        marker, self._marker, self._open = self._marker, None, False
        if marker is not None and self._owner == threading.get_ident():
            marker.close(None)

    @property
    def counted(self) -> int:
        """The count of the window: steps, or batches of one kind."""
        if self.batches_of:
            return self._batches_seen
        return self.seen

    def _arm(self) -> None:
        if not self.window or self._in_window:
            return
        # Batches come several at a time with steps_per_execution: the call that contains the first
        # one is the first to record.
        ahead = 1
        if self.batches_of:
            ahead = self.batches
        if self.counted < self.first <= self.counted + ahead:
            self._in_window = True
            self._begin_window()

    def _leave_window(self) -> None:
        if self._in_window and self._last is not None and self.counted >= self._last:
            self._in_window = False
            if self.every:
                self.first, self._last = self.first + self.every, self._last + self.every
            self._end_window()

    def _count(self, kind: str, origin: str, start_ns: int, end_ns: int) -> None:
        self.times.stepped(start_ns, end_ns, kind)
        with self._lock:
            self.seen += 1
            self.kind = kind
            if origin:
                self.origins[origin] = self.origins.get(origin, 0) + 1
            self._leave_window()
            act, self._after_step = self._after_step, None
        if act is not None:
            act()
        first_step, self.first_step = self.first_step, None
        if first_step is not None:
            first_step()
        recorded_step = self.recorded_step
        if recorded_step is not None:
            recorded_step(kind, start_ns, end_ns)
        if self._on_step is not None:
            self._on_step(self)


_clock: StepClock | None = None
_standing: StepClock | None = None


def current() -> StepClock | None:
    """Return the clock of the recording that is running; else the standing one, if there is one."""
    return _standing if _clock is None else _clock


def set_current(clock: StepClock | None) -> None:
    """Make `clock` the one that ``nbprof.step`` reports to."""
    global _clock
    _clock = clock


def set_standing(clock: StepClock | None) -> None:
    """Make `clock` the one that ``nbprof.step`` reports to while no recording runs here.

    Another process may be recording this one.
    """
    global _standing
    _standing = clock
