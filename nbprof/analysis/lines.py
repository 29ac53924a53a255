"""Time by line of the person's code: of notebook cells as they ran, and of the code that XLA
programs were compiled from.

Each column divides a whole of its own, and counts each instant, kernel or op once. What belongs to
no line is `unattributed`, never spread.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core import nesting
from nbprof.core.cells import stem
from nbprof.core.line_times import LineTimes
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.environment import origin_ns
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.python import Python

Floats = npt.NDArray[np.float64]

PARTS = ("host_us", "device_us", "program_us")
Place = tuple[str, int]
"""A cell, by the stem of its file, or another file; and the line in it."""
_SOURCE = re.compile(r"(.+):(\d+)")
_SINGLE = frozenset({"decorator", "six", "threadpoolctl", "typing_extensions"})
"""Libraries of one file, which lie in no package."""
# "train.py(12): main", in which PyTorch leaves out the folders that Python imports from.
_CALL = re.compile(r"([^<(]+\.py)\((\d+)\): .*")
# Where Python keeps what it was installed with, and what was installed into it.
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3|^<")


@dataclass
class Lines:
    """Time by line.

    Attributes
    ----------
    frame : DataFrame
        `lines.frame`, the recorded cell first; its lines in order.
    unattributed : dict
        By column of `PARTS`, the µs that belong to no line; NaN where the whole is not known.
    source : dict
        The text of the cells, by what `file` calls them, the recorded one first.
    cut : bool
        Whether more lines ran than the recording keeps.
    sampled : bool
        Whether the host's time is an estimate from sampled stacks.
    """

    frame: pd.DataFrame
    unattributed: dict[str, float]
    source: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    sampled: bool = False


@dataclass
class _Ran:
    """Lines that ran, how often, and the µs of each on host and devices; behind the last what
    belongs to none.
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

    The host's is what passed while the line ran, the innermost one where a function of a cell is
    called by another. The device's is that of what was launched meanwhile, on any thread: autograd
    launches on one of its own. A program's is the self time of its ops by the line that the
    compiler noted, which is that of a jitted function, not of its call.

    Where it was not recorded which line ran when, sampled Python stacks estimate the host's time by
    line. Without these, PyTorch's stacks tell the function: its first line stands for all of it.

    Parameters
    ----------
    activity : Activity
    trace : Trace
        Its events.
    times : LineTimes, optional
        Which line ran when, where that was recorded.
    cells : dict
        Execution counts by the stem of a cell's file.
    python : Python, optional
        Python time from sampled stacks.
    """
    sampled = times is None and python is not None and bool(python.host_lines)
    if times is not None:
        ran = _of_times(activity, trace, times)
    elif python is not None and sampled:
        ran = _of_samples(python)
    else:
        ran = _of_stacks(activity, trace)
    programs = [(_person(source), self_ps) for source, self_ps in _program_ops(activity)]
    row = {
        line: i
        for i, line in enumerate(
            dict.fromkeys(
                [*ran.places, *sorted({line for line, _ in programs if line is not None})]
            )
        )
    }
    ran_lines, count = len(ran.places), len(row)
    if not count:
        return Lines(frames.empty("lines.frame"), dict.fromkeys(PARTS, np.nan))
    sums = {part: np.full(count + 1, np.nan) for part in PARTS}
    for part, values in (("host_us", ran.host), ("device_us", ran.device)):
        # Of the lines that are known by a program alone nothing else is known.
        sums[part][:ran_lines], sums[part][-1] = values[:-1], values[-1]
    if programs:
        row_of = np.array([count if line is None else row[line] for line, _ in programs], np.int64)
        sums["program_us"] = _divided(row_of, np.array([self_ps for _, self_ps in programs]), count)
    source = times.source if times is not None else {}
    if python is not None and sampled:
        source = python.samples.source
    texts = {cell: text.splitlines() for cell, text in source.items()}
    table = pd.DataFrame(
        {
            "file": [_name(cell, cells) for cell, _ in row],
            "line": [line for _, line in row],
            "code": [
                texts[cell][line - 1] if 0 < line <= len(texts.get(cell, ())) else None
                for cell, line in row
            ],
            "calls": pd.array([*ran.calls, *[None] * (count - ran_lines)], "Int64"),
            **{part: values[:-1] for part, values in sums.items()},
        }
    )
    # The cell that was recorded is the one that ran first.
    order = {cell: i for i, cell in enumerate(dict.fromkeys(cell for cell, _ in row))}
    by_cell = np.array([order[cell] for cell, _ in row], np.int64)
    table = table.iloc[np.lexsort((table["line"].to_numpy(np.int64), by_cell))].reset_index(
        drop=True
    )
    return Lines(
        table[frames.names("lines.frame")].astype(frames.dtypes("lines.frame")),
        {part: float(values[-1]) for part, values in sums.items()},
        {_name(cell, cells): source[cell] for cell in order if cell in source},
        times is not None and times.cut,
        sampled,
    )


def _of_samples(python: Python) -> _Ran:
    """By sampled stacks, which say nothing of devices, nor of how often a line was reached."""
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
        _divided(index[:-1], np.diff(times.at) * 1000, count),
        _launched(activity, trace, times, index, count),
    )


def _of_stacks(activity: Activity, trace: Trace) -> _Ran:
    """By PyTorch's stacks: of the backward pass by those of the forward ops that it belongs to."""
    stacks, ops = activity.torch_stacks, activity.torch_ops.frame()
    if stacks is None or not len(stacks.frame):
        return _Ran([], [], np.full(1, np.nan), np.full(1, np.nan))
    own_frames = [
        next((call for frame in str(text).split("\n") if (call := person_call(frame))), None)
        for text in stacks.frame.tolist()
    ]
    row = {
        line: i
        for i, line in enumerate(dict.fromkeys(line for line in own_frames if line is not None))
    }
    count = len(row)
    is_own = np.array([count if line is None else row[line] for line in own_frames], np.int64)
    # The nearest one outwards; what is above has a lower code. The last is that of no stack.
    inner = np.append(is_own, count)
    for code, above in enumerate(stacks.above.tolist()):
        if inner[code] == count and above >= 0:
            inner[code] = inner[above]
    host = np.full(count + 1, np.nan)
    calls: list[int | None] = [None] * count
    events, python = trace.events, activity.torch_calls.frame()
    if len(python):
        stack, duration = (
            python["stack"].to_numpy(np.int64),
            events.duration[python["event"].to_numpy(np.int64)],
        )
        # What a function of a library took is that of the line around it.
        alone = np.maximum(nesting.self_times(python["parent"].to_numpy(np.int32), duration), 0)
        row_of, lane = inner[stack], events.lane[python["event"].to_numpy(np.int64)]
        # Threads that only a library has are none of the person's.
        in_lanes = np.isin(lane, lane[row_of < count])
        host = _divided(row_of[in_lanes], alone[in_lanes], count)
        calls = np.bincount(is_own[stack], minlength=count + 1)[:count].tolist()
    device = np.full(count + 1, np.nan)
    if activity.has_device:
        forward, stack = ops["forward"].to_numpy(np.int64), ops["stack"].to_numpy(np.int64)
        stack_of = np.where(forward >= 0, stack[forward], stack)
        device = _divided(inner[stack_of], ops["device_own"].to_numpy(np.float64), count)
        device[-1] = events.duration[_work(activity)].sum() / 1e6 - device[:-1].sum()
    return _Ran(list(row), calls, host, device)


