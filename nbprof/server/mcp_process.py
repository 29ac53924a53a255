"""The process that answers requests to the MCP endpoint; `mcp_handler` starts and ends it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import traceback
from functools import cache
from typing import Any, BinaryIO

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from nbprof.assistant.roots import Roots
from nbprof.assistant.server import build
from nbprof.assistant.stdin import readable
from nbprof.assistant.tools import Tools
from nbprof.core.files import RunFiles
from nbprof.server import pipes
from nbprof.server.paths import too_large


class _Served(Roots):
    """The folder that Jupyter serves."""

    def __init__(self, root: str, *, hidden: bool, largest: int) -> None:
        super().__init__([root], hidden=hidden, elsewhere="Copy the profile there.")
        self._largest = largest

    def find(self, path: str, run: str | None = None) -> tuple[RunFiles, list[str]]:
        """As of any folders, but nothing larger than the server opens."""
        files, names = super().find(path, run)
        size = sum(file.size for file in files.files if file.size is not None)
        if size > self._largest:
            raise too_large(files.name, size, self._largest)
        return files, names


@cache
def _server(root: str, hidden: bool, largest: int, seconds: float) -> MCPServer[Any]:
    roots = _Served(root, hidden=hidden, largest=largest)
    return build(Tools(roots, seconds=seconds, suffix=f"-{secrets.token_hex(3)}"))


async def _exchange(
    server: MCPServer[Any], headers: list[list[str]], body: bytes
) -> tuple[int, bytes]:
    """The HTTP status and the body of the answer to a request."""
    sent: list[Any] = []
    received = iter([{"type": "http.request", "body": readable(body)}])

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    # Jupyter has checked host, origin and user already.
    server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    manager = server.session_manager
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers],
    }
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    start, *parts = sent
    return start["status"], b"".join(part.get("body", b"") for part in parts)


async def _handle(answers: BinaryIO, head: dict[str, Any], body: bytes) -> None:
    reply = {"is": "done", "id": head["id"], "text": ""}
    try:
        server = _server(head["root"], head["hidden"], head["largest"], head["seconds"])
        status, answer = await _exchange(server, head["headers"], body)
    # The next request is answered all the same.
    except Exception as error:
        traceback.print_exc()
        text = f"nbprof failed with {type(error).__name__}; the server's log has the traceback."
        pipes.write(answers, reply | {"is": "failed", "text": text})
    else:
        pipes.write(answers, reply, json.dumps(status).encode() + b"\n" + answer)


async def _serve() -> None:
    requests, answers = pipes.take_standard_streams()
    handling: set[asyncio.Task[None]] = set()
    while (message := await asyncio.to_thread(pipes.read, requests)) is not None:
        task = asyncio.create_task(_handle(answers, *message))
        handling.add(task)
        task.add_done_callback(handling.discard)
    # The server has ended, and nobody waits for what is still being read.
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Answer requests on standard input, until it ends."""
    asyncio.run(_serve())
