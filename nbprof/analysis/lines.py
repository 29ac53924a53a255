"""Time by line of the person's code: of notebook cells as they ran, and of the code that XLA
programs were compiled from.

Each column divides a different total, and counts each instant, kernel or op once. Time of no line
is `unattributed`, never spread.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.table import positions
from nbprof.core import nesting
from nbprof.core.cells import stem
from nbprof.core.line_times import LineTimes
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.environment import origin_ns
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.python import Python
    from nbprof.core.callstacks import Stacks

Floats = npt.NDArray[np.float64]

PARTS = ("host_us", "device_us", "program_us")
Place = tuple[str, int]
"""A cell, by the stem of its file, or another file; and the line in it."""
_SOURCE = re.compile(r"(.+):(\d+)")
_SINGLE = frozenset({"decorator", "six", "threadpoolctl", "typing_extensions"})
"""Libraries of one file, which are in no package."""
# "train.py(12): main", in which PyTorch leaves out the folders that Python imports from.
_CALL = re.compile(r"([^<(]+\.py)\((\d+)\): .*")
# Folders of the standard library and of installed packages.
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3|^<")


@dataclass
class Lines:
    """Time by line.

    Attributes
    ----------
    frame : DataFrame
        `lines.frame`, the recorded cell first; its lines in order.
    unattributed : dict
        By column of `PARTS`, the µs of no line; NaN if the total is unknown.
    source : dict
        The text of the cells, by their name in `file`, the recorded one first.
    truncated : bool
        Whether more lines ran than the recording keeps.
    sampled : bool
        Whether the host's time is an estimate from sampled stacks.
    """

    frame: pd.DataFrame
    unattributed: dict[str, float]
    source: dict[str, str] = field(default_factory=dict)
    truncated: bool = False
    sampled: bool = False


@dataclass
class _Ran:
    """Lines that ran, how often, and the µs of each on host and devices; the last item is the time
    of no line.
    """

    places: list[Place]
    calls: Sequence[int | None]
    host: Floats
    device: Floats


def lines(
    activity: Activity,
    trace: Trace,
    times: LineTimes | None,
    cells: dict[str, int],
    python: Python | None = None,
) -> Lines:
    """Time by line of one recording.

    Host time of a line is the time while it ran, the innermost one if a function of a cell is
    called by another. Device time is that of work launched meanwhile, on any thread: autograd
    launches on a different one. Program time is the self time of ops by the line that the compiler
    noted, which is in a jitted function, not at its call.

    If line changes were not recorded, sampled Python stacks estimate the host's time by line.
    Without these, PyTorch's stacks name the function: its first line stands for all of it.

    Parameters
    ----------
    activity : Activity
    trace : Trace
        Its events.
    times : LineTimes, optional
        The line that ran at each moment, if that was recorded.
    cells : dict
        Execution counts by the stem of a cell's file.
    python : Python, optional
        Python time from sampled stacks.
    """
    source: dict[str, str] = {}
    sampled = False
    if times is not None:
        ran, source = _of_times(activity, trace, times), times.source
    elif python is not None and python.host_lines:
        sampled = True
        ran, source = _of_samples(python), python.samples.source
    else:
        ran = _of_stacks(activity, trace)
    programs = _program_lines(activity)
    program_lines = sorted({line for line, _ in programs if line is not None})
    row_of = _numbered([*ran.places, *program_lines])
    if not row_of:
        return Lines(frames.empty("lines.frame"), dict.fromkeys(PARTS, np.nan))
    sums = _sums(ran, programs, row_of)
    table = _table(ran, row_of, sums, source, cells)
    in_order = dict.fromkeys(cell for cell, _ in row_of if cell in source)
    return Lines(
        table,
        {part: float(values[-1]) for part, values in sums.items()},
        {_name(cell, cells): source[cell] for cell in in_order},
        times is not None and times.truncated,
        sampled,
    )


def _numbered(lines: Iterable[Place]) -> dict[Place, int]:
    """The row of each line, in the order of their first appearance."""
    return positions(dict.fromkeys(lines))


def _sums(
    ran: _Ran, programs: list[tuple[Place | None, float]], row_of: dict[Place, int]
) -> dict[str, Floats]:
    """By column of `PARTS`, the µs of each line and, last, of none."""
    count, ran_count = len(row_of), len(ran.places)
    sums = {part: np.full(count + 1, np.nan) for part in PARTS}
    for part, values in (("host_us", ran.host), ("device_us", ran.device)):
        # Of lines that only a program has, nothing else is known.
        sums[part][:ran_count], sums[part][-1] = values[:-1], values[-1]
    if programs:
        rows = [count if line is None else row_of[line] for line, _ in programs]
        self_ps = np.array([time for _, time in programs])
        sums["program_us"] = _divided(np.array(rows, np.int64), self_ps, count)
    return sums


def _table(
    ran: _Ran,
    row_of: dict[Place, int],
    sums: dict[str, Floats],
    source: dict[str, str],
    cells: dict[str, int],
) -> pd.DataFrame:
    texts = {cell: text.splitlines() for cell, text in source.items()}
    lines = list(row_of)
    code = []
    for cell, line in lines:
        text = texts.get(cell, [])
        code.append(text[line - 1] if 0 < line <= len(text) else None)
    table = pd.DataFrame(
        {
            "file": [_name(cell, cells) for cell, _ in lines],
            "line": [line for _, line in lines],
            "code": code,
            "calls": pd.array([*ran.calls, *[None] * (len(lines) - len(ran.places))], "Int64"),
            **{part: values[:-1] for part, values in sums.items()},
        }
    )
    # The recorded cell is the one that ran first.
    cell_codes, _ = pd.factorize(np.array([cell for cell, _ in lines], object))
    table = table.iloc[np.lexsort((table["line"].to_numpy(np.int64), cell_codes))]
    columns = frames.names("lines.frame")
    return table.reset_index(drop=True)[columns].astype(frames.dtypes("lines.frame"))


def _of_samples(python: Python) -> _Ran:
    """By sampled stacks, which contain neither device work nor how often a line was reached."""
    host_lines = python.host_lines
    host = (
        np.array([*host_lines.values(), max(python.cell_ns - sum(host_lines.values()), 0.0)]) / 1e3
    )
    return _Ran(
        list(host_lines), [None] * len(host_lines), host, np.full(len(host_lines) + 1, np.nan)
    )


def _of_times(activity: Activity, trace: Trace, times: LineTimes) -> _Ran:
    """By the changes of the line that were recorded."""
    count = len(times.lines)
    index = np.abs(times.line).astype(np.int64) - 1
    index[index < 0] = count
    reached = times.line[times.line > 0].astype(np.int64) - 1
    return _Ran(
        times.lines,
        np.bincount(reached, minlength=count).tolist(),
        _divided(index[:-1], np.diff(times.times) * 1000, count),
        _launched(activity, trace, times, index, count),
    )


def _of_stacks(activity: Activity, trace: Trace) -> _Ran:
    """By PyTorch's stacks: of the backward pass by those of the forward ops that it belongs to."""
    stacks, ops = activity.torch_stacks, activity.torch_ops
    if stacks is None or not len(stacks.frame):
        return _Ran([], [], np.full(1, np.nan), np.full(1, np.nan))
    lines = [_first_person_call(str(text)) for text in stacks.frame.tolist()]
    row_of = _numbered(line for line in lines if line is not None)
    count = len(row_of)
    rows = positions([*row_of, None])
    line_row = np.array([rows[line] for line in lines], np.int64)
    # The last one is that of no stack.
    inner = np.array([rows[line] for line in [*_outwards(lines, stacks), None]], np.int64)
    host = np.full(count + 1, np.nan)
    calls: list[int | None] = [None] * count
    events, python = trace.events, activity.torch_calls
    if len(python):
        row, duration = inner[python.stack], events.duration[python.event]
        # The time of a function of a library is that of the line around it.
        self_ps = np.maximum(nesting.self_times(python.parent.astype(np.int32), duration), 0)
        lane = events.lane[python.event]
        # Threads on which only libraries run are not the person's.
        used = np.isin(lane, lane[row < count])
        host = _divided(row[used], self_ps[used], count)
        calls = np.bincount(line_row[python.stack], minlength=count + 1)[:count].tolist()
    device = np.full(count + 1, np.nan)
    if activity.has_device:
        stack = np.where(ops.forward >= 0, ops.stack[ops.forward], ops.stack)
        device = _divided(inner[stack], ops.device_own.astype(np.float64), count)
        device[-1] = events.duration[_work(activity)].sum() / 1e6 - device[:-1].sum()
    return _Ran(list(row_of), calls, host, device)


