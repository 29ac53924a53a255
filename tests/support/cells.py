"""Text that runs as a notebook's cell runs, without a kernel: under the file that ipykernel would
give it.
"""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np

from nbprof.core.line_times import LineTimes
from nbprof.dialects.environment import origin_ns
from nbprof.profiles.profile import Profile


def run_cell(stem: str, text: str, names: dict[str, Any]) -> None:
    """Run it in these names."""
    path = f"/tmp/ipykernel_1/{stem}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), names)


def lines_of(profile: Profile, name: str) -> set[tuple[str, int] | None]:
    """The lines that ran in the middle of the events of a name, by the clock of the trace."""
    trace = profile.run.trace
    assert profile.run.capture is not None
    times = LineTimes.unpacked(profile.run.capture.lines)
    assert times is not None
    (code,) = np.flatnonzero(trace.names == name).tolist()
    rows = np.flatnonzero(trace.events.name == code)
    middle = (
        origin_ns(trace) + (trace.events.start[rows] + trace.events.duration[rows] // 2) // 1000
    )
    numbers = times.line[np.searchsorted(times.times, middle, side="right") - 1].tolist()
    return {times.lines[abs(number) - 1] if number else None for number in numbers}
