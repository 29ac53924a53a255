"""`nbprof advice PATH`: what to change, with the evidence and the code."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown


@click.command(name="advice")
@source.one_run
@output.as_json
def command(as_json: bool, **options: Any) -> None:
    """What to change, largest gain first, with the evidence and the code."""
    with shown() as tell:
        profile = source.opened(tell, **options)
        advice = profile.advice
    if as_json:
        output.write_json("advice", {"run": output.about(profile), "advice": advice})
        return
    from nbprof.display import wording
    from nbprof.tools import dashboard
    from nbprof.tools.common import gain_unit

    findings = advice.to_dict("records")
    for number, finding in enumerate(findings, 1):
        unit = gain_unit(profile.overview, finding["gain_ms_per_step"])
        gain = wording.gain(
            finding["gain_ms_per_step"], finding["gain_is"], unit.per, unit.gain_percent
        )
        click.echo(
            ("\n" if number > 1 else "")
            + output.styled(f"{number}. {finding['title']}", bold=True)
            + (f" ({gain})" if gain else "")
        )
        click.echo(f"   {wording.one_line(wording.plain(finding['evidence']))}")
        click.echo(
            f"   rule {finding['rule']}, severity {finding['severity']}, {finding['certainty']};"
            f" refuted if {finding['refuted_by']}"
        )
        if finding["fix"]:
            click.echo("\n" + indent(finding["fix"], "   "))
    if not findings:
        click.echo(wording.plain(dashboard.spoken(profile.run).overview.no_advice))
