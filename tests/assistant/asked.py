"""A server in memory, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from mcp import Client

from nbprof.assistant.roots import Roots
from nbprof.assistant.server import build
from nbprof.assistant.tools import Tools

DATA = Path(__file__).parents[1] / "data"


class Answer(NamedTuple):
    """What came back: the text as it is, the same parsed, and whether it is an error."""

    text: str
    value: Any
    failed: bool


Call = Callable[..., Awaitable[Answer]]


def asked(
    session: Callable[[Call], Awaitable[Any]], *roots: Path, allow_urls: bool = False, **bounds: Any
) -> Any:
    """Runs `session` with a function that calls a tool."""

    async def within() -> Any:
        tools = Tools(Roots(roots or [DATA], allow_urls=allow_urls), **bounds)
        async with Client(build(tools)) as client:

            async def call(tool: str, **arguments: Any) -> Answer:
                result = await client.call_tool(tool, arguments)
                (content,) = result.content
                try:
                    value = json.loads(content.text)
                except ValueError:
                    value = None
                return Answer(content.text, value, bool(result.is_error))

            return await session(call)

    return asyncio.run(within())


def one(
    tool: str, *roots: Path, path: str | None = None, allow_urls: bool = False, **arguments: Any
) -> Answer:
    """The answer to one call; with `path`, of the profile there, which is opened first."""

    async def session(call: Call) -> Answer:
        if path is not None:
            opened = await call("open", path=path)
            assert not opened.failed, opened.text
            arguments.setdefault("id", opened.value["id"])
        return await call(tool, **arguments)

    return asked(session, *roots, allow_urls=allow_urls)
