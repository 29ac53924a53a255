"""`nbprof runs LOGDIR`: the runs of a logdir, without reading them."""

from __future__ import annotations

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown


@click.command(name="runs")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", shell_complete=source.files)
@source.storage
@output.as_json
def command(paths: tuple[str, ...], storage_options: tuple[str, ...], as_json: bool) -> None:
    """List the runs of a logdir, newest first, without reading them."""
    with shown() as tell:
        from nbprof.sources.runs_table import runs

        location = paths[0] if len(paths) == 1 else list(paths)
        table = runs(location, storage_options=source.keys(storage_options), progress=tell)
    if as_json:
        output.write_json("runs", {"runs": table})
    elif len(table):
        from nbprof.schema.runs_table import COLUMNS

        named = bool(table["label"].any())
        output.write_table(table, [col for col in COLUMNS if named or col.name != "label"])
    else:
        click.echo("no runs")
