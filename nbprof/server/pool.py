"""The profiles that are open, each in a process of its own: as many, as large and as long as the
options say.
"""

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
_MOST_KNOWN = 1000
"""Runs of folders whose files are remembered."""
_MOST_IN_LINE = 32
"""Profiles that wait for a process."""


@dataclass(frozen=True)
class Limits:
    """What the processes may use together.

    Attributes
    ----------
    profiles : int
        Kept at a time.
    memory : int
        Bytes.
    idle_s, open_s, ask_s : float
        How long an unused profile is kept, opening one may take, an answer may take.
    ahead : bool
        Whether a process is kept ready for the next profile.
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
    told: str = ""
    picture: Progress | None = None
    asked: int = 0
    used: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        """Passes on how far it is, to all who wait for it."""
        self.told = text
        if isinstance(text, Progress) and text.picture:
            self.picture, self.told = text, str(text)
        for tell in list(self.tells):
            tell(text)

    @property
    def idle(self) -> bool:
        """Nobody waits for anything of it."""
        busy = self.process is not None and self.process.busy
        return self.task.done() and not self.tells and not self.asked and not busy


class Pool:
    """Opens profiles and asks them; who asks for the same version of the same file shares its
    process.
    """

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
        """Those that are open or being opened."""
        return list(self._opened.values())

    @property
    def processes(self) -> list[Process]:
        """Those that run."""
        running = [opened.process for opened in self.opened if opened.process is not None]
        return [
            p
            for p in [*running, *self._looking, *([self._spare] if self._spare else [])]
            if p.alive
        ]

    async def open(self, place: Place, tell: Tell) -> bytes:
        """The packed payload of a profile. The work ends when no client waits for it any more.

        Raises
        ------
        NbprofError
        """
        opened = self._find(place)
        # Who comes later gets the picture, too.
        for progress in (opened.picture, opened.told):
            if progress is not None and not opened.task.done():
                tell(progress)
        opened.tells.append(tell)
        try:
            return await asyncio.shield(opened.task)
        finally:
            opened.tells.remove(tell)
            self._left(opened)

    async def compare(self, before: Place, after: Place, tell: Tell) -> bytes:
        """The packed payload of two profiles side by side. Its process ends with it: the two are
        asked about one by one.

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
        """Which run of a folder is meant: the one of that name, or the newest. The process that
        finds it is the next one that reads.

        Raises
        ------
        NbprofError
        """
        async with self._looks:
            if self._closed:
                raise EndedError("the server is being stopped.")
            spare, self._spare = self._spare, None
            process = spare if spare is not None and spare.alive else self._start()
            self._looking.append(process)
            try:
                root = None if place.root is None else str(place.root)
                head = {
                    "do": "find",
                    "path": str(place.real),
                    "shown": place.shown,
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
        while len(self._files) >= _MOST_KNOWN:
            del self._files[next(iter(self._files))]
        self._files[str(place.real), chosen.run] = chosen.files
        return chosen

    def files_of(self, place: Place, run: str) -> tuple[str, ...] | None:
        """The files of a run of a folder, where it was looked for before."""
        return self._files.get((str(place.real), run))

    def _keep(self, process: Process) -> None:
        """Has a process that is not needed any more wait for the next profile."""
        if self._closed or not process.alive or (self._spare is not None and self._spare.alive):
            process.end("it was not needed.")
            return
        self._spare, self._spare_since = process, time.monotonic()

    async def ask(self, place: Place, request: bytes) -> bytes:
        """A packed answer of the timeline; the profile is opened again if it was closed.

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
        """Has a process ready, so that the next profile need not wait for imports."""
        self._spare_since = time.monotonic()
        if (
            self.limits.ahead
            and (self._spare is None or not self._spare.alive)
            and not self._closed
        ):
            self._spare = self._start()

    def close(self) -> None:
        """Ends all processes."""
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
            if sum(other.process is None for other in self.opened) >= _MOST_IN_LINE:
                raise BusyError(
                    f"{_MOST_IN_LINE} profiles are waiting to be read. Open this one when they are"
                    " done."
                )
            for other in self.opened:
                # What the file held before is of no use any more.
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
        """Somebody no longer waits."""
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
        """There may be room for one more."""
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
        """A process for a profile, as soon as there is room for one more."""
        while sum(other.process is not None for other in self.opened) >= self.limits.profiles:
            unused = self._unused()
            if unused is not None:
                self._drop(unused, "it was closed, because other profiles were opened.")
                continue
            opened.tell(f"Waiting: {self.limits.profiles} other profiles are being read")
            self._free.clear()
            await self._free.wait()
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.alive else self._start()

    def _unused(self) -> Opened | None:
        """The open profile that was not used for the longest time."""
        return min(
            (opened for opened in self.opened if opened.idle),
            key=lambda opened: opened.used,
            default=None,
        )

    async def _look(self) -> None:
        """Keeps memory and time within the limits, as long as there are processes."""
        while self.processes:
            await asyncio.sleep(_LOOK_S)
            # What goes wrong here must not end the watch.
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
        working = [
            opened for opened in self.opened if opened.process is not None and opened.process.alive
        ]
        if total > self.limits.memory and working:
            largest = max(
                working, key=lambda opened: used.get(opened.process, 0) if opened.process else 0
            )
            self._drop(
                largest,
                f"it needs more than the {size_text(self.limits.memory)} of memory that all"
                " profiles on this server may use together. Close others, or raise"
                " c.NbprofServer.memory.",
            )


def _head(place: Place) -> dict[str, Any]:
    """A place as a process is told of it."""
    root = None if place.root is None else str(place.root)
    return {
        "path": str(place.real),
        "shown": place.shown,
        "root": root,
        "hidden": place.hidden,
        "run": place.run,
        "scheduler": place.scheduler,
    }


def _placed(error: EndedError, place: Place) -> EndedError:
    """The error with the file that it is about."""
    return (
        error
        if str(error).startswith(f"{place.shown}: ")
        else EndedError(f"{place.shown}: {error}")
    )
