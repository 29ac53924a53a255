"""Progress of reading without a callback: one line that is overwritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_DELAY_S = 1.0
"""Nothing is shown for what takes less than this."""

Show = Callable[[str], None]


@contextmanager
def shown(progress: Show | None) -> Iterator[Show | None]:
    """A function that shows messages: `progress` if given, else one that overwrites a line.

    None if nobody would see them.
    """
    write = None if progress is not None else _writer()
    if write is None:
        yield progress
        return
    began, width = time.monotonic(), 0

    def show(text: str) -> None:
        nonlocal width
        if time.monotonic() - began >= _DELAY_S:
            write(text.ljust(width))
            width = len(text)

    yield show


def _writer() -> Show | None:
    """Overwrites a line in the output of a cell or on a terminal; None elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return _notebook_writer()
    if sys.stderr is None or not sys.stderr.isatty():
        return None

    def write(text: str) -> None:
        sys.stderr.write("\r" + text)
        sys.stderr.flush()

    return write


def _notebook_writer() -> Show:
    from IPython.display import display

    handle: Any = None

    def write(text: str) -> None:
        nonlocal handle
        data = {"text/plain": text.rstrip()}
        if handle is None:
            handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            handle.update(data, raw=True)

    return write
