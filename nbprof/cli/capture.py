"""`nbprof capture grpc://host:6009`: record programs that run elsewhere."""

from __future__ import annotations

from typing import Any

import click

from nbprof.cli import output
from nbprof.cli.progress import shown


@click.command(name="capture")
@click.argument("addresses", nargs=-1, required=True, metavar="grpc://HOST:PORT...")
@click.option(
    "--duration", "duration_ms", type=int, default=2000, metavar="MS", help="How long to record, 1 ms to an hour; 2000 by default."
)
@click.option("--host-level", type=int, default=2, metavar="0-3", help="0 nothing, 1 the most important events, 2 also ops, 3 everything.")
@click.option("--device-level", type=int, default=1, metavar="0-1", help="1 records devices (default), 0 doesn't.")
@click.option("--python-level", type=int, default=0, metavar="0-1", help="1 records every Python call: many events; 0 by default.")
@click.option("--retries", type=int, default=3, metavar="N", help="How many times to retry a worker that was idle, busy or unreachable.")
@click.option("--delay", "delay_ms", type=int, metavar="MS", help="Delay before all start together; 0: each starts immediately.")
@click.option("--logdir", metavar="DIR", help="Folder for the run, in TensorBoard's layout; nbprof-results by default.")
@click.option("--name", metavar="RUN", help="Name of the run's folder; the time by default.")
@output.as_json
def command(addresses: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Record running programs through their profiler servers.

    A program starts its server with nbprof.serve(6009), or by `nbprof serve`. tpu://NAME stands for all workers of a Cloud TPU. Ctrl-C
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
