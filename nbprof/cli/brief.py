"""`nbprof brief PATH`: what matters, for a language model."""

from __future__ import annotations

from typing import Any

import click

from nbprof.cli import answers, source
from nbprof.cli.progress import shown


@click.command(name="brief")
@source.one_run
@click.option(
    "--against",
    metavar="BEFORE",
    shell_complete=source.files,
    help="An earlier run: the brief then compares the two.",
)
@click.option(
    "--tokens",
    type=click.IntRange(200),
    default=1500,
    show_default=True,
    help="Maximum length in tokens (3.5 bytes each).",
)
@source.redacted
def command(against: str | None, tokens: int, redact: bool, **options: Any) -> None:
    """What matters most, as Markdown for a language model; each figure with its call."""
    if against is None and not redact:
        text = answers.about_run("brief", options, lambda profile: profile.brief(tokens), [tokens])
        click.echo(text, nl=False)
        return
    with shown() as tell:
        profile = source.opened(tell, **options)
        from nbprof.profiles.brief import brief

        if against is None:
            text = brief(profile, tokens, redact=redact)
        else:
            from nbprof.profiles.comparison import Comparison

            how = {key: options[key] for key in ("storage_options", "executor", "graph_capture")}
            before = source.opened(tell, [against], **how)
            text = brief(Comparison([before, profile]), tokens, redact=redact)
    click.echo(text, nl=False)
