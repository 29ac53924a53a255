"""`nbprof report PATH`: the dashboard as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown
from nbprof.core.errors import NbprofError

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile


@click.command(name="report")
@source.one_run
@source.target(
    "The HTML file; an existing file is replaced. By default nbprof-NAME.html in the folder of the"
    " profile."
)
@click.option(
    "--events",
    type=click.IntRange(min=0),
    metavar="N",
    help="Trace events to include; 20,000 by default.",
)
@source.redacted
def command(target: Path | None, events: int | None, redact: bool, **which: Any) -> None:
    """Write the dashboard to one HTML file that needs no network."""
    with shown() as tell:
        profile = source.opened(tell, **which)
        if target is None:
            target = _beside(profile, redact=redact)
        profile.payload(events, tell)
        with output.destination(target, "report.html") as path:
            profile.save(path, events=events, redact=redact)


def _beside(profile: Profile, *, redact: bool) -> Path:
    """The file that nobody named: beside the profile, or in the working directory if that is in an
    archive or at a URL.

    Raises
    ------
    NbprofError
        A file of that name is there, and is no report of nbprof: only what is named is replaced
        whatever it is.
    """
    from nbprof.profiles.actions import file_name
    from nbprof.sources.sniff import REPORT_MARK
    from nbprof.tools import header

    local = profile.run.source.local
    folder = local[0][0].parent if local else Path()
    # Pseudonyms in the file are worth nothing beside a name that tells.
    target = folder / file_name("report" if redact else header.label(profile.run))
    if target.exists():
        try:
            with target.open("rb") as file:
                known = REPORT_MARK in file.read(4096)
        except OSError:
            known = False
        if not known:
            raise NbprofError(
                f"{target} exists and is not a report of nbprof. Name the file to write: -o FILE."
            )
    return target
