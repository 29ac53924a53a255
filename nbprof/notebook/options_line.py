"""The options of ``%%nbprof`` as words of a line."""

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
    """Raises errors of usage, and never ends the process."""

    def error(self, message: str) -> NoReturn:  # noqa: D102
        sentence = f"{message}."
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            sentence = f"there is no option {unknown[1]}."
            names = list(self._option_string_actions)
            near = difflib.get_close_matches(unknown[1].partition("=")[0], names, n=1)
            if near:
                sentence = f"there is no option {unknown[1]}; did you mean {near[0]}?"
        raise UsageError(f"{self.prog}: {sentence} %%nbprof -h lists the options.")

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
        # The value of an abbreviated option would be taken for code.
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Profile this cell and show the dashboard as its output. The profile is also"
            " nbprof.last."
        ),
        epilog=(
            "%nbprof [options] CODE profiles one statement, %nbprof load PATH shows an existing"
            " profile,\n%nbprof memory says what keeps arrays alive now, %nbprof capture HOST:PORT"
            " samples workers\nthat run elsewhere (%nbprof capture -h), %nbprof shows the last one"
            " again,\n%nbprof brief [TOKENS] what it says, as text for an assistant that reads"
            " cells.\n%nbprof defaults OPTIONS sets default"
            " options, %nbprof defaults shows them, %nbprof defaults none clears them."
        ),
    )
    add_arguments(result, Show)
    add_arguments(result, Options)
    result.add_argument("-h", "--help", action="help", help="show this and run nothing")
    return result


def standing() -> argparse.Namespace:
    """The default options.

    Raises
    ------
    UsageError
        One of them is invalid.
    """
    try:
        return parser(BY_DEFAULT).parse_args(defaults.words())
    except ValueError as error:
        raise UsageError(f"%%nbprof: {error}") from None
    except Help:
        raise UsageError(f"{BY_DEFAULT}: -h cannot be a default") from None


def choices(words: Sequence[str]) -> tuple[Options, Show]:
    """The options of the recording and of its output: the typed ones over the defaults.

    Raises
    ------
    UsageError
        An invalid option.
    Help
        The options were listed instead.
    """
    from nbprof.capture.option_field import values
    from nbprof.capture.options import Options, options_of
    from nbprof.core.errors import CaptureError

    standing()
    held = defaults.words()
    parsed = parser().parse_args([*held, *words])
    try:
        return options_of(values(parsed, Options) | {"save": saved(parsed)}), show_of(parsed)
    except CaptureError as error:
        message = f"%%nbprof: {error}"
        if held:
            message += (
                f"; the default options are {defaults.line(held)} (%nbprof defaults, or the"
                " settings of JupyterLab)"
            )
        raise UsageError(message) from None


def saved(parsed: argparse.Namespace) -> bool:
    """Return whether to save the files; with --quiet nothing appears, not even files."""
    return bool(parsed.save and not parsed.quiet)


def show_of(parsed: argparse.Namespace) -> Show:
    """The options for showing a profile that a parser read.

    Raises
    ------
    CaptureError
        Invalid value.
    """
    from nbprof.capture.option_field import values
    from nbprof.notebook.cell import Show

    chosen = values(parsed, Show)
    views = [view.strip() for view in (parsed.views or "").split(",")]
    views = [view for view in views if view not in ("", "all")]
    chosen |= {"views": views or None, "events": count(parsed.events)}
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
    """Return the options at the beginning of a line, and the code after them as it was written."""
    takes_value: set[str] = set()
    may_take_value: set[str] = set()
    for action in parser()._actions:
        if action.nargs is None:
            takes_value.update(action.option_strings)
        elif action.nargs == "?":
            may_take_value.update(action.option_strings)
    words: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        count = 1
        flag, *following = rest.split(None, 2)
        named = bool(following) and re.fullmatch("[a-z0-9_]+", following[0]) is not None
        if flag in takes_value or (flag in may_take_value and named):
            count = 2
        match = re.match(rf"""((?:"[^"]*"|'[^']*'|\S)+\s*){{1,{count}}}""", rest)
        if match is None:
            break
        words += words_of(match[0].strip())
        rest = rest[match.end() :]
    return words, rest
