"""The entry point of the command `nbprof`.

A subcommand is a module `nbprof/cli/<name>.py` with a click command called `command`, and a line in
COMMANDS. It is imported when it is called: `nbprof --help` must not cost the import of pandas. What
it returns is the exit code; None is 0.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from nbprof.cli.group import Group
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__

COMMANDS = {
    "summary": "What bounds the step, with the supporting figures.",
    "advice": "What to change, largest gain first, with the evidence and the code.",
    "brief": "What matters most, as Markdown for a language model; each figure with its call.",
    "frame": "Print a frame by its name, such as kernels.by_name; without a name, list all.",
    "compare": "Compare two runs: is the second one faster, and is the difference significant?",
    "report": "Write the dashboard to one HTML file that needs no network.",
    "trace": "Write the trace in Chrome's JSON, for Perfetto.",
    "runs": "List the runs of a logdir, newest first, without reading them.",
    "capture": "Record running programs through their profiler servers.",
    "run": "Run a Python program and record it, as %%nbprof records a cell.",
    "serve": (
        "Run a Python program with the profiler server of its framework, for `nbprof capture`."
    ),
    "attach": "Make a running Python 3.14 program recordable, without a change to it.",
    "doctor": "What can be recorded here, and how to fix what cannot.",
    "mcp": "Serve profiles to an assistant, read-only, over MCP on stdin and stdout.",
    "skill": "A skill for assistants: profile, read, change one thing, measure again.",
    "expect": "Check a profile against limits or a baseline; several PATHs are repeats of one run.",
    "cache": "Location and size of the cache of opened profiles.",
}
"""Every subcommand and its help in one line, in the order of `nbprof --help`."""

GOOD, FAILED, BAD, UNKNOWN = 0, 1, 2, 3
"""Exit codes: all is well; a gate failed; bad use or an unreadable file; the question has no
answer.
"""
INTERRUPTED, CLOSED_PIPE = 130, 141
"""As a shell reports a process that SIGINT or SIGPIPE ended."""


# As the process ends, Python would scan all objects for cycles, which takes longer than an answer.
atexit.register(gc.freeze)

_errors: dict[io.TextIOWrapper, str] = {}
"""How the standard streams treated letters that their encoding lacks, before a command ran."""


class Interrupted(BaseException):
    """Ctrl-C ended the program that a command ran: the process ends as Python's own does."""


def streams_as_started() -> None:
    """Let the standard streams be as Python made them, for a program that a command runs."""
    for stream, errors in _errors.items():
        stream.reconfigure(errors=errors)


_RANK = re.compile(r"p\.rank\((\d+)\)")
_CAPTURE = re.compile(r"\bgraph_capture\b(?= (?:is for|a trace))")


class Commands(Group):
    """A group that knows its commands by name and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Their names, as the help has them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that is called; None if there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"nbprof.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Their one-line help, without importing any of them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command and exit. An error that is a sentence goes to stderr as one."""
        extra["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                _errors[stream] = stream.errors or "strict"
                # A name that the terminal's encoding has not must not end an answer.
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **extra)
            # Now, not when the interpreter ends: a closed pipe is not an error.
            sys.stdout.flush()
        except NbprofError as error:
            # In Python a host is opened by a call, here by an option.
            message = _CAPTURE.sub("--graph-capture", _RANK.sub(r"--rank \1", str(error)))
            click.echo(f"nbprof: {message}", err=True)
            code = BAD
        except click.ClickException as error:
            error.show()
            code = BAD
        except click.Abort:
            code = INTERRUPTED
        except Interrupted:
            # Its traceback is on the screen already.
            sys.excepthook = lambda *_: None
            raise KeyboardInterrupt from None
        except (BrokenPipeError, _ClosedPipeError):
            # The rest of the buffer must not fail once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = CLOSED_PIPE
        except Exception:
            # Python would exit with 1, which says that a gate failed.
            traceback.print_exc()
            code = BAD
        sys.exit(code or GOOD)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; a closed pipe is distinguished from other errors of click."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would exit with 1.
            raise _ClosedPipeError from error


class _ClosedPipeError(Exception):
    """A BrokenPipeError that click lets through."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """Read, compare and check ML profiles."""
