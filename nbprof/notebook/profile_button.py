"""The button of a front end: record the next cell with a certain text without a magic.

A front end evaluates ``nbprof.notebook.profile_button.arm(request)`` in a silent request and then
runs the cell as always, so that its text, the history, the execution count and everything else that
watches executions are unchanged. A kernel handles requests in their order: the request is for the
very next cell. Another cell, or a minute without one, disarms it.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

LIFE_S = 60.0
"""A cell follows the press of the button within milliseconds."""

_MAX_REQUESTS = 64
_TYPED = re.compile(r"\s*(?:%%[^\n]*\n\s*)*?%%nbprof(?=\s|$)")


def typed(text: str) -> bool:
    """Return whether a cell has the magic ``%%nbprof``, possibly below other cell magics."""
    return _TYPED.match(text) is not None


@dataclass(frozen=True)
class Request:
    """A request of the button.

    Parameters
    ----------
    text : str
        The text that will be executed.
    options : list of str or None
        Words as after ``%%nbprof``, which replace those of the environment; None keeps those.
    cell : str
        Id of the cell in the notebook, empty if unknown.
    button : str
        Name of the button, for the receipt, such as ``the Profile button``.
    """

    text: str
    options: list[str] | None = None
    cell: str = ""
    button: str = "the Profile button"
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: float = field(default_factory=time.monotonic)

    def fits(self, info: Any) -> bool:
        """Return whether a cell is that of the request, by its text and its id if known."""
        ident = getattr(info, "cell_id", None)
        return info.raw_cell == self.text and (not self.cell or not ident or ident == self.cell)

    def note(self, options: list[str]) -> str:
        """A sentence for the receipt."""
        words = shlex.join(options) if options else "the default options"
        return f"recorded by {self.button}, with {words}"


class Waiting:
    """The pending requests of one shell, oldest first."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._used: list[str] = []

    def add(self, request: Request) -> None:
        """Wait for a cell."""
        self._requests = [*self._requests, request][-_MAX_REQUESTS:]

    def take(self, info: Any) -> Request | None:
        """The request of the cell that begins.

        Earlier requests are over; if it is of none, all are.
        """
        # Extensions run code outside of the cells of a notebook, without history.
        if not self._requests or not getattr(info, "store_history", True):
            return None
        waiting, now = self._requests, time.monotonic()
        for index, request in enumerate(waiting):
            if now - request.created < LIFE_S and request.fits(info):
                self._requests = waiting[index + 1 :]
                self._used = [*self._used, request.token][-_MAX_REQUESTS:]
                return request
        self._requests = []
        return None

    def drop(self, token: str) -> str:
        """Forget a request; returns its state: ``used``, ``waiting`` until now, or ``over``."""
        if token in self._used:
            return "used"
        remaining = [request for request in self._requests if request.token != token]
        state = "waiting" if len(remaining) < len(self._requests) else "over"
        self._requests = remaining
        return state


class Magics(Protocol):
    """The magics of a shell, as far as the button needs them."""

    waiting: Waiting

    @property
    def running_text(self) -> str:
        """The text of the cell that runs."""

    def check(self, options: Sequence[str] | None) -> None:
        """Check options of a front end."""


loaded: weakref.WeakKeyDictionary[Any, Magics] = weakref.WeakKeyDictionary()
"""The loaded magics by shell, which `nbprof.notebook.magic` registers."""


def runs_cell(shell: Any) -> bool:
    """Return whether a cell of the shell is running or waiting in an `await`."""
    magics = loaded.get(shell)
    return magics is not None and bool(magics.running_text)


class Answer(dict[str, Any]):
    """The answer to a front end; its text is JSON."""

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
        JSON: ``text``, and optionally ``options`` (a line as after ``%%nbprof``), ``cell`` (its
        id), ``lines`` (first and last line of the cell, if the text is a part of it).

    Returns
    -------
    Answer
        ``{"ok": True, "token", "version"}``, or ``{"ok": False, "error"}`` with a sentence.
    """
    from IPython.core.error import UsageError

    from nbprof.core.version import __version__

    try:
        fields = json.loads(request)
        lines = fields.get("lines")
        button = "the Profile button"
        if lines:
            button = f"Profile Selected Lines ({_lines(*lines)} of the cell)"
        options, cell = _words(fields.get("options")), str(fields.get("cell", ""))
        armed = Request(str(fields["text"]), options, cell, button)
    except (ValueError, KeyError, TypeError) as error:
        return Answer(
            ok=False,
            error=f"This is not a request to profile a cell: {type(error).__name__}: {error}",
        )
    try:
        magics = _magics()
        magics.check(armed.options)
        magics.waiting.add(armed)
    except UsageError as error:
        return Answer(ok=False, error=str(error))
    return Answer(ok=True, token=armed.token, version=__version__)


def ready(options: str = "") -> Answer:
    """Check that a cell can be recorded with these options, without running it."""
    from IPython.core.error import UsageError

    from nbprof.core.version import __version__

    try:
        _magics().check(_words(options or None))
    except (UsageError, ValueError) as error:
        return Answer(ok=False, error=str(error))
    return Answer(ok=True, version=__version__)


def _words(options: object) -> list[str] | None:
    return None if options is None else shlex.split(str(options))


def _magics() -> Magics:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell not in loaded:
        # By the extension manager, so that %load_ext finds it loaded.
        shell.extension_manager.load_extension("nbprof")
    if shell not in loaded:
        sys.modules["nbprof"].load_ipython_extension(shell)
    return loaded[shell]


def disarm(token: str) -> Answer:
    """Forget a request; ``state`` is ``used``, ``waiting`` until now, or ``over`` before."""
    from IPython.core.getipython import get_ipython

    magics = loaded.get(get_ipython())
    return Answer(ok=True, state="over" if magics is None else magics.waiting.drop(token))


def _lines(first: int, last: int) -> str:
    if first == last:
        return f"line {int(first)}"
    return f"lines {int(first)} to {int(last)}"
