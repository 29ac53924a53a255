"""Turns the Trace of a Perfetto file into the activity tables.

Slices in the categories of a framework that nbprof knows are read as that framework's, as those of
Chrome traces are; of all other traces the lanes, events and counters are shown, with the hardware
queues of GPUs as lanes of devices. Stages of work on these that the driver calls compute are
kernels (`InternedGpuRenderStageSpecification.RenderStageCategory` in Perfetto's
gpu_render_stage_event.proto); what it calls graphics, or nothing, is not known to be one.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import DeviceOps, Kernels, extents, located
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects import tensorcores
from nbprof.dialects.chrome import chrome
from nbprof.dialects.environment import environment
from nbprof.dialects.lookups import codes_by_name, host_of_lanes, names_that, text_of

_GPU = re.compile(r"GPU (-?\d+)\Z")
_STAGES = "This trace has GPU queue activity but does not identify kernels. See the trace view."


def interpret(trace: Trace) -> act.Activity:
    """The activity of one profile. Fills the kinds of `trace.lanes`."""
    activity = chrome.interpret(trace)
    if activity.framework.is_supported:
        return activity
    activity.environment = environment(trace)
    lanes = trace.lanes
    kinds, devices = lanes["kind"].tolist(), [-1] * len(lanes)
    for lane, gpu in enumerate(map(_GPU.match, lanes["labels"])):
        if gpu is not None:
            kinds[lane], devices[lane] = "device", int(gpu.group(1))
    lanes["kind"], lanes["device"] = kinds, devices
    used = lanes[(lanes["kind"] == "device") & (lanes["events"] > 0)]
    if len(used):
        activity.has_device = True
        activity.missing = {**activity.missing, "kernels": _STAGES}
        gpus = used[["host", "device"]].drop_duplicates().sort_values(["host", "device"])
        activity.devices = (
            gpus.assign(kind="GPU", name="GPU")
            .reindex(columns=act.DEVICES)
            .astype(object)
            .reset_index(drop=True)
        )
        activity.devices["device"] = pd.to_numeric(activity.devices["device"])
        rows = _compute(trace)
        if len(rows):
            _kernels(trace, rows, activity)
            del activity.missing["kernels"]
    return activity


def _compute(trace: Trace) -> Int64s:
    """Stages that the driver calls compute, ascending."""
    lanes = trace.lanes
    category = trace.text_arg("stage category")
    used = pd.unique(category)
    codes = used[names_that("compute".__eq__, trace.texts(used))]
    on_device = (lanes["kind"] == "device").to_numpy(np.bool_)[trace.events.lane]
    return np.flatnonzero(np.isin(category, codes) & on_device)


def _kernels(trace: Trace, rows: Int64s, activity: act.Activity) -> None:
    """Fills the tables of kernels, device ops (a kernel stands for its op) and extents."""
    events, lanes = trace.events, trace.lanes
    host = host_of_lanes(trace)[events.lane[rows]]
    device: Int32s = lanes["device"].to_numpy(np.int32)[events.lane[rows]]
    code = events.name[rows]
    kernel = codes_by_name(trace, code, activity.kernel_names.code)
    op = codes_by_name(trace, code, activity.ops.code)
    grid, block = trace.text_arg("grid")[rows], trace.text_arg("block")[rows]
    first, details = unique_rows(grid, block)
    none: dict[str, object] = dict.fromkeys(
        ("registers", "static_shared_bytes", "dynamic_shared_bytes")
    )
    activity.launch_shapes = []
    for row in first.tolist():
        sides = {"block": _sides(trace, block[row]), "grid": _sides(trace, grid[row])}
        activity.launch_shapes.append({**none, **sides})
    # Nothing says whose GPU it is, so the name does not tell whether a kernel uses Tensor Cores.
    duration = events.duration[rows]
    activity.kernels = Kernels(
        event=rows,
        host=host,
        device=device,
        duration=duration,
        kernel=kernel[code],
        op=activity.ops.code(""),
        details=details,
        eligible=tensorcores.UNKNOWN,
        tensor_core=tensorcores.UNKNOWN,
        occupancy=np.nan,
    )
    activity.device_ops = DeviceOps(
        **located(events, rows, host, device=device),
        op=op[code],
        type=activity.types.code("kernel"),
        eager=True,
        own=duration,
        part=op[code],
        tensor_core=-1,
    )
    activity.device_extents = extents(host, device, events.start[rows], events.end[rows])
    activity.traits = {*activity.traits, act.UNKNOWN_EAGER, act.UNKNOWN_PRECISION}


def _sides(trace: Trace, code: int) -> str:
    """`128,1,1` out of "[128, 1, 1]"; empty where none is stated."""
    return re.sub(r"[\[\] ]", "", text_of(trace.strings, code))
