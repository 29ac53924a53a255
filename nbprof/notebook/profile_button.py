"""The button of a front end: the next cell with a certain text is recorded, though its text does
not say so.

A front end evaluates ``nbprof.notebook.profile_button.arm(request)`` in a silent request and then
runs the cell as it always does. So the text, the history, the execution count and whatever else
watches executions stay as they are. A kernel works off its requests in their order: what is armed
is meant for the very next cell. Another cell that comes instead, and a minute without one, disarm
it.
"""

from __future__ import annotations

import json
import re
import shlex
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

LIFE_S = 60.0
"""A cell follows the press of the button within milliseconds."""

_MOST = 64
_TYPED = re.compile(r"\s*(?:%%[^\n]*\n\s*)*?%%nbprof(?=\s|$)")


def typed(text: str) -> bool:
    """Whether a cell says itself that it is to be profiled, at the top or below other cell
    magics.
    """
    return _TYPED.match(text) is not None


@dataclass(frozen=True)
class Request:
    """What the button asked for.

    Parameters
    ----------
    text : str
        The text that will be executed.
    options : list of str or None
        Words as behind ``%%nbprof``; they hold instead of those of the environment, which None
        leaves as they are.
    cell : str
        Id of the cell in the notebook, empty where there is none.
    what : str
        What was pressed, for the receipt, as ``the Profile button``.
    """

    text: str
    options: list[str] | None = None
    cell: str = ""
    what: str = "the Profile button"
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: float = field(default_factory=time.monotonic)

    def fits(self, info: Any) -> bool:
        """Whether this is the cell that was meant. A front end that names its cells must name the
        same one.
        """
        ident = getattr(info, "cell_id", None)
        return info.raw_cell == self.text and (not self.cell or not ident or ident == self.cell)

    def note(self, options: list[str]) -> str:
        """A sentence for the receipt."""
        return f"recorded by {self.what}, " + (
            f"with {shlex.join(options)}" if options else "with the default options"
        )


class Waiting:
    """What is armed in one shell, oldest first."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._used: list[str] = []

    def add(self, request: Request) -> None:
        """Wait for a cell."""
        self._requests = [*self._requests, request][-_MOST:]

    def take(self, info: Any) -> Request | None:
        """The request that a cell fulfils as it begins. Those that came before it are over, and so
        are all when it is another cell.
        """
        # What extensions run beside the cells of a notebook is no cell.
        if not self._requests or not getattr(info, "store_history", True):
            return None
        waiting, now = self._requests, time.monotonic()
        for at, request in enumerate(waiting):
            if now - request.at < LIFE_S and request.fits(info):
                self._requests = waiting[at + 1 :]
                self._used = [*self._used, request.token][-_MOST:]
                return request
        self._requests = []
        return None

    def drop(self, token: str) -> str:
        """Wait no more; tells whether the request was ``used``, still ``waiting``, or ``over``."""
        if token in self._used:
            return "used"
        left = [request for request in self._requests if request.token != token]
        state = "waiting" if len(left) < len(self._requests) else "over"
        self._requests = left
        return state


class Answer(dict[str, Any]):
    """What a front end gets; its text is JSON."""

    def __repr__(self) -> str:
        return json.dumps(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002
        # A dict would be printed as one, over several lines.
        printer.text(repr(self))


def arm(request: str) -> Answer:
    """Have the next cell recorded if its text is this one.

    Parameters
    ----------
    request : str
        JSON: ``text``, and optionally ``options`` (a line as behind ``%%nbprof``), ``cell`` (its
        id), ``lines`` (first and last line of the cell, where the text is a part of it).

    Returns
    -------
    Answer
        ``{"ok": True, "token", "version"}``, or ``{"ok": False, "error"}`` with a sentence.
    """
    from IPython.core.error import UsageError

    from nbprof.core.version import __version__

    try:
        given = json.loads(request)
        lines = given.get("lines")
        what = (
            "the Profile button"
            if not lines
            else f"Profile Selected Lines ({_lines(*lines)} of the cell)"
        )
        made = Request(
            str(given["text"]), _words(given.get("options")), str(given.get("cell", "")), what
        )
    except (ValueError, KeyError, TypeError) as error:
        return Answer(
            ok=False,
            error=f"This is not a request to profile a cell: {type(error).__name__}: {error}",
        )
    try:
        magics = _magics()
        magics.check(made.options)
        magics.waiting.add(made)
    except UsageError as error:
        return Answer(ok=False, error=str(error))
    return Answer(ok=True, token=made.token, version=__version__)


def ready(options: str = "") -> Answer:
    """Whether a cell could be recorded with these options, so that it need not run to find out."""
    from IPython.core.error import UsageError

    from nbprof.core.version import __version__

    try:
        _magics().check(_words(options or None))
    except (UsageError, ValueError) as error:
        return Answer(ok=False, error=str(error))
    return Answer(ok=True, version=__version__)


def _words(options: object) -> list[str] | None:
    return None if options is None else shlex.split(str(options))


def _magics() -> Any:
    from IPython.core.getipython import get_ipython

    from nbprof.notebook import magic

    shell: Any = get_ipython()
    if magic.of(shell) is None:
        # As %load_ext does, which then knows of it.
        shell.extension_manager.load_extension("nbprof")
    if magic.of(shell) is None:
        magic.load(shell)
    return magic.of(shell)


def disarm(token: str) -> Answer:
    """Forget a request; ``state`` says whether its cell was recorded: ``used``, ``waiting`` until
    now, or ``over`` before.
    """
    from IPython.core.getipython import get_ipython

    from nbprof.notebook import magic

    magics = magic.of(get_ipython())
    return Answer(ok=True, state="over" if magics is None else magics.waiting.drop(token))


def _lines(first: int, last: int) -> str:
    return f"line {int(first)}" if first == last else f"lines {int(first)} to {int(last)}"
