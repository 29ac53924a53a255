"""`nbprof mcp`: profiles for an assistant, over the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nbprof.assistant import NO_SDK
from nbprof.cli import source
from nbprof.core.errors import NbprofError


@click.command(name="mcp")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=source.FilePath(file_okay=False, path_type=Path),
    help="A folder whose profiles may be read; may be repeated. By default the working directory.",
)
@click.option(
    "--allow-urls",
    is_flag=True,
    help="Also read https, s3, gs, az, abfs and hf URLs, with this machine's credentials.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time limit of a call.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Maximum number of rows in an answer.",
)
@click.option(
    "--bytes",
    type=click.IntRange(4096),
    default=65536,
    show_default=True,
    help="Maximum size of an answer in bytes.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Pseudonyms instead of the names of hosts, files, ops, programs and code.",
)
def command(
    roots: tuple[Path, ...], allow_urls: bool, seconds: float, rows: int, bytes: int, redact: bool
) -> None:
    """Serve profiles to an assistant, read-only, over MCP on stdin and stdout."""
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        raise NbprofError(NO_SDK) from None
    if sys.stdin.isatty():
        click.echo(
            "nbprof mcp waits for a client on stdin; clients start it themselves:"
            " docs/assistants.md has their settings.",
            err=True,
        )
    from nbprof.assistant import stdin
    from nbprof.assistant.roots import Roots
    from nbprof.assistant.server import build
    from nbprof.assistant.tools import Tools

    tools = Tools(
        Roots(roots or [Path.cwd()], allow_urls=allow_urls),
        seconds=seconds,
        rows=rows,
        bytes=bytes,
        redact=redact,
    )
    server = build(tools)
    stdin.claim()
    try:
        server.run("stdio")
    except Exception as error:
        if _of_a_closed_pipe(error):
            raise BrokenPipeError from error
        raise


def _of_a_closed_pipe(error: BaseException) -> bool:
    """Return whether the client has closed its pipe, possibly in a group of errors of tasks."""
    return isinstance(error, BrokenPipeError) or any(
        map(_of_a_closed_pipe, getattr(error, "exceptions", ()))
    )
