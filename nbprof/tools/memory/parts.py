"""The payload of the tab Memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.display.codec import Coded, Delta
from nbprof.display.payload import Marked, Numbers, Part
from nbprof.tools.parts import Figure, Tab, Table


class Moments(Part):
    """Blocks live at the drawn events, as what changes from one moment to the next."""

    point: Delta
    """By moment: index of its event. Moments are in the order of their steps, then in time."""
    blocks: Table
    """Kinds of blocks."""
    moment: Delta
    """At this moment (ascending) `change` more or fewer of the row `block` of `blocks` are live
    than at the one before.
    """
    block: Numbers
    change: Numbers
    smaller_bytes: Numbers
    """By moment: blocks too small to be listed, their bytes and their number."""
    smaller_count: Numbers
    rest: str
    """The name of the bytes of the heap beyond all these."""


class RoleBytes(Part):
    """Bytes of one role by drawn event."""

    role: str
    bytes: Numbers
    tint: int
    """Which of the eight tints it is drawn in; -1 for grey."""


class Roles(Part):
    """Memory by role."""

    peak: Table
    """By role, at the peak."""
    series: list[RoleBytes]
    """The roles of memory in use, which add up to it; in the order in which they are stacked."""


class MemoryId(Part):
    """An allocator over time; the columns have a row per drawn event, in time order."""

    memory_id: str
    figures: list[Figure]
    capacity_bytes: float | None
    peak_bytes: float
    peak_time_ms: float | None
    peak_step: int | None
    total: int
    """Events before sampling; the peak is always drawn."""
    time_ms: npt.NDArray[np.float64]
    allocation: npt.NDArray[np.uint8]
    """1 allocation, 0 deallocation."""
    requested_bytes: Numbers
    allocated_bytes: Numbers
    op: Coded
    step: npt.NDArray[np.int32]
    region_type: Coded
    data_type: Coded
    shape: Coded
    stack_bytes: Numbers
    heap_bytes: Numbers
    free_bytes: Numbers
    in_use_bytes: Numbers
    fragmentation: Numbers
    """0…1."""
    peak: Table
    """Allocations live at the peak."""
    moments: Moments | None
    """None where blocks cannot be distinguished."""
    ops: Table
    """Bytes that each op allocated and freed."""
    ops_left_out: str | None = None
    """How many ops with less are not in it."""
    roles: Roles | None = None
    """None where next to nothing is known of them."""


class OverCell(Part):
    """Host memory over the cell; the columns have a row per moment, in time order."""

    time_s: npt.NDArray[np.float64]
    """From the begin of the cell."""
    step: npt.NDArray[np.int32]
    """The number of the step that ran; 0 for none."""
    process: Numbers
    """Resident bytes of the recorded process."""
    children: Numbers
    """Those of its children, all together."""
    recorded: npt.NDArray[np.uint8]
    """1 while a profiler ran."""
    scope: str
    processes: Table
    """By process, all of them first where there are several."""
    note: str | None = None
    """What the figures leave open."""


class Memory(Tab):
    """Allocators, the one with the largest peak first."""

    of: Marked
    """The host that these are of, where hosts were read separately; else ""."""
    peaks: Table | None
    """The peaks of all hosts, the largest first, where hosts were read separately."""
    ids: list[MemoryId]
    host: OverCell | None = None
    """None where it was not sampled, or too little of it."""
