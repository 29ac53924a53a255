"""Recording workers from JupyterLab: each recording in a separate process, as long as a client
waits for it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web
from tornado.iostream import StreamClosedError

from nbprof.capture.place import DEFAULT
from nbprof.capture.remote.addresses import parse
from nbprof.capture.remote.sampling import Sampling
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.server.handlers import Handler, status_of
from nbprof.server.paths import RefusedError, locate
from nbprof.server.recordings import Order

MOST_WORKERS = 256
"""Of one recording."""
_BEAT_S = 1.0
"""How often the dialog gets a message, so that no proxy closes the connection as idle."""
_FIELDS = (
    "duration_ms",
    "delay_ms",
    "host_level",
    "device_level",
    "python_level",
    "retries",
    "name",
)


class FieldError(RefusedError):
    """A field of the dialog has an invalid value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(400, message)
        self.field = field


def shown_of(path: str) -> str:
    """A path, shortened for a message."""
    text = path.encode("utf-8", "replace").decode()
    return text if len(text) <= 100 else f"{text[:99]}…"


class CaptureHandler(Handler):
    """POST {addresses, duration_ms, delay_ms, host_level, device_level, python_level, retries,
    name, folder}: record workers.

    The answer is lines of JSON: {"recording": key}, then {"progress": sentence} and {"worker":
    {address, state, text}} as they come, and finally {"path", "name", "workers", "notes"}, or
    {"message": sentence} if nothing was recorded. POST {"stop": key} ends the recording early.
    Invalid requests are refused at once, with {"message", "field"}.

    Users who may run code on this server may record another machine from it.
    """

    auth_resource = "kernels"

    @web.authenticated
    @authorized("execute", "kernels")  # type: ignore[untyped-decorator]
    @authorized("write", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Record, or end a recording early."""
        try:
            if not self.app.capture:
                raise RefusedError(
                    403,
                    "recording from JupyterLab is turned off on this server (c.NbprofServer.capture"
                    " = False).",
                )
            asked = self.asked()
            if "stop" in asked:
                await self.app.recordings.stop(str(asked["stop"]))
                await self.finish("{}")
                return
            order = await self._order(asked)
            await self.until_gone(self._record(order))
        except NbprofError as error:
            if not self._headers_written:
                self.refuse(error)
            else:
                await self._end({"message": str(error)})
        except (asyncio.CancelledError, StreamClosedError):
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise

    def refuse(self, error: NbprofError) -> None:
        """Answer with the message of an error, and the field that it is about."""
        self.set_status(status_of(error))
        self.finish(json.dumps({"message": str(error), "field": getattr(error, "field", "")}))

    async def _order(self, asked: dict[str, Any]) -> Order:
        """The request, with every field validated.

        Raises
        ------
        RefusedError
        """
        try:
            addresses, _ = parse(asked.get("addresses") or "")
        except CaptureError as error:
            raise FieldError("addresses", str(error)) from None
        if len(addresses) > MOST_WORKERS:
            raise FieldError(
                "addresses",
                f"{len(addresses):,} workers are too many for one recording; the maximum is"
                f" {MOST_WORKERS}.",
            )
        values: dict[str, Any] = {}
        for field in _FIELDS:
            if asked.get(field) in (None, ""):
                continue
            try:
                Sampling(**{field: asked[field]})
            except CaptureError as error:
                raise FieldError(field, str(error)) from None
            values[field] = asked[field]
        path, real = await asyncio.to_thread(
            self._folder, self.root(), asked.get("folder") or DEFAULT
        )
        # As it was typed, so that the recorder can report duplicates.
        typed = asked["addresses"]
        return Order(
            [typed] if isinstance(typed, str) else list(typed),
            Sampling(**values, logdir=str(real)),
            path,
        )

    def _folder(self, root: str, path: object) -> tuple[str, Path]:
        """The folder for the run, which need not exist: path in the file browser and on the disk.

        Raises
        ------
        FieldError
            It, or the folder for runs in it, is hidden, a file, or outside of the folder that
            Jupyter serves.
        """
        if not isinstance(path, str):
            raise FieldError(
                "folder", "the folder must be a path below the folder that Jupyter serves."
            )
        allowed: Any = {
            "follow_links": self.app.follow_links,
            "hidden": self.hidden(),
            "top_too": True,
        }
        try:
            browser_path, _, real = locate(root, path, **allowed)
            _, _, home = locate(root, f"{browser_path}/plugins/profile", **allowed)
            if any(
                folder.exists() and not folder.is_dir()
                for folder in (*real.parents, real, home.parent, home)
            ):
                raise FieldError(
                    "folder",
                    f"{browser_path}: it is a file, or contains a file in place of the folder for"
                    " runs. Choose another folder.",
                )
        except FieldError:
            raise
        except RefusedError as error:
            says = {
                403: "it is outside the folder that Jupyter serves",
                404: "it is not below the folder that Jupyter serves, or it is hidden",
            }
            raise FieldError(
                "folder",
                f"{shown_of(path)}: {says.get(error.status, error.reason)}. Choose another folder.",
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not a valid folder name"
            raise FieldError(
                "folder", f"{shown_of(path)}: {reason}. Choose another folder."
            ) from None
        return browser_path, real

    async def _record(self, order: Order) -> None:
        lines: list[str] = []
        news = asyncio.Event()

        def tell(line: str) -> None:
            lines.append(line)
            news.set()

        last = json.dumps({"progress": ""})
        work = asyncio.get_running_loop().create_task(self.app.recordings.record(order, tell))
        try:
            while not work.done():
                waker = asyncio.ensure_future(news.wait())
                await asyncio.wait(
                    [work, waker], timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                waker.cancel()
                news.clear()
                last = next(
                    (line for line in reversed(lines) if line.startswith('{"progress"')), last
                )
                if (
                    work.done()
                    and not self._headers_written
                    and work.exception() is not None
                    and not lines
                ):
                    break
                await self._lines(lines or [last])
                lines.clear()
            result = await work
        finally:
            work.cancel()
        await self._end(result)

    async def _lines(self, lines: list[str]) -> None:
        self._stream()
        self.write("".join(f"{line}\n" for line in lines))
        await self.flush()

    async def _end(self, line: dict[str, Any]) -> None:
        self._stream()
        self.write(json.dumps(line) + "\n")
        await self.finish(set_content_type="application/x-ndjson")

    def _stream(self) -> None:
        if not self._headers_written:
            self.set_header("Content-Type", "application/x-ndjson")
            self.set_header("Cache-Control", "no-store")
            # nginx would buffer the lines until the end.
            self.set_header("X-Accel-Buffering", "no")
