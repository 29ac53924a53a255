"""The schema of `p.kernels.devices`, as nbprof/schema/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.schema.columns import Col, percent

SCHEMA: dict[str, list[Col]] = {
    "kernel_devices": [
        Col("host", "object", "", "Host", "Machine that recorded the row.", "text", None),
        Col("device", "int64", "", "Device", "Ordinal of the GPU.", "number", 0),
        Col("name", "object", "", "Name", "What the GPU is called, where the file says.", "text", None),
        Col("window_ms", "float64", "ms", "Window ms", "From the begin of the first step to the end of the last.", "number", 2),
        percent("utilization_percent", "GPU use %", "Part of the window in which a kernel ran."),
        percent("sm_efficiency_percent", "SM eff. %", "Multiprocessors with a block to work on, mean over the window; an estimate."),
        percent("occupancy_percent", "Occup. %", "Recorded occupancy of the kernels in the window, weighted by time."),
        percent("tensor_core_percent", "TC %", "Time on TensorCores, of the kernels whose names tell."),
        Col("kernels", "int64", "", "Launches", "Kernels that ran in the window.", "number", 0),
    ]
}
"""`p.kernels.devices`."""
