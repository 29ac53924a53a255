"""Ctrl-C at the right moment."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def ctrl_c(*moments: Callable[[threading.Event], bool]) -> Iterator[None]:
    """Interrupts the main thread when each of these returns True, one after the other, and never
    after the block.

    Each is called with an event that is set when the block has ended, and returns False then.
    """
    if sys.platform == "win32":
        pytest.skip("signals cannot be sent to a thread here")
    over, lock = threading.Event(), threading.Lock()
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        for moment in moments:
            if not moment(over):
                return
            with lock:
                if over.is_set():
                    return
                signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        # It would end all tests, and look as if those so far were all.
        raise AssertionError("Ctrl-C was not taken care of") from None
    finally:
        with lock:
            over.set()
