"""Host memory over the cell, as the tab Memory shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nbprof.analysis.memory import host
from nbprof.core.host_memory import HostMemory
from nbprof.display import wording
from nbprof.display.codec import numbers
from nbprof.tools.memory.parts import OverCell
from nbprof.tools.tables import table

if TYPE_CHECKING:
    from nbprof.run.run import Run

FEWEST = 10
"""Moments from which on there is a chart."""
MOST = 1_000
"""Moments that are drawn; where there are more, those with most memory."""
MOST_PROCESSES = 50
_PROCESSES = (
    "name",
    "process",
    "first_bytes",
    "peak_bytes",
    "last_bytes",
    "growth_bytes_per_step",
    "shared_bytes",
    "proportional_bytes",
    "pinned_bytes",
)


def is_drawn(run: Run) -> bool:
    """True if there are enough samples for a chart."""
    memory = run.host_memory_samples
    return memory is not None and len(np.unique(memory.time)) >= FEWEST


def over_cell(run: Run) -> OverCell | None:
    """The samples of the cell by moment; None without enough of them."""
    memory = run.host_memory_samples
    if memory is None or not is_drawn(run):
        return None
    moments, main_bytes, children = host.totals(memory)
    step, recorded = host.at_steps(moments, run.step_times)
    size = -(-len(moments) // MOST)
    groups = np.array_split(np.arange(len(moments)), -(-len(moments) // size))
    drawn = np.array([rows[(main_bytes + children)[rows].argmax()] for rows in groups])
    processes = run.host_processes
    return OverCell(
        time_s=moments[drawn] / 1e9,
        step=step[drawn].astype(np.int32),
        process=numbers(main_bytes[drawn].astype(np.float64)),
        children=numbers(children[drawn].astype(np.float64)),
        recorded=recorded[drawn].astype(np.uint8),
        scope=_scope(memory, len(moments), len(drawn)),
        processes=table(processes.head(MOST_PROCESSES), "memory.host_processes", _PROCESSES),
        note=_note(memory, len(processes)),
    )


def _scope(memory: HostMemory, moments: int, drawn: int) -> str:
    scope = f"{wording.number(moments)} samples"
    if drawn < moments:
        scope += f", {wording.number(drawn)} drawn with every maximum"
    if memory.capacity:
        scope += f"; the machine or its container has {wording.size(memory.capacity)}"
    return scope


def _note(memory: HostMemory, processes: int) -> str | None:
    """A sentence on how to read the figures; None if they need none."""
    if not memory.with_children:
        return "Memory of child processes is known on Linux only."
    if processes <= 1:
        return None
    note = "Memory that processes share counts in each of them; proportionally, it counts once."
    if memory.unread:
        note += (
            f" {wording.number(memory.unread)} more children were too many to be read: their memory"
            " is in no figure."
        )
    if processes > MOST_PROCESSES:
        note += f" {wording.number(processes - MOST_PROCESSES)} more: p.memory.host_processes."
    return note
