"""`nbprof skill`: teaches an assistant that reads skills how to profile."""

from __future__ import annotations

from pathlib import Path

import click

from nbprof.cli import source


@click.group(name="skill")
def command() -> None:
    """A skill for assistants: profile, read, change one thing, measure again."""


@command.command()
@click.argument("folder", metavar="DIR", type=source.FilePath(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace a skill that was modified, or is from another version.")
def install(folder: Path, force: bool) -> None:
    """Write it to DIR/nbprof/SKILL.md, where DIR is a folder of skills, such as .claude/skills."""
    from nbprof.assistant import skill

    click.echo(f"{skill.install(folder, force=force)} is the skill of this version of nbprof.")


@command.command()
def show() -> None:
    """Print it."""
    from nbprof.assistant import skill

    click.echo(skill.text(), nl=False)
