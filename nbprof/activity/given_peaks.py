"""Peaks of a device that a person gives, where the profile does not tell them or tells others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

from nbprof.core.errors import NbprofError

ON_CHIP = {
    "cmem_read": "CMEM Read",
    "cmem_write": "CMEM Write",
    "vmem_read": "VMEM Read",
    "vmem_write": "VMEM Write",
    "shared_memory": "Shared memory",
}
"""On-chip memories by name, and their labels in "bound by": `activity.devices` has their peaks in
columns `<name>_bytes_per_second`, in XProf's order: of equal ones, the earlier wins."""
KEYS = {
    "flops": "peak_flops_per_second",
    "bytes": "memory_bytes_per_second",
    **{level: f"{level}_bytes_per_second" for level in ON_CHIP},
}
"""The columns of `activity.devices`, by the names that users give."""
_FACTOR = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_HOW = (
    'as in peaks={"flops": 312e12, "bytes": 2.0e12}, operations and main memory bytes per second of'
    " one device"
)


def checked(peaks: Mapping[str, Any] | str | None) -> dict[str, float]:
    """Peaks as numbers, by the names of `KEYS`.

    Parameters
    ----------
    peaks : dict or str, optional
        A string as typed after an option: `flops=312T,bytes=2.0e12`; K, M, G, T and P are factors
        of 1000.

    Raises
    ------
    NbprofError
        There is no such peak, or one is not a rate above 0.
    """
    if peaks is None:
        return {}
    if isinstance(peaks, str):
        peaks = _parsed(peaks)
    if not isinstance(peaks, Mapping):
        raise NbprofError(f"peaks are given by name, {_HOW}, not {_short(peaks)}")
    table = {}
    for name, value in peaks.items():
        if name not in KEYS:
            raise NbprofError(
                f"there is no peak {_short(name)}; the peaks are {', '.join(KEYS)}, {_HOW}"
            )
        if not _is_rate(value):
            raise NbprofError(
                f"the peak {name!r} is {_short(value)}; expected a rate per second above 0, {_HOW}"
            )
        table[str(name)] = float(value)
    return table


def _is_rate(value: object) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) and float(value) > 0
    except OverflowError:
        return False


def _parsed(text: str) -> dict[str, Any]:
    peaks: dict[str, Any] = {}
    for part in filter(None, re.split(r"[,\s]+", text)):
        name, _, amount = part.partition("=")
        match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([KMGTP]?)", amount)
        try:
            peaks[name] = float(match[1]) * _FACTOR[match[2]] if match else amount
        except ValueError:
            peaks[name] = amount
    return peaks


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