def person_calls(stacks: Stacks) -> list[Place | None]:
    """By stack, its innermost call of the person's code; None without any."""
    return _outwards([_first_person_call(str(text)) for text in stacks.frame.tolist()], stacks)


def _outwards(calls: list[Place | None], stacks: Stacks) -> list[Place | None]:
    """By stack, the nearest call outwards that is not None; the frame above has a lower code."""
    nearest = [*calls]
    for code, above in enumerate(stacks.above.tolist()):
        if nearest[code] is None and above >= 0:
            nearest[code] = nearest[above]
    return nearest


def _first_person_call(frames_of_stack: str) -> Place | None:
    """The first line of the person's code in some frames of a stack; None without any."""
    for text in frames_of_stack.split("\n"):
        line = person_call(text)
        if line is not None:
            return line
    return None


def _name(cell: str, cells: dict[str, int]) -> str:
    """`Cell [3]` for the stem of a cell with a known number, `Cell` for others; or a path."""
    if not cell.isdigit():
        return cell
    return f"Cell [{cells[cell]}]" if cell in cells else "Cell"


def _person(source: str) -> Place | None:
    """The cell, by its stem, or the file, and the line that an op comes from; None for library code
    and if unknown.
    """
    match = _SOURCE.fullmatch(source)
    if match is None or int(match[2]) < 1 or _LIBRARY.search(match[1]):
        return None
    return stem(match[1]) or match[1], int(match[2])


