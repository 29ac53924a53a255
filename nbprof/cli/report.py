"""`nbprof report PATH`: the dashboard as one file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown
from nbprof.core.errors import NbprofError

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile


@click.command(name="report")
@partial(source.one_run, required=False)
@source.target(
    "The HTML file; an existing file is replaced. By default nbprof-NAME.html in the folder of the"
    " profile."
)
@click.option(
    "--site",
    metavar="DIR",
    type=source.FilePath(file_okay=False, path_type=Path),
    help=(
        "Instead: write a folder for a web server, whose page opens saved reports in the browser;"
        " the report of each PATH, which may be a saved report, is added to it. See"
        " docs/sharing.md."
    ),
)
@click.option(
    "--events",
    type=click.IntRange(min=0),
    metavar="N",
    help="Trace events to include; 20,000 by default.",
)
@source.redacted
def command(
    target: Path | None, site: Path | None, events: int | None, redact: bool, **options: Any
) -> None:
    """Write the dashboard to one HTML file that needs no network."""
    if site is not None:
        if target is not None:
            raise click.UsageError("--site and -o exclude each other: run the command twice.")
        _write_site(site, events, redact, **options)
        return
    if not options["paths"]:
        raise click.UsageError("Missing argument 'PATH...'.")
    with shown() as tell:
        profile = source.opened(tell, **options)
        if target is None:
            target = _default_target(profile, redact=redact)
        profile.payload(events, tell)
        with output.destination(target, "report.html") as path:
            profile.save(path, events=events, redact=redact)


def _write_site(
    folder: Path, events: int | None, redact: bool, paths: Sequence[str], **options: Any
) -> None:
    from nbprof.profiles.site import page
    from nbprof.sources.sniff import is_report

    with shown() as tell:
        reports: list[Profile | Path] = []
        for path in paths:
            if is_report(Path(path)):
                reports.append(Path(path))
            else:
                reports.append(source.opened(tell, [path], **options))
        output.echo_name(page(folder, reports, events=events, redact=redact, progress=tell))


def _default_target(profile: Profile, *, redact: bool) -> Path:
    """The default file: next to the profile, or in the working directory for archives and URLs.

    Raises
    ------
    NbprofError
        A file of that name exists and is not a report of nbprof.
    """
    from nbprof.profiles.actions import file_name
    from nbprof.sources.sniff import is_report
    from nbprof.tools import header

    local = profile.run.source.local
    folder = local[0][0].parent if local else Path()
    # With pseudonyms in the file, its name must not contain names either.
    target = folder / file_name("report" if redact else header.label(profile.run))
    if target.exists() and not is_report(target):
        raise NbprofError(
            f"{target} exists and is not a report of nbprof. Name the file to write: -o FILE."
        )
    return target
