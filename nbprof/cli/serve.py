"""`nbprof serve train.py`: run a program so that it can be recorded from elsewhere."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from nbprof.cli import source
from nbprof.cli.main import FAILED
from nbprof.frameworks.register import PYTORCH, RECORDED


@click.command(name="serve", context_settings={"allow_interspersed_args": False})
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6009,
    metavar="N",
    help="Where the server listens; 6009 by default, 0 for a free one.",
)
@click.option(
    "--backend",
    type=click.Choice(
        [name for name, framework in RECORDED.items() if framework.recorder.has_server]
    ),
    help="The framework whose server to start; by default the one that is installed.",
)
@click.option(
    "--host",
    default="",
    metavar="ADDRESS",
    help=(
        "PyTorch only: the address to listen at; by default only programs on this machine can"
        " connect. Others need the environment variable NBPROF_TOKEN here and there."
    ),
)
@click.option(
    "-m", "module", is_flag=True, help="SCRIPT is the name of a module, as for python -m."
)
@click.argument("script", shell_complete=source.files)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    port: int, backend: str | None, host: str, module: bool, script: str, args: tuple[str, ...]
) -> int | None:
    """Run a Python program with the profiler server of its framework, for `nbprof capture`.

    Everything after SCRIPT is passed to the program. Whoever can reach the port of TensorFlow or
    JAX can record the program: they have no password.
    """
    if not module and not Path(script).is_file():
        raise click.UsageError(f"there is no script {script!r}; -m runs a module by its name")
    from nbprof.capture.remote.serve import SERVERS, serve

    installed = [name for name in SERVERS if find_spec(name) is not None]
    if backend is None and len(installed) > 1:
        raise click.UsageError(
            f"{' and '.join(installed)} are installed: choose one with --backend"
        )
    backend = backend or (installed[0] if installed else "auto")
    port = serve(port, backend, host=host)
    scheme = "torch" if backend == PYTORCH.name else "grpc"
    click.echo(f"nbprof: recorded by `nbprof capture {scheme}://HOST:{port}`", err=True)
    sys.argv = [script, *args]
    sys.path[0] = "" if module else str(Path(script).resolve().parent)
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except Exception:
        # As Python itself ends a program: its exceptions are not errors of this command.
        sys.excepthook(*sys.exc_info())
        return FAILED
    return None
