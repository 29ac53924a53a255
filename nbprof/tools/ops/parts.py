"""The payload of the tab Ops."""

from __future__ import annotations

from typing import Literal

from nbprof.display.payload import Part
from nbprof.tools.parts import Ring, RingPart, Tab, Table


class OpTotals(Part):
    """Self time of each side without idle, and its idle time; missing where the side was not
    recorded.
    """

    device_us: float | None
    device_idle_us: float | None
    host_us: float | None
    host_idle_us: float | None


class OpRing(Part):
    """Self time of a side by op or by type, without idle and with it."""

    where: Literal["device", "host"]
    by: Literal["op", "type"]
    ms: float
    parts: list[RingPart]
    with_idle: Ring


class Ops(Tab):
    """Framework ops, those with the most self time of each side."""

    table: Table
    """Without idle rows; rates and bounds are there where an op has a value."""
    totals: OpTotals
    rings: list[OpRing]
    modules: Table | None
    """PyTorch's modules, a tree in preorder with `_depth`; None where stacks were not recorded."""
    shapes: Table | None
    """PyTorch's ops by the shapes of their inputs; None where these were not recorded."""
