"""Recordings of workers, each in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from nbprof.capture.remote.sampling import Sampling
from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.server.paths import RefusedError
from nbprof.server.process import BusyError, Process

MOST_RECORDINGS = 4
"""At a time."""
_LOOK_S = 0.5
"""How often the memory of a recording is checked."""
_LEAVE_S = 5.0
"""How long a recording that was cancelled may take to release its workers and remove its files."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """The validated request of a dialog.

    Attributes
    ----------
    addresses : list of str
    sampling : Sampling
    browser_path : str
        Path of the folder in the file browser.
    """

    addresses: list[str]
    sampling: Sampling
    browser_path: str

    @property
    def longest_s(self) -> float:
        """Time limit for recording, sending and retries together; each has its own limit, too."""
        delay_s = self.sampling.delay_for(len(self.addresses)) / 1000
        return (
            delay_s
            + (self.sampling.retries + 1) * (2 * self.sampling.duration_ms / 1000 + 120)
            + 60
        )


class Recordings:
    """The current recordings, each in a separate process.

    Parameters
    ----------
    memory : int
        Limit for one of them, in bytes.
    log : logging.Logger
    """

    def __init__(self, memory: int, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._memory = memory
        self._log = log
        self._running: dict[str, Process] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def processes(self) -> list[Process]:
        """Processes that record, or release their workers."""
        return list(self._running.values())

    async def record(self, order: Order, tell: Tell) -> dict[str, Any]:
        """Record; if this is cancelled, the workers are released and nothing is saved.

        Parameters
        ----------
        order : Order
        tell : callable
            Receives lines of JSON: first {"recording": key}, with which it can be stopped, then
            those of `recorder`.

        Raises
        ------
        NbprofError
            Nothing was recorded; the message has the reason.
        """
        if len(self._running) >= MOST_RECORDINGS:
            raise BusyError(
                f"{MOST_RECORDINGS} recordings are running on this server. Start this one when one"
                " of them has finished."
            )
        loop = asyncio.get_running_loop()
        key = secrets.token_hex(8)
        process = self._running[key] = Process(loop, self._log, "nbprof.server.recorder")
        tell(json.dumps({"recording": key}))
        head = {
            "do": "record",
            "addresses": order.addresses,
            "sampling": asdict(order.sampling),
            "shown": order.browser_path,
        }
        work = loop.create_task(process.call(head, seconds=order.longest_s, tell=tell))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_LOOK_S)
                if process.memory() > self._memory:
                    process.end(
                        f"the data from the workers needs more than the {size_text(self._memory)}"
                        " of memory that this server allows. Record for a shorter time, or raise"
                        " c.NbprofServer.memory."
                    )
            return dict(json.loads(await work))
        finally:
            leaving = loop.create_task(self._leave(key, work))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def stop(self, key: str) -> None:
        """End a recording early; its data is saved.

        Raises
        ------
        RefusedError
            There is no such recording.
        """
        process = self._running.get(key)
        if process is None:
            raise RefusedError(404, "this recording has already ended.")
        await process.call({"do": "stop"}, seconds=_LEAVE_S)

    async def close(self) -> None:
        """Cancel all recordings, and wait until the workers are released."""
        waiting = [self._leave(key, None) for key in list(self._running)]
        await asyncio.gather(*waiting, *self._leaving, return_exceptions=True)

    async def _leave(self, key: str, work: asyncio.Task[bytes] | None) -> None:
        process = self._running[key]
        try:
            if work is None or not work.done():
                with contextlib.suppress(NbprofError):
                    await process.call({"do": "cancel"}, seconds=_LEAVE_S)
            if work is None:
                await self._idle(process)
            elif not work.done():
                await asyncio.wait([work], timeout=_LEAVE_S)
            if work is not None and work.done() and not work.cancelled():
                work.exception()
        finally:
            process.end("the recording has ended.")
            self._running.pop(key, None)

    async def _idle(self, process: Process) -> None:
        for _ in range(round(_LEAVE_S / 0.05)):
            if not process.busy:
                return
            await asyncio.sleep(0.05)
