"""Keep Ctrl-C out of the few moments where it would leave a broken file, or half of a module."""

from __future__ import annotations

import _thread
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


_AGAIN_S = 0.02
"""How soon a postponed Ctrl-C is tried again."""


@contextmanager
def imports_whole() -> Iterator[None]:
    """Let no SIGINT interrupt an import in the block: it arrives when the import has ended.

    A module that is left half imported fails every later use of it, and a thread that waits for it may wait for ever.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def arrived(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            again = threading.Timer(_AGAIN_S, _thread.interrupt_main)
            again.daemon = True
            again.start()
        else:
            before(number, frame)

    signal.signal(signal.SIGINT, arrived)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is arrived:
            signal.signal(signal.SIGINT, before)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