def person_call(frame: str) -> Place | None:
    """The cell or file and the line of a call in a stack; None for library code.

    A file in a relative folder is in a package, which is taken for a library.
    """
    match = _CALL.fullmatch(frame)
    if match is None or _LIBRARY.search(match[1]):
        return None
    path, line = match[1], max(int(match[2]), 1)
    cell = stem(path)
    if cell:
        return cell, line
    if path.startswith(("/", "\\")) or path[1:2] == ":":
        return path, line
    name = path.removesuffix(".py")
    if "/" in path or "\\" in path or name in sys.stdlib_module_names or name in _SINGLE:
        return None
    return path, line


def _divided(row: Int64s, duration_ps: Floats | Int64s, count: int) -> Floats:
    """µs by row; row `count` is the time of none."""
    return np.bincount(row, np.asarray(duration_ps, np.float64), minlength=count + 1) / 1e6


def _program_lines(activity: Activity) -> list[tuple[Place | None, float]]:
    """The line of code that each op of a compiled program comes from, as the compiler noted it, and
    its self time in ps.
    """
    lines: list[tuple[Place | None, float]] = []
    for runs, parts in (
        (activity.device_ops, activity.op_parts),
        (activity.cpu_ops, activity.cpu_parts),
    ):
        with_part = runs.take(runs.part >= 0)
        self_ps = np.bincount(
            with_part.part, with_part.own.astype(np.float64), minlength=len(parts)
        )
        for row in np.flatnonzero(parts.hlo).tolist():
            lines.append((_person(str(parts.source[row] or "")), float(self_ps[row])))
    return lines


def _launched(
    activity: Activity, trace: Trace, times: LineTimes, ran: Int64s, count: int
) -> Floats:
    """Time of device work by the line that ran when it was launched; NaN without a device, or if
    the trace has another clock.
    """
    events, changed = trace.events, times.times - origin_ns(trace)
    # In ns: the ps of a clock that began long before would exceed 64 bits.
    if (
        not activity.has_device
        or changed[0] > events.end.max() // 1000
        or changed[-1] < events.start.min() // 1000
    ):
        return np.full(count + 1, np.nan)
    duration = events.duration
    launches = activity.launches.take(activity.launches.target >= 0)
    launches = launches.take(_first_of_each(launches.target))
    # In the middle of the call, which holds though the clocks are some µs apart.
    moment = events.start[launches.event] + duration[launches.event] // 2
    index = np.searchsorted(changed * 1000, moment, side="right") - 1
    # Before the first change, and after the last, no line ran.
    row = np.where(index >= 0, ran[index], count)
    without_launch = np.setdiff1d(_work(activity), launches.target)
    rows = np.append(row, np.full(len(without_launch), count))
    return _divided(rows, duration[np.append(launches.target, without_launch)], count)


def _first_of_each(values: Int64s) -> Int64s:
    """The first row of each value, in the order of the rows."""
    _, first = np.unique(values, return_index=True)
    return np.sort(first)


def _work(activity: Activity) -> Int64s:
    """The events of kernels, copies and fills."""
    return np.unique(np.concatenate([activity.kernels.event, activity.transfers.event]))
