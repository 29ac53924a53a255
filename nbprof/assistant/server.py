"""The Model Context Protocol server on stdin and stdout. Needs the extra `mcp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from nbprof.assistant.tools import DATA, Tools, described
from nbprof.core.version import __version__

_INSTRUCTIONS = (
    "Reads ML profiles of TensorFlow, JAX and PyTorch with nbprof. Begin with `open`, which gives"
    " an id, then `brief`. `frame`, `events` and `advice` have the details, `explain` the meaning"
    " of a column, frame, rule or category; `compare` says whether a change is more than chance."
    f" {DATA}"
)


def build(tools: Tools) -> MCPServer[Any]:
    """The server of some tools; `run("stdio")` serves."""
    server: MCPServer[Any] = MCPServer(
        "nbprof", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR"
    )
    annotations = ToolAnnotations(
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=tools.roots.allow_urls,
    )
    for function in tools.functions():
        server.tool(
            description=described(function), annotations=annotations, structured_output=False
        )(_answering(function))
    return server


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> CallToolResult:
        answer = await function(*args, **kwargs)
        content = TextContent(type="text", text=answer.text)
        return CallToolResult(content=[content], is_error=answer.failed)

    return call
