"""Work on nbprof's own threads, which must write nothing into the user's notebook: it would appear
below the running cell.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def quietly(work: Callable[..., object], *args: Any) -> None:
    """Call a function, ignoring its exceptions and numpy's floating-point warnings.

    The function itself must report a failure that the user should know about.
    """
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        work(*args)


def silence() -> None:
    """Turn numpy's warnings off on this thread: the `initializer` of a pool of threads."""
    np.seterr(all="ignore")


def thread_pool(count: int | None = None, name: str = "") -> Executor:
    """A pool of threads with numpy's warnings off.

    Where no thread can be started, as in a browser (Pyodide), its work is done when it is
    submitted.
    """
    if threads_start():
        return ThreadPoolExecutor(count, name, initializer=silence)
    return _InPlace()


@cache
def threads_start() -> bool:
    """True if this process can start threads."""
    thread = threading.Thread(target=int, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join()
    return True


class _InPlace(Executor):
    """Calls functions as soon as they are submitted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            with np.errstate(all="ignore"):
                future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
