"""`nbprof expect`: hold profiles to limits, or to a baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nbprof.cli import output, source
from nbprof.cli.main import FAILED, GOOD, UNKNOWN
from nbprof.cli.progress import shown
from nbprof.core.errors import NbprofError

_LIMITS = {
    "kernels": "Kernels per step.",
    "launches": "Kernel launches per step.",
    "syncs": "Waits of the host for the device per step.",
    "recompiles": "Compilations after warm-up.",
    "pageable_copies": "Copies from or to pageable memory per step.",
    "collective_bytes": "Bytes in collectives per step.",
    "flops": "FLOPs of compiled programs per step.",
    "peak_memory": 'Peak memory, such as "1.2 GB".',
    "dropped": "Events that the recording lost.",
}
BASELINE = "baseline"


def _in_a_shell(text: str) -> str:
    """A sentence with the options of this command in place of pytest's and Python's."""
    return text.replace("--nbprof-", "--").replace("same_machine=True", "--same-machine")


def _limits(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in reversed(_LIMITS.items()):
        option = f"--{name.replace('_', '-')}-max"
        command = click.option(
            option,
            f"max_{name}",
            metavar="N",
            help=f"{text} `{BASELINE}`: the value in the baseline.",
        )(command)
    return command


@click.command(name="expect")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", shell_complete=source.files)
@click.option(
    "--against", metavar="FILE", shell_complete=source.files, help="The baseline to compare with."
)
@_limits
@click.option(
    "--step-time-slower",
    metavar="PERCENT",
    help='The smallest unacceptable slowdown, such as "5 %".',
)
@click.option(
    "--same-machine",
    is_flag=True,
    help=(
        "Compare step times even if the profiles do not identify the machine; you confirm that it"
        " is the same."
    ),
)
@click.option("--update", is_flag=True, help="Write the baseline instead of comparing with it.")
@click.option("--add", is_flag=True, help="Add the step times of this run to the baseline.")
@output.as_json
def command(
    paths: tuple[str, ...],
    against: str | None,
    step_time_slower: str | None,
    same_machine: bool,
    update: bool,
    add: bool,
    as_json: bool,
    **limits: str | None,
) -> int:
    """Check a profile against limits or a baseline; several PATHs are repeats of one run.

    Exits with 1 if something is worse, and with 3 if something is unknown.
    """
    asked = {name: limits[f"max_{name}"] for name in _LIMITS if limits[f"max_{name}"] is not None}
    alone = not asked and step_time_slower is None
    if update and add:
        raise click.UsageError("--update or --add, not both")
    if against is None:
        if update or add:
            raise click.UsageError(
                "--update and --add write a baseline: name its file with --against"
            )
        if alone:
            raise click.UsageError(
                "nothing to check: give a limit, such as --kernels-max 410, or a baseline with"
                " --against"
            )
    elif not (update or add or Path(against).expanduser().exists()):
        raise NbprofError(
            f"{against}: there is no such baseline; the same command with --update writes it"
        )
    from nbprof.gate import expect as gate
    from nbprof.gate import outcome

    with shown() as tell:
        profiles = [source.opened(tell, [path]) for path in paths]
    chain = gate.expect(*profiles, unknown="warn", update="new" if update else "add" if add else "")
    try:
        if against is not None:
            chain.against(against, same_machine=same_machine)
        if alone:
            # A baseline alone asks for what it has.
            asked = dict.fromkeys(chain.known(), BASELINE)
            if update or add:
                # Nothing is compared: it says whether step times were written.
                step_time_slower = "5 %"
        for name, limit in asked.items():
            getattr(chain, name)(None if limit == BASELINE else limit)
        if step_time_slower is not None:
            chain.step_time(slower=step_time_slower)
        outcomes = [one._replace(text=_in_a_shell(one.text)) for one in chain.judge()]
    except NbprofError as error:
        raise NbprofError(_in_a_shell(str(error))) from error
    finally:
        chain.abandon()
    judged = outcomes
    if alone and (update or add):
        # A baseline cannot have what is never known, such as FLOPs of eager ops; but without step
        # times nothing was added.
        judged = [
            one
            for one in outcomes
            if one.outcome == outcome.FAIL or (add and one.check == "step_time")
        ]
    states = {one.outcome for one in judged}
    whole = next(
        (state for state in (outcome.FAIL, outcome.UNKNOWN) if state in states), outcome.PASS
    )
    if as_json:
        output.write_json(
            "expect", {"outcome": whole, "checks": [one._asdict() for one in outcomes]}
        )
    else:
        click.echo("\n".join(map(str, outcomes)))
    return {outcome.FAIL: FAILED, outcome.UNKNOWN: UNKNOWN}.get(whole, GOOD)
