"""Defer Ctrl-C while it would leave a broken file, a running profiler, or half of a module."""

from __future__ import annotations

import _thread
import _weakrefset
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_AGAIN_S = 0.02
"""How soon a postponed Ctrl-C is tried again."""

_WHOLE = ("<frozen importlib._bootstrap>", weakref.__file__, _weakrefset.__file__)
"""Files of Python whose work is to be done whole."""

_shields: list[Shield] = []


class Shield:
    """Defers SIGINT in a block, except in parts that allow it; at the end it is dropped.

    Elsewhere than on the main thread signals do not arrive, and nothing is done.

    Attributes
    ----------
    pressed : bool
        Whether one is held back.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._open = False
        self._before: Any = None
        self._raised: KeyboardInterrupt | None = None

    def __enter__(self) -> Shield:
        before = signal.getsignal(signal.SIGINT)
        # None was installed by C code: it could not be put back.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self.arrived)
            self._before = before
            _shields.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        before, self._before = self._before, None
        if before is not None:
            _shields.remove(self)
            # The user's code in the block may have set another handler.
            if signal.getsignal(signal.SIGINT) == self.arrived:
                signal.signal(signal.SIGINT, before)

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGINT."""
        del number
        if not self._open:
            self.pressed = True
        elif _must_end(frame):
            again_soon()
        else:
            # Once: whoever handles it is not interrupted by an impatient second one.
            self._open = False
            self._raised = KeyboardInterrupt()
            raise self._raised

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let one Ctrl-C interrupt the block; a deferred one interrupts it at its beginning."""
        self._open = True
        report = sys.unraisablehook

        def lost(unraisable: sys.UnraisableHookArgs) -> None:
            # The callback of a weak reference, or C code that could not let it through.
            if unraisable.exc_value is None or unraisable.exc_value is not self._raised:
                report(unraisable)
                return
            self._raised = None
            self._open = True
            again_soon()

        sys.unraisablehook = lost
        try:
            self._deliver()
            yield
        finally:
            self._open = False
            if sys.unraisablehook is lost:
                sys.unraisablehook = report

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Defer Ctrl-C in a part of a block that allows it, until the end of the part."""
        before, self._open = self._open, False
        try:
            yield
        finally:
            self._open = before
            self._deliver()

    def _deliver(self) -> None:
        if self._open and self.pressed:
            self.pressed = self._open = False
            raise KeyboardInterrupt


class shielded(Shield):  # noqa: N801 - reads as a verb
    """Holds SIGINT back until the block has ended, then delivers it.

    Parameters
    ----------
    soon : bool
        Deliver it a moment later, where an exception would be lost, or break what runs the block.
    """

    def __init__(self, *, soon: bool = False) -> None:
        super().__init__()
        self._soon = soon

    def __exit__(self, *_: object) -> None:
        __tracebackhide__ = True
        super().__exit__()
        if not self.pressed:
            return
        handler = signal.getsignal(signal.SIGINT)
        if self._soon and not (_shields and not _shields[-1]._open):
            again_soon()
        elif callable(handler):
            handler(signal.SIGINT, sys._getframe())


def pressed() -> bool:
    """Return whether a Ctrl-C is being held back, so that waits should end."""
    return any(shield.pressed for shield in _shields)


def again_soon() -> None:
    """Deliver a Ctrl-C to the main thread in a moment."""
    timer = threading.Timer(_AGAIN_S, _interrupt_main)
    timer.daemon = True
    timer.start()


def _interrupt_main() -> None:
    main = threading.main_thread().ident
    if not callable(signal.getsignal(signal.SIGINT)):
        # Ignored, as in a kernel between two cells; or it would end the process.
        return
    if hasattr(signal, "pthread_kill") and main is not None:
        # A sleep is interrupted by a signal alone.
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _must_end(frame: FrameType | None) -> bool:
    """Return whether an interrupt would do harm: in an import, a finalizer or a callback of `gc`.

    A module that is left half imported fails every later use of it, and a thread that waits for it
    may wait for ever.
    """
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename in _WHOLE or code in callbacks:
            return True
        frame = frame.f_back
    return False
