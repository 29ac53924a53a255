"""`nbprof attach PID`: start the server of `nbprof.serve` in a program that runs already."""

from __future__ import annotations

import click

from nbprof.frameworks.register import PYTORCH, RECORDED


@click.command(name="attach")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--backend",
    type=click.Choice(
        [name for name, framework in RECORDED.items() if framework.recorder.has_server]
    ),
    default=PYTORCH.name,
    help="The framework whose server to start; PyTorch by default.",
)
def command(pid: int, backend: str) -> None:
    """Make a running Python 3.14 program recordable, without a change to it.

    PID is the id of its process; both sides need Python 3.14. It prints the address for `nbprof
    capture`. The server stays until the program ends.
    """
    from nbprof.capture.remote.attach import attach

    port = attach(pid, backend)
    scheme = "torch" if backend == PYTORCH.name else "grpc"
    click.echo(f"{scheme}://localhost:{port}")
