"""Lines of the notebook's cells."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, text, us

SCHEMA: dict[str, list[Col]] = {
    "lines.frame": [
        text("file", "File", "The cell, as `Cell [3]`, or the file.", "code"),
        count(
            "line",
            "Line",
            "Number of the line in the cell or file, from 1; for stacks that only name functions, the function's first line.",
        ),
        text("code", "Code", "The text of the line; None if not recorded.", "code"),
        count("calls", "Times", "How often the line ran, or the function was called; NA if not recorded.", "Int64"),
        us(
            "host_us",
            "Host µs",
            "Time in which the line ran, including everything it called except functions of cells, which have separate lines; without "
            "`--stacks` estimated from sampled stacks.",
        ),
        us(
            "device_us",
            "Device µs",
            "Time of the kernels, copies and fills that were launched while the line ran; NA without a device.",
        ),
        us(
            "program_us",
            "Program µs",
            "Self time of the ops of compiled XLA programs that were traced from this line, on devices or on threads of the CPU.",
        ),
    ],
}
