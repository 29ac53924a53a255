"""One process of the server: start, requests, memory and end, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

from nbprof.core.errors import NbprofError, RawError
from nbprof.server import pipes


class Progress(str):
    """A message about the work in progress.

    Attributes
    ----------
    fraction : float or None
        Completed part of it, 0 to 1; None if unknown.
    picture : bytes
        The packed payload of the first picture, sent once when it is available.
    """

    __slots__ = ("fraction", "picture")
    fraction: float | None
    picture: bytes

    def __new__(cls, text: str, fraction: float | None = None, picture: bytes = b"") -> Progress:
        """The message with its attributes."""
        progress = super().__new__(cls, text)
        progress.fraction, progress.picture = fraction, picture
        return progress


Tell = Callable[[str], None]
"""Called with a message, which may be a `Progress`."""

_START = (
    "import sys; sys.path = [p for p in sys.path if p]; sys.path.append(sys.argv[1]); "
    "import importlib; importlib.import_module(sys.argv[2]).main()"
)
"""Not with -m, and without the working folder on the path: a json.py there would be imported."""

_MOST_WAITING = 64
"""Requests that wait for one process."""


class EndedError(NbprofError):
    """A process ended before it answered."""


class BusyError(NbprofError):
    """Too many requests are waiting."""


class Process:
    """A process that answers a few requests at a time; a `calm` one has low priority.

    It reads one profile, unless the `main` of `module` does something else. Messages are sent and
    received on threads, because an event loop cannot wait for pipes on every system.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger | logging.LoggerAdapter[Any],
        module: str = "nbprof.server.worker",
        *,
        calm: bool = False,
    ) -> None:
        self._loop = loop
        self._log = log
        self._turns = asyncio.Semaphore(pipes.AT_ONCE)
        self._waiting = 0
        self._numbers = count()
        self._asked: dict[int, tuple[asyncio.Future[bytes], Tell | None]] = {}
        self._writing = threading.Lock()
        self.why = ""
        self.ended = asyncio.Event()
        self._process = subprocess.Popen(  # noqa: S603  our own module, in our own interpreter
            [sys.executable, "-c", _START, str(Path(__file__).parents[2]), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in the terminal of the server is for the server.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
            | (getattr(subprocess, "IDLE_PRIORITY_CLASS", 0) if calm else 0),
        )
        if calm and hasattr(os, "setpriority"):
            # On Linux this applies to its first thread, and the others inherit it.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.pid, 19)
        self._in = cast(BinaryIO, self._process.stdin)
        threading.Thread(
            target=self._listen, name=f"nbprof process {self.pid}", daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True if it can still answer."""
        return not self.why and not self.ended.is_set()

    @property
    def busy(self) -> bool:
        """True if requests are waiting or being answered."""
        return self._waiting > 0 or bool(self._asked)

    async def call(
        self, head: dict[str, Any], body: bytes = b"", *, seconds: float, tell: Tell | None = None
    ) -> bytes:
        """The answer to a request, which waits while others are being answered.

        Parameters
        ----------
        head : dict
        body : bytes
        seconds : float
            Time limit for the answer; the process is ended then.
        tell : callable, optional
            Called with progress messages.

        Raises
        ------
        BusyError, EndedError, NbprofError
        """
        if self._waiting >= _MOST_WAITING:
            raise BusyError(
                "too many requests for this profile are waiting. Try again in a moment."
            )
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        # The turn lasts until the answer arrives, even if the client is gone.
        work = self._loop.create_task(self._exchange(head, body, seconds, tell))
        work.add_done_callback(self._over)
        return await asyncio.shield(work)

    def _over(self, work: asyncio.Task[bytes]) -> None:
        self._turns.release()
        if not work.cancelled():
            work.exception()

    async def _exchange(
        self, head: dict[str, Any], body: bytes, seconds: float, tell: Tell | None
    ) -> bytes:
        if not self.alive:
            raise EndedError(
                self.why or "the process that read this profile has ended. Open it again."
            )
        number, answer = next(self._numbers), self._loop.create_future()
        self._asked[number] = answer, tell
        try:
            await self._loop.run_in_executor(None, self._send, {**head, "id": number}, body)
            return await asyncio.wait_for(answer, seconds)
        except asyncio.TimeoutError:
            self.end(f"it took longer than {seconds:,.0f} s and was stopped.")
            raise EndedError(self.why) from None
        finally:
            del self._asked[number]

    def _send(self, head: dict[str, Any], body: bytes) -> None:
        # If the process has ended, the listening thread reports it.
        with self._writing, contextlib.suppress(OSError, ValueError):
            pipes.write(self._in, head, body)

    def end(self, why: str) -> None:
        """Kill it; waiting clients receive the reason `why`."""
        if self.why:
            return
        self.why = why
        self._process.kill()
        self._fail_all(why)

    def _fail_all(self, why: str) -> None:
        for answer, _ in self._asked.values():
            if not answer.done():
                answer.set_exception(EndedError(why))

    def memory(self) -> int:
        """Bytes of memory that only it uses; 0 if unknown."""
        if not self.alive:
            return 0
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.pid}/statm").read_text().split()
            return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            pass
        try:
            import psutil
        except ImportError:
            return 0
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _listen(self) -> None:
        answers = cast(BinaryIO, self._process.stdout)
        while True:
            try:
                message = pipes.read(answers)
            except (OSError, ValueError):
                message = None
            try:
                if message is None:
                    break
                self._loop.call_soon_threadsafe(self._received, *message)
            except RuntimeError:
                # The server has closed its loop.
                break
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._in, answers):
            try:
                pipe.close()
            except OSError:
                continue
        try:
            self._loop.call_soon_threadsafe(self._has_ended, code)
        except RuntimeError:
            return

    def _received(self, head: dict[str, Any], body: bytes) -> None:
        answer, tell = self._asked.get(head.get("id", -1), (None, None))
        if answer is None or answer.done():
            return
        if head["is"] == "progress" and tell is not None:
            fraction = head.get("fraction")
            share = fraction if isinstance(fraction, float) else None
            tell(Progress(str(head["text"]), share, body))
        elif head["is"] == "done":
            answer.set_result(body)
        elif head["is"] == "failed":
            raw = head.get("raw")
            text = str(head["text"])
            answer.set_exception(RawError(text, recorder=str(raw)) if raw else NbprofError(text))

    def _has_ended(self, code: int) -> None:
        if not self.why:
            self._log.warning("nbprof: process %d ended by itself, with %d", self.pid, code)
            self.why = (
                f"the process that read it ended unexpectedly (code {code}); the system may have"
                " run out of memory. See the server's log."
            )
        self.ended.set()
        self._fail_all(self.why)
