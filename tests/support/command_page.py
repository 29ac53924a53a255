"""The page docs/command.md, whose list of commands and options is made of the commands' own help.

To write it anew: `python -m tests.support.command_page`.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from nbprof.cli import source
from nbprof.cli.main import COMMANDS, main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command.md"
BEGIN, END = "<!-- commands: made of their help -->\n", "<!-- end of commands -->\n"


def commands() -> dict[str, click.Command]:
    """Every command by its words: `skill install` where a command has commands of its own."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": each for below, each in sorted(command.commands.items())}
    return found


def shared() -> list[click.Option]:
    """The options of every command about one run."""
    command = click.Command("", params=[])
    source.one_run(command)
    # Each decorator puts its own behind those of the ones below it.
    return options(command)[::-1]


def options(command: click.Command) -> list[click.Option]:
    """The options of a command, in the order of its help."""
    return [option for option in command.params if isinstance(option, click.Option)]


def row(option: click.Option) -> str:
    """A row of a table."""
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(main))}"
    cells = ", ".join(f"`{name}{value}`" for name in names), option.help or ""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table(listed: list[click.Option]) -> list[str]:
    """Options as a table."""
    return ["| option | |", "|---|---|", *map(row, listed), ""] if listed else []


def listing() -> str:
    """The commands, each with its help and its options."""
    common = shared()
    known = [option.opts[0] for option in common]
    lines = ["Options that several commands have:", "", *table(common)]
    for name, command in commands().items():
        usage = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
        own = [option for option in options(command) if option.opts[0] not in known]
        also = [f"`{option.opts[0]}`" for option in options(command) if option.opts[0] in known]
        lines += [
            f"### `nbprof {name}`",
            "",
            "```text",
            f"nbprof {name} {usage}",
            "```",
            "",
            inspect.cleandoc(command.help or ""),
            "",
        ]
        lines += table(own) + ([f"And {', '.join(also)}, as above.", ""] if also else [])
    return "\n".join(lines)


def page() -> str:
    """The text of the page: as it is, with the commands made anew."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + listing() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
