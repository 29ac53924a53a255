"""`nbprof summary PATH`: what bounds the step and the figures that prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nbprof.cli import answers, output, source

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile


@click.command(name="summary")
@source.one_run
@output.as_json
def command(as_json: bool, **options: Any) -> None:
    """What bounds the step, with the supporting figures."""
    compute = _as_json if as_json else _as_text
    click.echo(answers.about_run("summary", options, compute, [as_json]))


def _as_json(profile: Profile) -> str:
    answer = {
        "run": output.about(profile),
        "overview": profile.overview,
        "steps": profile.steps.summary,
    }
    return output.text("summary", answer)


def _as_text(profile: Profile) -> str:
    return profile.text()
