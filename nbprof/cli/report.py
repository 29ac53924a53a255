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
def command(target: Path | None, events: int | None, redact: bool, **options: Any) -> None:
    """Write the dashboard to one HTML file that needs no network."""
    with shown() as tell:
        profile = source.opened(tell, **options)
        if target is None:
            target = _default_target(profile, redact=redact)
        profile.payload(events, tell)
        with output.destination(target, "report.html") as path:
            profile.save(path, events=events, redact=redact)


def _default_target(profile: Profile, *, redact: bool) -> Path:
    """The default file: next to the profile, or in the working directory for archives and URLs.

    Raises
    ------
    NbprofError
        A file of that name exists and is not a report of nbprof.
    """
    from nbprof.profiles.actions import file_name
    from nbprof.sources.sniff import REPORT_MARK
    from nbprof.tools import header

    local = profile.run.source.local
    folder = local[0][0].parent if local else Path()
    # With pseudonyms in the file, its name must not contain names either.
    target = folder / file_name("report" if redact else header.label(profile.run))
    if target.exists():
        try:
            with target.open("rb") as file:
                is_report = REPORT_MARK in file.read(4096)
        except OSError:
            is_report = False
        if not is_report:
            raise NbprofError(
                f"{target} exists and is not a report of nbprof. Name the file to write: -o FILE."
            )
    return target
