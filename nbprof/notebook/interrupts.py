"""The traceback of a Ctrl-C in a cell shows the user's code alone, wherever in nbprof's hooks it arrived."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from nbprof.capture.shield import Shield

_SHIELD = Shield.__enter__.__code__.co_filename
_PACKAGE = f"{Path(_SHIELD).parents[1]}{os.sep}"


def without_own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without nbprof's frames, and without what the shield has called.

    ``__tracebackhide__`` does not hide the last frame, nor one that is interrupted before its first line.
    """
    kept = []
    while trace is not None and trace.tb_frame.f_code.co_filename != _SHIELD:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for each in reversed(kept):
        each.tb_next = rest
        rest = each
    return rest


def _show(shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None, tb_offset: int | None = None) -> None:
    error.__traceback__ = without_own(trace)
    shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset, running_compiled_code=True)


def install(shell: Any) -> Any:
    """Show the Ctrl-C of each cell so, unless exceptions are shown in a way of somebody's own already; returns what `remove` takes."""
    if shell.custom_exceptions:
        return None
    shell.set_custom_exc((KeyboardInterrupt,), _show)
    return shell.CustomTB


def remove(shell: Any, installed: Any) -> None:
    """Show it as before."""
    if installed is not None and shell.CustomTB == installed:
        shell.set_custom_exc((), None)
