"""PyTorch's ops and modules."""

from __future__ import annotations

from nbprof.schema.columns import Col, part, text, us

_CALLS = Col("calls", "int64", "", "Calls", "Runs on all threads of the host.", "number", 0)

SCHEMA: dict[str, list[Col]] = {
    "torch_ops.frame": [
        text("op", "Op", "Name of the op, annotation or runtime call.", "code"),
        text("kind", "Kind", "op, annotation (record_function, ProfilerStep, optimizer), or runtime (a call into CUDA, HIP …)."),
        _CALLS,
        us("host_self_us", "Host self µs", "Duration of all runs without what ran in them."),
        us("host_total_us", "Host total µs", "Duration of all runs."),
        us("host_avg_us", "Host avg µs", "Total time divided by calls."),
        part("host_self_fraction", "Host self %", "Host self time as a part of that of all rows."),
        us("device_self_us", "Device self µs", "Kernels, copies and fills that the op launched itself."),
        us("device_total_us", "Device total µs", "Kernels, copies and fills that the op and those in it launched."),
        us("device_avg_us", "Device avg µs", "Device total time divided by calls."),
        part("device_self_fraction", "Device self %", "Device self time as a part of that of all rows."),
    ],
    "torch_ops.modules": [
        text("module", "Module", "The module and those around it, outermost first; the number tells instances of a class apart.", "code"),
        text("name", "Name", "Class of the module with the number of the instance.", "code"),
        Col("depth", "int64", "", "Depth", "How many modules it was called in.", "number", 0),
        _CALLS,
        us("host_total_us", "Forward host µs", "Duration of all calls of the module's forward pass."),
        us("host_self_us", "Forward host self µs", "The same without the modules called in it."),
        us("device_total_us", "Forward device µs", "Device work that was launched in its forward pass."),
        us("device_self_us", "Forward device self µs", "The same without the modules called in it."),
        us("backward_host_us", "Backward host µs", "Self time of the ops of the backward pass that belong to the module or to one in it."),
        us("backward_device_us", "Backward device µs", "Device work that these ops launched."),
    ],
}

KEYS: list[Col] = [
    text("input_shapes", "Input shapes", "Shapes of the tensors that the op was given; none where record_shapes was off.", "code"),
    text(
        "call_stack",
        "Call stack",
        "Calls of Python around the op, innermost first; of the backward pass, around its forward op.",
        "code",
    ),
    text("module", "Module", "The nn.Module in which the op, or the op of the forward pass that it belongs to, ran.", "code"),
]
"""Columns that `p.torch_ops.by(...)` adds."""
