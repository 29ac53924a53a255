"""`nbprof expect`: hold profiles to limits, or to a baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nbprof.cli import output, source
from nbprof.cli.main import FAILED, GOOD, UNKNOWN
from nbprof.cli.progress import shown
from nbprof.core.errors import NbprofError

if TYPE_CHECKING:
    from nbprof.gate.outcome import Outcome

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
    step_time_slower: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Check a profile against limits or a baseline; several PATHs are repeats of one run.

    Exits with 1 if something is worse, and with 3 if something is unknown.
    """
    against, update = options["against"], _update(options)
    limits: dict[str, str] = {}
    for name in _LIMITS:
        limit = options[f"max_{name}"]
        if limit is not None:
            limits[name] = limit
    baseline_only = not limits and step_time_slower is None
    if against is None:
        if update:
            raise click.UsageError(
                "--update and --add write a baseline: name its file with --against"
            )
        if baseline_only:
            raise click.UsageError(
                "nothing to check: give a limit, such as --kernels-max 410, or a baseline with"
                " --against"
            )
    elif not update and not Path(against).expanduser().exists():
        raise NbprofError(
            f"{against}: there is no such baseline; the same command with --update writes it"
        )
    from nbprof.gate import expect as gate

    with shown() as tell:
        profiles = [source.opened(tell, [path]) for path in paths]
    chain = gate.expect(*profiles, unknown="warn", update=update)
    try:
        if against is not None:
            chain.against(against, same_machine=options["same_machine"])
        if baseline_only:
            limits = dict.fromkeys(chain.baseline_counts(), BASELINE)
            if update:
                # Nothing is compared: its outcome says whether step times were written.
                step_time_slower = "5 %"
        for name, limit in limits.items():
            getattr(chain, name)(None if limit == BASELINE else limit)
        if step_time_slower is not None:
            chain.step_time(slower=step_time_slower)
        outcomes = chain.judge()
    except NbprofError as error:
        raise NbprofError(_in_a_shell(str(error))) from error
    finally:
        chain.abandon()
    outcomes = [outcome._replace(text=_in_a_shell(outcome.text)) for outcome in outcomes]
    state = _overall(outcomes, update if baseline_only else "")
    if as_json:
        checks = [outcome._asdict() for outcome in outcomes]
        output.write_json("expect", {"outcome": state, "checks": checks})
    else:
        click.echo("\n".join(map(str, outcomes)))
    return {"fail": FAILED, "unknown": UNKNOWN}.get(state, GOOD)


def _update(options: dict[str, Any]) -> str:
    """The update of the baseline, as `nbprof.expect` takes it."""
    if options["update"] and options["add"]:
        raise click.UsageError("--update or --add, not both")
    if options["update"]:
        return "new"
    return "add" if options["add"] else ""


def _overall(outcomes: list[Outcome], update: str) -> str:
    """The outcome of all checks, or of writing a baseline alone."""
    states = set()
    for outcome in outcomes:
        # A baseline cannot have figures that are never known, such as FLOPs of eager ops; but
        # without step times nothing was added.
        counts = outcome.outcome == "fail" or (update == "add" and outcome.check == "step_time")
        if not update or counts:
            states.add(outcome.outcome)
    for state in ("fail", "unknown"):
        if state in states:
            return state
    return "pass"
