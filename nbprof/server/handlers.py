"""What JupyterLab asks the server: to open a profile, and questions about one that is open.

Authentication, authorisation and the XSRF check are Jupyter Server's own. Whoever may read the
contents may open profiles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from nbprof.core.errors import NbprofError, RawError
from nbprof.server.folders import placed
from nbprof.server.paths import Place, RefusedError, resolve
from nbprof.server.process import BusyError, EndedError, Progress, Tell

if TYPE_CHECKING:
    from nbprof.server.extension import NbprofServer

T = TypeVar("T")

MOST_BYTES = 1 << 20
"""Of a request."""
_SOON_S = 0.2
"""An answer that comes within this time is sent with a status of its own, without progress before
it.
"""
_BEAT_S = 1.0
"""How often progress is sent, so that no proxy closes the connection as idle."""


class Handler(APIHandler):
    """What the handlers share: requests and errors as JSON, and cancelling work that no client
    waits for.
    """

    auth_resource = "contents"

    def initialize(self, app: NbprofServer) -> None:
        """Takes the extension, with its options and its processes."""
        self.app = app
        self._work: asyncio.Task[Any] | None = None
        self._gone = False

    def on_connection_close(self) -> None:
        """The one who asked has gone."""
        super().on_connection_close()
        self._gone = True
        if self._work is not None:
            self._work.cancel()

    def abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._gone or self.app.threads.closing

    async def until_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for some work, which is cancelled when the connection closes."""
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
        """Where a path of the file browser leads; found on another thread, because a disk may be
        far away.

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
        """The Dask scheduler that a request names. Its workers run code, so only who may run code
        may name one.

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
            Its files are somewhere else than on a disk.
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
        """Whether names that begin with a dot may be read."""
        return bool(getattr(self.contents_manager, "allow_hidden", False))

    def refuse(self, error: NbprofError) -> None:
        """Answers with the sentence of an error."""
        self.set_status(status_of(error))
        self.finish(json.dumps(_told(error)))

    async def chosen(
        self, place: Place, run: object, tell: Tell
    ) -> tuple[Place, list[dict[str, Any]]]:
        """The run of a folder that is meant, the newest where none is named, and all its runs. A
        file is itself, and no run.

        Raises
        ------
        NbprofError
        """
        if not place.folder:
            return place, []
        if run is not None and not isinstance(run, str):
            raise RefusedError(400, "the run must be given by name.")
        chosen = await self.app.pool.look(place, run or "", tell, hidden=self.hidden())
        return (
            await asyncio.to_thread(
                placed, place, chosen.run, chosen.files, largest=self.app.largest
            ),
            chosen.runs,
        )

    async def known(self, place: Place, run: object) -> Place:
        """The run of a folder that was opened before.

        Raises
        ------
        NbprofError
        """
        files = (
            self.app.pool.files_of(place, run) if place.folder and isinstance(run, str) else None
        )
        if files is None:
            return (await self.chosen(place, run, lambda _: None))[0]
        return await asyncio.to_thread(placed, place, str(run), files)


def _told(error: NbprofError) -> dict[str, Any]:
    """An error as a front end gets it: `raw` where the tool that recorded it has to export it
    first.
    """
    message: dict[str, Any] = {"message": str(error)}
    if isinstance(error, RawError):
        message["raw"] = error.what
    return message


def _progress(text: str) -> bytes:
    """How far the work is, as a front end gets it: a line, with the first picture behind it where
    there is one.
    """
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
    """The status of HTTP that fits an error."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, BusyError):
        return 503
    return 500 if isinstance(error, EndedError) else 422


class OpenHandler(Handler):
    """POST {path, run, scheduler}: the packed payload of the dashboard.

    `run` is a name where the path is a folder, the newest run when left out; the Dask workers of
    `scheduler` read the files of many hosts.

    The answer is lines of JSON, {"progress": sentence, "fraction": 0 to 1 where that is known} as
    often as there is one, then {"bytes", "version", "run", "runs"} and the bytes themselves, or
    {"message": sentence} where it fails, with {"raw": who recorded it} where it is not exported
    yet. Of a large profile {"progress", "early"} comes before these, with so many bytes: the packed
    payload of its first picture. "run" and "runs" are those of a folder.
    """

    paths: tuple[str, ...] = ("path",)
    """What of a request names places."""

    def initialize(self, app: NbprofServer) -> None:
        """Takes the extension; no folder has been looked through yet."""
        super().initialize(app)
        self._found: dict[str, Any] = {}

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
            # The others can be chosen where one run does not open.
            message = {**_told(error), **self._found}
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
        """What is opened, packed, and the place that is asked about it."""
        chosen, runs = await self.chosen(places[0], asked.get("run"), tell)
        if runs:
            self._found = {"run": chosen.run, "runs": runs}
        return await self.app.pool.open(chosen, tell), chosen

    async def _open(self, places: list[Place], asked: dict[str, Any]) -> None:
        progress = ""
        pictures: list[Progress] = []
        news = asyncio.Event()

        def tell(text: str) -> None:
            nonlocal progress
            progress = text
            if isinstance(text, Progress) and text.picture:
                # It is sent once; the sentence is said again at each beat.
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
        head = {"bytes": len(payload), "version": chosen.version, **self._found}
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
            # nginx would keep the progress until all is there.
            self.set_header("X-Accel-Buffering", "no")


class CompareHandler(OpenHandler):
    """POST {a, b, a_run, b_run}: the packed payload of two profiles side by side, `a` the one
    before; of a folder its newest run.

    The answer is as that of `OpenHandler`; "version" and "run" are of `b`, about which the timeline
    is asked.
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
        self._found = {"run": after.run} if after.run else {}
        return await self.app.pool.compare(before, after, tell), after


class AskHandler(Handler):
    """POST {path, run, version, request}: the packed answer of the timeline to the request.

    Where the request is null, only whether the profile is still the one of that version is told.
    """

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Answers a question about a profile that was opened."""
        try:
            asked = self.asked()
            place = replace(
                await self.place(asked.get("path")), scheduler=await self.scheduler(asked)
            )
            place = await self.known(place, asked.get("run"))
            if asked.get("version") != place.version:
                raise RefusedError(
                    409, "it has changed since it was opened. Open it again.", path=place.shown
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
    """POST: a profile is in sight and may be opened soon."""

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Has a process started."""
        self.app.pool.ready()
        self.set_status(204)
        await self.finish()
