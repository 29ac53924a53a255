"""The payload of the tab Trace."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from nbprof.display.codec import Coded, Delta
from nbprof.display.payload import Codes, Numbers, Part
from nbprof.tools.parts import Tab

Rising = Annotated[Delta | npt.NDArray[Any], "Uint32Array"]
"""Ascending whole numbers, stored as differences."""


class Lane(Part):
    """A track of the trace: slices sorted by start. Ticks are `Trace.tick_ns` nanoseconds since the
    origin of the profile.
    """

    id: int
    """The same in the saved report and in a live source."""
    process: str
    """Section heading ("GPU 0", "Host")."""
    name: str
    note: str
    """Small text at the right of the label ("compute", "main")."""
    kind: Annotated[str, '"steps" | "device" | "host" | "counter"']
    events: int
    """Events on this lane in the profile (samples of a counter), of which some are here."""
    folded: bool
    """Collapsed at first (threads with few events)."""
    derived: bool
    """Inferred from what was recorded rather than recorded."""
    depths: int
    """Levels in the profile."""
    start: Rising
    duration: npt.NDArray[np.uint32]
    inside: Codes | None = None
    """Ticks of nested slices in each, which are not its self time."""
    name_code: Codes
    depth: Codes
    """Level at which each is drawn; slices of one level never overlap."""
    event: Rising
    """Number of each event in the profile: its name for a live source."""
    op: Codes | None = None
    """Of work on a device: 1 + the index of its framework op in the names, 0 where unknown."""
    time: (
        Annotated[npt.NDArray[np.float64] | Delta, "Float64Array | Int32Array | Uint32Array"] | None
    ) = None
    """Of a counter: ns since the origin; `value` holds from then on, in `unit`."""
    value: Numbers | None = None
    unit: Annotated[str, '"bytes" | "percent" | "count"'] | None = None
    host: str | None = None
    """Where several hosts recorded."""
    device: int | None = None
    """The number of its device on its host."""


class Rest(Part):
    """Density of omitted events: a row per lane and level with such events."""

    bins: int
    """Equal parts of `from_`…`to`."""
    from_: float
    """Ticks: from the first to the last event that was left out."""
    to: float
    lane: npt.NDArray[np.uint32]
    """By row: the id of its lane, its level, how many events of it were left out."""
    depth: npt.NDArray[np.uint16]
    count: npt.NDArray[np.uint32]
    busy: npt.NDArray[np.uint8]
    """Share of part b of row r that they take, 0…255, at r × bins + b; at least 1 where there is
    any.
    """


class Strip(Part):
    """The whole profile in equal parts, 0…255; empty where a report does not hold it."""

    above: npt.NDArray[np.uint8]
    """Input."""
    below: npt.NDArray[np.uint8]
    """The device; without one, how many of the host's threads are busy."""
    below_is: Annotated[str, '"device" | "host"']


class Gaps(Part):
    """The longest times in which nothing ran on a device, longest first."""

    process: Coded
    """Its section ("GPU 0")."""
    start: npt.NDArray[np.float64]
    """ns since the origin."""
    duration: npt.NDArray[np.float64]


class Links(Part):
    """Arrows between slices, by the numbers of their events."""

    kind: npt.NDArray[np.uint8]
    """By arrow: 0 launch to work, 1 producer to consumer, 2 forward to backward, 3 any other of the
    file; both ends are here.
    """
    from_: Rising
    to: Rising
    left_out: int
    """Arrows that were too many."""
    work: Rising
    """Work on a device whose launch is not here: the lane of the launch, and by how many ticks the
    work began later.
    """
    on: Codes
    delay: npt.NDArray[np.int32]


class Trace(Tab):
    """The timeline."""

    key: str
    """The name of this profile for a kernel or server; "" where none can be asked."""
    tick_ns: int
    origin_ns: float
    """Where the time of the trace begins on the clock of the other views: 0, or less where an event
    is before the profile.
    """
    end: int
    """Length of the profile in ticks."""
    names: list[str]
    category: npt.NDArray[np.uint8]
    """By name: 1 + index into CATEGORIES, 0 for a name of no step-time category."""
    lanes: list[Lane]
    shown: int
    total: int
    rest: Rest
    strip: Strip
    gaps: Gaps
    links: Links
    lacks: list[str]
    """What was recorded of the slices and is not here: "arguments", "stacks"."""
    notes: list[str]
    """What was derived, stacked or looks wrong."""
