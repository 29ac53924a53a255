"""`nbprof cache`: where the cache is and how full; `--clear` empties it."""

from __future__ import annotations

from dataclasses import asdict

import click

from nbprof.cli import output
from nbprof.core.units import size_text


@click.command(name="cache")
@click.option("--clear", is_flag=True, help="Empty the cache.")
@output.as_json
def command(clear: bool, as_json: bool) -> None:
    """Location and size of the cache of opened profiles."""
    from nbprof import cache

    freed = cache.clear() if clear else 0
    info = cache.info()
    if as_json:
        output.write_json("cache", {**asdict(info), "freed_bytes": freed})
        return
    if clear:
        click.echo(f"freed {size_text(freed)}")
    click.echo(str(info))
