"""Threads for work that waits for disks: a few at a time, and none keeps a server from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Runs functions on daemon threads: a process that ends waits for those of an executor.

    Parameters
    ----------
    count : int
        Number of functions that run at a time.
    """

    def __init__(self, count: int) -> None:
        self._turns = asyncio.Semaphore(count)
        self.closing = False

    async def run(self, work: Callable[[], T]) -> T:
        """Call a function on a thread; returns or raises what it does."""
        loop = asyncio.get_running_loop()
        async with self._turns:
            done: asyncio.Future[T] = loop.create_future()

            def finish(set_it: Callable[[Any], None], value: Any) -> None:
                if not done.done():
                    set_it(value)

            def run() -> None:
                try:
                    outcome: tuple[Callable[[Any], None], Any] = (done.set_result, work())
                except BaseException as error:
                    outcome = (done.set_exception, error)
                try:
                    loop.call_soon_threadsafe(finish, *outcome)
                except RuntimeError:
                    # The server has closed its loop.
                    return

            threading.Thread(target=run, name="nbprof disk", daemon=True).start()
            return await done

    def close(self) -> None:
        """Set `closing`, which running functions check."""
        self.closing = True
