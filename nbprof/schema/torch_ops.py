"""PyTorch's ops and modules."""

from __future__ import annotations

from nbprof.schema.columns import Col, part, text, us

_CALLS = Col("calls", "int64", "", "Calls", "Number of calls, on all host threads.", "number", 0)

SCHEMA: dict[str, list[Col]] = {
    "torch_ops.frame": [
        text("op", "Op", "Name of the op, annotation or runtime call.", "code"),
        text(
            "kind",
            "Kind",
            "op, annotation (record_function, ProfilerStep, optimizer), or runtime (a call into"
            " CUDA, HIP …).",
        ),
        _CALLS,
        us("host_self_us", "Host self µs", "Total duration, excluding nested ops and calls."),
        us("host_total_us", "Host total µs", "Total duration."),
        us("host_avg_us", "Host avg µs", "Total time divided by calls."),
        part("host_self_fraction", "Host self %", "Share of the host self time of all rows."),
        us(
            "device_self_us",
            "Device self µs",
            "Time of the kernels, copies and fills that the op itself launched; NA where no ops"
            " were recorded.",
        ),
        us(
            "device_total_us",
            "Device total µs",
            "Time of the kernels, copies and fills that the op and its nested ops launched.",
        ),
        us("device_avg_us", "Device avg µs", "Device total time divided by calls."),
        part("device_self_fraction", "Device self %", "Share of the device self time of all rows."),
    ],
    "torch_ops.modules": [
        text(
            "module",
            "Module",
            "The module and its parents, outermost first; the number distinguishes instances of a"
            " class.",
            "code",
        ),
        text("name", "Name", "Class of the module, with the instance number.", "code"),
        Col("depth", "int64", "", "Depth", "Nesting depth: number of parent modules.", "number", 0),
        _CALLS,
        us("host_total_us", "Forward host µs", "Total duration of the module's forward calls."),
        us("host_self_us", "Forward host self µs", "The same, excluding nested modules."),
        us(
            "device_total_us", "Forward device µs", "Device time of what its forward pass launched."
        ),
        us("device_self_us", "Forward device self µs", "The same, excluding nested modules."),
        us(
            "backward_host_us",
            "Backward host µs",
            "Self time of the backward ops of the module and its nested modules.",
        ),
        us("backward_device_us", "Backward device µs", "Device time of what these ops launched."),
    ],
}

KEYS: list[Col] = [
    text(
        "input_shapes",
        "Input shapes",
        "Shapes of the op's input tensors; empty without record_shapes.",
        "code",
    ),
    text(
        "call_stack",
        "Call stack",
        "Python call stack of the op, innermost first; for backward ops, that of the forward op.",
        "code",
    ),
    text(
        "module",
        "Module",
        "The nn.Module in which the op ran; for backward ops, its forward op.",
        "code",
    ),
    text(
        "source",
        "Source",
        "Lines of code outside of PyTorch that called the op; for backward ops, its forward op.",
        "code",
    ),
    text(
        "aten_ops",
        "ATen ops",
        "Source ops of a torch.compile kernel, if inductor's provenance files are next to the"
        " trace.",
        "code",
    ),
]
"""Columns that `p.torch_ops.by(...)` adds."""
