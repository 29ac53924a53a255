"""The options of ``%%nbprof`` as words: what they are, what they mean, and where a line of them
ends.
"""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, NoReturn

from IPython.core.error import UsageError

from nbprof.notebook import defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

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
            message = f"there is no option {unknown[1]}" + (
                f"; did you mean {near[0]}?" if near else ""
            )
            raise UsageError(
                f"{self.prog}: {message}{'' if near else '.'} %%nbprof -h lists the options."
            )
        raise UsageError(f"{self.prog}: {message}. %%nbprof -h lists the options.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # noqa: ARG002, D102
        raise Help


def parser(prog: str = "%%nbprof") -> Parser:
    """The options of ``%%nbprof``."""
    from nbprof.capture.option_field import add_arguments
    from nbprof.capture.options import Options
    from nbprof.notebook.cell import Show

    result = Parser(
        prog=prog,
        add_help=False,
        # The value of an option that is not typed whole would be taken for code.
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Profile this cell and show the dashboard as its output. The profile is also"
            " nbprof.last."
        ),
        epilog=(
            "%nbprof [options] CODE profiles one statement, %nbprof load PATH shows an existing"
            " profile,\n%nbprof capture HOST:PORT samples workers that run elsewhere (%nbprof"
            " capture -h), %nbprof shows the last one again,\n%nbprof brief [TOKENS] what it says,"
            " as text for an assistant that reads cells.\n%nbprof defaults OPTIONS sets default"
            " options, %nbprof defaults shows them, %nbprof defaults none clears them."
        ),
    )
    add_arguments(result, Show)
    add_arguments(result, Options)
    result.add_argument("-h", "--help", action="help", help="show this and run nothing")
    return result


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
    """What to record and how to show it: the words that were typed, over those that hold by
    default.

    Raises
    ------
    UsageError
        A sentence on what makes no sense.
    Help
        The options were listed instead.
    """
    from nbprof.capture.option_field import values
    from nbprof.capture.options import Options, options_of
    from nbprof.core.errors import CaptureError

    standing()
    held = defaults.words()
    given = parser().parse_args([*held, *words])
    try:
        return options_of(values(given, Options) | {"save": saved(given)}), show_of(given)
    except CaptureError as error:
        also = (
            f"; the default options are {defaults.line(held)} (%nbprof defaults, or the settings of"
            " JupyterLab)"
            if held
            else ""
        )
        raise UsageError(f"%%nbprof: {error}{also}") from None


def saved(given: argparse.Namespace) -> bool:
    """Whether to keep the files: quiet means that nothing appears, in the working directory
    either.
    """
    return bool(given.save and not given.quiet)


def show_of(given: argparse.Namespace) -> Show:
    """The options for showing a profile that a parser read.

    Raises
    ------
    CaptureError
        Invalid value.
    """
    from nbprof.capture.option_field import values
    from nbprof.notebook.cell import Show

    chosen = values(given, Show)
    views = [
        view.strip() for view in (given.views or "").split(",") if view.strip() not in ("", "all")
    ]
    chosen |= {"views": views or None, "events": count(given.events)}
    if chosen.get("in_place"):
        chosen["probe"] = "input"
    return Show(**chosen)


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
    """Return the options in front of a line and the code behind them, the code as it was
    written.
    """
    takes_value = {
        name
        for action in parser()._actions
        if action.nargs is None
        for name in action.option_strings
    }
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
