"""GPU kernels by name, op and launch shape: the GPU kernel stats of TensorFlow Profiler."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import Activity

COLUMNS = [
    "rank",
    "kernel",
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "block",
    "grid",
    "occupancy_percent",
    "op_tensor_core_eligible",
    "uses_tensor_core",
    "op",
    "occurrences",
    "total_us",
    "avg_us",
    "min_us",
    "max_us",
]


def frame(activity: Activity) -> pd.DataFrame:
    """One row a kernel x op x launch shape, total time descending: the columns of `p.kernels.frame`.

    Occupancy is that of the first launch of the row; it is no part of the key.
    """
    kernels = activity.kernels
    if not len(kernels):
        return pd.DataFrame(columns=COLUMNS)
    keys = ["kernel", "op", "details", "eligible", "tensor_core"]
    whole_ns = kernels.assign(duration=kernels["duration"] // 1000)
    out = (
        whole_ns.groupby(keys, sort=False)
        .agg(
            occurrences=("duration", "size"),
            total=("duration", "sum"),
            min=("duration", "min"),
            max=("duration", "max"),
            occupancy=("occupancy", "first"),
        )
        .reset_index()
    )
    launches = [activity.launch_shapes[i] for i in out["details"].tolist()]
    table = pd.DataFrame(
        {
            "rank": 0,
            "kernel": activity.kernel_names.values[out["kernel"].to_numpy(np.int64)],
            **{k: _whole([d[k] for d in launches]) for k in ("registers", "static_shared_bytes", "dynamic_shared_bytes")},
            "block": [str(d["block"]) for d in launches],
            "grid": [str(d["grid"]) for d in launches],
            "occupancy_percent": out["occupancy"],
            "op_tensor_core_eligible": out["eligible"],
            "uses_tensor_core": out["tensor_core"],
            "op": activity.ops.values[out["op"].to_numpy(np.int64)],
            "occurrences": out["occurrences"],
            "total_us": out["total"] / 1000,
            "avg_us": (out["total"] // out["occurrences"]) / 1000,
            "min_us": out["min"] / 1000,
            "max_us": out["max"] / 1000,
        }
    )
    by = ["total_us", "kernel", "grid", "block", "registers", "op"]
    table = table.sort_values(by, ascending=[False, True, True, True, True, True], kind="stable", ignore_index=True)
    table["rank"] = np.arange(1, len(table) + 1)
    return table[COLUMNS]


def _whole(values: list[object]) -> pd.Series:
    return pd.Series(values, dtype="Int64")
