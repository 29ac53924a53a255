"""The payload of the tab Op profile."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from nbprof.display.codec import Coded
from nbprof.display.payload import Marked, Numbers, Part
from nbprof.tools.parts import Column, Figure, Tab


class ProfiledOps(Part):
    """The ops with the most time, the most first."""

    program: Coded
    name: Coded
    category: Coded
    duplicate: Coded
    """'' for an op without one."""
    framework_op: Coded
    source: Coded
    shape: Coded
    layout: Coded
    trace_op: Coded
    """The name of the runs in the trace."""
    time_us: Numbers
    """Sums over all runs. FLOPs of 8 bits count half, of 4 bits a quarter; bytes are those of main
    memory.
    """
    unknown_us: Numbers
    """The part of the time whose FLOPs and bytes are unknown."""
    flops: Numbers
    bytes: Numbers
    runs: Numbers
    expression: Coded
    in_file: npt.NDArray[np.bool_]
    inside_left_out: Numbers
    """Ops inside it that `inside` does not have."""
    at_ms: Numbers
    """The longest run."""
    for_ms: Numbers
    rows: int


class OtherOps(Part):
    """All others, summed by program and category ('' of the last row where there are too many
    pairs).
    """

    program: Coded
    category: Coded
    time_us: Numbers
    """Sums over all runs. FLOPs of 8 bits count half, of 4 bits a quarter; bytes are those of main
    memory.
    """
    unknown_us: Numbers
    """The part of the time whose FLOPs and bytes are unknown."""
    flops: Numbers
    bytes: Numbers
    runs: Numbers
    ops: Numbers
    rows: int


class FusedOps(Part):
    """Ops inside the fusions."""

    name: Coded
    category: Coded
    shape: Coded
    expression: Coded
    op: Numbers
    """The row of the fusion among the ops."""
    flops: Numbers
    rows: int


class OpArrays(Part):
    """Arrays that ops write and read."""

    role: Coded
    shape: Coded
    layout: Coded
    padded: Coded
    """The shape as it is in memory, '' where no dimension tells."""
    op: Numbers
    bytes: Numbers
    padded_bytes: Numbers
    rows: int


class OpProfile(Tab):
    """The ops of compiled programs, of which the page builds its trees."""

    where: Literal["device", "cpu"]
    """"cpu": threads of the host ran the ops."""
    device: str
    peak_flops: float | None
    """Of one device, per second."""
    peak_bytes: float | None
    impossible: float
    """A rate of so many times the peak is wrong."""
    idle_us: float | None
    """Time in which devices ran nothing."""
    figures: list[Figure]
    statement: Marked
    notes: list[str]
    heads: list[Column]
    ops: ProfiledOps | None = None
    """Left out where there are none, as the following."""
    rest: OtherOps | None = None
    inside: FusedOps | None = None
    arrays: OpArrays | None = None
