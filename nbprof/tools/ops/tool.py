"""The tab Ops: time by framework op."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.ops import figure, payload
from nbprof.tools.tool import Tool, kept
from nbprof.tools.torch_ops import ops_torch

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _omissions(run: Run, _events: int) -> list[str]:
    count = payload.left_out(run)
    said = [f"The table of ops omits the {count:,} with the least self time; p.ops.frame has all."] if count else []
    return said + ops_torch.omissions(run)


TOOL = Tool(
    payload=kept("ops", payload.payload),
    nothing=payload.nothing,
    count=lambda run: len(payload.without_idle(run.ops)),
    follows=lambda run, bound: bound == "host_compute" or (bound == "device_compute" and run.kernels.empty),
    omissions=_omissions,
    figures={"ops": figure.ops},
)