def _name(cell: str, cells: dict[str, int]) -> str:
    """`Cell [3]` for the stem of a cell whose number is known, `Cell` of another; a path as it
    is.
    """
    if not cell.isdigit():
        return cell
    return f"Cell [{cells[cell]}]" if cell in cells else "Cell"


def _person(source: str) -> Place | None:
    """The cell, by its stem, or the file, and the line that an op comes from; None of library code
    and where it is not known.
    """
    match = _SOURCE.fullmatch(source)
    if match is None or int(match[2]) < 1 or _LIBRARY.search(match[1]):
        return None
    return stem(match[1]) or match[1], int(match[2])


def person_call(frame: str) -> Place | None:
    """The same of a call in a stack. What has a folder lies in a package, which is taken for a
    library.
    """
    match = _CALL.fullmatch(frame)
    if match is None or _LIBRARY.search(match[1]):
        return None
    path, line = match[1], max(int(match[2]), 1)
    if cell := stem(path):
        return cell, line
    absolute = path.startswith(("/", "\\")) or path[1:2] == ":"
    name = path.removesuffix(".py")
    packaged = "/" in path or "\\" in path or name in sys.stdlib_module_names or name in _SINGLE
    return (path, line) if absolute or not packaged else None


def _divided(row: Int64s, duration_ps: Floats | Int64s, count: int) -> Floats:
    """µs by row; what is in row `count` belongs to none."""
    return np.bincount(row, np.asarray(duration_ps, np.float64), minlength=count + 1) / 1e6


def _program_ops(activity: Activity) -> list[tuple[str, float]]:
    """The line of code that each op of a compiled program comes from, as the compiler noted it, and
    its self time in ps.
    """
    lines: list[tuple[str, float]] = []
    for runs, parts in (
        (activity.device_ops.frame(), activity.op_parts.frame()),
        (activity.cpu_ops.frame(), activity.cpu_parts.frame()),
    ):
        part = runs["part"].to_numpy(np.int64)
        with_part = part >= 0
        self_ps = np.bincount(
            part[with_part], runs["own"].to_numpy(np.float64)[with_part], minlength=len(parts)
        )
        of_program = parts["hlo"].to_numpy(np.bool_)
        lines += [
            (str(parts["source"].iloc[i] or ""), float(self_ps[i]))
            for i in np.flatnonzero(of_program).tolist()
        ]
    return lines


def _launched(
    activity: Activity, trace: Trace, times: LineTimes, ran: Int64s, count: int
) -> Floats:
    """Time of device work by the line that ran when it was launched; NaN without a device, and
    where the trace has another clock.
    """
    events, changed = trace.events, times.at - origin_ns(trace)
    # In ns: the ps of a clock that began long before would pass 64 bits.
    if (
        not activity.has_device
        or changed[0] > events.end.max() // 1000
        or changed[-1] < events.start.min() // 1000
    ):
        return np.full(count + 1, np.nan)
    duration = events.duration
    launched = (
        activity.launches.take(activity.launches.target >= 0).frame().drop_duplicates("target")
    )
    event, target = launched["event"].to_numpy(np.int64), launched["target"].to_numpy(np.int64)
    # In the middle of the call, which holds though the clocks are some µs apart.
    moment = events.start[event] + duration[event] // 2
    index = np.searchsorted(changed * 1000, moment, side="right") - 1
    # Before the first change, and after the last, no line ran.
    row = np.where(index >= 0, ran[index], count)
    others_work = np.setdiff1d(_work(activity), target)
    return _divided(
        np.append(row, np.full(len(others_work), count)),
        duration[np.append(target, others_work)],
        count,
    )


def _work(activity: Activity) -> Int64s:
    """The events of kernels, copies and fills."""
    return np.unique(np.concatenate([activity.kernels.event, activity.transfers.event]))
