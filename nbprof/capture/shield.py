"""Keep Ctrl-C out of the few moments where it would leave a broken file."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def shielded() -> Iterator[None]:
    """Hold back SIGINT until the block has ended, then deliver it.

    Elsewhere than on the main thread signals do not arrive, and nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is None:
        # Installed by C code: it could not be put back.
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held and callable(before):
            before(*held[-1])
