"""Open profiles, each in a separate process, within limits of number, memory and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.server.folders import Chosen
from nbprof.server.paths import Place
from nbprof.server.process import BusyError, EndedError, Process, Progress, Tell

_LOOK_S = 0.25
"""How often memory is checked."""
_LOOKS = 2
"""Folders that are searched at a time."""
_MOST_REMEMBERED = 1000
"""Runs of folders whose files are remembered."""
_MOST_WAITING = 32
"""Profiles that wait for a process."""


@dataclass(frozen=True)
class Limits:
    """Limits for all processes together.

    Attributes
    ----------
    profiles : int
        Number of open profiles.
    memory : int
        Bytes.
    idle_s, open_s, ask_s : float
        Seconds until an unused profile is closed; time limits for opening and for an answer.
    ahead : bool
        Keep a process ready for the next profile.
    """

    profiles: int = 4
    memory: int = 4 << 30
    idle_s: float = 1800.0
    open_s: float = 600.0
    ask_s: float = 60.0
    ahead: bool = True


@dataclass(eq=False)
class Opened:
    """A profile that is open, or being opened."""

    place: Place
    task: asyncio.Task[bytes] = field(init=False)
    process: Process | None = None
    tells: list[Tell] = field(default_factory=list)
    progress: str = ""
    picture: Progress | None = None
    asked: int = 0
    used: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        """Report progress to all clients that wait for it."""
        self.progress = text
        if isinstance(text, Progress) and text.picture:
            self.picture, self.progress = text, str(text)
        for tell in list(self.tells):
            tell(text)

    @property
    def idle(self) -> bool:
        """True if no client waits for it."""
        busy = self.process is not None and self.process.busy
        return self.task.done() and not self.tells and not self.asked and not busy


class Pool:
    """Opens profiles and answers requests about them; one process per version of a file."""

    def __init__(self, limits: Limits, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self.limits = limits
        self._log = log
        self._opened: dict[str, Opened] = {}
        self._spare: Process | None = None
        self._spare_since = 0.0
        self._looking: list[Process] = []
        self._looks = asyncio.Semaphore(_LOOKS)
        self._files: dict[tuple[str, str], tuple[str, ...]] = {}
        self._free = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def opened(self) -> list[Opened]:
        """Profiles that are open or being opened."""
        return list(self._opened.values())

    @property
    def processes(self) -> list[Process]:
        """Processes that run."""
        processes = [*(opened.process for opened in self.opened), *self._looking, self._spare]
        return [process for process in processes if process is not None and process.alive]

    async def open(self, place: Place, tell: Tell) -> bytes:
        """The packed payload of a profile. The work is cancelled when no client waits for it.

        Raises
        ------
        NbprofError
        """
        opened = self._find(place)
        # Late clients receive the first picture as well.
        for progress in (opened.picture, opened.progress):
            if progress is not None and not opened.task.done():
                tell(progress)
        opened.tells.append(tell)
        try:
            return await asyncio.shield(opened.task)
        finally:
            opened.tells.remove(tell)
            self._left(opened)

    async def compare(self, before: Place, after: Place, tell: Tell) -> bytes:
        """The packed payload of two profiles side by side. Its process ends at once, because later
        requests are about one of them.

        Raises
        ------
        NbprofError
        """
        both = replace(after, before=before, version=f"{before.version} {after.version}")
        try:
            return await self.open(both, tell)
        finally:
            opened = self._opened.get(both.version)
            if opened is not None and opened.idle:
                self._drop(opened)

    async def look(self, place: Place, run: str, tell: Tell, *, hidden: bool = False) -> Chosen:
        """The run of a name in a folder, or the newest. The process that finds it becomes the spare
        one.

        Raises
        ------
        NbprofError
        """
        async with self._looks:
            if self._closed:
                raise EndedError("the server is being stopped.")
            process = self._take_spare()
            self._looking.append(process)
            try:
                root = None if place.root is None else str(place.root)
                head = {
                    "do": "find",
                    "path": str(place.real),
                    "shown": place.browser_path,
                    "root": root,
                    "run": run,
                    "hidden": hidden,
                }
                answer = json.loads(await process.call(head, seconds=self.limits.open_s, tell=tell))
            except EndedError as error:
                raise _placed(error, place) from None
            except asyncio.CancelledError:
                process.end("no request is waiting for it any more.")
                raise
            finally:
                self._looking.remove(process)
                self._keep(process)
        chosen = Chosen(answer["run"], tuple(answer["files"]), answer["runs"])
        while len(self._files) >= _MOST_REMEMBERED:
            del self._files[next(iter(self._files))]
        self._files[str(place.real), chosen.run] = chosen.files
        return chosen

    def files_of(self, place: Place, run: str) -> tuple[str, ...] | None:
        """The files of a run of a folder; None unless `look` has found it before."""
        return self._files.get((str(place.real), run))

    def _keep(self, process: Process) -> None:
        """Keep a process that is not needed any more for the next profile."""
        if self._closed or not process.alive or (self._spare is not None and self._spare.alive):
            process.end("it was not needed.")
            return
        self._spare, self._spare_since = process, time.monotonic()

    async def ask(self, place: Place, request: bytes) -> bytes:
        """A packed answer of the timeline; the profile is reopened if it was closed.

        Raises
        ------
        NbprofError
        """
        opened = self._find(place)
        opened.asked += 1
        try:
            await asyncio.shield(opened.task)
            if opened.process is None:
                raise EndedError("it was closed. Open it again.")
            return await opened.process.call({"do": "ask"}, request, seconds=self.limits.ask_s)
        except EndedError as error:
            raise _placed(error, place) from None
        finally:
            opened.asked -= 1
            self._left(opened)

    def ready(self) -> None:
        """Start a spare process, so that the next profile need not wait for imports."""
        self._spare_since = time.monotonic()
        if (
            self.limits.ahead
            and (self._spare is None or not self._spare.alive)
            and not self._closed
        ):
            self._spare = self._start()

    def close(self) -> None:
        """End all processes."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        for opened in self.opened:
            opened.task.cancel()
        for process in self.processes:
            process.end("the server was stopped.")
        self._opened.clear()
        self._spare = None

    def _start(self) -> Process:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look())
        return Process(asyncio.get_running_loop(), self._log)

    def _find(self, place: Place) -> Opened:
        if self._closed:
            raise EndedError("the server is being stopped.")
        opened = self._opened.get(place.version)
        if (
            opened is not None
            and opened.process is not None
            and not opened.process.alive
            and opened.task.done()
        ):
            self._drop(opened)
            opened = None
        if opened is None:
            if sum(other.process is None for other in self.opened) >= _MOST_WAITING:
                raise BusyError(
                    f"{_MOST_WAITING} profiles are waiting to be read. Open this one when they are"
                    " done."
                )
            for other in self.opened:
                # An older version of the same file is obsolete.
                same = (other.place.real, other.place.run, other.place.before) == (
                    place.real,
                    place.run,
                    place.before,
                )
                if same and other.idle:
                    self._drop(other, "the file has changed.")
            opened = self._opened[place.version] = Opened(place)
            opened.task = asyncio.get_running_loop().create_task(self._read(opened))
            opened.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        opened.used = time.monotonic()
        return opened

    def _left(self, opened: Opened) -> None:
        """Update the state of a profile after a client has stopped waiting."""
        opened.used = time.monotonic()
        if not opened.task.done() and not opened.tells and not opened.asked:
            opened.task.cancel()
            self._drop(opened, "no request is waiting for it any more.")
        if opened.idle:
            self._wake()

    def _drop(self, opened: Opened, why: str = "it was closed.") -> None:
        if self._opened.get(opened.place.version) is opened:
            del self._opened[opened.place.version]
        if opened.process is not None:
            opened.process.end(why)
        self._wake()

    def _wake(self) -> None:
        """Let waiting profiles check again whether a process is available."""
        self._free.set()

    async def _read(self, opened: Opened) -> bytes:
        try:
            opened.process = await self._take(opened)
            place = opened.place
            head = {"do": "open", **_head(place)}
            if place.before is not None:
                head |= {"do": "compare", "before": _head(place.before)}
            return await opened.process.call(head, seconds=self.limits.open_s, tell=opened.tell)
        except EndedError as error:
            self._drop(opened)
            raise _placed(error, opened.place) from None
        except NbprofError:
            self._drop(opened)
            raise
        finally:
            opened.picture = None

    async def _take(self, opened: Opened) -> Process:
        """A process for a profile, as soon as the limit allows one more."""
        while sum(other.process is not None for other in self.opened) >= self.limits.profiles:
            unused = self._unused()
            if unused is not None:
                self._drop(unused, "it was closed, because other profiles were opened.")
                continue
            opened.tell(f"Waiting: {self.limits.profiles} other profiles are being read")
            self._free.clear()
            await self._free.wait()
        return self._take_spare()

    def _take_spare(self) -> Process:
        """The spare process, or a new one."""
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.alive else self._start()

    def _unused(self) -> Opened | None:
        """The least recently used profile that is idle."""
        idle = [opened for opened in self.opened if opened.idle]
        return min(idle, key=lambda opened: opened.used, default=None)

    async def _look(self) -> None:
        """Enforce the limits of memory and time, as long as there are processes."""
        while self.processes:
            await asyncio.sleep(_LOOK_S)
            # An error must not end the loop.
            with contextlib.suppress(Exception):
                self._keep_time()
                self._keep_memory()

    def _keep_time(self) -> None:
        now = time.monotonic()
        for opened in self.opened:
            if opened.idle and now - opened.used > self.limits.idle_s:
                self._drop(opened)
        if self._spare is not None and now - self._spare_since > self.limits.idle_s:
            self._spare.end("it was not needed.")
            self._spare = None

    def _keep_memory(self) -> None:
        used = {process: process.memory() for process in self.processes}
        total = sum(used.values())
        while total > self.limits.memory and (unused := self._unused()) is not None:
            total -= used.get(unused.process, 0) if unused.process else 0
            self._drop(unused, "it was closed, because other profiles needed the memory.")
        if total <= self.limits.memory:
            return
        if self._spare is not None:
            total -= used.get(self._spare, 0)
            self._spare.end("its memory was needed.")
            self._spare = None
        working = {}
        for opened in self.opened:
            if opened.process is not None and opened.process.alive:
                working[opened] = used.get(opened.process, 0)
        if total > self.limits.memory and working:
            largest = max(working, key=working.__getitem__)
            self._drop(
                largest,
                f"it needs more than the {size_text(self.limits.memory)} of memory that all"
                " profiles on this server may use together. Close others, or raise"
                " c.NbprofServer.memory.",
            )


def _head(place: Place) -> dict[str, Any]:
    """A place, as sent to a process."""
    root = None if place.root is None else str(place.root)
    return {
        "path": str(place.real),
        "shown": place.browser_path,
        "root": root,
        "hidden": place.hidden,
        "run": place.run,
        "scheduler": place.scheduler,
    }


def _placed(error: EndedError, place: Place) -> EndedError:
    """The error with the file that it is about."""
    if str(error).startswith(f"{place.browser_path}: "):
        return error
    return EndedError(f"{place.browser_path}: {error}")
