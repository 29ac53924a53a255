"""Runs text as a recorded cell runs, with its loops rewritten, without a kernel or a framework."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from typing import Any

from nbprof.capture import loops
from nbprof.capture.loop_code import Cell, Text, rewritten
from nbprof.capture.loop_functions import Earlier
from nbprof.core.loop_times import Loop, LoopTimes


def path_of(stem: str) -> str:
    return f"/tmp/ipykernel_1/{stem}.py"


def run_plain(stem: str, text: str, names: dict[str, Any]) -> None:
    """A cell that is not recorded."""
    path = path_of(stem)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    names.setdefault("__name__", "__main__")
    exec(compile(text, path, "exec"), names)


def run_recorded(
    stem: str,
    text: str,
    names: dict[str, Any],
    then: Callable[[loops.Recorder], None] | None = None,
) -> LoopTimes | None:
    """A recorded one; `then` is called when it has ended or failed, before the recording ends."""
    loops.install()
    path = path_of(stem)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    names.setdefault("__name__", "__main__")
    cell = Cell(ast.parse(text), Text(text))
    changes = Earlier(cell, names, {path_of(str(number)): number for number in range(1, 10)}).plan()
    code = compile(rewritten(cell, functions=changes is not None), path, "exec")
    recorder = loops.Recorder()
    loops.functions.plan(changes or [])
    recorder.start()
    # An exception of the cell refers to its frames, and is kept by whoever catches it.
    run_recorded.taken = None
    try:
        exec(code, names)
    finally:
        snapshot = recorder.snapshot()
        if then is not None:
            then(recorder)
        recorder.stop()
        loops.functions.forget()
        run_recorded.taken = snapshot.times()
    return run_recorded.taken


def loop_at(times: LoopTimes | None, line: int) -> Loop:
    """The loop of a line."""
    assert times is not None
    (found,) = [loop for loop in times.loops if loop.line == line]
    return found


def counts(times: LoopTimes | None) -> dict[int, int | None]:
    """Iterations by line."""
    return {} if times is None else {loop.line: loop.count for loop in times.loops}
