"""The list of runs for JupyterLab's sidebar, reported as runs are found and analysed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web
from tornado.iostream import StreamClosedError

from nbprof.core.errors import NbprofError
from nbprof.server.handlers import Extension, Handler
from nbprof.server.on_disk import OnDisk, Problem
from nbprof.server.paths import RefusedError, locate

DEPTH, MOST_DEPTH = 8, 32
"""Levels of folders below the requested one that are searched, and the most that can be
requested.
"""
MOST_FOLDERS = 100
"""Maximum per request."""
_BEAT_S = 10.0
"""How often a message is sent, so that no proxy closes the connection as idle."""


class RunsHandler(Handler):
    """POST {folders: [path, ...], depth}: lines of JSON.

    {"run": {...}} as soon as a run is found, and again with the same path when it is analysed;
    {"problem": {path, message, gone}} if something could not be examined or analysed; {"listed":
    true} when the search is complete; {"left": count}, now and then, for runs that are not analysed
    yet; {"done": true} at the end.
    """

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """List runs."""
        try:
            asked = self.asked()
            folders, depth = _folders_and_depth(asked)
            root = self.root()
            await self.until_gone(self._tell(root, folders, depth))
        except NbprofError as error:
            self.refuse(error)
        except (asyncio.CancelledError, StreamClosedError):
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise

    async def _tell(self, root: str, folders: list[str], depth: int) -> None:
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("Cache-Control", "no-store")
        # nginx would buffer the lines until the end.
        self.set_header("X-Accel-Buffering", "no")
        walk = _Walk(root, folders, depth, self.app, hidden=self.hidden())
        try:
            async for lines in walk.lines():
                await self._lines(lines)
        finally:
            walk.stop()
        await self._lines([{"listed": True}])
        # New runs first.
        unknown = sorted(walk.unknown, key=lambda run: run.modified, reverse=True)
        for i, run in enumerate(unknown):
            facts = await self._analysed(run, walk.top, len(unknown) - i)
            if facts is not None:
                await self._lines(run.lines(facts)[-1:])
        await self.finish(
            json.dumps({"done": True}) + "\n", set_content_type="application/x-ndjson"
        )

    async def _analysed(self, run: OnDisk, top: Path | None, left: int) -> dict[str, Any] | None:
        """The facts of a run; a line is sent now and then to keep the connection open."""
        work = asyncio.get_running_loop().create_task(
            self.app.summaries.analysed(run, top, hidden=self.hidden())
        )
        try:
            while not (await asyncio.wait([work], timeout=_BEAT_S))[0]:
                await self._lines([{"left": left}])
            return await work
        finally:
            work.cancel()

    async def _lines(self, lines: list[dict[str, Any]]) -> None:
        self.write("".join(json.dumps(line) + "\n" for line in lines))
        await self.flush()


def _folders_and_depth(asked: dict[str, Any]) -> tuple[list[str], int]:
    folders, depth = asked.get("folders"), asked.get("depth", DEPTH)
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise RefusedError(400, "this request names no folders.")
    if len(folders) > MOST_FOLDERS:
        raise RefusedError(
            400,
            f"this request names {len(folders):,} folders; at most {MOST_FOLDERS} are listed at a"
            " time.",
        )
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= MOST_DEPTH:
        raise RefusedError(400, f"depth must be a whole number from 0 to {MOST_DEPTH}.")
    return folders, depth


class _Walk:
    """A search on a thread, whose results are passed on as lines.

    Attributes
    ----------
    top : Path or None
        The folder that all files must be in; None if links may lead out of it.
    unknown : list of OnDisk
        Runs to analyse.
    """

    def __init__(
        self, root: str, folders: list[str], depth: int, app: Extension, *, hidden: bool
    ) -> None:
        self._asked = root, folders, depth, app.follow_links, hidden
        self._summaries = app.summaries
        self._threads = app.threads
        self._loop = asyncio.get_running_loop()
        self._some = asyncio.Event()
        self._lock = threading.Lock()
        self._held: list[dict[str, Any]] = []
        self._over = False
        self._stopped = False
        self.top: Path | None = None
        self.unknown: list[OnDisk] = []

    def stop(self) -> None:
        """End the search."""
        self._stopped = True

    async def lines(self) -> AsyncIterator[list[dict[str, Any]]]:
        """New lines, repeatedly, until the search ends."""
        work = self._loop.create_task(self._threads.run(self._search))
        while True:
            await self._some.wait()
            self._some.clear()
            with self._lock:
                held, self._held, over = self._held, [], self._over
            if held:
                yield held
            if over:
                await work
                return

    def _over_already(self) -> bool:
        return self._stopped or self._threads.closing

    def _search(self) -> None:
        try:
            for result in self._all():
                if self._over_already():
                    return
                if isinstance(result, OnDisk):
                    facts = self._summaries.cached(result)
                    if facts is None:
                        self.unknown.append(result)
                    self._put(result.lines(facts))
                else:
                    self._put(result.lines())
        finally:
            self._put([], over=True)

    def _all(self) -> Iterator[OnDisk | Problem]:
        # Imported late, because it imports numpy.
        from nbprof.server.runs import Search

        root, folders, depth, follow_links, hidden = self._asked
        search: Search | None = None
        for folder in dict.fromkeys(folders):
            try:
                path, top, real = locate(
                    root, folder, follow_links=follow_links, hidden=hidden, top_too=True
                )
            except RefusedError as error:
                yield Problem(error.path or folder, error.reason)
                continue
            if search is None:
                self.top = None if follow_links else top
                search = Search(
                    top,
                    hidden=hidden,
                    follow_links=follow_links,
                    depth=depth,
                    stop=self._over_already,
                )
            yield from search.below(path, real)

    def _put(self, some: list[dict[str, Any]], *, over: bool = False) -> None:
        with self._lock:
            first = not self._held
            self._held += some
            self._over = self._over or over
        if first or over:
            try:
                self._loop.call_soon_threadsafe(self._some.set)
            except RuntimeError:
                # The server has closed its loop.
                return
