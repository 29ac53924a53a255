"""`nbprof compare BEFORE AFTER`: is the second run faster, and is that more than chance?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nbprof.cli import output, source
from nbprof.cli.main import GOOD, UNKNOWN
from nbprof.cli.progress import shown


@click.command(name="compare")
@click.argument("before", shell_complete=source.files)
@click.argument("after", shell_complete=source.files)
@source.reading
@source.redacted
@click.option("--markdown", is_flag=True, help="Markdown, for a pull request.")
@output.as_json
@source.target("Also write the comparison to this HTML file; an existing file is replaced.")
def command(
    before: str,
    after: str,
    redact: bool,
    markdown: bool,
    as_json: bool,
    target: Path | None,
    **how: Any,
) -> int:
    """Compare two runs: is the second one faster, and is the difference significant?

    Exits with 3 if that is unknown.
    """
    if markdown and as_json:
        raise click.UsageError("--markdown or --json, not both")
    piped = target == output.STDOUT
    if piped and (markdown or as_json):
        raise click.UsageError("--markdown and --json write to standard output: -o needs a file")
    with shown() as tell:
        profiles = [source.opened(tell, [path], **how) for path in (before, after)]
        from nbprof.core.plain_json import plain
        from nbprof.profiles.comparison import Comparison
        from nbprof.profiles.redaction import redactor

        comparison = Comparison(profiles)
        verdict = comparison.verdict.to_dict("records")[0]
        text = ""
        if markdown:
            text = comparison.markdown(redact=redact)
        elif not as_json:
            text = comparison.text(redact=redact)
        if target is not None:
            with output.destination(target, "compare.html", echo=False) as path:
                comparison.save(path, redact=redact)
    if as_json:
        answer = {
            "before": output.about(comparison.before),
            "after": output.about(comparison.after),
            "verdict": verdict,
        }
        for name in ("evidence", "figures", "categories", "findings", "ops", "kernels"):
            answer[name] = getattr(comparison, name)
        answer = plain(answer)
        if redact:
            answer = redactor([profile.run for profile in profiles]).tree(answer)
        output.write_json("compare", answer)
    else:
        click.echo(text, nl=not markdown, err=piped)
    return UNKNOWN if verdict["verdict"] == "unknown" else GOOD
