"""``%nbprof capture grpc://host:6009``: sample workers that run elsewhere, and show the dashboard."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from nbprof.capture.remote.sample import capture
from nbprof.capture.remote.sampling import Sampling
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.display.slot import Slot
from nbprof.notebook.cell import Show
from nbprof.notebook.options_line import Help, Parser, count, standing, words_of

_SHARED = ("logdir", "save", "views", "height", "events", "redact")
"""Default options of ``%%nbprof`` that apply here, too."""


class _SamplingParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. %nbprof capture -h lists the options.")


def _parser() -> _SamplingParser:
    parser = _SamplingParser(
        prog="%nbprof capture",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Record running workers through their profiler servers, and show the dashboard. The profile is also nbprof.last.",
        epilog="A worker starts its server with nbprof.serve(6009). Ctrl-C ends the recording early and shows what was recorded.",
    )
    add = parser.add_argument
    add(
        "workers",
        metavar="grpc://HOST:PORT",
        nargs="*",
        help="one or more, separated by commas, or tpu://NAME of a Cloud TPU; or a variable that holds them",
    )
    add("--duration", metavar="MS", type=int, default=2000, help="how long to record, 1 ms to an hour; 2000 by default")
    add(
        "--host-level",
        metavar="0-3",
        type=int,
        default=2,
        help="0 nothing, 1 the most important events, 2 also ops (default), 3 everything",
    )
    add("--device-level", metavar="0-1", type=int, default=1, help="1 records devices (default), 0 doesn't")
    add("--python-level", metavar="0-1", type=int, default=0, help="1 records every Python call: many events; 0 by default")
    add(
        "--retries",
        metavar="N",
        type=int,
        default=3,
        help="how many times to retry a worker that was idle, busy or unreachable; 3 by default",
    )
    add(
        "--delay",
        metavar="MS",
        type=int,
        default=None,
        help="delay before all start together; 0: each starts immediately; 1000 by default for several workers",
    )
    add("-o", "--out", metavar="NAME", default="", help="variable that receives the profile")
    add("-q", "--quiet", action="store_true", help="show nothing, and keep files only with --logdir")
    add(
        "--logdir",
        metavar="DIR",
        default=None,
        help="folder or URL for the run, in TensorBoard's layout; nbprof-results by default",
    )
    add("--name", metavar="RUN", default=None, help="name of the run's folder; the time by default")
    add("--no-save", action="store_false", dest="save", help="delete the files when the profile is no longer used")
    add("--views", metavar="A,B", default="", help="tabs to show, such as overview,steps,memory; all by default")
    add("--height", metavar="PX", type=int, default=None, help="height of the dashboard; by default the height of its content")
    add("--events", metavar="N", default=None, help="events of the trace to keep in the notebook; 20,000 by default")
    add("--redact", action="store_true", help="show pseudonyms instead of names; numbers are kept")
    add("-h", "--help", action="help", help="show this and record nothing")
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
    parser.set_defaults(**{name: value for name, value in vars(standing()).items() if name in _SHARED})
    try:
        given = parser.parse_args([*before, *words_of(rest)])
    except Help:  # argparse has printed it
        return
    try:
        sampling = Sampling(
            given.duration,
            given.host_level,
            given.device_level,
            given.python_level,
            given.retries,
            given.delay,
            given.logdir,
            given.save and not given.quiet,
            given.name,
        )
        views = [view.strip() for view in given.views.split(",") if view.strip() not in ("", "all")]
        show = Show(given.out, given.quiet, views or None, given.height, count(given.events), redact=given.redact)
        _sample(shell, _workers(shell, given.workers), sampling, show)
    except CaptureError as error:
        raise UsageError(f"%nbprof capture: {error}") from None
    except NbprofError as error:
        raise UsageError(f"%nbprof capture: the workers were recorded, but the run could not be read: {error}") from None


def _workers(shell: Any, words: list[str]) -> Any:
    """The addresses; a word that is the name of a variable stands for its value, since no address is a name."""
    if len(words) == 1 and words[0].isidentifier() and words[0] in shell.user_ns:
        return shell.user_ns[words[0]]
    return words


def _sample(shell: Any, workers: Any, sampling: Sampling, show: Show) -> None:
    slot = Slot(shell)
    shown = []

    def line(text: str) -> None:
        shown.append(text)
        slot.line(text)

    try:
        profile = capture(workers, sampling, progress=False if show.quiet else line)
    except BaseException:
        if shown:
            slot.final({"text/plain": "", "text/html": ""}, {})
        raise
    if show.out:
        shell.user_ns[show.out] = profile
    if not show.quiet:
        slot.final(*profile.mimebundle(views=show.views, height=show.height, live=True, events=show.events, redact=show.redact))
