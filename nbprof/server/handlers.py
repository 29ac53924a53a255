"""Requests of JupyterLab: to open a profile, and about a profile that is open.

Authentication, authorisation and the XSRF check are those of Jupyter Server. Users who may read the
contents may open profiles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from nbprof.core.errors import NbprofError, RawError
from nbprof.server.folders import placed
from nbprof.server.paths import Place, RefusedError, resolve
from nbprof.server.pool import Pool
from nbprof.server.process import BusyError, EndedError, Progress, Tell
from nbprof.server.recordings import Recordings
from nbprof.server.summaries import Summaries
from nbprof.server.threads import Threads

T = TypeVar("T")

MOST_BYTES = 1 << 20
"""Limit for a request."""
_SOON_S = 0.2
"""An answer within this time is sent with its status, without progress before it."""
_BEAT_S = 1.0
"""How often progress is sent, so that no proxy closes the connection as idle."""


class Extension(Protocol):
    """The parts of `NbprofServer` that handlers use."""

    pool: Pool
    threads: Threads
    summaries: Summaries
    recordings: Recordings
    assistants: Any
    capture: Any
    follow_links: Any
    largest: Any


class Handler(APIHandler):
    """Base class of the handlers: requests and errors as JSON, and cancelling abandoned work."""

    auth_resource = "contents"

    def initialize(self, app: Extension) -> None:
        """Store the extension, with its options and its processes."""
        self.app = app
        self._work: asyncio.Task[Any] | None = None
        self._gone = False

    def on_connection_close(self) -> None:
        """Cancel the work, because the client is gone."""
        super().on_connection_close()
        self._gone = True
        if self._work is not None:
            self._work.cancel()

    def abandoned(self) -> bool:
        """True if no client waits for the answer any more."""
        return self._gone or self.app.threads.closing

    async def until_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for some work, which is cancelled when the connection closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._work = task
        return await task

    def asked(self) -> dict[str, Any]:
        """The request: a JSON object.

        Raises
        ------
        RefusedError
        """
        if len(self.request.body) > MOST_BYTES:
            raise RefusedError(
                413,
                f"this request has {len(self.request.body):,} bytes; {MOST_BYTES:,} is the"
                " maximum.",
            )
        try:
            request = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise RefusedError(400, "this request is not JSON.") from None
        if not isinstance(request, dict):
            raise RefusedError(400, "this request is not a JSON object.")
        return request

    async def place(self, path: object) -> Place:
        """The file or folder at a path of the file browser; resolved on a thread, because disks can
        be slow.

        Raises
        ------
        RefusedError
        """
        if not isinstance(path, str):
            raise RefusedError(400, "this request names no path.")
        root, hidden = self.root(), self.hidden()
        links, largest = self.app.follow_links, self.app.largest
        return await asyncio.to_thread(
            resolve, root, path, follow_links=links, hidden=hidden, largest=largest
        )

    async def scheduler(self, asked: dict[str, Any]) -> str:
        """The Dask scheduler that a request names.

        Its workers run code, so only users who may run code may name one.

        Raises
        ------
        RefusedError
        """
        address = asked.get("scheduler") or ""
        if not isinstance(address, str):
            raise RefusedError(400, "the scheduler must be given by its address.")
        allowed = not address or self.authorizer.is_authorized(
            self, self.current_user, "execute", "kernels"
        )
        if not (allowed if isinstance(allowed, bool) else await allowed):
            raise RefusedError(
                403,
                "only users who may run code may use a Dask scheduler. Clear its address in the"
                " settings of nbprof.",
            )
        return address

    def root(self) -> str:
        """The folder that Jupyter serves.

        Raises
        ------
        RefusedError
            Its files are not on a disk.
        """
        root = getattr(self.contents_manager, "root_dir", "")
        if not root:
            raise RefusedError(
                501,
                "the files of this server are not on a disk that nbprof can read. Download the"
                " profile and load it in a notebook.",
            )
        return str(root)

    def hidden(self) -> bool:
        """True if names that begin with a dot may be read."""
        return bool(getattr(self.contents_manager, "allow_hidden", False))

    def refuse(self, error: NbprofError) -> None:
        """Answer with the message of an error."""
        self.set_status(status_of(error))
        self.finish(json.dumps(_error_message(error)))

    async def chosen(
        self, place: Place, run: object, tell: Tell
    ) -> tuple[Place, list[dict[str, Any]]]:
        """The named run of a folder, by default the newest, and all its runs; a file is returned
        as it is, without runs.

        Raises
        ------
        NbprofError
        """
        if not place.folder:
            return place, []
        if run is not None and not isinstance(run, str):
            raise RefusedError(400, "the run must be given by name.")
        chosen = await self.app.pool.look(place, run or "", tell, hidden=self.hidden())
        run_place = await asyncio.to_thread(
            placed, place, chosen.run, chosen.files, largest=self.app.largest
        )
        return run_place, chosen.runs

    async def opened_run(self, place: Place, run: object) -> Place:
        """The named run of a folder, without a search if it was opened before.

        Raises
        ------
        NbprofError
        """
        files = None
        if place.folder and isinstance(run, str):
            files = self.app.pool.files_of(place, run)
        if files is None:
            return (await self.chosen(place, run, lambda _: None))[0]
        return await asyncio.to_thread(placed, place, str(run), files)


def _error_message(error: NbprofError) -> dict[str, Any]:
    """An error as sent to a front end, with `raw` if the recording must be exported first."""
    message: dict[str, Any] = {"message": str(error)}
    if isinstance(error, RawError):
        message["raw"] = error.recorder
    return message


def _progress(text: str) -> bytes:
    """Progress as sent to a front end: a line of JSON, followed by the first picture if any."""
    line: dict[str, Any] = {"progress": text}
    picture = b""
    if isinstance(text, Progress):
        picture = text.picture
        if text.fraction is not None:
            line["fraction"] = round(text.fraction, 3)
        if picture:
            line["early"] = len(picture)
    return json.dumps(line).encode() + b"\n" + picture


def status_of(error: NbprofError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, BusyError):
        return 503
    return 500 if isinstance(error, EndedError) else 422


class OpenHandler(Handler):
    """POST {path, run, scheduler}: the packed payload of the dashboard.

    `run` is the name of a run if the path is a folder, by default the newest; the Dask workers of
    `scheduler` read the files of many hosts.

    The answer is lines of JSON: {"progress": sentence, "fraction": 0 to 1 if known} repeatedly,
    then {"bytes", "version", "run", "runs"} and the bytes themselves, or {"message": sentence} if
    it fails, with {"raw": recorder} if it must be exported first. For a large profile, a line
    {"progress", "early"} comes before, with so many bytes: the packed payload of its first picture.
    "run" and "runs" are those of a folder.
    """

    paths: tuple[str, ...] = ("path",)
    """Keys of a request that are paths."""

    def initialize(self, app: Extension) -> None:
        """Store the extension; no run was chosen yet."""
        super().initialize(app)
        self._run_choice: dict[str, Any] = {}

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Opens a profile."""
        try:
            asked = self.asked()
            scheduler = await self.scheduler(asked)
            places = [
                replace(await self.place(asked.get(key)), scheduler=scheduler) for key in self.paths
            ]
            await self.until_gone(self._open(places, asked))
        except NbprofError as error:
            # If a run does not open, the user can choose another one.
            message = {**_error_message(error), **self._run_choice}
            if not self._headers_written:
                self.set_status(status_of(error))
                await self.finish(json.dumps(message))
            else:
                await self._end(json.dumps(message).encode() + b"\n")
        except (asyncio.CancelledError, StreamClosedError):
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise

    async def read(
        self, places: list[Place], asked: dict[str, Any], tell: Tell
    ) -> tuple[bytes, Place]:
        """The packed payload, and the place for further requests."""
        chosen, runs = await self.chosen(places[0], asked.get("run"), tell)
        if runs:
            self._run_choice = {"run": chosen.run, "runs": runs}
        return await self.app.pool.open(chosen, tell), chosen

    async def _open(self, places: list[Place], asked: dict[str, Any]) -> None:
        progress = ""
        pictures: list[Progress] = []
        news = asyncio.Event()

        def tell(text: str) -> None:
            nonlocal progress
            progress = text
            if isinstance(text, Progress) and text.picture:
                # The picture is sent once, the sentence repeatedly.
                pictures.append(text)
                progress = str(text)
            news.set()

        work = asyncio.get_running_loop().create_task(self.read(places, asked, tell))
        try:
            await asyncio.wait([work], timeout=_SOON_S)
            while not work.done():
                news.clear()
                latest = pictures.pop() if pictures else progress
                await self._line(_progress(latest))
                waker = asyncio.ensure_future(news.wait())
                await asyncio.wait(
                    [work, waker], timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                waker.cancel()
            payload, chosen = await work
        finally:
            work.cancel()
        head = {"bytes": len(payload), "version": chosen.version, **self._run_choice}
        await self._end(json.dumps(head).encode() + b"\n" + payload)

    async def _line(self, data: bytes) -> None:
        self._stream()
        self.write(data)
        await self.flush()

    async def _end(self, data: bytes) -> None:
        self._stream()
        self.write(data)
        await self.finish(set_content_type="application/octet-stream")

    def _stream(self) -> None:
        if not self._headers_written:
            self.set_header("Content-Type", "application/octet-stream")
            self.set_header("Cache-Control", "no-store")
            # nginx would buffer the progress until the end.
            self.set_header("X-Accel-Buffering", "no")


class CompareHandler(OpenHandler):
    """POST {a, b, a_run, b_run}: the packed payload of two profiles side by side, `a` the earlier
    one; for a folder, of its newest run by default.

    The answer is like that of `OpenHandler`; "version" and "run" are those of `b`, which the
    timeline shows.
    """

    paths = ("a", "b")

    async def read(
        self, places: list[Place], asked: dict[str, Any], tell: Tell
    ) -> tuple[bytes, Place]:
        """Both profiles, and the place of the second."""
        before, after = [
            (await self.chosen(place, asked.get(f"{key}_run"), tell))[0]
            for key, place in zip("ab", places, strict=True)
        ]
        self._run_choice = {"run": after.run} if after.run else {}
        return await self.app.pool.compare(before, after, tell), after


class AskHandler(Handler):
    """POST {path, run, version, request}: the packed answer of the timeline to a request.

    If the request is null, it is only checked that the profile still has this version.
    """

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Answer a request about an open profile."""
        try:
            asked = self.asked()
            place = replace(
                await self.place(asked.get("path")), scheduler=await self.scheduler(asked)
            )
            place = await self.opened_run(place, asked.get("run"))
            if asked.get("version") != place.version:
                raise RefusedError(
                    409,
                    "it has changed since it was opened. Open it again.",
                    path=place.browser_path,
                )
            if "request" in asked and asked["request"] is None:
                self.set_status(204)
                await self.finish()
                return
            if not isinstance(asked.get("request"), dict):
                raise RefusedError(400, "this request is empty.")
            answer = await self.until_gone(
                self.app.pool.ask(place, json.dumps(asked["request"]).encode())
            )
        except NbprofError as error:
            self.refuse(error)
        except asyncio.CancelledError:
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise
        else:
            self.set_header("Cache-Control", "no-store")
            await self.finish(answer, set_content_type="application/octet-stream")


class ReadyHandler(Handler):
    """POST: a profile is visible in the file browser and may be opened soon."""

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Start a process."""
        self.app.pool.ready()
        self.set_status(204)
        await self.finish()
