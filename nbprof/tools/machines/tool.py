"""The tab Machines: the hosts of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.machines.parts import Machines
from nbprof.tools.tool import Tool, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _payload(run: Run) -> Machines:
    return Machines(empty=None, hosts=list(run.hosts))


TOOL = Tool(
    payload=cached_part("machines", _payload),
    nothing=lambda: Machines(empty=None, hosts=[]),
)
