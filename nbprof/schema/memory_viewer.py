"""Memory of compiled programs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, size, text

SCHEMA: dict[str, list[Col]] = {
    "memory_viewer.modules": [
        text("module", "Module", "Name of the compiled program with its ident, as XProf writes it.", "code"),
        count("program", "Program", "Ident of the program."),
        text("host", "Host", "First machine that recorded it."),
        count("hosts", "Hosts", "Machines that recorded the same program."),
        count("instructions", "Instructions", "Instructions of all its computations."),
        size("peak_bytes", "Peak", "Most that it holds at a time in the device's memory; missing where that is not known.", "Int64"),
        size("peak_unpadded_bytes", "Without padding", "What the values alive at the peak would take without padding.", "Int64"),
        size("total_bytes", "Allocated", "All memory that the compiler set aside for it, but that of single threads.", "Int64"),
        Col(
            "time_ms", "float64", "ms", "Device ms", "Time of its ops on devices, all together; missing where it is not known.", "number", 3
        ),
        text("note", "Note", "Why its memory is not known; empty where it is."),
    ],
    "memory_viewer[module].timeline": [
        count("position", "Point", "Program point: events of the heap before it."),
        text("instruction", "Instruction", "Instruction that the program is at; empty at the end.", "code"),
        size("allocated_bytes", "Allocated", "Memory taken before the event."),
        size("unpadded_bytes", "Without padding", "The same without padding; what lives throughout counts with its padding."),
    ],
    "memory_viewer[module].at_peak": [
        text("buffer", "Buffer", "Instruction whose value it holds, with the part of a tuple.", "code"),
        text("category", "Category", "Parameter, Output, Constant, Thread-local or Temporary."),
        size("size_bytes", "Size", "Memory that it takes."),
        size("unpadded_bytes", "Unpadded", "What its value would take without padding."),
        Col("padding_ratio", "float64", "", "Expansion", "Size by unpadded size; missing where that is 0.", "number", 2),
        text("shape", "Shape", "Element type, dimensions and layout with its tiles.", "code"),
        text("framework_op", "Framework op", "Name that the framework gave the op, with its scopes.", "code"),
        count("allocation", "Allocation", "Number of the allocation that it lies in; -1 where none is known."),
        count("start", "From point", "Program point at which it is taken."),
        count("end", "To point", "Program point at which it is given back; that one is not in it."),
        text("opcode", "Opcode", "Opcode of the instruction."),
        text("source", "Source", "File and line of the code that asked for it.", "code"),
        count("buffer_id", "Buffer id", "Ident of the buffer in the compiler's plan; -1 where none is known."),
    ],
}
