"""The memory that a program may use: that of a device by its name, or a number of bytes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.dialects import device_peaks

CONTEXT_BYTES = 2**29
"""The driver's context, and the libraries that it loads, take about half a GiB of a GPU."""
MARGIN = 0.05
"""Share of the peak for what no allocation of a tensor shows: workspaces of libraries, and memory
that the allocator holds in pieces too small to use.
"""
_HOST = "cpu"


@dataclass(frozen=True)
class Device:
    """A device, or an amount of memory.

    Attributes
    ----------
    name : str
        '' for an amount of bytes, or if none is given.
    capacity_bytes : int or None
        None where no device is given.
    has_context : bool
        Some of the memory is the driver's.
    """

    name: str
    capacity_bytes: int | None
    has_context: bool = False

    @property
    def is_gpu(self) -> bool:
        """True unless tensors are those of the host."""
        return self.name != _HOST

    @classmethod
    def of(cls, device: Any) -> Device:
        """The device of a name, an amount of bytes, or a framework's device.

        Raises
        ------
        NbprofError
            It is neither, or the memory of a device of this name is unknown.
        """
        if isinstance(device, bool):
            raise NbprofError(f"device is {device}; pass a name, such as 'A100-80GB', or bytes")
        if device is None:
            return cls("", None)
        if isinstance(device, int | float):
            if device <= 0:
                raise NbprofError(f"device has {device} bytes; pass more than 0")
            return cls("", int(device))
        name = str(device)
        if name == _HOST:
            return cls(name, _host_bytes())
        if name.startswith("cuda"):
            return _running_gpu(name)
        capacity = device_peaks.capacity_bytes(name)
        if capacity is None:
            choices = ", ".join(device_peaks.SHORT_NAMES)
            raise NbprofError(
                f"the memory of a device {name!r} is unknown; pass its bytes, such as 24 * 2**30,"
                f" or one of {choices}"
            )
        return cls(name, capacity, has_context=True)

    def margin_bytes(self, peak_bytes: int, margin: float | None) -> int:
        """Memory beside the peak that must be free.

        Parameters
        ----------
        peak_bytes : int
        margin : float, optional
            Bytes; a share of the peak where it is less than 1. By default `MARGIN` and
            `CONTEXT_BYTES` for a device, and none for a number of bytes or the host.
        """
        if margin is not None and margin < 1:
            return round(margin * peak_bytes)
        if margin is not None:
            return int(margin)
        if self.has_context:
            return round(MARGIN * peak_bytes) + CONTEXT_BYTES
        return 0

    def __str__(self) -> str:
        if self.capacity_bytes is None:
            return "an unknown device"
        size = size_text(self.capacity_bytes)
        if self.name:
            return f"the {size} of {self.name}"
        return size


def _host_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)


def _running_gpu(name: str) -> Device:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        raise NbprofError(
            f"there is no device {name!r} here; pass the name of a GPU, such as 'A100-80GB', or its"
            " bytes"
        )
    properties = torch.cuda.get_device_properties(name)
    return Device(properties.name, int(properties.total_memory), has_context=True)
