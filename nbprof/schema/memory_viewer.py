"""Memory of compiled programs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, size, text

SCHEMA: dict[str, list[Col]] = {
    "memory_viewer.modules": [
        text("module", "Module", "Name of the compiled program with its id, as in XProf.", "code"),
        count("program", "Program", "Id of the program."),
        text("host", "Host", "First machine that recorded the program."),
        count("hosts", "Hosts", "Machines that recorded the same program."),
        count(
            "instructions",
            "Instructions",
            "Instructions in all its computations; missing if unknown.",
            "Int64",
        ),
        size(
            "peak_bytes",
            "Peak",
            "Peak device memory use of the program; missing if unknown.",
            "Int64",
        ),
        size(
            "peak_unpadded_bytes",
            "Without padding",
            "Size of the buffers live at the peak, without padding.",
            "Int64",
        ),
        size(
            "argument_bytes",
            "Arguments",
            "Of the peak, arguments, with results that take their memory; the four parts add up to"
            " it.",
            "Int64",
        ),
        size("output_bytes", "Outputs", "Of the peak, results in memory of their own.", "Int64"),
        size("constant_bytes", "Constants", "Of the peak, constants.", "Int64"),
        size("temporary_bytes", "Temporaries", "Of the peak, temporary buffers.", "Int64"),
        size(
            "total_bytes",
            "Allocated",
            "Total size of the buffer allocations, excluding thread-local ones.",
            "Int64",
        ),
        size(
            "capacity_bytes",
            "Device memory",
            "Memory of a device, the smallest if they differ; missing if it is unknown, or less"
            " than the peak of a program that ran.",
            "Int64",
        ),
        size(
            "spare_bytes",
            "To spare",
            "Device memory minus the peak of this program alone; negative if it does not fit.",
            "Int64",
        ),
        count(
            "batch",
            "Batch",
            "First dimension of the arguments that seem to be the batch, per device; missing if"
            " unknown.",
            "Int64",
        ),
        count(
            "largest_batch",
            "Largest batch",
            "Largest multiple of the batch that is sure to fit, as far as the assumptions in"
            " `batch_note` hold; missing if unknown.",
            "Int64",
        ),
        text(
            "batch_note",
            "About the batch",
            "Assumptions behind the largest batch, or why there is none.",
        ),
        Col(
            "time_ms",
            "float64",
            "ms",
            "Device ms",
            "Total device time of its ops; missing if unknown.",
            "number",
            3,
        ),
        text("note", "Note", "Why its memory is unknown; empty if it is known."),
    ],
    "memory_viewer[module].timeline": [
        count("position", "Point", "Program point: number of heap events before it."),
        text("instruction", "Instruction", "Instruction at this point; empty at the end.", "code"),
        size("allocated_bytes", "Allocated", "Memory allocated before the event."),
        size(
            "unpadded_bytes",
            "Without padding",
            "The same without padding; buffers live throughout count with their padding.",
        ),
    ],
    "memory_viewer[module].at_peak": [
        text("buffer", "Buffer", "Instruction whose value it holds, with the tuple index.", "code"),
        text("category", "Category", "Parameter, Output, Constant, Thread-local or Temporary."),
        size("size_bytes", "Size", "Size of the buffer."),
        size("unpadded_bytes", "Unpadded", "Size of the value without padding."),
        Col(
            "padding_ratio",
            "float64",
            "",
            "Expansion",
            "Size divided by unpadded size; missing if that is 0.",
            "number",
            2,
        ),
        text("shape", "Shape", "Element type, dimensions and layout with tiles.", "code"),
        text("framework_op", "Framework op", "Framework name of the op, with its scopes.", "code"),
        count("allocation", "Allocation", "Number of the allocation it is in; -1 if unknown."),
        count("start", "From point", "Program point at which it is allocated."),
        count("end", "To point", "Program point at which it is freed (exclusive)."),
        text("opcode", "Opcode", "Opcode of the instruction."),
        text("source", "Source", "File and line of the code it comes from.", "code"),
        count(
            "buffer_id",
            "Buffer id",
            "Id of the buffer in the compiler's buffer assignment; -1 if unknown.",
        ),
    ],
}
