"""Tracebacks of cells: when one will be shown, and a Ctrl-C without nbprof's frames."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.capture.shield import Shield, shielded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_SHIELD = Shield.__enter__.__code__.co_filename
_PACKAGE = f"{Path(_SHIELD).parents[1]}{os.sep}"


class Watch:
    """Tells when a shell begins to show the traceback of a cell.

    IPython has no event between the last line of a cell and its traceback, which can take longer
    than the cell.

    Parameters
    ----------
    shell : InteractiveShell
    left : callable
        Called before the traceback of code that a cell ran is made.
    """

    def __init__(self, shell: Any, left: Callable[[], None]) -> None:
        self._shell = shell
        self._left = left
        self._before: Any = None
        self._replacement: Any = None

    def begin(self) -> None:
        """Watch, until `end`."""
        if self._replacement is not None:
            return
        original = self._shell.showtraceback
        self._before = vars(self._shell).get("showtraceback")

        def showtraceback(*args: Any, **kwargs: Any) -> Any:
            # Set for the code of a cell only, not for tracebacks that a cell shows.
            if kwargs.get("running_compiled_code"):
                # The traceback is shown whatever happens here.
                with contextlib.suppress(Exception), shielded(soon=True):
                    self._left()
            return original(*args, **kwargs)

        self._shell.showtraceback = self._replacement = showtraceback

    def end(self) -> None:
        """Restore the shell, unless the method has been replaced since."""
        replacement, self._replacement = self._replacement, None
        if replacement is None or vars(self._shell).get("showtraceback") is not replacement:
            return
        if self._before is None:
            del self._shell.showtraceback
        else:
            self._shell.showtraceback = self._before


def without_own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without nbprof's frames, and without those below the shield.

    ``__tracebackhide__`` does not hide the last frame, nor one that is interrupted before its first
    line.
    """
    frames = []
    while trace is not None and trace.tb_frame.f_code.co_filename != _SHIELD:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            frames.append(trace)
        trace = trace.tb_next
    rest = None
    for each in reversed(frames):
        each.tb_next = rest
        rest = each
    return rest


def _show(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    error.__traceback__ = without_own(trace)
    shell.showtraceback(
        (kind, error, error.__traceback__), tb_offset=tb_offset, running_compiled_code=True
    )


def show_interrupts(shell: Any) -> Any:
    """Hide nbprof's frames of each Ctrl-C; returns the handler for `show_as_before`.

    A custom handler of the shell is left in place.
    """
    if shell.custom_exceptions:
        return None
    shell.set_custom_exc((KeyboardInterrupt,), _show)
    return shell.CustomTB


def show_as_before(shell: Any, installed: Any) -> None:
    """Undo `show_interrupts`."""
    if installed is not None and shell.CustomTB == installed:
        shell.set_custom_exc((), None)
