"""``%nbprof capture grpc://host:6009``: sample running workers, and show the dashboard."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from nbprof.capture.option_field import add_arguments, values
from nbprof.capture.remote.sample import capture
from nbprof.capture.remote.sampling import Sampling
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.display.slot import Slot
from nbprof.notebook.cell import Show
from nbprof.notebook.options_line import Help, Parser, saved, show_of, standing, words_of

_SHARED = ("logdir", "save", "views", "height", "events", "redact")
"""Default options of ``%%nbprof`` that apply here, too."""
_OF_CELLS = ("against", "probe", "in_place", "try_", "budget")
"""Options for showing a cell that a sample lacks."""


class _SamplingParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. %nbprof capture -h lists the options.")


def _parser() -> _SamplingParser:
    parser = _SamplingParser(
        prog="%nbprof capture",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Record running workers through their profiler servers, and show the dashboard. The"
            " profile is also nbprof.last."
        ),
        epilog=(
            "A worker starts its server with nbprof.serve(6009). Ctrl-C ends the recording early"
            " and shows what was recorded."
        ),
    )
    parser.add_argument(
        "workers",
        metavar="grpc://HOST:PORT",
        nargs="*",
        help=(
            "one or more, separated by commas: torch://HOST:PORT of PyTorch, kineto://PID,"
            " vllm://HOST:PORT, sglang://HOST:PORT, or tpu://NAME of a Cloud TPU; or a variable"
            " that holds them"
        ),
    )
    add_arguments(parser, Sampling)
    add_arguments(parser, Show, without=_OF_CELLS)
    parser.add_argument("-h", "--help", action="help", help="show this and record nothing")
    return parser


def run(shell: Any, before: Sequence[str], rest: str) -> None:
    """Sample and show.

    Parameters
    ----------
    shell : InteractiveShell
    before : sequence of str
        Options in front of the word `capture`.
    rest : str
        What stands behind it.

    Raises
    ------
    UsageError
        A sentence: what was typed makes no sense, or nothing was recorded.
    """
    parser = _parser()
    parser.set_defaults(
        **{name: value for name, value in vars(standing()).items() if name in _SHARED}
    )
    try:
        parsed = parser.parse_args([*before, *words_of(rest)])
    except Help:  # argparse has printed it
        return
    try:
        sampling = Sampling(**values(parsed, Sampling) | {"save": saved(parsed)})
        show = show_of(parsed)
        _sample(shell, _workers(shell, parsed.workers), sampling, show)
    except CaptureError as error:
        raise UsageError(f"%nbprof capture: {error}") from None
    except NbprofError as error:
        raise UsageError(
            f"%nbprof capture: the workers were recorded, but the run could not be read: {error}"
        ) from None


def _workers(shell: Any, words: list[str]) -> Any:
    """The addresses; a single word that is the name of a variable is replaced by its value."""
    if len(words) == 1 and words[0].isidentifier() and words[0] in shell.user_ns:
        return shell.user_ns[words[0]]
    return words


def _sample(shell: Any, workers: Any, sampling: Sampling, show: Show) -> None:
    slot = Slot(shell)
    messages = []

    def line(text: str) -> None:
        messages.append(text)
        slot.line(text)

    try:
        profile = capture(workers, sampling, progress=False if show.quiet else line)
    except BaseException:
        if messages:
            slot.final({"text/plain": "", "text/html": ""}, {})
        raise
    if show.out:
        shell.user_ns[show.out] = profile
    if not show.quiet:
        slot.final(
            *profile.mimebundle(
                views=show.views,
                height=show.height,
                live=True,
                events=show.events,
                redact=show.redact,
            )
        )
