"""Programs that compile again for a known cause, and what the recorder says of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

from nbprof.analysis.compiles import table
from nbprof.capture import compiles
from nbprof.capture.compiles.hooks import hook
from nbprof.capture.compiles.recorder import Compiles
from nbprof.capture.patches import Patches
from nbprof.core import compile_times


class Case(NamedTuple):
    """A program and the causes of its compilations after first calls, in order."""

    name: str
    expected: list[str]
    program: Callable[[], object]


class Cases(list[Case]):
    """Cases in the order of their definition."""

    def planted(self, *expected: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
        """Add a program under its name, with the causes that it plants."""

        def add(program: Callable[[], object]) -> Callable[[], object]:
            self.append(Case(program.__name__, list(expected), program))
            return program

        return add


def recorded(*programs: Callable[[], object]) -> list[dict[str, object]]:
    """The rows of `p.compiles` of programs, each of which is a recording of its own."""
    for program in programs:
        patches, watch = Patches(), Compiles(lambda: 3)
        for module in compiles.MODULES:
            if module in sys.modules:
                hook(sys.modules[module], patches, watch)
        try:
            program()
        finally:
            patches.restore()
        assert not watch.failures, watch.failures
        # As a recording stores and reads it.
        stored = json.loads(json.dumps(watch.packed()))
    frame = table.frame(compile_times.unpacked(stored), {})
    rows: list[dict[str, object]] = json.loads(frame.to_json(orient="records"))
    return rows


def report(cases: Cases) -> None:
    """Print what is found in each case as JSON."""
    found = {}
    for case in cases:
        found[case.name] = {"expected": case.expected, "rows": recorded(case.program)}
    print(json.dumps(found))
