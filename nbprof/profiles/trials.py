"""Experiments on a profile that this process recorded: `p.try_`, and the button of a dashboard."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nbprof.core.errors import NbprofError

if TYPE_CHECKING:
    from nbprof.run.run import Run

NOT_HERE = (
    "This kernel did not record this profile, so it cannot run its program again. Record the"
    " program with %%nbprof above its cell, or with @nbprof.profile above its function, and try"
    " it on that profile."
)
_watchers: weakref.WeakKeyDictionary[Run, list[weakref.WeakMethod[Callable[[], None]]]] = (
    weakref.WeakKeyDictionary()
)


def attempt(
    run: Run, rule: str, budget_s: float, report: Callable[[str], object] = lambda _: None
) -> None:
    """Run the experiments of a rule, or of all findings, and add the results to the run.

    Raises
    ------
    NbprofError
        The program cannot run again, or nothing was tried; there is no such rule.
    """
    origin = run.origin
    if origin is None or run.capture is None:
        raise NbprofError(NOT_HERE)
    if origin.refusal:
        raise NbprofError(origin.refusal)
    result = origin.attempt(run, rule, budget_s, report)
    if not result["rows"]:
        raise NbprofError(result["text"])
    run.keep_tried(_merged(run.capture.tried, result))
    origin.keep()
    for reference in _watchers.get(run, []):
        if (method := reference()) is not None:
            # The others are shown all the same.
            with contextlib.suppress(Exception):
                method()


def watch(run: Run, method: Callable[[], None]) -> None:
    """Call a method after results were added, as long as its object lives."""
    _watchers.setdefault(run, []).append(weakref.WeakMethod(method))


def _merged(before: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The earlier results, those of the same experiments replaced."""
    names = {row["experiment"] for row in result["rows"]}
    earlier = [row for row in before.get("rows", []) if row.get("experiment") not in names]
    return {"text": result["text"], "rows": earlier + result["rows"]}


def on_main_thread(work: Callable[[], None]) -> None:
    """Run `work` where the kernel runs cells: when none runs, as soon as it can be."""
    shell = sys.modules.get("IPython.core.getipython")
    kernel = getattr(shell.get_ipython(), "kernel", None) if shell is not None else None
    loop = getattr(kernel, "io_loop", None)
    if loop is None:
        work()
    else:
        loop.add_callback(work)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let *Interrupt* end a block, which a kernel ignores outside of cells."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
