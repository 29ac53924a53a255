"""Device utilization: of time, of peak compute, of peak memory bandwidth, and by hardware counters.

All of it is of the whole recording, from the first op of a device to the end of its last, idle time
included, several devices added up: so that figures are those of the row `Program` of XProf's
roofline.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity

COUNTERS = {
    "mxu_utilization_percent": "matrix_unit_utilization_percent",
    "hbm_utilization_percent": "hbm_utilization_percent",
}
"""TPU counters that a file may state, by their key in `p.overview`."""
KEYS = (
    *(
        "device_duty_cycle_percent",
        "host_idle_percent",
        "flops_per_second",
        "memory_bytes_per_second",
    ),
    *(
        "flops_utilization_percent",
        "memory_bandwidth_utilization_percent",
        "roofline_percent",
        "unknown_cost_percent",
    ),
)


def costs(activity: Activity) -> dict[str, float | None]:
    """FLOPs, bytes and time of the ops of compiled programs, in sums that add up over hosts.

    `flops` (as of 16 bits) and `bytes` (of main memory), None if no op states any; `seconds` of all
    ops of programs and `unknown_seconds` of those that state neither, None if no program was
    recorded.
    """
    parts = _leaves(activity)
    moved = parts["bytes"]
    if (activity.devices["kind"] == "TPU").any():
        moved = parts["memory_bytes"].fillna(moved)
    computed = parts["normalized_flops"]
    sums: dict[str, float | None] = {
        "flops": float(computed.sum()) if computed.notna().any() else None,
        "bytes": float(moved.sum()) if moved.notna().any() else None,
        "seconds": None,
        "unknown_seconds": None,
    }
    if len(parts) and parts["hlo"].any():
        runs = activity.device_ops
        seconds = np.bincount(runs.part, runs.own.astype(np.float64), len(activity.op_parts)) / 1e12
        is_known = computed.notna() | moved.notna()
        sums["seconds"] = float(seconds.sum())
        sums["unknown_seconds"] = float(seconds[parts.index[~is_known]].sum())
    return sums


def added(hosts: list[dict[str, float | None]]) -> dict[str, float | None]:
    """The costs of several hosts together."""
    sums: dict[str, float | None] = {}
    for key in hosts[0]:
        amounts: list[float] = []
        for host in hosts:
            value = host[key]
            if value is not None:
                amounts.append(value)
        sums[key] = sum(amounts) if amounts else None
    return sums


def use(
    activity: Activity, ops_with_idle: pd.DataFrame, cost: dict[str, float | None]
) -> dict[str, float | None]:
    """The keys of `p.overview` on device utilization; None for figures that the profile does not
    state.

    Parameters
    ----------
    activity : Activity
    ops_with_idle : DataFrame
        Of `p.ops.with_idle`: the row `IDLE` of a side is the time in which it ran no op.
    cost : dict
        The result of `costs`.

    Returns
    -------
    dict
        `device_duty_cycle_percent` `host_idle_percent`: shares of ops in the time of devices, and
        of no op in that of host threads. `flops_per_second` `memory_bytes_per_second`: of one
        device, as of 16 bits, and of its main memory. `flops_utilization_percent`
        `memory_bandwidth_utilization_percent`: these by the device's peaks. `roofline_percent`: the
        FLOP rate by min(peak FLOP rate, FLOPs per byte x peak bandwidth). `unknown_cost_percent`:
        of op time, ops with neither FLOPs nor bytes known; the figures above exclude their time.
        The keys of `COUNTERS`, as recorded.
    """
    figures: dict[str, float | None] = dict.fromkeys(KEYS)
    recorded = activity.environment.get("counters")
    counters = recorded if isinstance(recorded, dict) else {}
    figures |= {key: counters.get(stat) for key, stat in COUNTERS.items()}
    device_idle = _idle(ops_with_idle, "device")
    figures["host_idle_percent"] = _idle(ops_with_idle, "host")
    if device_idle is None:
        return figures
    figures["device_duty_cycle_percent"] = 100 - device_idle
    on_device = ops_with_idle["where"].to_numpy(object) == "device"
    seconds = float(ops_with_idle["self_us"].to_numpy(np.float64)[on_device].sum()) / 1e6
    if not seconds:
        return figures
    if cost["seconds"] is not None and cost["unknown_seconds"] is not None:
        if cost["seconds"]:
            figures["unknown_cost_percent"] = 100 * cost["unknown_seconds"] / cost["seconds"]
        seconds -= cost["unknown_seconds"]
    return figures | _utilization(activity, cost, seconds)


def _utilization(
    activity: Activity, cost: dict[str, float | None], seconds: float
) -> dict[str, float]:
    """Rates of the devices over some time, and these by their peaks; those that are known."""
    figures: dict[str, float] = {}
    shares = []
    for amount, rate, percent, peak in (
        (
            cost["flops"],
            "flops_per_second",
            "flops_utilization_percent",
            "peak_flops_per_second",
        ),
        (
            cost["bytes"],
            "memory_bytes_per_second",
            "memory_bandwidth_utilization_percent",
            "memory_bytes_per_second",
        ),
    ):
        if amount is None or not seconds > 0:
            continue
        figures[rate] = amount / seconds
        peaks = activity.devices[peak].dropna().unique()
        # Devices of several kinds have no common peak.
        if len(peaks) == 1 and float(peaks[0]) > 0:
            figures[percent] = 100 * figures[rate] / float(peaks[0])
            shares.append(figures[percent])
    if len(shares) == 2 and figures["flops_per_second"]:
        figures["roofline_percent"] = max(shares)
    return figures


def _idle(ops: pd.DataFrame, side: str) -> float | None:
    """Percent of the time of a side in which it ran no op; None if it was not recorded."""
    rows = np.flatnonzero(ops["where"].to_numpy(object) == side)
    self_us = ops["self_us"].to_numpy(np.float64)[rows]
    idle = ops["type"].to_numpy(object)[rows] == "IDLE"
    total = float(self_us.sum())
    if not idle.any() or not total > 0:
        return None
    return 100 * float(self_us[idle].sum()) / total


def _leaves(activity: Activity) -> pd.DataFrame:
    """The parts of ops whose numbers count: those of loops, branches and calls are of the ops that
    they run, which are there themselves.
    """
    parts, runs = activity.op_parts, activity.device_ops
    if not len(parts):
        # PyTorch's ops are of no compiled program.
        return parts.frame()
    with_part = runs.part >= 0
    around = runs.end - runs.start > runs.own
    outer = np.bincount(runs.part[with_part & around], minlength=len(parts)) > 0
    used = np.bincount(runs.part[with_part], minlength=len(parts)) > 0
    if (activity.devices["kind"] == "TPU").any():
        used &= ~outer
    return parts.frame()[used]
