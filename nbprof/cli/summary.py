"""`nbprof summary PATH`: what bounds the step and the figures that prove it."""

from __future__ import annotations

from typing import Any

import click

from nbprof.cli import output, source


@click.command(name="summary")
@source.one_run
@output.as_json
def command(as_json: bool, **which: Any) -> None:
    """What bounds the step, and the figures that prove it."""
    profile = source.opened(**which)
    if as_json:
        answer = {"run": output.about(profile), "overview": profile.overview, "steps": profile.steps.summary}
        output.write_json("summary", answer)
    else:
        click.echo(profile.text())
