"""How near each op of a compiled program comes to what the device can do: the roofline model.

An op that does `i` operations for each byte can do at most min(peak FLOP/s, i x peak bytes/s): the roof. Where the two meet is the ridge
point. Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52 (2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from nbprof import frames_hlo
from nbprof.activity import Activity
from nbprof.analysis import hlo, ops
from nbprof.errors import NbprofError

COLUMNS = [column.name for column in frames_hlo.SCHEMA["roofline"]]
TRANSFERS = ("infeed", "outfeed")


@dataclass(frozen=True)
class Peaks:
    """What a device can do at most.

    Attributes
    ----------
    device : str
        What it is called; several, parted by commas, where the profile has different ones.
    flops_per_second : float
        At 16 bits; NaN where it is not known.
    bytes_per_second : float
        Of its main memory; NaN where it is not known.
    given : bool
        Whether a person gave one of them.
    """

    device: str
    flops_per_second: float
    bytes_per_second: float
    given: bool = False

    @property
    def ridge_point(self) -> float:
        """Operations a byte from which on the peak rate can be reached; NaN where a peak is not known."""
        return self.flops_per_second / self.bytes_per_second

    @property
    def missing(self) -> str:
        """What is not known, and what to do, in a sentence; '' where all is."""
        lacking = [
            text for text, value in (("FLOP/s", self.flops_per_second), ("memory bandwidth", self.bytes_per_second)) if not value > 0
        ]
        if not lacking:
            return ""
        return (
            f"The peak {' and '.join(lacking)} of {self.device or 'this device'} is not known: give the device's with "
            "p.roofline(peak_flops=..., peak_bytes=...), in operations and bytes a second."
        )


def peaks(activity: Activity, flops: float | None = None, moved: float | None = None) -> Peaks:
    """The peaks of the profile's devices; those that are given instead of what the file says.

    Raises
    ------
    NbprofError
        A peak that is given is not above 0.
    """
    for name, value in (("peak_flops", flops), ("peak_bytes", moved)):
        if value is not None and not (np.isfinite(value) and value > 0):
            raise NbprofError(f"{name} is {value!r}; it is a rate a second, above 0")
    own = ops.peaks(activity)
    devices = activity.devices
    names = ", ".join(dict.fromkeys(str(name) for name in devices["name"].dropna())) if len(devices) else ""
    return Peaks(
        names,
        own[0] if flops is None else float(flops),
        own[1] if moved is None else float(moved),
        flops is not None or moved is not None,
    )


def frame(
    activity: Activity, roof: Peaks, *, transfers: bool = True, measured: tuple[pd.DataFrame, int] | None = None
) -> tuple[pd.DataFrame, dict[str, float | str]]:
    """The public frame, `p.roofline.frame`, and the same figures of all ops together.

    Parameters
    ----------
    activity : Activity
    roof : Peaks
    transfers : bool
        Whether infeed and outfeed count.
    measured : (DataFrame, int), optional
        What `analysis.hlo.measured` found.
    """
    found, idle = hlo.measured(activity) if measured is None else measured
    if not transfers:
        found = found[~found["category"].isin(TRANSFERS)].reset_index(drop=True)
    own = float(found["own"].sum())
    rates = hlo.rates(found, roof.flops_per_second, roof.bytes_per_second, impossible=False)
    flops, moved = rates["normalized_flops_per_second"], rates["memory_bytes_per_second"]
    share = found["own"] / own if own else found["own"] * 0.0
    intensity = flops / moved.where(moved > 0)
    out = pd.DataFrame(
        {
            "rank": np.arange(1, len(found) + 1),
            "program": [title for title, _ in hlo.titles(activity, found)],
            "op": found["name"],
            "category": found["category"],
            "occurrences": found["runs"].fillna(0).astype("i8"),
            "total_us": found["total"] / 1e6,
            "self_us": found["own"] / 1e6,
            "self_fraction": share,
            "operational_intensity": intensity,
            "flops_per_second": flops,
            "bytes_per_second": moved,
            "bound_by": rates["bound_by"],
            "compute_fraction": flops / roof.flops_per_second,
            "bandwidth_fraction": moved / roof.bytes_per_second,
        }
    )
    out["roof_fraction"] = out[["compute_fraction", "bandwidth_fraction"]].max(axis=1, skipna=False)
    out["roof_flops_per_second"] = np.fmin(intensity * roof.bytes_per_second, roof.flops_per_second)
    out = out.astype({column.name: column.dtype for column in frames_hlo.SCHEMA["roofline"]})[COLUMNS]
    return out, _total(found, idle, roof)


def _total(found: pd.DataFrame, idle: int, roof: Peaks) -> dict[str, float | str]:
    """All ops as one: over the time of the devices, and over the time in which they ran."""
    busy = float(found["own"].sum())
    counted = found[~found["category"].isin(hlo.CONTAINERS)]
    flops, moved = (float(counted[name].sum(min_count=1)) for name in ("normalized", "memory"))
    whole = (busy + idle) / 1e12 or float("nan")
    computing, moving = flops / whole / roof.flops_per_second, moved / whole / roof.bytes_per_second
    known = computing == computing and moving == moving and max(computing, moving) > 0
    return {
        "time_us": (busy + idle) / 1e6,
        "idle_us": idle / 1e6,
        "flops_per_second": flops / whole,
        "bytes_per_second": moved / whole,
        "operational_intensity": flops / moved if moved > 0 else float("nan"),
        "bound_by": (ops.MEMORY if moving > computing else ops.COMPUTE) if known else "",
        "roof_fraction": float(np.fmax(computing, moving)),
        "compute_fraction": computing,
        "bandwidth_fraction": moving,
    }
