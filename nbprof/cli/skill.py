"""`nbprof skill`: teaches an assistant that reads skills how to profile."""

from __future__ import annotations

from pathlib import Path

import click

from nbprof.cli import source
from nbprof.cli.group import Group


@click.group(name="skill", cls=Group)
def command() -> None:
    """A skill for assistants: profile, read, change one thing, measure again."""


@command.command()
@click.argument("folder", metavar="DIR", type=source.FilePath(file_okay=False, path_type=Path))
@click.option(
    "--force", is_flag=True, help="Replace a skill that was modified, or is from another version."
)
def install(folder: Path, force: bool) -> None:
    """Write it into a folder of skills, such as .claude/skills.

    The file is DIR/nbprof/SKILL.md.
    """
    from nbprof.assistant import skill

    click.echo(f"{skill.install(folder, force=force)} is the skill of this version of nbprof.")


@command.command()
def show() -> None:
    """Print the skill."""
    from nbprof.assistant import skill

    click.echo(skill.text(), nl=False)
