"""`nbprof cache`: where the cache is and how full; `--clear` empties it."""

from __future__ import annotations

import click


@click.command(name="cache")
@click.option("--clear", is_flag=True, help="Empty the cache.")
def command(clear: bool) -> None:
    """Where the cache of opened profiles is, and how full."""
    from nbprof import cache

    if clear:
        click.echo(f"freed {cache.clear() / 2**20:,.1f} MiB")
    click.echo(str(cache.info()))
