"""The facts of an analysed run for the list of runs, stored in the cache by the state of the files.

They are available at once for profiles that were opened or analysed before by this version of
nbprof.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nbprof.activity.unit import KINDS, Unit
from nbprof.analysis.compare.compare import STEP, by_step, why_not_bare
from nbprof.analysis.compare.welch import effective_size
from nbprof.analysis.steps import step_count
from nbprof.core.files import LocalFile, RunFiles
from nbprof.core.version import __version__
from nbprof.run.cache.folder import Folder, enabled, location
from nbprof.server.on_disk import State, state_key

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.run.run import Run

LAYOUT = 5
"""Increased when the facts or their rules change."""

_MOST_TIMES = 24


def state_of(files: RunFiles) -> list[State] | None:
    """The states of the files of a run and of its sidecar; None if one is not on a disk.

    Raises
    ------
    ReadError
        A file does not exist any more.
    """
    states: list[State] = []
    for piece in files.with_sidecar:
        inner = getattr(piece, "packed", piece)
        if not isinstance(inner, LocalFile):
            return None
        states.append(state_key(inner.stat()))
    return states


def key(state: Iterable[State]) -> str:
    """The name of the stored facts of files in this state; the same after they are moved."""
    description = json.dumps([LAYOUT, __version__, sorted(state)])
    return f"summary-{hashlib.sha256(description.encode()).hexdigest()[:40]}"


def noted(name: str) -> dict[str, Any] | None:
    """The facts stored under a name, if any."""
    folder = _folder()
    if folder is None:
        return None
    facts = folder.noted(name)
    return facts if isinstance(facts, dict) else None


def note(name: str, facts: dict[str, Any]) -> None:
    """Store facts; a failure is ignored."""
    folder = _folder()
    if folder is not None:
        folder.note(name, facts)


def _folder() -> Folder | None:
    # No home folder, or an invalid one: the list also works without a cache.
    with contextlib.suppress(OSError, RuntimeError):
        folder = Folder(location())
        if enabled() and folder.path.is_absolute() and folder.owned():
            return folder
    return None


def facts_of(run: Run) -> dict[str, Any]:
    """The facts of a run: framework, device, steps and their times, and the verdict."""
    overview = run.overview
    verdict = [overview.get("verdict"), overview.get("verdict_text")]
    step, step_ms = overview.get("step_time_ms"), None
    if step is not None and math.isfinite(step):
        step_ms = float(step)
    return {
        "framework": _text(overview.get("framework")),
        "device": _text(overview.get("device_kind")),
        "recorded": _text(overview["environment"].get("start_time")),
        "steps": step_count.longest(run.steps),
        "unit": Unit.of(overview).kind,
        "step_ms": step_ms,
        "times_ms": course(run.steps),
        "spread": spread(by_step(run.steps)[STEP]),
        "bare": _bare(run),
        "verdict": _text(": ".join(filter(None, verdict))),
    }


def _text(value: object) -> str | None:
    return str(value) if value else None


def course(steps: pd.DataFrame) -> list[float]:
    """Step times of all hosts in ms in time order, at most 24: means of consecutive steps."""
    times = by_step(steps)[STEP]
    if not len(times):
        return []
    parts = np.array_split(times, min(len(times), _MOST_TIMES))
    return [round(float(part.mean()), 4) for part in parts]


def _bare(run: Run) -> list[float]:
    """Mean time of the steps without the profiler in ms, and their variation; empty if unknown."""
    times = run.bare_steps.durations_ms
    if why_not_bare(run.bare_steps, Unit.of(run.overview)):
        return []
    return [float(times.mean()), *spread(times)]


def spread(times: npt.NDArray[np.float64]) -> list[float]:
    """Variation of step times in ms, for telling a change of their mean from chance.

    The standard deviation, the number of steps, and the equivalent number of independent ones;
    empty if there is only one step.
    """
    if len(times) <= 1:
        return []
    return [float(times.std(ddof=1)), float(len(times)), effective_size(times)]


def fits(facts: dict[str, Any]) -> bool:
    """True if stored facts have the expected form."""
    texts = [facts.get(name) for name in ("framework", "device", "recorded", "verdict")]
    times, deviation, bare = (facts.get(name) for name in ("times_ms", "spread", "bare"))
    if not (isinstance(times, list) and isinstance(deviation, list) and isinstance(bare, list)):
        return False
    return (
        all(isinstance(text, (str, type(None))) for text in texts)
        and isinstance(facts.get("steps"), int)
        and facts.get("unit") in KINDS
        and isinstance(facts.get("step_ms"), (int, float, type(None)))
        and len(deviation) in (0, 3)
        and len(bare) in (0, 4)
        and all(isinstance(value, (int, float)) for value in (*times, *deviation, *bare))
    )
