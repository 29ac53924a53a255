"""Time by op as XProf 2.24 counts it, for comparing the two tools.

Differences from `analysis.ops`:

- Events of the host that only state the op that they served (allocator events, the driver's calls
  on AMD) are ops.
- On a device only those kernels count that state their op as files do today, and those of compiled
  programs that are in the file. The rest, all of files of TensorFlow 2.3/2.4, is idle.
- An op of a compiled program ran as often as its kernels did, so one of two kernels has its FLOPs
  and bytes twice. A matrix product by cuBLAS's older interface has none.
- An op that only begins a transfer, or finds it done, has a bandwidth: its bytes over its few
  nanoseconds.
- A side has 500 rows at most, the idle row among them.
- An op that is still open when an op around it ends (the two overlap partly, or end together) is
  left out.
- Unknown values are 0.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.ops import ops

MOST_ROWS = 500


def frames(activity: Activity) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ops without idle rows, and with them; empty for a file that XProf cannot read."""
    columns = ops.COLUMNS + ops.RATES
    if not activity.xprof:
        return pd.DataFrame(columns=columns), pd.DataFrame(columns=columns)
    device = activity.device_ops.frame()
    if len(device):
        device = device[activity.op_parts.xprof[device["part"].to_numpy(np.int64)]]
    host = pd.concat(
        [
            activity.host_ops.frame().assign(tagged=False),
            activity.tagged_calls.frame().assign(tagged=True),
        ],
        ignore_index=True,
    )
    # An event that is an op and names another one includes that one.
    host = host.iloc[np.lexsort((host["tagged"], host["event"]))].reset_index(drop=True)
    sides = ops.sides(
        activity, device, *ops.host_self_times(activity, host, as_xprof=True), as_xprof=True
    )
    sides[0].ops = _with_tensor_cores(activity, sides[0].ops)
    return _filled(ops.table(sides, with_idle=False, limit=MOST_ROWS)), _filled(
        ops.table(sides, with_idle=True, limit=MOST_ROWS)
    )


def _with_tensor_cores(activity: Activity, device: pd.DataFrame) -> pd.DataFrame:
    """The fraction of the kernels' time on Tensor Cores by XProf's rule."""
    kernels = activity.xprof_kernels.frame()
    if not len(kernels) or not len(device):
        return device
    op, time = kernels["op"].to_numpy(np.int64), kernels["duration"].to_numpy(np.int64)
    size = max(int(op.max()), int(device["code"].max())) + 1
    kernel_time = np.bincount(op, time, size)[device["code"]]
    on = np.bincount(op, np.where(kernels["tensor_core"] == 1, time, 0), size)[device["code"]]
    return device.assign(
        tensor_core_fraction=np.divide(
            on, kernel_time, out=np.zeros(len(device)), where=kernel_time > 0
        )
    )


def _filled(table: pd.DataFrame) -> pd.DataFrame:
    """The table with 0 for unknown values, as XProf has it."""
    numbers = [
        name
        for name in table.columns
        if name in ("avg_us", "avg_self_us", *ops.RATES) and name != "bound_by"
    ]
    table = table.assign(**{name: table[name].astype(np.float64).fillna(0.0) for name in numbers})
    if "bound_by" in table:
        table["bound_by"] = table["bound_by"].where(table["bound_by"] != "", "Unknown")
    return table
