"""Parts of the program: lines of the notebook's cells, and ranges that the program names."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, rate, text, us

SCHEMA: dict[str, list[Col]] = {
    "lines.frame": [
        text("file", "File", "The cell, as `Cell [3]`, or the file.", "code"),
        count(
            "line",
            "Line",
            "Number of the line in the cell or file, from 1; for stacks that only name functions,"
            " the function's first line.",
        ),
        text("code", "Code", "The text of the line; None if not recorded.", "code"),
        count(
            "calls",
            "Times",
            "How often the line ran, or the function was called; NA if not recorded.",
            "Int64",
        ),
        us(
            "host_us",
            "Host µs",
            "Time in which the line ran, including everything it called except functions of cells,"
            " which have separate lines; without `--stacks` estimated from sampled stacks.",
        ),
        us(
            "device_us",
            "Device µs",
            "Time of the kernels, copies and fills that were launched while the line ran; NA"
            " without a device.",
        ),
        us(
            "program_us",
            "Program µs",
            "Self time of the ops of compiled XLA programs that were traced from this line, on"
            " devices or on threads of the CPU.",
        ),
    ],
    "ranges.frame": [
        text(
            "range",
            "Range",
            "Names of the range and of those around it, outermost first, parted by /.",
            "code",
        ),
        text(
            "name",
            "Name",
            "Name of the range; those that differ only in a number that counts up are one, with N"
            " in its place.",
            "code",
        ),
        count("depth", "Depth", "How many ranges are around it."),
        text(
            "kind",
            "Set by",
            "record_function, NVTX, ROCTx, TraceAnnotation, mstx, named_scope or name_scope;"
            " optimizer: the range that PyTorch itself sets around a step of an optimizer.",
        ),
        text(
            "thread",
            "Where",
            "main (the thread of the steps), other (other threads) or ops (scopes, which are in the"
            " names of ops).",
        ),
        rate(
            "calls_per_step",
            "per step",
            "Times / step",
            "How often it began per step; NA of scopes.",
        ),
        ms(
            "host_ms_per_step",
            "Host ms",
            "Time on the host per step, with ranges inside; of scopes self time of their ops on"
            " host threads.",
        ),
        ms("host_self_ms_per_step", "Host self ms", "The same without ranges inside."),
        percent(
            "percent",
            "% of step",
            "Host ms as a share of step time; ranges of other threads and of ops run beside each"
            " other.",
        ),
        ms(
            "wait_ms_per_step",
            "Waiting ms",
            "Host time in calls that wait for a device; NA if not recorded.",
        ),
        ms(
            "device_ms_per_step",
            "Device ms",
            "Time per step of kernels, copies and fills launched in it, summed over streams and"
            " devices; of scopes self time of their ops.",
        ),
        ms("device_self_ms_per_step", "Device self ms", "The same without ranges inside."),
        rate("kernels_per_step", "per step", "Kernels / step", "Kernels launched in it per step."),
        ms(
            "backward_host_ms_per_step",
            "Backward host ms",
            "Self time per step of host ops of the backward pass whose ops of the forward pass ran"
            " in the range; not a part of host ms.",
        ),
        ms(
            "backward_device_ms_per_step",
            "Backward device ms",
            "Device time per step of the backward pass of what ran in the range; not a part of"
            " device ms.",
        ),
        text("top_host_op", "Top host op", "Op with the most self time on the host in it.", "code"),
        ms(
            "top_host_op_ms_per_step",
            "Top host op ms",
            "Self time of that op in the range per step.",
        ),
        text("top_device_op", "Top device op", "Op with the most device time in it.", "code"),
        ms(
            "top_device_op_ms_per_step",
            "Top device op ms",
            "Device time of that op in the range per step.",
        ),
    ],
}
