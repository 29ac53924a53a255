"""`nbprof report PATH -o report.html`: the dashboard as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown


@click.command(name="report")
@source.one_run
@source.target("The HTML file; an existing file is replaced.", required=True)
@click.option("--events", type=click.IntRange(min=0), metavar="N", help="Trace events to include; 20,000 by default.")
@source.redacted
def command(target: Path, events: int | None, redact: bool, **which: Any) -> None:
    """Write the dashboard to one HTML file that needs no network."""
    with shown() as tell:
        profile = source.opened(tell, **which)
        profile.payload(events, tell)
        with output.destination(target, "report.html") as path:
            profile.save(path, events=events, redact=redact)
