"""The options of ``%%nbprof`` as words: what they are, what they mean, and where a line of them ends."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError

from nbprof.frameworks.register import PYTHON, RECORDED
from nbprof.notebook import defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nbprof.capture.options import Options
    from nbprof.notebook.cell import Show

BY_DEFAULT = "default options (%nbprof defaults, NBPROF_OPTIONS)"


class Help(Exception):  # noqa: N818 - not an error
    """``-h`` was given."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in a sentence, and never ends the process."""

    def error(self, message: str) -> NoReturn:  # noqa: D102
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            known = [name for action in self._actions for name in action.option_strings]
            near = difflib.get_close_matches(unknown[1].partition("=")[0], known, n=1)
            message = f"there is no option {unknown[1]}" + (f"; did you mean {near[0]}?" if near else "")
            raise UsageError(f"{self.prog}: {message}{'' if near else '.'} %%nbprof -h lists the options.")
        raise UsageError(f"{self.prog}: {message}. %%nbprof -h lists the options.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # noqa: ARG002, D102
        raise Help


def parser(prog: str = "%%nbprof") -> Parser:
    """The options of ``%%nbprof``."""
    made = Parser(
        prog=prog,
        add_help=False,
        # The value of an option that is not typed whole would be taken for code.
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Profile this cell and show the dashboard as its output. The profile is also nbprof.last.",
        epilog="%nbprof [options] CODE profiles one statement, %nbprof load PATH shows an existing profile,\n%nbprof capture HOST:PORT "
        "samples workers that run elsewhere (%nbprof capture -h), %nbprof shows the last one again,\n%nbprof brief [TOKENS] what it says, "
        "as text for an assistant that reads cells.\n%nbprof defaults OPTIONS sets default options, %nbprof defaults shows them, "
        "%nbprof defaults none clears them.",
    )
    add = made.add_argument
    add("-o", "--out", metavar="NAME", default="", help="variable that receives the profile after the cell")
    add("--against", metavar="RUN", default="", help="compare with an earlier run: a variable that holds its profile, or a path")
    what = "run the cell again without its input, and show the measured step time next to the predicted one"
    add("--probe", metavar="WHAT", default="", choices=("", "input"), help=what)
    what = "also run it again if something it changes cannot be restored"
    add("--probe-in-place", action="store_true", help=what)
    add("-q", "--quiet", action="store_true", help="show nothing, and keep the files only with --logdir")
    add(
        "--backend",
        metavar="NAME",
        default="auto",
        choices=("auto", *RECORDED, PYTHON.name),
        help=f"auto (default), {', '.join(RECORDED)} or {PYTHON.name} (without a framework's profiler)",
    )
    add("--steps", metavar="A:B", default="", help="record only steps A to B of the cell, counted from 1, both included; or all")
    add(
        "--warmup",
        metavar="N",
        type=_or(int, "auto"),
        default=None,
        help="exclude the first N recorded steps from averages; auto: detected",
    )
    add("--every", metavar="N", type=int, default=0, help="repeat the window of --steps every N steps; 0: once")
    add("--seconds", metavar="S", type=_or(float, "all"), default=None, help="stop recording after S seconds, at the end of a step")
    add(
        "--limit",
        metavar="GB",
        type=_or(float, "auto"),
        default=None,
        help="stop when the process has grown by this much; auto: a quarter of the memory",
    )
    add("--memory", action="store_true", default=True, dest="memory", help="record allocations (default)")
    add("--no-memory", action="store_false", dest="memory", help="do not, if the framework can turn it off")
    add("--shapes", action="store_true", default=True, help="record shapes of inputs (default)")
    add("--no-shapes", action="store_false", dest="shapes", help="do not, if the framework can turn it off")
    add("--stacks", action="store_true", help="record the time of each line of the cell, and the Python stack of each op (PyTorch)")
    add("--no-stacks", action="store_false", dest="stacks", help="don't (default)")
    add("--sampling", action="store_true", default=True, help="sample the Python stacks of all threads (default)")
    add("--no-sampling", action="store_false", dest="sampling", help="don't")
    add("--python", action="store_true", help="record every Python call too: many events, a slower cell")
    add("--no-python", action="store_false", dest="python", help="don't (default)")
    add(
        "--host-level",
        metavar="0-3",
        type=int,
        default=2,
        help="0 nothing, 1 the most important events, 2 also ops (default), 3 everything",
    )
    what = "peak rates of the device per second, if unknown, as flops=312T,bytes=2.0T; auto: those in the profile"
    add("--peaks", metavar="P", type=_or(str, "auto"), default=None, help=what)
    what = "group of counters of an NPU's AI Cores: PipeUtilization (default), ArithmeticUtilization, Memory, L2Cache, others"
    add("--aic-metrics", metavar="GROUP", default="PipeUtilization", help=what)
    what = "first op of the forward pass in a TensorFlow graph on an NPU; auto: found"
    add("--fp-point", metavar="OP", type=_or(str, "auto"), default=None, help=what)
    what = "last op of the backward pass in a TensorFlow graph on an NPU; auto: found"
    add("--bp-point", metavar="OP", type=_or(str, "auto"), default=None, help=what)
    add(
        "--logdir",
        metavar="DIR",
        default=None,
        help="folder or URL for the run, in TensorBoard's layout; nbprof-results by default",
    )
    add("--save", action="store_true", default=True, help="keep the files of the run (default)")
    add("--no-save", action="store_false", dest="save", help="delete the files when the profile is no longer used")
    add("--views", metavar="A,B", default="", help="tabs to show, such as overview,steps,memory; or all")
    add("--height", metavar="PX", type=_or(int, "auto"), default=None, help="height of the dashboard; auto: the height of its content")
    add("--events", metavar="N", default=None, help="events of the trace to keep in the notebook; 20,000 by default")
    add("--redact", action="store_true", help="show pseudonyms instead of names; numbers are kept")
    add("--no-redact", action="store_false", dest="redact", help="don't (default)")
    add("-h", "--help", action="help", help="show this and run nothing")
    return made


def _or(kind: Callable[[str], Any], word: str) -> Callable[[str], Any]:
    """A type of argparse: a number, or a word for no value, so that a typed option can undo a default."""

    def read(text: str) -> Any:
        return None if text == word else kind(text)

    read.__name__ = kind.__name__
    return read


def standing() -> argparse.Namespace:
    """The options that hold where none are typed.

    Raises
    ------
    UsageError
        One of them makes no sense.
    """
    try:
        return parser(BY_DEFAULT).parse_args(defaults.words())
    except ValueError as error:
        raise UsageError(f"%%nbprof: {error}") from None
    except Help:
        raise UsageError(f"{BY_DEFAULT}: -h cannot be a default") from None


def choices(words: Sequence[str]) -> tuple[Options, Show]:
    """What to record and how to show it: the words that were typed, over those that hold by default.

    Raises
    ------
    UsageError
        A sentence on what makes no sense.
    Help
        The options were listed instead.
    """
    from nbprof.capture.options import Options, parse_steps
    from nbprof.core.errors import CaptureError
    from nbprof.notebook.cell import Show

    standing()
    held = defaults.words()
    given = parser().parse_args([*held, *words])
    try:
        steps = parse_steps(given.steps) if given.steps and given.steps != "all" else None
        # Quiet means that nothing appears, in the working directory either.
        save = given.save and not given.quiet
        options = Options(
            backend=given.backend,
            steps=steps,
            memory=given.memory,
            python=given.python,
            host_level=given.host_level,
            logdir=given.logdir,
            save=save,
            warmup=given.warmup,
            every=given.every,
            seconds=given.seconds,
            shapes=given.shapes,
            stacks=given.stacks,
            sampling=given.sampling,
            limit_gb=given.limit,
            peaks=given.peaks,
            aic_metrics=given.aic_metrics,
            fp_point=given.fp_point,
            bp_point=given.bp_point,
        )
        views = [view.strip() for view in given.views.split(",") if view.strip() not in ("", "all")]
        shown = given.out, given.quiet, views or None, given.height, count(given.events), given.against
        probe = "input" if given.probe_in_place else given.probe
        return options, Show(*shown, probe=probe, in_place=given.probe_in_place, redact=given.redact)
    except CaptureError as error:
        also = f"; the default options are {defaults.line(held)} (%nbprof defaults, or the settings of JupyterLab)" if held else ""
        raise UsageError(f"%%nbprof: {error}{also}") from None


def count(text: str | None) -> int | None:
    """A number of events as people write it: 100000, 100,000 or 100_000."""
    from nbprof.core.errors import CaptureError

    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}|[0-9]{1,3}([,_][0-9]{3}){1,5}", text):
        raise CaptureError(f"--events takes a number of 0 or more, not {text}")
    return int(re.sub("[,_]", "", text))


def words_of(text: str) -> list[str]:
    """Options as a shell would take them apart.

    Raises
    ------
    UsageError
        A quotation mark is not closed.
    """
    from IPython.utils.process import arg_split  # type: ignore[attr-defined]

    try:
        return list(arg_split(text, posix=True))
    except ValueError:
        raise UsageError(f"%%nbprof: a quotation mark is not closed in: {text}") from None


def split(line: str) -> tuple[list[str], str]:
    """Return the options in front of a line and the code behind them, the code as it was written."""
    takes_value = {name for action in parser()._actions if action.nargs is None for name in action.option_strings}
    words: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        count = 2 if rest.split(None, 1)[0] in takes_value else 1
        match = re.match(rf"""((?:"[^"]*"|'[^']*'|\S)+\s*){{1,{count}}}""", rest)
        if match is None:
            break
        words += words_of(match[0].strip())
        rest = rest[match.end() :]
    return words, rest
