"""A task on its way to a worker of a process pool, and the timing of it there.

It is pickled in place of the callable, so that workers that run already are reached as well. This
module imports little, as workers import it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from nbprof.capture.pools.recorder import OWN, Recorder, recorder_for

_RESTORE = (
    "__import__('nbprof.capture.pools.task', fromlist=['restored']).restored(call, *report)"
    " if __import__('importlib.util', fromlist=['util']).find_spec('nbprof') else call"
)
"""A worker that finds no nbprof would be lost with its task, so it does not even look for this
module.
"""


class Report(NamedTuple):
    """The recording that a worker reports to.

    Attributes
    ----------
    folder : str
    window : int
        The window in which the task was sent.
    pool : int
        Number of the pool in the recording.
    samples : bool
        Whether to sample the stack.
    """

    folder: str
    window: int
    pool: int
    samples: bool


class Task:
    """In place of the callable that a pool sends to a worker.

    Parameters
    ----------
    call : callable
        What the pool would send.
    report : callable
        Is asked when it is sent; returns None if this task is not to be timed.
    """

    def __init__(self, call: Callable[..., Any], report: Callable[[], Report | None]) -> None:
        self._call, self._report = call, report

    def __reduce__(self) -> tuple[Any, ...]:
        report = self._report()
        if report is None:
            # Nothing of this package then.
            return functools.partial, (self._call,)
        return eval, (_RESTORE, {"call": self._call, "report": tuple(report)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The same in this process, untimed."""
        __tracebackhide__ = True
        return self._call(*args, **kwargs)


def restored(call: Callable[..., Any], *report: Any) -> TimedTask:
    """The task in the worker."""
    return TimedTask(call, Report(*report))


class TimedTask:
    """A task that a worker received.

    Parameters
    ----------
    call : callable
    report : Report
    """

    def __init__(self, call: Callable[..., Any], report: Report) -> None:
        self._call, self._report = call, report

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; its exception has this frame and no other of nbprof."""
        __tracebackhide__ = True
        recorder: Recorder | None = None
        with contextlib.suppress(Exception):
            recorder = recorder_for(*self._report)
        if recorder is None:
            return self._call(*args, **kwargs)
        try:
            return recorder.run(self._call, args, kwargs)
        except BaseException as error:
            error.__traceback__ = _without_own(error.__traceback__)
            raise


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without frames of nbprof."""
    entries = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(OWN):
            entries.append(traceback)
        traceback = traceback.tb_next
    for entry, inner in zip(entries, [*entries[1:], None], strict=True):
        entry.tb_next = inner
    return entries[0] if entries else None
