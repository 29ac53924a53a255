"""`nbprof doctor`: what can be recorded here, and what to do about what cannot."""

from __future__ import annotations

import click

from nbprof.cli import output
from nbprof.cli.main import BAD, GOOD


@click.command(name="doctor")
@click.option(
    "--deep", is_flag=True, help="Import each framework in a separate process and list its devices."
)
@output.as_json
def command(deep: bool, as_json: bool) -> int:
    """What can be recorded here, and how to fix what cannot.

    Exits with 2 if profiles cannot even be read.
    """
    from nbprof.cli import examined

    marks = {
        examined.OK: ("✓", "green"),
        examined.LIMITED: ("!", "yellow"),
        examined.BROKEN: ("✗", "red"),
    }
    checks = []
    for check in examined.checks(deep=deep):
        checks.append(check)
        if not as_json:
            mark, colour = marks[check.state]
            click.echo(
                f"{output.styled(mark, fg=colour)} {output.styled(check.name, bold=True)}:"
                f" {check.text}"
            )
            if check.remedy:
                click.echo(f"  {check.remedy}")
    if as_json:
        output.write_json("doctor", {"checks": [check._asdict() for check in checks]})
    return BAD if any(check.state == examined.BROKEN for check in checks) else GOOD
