"""The payload of the tab HLO & roofline."""

from __future__ import annotations

from nbprof.display.payload import Part
from nbprof.tools.parts import Figure, Tab, Table, TitledRing


class Roof(Part):
    """The peak bandwidth of a memory."""

    label: str
    """"HBM", "Main memory", "VMEM Read"."""
    bytes_per_second: float
    ridge: float | None
    """FLOPs per byte at which it meets the peak."""


class RoofMark(Part):
    """All ops together, or those of an average step."""

    label: str
    operational_intensity: float | None
    flops_per_second: float | None
    bytes_per_second: float | None
    compute_fraction: float | None
    bandwidth_fraction: float | None


class Hlo(Tab):
    """Ops of compiled programs, or PyTorch's ops, under the roof of the device."""

    figures: list[Figure]
    table: Table
    """Without a head: `_intensity`, `_flops` and `_bytes` (of main memory, per second), and `_hue`,
    an index into CATEGORIES."""
    left_out: str
    donuts: list[TitledRing]
    peak_flops: float | None
    """FLOP/s."""
    roofs: list[Roof]
    """The main memory first."""
    marks: list[RoofMark]
    device: str
    missing: str
    """Which peaks are unknown."""
    code: str
    """The code that gives them."""
