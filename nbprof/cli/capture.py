"""`nbprof capture grpc://host:6009`: record programs that run elsewhere."""

from __future__ import annotations

from typing import Any

import click

from nbprof.capture.remote.sampling import Sampling
from nbprof.cli import declared, output
from nbprof.cli.progress import shown


@click.command(name="capture")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS...")
# A command keeps its files.
@declared.options(Sampling, without=("save",))
@output.as_json
def command(addresses: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Record running programs through their profiler servers.

    An ADDRESS is grpc://HOST:PORT of a program of TensorFlow or JAX, torch://HOST:PORT of one of
    PyTorch: it starts its server with nbprof.serve(6009), or by `nbprof serve`. kineto://PID is a
    process of PyTorch that was started with KINETO_USE_DAEMON=1, vllm://HOST:PORT or
    sglang://HOST:PORT a server of models, tpu://NAME stands for all workers of a Cloud TPU. Ctrl-C
    ends the recording early and keeps what was recorded.
    """
    with shown() as tell:
        import nbprof

        profile = nbprof.capture(addresses, progress=tell, **options)
    run = output.about(profile)
    if as_json:
        output.write_json("capture", {"run": run})
        return
    click.echo(profile.text())
    click.echo(profile.path)
    for text in run["warnings"]:
        click.echo(f"nbprof: {text}", err=True)
