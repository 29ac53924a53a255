"""What takes over a second says on a terminal how far it is: on stderr, so that the answer can be
piped; elsewhere nothing.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_S = 1.0
_PARTS = re.compile(r"([\d,.]+)(?: (B|[KMGT]iB))? of ([\d,.]+)(?: (B|[KMGT]iB))?")
"""`reading hosts: 12 of 64`, `analysing, 3 of 14: Ops`, `downloading x: 3.10 MiB of 18.00 MiB`."""
_BYTES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

Tell = Callable[[str], None]


@contextmanager
def shown() -> Iterator[Tell]:
    """What to call with each message. The last one stands beside a bar until the block ends;
    nothing is left of it.
    """
    if not is_terminal():
        yield lambda _text: None
        return
    bar = _Bar()
    try:
        yield bar.tell
    finally:
        bar.close()


def is_terminal() -> bool:
    """Whether people see what is written to stderr."""
    return sys.stderr.isatty()


class _Bar:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = "reading"
        self._bar: Progress | None = None
        self._closed = False
        # By a clock: a step of the work that is not told may be the long one.
        self._timer = threading.Timer(_AFTER_S, self._start)
        self._timer.daemon = True
        self._timer.start()

    def tell(self, text: str) -> None:
        with self._lock:
            self._text = text
            self._update()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._closed:
                return
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=None)
            self._update()
            self._bar.start()

    def _update(self) -> None:
        if self._bar is not None:
            done, total = parts(self._text)
            self._bar.update(
                self._bar.task_ids[0], description=self._text, completed=done, total=total
            )


def parts(text: str) -> tuple[float, float | None]:
    """How much of how much a message reports as done; the total is None if it reports none."""
    found = _PARTS.search(text)
    if found is None:
        return 0, None
    done, done_unit, total, total_unit = found.groups(default="")
    return _amount(done, done_unit), _amount(total, total_unit)


def _amount(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * _BYTES[unit]
