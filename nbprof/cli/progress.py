"""What takes over a second says on a terminal how far it is: on stderr, so that the answer can be piped; elsewhere nothing."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_S = 1.0
_PARTS = re.compile(r"([\d,]+) of ([\d,]+)")
"""`reading hosts: 12 of 64`, `analysing, 3 of 14: Ops`, `downloading x: 3 of 18 MB`."""


@contextmanager
def shown() -> Iterator[Callable[[str], None]]:
    """What to call with each message; its last one stays on screen no longer than the work takes."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    began = time.monotonic()
    bars: list[Progress] = []

    def tell(text: str) -> None:
        if time.monotonic() - began < _AFTER_S:
            return
        if not bars:
            bars.append(_bar())
        done, total = parts(text)
        bars[0].update(bars[0].task_ids[0], description=text.replace("[", r"\["), completed=done, total=total)

    try:
        yield tell
    finally:
        for bar in bars:
            bar.stop()


def parts(text: str) -> tuple[int, int | None]:
    """How much of how much a message says is done; the whole is None where it says nothing of it."""
    found = _PARTS.search(text)
    if found is None:
        return 0, None
    done, total = (int(number.replace(",", "")) for number in found.groups())
    return done, total


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("", total=None)
    bar.start()
    return bar
