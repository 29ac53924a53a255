"""The payload of the tab Program memory."""

from __future__ import annotations

from nbprof.display.codec import Coded, Delta
from nbprof.display.payload import Numbers, Part
from nbprof.tools.parts import Figure, Tab, Table


class ProgramSpace(Part):
    """The memory of a program in one memory space."""

    space: int
    """0: the main memory of the device."""
    figures: list[Figure]
    notes: list[str]
    peak_bytes: float
    unpadded_bytes: float
    throughout_bytes: float
    """Bytes of parameters, results and constants, which are live throughout."""
    total_bytes: float
    peak: int
    """Program point at which the peak is reached, -1 without a heap."""
    points: int
    """Program points, of which `rows` are in the columns: the largest and the least of each
    interval, and the peak.
    """
    rows: int
    position: Delta
    instruction: Coded
    allocated_bytes: Numbers
    unpadded: Numbers
    buffers: Table
    """The largest buffers live at the peak, in program order."""
    rest_count: int
    """Smaller buffers that are left out, and their bytes."""
    rest_bytes: float


class ProgramMemory(Part):
    """The memory of a compiled program."""

    name: str
    hosts: int
    host: str
    """The only one of several hosts that recorded it, where its name does not say so; else ""."""
    peak_bytes: float
    time_ms: float | None
    """Time of its ops on devices."""
    spaces: list[ProgramSpace]


class MemoryViewer(Tab):
    """Memory of compiled programs, the largest peak first."""

    modules: list[ProgramMemory]
    left_out: str
    chosen: tuple[int, int] | None = None
    """The module and memory space to open with, as indices; the first of each when absent."""
