"""Sampled Python stacks."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, size, text

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

_POOL = text("pool", "Pool", "Kind of the process pool, numbered where there are several.")

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
        ms(
            "user_code_ms",
            "Your code ms",
            "Time in which it was the innermost line of your code: its self time and that of the"
            " libraries it called; 0 for lines of libraries.",
        ),
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
    "python.pools": [
        _POOL,
        count("processes", "Processes", "The most worker processes that it had."),
        count(
            "sent",
            "Tasks",
            "Calls that were sent to its workers while the recording ran, those of a chunk each on"
            " its own.",
        ),
        count("timed", "Timed", "Calls whose time is known, alone or with their chunk."),
        ms("unfinished_ms", "Unfinished ms", "Time in which calls were sent and not yet complete."),
        percent(
            "busy_percent",
            "Busy",
            "Share of this time in which its processes ran tasks; NA unless all tasks were timed.",
        ),
        ms("longest_ms", "Longest ms", "Longest call that was timed on its own."),
    ],
    "python.tasks": [
        _POOL,
        text("function", "Function", "Function that ran in the workers.", "code"),
        text("where", "Where", "File and line at which its code begins.", "code"),
        count("calls", "Timed calls", "Calls that were timed on their own, in all workers."),
        ms("mean_ms", "ms / call", "Wall time of a call.", 3),
        ms("longest_ms", "Longest ms", "Longest call."),
        percent("percent", "% of tasks", "Share of the time of the pool's timed calls."),
        text(
            "inside",
            "Inside",
            "Line with at least half of the samples of the function, and its share; else empty.",
            "code",
        ),
    ],
    "python.workers": [
        _POOL,
        text("process", "Process", "ID of the worker process."),
        count(
            "tasks", "Tasks", "Calls that it ran and that were timed, alone or with their chunk."
        ),
        ms("busy_ms", "Busy ms", "Time in these."),
        percent(
            "busy_percent",
            "Busy",
            "Busy time, as a share of the time in which calls of the pool were unfinished; NA"
            " unless all tasks were timed.",
        ),
        ms("waiting_ms", "Waiting ms", "The rest of that time: it had no task."),
        ms("cpu_ms", "CPU ms", "CPU time of its main thread in its tasks."),
        size(
            "memory_bytes",
            "Memory",
            "Largest resident memory seen, pages that it shares with other processes included.",
            "Int64",
        ),
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
