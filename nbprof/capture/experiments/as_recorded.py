"""Is the program that runs again the one that was recorded? Its step takes about as long.

A first run leaves things behind: functions that it compiled, files that the system has cached, data
that the program stored. Then a second run does other work, and what a change saves of that says
nothing about the run that was recorded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbprof.analysis.steps.steps import counted
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.run.run import Run

FACTOR = 2.0
"""By which factor a step may take more or less time than in the recorded run: the load of a machine
changes it, too.
"""


@dataclass(frozen=True)
class AsRecorded:
    """The time of a step without the profiler, as far as the recording says it.

    Attributes
    ----------
    low_ms, high_ms : float
        The ends between which its time is; 0 and infinity where they are unknown.
    compiling_ms : float
        Time in which it compiled, a part of each step on average; 0 if unknown.
    """

    low_ms: float = 0.0
    high_ms: float = math.inf
    compiling_ms: float = 0.0

    def is_like(self, step_ms: float) -> bool:
        """Return whether a step of this time may be one of the recorded program."""
        shortest = max(self.low_ms / FACTOR, self.compiling_ms)
        return shortest <= step_ms <= self.high_ms * FACTOR

    def difference(self, step_ms: float) -> str:
        """Two sentences on a step that is not like the recorded one."""
        again = f"Run again without any change, it takes {wording.millis(step_ms)}"
        if step_ms < self.compiling_ms:
            return (
                f"A recorded step compiled for {wording.millis(self.compiling_ms)} or more on"
                f" average. {again} in all, for what the first run compiled is kept."
            )
        took_ms, why = self.low_ms, "what the first run compiled, read or stored may be kept"
        if step_ms > self.high_ms:
            took_ms = self.high_ms
            why = (
                "the machine may be busier now, its first steps may take longer than the others, or"
                " what it uses may have changed since"
            )
        return f"A step took {wording.millis(took_ms)} without the profiler. {again}: {why}."


def of_run(run: Run) -> AsRecorded:
    """The time of a step, as far as a recording says it.

    The time of a step is known from those that ran beside the recorded ones without the profiler.
    Else all that is known is that one which compiles takes that time at least: how much a profiler
    lengthens a step is unknown then.
    """
    steps = counted(run.steps)
    compiling_ms = float(steps["compile_ms"].fillna(0.0).mean()) if len(steps) else 0.0
    bare = run.bare_steps
    if not bare.steps:
        return AsRecorded(compiling_ms=compiling_ms)
    # The recorded steps may be the only ones that compile: the program soon leaves that behind.
    compiling_ms = min(compiling_ms, bare.mean_ms / FACTOR)
    return AsRecorded(bare.low_ms, max(bare.high_ms, bare.mean_ms), compiling_ms)
