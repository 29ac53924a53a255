"""Sampled Python stacks."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, text

_FUNCTION = text(
    "function", "Function", "Qualified name; `<module>` for code outside of functions.", "code"
)
_FILE = text("file", "File", "The cell, as `Cell [3]`, or the file.", "code")
_LINE = count("line", "Line", "First line of the function.")
_MODULE = text(
    "module",
    "Module",
    "Top-level package; `__main__` for cells, the name of the file for other code.",
    "code",
)
_THREAD = text("thread", "Thread", "Name of the thread that spent most of the time there.", "code")
_SELF = ms(
    "self_ms",
    "Self ms",
    "Time in it and in C code that it called: wall time on the thread of the cell, CPU time on"
    " others.",
)
_TOTAL = ms(
    "total_ms",
    "Total ms",
    "The same, including the Python code that it called; recursive calls count once.",
)
_CPU = ms(
    "cpu_ms",
    "CPU ms",
    "CPU time within the self time; the thread waited for the rest. NA if not recorded.",
)
_PERCENT = percent("percent", "Self", "Share of the self time in all sampled time.")

SCHEMA: dict[str, list[Col]] = {
    "python.functions": [_FUNCTION, _FILE, _LINE, _MODULE, _THREAD, _SELF, _TOTAL, _CPU, _PERCENT],
    "python.lines": [
        _FILE,
        count("line", "Line", "Number of the line, from 1."),
        text("code", "Code", "Text of the line of a cell; None for other files.", "code"),
        _FUNCTION,
        text(
            "call",
            "Calls",
            "Function or operator that it called for most of its time, as `numpy.linalg.qr`; None"
            " where unknown.",
            "code",
        ),
        _THREAD,
        _SELF,
        _TOTAL,
        _CPU,
        _PERCENT,
    ],
    "python.modules": [_MODULE, _THREAD, _SELF, _TOTAL, _CPU, _PERCENT],
    "python.threads": [
        text(
            "thread", "Thread", "Name of the thread; that of the recorded cell comes first.", "code"
        ),
        count(
            "samples",
            "Samples",
            "Samples of the thread; for threads other than the cell's, only those taken while they"
            " ran.",
        ),
        ms("active_ms", "Active ms", "Wall time of these samples."),
        ms(
            "cpu_ms",
            "CPU ms",
            "CPU time of the thread, also outside of Python code; NA where it was not recorded.",
        ),
        percent("cpu_percent", "CPU", "CPU time divided by the length of the recording."),
    ],
    "python.tree": [
        count("parent", "Caller", "Row of the calling function; -1 for the outermost ones."),
        count("depth", "Depth", "Number of calling functions."),
        _FUNCTION,
        _FILE,
        _LINE,
        _SELF,
        _TOTAL,
        percent("percent", "Total", "Share of the total time in all sampled time."),
    ],
}
