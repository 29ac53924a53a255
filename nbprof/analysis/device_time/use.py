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
    """What the ops of compiled programs cost, in sums that add up over hosts.

    `flops` (as of 16 bits) and `bytes` (of main memory), None where no op states any; `seconds` of
    all ops of programs and `unknown_seconds` of those that state neither, None where no program was
    recorded.
    """
    parts = _leaves(activity)
    moved = (
        parts["memory_bytes"].fillna(parts["bytes"])
        if (activity.devices["kind"] == "TPU").any()
        else parts["bytes"]
    )
    computed = parts["normalized_flops"]
    sums: dict[str, float | None] = dict.fromkeys(("flops", "bytes", "seconds", "unknown_seconds"))
    sums |= {
        key: float(of_part.sum())
        for key, of_part in (("flops", computed), ("bytes", moved))
        if of_part.notna().any()
    }
    if len(parts) and parts["hlo"].any():
        runs = activity.device_ops.frame()
        self_ps = (
            np.bincount(
                runs["part"].to_numpy(np.int64),
                runs["own"].to_numpy(np.float64),
                len(activity.op_parts),
            )
            / 1e12
        )
        is_known = computed.notna() | moved.notna()
        sums |= {
            "seconds": float(self_ps.sum()),
            "unknown_seconds": float(self_ps[parts.index[~is_known]].sum()),
        }
    return sums


def added(hosts: list[dict[str, float | None]]) -> dict[str, float | None]:
    """The costs of several hosts together."""
    stated = {
        key: [value for host in hosts if (value := host[key]) is not None] for key in hosts[0]
    }
    return {key: sum(values) if values else None for key, values in stated.items()}


def use(
    activity: Activity, ops_with_idle: pd.DataFrame, cost: dict[str, float | None]
) -> dict[str, float | None]:
    """The keys of `p.overview` on device utilization; None for what the profile does not state.

    Parameters
    ----------
    activity : Activity
    ops_with_idle : DataFrame
        Of `p.ops.with_idle`: the row `IDLE` of a side is the time in which it ran no op.
    cost : dict
        What `costs` gives.

    Returns
    -------
    dict
        `device_duty_cycle_percent` `host_idle_percent`: shares of ops in the time of devices, and
        of no op in that of host threads. `flops_per_second` `memory_bytes_per_second`: of one
        device, as of 16 bits, and of its main memory. `flops_utilization_percent`
        `memory_bandwidth_utilization_percent`: these by the device's peaks. `roofline_percent`: the
        FLOP rate by min(peak FLOP rate, FLOPs a byte x peak bandwidth). `unknown_cost_percent`: of
        op time, ops of which neither FLOPs nor bytes are known; the figures above leave their time
        out. The keys of `COUNTERS`, as recorded.
    """
    out: dict[str, float | None] = dict.fromkeys(KEYS)
    reported = activity.environment.get("counters")
    counters = reported if isinstance(reported, dict) else {}
    out |= {key: counters.get(stat) for key, stat in COUNTERS.items()}
    idle = {side: _idle(ops_with_idle, side) for side in ("device", "host")}
    out["device_duty_cycle_percent"] = None if idle["device"] is None else 100 - idle["device"]
    out["host_idle_percent"] = idle["host"]
    on_device = ops_with_idle[ops_with_idle["where"] == "device"]
    seconds = float(on_device["self_us"].sum()) / 1e6
    if idle["device"] is None or not seconds:
        return out
    if cost["seconds"] is not None and cost["unknown_seconds"] is not None:
        out["unknown_cost_percent"] = (
            100 * cost["unknown_seconds"] / cost["seconds"] if cost["seconds"] else None
        )
        seconds -= cost["unknown_seconds"]
    for key, amount in (
        ("flops_per_second", cost["flops"]),
        ("memory_bytes_per_second", cost["bytes"]),
    ):
        if amount is not None and seconds > 0:
            out[key] = amount / seconds
    shares = []
    for key, rate, peak in (
        ("flops_utilization_percent", "flops_per_second", "peak_flops_per_second"),
        (
            "memory_bandwidth_utilization_percent",
            "memory_bytes_per_second",
            "memory_bytes_per_second",
        ),
    ):
        peaks = activity.devices[peak].dropna().unique()
        value = out[rate]
        # Devices of several kinds have no peak of one.
        if value is not None and len(peaks) == 1 and float(peaks[0]) > 0:
            out[key] = 100 * value / float(peaks[0])
            shares.append(out[key])
    if len(shares) == 2 and out["flops_per_second"]:
        out["roofline_percent"] = max(share for share in shares if share is not None)
    return out


def _idle(ops: pd.DataFrame, side: str) -> float | None:
    """Percent of the time of a side in which it ran no op; None where it was not recorded."""
    side_ops = ops[ops["where"] == side]
    idle = side_ops["type"] == "IDLE"
    total = float(side_ops["self_us"].sum())
    return (
        100 * float(side_ops.loc[idle, "self_us"].sum()) / total
        if idle.any() and total > 0
        else None
    )


def _leaves(activity: Activity) -> pd.DataFrame:
    """The parts of ops whose numbers count: those of loops, branches and calls are of the ops that
    they run, which are there themselves.
    """
    parts, runs = activity.op_parts.frame(), activity.device_ops.frame()
    if parts.empty:
        # PyTorch's ops are of no compiled program.
        return parts
    part = runs["part"].to_numpy(np.int64)
    with_part = part >= 0
    around = (runs["end"] - runs["start"]).to_numpy(np.int64) > runs["own"].to_numpy(np.int64)
    outer = np.bincount(part[with_part & around], minlength=len(parts)) > 0
    has_time = np.bincount(part[with_part], minlength=len(parts)) > 0
    tpu = (activity.devices["kind"] == "TPU").any()
    return parts[has_time & ~outer] if tpu else parts[has_time]
