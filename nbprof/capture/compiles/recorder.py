"""Compilations while a cell runs: the frameworks report them, and all of it is bounded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from nbprof.capture.compiles.seen import seen
from nbprof.core import compile_times
from nbprof.core.compile_times import Compilation


class Compiles:
    """The compilations of a cell, from its start to its end, whether its steps are recorded or not.

    Parameters
    ----------
    step : callable
        Returns the number of the step that runs; None if none is known to.

    Attributes
    ----------
    failures : dict of str to Exception
        Why the compilations of a framework are not recorded, by the framework's name.
    earlier : list of Compilation
        What was compiled behind graph breaks before the recording began.
    """

    def __init__(self, step: Callable[[], int | None]) -> None:
        self.failures: dict[str, Exception] = {}
        self.earlier: list[Compilation] = []
        self._step = step
        self._lock = threading.Lock()
        self._rows: list[Compilation] = []
        self._left_out = 0
        self._began_ns = time.time_ns()
        seen.begin()

    @property
    def full(self) -> bool:
        """True if no more are stored, only counted."""
        return len(self._rows) >= compile_times.MOST

    def step(self) -> int:
        """The number of the step that runs; 0 if unknown."""
        with contextlib.suppress(Exception):
            return self._step() or 0
        return 0

    def add(self, framework: str, start_ns: int, duration_ns: int, **facts: Any) -> None:
        """Store a compilation that has ended; texts are truncated, but for file and graph breaks.

        Parameters
        ----------
        framework : str
        start_ns, duration_ns : int
        **facts
            Further fields of `Compilation`.
        """
        if self.full:
            with self._lock:
                self._left_out += 1
            return
        for name, value in facts.items():
            if isinstance(value, str) and name not in ("file", "breaks"):
                facts[name] = compile_times.short(value)
        row = Compilation(
            framework,
            start_ns=max(start_ns, 0),
            duration_ns=max(duration_ns, 0),
            step=self.step(),
            **facts,
        )
        with self._lock:
            self._rows.append(row)

    def packed(self) -> dict[str, Any]:
        """All of it, as the info stores it; empty if nothing was compiled."""
        with self._lock:
            return compile_times.packed(self._rows, self._began_ns, self._left_out, self.earlier)
