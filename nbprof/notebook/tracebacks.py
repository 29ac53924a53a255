"""When an exception leaves a cell: what shows its traceback is no part of what the cell did."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from nbprof.capture.shield import shielded

if TYPE_CHECKING:
    from collections.abc import Callable


class Watch:
    """Tells when a shell begins to show the traceback of a cell.

    IPython has no event between the last line of a cell and its traceback, which can take longer than the cell.

    Parameters
    ----------
    shell : InteractiveShell
    left : callable
        Called before the traceback of code that a cell ran is made.
    """

    def __init__(self, shell: Any, left: Callable[[], None]) -> None:
        self._shell = shell
        self._left = left
        self._before: Any = None
        self._own: Any = None

    def begin(self) -> None:
        """Watch, until `end`."""
        if self._own is not None:
            return
        shown = self._shell.showtraceback
        self._before = vars(self._shell).get("showtraceback")

        def showtraceback(*args: Any, **kwargs: Any) -> Any:
            # Only the code of a cell is shown so, not what a cell shows itself.
            if kwargs.get("running_compiled_code"):
                # The traceback is shown whatever happens here.
                with contextlib.suppress(Exception), shielded(soon=True):
                    self._left()
            return shown(*args, **kwargs)

        self._shell.showtraceback = self._own = showtraceback

    def end(self) -> None:
        """Leave the shell as it was, unless somebody has replaced the method since."""
        own, self._own = self._own, None
        if own is None or vars(self._shell).get("showtraceback") is not own:
            return
        if self._before is None:
            del self._shell.showtraceback
        else:
            self._shell.showtraceback = self._before
