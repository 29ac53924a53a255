"""Steps."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, size, text

_HOST = text("host", "Host", "Machine that recorded the row.")
CATEGORIES = [
    ms("device_compute_ms", "Device compute", "Kernels other than communication, on the device."),
    ms("device_to_device_ms", "Device to device", "Copies between devices or within one."),
    ms(
        "device_collectives_ms",
        "Device collectives",
        "Collective communication kernels (NCCL, RCCL).",
    ),
    ms(
        "host_compute_ms",
        "Host compute",
        "Ops on the host while nothing of higher priority runs; NA where no op of the host was"
        " recorded.",
    ),
    ms(
        "kernel_launch_ms",
        "Kernel launch",
        "The host prepares or launches kernels while the device is idle.",
    ),
    ms(
        "input_ms",
        "Input",
        "Waiting for the next batch, or copying it to the device; NA where nothing traced input.",
    ),
    ms("output_ms", "Output", "Copies from the device to the host."),
    ms(
        "compile_ms", "Compile", "XLA or JIT compilation; of PyTorch the capture of graphs as well."
    ),
    ms(
        "other_ms",
        "Other",
        "The rest of the step: no recorded op, launch or copy, or only a wait for the device.",
    ),
]

SCHEMA: dict[str, list[Col]] = {
    "steps.frame": [
        _HOST,
        count("step", "Step", "Step number, as counted by the framework."),
        text("name", "Name", "Name of the step marker."),
        ms("start_ms", "Start ms", "Start of the step, from the start of the profile."),
        ms("step_time_ms", "Step ms", "Duration of the step."),
        *CATEGORIES,
        Col(
            "kind",
            "object",
            "",
            "Kind",
            "Kind of step: train, test, predict, or the name given in the program.",
            "text",
            None,
        ),
        Col(
            "warmup",
            "bool",
            "",
            "Warm-up",
            "A leading step or the first of a second training, over 4 times the median of the"
            " following ones (of two to four steps: the first, over 4 times each other, or over"
            " twice each if the others are alike), or one of the first two iterations of a graph on"
            " an NPU: excluded from the averages.",
            "bool",
            None,
        ),
        Col(
            "cut",
            "bool",
            "",
            "Cut",
            "The recording lacks the start of the step or the end of its device work: excluded from"
            " the averages.",
            "bool",
            None,
        ),
        Col(
            "lost",
            "bool",
            "",
            "Lost work",
            "The recorder lost device work of the step, as launches without kernels show: excluded"
            " from the averages.",
            "bool",
            None,
        ),
        Col(
            "counted",
            "bool",
            "",
            "Counted",
            "Whether averages include the step: not warm-up, not cut off, without several times the"
            " batches of the others, of one kind (training, unless another takes 4 times as long).",
            "bool",
            None,
        ),
        ms("host_to_device_ms", "Copied in", "The part of Input spent copying data to the device."),
        ms(
            "waiting_ms",
            "Waiting",
            "The part of Other in which the host waits in a call for a device that runs nothing.",
        ),
    ],
    "steps.backlog": [
        _HOST,
        ms(
            "start_ms",
            "Start ms",
            "Start of the first such activity, from the start of the profile.",
        ),
        ms("time_ms", "Time ms", "From there to the end of the last one."),
        ms("busy_ms", "Busy ms", "Part of that in which a device ran some of it."),
        count("device_events", "Device events", "Kernels, copies and fills."),
        *(
            col
            for col in CATEGORIES
            if col.name not in ("host_compute_ms", "kernel_launch_ms", "compile_ms")
        ),
    ],
    "steps.clock": [
        count("step", "Step", "Number of the step in the cell, from 1, as steps ended."),
        text("kind", "Kind", "Kind of step: train, test, predict, or the name in the program."),
        Col("start_s", "float64", "s", "Start s", "From the start of the recording.", "number", 3),
        ms("duration_ms", "Duration ms", "Duration by the wall clock."),
        flag("recorded", "Recorded", "A profiler ran, started or stopped during the step."),
    ],
    "steps.bare": [
        text("category", "Category", "Step-time category, as of p.steps.summary."),
        ms("recorded_ms", "recorded", "Mean over the recorded steps."),
        ms(
            "bare_ms",
            "bare ms",
            "Without a profiler. The step is measured: the median of the steps that ran without it,"
            " or their mean where a few take much longer, recorded or not. What recording cost is"
            " taken from the host's categories, by the events recorded in each.",
        ),
        percent("bare_percent", "bare %", "Share of the bare step."),
        flag("estimated", "Estimated", "Time of the host, which follows from that difference."),
    ],
    "steps.summary": [
        text(
            "category",
            "Category",
            "Step-time category; each instant counts once. step_time is the full step.",
        ),
        ms("mean_ms", "mean", "Mean over the steps, warm-up excluded."),
        ms("sd_ms", "sd", "Sample standard deviation (n - 1)."),
        ms("median_ms", "median", "Median over the steps."),
        ms(
            "p95_ms",
            "p95",
            "95 % of the steps take no longer; of fewer than 20 steps it is the longest.",
        ),
        ms("min_ms", "min", "Shortest over the steps."),
        ms("max_ms", "max", "Longest over the steps."),
        percent(
            "percent", "%", "Share of the total time of the steps in the averages, on all hosts."
        ),
    ],
}

WHERE_KNOWN: dict[str, list[Col]] = {
    "steps.frame": [
        size("host_to_device_bytes", "Copied in", "Bytes copied to devices for the step."),
        size("device_to_host_bytes", "Copied out", "Bytes copied to the host for the step."),
        size(
            "device_to_device_bytes",
            "Copied across",
            "Bytes copied between devices or within one for the step.",
        ),
        count(
            "batches",
            "Batches",
            "How often the step asked DataLoaders for a batch; the call that finds a loader at its"
            " end counts.",
        ),
    ],
}
