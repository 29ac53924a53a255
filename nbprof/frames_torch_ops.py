"""The schema of the frames about PyTorch's ops, as nbprof/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.frames import Col


def _text(name: str, label: str, help: str, kind: str = "text") -> Col:
    return Col(name, "object", "", label, help, kind, None)


def _us(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "us", label, help, "number", 1)


def _part(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "fraction", label, help, "percent", 1)


_CALLS = Col("calls", "int64", "", "Calls", "Runs on all threads of the host.", "number", 0)

SCHEMA: dict[str, list[Col]] = {
    "torch_ops": [
        _text("op", "Op", "Name of the op, annotation or runtime call.", "code"),
        _text("kind", "Kind", "op, annotation (record_function, ProfilerStep, optimizer), or runtime (a call into CUDA, HIP …)."),
        _CALLS,
        _us("host_self_us", "Host self µs", "Duration of all runs without what ran in them."),
        _us("host_total_us", "Host total µs", "Duration of all runs."),
        _us("host_avg_us", "Host avg µs", "Total time divided by calls."),
        _part("host_self_fraction", "Host self %", "Host self time as a part of that of all rows."),
        _us("device_self_us", "Device self µs", "Kernels, copies and fills that the op launched itself."),
        _us("device_total_us", "Device total µs", "Kernels, copies and fills that the op and those in it launched."),
        _us("device_avg_us", "Device avg µs", "Device total time divided by calls."),
        _part("device_self_fraction", "Device self %", "Device self time as a part of that of all rows."),
    ],
    "torch_modules": [
        _text("module", "Module", "The module and those around it, outermost first; the number tells instances of a class apart.", "code"),
        _text("name", "Name", "Class of the module with the number of the instance.", "code"),
        Col("depth", "int64", "", "Depth", "How many modules it was called in.", "number", 0),
        _CALLS,
        _us("host_total_us", "Forward host µs", "Duration of all calls of the module's forward pass."),
        _us("host_self_us", "Forward host self µs", "The same without the modules called in it."),
        _us("device_total_us", "Forward device µs", "Device work that was launched in its forward pass."),
        _us("device_self_us", "Forward device self µs", "The same without the modules called in it."),
        _us("backward_host_us", "Backward host µs", "Self time of the ops of the backward pass that belong to the module or to one in it."),
        _us("backward_device_us", "Backward device µs", "Device work that these ops launched."),
    ],
}
"""`p.torch_ops.frame` and `p.torch_ops.modules`."""

KEYS: list[Col] = [
    _text("input_shapes", "Input shapes", "Shapes of the tensors that the op was given; none where record_shapes was off.", "code"),
    _text(
        "call_stack",
        "Call stack",
        "Calls of Python around the op, innermost first; of the backward pass, around its forward op.",
        "code",
    ),
    _text("module", "Module", "The nn.Module in which the op, or the op of the forward pass that it belongs to, ran.", "code"),
]
"""Columns that `p.torch_ops.by(...)` adds."""
