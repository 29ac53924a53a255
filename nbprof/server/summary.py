"""What the list of runs shows of an analysed run: a few facts, kept in nbprof's cache with the
state of the files.

A profile that was opened, or that the list itself had analysed, is known at once the next time.
What another version of nbprof found is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.activity.unit import KINDS, Unit
from nbprof.analysis.compare.compare import STEP, by_step
from nbprof.analysis.compare.welch import effective_size
from nbprof.analysis.steps import step_count
from nbprof.core.files import LocalFile, RunFiles
from nbprof.core.version import __version__
from nbprof.run.cache.folder import Folder, enabled, location

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.run.run import Run

LAYOUT = 4
"""Raised when other facts are kept, or by other rules."""

_MOST_TIMES = 24

State = tuple[int, ...]
"""Of a file: device, inode, size, time."""


def state_of(files: RunFiles) -> list[State] | None:
    """The state of the files of a run and of what nbprof wrote beside them; None where one is not
    on a disk.

    Raises
    ------
    ReadError
        One is not there any more.
    """
    states: list[State] = []
    for piece in (*files.files, *([files.sidecar] if files.sidecar is not None else [])):
        inner = getattr(piece, "packed", piece)
        if not isinstance(inner, LocalFile):
            return None
        now = inner.stat()
        states.append((now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns))
    return states


def key(state: Iterable[State]) -> str:
    """The name under which the facts of files in this state are kept; the same after a move."""
    description = json.dumps([LAYOUT, __version__, sorted(state)])
    return f"summary-{hashlib.sha256(description.encode()).hexdigest()[:40]}"


def noted(name: str) -> dict[str, Any] | None:
    """The facts that are kept under a key, if there are any."""
    folder = _folder()
    facts = folder.noted(name) if folder is not None else None
    return facts if isinstance(facts, dict) else None


def note(name: str, facts: dict[str, Any]) -> None:
    """Keep facts; a failure is not an error."""
    folder = _folder()
    if folder is not None:
        folder.note(name, facts)


def _folder() -> Folder | None:
    # No home, an odd folder: the list works without a cache too.
    with contextlib.suppress(OSError, RuntimeError):
        folder = Folder(location())
        if enabled() and folder.path.is_absolute() and folder.owned():
            return folder
    return None


def of(run: Run) -> dict[str, Any]:
    """The facts of a run that was read: framework, device, steps, their unit and time in ms, its
    course over the run, and verdict.
    """
    overview = run.overview
    word, text = overview.get("verdict") or "", overview.get("verdict_text") or ""
    step = overview.get("step_time_ms")
    started = overview["environment"].get("start_time")
    return {
        "framework": str(overview.get("framework") or "") or None,
        "device": str(overview.get("device_kind") or "") or None,
        "recorded": str(started) if started else None,
        "steps": step_count.most(run.steps),
        "unit": Unit.of(overview).kind,
        "step_ms": float(step) if step is not None and math.isfinite(step) else None,
        "times_ms": course(run.steps),
        "spread": spread(run.steps),
        "verdict": (f"{word}: {text}" if text else word) or None,
    }


def course(steps: pd.DataFrame) -> list[float]:
    """Step times in ms in time order, at most 24: means of consecutive steps of the averages, of
    all hosts.
    """
    times = by_step(steps)[STEP]
    parts = np.array_split(times, min(len(times), _MOST_TIMES)) if len(times) else []
    return [round(float(part.mean()), 4) for part in parts]


def spread(steps: pd.DataFrame) -> list[float]:
    """What tells a change of the mean step time from chance, as a comparison does.

    The standard deviation in ms, the number of steps, and how many independent ones they are worth;
    empty if there is only one.
    """
    times = by_step(steps)[STEP]
    return (
        [float(times.std(ddof=1)), float(len(times)), effective_size(times)]
        if len(times) > 1
        else []
    )


def fits(facts: dict[str, Any]) -> bool:
    """Whether what was kept has the form that the list tells."""
    texts: Sequence[str] = ("framework", "device", "recorded", "verdict")
    return (
        all(isinstance(facts.get(name), (str, type(None))) for name in texts)
        and isinstance(facts.get("steps"), int)
        and facts.get("unit") in KINDS
        and isinstance(facts.get("step_ms"), (int, float, type(None)))
        and isinstance(times := facts.get("times_ms"), list)
        and all(isinstance(time, (int, float)) for time in times)
        and isinstance(deviation := facts.get("spread"), list)
        and len(deviation) in (0, 3)
        and all(isinstance(value, (int, float)) for value in deviation)
    )
