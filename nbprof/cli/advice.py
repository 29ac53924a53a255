"""`nbprof advice PATH`: what to change, with the evidence and the code."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from nbprof.cli import answers, output, source

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile


@click.command(name="advice")
@source.one_run
@output.as_json
def command(as_json: bool, **options: Any) -> None:
    """What to change, largest gain first, with the evidence and the code."""
    compute = _as_json if as_json else _as_text
    style = output.styled("", bold=True)
    click.echo(answers.about_run("advice", options, compute, [as_json, style]))


def _as_json(profile: Profile) -> str:
    advice = profile.advice
    return output.text("advice", {"run": output.about(profile), "advice": advice})


def _as_text(profile: Profile) -> str:
    from nbprof.display import wording
    from nbprof.tools import dashboard
    from nbprof.tools.common import gain_unit

    lines: list[str] = []
    for number, finding in enumerate(profile.advice.to_dict("records"), 1):
        unit = gain_unit(profile.overview, finding)
        gain = wording.gain(
            finding["gain_ms_per_step"], finding["gain_is"], unit.per, unit.gain_percent
        )
        if lines:
            lines.append("")
        title = output.styled(f"{number}. {finding['title']}", bold=True)
        lines.append(title + (f" ({gain})" if gain else ""))
        lines.append(f"   {wording.one_line(wording.plain(finding['evidence']))}")
        lines.append(
            f"   rule {finding['rule']}, severity {finding['severity']}, {finding['certainty']};"
            f" refuted if {finding['refuted_by']}"
        )
        if finding["fix"]:
            lines += ["", indent(finding["fix"], "   ")]
    if not lines:
        return wording.plain(dashboard.spoken(profile.run).overview.no_advice)
    return "\n".join(lines)
