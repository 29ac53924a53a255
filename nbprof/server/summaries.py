"""Analyses listed runs that have not been opened yet: one at a time, in a low-priority process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.server.pool import Pool
from nbprof.server.process import EndedError, Process

if TYPE_CHECKING:
    from nbprof.server.on_disk import OnDisk

_MOST_KNOWN = 10_000
_LOOK_S = 0.25
"""How often memory is checked, and whether a profile is being opened."""
_IDLE_S = 10.0
"""Time that the process is kept for the next list."""
_LARGE = 1 << 30
"""A process with more memory than this is replaced."""


class Summaries:
    """The facts of runs, by the state of their files.

    Parameters
    ----------
    pool : Pool
        The open profiles, which have priority.
    log : Logger
    largest : int
        Size of the largest run that is analysed without being opened, in bytes; 0 for none.
    """

    def __init__(
        self, pool: Pool, log: logging.Logger | logging.LoggerAdapter[Any], largest: int
    ) -> None:
        self._pool = pool
        self._log = log
        self.largest = largest
        self._facts: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._turn = asyncio.Lock()
        self._asked: dict[str, _Asked] = {}
        self._process: Process | None = None
        self._end: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def process(self) -> Process | None:
        """The process, while there is one."""
        if self._process is not None and self._process.alive:
            return self._process
        return None

    def cached(self, run: OnDisk) -> dict[str, Any] | None:
        """The facts of a run that was analysed before, {"message": ...} if that failed, or None.

        It may wait for a disk, so it is called on threads.
        """
        from nbprof.server import summary

        key = summary.key(run.state)
        facts = self._facts.get(key) or summary.noted(key)
        if facts is not None and ("message" in facts or summary.fits(facts)):
            return facts
        return None

    async def analysed(
        self, run: OnDisk, top: Path | None, *, hidden: bool = True
    ) -> dict[str, Any] | None:
        """The facts of a run, {"message": ...} if it cannot be analysed, None if it is too large.

        Requests for the same run share the work, which is cancelled when none is waiting for it.

        Parameters
        ----------
        run : OnDisk
        top : Path or None
            The folder that all files must be in.
        hidden : bool
            Names there that begin with a dot may be read.
        """
        from nbprof.server import summary

        if run.bytes > self.largest or self._closed:
            return None
        key = await asyncio.to_thread(summary.key, run.state)
        asked = self._asked.get(key)
        if asked is None:
            work = asyncio.get_running_loop().create_task(
                self._analyse(run, key, top, hidden=hidden)
            )
            asked = self._asked[key] = _Asked(work)
            work.add_done_callback(lambda done: self._over(key, done))
        asked.waiting += 1
        try:
            return await asyncio.shield(asked.work)
        finally:
            asked.waiting -= 1
            if not asked.waiting:
                # Later requests must not share work that is being cancelled.
                if self._asked.get(key) is asked:
                    del self._asked[key]
                asked.work.cancel()

    def close(self) -> None:
        """End the process."""
        self._closed = True
        for asked in list(self._asked.values()):
            asked.work.cancel()
        self._stop("the server was stopped.")

    def _over(self, key: str, work: asyncio.Task[Any]) -> None:
        if key in self._asked and self._asked[key].work is work:
            del self._asked[key]
        if not work.cancelled():
            work.exception()

    async def _analyse(
        self, run: OnDisk, key: str, top: Path | None, *, hidden: bool
    ) -> dict[str, Any] | None:
        async with self._turn:
            facts = await asyncio.to_thread(self.cached, run)
            if facts is not None:
                return facts
            while self._busy():
                await asyncio.sleep(_LOOK_S)
            root = None if top is None else str(top)
            head = {
                "do": "summary",
                "path": str(run.real),
                "shown": run.path,
                "root": root,
                "hidden": hidden,
            }
            process = self._ready()
            watch = asyncio.get_running_loop().create_task(self._watch(process))
            try:
                answer = json.loads(await process.call(head, seconds=self._pool.limits.open_s))
            except asyncio.CancelledError:
                self._stop("no request is waiting for it any more.")
                raise
            except EndedError as error:
                text = str(error)
                if text == _ROOM:
                    return None
                facts = {"message": text}
            except NbprofError as error:
                facts = {"message": str(error).removeprefix(f"{run.path}: ")}
            else:
                facts = answer
                from nbprof.server import summary

                await asyncio.to_thread(summary.note, key, facts)
            finally:
                watch.cancel()
                self._rest()
        self._facts[key] = facts
        while len(self._facts) > _MOST_KNOWN:
            self._facts.popitem(last=False)
        return facts

    def _busy(self) -> bool:
        """True while a client waits for a profile."""
        return any(not opened.task.done() for opened in self._pool.opened)

    def _ready(self) -> Process:
        if self._end is not None:
            self._end.cancel()
        process = self.process
        if process is None:
            process = self._process = Process(asyncio.get_running_loop(), self._log, calm=True)
        return process

    def _rest(self) -> None:
        """Keep the process for a while, unless it uses much memory."""
        process = self.process
        if process is None:
            return
        if process.memory() > _LARGE:
            self._stop("it has finished.")
        else:
            self._end = asyncio.get_running_loop().call_later(
                _IDLE_S, self._stop, "it was not needed."
            )

    def _stop(self, why: str) -> None:
        if self._end is not None:
            self._end.cancel()
        if self._process is not None:
            self._process.end(why)
            self._process = None

    async def _watch(self, process: Process) -> None:
        """End the process if open profiles need its memory, or if it uses more than half of the
        limit.
        """
        limit = self._pool.limits.memory
        while process.alive:
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(OSError):
                used, used_by_pool = (
                    process.memory(),
                    sum(pooled.memory() for pooled in self._pool.processes),
                )
                if used > limit // 2:
                    process.end(
                        f"it needs more than {size_text(limit / 2)} of memory to be analysed. Open"
                        " it to see its contents."
                    )
                elif used + used_by_pool > limit:
                    process.end(_ROOM)


_ROOM = "open profiles needed the memory."


@dataclass
class _Asked:
    """A run that is being analysed, and the number of requests for it."""

    work: asyncio.Task[dict[str, Any] | None]
    waiting: int = 0
