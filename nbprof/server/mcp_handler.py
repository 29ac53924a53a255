"""The MCP endpoint for assistants: POST of JSON-RPC, one answer each (streamable HTTP)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbprof.assistant import NO_SDK
from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.server.handlers import Handler, status_of
from nbprof.server.paths import RefusedError
from nbprof.server.pool import Limits
from nbprof.server.process import EndedError, Process

_LOOK_S = 0.5
"""How often memory and time are checked."""
_BESIDES_S = 60.0
"""How much longer than its limit a call may take, before the process is taken for stuck."""
_PARSE_ERROR, _INVALID_REQUEST, _INTERNAL_ERROR = -32700, -32600, -32603
"""Codes of JSON-RPC."""


class Assistants:
    """The process that reads profiles for assistants: begun by a request, ended when it is idle.

    Parameters
    ----------
    limits : Limits
        Of them, those of memory and time.
    log : logging.Logger
    """

    def __init__(self, limits: Limits, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._limits = limits
        self._log = log
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._used = 0.0
        self._closed = False

    @property
    def process(self) -> Process | None:
        """The process that runs."""
        return self._process if self._process is not None and self._process.alive else None

    async def call(self, head: dict[str, Any], body: bytes) -> bytes:
        """What the process answers.

        Raises
        ------
        NbprofError
        """
        self._used = time.monotonic()
        process = self.process or self._start()
        seconds = self._limits.ask_s
        return await process.call({**head, "seconds": seconds}, body, seconds=seconds + _BESIDES_S)

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._process is not None:
            self._process.end("the server was stopped.")

    def _start(self) -> Process:
        if self._closed:
            raise EndedError("the server is being stopped.")
        if not _has_sdk():
            raise RefusedError(501, NO_SDK)
        loop = asyncio.get_running_loop()
        self._process = Process(loop, self._log, "nbprof.server.mcp_process")
        self._watch = loop.create_task(self._look(self._process))
        return self._process

    async def _look(self, process: Process) -> None:
        while process.alive:
            await asyncio.sleep(_LOOK_S)
            if process.memory() > self._limits.memory:
                process.end(
                    f"the profiles that are open need more than the"
                    f" {size_text(self._limits.memory)} of memory that this server allows. Open"
                    " fewer, or raise c.NbprofServer.memory."
                )
            elif not process.busy and time.monotonic() - self._used > self._limits.idle_s:
                process.end("it was idle.")


def _has_sdk() -> bool:
    try:
        return int(version("mcp").partition(".")[0]) >= 2
    except PackageNotFoundError:
        return False


class McpHandler(Handler):
    """POST of a JSON-RPC message, answered with JSON; without sessions and streams.

    It has the tools of `nbprof mcp`, which only read, so users who may read the contents may call
    them.
    """

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Answer a message of a client."""
        asked: dict[str, Any] = {}
        try:
            asked = self.asked()
            # Streams would not end; and the process needs no credentials.
            headers = [
                (name.lower(), text)
                for name, text in self.request.headers.get_all()
                if name.lower() == "content-type" or name.lower().startswith("mcp-")
            ]
            head = {
                "root": self.root(),
                "hidden": self.hidden(),
                "largest": self.app.largest,
                "headers": [("accept", "application/json"), *headers],
            }
            answer = await self.until_gone(self.app.assistants.call(head, self.request.body))
        except NbprofError as error:
            self._refuse_call(error, asked.get("id"))
        except asyncio.CancelledError:
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise
        else:
            status, _, body = answer.partition(b"\n")
            self.set_status(int(status))
            await self.finish(body)

    def _refuse_call(self, error: NbprofError, number: object) -> None:
        """Answer with an error of JSON-RPC."""
        status = status_of(error)
        code = {400: _PARSE_ERROR, 413: _INVALID_REQUEST}.get(status, _INTERNAL_ERROR)
        self.set_status(status)
        reply = {
            "jsonrpc": "2.0",
            "id": number if isinstance(number, int | str) else None,
            "error": {"code": code, "message": str(error)},
        }
        self.finish(json.dumps(reply))
