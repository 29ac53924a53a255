"""One line of progress that changes at most four times a second, and is removed at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

Tell = Callable[[str], None]

REPAINT_S = 0.25


class Progress:
    """Shows a line as an output of the cell in a notebook, or in a terminal.

    Use it in a `with` block. In a terminal the line is gone after it; in a notebook, where its
    output stays, it says what `last` was given, and is empty after a failure. It never raises: a
    front end that has gone must not end a recording.

    Parameters
    ----------
    show : bool or callable
        True shows the line here, where there is a notebook or a terminal; a callable receives each
        text instead, as `print`.
    """

    def __init__(self, show: bool | Tell = True) -> None:
        self._write: Tell | None = None
        self._wipe: Callable[[str], None] = lambda _: None
        self._last = ""
        if callable(show):
            self._write = show
        elif show:
            self._write, self._wipe = _here()
        self._painted = 0.0
        self._text = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._painted:
            try:
                self._wipe(f"nbprof: {self._last}" if self._last else "")
            except Exception:
                self._write = None

    def __call__(self, text: str) -> None:
        """Show a text, unless the last one is too fresh."""
        now = time.monotonic()
        if self._write is None or text == self._text or now - self._painted < REPAINT_S:
            return
        self._painted, self._text = now, text
        try:
            self._write(f"nbprof: {text}")
        except Exception:
            self._write = None

    def last(self, text: str) -> None:
        """Set the text that remains if the output does."""
        self._last = text


def _here() -> tuple[Tell | None, Callable[[str], None]]:
    """Functions that write a line here, and remove it."""
    shell = _shell()
    if shell is not None and hasattr(shell, "kernel"):
        from nbprof.display.slot import Slot

        slot = Slot(shell)

        def wipe(text: str) -> None:
            # The output itself stays; without a text it has no height.
            if text:
                slot.sentence(text)
            else:
                slot.final({"text/plain": "", "text/html": ""}, {})

        return slot.line, wipe
    stream = sys.stderr
    if stream is not None and stream.isatty():

        def write(text: str) -> None:
            stream.write(f"\r\x1b[K{text[:200]}")
            stream.flush()

        return write, lambda _: write("")
    return None, lambda _: None


def _shell() -> Any:
    """The shell of IPython, without importing it."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None
