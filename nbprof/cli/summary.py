"""`nbprof summary PATH`: what bounds the step and the figures that prove it."""

from __future__ import annotations

from typing import Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown


@click.command(name="summary")
@source.one_run
@output.as_json
def command(as_json: bool, **options: Any) -> None:
    """What bounds the step, with the supporting figures."""
    with shown() as tell:
        profile = source.opened(tell, **options)
        answer = (
            {
                "run": output.about(profile),
                "overview": profile.overview,
                "steps": profile.steps.summary,
            }
            if as_json
            else {}
        )
        text = "" if as_json else profile.text()
    if as_json:
        output.write_json("summary", answer)
    else:
        click.echo(text)
