"""The schema of the frames of the memory viewer, as nbprof/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.frames import Col


def _text(name: str, label: str, help: str, kind: str = "text") -> Col:
    return Col(name, "object", "", label, help, kind, None)


def _count(name: str, label: str, help: str) -> Col:
    return Col(name, "int64", "", label, help, "number", 0)


def _bytes(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    return Col(name, dtype, "bytes", label, help, "bytes", None)


SCHEMA: dict[str, list[Col]] = {
    "modules": [
        _text("module", "Module", "Name of the compiled program with its ident, as XProf writes it.", "code"),
        _count("program", "Program", "Ident of the program."),
        _text("host", "Host", "First machine that recorded it."),
        _count("hosts", "Hosts", "Machines that recorded the same program."),
        _count("instructions", "Instructions", "Instructions of all its computations."),
        _bytes("peak_bytes", "Peak", "Most that it holds at a time in the device's memory; missing where that is not known.", "Int64"),
        _bytes("peak_unpadded_bytes", "Without padding", "What the values alive at the peak would take without padding.", "Int64"),
        _bytes("total_bytes", "Allocated", "All memory that the compiler set aside for it, but that of single threads.", "Int64"),
        Col(
            "time_ms", "float64", "ms", "Device ms", "Time of its ops on devices, all together; missing where it is not known.", "number", 3
        ),
        _text("note", "Note", "Why its memory is not known; empty where it is."),
    ],
    "timeline": [
        _count("position", "Point", "Program point: events of the heap before it."),
        _text("instruction", "Instruction", "Instruction that the program is at; empty at the end.", "code"),
        _bytes("allocated_bytes", "Allocated", "Memory taken before the event."),
        _bytes("unpadded_bytes", "Without padding", "The same without padding; what lives throughout counts with its padding."),
    ],
    "at_peak": [
        _text("buffer", "Buffer", "Instruction whose value it holds, with the part of a tuple.", "code"),
        _text("category", "Category", "Parameter, Output, Constant, Thread-local or Temporary."),
        _bytes("size_bytes", "Size", "Memory that it takes."),
        _bytes("unpadded_bytes", "Unpadded", "What its value would take without padding."),
        Col("padding_ratio", "float64", "", "Expansion", "Size by unpadded size; missing where that is 0.", "number", 2),
        _text("shape", "Shape", "Element type, dimensions and layout with its tiles.", "code"),
        _text("framework_op", "Framework op", "Name that the framework gave the op, with its scopes.", "code"),
        _count("allocation", "Allocation", "Number of the allocation that it lies in; -1 where none is known."),
        _count("start", "From point", "Program point at which it is taken."),
        _count("end", "To point", "Program point at which it is given back; that one is not in it."),
        _text("opcode", "Opcode", "Opcode of the instruction."),
        _text("source", "Source", "File and line of the code that asked for it.", "code"),
        _count("buffer_id", "Buffer id", "Ident of the buffer in the compiler's plan; -1 where none is known."),
    ],
}
"""`p.memory_viewer.modules`, and `timeline` and `at_peak` of a module."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column.

    Raises
    ------
    KeyError
        No such frame or column.
    """
    for col in SCHEMA[frame]:
        if col.name == name:
            return col
    raise KeyError(f"frame {frame!r} has no column {name!r}; it has {', '.join(col.name for col in SCHEMA[frame])}")
