"""How far reading is, where nobody asked to be told: one line that is written over, in a notebook and on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_AFTER_S = 1.0
"""Who waits less than this is told nothing."""


@contextmanager
def shown() -> Iterator[Callable[[str], None] | None]:
    """What `progress=` takes: it writes each message over the one before, and the line away at the end. None where nobody would see it."""
    stream = _stream()
    if stream is None:
        yield None
        return
    began, width = time.monotonic(), 0

    def tell(text: str) -> None:
        nonlocal width
        if time.monotonic() - began >= _AFTER_S:
            stream.write("\r" + text.ljust(width))
            stream.flush()
            width = len(text)

    try:
        yield tell
    finally:
        if width:
            stream.write("\r" + " " * width + "\r")
            stream.flush()


def _stream() -> TextIO | None:
    """Where somebody looks: the output of a notebook's cell, or a terminal."""
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return sys.stdout
    return sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
