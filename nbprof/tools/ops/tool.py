"""The tab Ops: time by framework op."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.core.receipt import Note, info
from nbprof.tools.ops import figure, payload
from nbprof.tools.tool import Tool, cached_part
from nbprof.tools.torch_ops import ops_torch

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _omissions(run: Run, _events: int) -> list[Note]:
    notes = ops_torch.omissions(run)
    if count := payload.left_out(run):
        text = (
            f"The table of ops omits the {count:,} with the least self time; p.ops.frame has all."
        )
        notes.insert(0, info("omitted_ops", text))
    return notes


def _follows(run: Run, bound: str) -> bool:
    """True if the tab has framework ops of that side, which ops in compiled programs on the CPU are
    not.
    """
    if bound == "device_compute" and not run.kernels.empty:
        return False
    side = {"host_compute": "host", "device_compute": "device"}.get(bound)
    return bool((payload.of_framework(run.ops)["where"] == side).any())


TOOL = Tool(
    payload=cached_part("ops", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    # Ops that were not recorded have no count, not 0.
    count=lambda run: len(payload.without_idle(run.ops)) or None,
    follows=_follows,
    omissions=_omissions,
    figures={"ops": figure.ops},
)
