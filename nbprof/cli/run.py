"""`nbprof run train.py`: run a program, record it, and show what bounds it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nbprof.capture.options import Options
from nbprof.cli import declared, output, source
from nbprof.cli.main import Interrupted, streams_as_started
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import CELL_FAILED

if TYPE_CHECKING:
    from nbprof.capture.script.run import End
    from nbprof.profiles.profile import Profile


@click.command(name="run", context_settings={"allow_interspersed_args": False})
@click.option(
    "-m", "module", is_flag=True, help="SCRIPT is the name of a module, as for python -m."
)
@declared.options(Options)
@click.option(
    "--report",
    metavar="FILE",
    type=source.FilePath(dir_okay=False, path_type=Path),
    help="Also write the dashboard to this HTML file; an existing file is replaced.",
)
@click.option(
    "--events",
    type=click.IntRange(min=0),
    metavar="N",
    help="Trace events to include in the report; 20,000 by default.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the run is saved all the same.")
@source.redacted
@click.argument("script", shell_complete=source.files)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    module: bool,
    script: str,
    args: tuple[str, ...],
    report: Path | None,
    events: int | None,
    quiet: bool,
    redact: bool,
    **options: Any,
) -> None:
    """Run a Python program and record it, as %%nbprof records a cell.

    Everything after SCRIPT is passed to the program. Its output, input, exit code and errors are
    those of `python SCRIPT`; when it ends, stderr says what bounds the step, and where the run is
    saved.
    """
    from nbprof.capture.options import options_of
    from nbprof.capture.script import program
    from nbprof.capture.script.children import follow
    from nbprof.capture.script.run import Script, ended_by

    chosen = options_of(options)
    # The program may change its working directory.
    view = _Shown(report.absolute() if report is not None else None, events, quiet, redact)
    # The program's own objects are collected when it ends.
    atexit.unregister(gc.freeze)
    streams_as_started()
    find = program.module if module else program.script
    try:
        main_program = find(script, args)
        joined = follow(chosen, main_program.label, quiet=quiet) if chosen.children else None
        member, following = joined or (None, None)
        recorder = Script(
            main_program, chosen, view.present, quiet=quiet, member=member, following=following
        )
    except CaptureError as error:
        raise click.UsageError(str(error)) from None
    except Exception as error:
        end = ended_by(error)
    else:
        end = recorder.run()
    _exit(end)


class _Shown:
    """Shows the profile of a program.

    Parameters
    ----------
    report : Path or None
        The HTML file.
    events : int or None
        Events of the trace in it.
    quiet : bool
        True to print nothing.
    redact : bool
        True for pseudonyms.
    """

    def __init__(self, report: Path | None, events: int | None, quiet: bool, redact: bool) -> None:
        self._report = report
        self._events = events
        self._quiet = quiet
        self._redact = redact
        self._stderr = sys.stderr

    def present(self, profile: Profile, location: str) -> None:
        """Print what bounds it and where it is, and write the report."""
        if not self._quiet:
            self._print(profile, location)
        if self._report is not None:
            profile.payload(self._events)
            with output.destination(self._report, "report.html", echo=False) as path:
                profile.save(path, events=self._events, redact=self._redact)
            if not self._quiet:
                self._write(f"nbprof: the report is in {self._report}")

    def _print(self, profile: Profile, location: str) -> None:
        # The text says how it failed.
        lines = profile.receipt.lines
        warnings = [x.text for x in lines if x.level == "warning" and x.key != CELL_FAILED]
        texts = [profile.text(), *warnings]
        if self._redact:
            from nbprof.profiles.redaction import redactor

            texts = list(map(redactor((profile.run,)).text, texts))
        self._write(f"\n{texts[0]}")
        if location:
            self._write(location)
        for warning in texts[1:]:
            self._write(f"nbprof: {warning}")

    def _write(self, text: str) -> None:
        # It may be closed, or nobody may read it any more.
        with contextlib.suppress(OSError, ValueError):
            click.echo(text, file=self._stderr)


def _exit(end: End) -> None:
    """End the process as Python ends that of a program."""
    if end.interrupted:
        raise Interrupted
    sys.exit(end.code)
