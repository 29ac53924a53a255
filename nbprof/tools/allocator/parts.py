"""The payload of the tab Allocator."""

from __future__ import annotations

from nbprof.display.codec import Coded
from nbprof.display.payload import Numbers, Part
from nbprof.tools.parts import Figure, Tab, Table


class Oom(Part):
    """A time at which memory ran out."""

    when: str
    text: str
    remedy: str


class Segments(Part):
    """Segments of a device, most stranded memory first."""

    size: Numbers
    stranded: Numbers
    name: Coded
    rows: int


class Blocks(Part):
    """Blocks by segment and offset in it."""

    segment: Numbers
    offset: Numbers
    size: Numbers
    state: Numbers
    """0 free, 1 in use, 2 to be freed."""
    stranded: Numbers
    stack: Coded
    """Lines of the stack, innermost first."""
    rows: int


class AllocatorDevice(Part):
    """Memory of one device as its allocator divides it."""

    device: int
    name: str
    """"GPU 0"."""
    figures: list[Figure]
    when: str
    """The moment of figures, map and tables: "at the snapshot", or when memory ran out."""
    ooms: list[Oom]
    """The last first."""
    entries: int
    """Entries of the history, of which the highest and lowest of each interval are in the
    columns.
    """
    timed: bool
    """Whether `x` is in ms; else it is the number of the entry."""
    x: Numbers
    reserved: Numbers
    allocated: Numbers
    active: Numbers
    action: Coded
    size: Numbers
    where: Coded
    oom_at: Numbers
    segments: Segments
    blocks: Blocks
    map_more: str
    """A sentence about segments that are not drawn."""
    stranded: Table
    stranded_more: int
    holders: Table


class Allocator(Tab):
    """PyTorch's caching allocator, a device each."""

    devices: list[AllocatorDevice]
    notes: list[str]
    left_out: str
