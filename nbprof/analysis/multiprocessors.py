"""GPU utilization: time with a kernel running, and estimated SM efficiency."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core.factorize import unique_rows
from nbprof.core.runs import rows_by_code
from nbprof.core.trace import Int64s
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]
COLUMNS = frames.names("kernels.devices")


def frame(activity: Activity, steps: pd.DataFrame, starts: Int64s) -> pd.DataFrame:
    """One row per GPU that ran kernels: `p.kernels.devices`.

    The window is that of the steps of the GPU's host, from the start of the first to the end of the
    last; without steps from the first kernel's start to the last one's end. `utilization_percent`
    is the part of it in which a kernel ran. `sm_efficiency_percent` is the mean over it of min(1,
    sum of blocks per multiprocessor over the kernels that run): 100 when each multiprocessor has a
    block all the time. `occupancy_percent` weighs the occupancy of kernels by their time in the
    window. Source: the GPU summary of PyTorch's TensorBoard plugin, which cut what it showed at the
    same window.

    Parameters
    ----------
    activity : Activity
    steps : DataFrame
        The frame of steps, for `host`, `start_ms` and `step_time_ms`.
    starts : int64[events]
        Start of each event of the trace, ps.
    """
    kernels = activity.kernels.frame()
    if not len(kernels):
        return pd.DataFrame(columns=COLUMNS)
    start, duration = starts[kernels["event"].to_numpy()], kernels["duration"].to_numpy(np.int64)
    blocks = _blocks(activity, kernels)
    host, device = (kernels[key].to_numpy(np.int64) for key in ("host", "device"))
    occupancy, tensor = kernels["occupancy"].to_numpy(np.float64), kernels["tensor_core"].to_numpy()
    if len(activity.devices):
        names = activity.devices.set_index(["host", "device"])["name"].to_dict()
    else:
        names = {}
    rows = []
    first, code = unique_rows(host, device)
    of_device = rows_by_code(code)
    for number in np.lexsort((device[first], host[first])).tolist():
        launches = of_device[number]
        of_host, ordinal = int(host[launches[0]]), int(device[launches[0]])
        label = activity.hosts[of_host]
        low, high = _window(steps, label, start[launches], start[launches] + duration[launches])
        begin, end = (
            np.clip(start[launches], low, high),
            np.clip(start[launches] + duration[launches], low, high),
        )
        lasting = np.flatnonzero(end > begin)
        begin, end, launches = begin[lasting], end[lasting], launches[lasting]
        busy, working = sweep(begin, end, np.minimum(blocks[launches], 1))
        length = (end - begin).astype(np.float64)
        tells = tensor[launches] >= 0
        rows.append(
            {
                "host": label,
                "device": ordinal,
                "name": names.get((label, ordinal)),
                "window_ms": (high - low) / 1e9,
                "utilization_percent": _share(busy, high - low),
                "sm_efficiency_percent": _share(working, high - low),
                "occupancy_percent": _mean(occupancy[launches], length),
                "tensor_core_percent": 100
                * _mean((tensor[launches] == 1)[tells].astype(np.float64), length[tells]),
                "kernels": len(launches),
            }
        )
    return frames.typed("kernels.devices", pd.DataFrame(rows, columns=COLUMNS))


def sweep(start: Int64s, end: Int64s, weight: Floats) -> tuple[float, float]:
    """The time in which any of the spans ran, and the integral of min(1, sum of the weights of
    those that ran), NaN if one has none; in ps.
    """
    if not len(start):
        return 0.0, 0.0
    edges = np.concatenate([start, end])
    order = np.argsort(edges, kind="stable")
    gaps = np.diff(edges[order]).astype(np.float64)
    running = np.cumsum(np.repeat([1, -1], len(start))[order])[:-1]
    busy = float(gaps[running > 0].sum())
    if np.isnan(weight).any():
        return busy, np.nan
    level = np.cumsum(np.concatenate([weight, -weight])[order])[:-1]
    return busy, float((gaps * np.clip(level, 0, 1)).sum())


def _blocks(activity: Activity, kernels: pd.DataFrame) -> Floats:
    """Blocks of each launch by multiprocessor of its device; NaN where the grid or the device is
    not known.
    """
    count = np.full(len(activity.launch_shapes) + 1, np.nan)
    for i, shape in enumerate(activity.launch_shapes):
        sides = str(shape["grid"]).split(",")
        if len(sides) == 3 and all(side.strip().isdecimal() for side in sides):
            count[i] = np.prod([float(side) for side in sides])
    records = activity.devices[["host", "device", "cores"]].to_dict("records")
    cores = {
        (activity.hosts.index(row["host"]), row["device"]): row["cores"]
        for row in records
        if row["host"] in activity.hosts
    }
    host, device = kernels["host"].to_numpy(np.int64), kernels["device"].to_numpy(np.int64)
    on = np.full(len(kernels), np.nan)
    for (key, number), many in cores.items():
        on[(host == key) & (device == number)] = (
            float(many) if pd.notna(many) and many > 0 else np.nan
        )
    return np.asarray(count[kernels["details"].to_numpy(np.int64)] / on, np.float64)


def _window(steps: pd.DataFrame, host: str, start: Int64s, end: Int64s) -> tuple[int, int]:
    """Begin and end in ps of the steps of a host; of its kernels where it has none."""
    host_steps = steps[steps["host"] == host] if "host" in steps and len(steps) else steps
    if not len(host_steps):
        return int(start.min()), int(end.max())
    begin = host_steps["start_ms"].to_numpy(np.float64)
    return round(begin.min() * 1e9), round(
        (begin + host_steps["step_time_ms"].to_numpy(np.float64)).max() * 1e9
    )


def _share(part: float, total: float) -> float:
    return 100 * part / total if total > 0 else np.nan


def _mean(values: Floats, weights: Floats) -> float:
    """The mean of the values that are known, by weight."""
    is_known = ~np.isnan(values)
    total = float(weights[is_known].sum())
    if total:
        return float((values[is_known] * weights[is_known]).sum() / total)
    return np.nan
