"""One thread that runs jobs one after the other, while callers wait for a bounded time."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from nbprof.core.errors import NbprofError
from nbprof.display.wording import plural

MOST_WAITING = 8
"""Calls that wait for the thread; further ones are refused at once."""


class Worker:
    """A thread for calls that may take long.

    Profiles are read and analysed by one thread alone. A call that takes longer than `seconds` is
    answered with a sentence. It goes on, since what it has read makes the same call quick later;
    one that has not begun is dropped. So nothing piles up.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._jobs: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    async def run(self, job: Callable[[], Any]) -> Any:
        """The result of `job`.

        Raises
        ------
        NbprofError
            It took too long, or too many calls wait; or what `job` raises.
        """
        if self._thread is None:
            # A daemon: a client that has gone does not wait for what nobody will read.
            self._thread = threading.Thread(target=self._work, name="nbprof-mcp", daemon=True)
            self._thread.start()
        done: Future[Any] = Future()
        try:
            self._jobs.put_nowait((done, job))
        except queue.Full:
            raise NbprofError(
                f"{MOST_WAITING} calls are already waiting; call again when they are answered."
            ) from None
        try:
            # When the time is over this cancels `done`, if it has not begun.
            return await asyncio.wait_for(asyncio.wrap_future(done), self.seconds)
        except asyncio.TimeoutError:
            if done.cancelled():
                raise NbprofError(
                    "an earlier call is still running, so this one was dropped after"
                    f" {self._limit}; call again."
                ) from None
            raise NbprofError(
                f"this takes longer than {self._limit}, the server's limit, and continues: call"
                " again with the same arguments."
            ) from None

    @property
    def _limit(self) -> str:
        if self.seconds < 1:
            return f"{self.seconds:g} seconds"
        return plural(round(self.seconds), "second")

    def _work(self) -> None:
        while True:
            done, job = self._jobs.get()
            if not done.set_running_or_notify_cancel():
                continue
            try:
                result = job()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)
            # Nothing is held while there is nothing to do.
            del done, job
