"""`nbprof trace PATH -o trace.json.gz`: the trace, or a range of it, for Perfetto."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown


def _range(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    """`A:B`, two times in ms; either may be left out."""
    if value is None:
        return None
    first, colon, last = value.partition(":")
    try:
        low, high = float(first or 0), float(last or inf)
    except ValueError:
        low, high = inf, 0.0
    if not colon or not low < high:
        raise click.BadParameter(
            f"{value!r} is not two times in ms after the start of the profile, such as 120:150.5 or"
            " 120:"
        )
    return low, high


@click.command(name="trace")
@source.one_run
@source.target("Ends in .json or .json.gz; an existing file is replaced.", required=True)
@click.option(
    "--range",
    "between",
    callback=_range,
    metavar="A:B",
    help="Only events that overlap this time, in ms from the start of the profile.",
)
@click.option(
    "--lanes",
    multiple=True,
    metavar="TEXT",
    help="Only lanes whose name contains this text. Can be repeated.",
)
@click.option(
    "--counters/--no-counters",
    default=True,
    help="Whether to write counters as well; on by default.",
)
def command(
    target: Path,
    between: tuple[float, float] | None,
    lanes: tuple[str, ...],
    counters: bool,
    **options: Any,
) -> None:
    """Write the trace in Chrome's JSON, for Perfetto."""
    with shown() as tell:
        trace = source.opened(tell, **options).trace
        with output.destination(target, "trace.json") as path:
            trace.export(path, between=between, lanes=list(lanes) or None, counters=counters)
