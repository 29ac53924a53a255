"""The payload of the tab Device time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.display.payload import Marked, Part
from nbprof.tools.parts import Figure, Tab, Table


class DevicePlace(Part):
    """A device by its host, and its number there."""

    host: str
    device: int


class DeviceSeries(Part):
    """A step function of time, as the largest value of each of so many equal boxes."""

    device: DevicePlace
    label: str
    unit: str
    from_ms: float
    to_ms: float
    most: npt.NDArray[np.float32]


class PathKind(Part):
    """A kind of work on the critical path, and its share."""

    kind: str
    total_us: float
    percent: float


class DevicePath(Part):
    """The critical path of a step."""

    step: str
    """Name of the step; "" of the whole recording."""
    host: str
    """Where there are several."""
    kinds: list[PathKind]
    """Most time first."""
    table: Table
    """`_at_ms` and `_for_ms` are start and duration of the longest piece of a row."""
    rest: str
    """A sentence about rows that are left out."""


class DeviceTime(Tab):
    """Time of devices by class of work."""

    statement: Marked
    figures: list[Figure]
    devices: list[str]
    places: list[DevicePlace]
    """Of each of `devices`."""
    windows: list[str]
    """The whole recording, then steps."""
    parts_ms: npt.NDArray[np.float32]
    """Compute, communication, memory and idle, by window and device."""
    waits: list[list[float | None]]
    """ms of waits for the host, between kernels and others, by device; None where unknown."""
    streams: list[DeviceSeries]
    tables: dict[str, Table]
    """By name of the frame, such as "device_idle_causes"."""
    path: DevicePath
    left_out: str
    """A sentence about rows that are left out."""
