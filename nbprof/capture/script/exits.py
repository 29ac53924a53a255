"""Ends of a program at which Python runs no exit handlers: `os._exit`, `os.exec*` and signals."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_FUNCTIONS = ("_exit", "execv", "execve")
"""Functions of `os` after which this program is over; `os.execvp` and the like call these."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


_POLL_S = 0.1
_GRACE_S = 3.0
"""How long the main thread has to handle a signal that ends the process."""


class Exits:
    """Calls a function before this process ends at once; its children end as they would.

    Parameters
    ----------
    before_exit : callable
        Called with a text for the person when the program is about to end: `os._exit`, `os.execv`
        or `SIGTERM`. It must not raise. If it returns False, a signal takes effect with `settle`.
    """

    def __init__(self, before_exit: Callable[[str], bool]) -> None:
        self._before_exit = before_exit
        self._pid = os.getpid()
        self._replaced: dict[str, tuple[Any, Any]] = {}
        self._handled: list[signal.Signals] = []
        self._pipe: tuple[int, int] | None = None
        self._over = threading.Event()
        self._pending = 0

    def install(self) -> None:
        """Begin. Signals that somebody handles or ignores are left to them."""
        for name in _FUNCTIONS:
            original = getattr(os, name, None)
            if original is not None:
                replacement = self._calling_before(name, original)
                self._replaced[name] = original, replacement
                setattr(os, name, replacement)
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._arrived)
                    self._handled.append(number)
            self._watch()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.remove)

    def _watch(self) -> None:
        """Let a thread end the process where the main thread does not come to handle a signal."""
        if not self._handled or signal.getsignal(signal.SIGTERM) != self._arrived:
            return
        pipe = os.pipe()
        os.set_blocking(pipe[1], False)
        before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            os.close(pipe[0])
            os.close(pipe[1])
            return
        self._pipe = pipe
        threading.Thread(target=self._wait, name="nbprof-exits", args=pipe, daemon=True).start()

    def _wait(self, reading: int, _writing: int) -> None:
        numbers = {int(number) for number in self._handled}
        # Ctrl-C and others are for the main thread alone.
        while arrived := os.read(reading, 1):
            if arrived[0] not in numbers or not self._handles(arrived[0]):
                continue
            # A collective may keep it for as long as another rank does not come.
            if not self._over.wait(_GRACE_S):
                if not self._handles(arrived[0]):
                    continue
                while not self._before_exit(signal.Signals(arrived[0]).name):
                    time.sleep(_POLL_S)
                _end_by(arrived[0])
            return

    def _handles(self, number: int) -> bool:
        """Return whether the program has set no other handler meanwhile."""
        return signal.getsignal(number) == self._arrived

    def remove(self) -> None:
        """Restore what has not been replaced again meanwhile; a second time does nothing."""
        replaced, self._replaced = self._replaced, {}
        for name, (original, replacement) in replaced.items():
            if getattr(os, name) is replacement:
                setattr(os, name, original)
        handled, self._handled = self._handled, []
        for number in handled:
            if signal.getsignal(number) == self._arrived:
                signal.signal(number, signal.SIG_DFL)
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._over.set()
            before = signal.set_wakeup_fd(-1)
            if before not in (-1, pipe[1]):
                signal.set_wakeup_fd(before)
            # The thread that reads it ends; of a child there is none.
            os.close(pipe[1])

    def settle(self) -> None:
        """End the process by the signal that arrived when that was not possible."""
        number, self._pending = self._pending, 0
        if number:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _calling_before(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def ending(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._pid:
                self._before_exit(f"os.{name}")
            return original(*args, **kwargs)

        return ending

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal that ends this process by default: it does so afterwards."""
        del frame
        self._over.set()
        if os.getpid() == self._pid and not self._before_exit(signal.Signals(number).name):
            self._pending = number
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _end_by(number: int) -> None:
    """End the process by a signal that has a handler, from another thread than the main one."""
    # Only the main thread may do this through Python.
    ctypes.CDLL(None).signal(number, 0)
    os.kill(os.getpid(), number)


_OF_EXECUTORS = (("thread", "_threads_queues"), ("process", "_threads_wakeups"))
"""Where `concurrent.futures` keeps the threads of its executors."""


def wait_for_threads() -> None:
    """Join the threads that Python joins at the end of a program; Ctrl-C ends that.

    Idle threads of `concurrent.futures` are told to end by Python later, so not for these.
    """
    workers: set[threading.Thread] = set()
    for kind, names in _OF_EXECUTORS:
        workers |= set(getattr(sys.modules.get(f"concurrent.futures.{kind}"), names, ()))
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread() and thread not in workers:
            thread.join()
