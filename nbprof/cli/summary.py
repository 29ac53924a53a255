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
        answer: dict[str, Any] = {}
        text = ""
        if as_json:
            answer["run"] = output.about(profile)
            answer["overview"] = profile.overview
            answer["steps"] = profile.steps.summary
        else:
            text = profile.text()
    if as_json:
        output.write_json("summary", answer)
    else:
        click.echo(text)
