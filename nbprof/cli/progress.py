"""Progress of commands that take over a second: on a terminal only, on stderr."""

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
    """Yield a function that shows a message next to a progress bar, until the block ends."""
    if not is_terminal():
        yield lambda _text: None
        return
    bar = _Bar()
    try:
        yield bar.tell
    finally:
        bar.close()


def is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


class _Bar:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = "reading"
        self._bar: Progress | None = None
        self._closed = False
        # By a timer: a part of the work without messages may be the longest.
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
    """The completed and total amount of a message; the total is None if there is none."""
    match = _PARTS.search(text)
    if match is None:
        return 0, None
    done, done_unit, total, total_unit = match.groups(default="")
    return _amount(done, done_unit), _amount(total, total_unit)


def _amount(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * _BYTES[unit]
