"""The tab Memory: what allocators held over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.common import by_jax, by_tensorflow
from nbprof.tools.header import out_of_memory
from nbprof.tools.memory import figure, payload, static
from nbprof.tools.tool import Tool, Top, kept

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _has(run: Run) -> bool:
    """Not where nothing can be asked for that records it: JAX has no memory events of the CPU, and TensorFlow only some."""
    return not (by_jax(run) or by_tensorflow(run)) or not run.devices.empty or not run.memory_summary.empty or out_of_memory(run)


TOOL = Tool(
    payload=kept("memory", payload.payload),
    nothing=payload.nothing,
    has=_has,
    # What has to be looked at is what stood in the memory.
    first=out_of_memory,
    static=static.html,
    figures={"memory": figure.memory},
    brief=(
        Top("Peak memory", "memory.summary", "memory_id", ("peak_bytes", "capacity_bytes", "peak_fragmentation"), largest="peak_bytes"),
    ),
)
