"""The part of the Overview on process pools: what ran in their workers, and how busy these were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbprof.core.units import plural
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.tools.overview.parts import Pools
from nbprof.tools.tables import table

if TYPE_CHECKING:
    from nbprof.run.run import Run


def payload(run: Run) -> Pools | None:
    """Tasks and workers; None where no task was timed."""
    if run.capture is None or not run.capture.pools:
        return None
    tasks, workers = run.pools.tasks(), run.pools.workers()
    if not len(tasks):
        return None
    return Pools(
        tasks=table(tasks, "python.tasks", [each.name for each in frames.SCHEMA["python.tasks"]]),
        workers=table(
            workers, "python.workers", [each.name for each in frames.SCHEMA["python.workers"]]
        ),
        notes=[_note(pool) for pool in run.pools.pools().to_dict("records")],
    )


def _note(pool: dict[Any, Any]) -> str:
    """A sentence on a pool."""
    processes = plural(int(pool["processes"]), "process", "processes")
    sent, timed = int(pool["sent"]), int(pool["timed"])
    text = f"{pool['pool']}: {processes}, {plural(sent, 'task')}"
    if timed < sent:
        text += f", {timed:,} of them timed"
    unfinished = wording.real(pool["unfinished_ms"])
    if unfinished is None:
        return f"{text}."
    text += f"; some were unfinished for {wording.millis(unfinished)}"
    busy = wording.real(pool["busy_percent"])
    if busy is not None:
        text += f", in which its processes ran tasks for {busy:.0f}% of their time"
    return f"{text}."
