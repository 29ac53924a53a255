"""The roofline model: how close ops of compiled programs, or of PyTorch, come to the device's
limits.

An op that does `i` operations for each byte can do at most min(peak FLOP/s, i x peak bytes/s): the
roof. Where the two meet is the ridge point. Source: S. Williams, A. Waterman, D. Patterson,
"Roofline: an insightful visual performance model for multicore architectures", Communications of
the ACM 52 (2009).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity, device_names
from nbprof.activity.given_peaks import ON_CHIP
from nbprof.analysis import costs, hlo
from nbprof.analysis.figures import ratio
from nbprof.analysis.ops import ops
from nbprof.core.errors import NbprofError
from nbprof.dialects import device_peaks
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

COLUMNS = frames.names("roofline.frame")
TRANSFERS = ("infeed", "outfeed", "host transfer")
UNCOUNTED = ("shared_memory",)
"""Memories without recorded traffic per op in any profile: only their roof is drawn."""


@dataclass(frozen=True)
class Peaks:
    """The peaks of a device.

    Attributes
    ----------
    device : str
        Its name; several, separated by commas, if the profile has different ones.
    flops_per_second : float
        At 16 bits; NaN if unknown.
    bytes_per_second : float
        Of its main memory; NaN if unknown.
    given : bool
        Whether a person gave one of them.
    on_chip : dict
        Bytes a second of the memories on the chip, by the names of
        `nbprof.activity.given_peaks.ON_CHIP`; those that are known.
    memory : str
        Its main memory: "HBM", "Device memory", or of a CPU "Main memory".
    by_precision : dict
        Operations a second by precision ("float16", "tf32", "float32", ...), of a device that is
        known by its name; empty where a person gave one for all.
    """

    device: str
    flops_per_second: float
    bytes_per_second: float
    given: bool = False
    on_chip: dict[str, float] = field(default_factory=dict)
    memory: str = ops.HBM
    by_precision: dict[str, float] = field(default_factory=dict)

    def of(self, precision: str, product: bool) -> float:
        """The peak FLOP/s for ops of a precision; ops that are not products run on the units for
        float32 and float64. NaN if unknown.
        """
        if not self.by_precision:
            return self.flops_per_second
        return self.by_precision.get(
            precision if product or precision == "float64" else "float32", float("nan")
        )

    @property
    def ridge_point(self) -> float:
        """Operations per byte from which the peak rate can be reached; NaN if a peak is unknown."""
        return self.flops_per_second / self.bytes_per_second

    @property
    def lacking(self) -> list[str]:
        """The unknown peaks: "FLOP/s", "memory bandwidth"."""
        limits = (("FLOP/s", self.flops_per_second), ("memory bandwidth", self.bytes_per_second))
        return [text for text, value in limits if not value > 0]

    @property
    def missing(self) -> str:
        """The unknown peaks as a sentence, with the remedy; '' if all are known."""
        if not self.lacking:
            return ""
        verb = "is" if len(self.lacking) == 1 else "are"
        unnamed = "the CPU" if self.memory == ops.HOST_MEMORY else "this device"
        return (
            f"The peak {' and '.join(self.lacking)} of {self.device or unnamed} {verb} unknown:"
            " pass the device's peaks to p.roofline(peak_flops=..., peak_bytes=...), in operations"
            " and bytes per second, or for all views when loading the profile: nbprof.load(path,"
            ' peaks={"flops": 312e12, "bytes": 2.0e12}).'
        )


def peaks(activity: Activity, flops: float | None = None, moved: float | None = None) -> Peaks:
    """The peaks of the profile's devices; those that are given instead of what the file says.

    Raises
    ------
    NbprofError
        A given peak is not above 0.
    """
    for name, value in (("peak_flops", flops), ("peak_bytes", moved)):
        if value is not None and not (
            isinstance(value, Real) and np.isfinite(float(value)) and value > 0
        ):
            raise NbprofError(f"{name} is {value!r}; expected a rate per second above 0")
    given_peaks = ops.peaks(activity)
    devices = activity.devices
    names = device_names(devices)
    return Peaks(
        names,
        given_peaks[0] if flops is None else float(flops),
        given_peaks[1] if moved is None else float(moved),
        flops is not None or moved is not None or bool(activity.given_peaks),
        ops.on_chip_peaks(activity),
        ops.main_memory(activity),
        {} if flops is not None or "flops" in activity.given_peaks else device_peaks.by_name(names),
    )


def frame(
    activity: Activity,
    roof: Peaks,
    measured: tuple[pd.DataFrame, int],
    *,
    transfers: bool = True,
    time: int | None = None,
) -> tuple[pd.DataFrame, dict[str, float | str]]:
    """The public frame, `p.roofline.frame`, and the same figures for all ops combined.

    Parameters
    ----------
    activity : Activity
    roof : Peaks
    measured : (DataFrame, int)
        The result of `analysis.hlo.measured`.
    transfers : bool
        Whether infeed and outfeed count.
    time : int, optional
        ps that the figures of all ops are over; idle time and that of ops of known cost when left
        out.
    """
    ops_measured, idle = measured
    if not transfers:
        ops_measured = ops_measured[~ops_measured["category"].isin(TRANSFERS)].reset_index(
            drop=True
        )
    self_ps, total = (ops_measured[name].to_numpy(np.float64) for name in ("own", "total"))
    total_ps = float(self_ps.sum())
    peak = _peaks(ops_measured, roof)
    rates = hlo.rates(
        ops_measured, peak, roof.bytes_per_second, roof.on_chip, impossible=False, main=roof.memory
    )
    flops, moved = rates["normalized_flops_per_second"], rates["memory_bytes_per_second"]
    intensity = flops / np.where(moved > 0, moved, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        compute, bandwidth = flops / peak, moved / roof.bytes_per_second
    of_roof = np.maximum(compute, bandwidth)
    roof_flops = np.fmin(intensity * roof.bytes_per_second, peak)
    roof_flops[hlo.unknown(ops_measured)] = np.nan
    seconds, used = (
        hlo.seconds_of(ops_measured["total"]),
        hlo.on_chip_use(ops_measured, roof.on_chip),
    )
    on_chip: dict[str, Any] = {}
    for level in (level for level in ON_CHIP if level not in UNCOUNTED):
        if level in ops_measured.columns:
            on_chip[f"{level}_bytes_per_second"] = (
                ops_measured[level].to_numpy(np.float64) / seconds
            )
        else:
            on_chip[f"{level}_bytes_per_second"] = np.nan
        if level in used:
            part = np.where(used[level] > 0, used[level], np.nan)
            of_roof = np.where(part > of_roof, part, of_roof)
            roof_flops = np.fmin(roof_flops, flops / part)
    columns: dict[str, Any] = {
        "rank": np.arange(1, len(ops_measured) + 1),
        "program": [title for title, _ in hlo.titles(activity, ops_measured)],
        "op": ops_measured["name"],
        "category": ops_measured["category"],
        "occurrences": np.nan_to_num(ops_measured["runs"].to_numpy(np.float64)),
        "total_us": total / 1e6,
        "self_us": self_ps / 1e6,
        "self_fraction": self_ps / total_ps if total_ps else self_ps * 0.0,
        "operational_intensity": intensity,
        "flops_per_second": flops,
        "bytes_per_second": moved,
        "bound_by": rates["bound_by"],
        "bound": rates["bound"],
        "compute_fraction": compute,
        "bandwidth_fraction": bandwidth,
        "input_shapes": ops_measured.get("shapes", ""),
        "precision": ops_measured.get("precision", ""),
        "flops": ops_measured["flops"],
        "bytes": ops_measured["memory"],
        "roof_fraction": of_roof,
        "roof_flops_per_second": roof_flops,
        # Unknown values and those above the roof count as no waste.
        "wasted_us": self_ps / 1e6 * (1 - np.minimum(of_roof, 1)),
        **on_chip,
    }
    table = frames.build("roofline.frame", columns, COLUMNS)
    return table, _total(ops_measured, idle, roof, time)


def _peaks(ops_measured: pd.DataFrame, roof: Peaks) -> Floats | float:
    """The peak FLOP/s of each op, where they compute in several precisions."""
    if "precision" not in ops_measured:
        return roof.flops_per_second
    pairs = zip(ops_measured["precision"].tolist(), ops_measured["product"].tolist(), strict=True)
    return np.array([roof.of(precision, product) for precision, product in pairs], np.float64)


def _total(
    ops_measured: pd.DataFrame, idle: int, roof: Peaks, time: int | None
) -> dict[str, float | str]:
    """All ops as one, over the time of the devices but that of ops of which nothing is known."""
    busy = float(ops_measured["own"].sum())
    unknown = float(ops_measured["own"][hlo.unknown(ops_measured)].sum())
    measured = busy + idle - unknown
    if time is not None:
        measured = time
    sums = {"total": measured}
    # A loop's FLOPs and bytes are those of the ops in it.
    counted = ops_measured[~ops_measured["category"].isin(hlo.CONTAINERS)]
    for name in ("normalized", "memory", *_levels(ops_measured)):
        sums[name] = counted[name].sum(min_count=1)
    has_precision = "precision" in ops_measured
    if has_precision:
        sums["at_peak"] = _ops_at_peak(ops_measured, roof)
    total: dict[str, float | str] = {"time_us": (busy + idle) / 1e6, "idle_us": idle / 1e6}
    for key, values in _together(pd.DataFrame([sums]), roof).items():
        total[key] = values.tolist()[0]
    total["unknown_fraction"] = ratio(unknown, busy)
    if has_precision:
        total["model_flops"] = float(ops_measured["model"].sum())
        total["recomputed_flops"] = float(ops_measured["again"].sum())
    return total


def _ops_at_peak(ops_measured: pd.DataFrame, roof: Peaks) -> float:
    """How long the FLOPs of all ops would take, each at the peak of its precision."""
    normalized = ops_measured["normalized"].to_numpy(np.float64)
    seconds = np.where(normalized == 0, 0.0, normalized / _peaks(ops_measured, roof))
    return float(seconds[ops_measured["known"].to_numpy(np.bool_)].sum())


def _levels(ops_measured: pd.DataFrame) -> list[str]:
    return [level for level in ON_CHIP if level in ops_measured.columns]


def _together(sums: pd.DataFrame, roof: Peaks) -> dict[str, npt.NDArray[Any]]:
    """Rates of ops taken together, an item for each row of `sums`: `total` is the time of the
    devices in ps, the others are of all runs.

    `at_peak`, where it is there, is how many seconds the FLOPs would take at the peaks of their
    precisions.
    """
    seconds = hlo.seconds_of(sums["total"])
    normalized, memory = (sums[name].to_numpy(np.float64) for name in ("normalized", "memory"))
    flops, moved = normalized / seconds, memory / seconds
    with np.errstate(divide="ignore", invalid="ignore"):
        if "at_peak" in sums:
            compute = sums["at_peak"].to_numpy(np.float64) / seconds
        else:
            compute = flops / roof.flops_per_second
        bandwidth = moved / roof.bytes_per_second
    used = {ops.COMPUTE: compute, roof.memory: bandwidth}
    is_known = ~np.isnan(compute) & ~np.isnan(bandwidth)
    used |= {
        ON_CHIP[level]: of_chip for level, of_chip in hlo.on_chip_use(sums, roof.on_chip).items()
    }
    return {
        "flops_per_second": flops,
        "bytes_per_second": moved,
        "operational_intensity": normalized / np.where(memory > 0, memory, np.nan),
        "bound_by": hlo.nearest(used, is_known),
        "roof_fraction": np.fmax.reduce(list(used.values())),
        "compute_fraction": compute,
        "bandwidth_fraction": bandwidth,
    }


def sums_of_steps(
    activity: Activity, steps: pd.DataFrame, measured: tuple[pd.DataFrame, int]
) -> pd.DataFrame:
    """FLOPs, bytes and time of the ops of each step: a row per step, in the order of `steps`, for
    `by_step`.

    A run of an op belongs to the step in which it begins. What one run computes and moves is the
    mean of all runs of the op.

    Returns
    -------
    DataFrame
        `host`, `start_ms`, `devices` (how many of the host ran ops), `busy` and `unknown` (time of
        ops, and of those of which neither FLOPs nor bytes are known, ps), `normalized`, `memory`
        and what is known of memories on the chip.
    """
    ops_measured, _ = measured
    parts, runs = hlo.ran(activity)
    table = steps[["host", "start_ms"]].reset_index(drop=True)
    if steps.empty or ops_measured.empty or not len(runs):
        return table.assign(
            **dict.fromkeys(("devices", "busy", "unknown", "normalized", "memory"), 0.0)
        )
    step, devices = costs.in_steps(activity, steps, runs)
    part = runs["part"].to_numpy(np.int64)
    counted = ops_measured[~ops_measured["category"].isin(hlo.CONTAINERS)]
    in_step = step >= 0
    count = np.bincount(part, minlength=len(parts))
    sums: dict[str, np.ndarray] = {}
    for name in ("normalized", "memory", *_levels(ops_measured)):
        # An op of which a number is not known adds nothing, as in the total.
        each = np.zeros(len(parts))
        each[counted["part"].to_numpy(np.int64)] = counted[name].fillna(0.0).to_numpy(np.float64)
        sums[name] = np.bincount(
            step[in_step], (each / np.maximum(count, 1))[part[in_step]], len(steps)
        )
    lost = np.zeros(len(parts))
    lost[ops_measured["part"].to_numpy(np.int64)] = hlo.unknown(ops_measured)
    self_ps = runs["own"].to_numpy(np.float64)[in_step]
    unknown = np.bincount(step[in_step], lost[part[in_step]] * self_ps, len(steps))
    busy = np.bincount(step[in_step], self_ps, len(steps))
    return table.assign(devices=devices, busy=busy, unknown=unknown, **sums)


def by_step(steps: pd.DataFrame, sums: pd.DataFrame, roof: Peaks) -> pd.DataFrame:
    """The public frame, `p.roofline.steps`: the ops of each step combined, over the step time on
    the devices of its host.

    The time of ops of which nothing is known is left out of the step.

    Parameters
    ----------
    steps : DataFrame
    sums : DataFrame
        Of `sums_of_steps`; empty where no op ran.
    roof : Peaks
    """
    columns = frames.names("roofline.steps")
    if sums.empty:
        return frames.empty("roofline.steps")
    busy, unknown = sums["busy"].to_numpy(np.float64), sums["unknown"].to_numpy(np.float64)
    # Of a step that ran nothing else nothing is known.
    table = sums.mask(pd.Series((unknown > 0) & (unknown >= busy)))
    total_ps = (steps["step_time_ms"].to_numpy(np.float64) * 1e9).round() * sums[
        "devices"
    ].to_numpy(np.float64)
    # While another op ran beside it, the device did something of known cost.
    table["total"] = total_ps - (sums["alone"].to_numpy(np.float64) if "alone" in sums else unknown)
    modelled = "model" in sums
    model = again = use = np.full(len(steps), np.nan)
    if modelled:
        table["at_peak"] = _seconds_at_peak(table, roof, costs.PRODUCTS, costs.REST)
        model, again = table["model"].to_numpy(np.float64), table["again"].to_numpy(np.float64)
        # Without known products, all of them may be among the ops of unknown cost.
        model = np.where((model == 0) & (unknown > 0), np.nan, model)
        table["model"] = model
        use = _seconds_at_peak(table, roof, costs.MODEL) / (
            np.where(total_ps > 0, total_ps, np.nan) / 1e12
        )
    figures = {
        **{name: steps[name] for name in ("host", "step", "name", "counted", "step_time_ms")},
        **_together(table, roof),
        "model_flops": model,
        "recomputed_flops": again,
        "mfu_fraction": use,
        "unknown_fraction": np.divide(
            unknown, busy, out=np.full(len(steps), np.nan), where=busy > 0
        ),
    }
    return frames.build("roofline.steps", figures, columns)


def _seconds_at_peak(sums: pd.DataFrame, roof: Peaks, *keys: str) -> Floats:
    """The seconds that the FLOPs of some columns of `costs.sums_of_steps` would take at the peaks
    of their precisions.
    """
    model = sums["model"].to_numpy(np.float64)
    efficiency = model * 0.0
    for key in keys:
        for column in (name for name in sums.columns if name.startswith(key)):
            flops = sums[column].to_numpy(np.float64)
            efficiency = efficiency + np.where(
                flops == 0, 0.0, flops / roof.of(column.removeprefix(key), key != costs.REST)
            )
    return np.where(np.isnan(model), np.nan, efficiency)


def average(steps: pd.DataFrame) -> dict[str, float | str]:
    """The steps in the averages, combined: XProf's record "Average".

    Parameters
    ----------
    steps : DataFrame
        Of `by_step`.

    Returns
    -------
    dict
        `flops_per_second` `bytes_per_second` `operational_intensity` `compute_fraction`
        `bandwidth_fraction` `mfu_fraction`; empty where there are none.
    """
    rows = np.flatnonzero(steps["counted"].to_numpy(np.bool_))
    time = steps["step_time_ms"].to_numpy(np.float64)[rows]
    if not time.sum() > 0:
        return {}
    keys = (
        "flops_per_second",
        "bytes_per_second",
        "compute_fraction",
        "bandwidth_fraction",
        "mfu_fraction",
    )
    figures: dict[str, float | str] = {
        key: float((steps[key].to_numpy(np.float64)[rows] * time).sum() / time.sum())
        for key in keys
    }
    flops, moved = float(figures["flops_per_second"]), float(figures["bytes_per_second"])
    return {**figures, "operational_intensity": ratio(flops, moved)}
