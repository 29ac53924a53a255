"""How far reading is, where nobody asked to be told: one line that is written over, in a notebook
and on a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_AFTER_S = 1.0
"""Who waits less than this is told nothing."""

Tell = Callable[[str], None]


@contextmanager
def shown(progress: Tell | None) -> Iterator[Tell | None]:
    """What to call with each message: `progress` where somebody gave one, else what writes a line.
    None where nobody would see it.
    """
    write = None if progress is not None else _writer()
    if write is None:
        yield progress
        return
    began, width = time.monotonic(), 0

    def tell(text: str) -> None:
        nonlocal width
        if time.monotonic() - began >= _AFTER_S:
            write(text.ljust(width))
            width = len(text)

    yield tell


def _writer() -> Tell | None:
    """What shows a line in the place of the one before: in the output of a notebook's cell, or on a
    terminal.
    """
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return _output()
    if sys.stderr is None or not sys.stderr.isatty():
        return None

    def write(text: str) -> None:
        sys.stderr.write("\r" + text)
        sys.stderr.flush()

    return write


def _output() -> Tell:
    from IPython.display import display

    shown: list[Any] = []

    def write(text: str) -> None:
        data = {"text/plain": text.rstrip()}
        if shown:
            shown[0].update(data, raw=True)
        else:
            shown.append(display(data, raw=True, display_id=True))  # type: ignore[no-untyped-call]

    return write
