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
    programs = [(_person(source), own) for source, own in _program_ops(activity)]
    row = {
        place: i
        for i, place in enumerate(
            dict.fromkeys(
                [*ran.places, *sorted({place for place, _ in programs if place is not None})]
            )
        )
    }
    known, count = len(ran.places), len(row)
    if not count:
        return Lines(frames.empty("lines.frame"), dict.fromkeys(PARTS, np.nan))
    sums = {part: np.full(count + 1, np.nan) for part in PARTS}
    for part, values in (("host_us", ran.host), ("device_us", ran.device)):
        # Of the lines that are known by a program alone nothing else is known.
        sums[part][:known], sums[part][-1] = values[:-1], values[-1]
    if programs:
        at = np.array([count if place is None else row[place] for place, _ in programs], np.int64)
        sums["program_us"] = _divided(at, np.array([own for _, own in programs]), count)
    source = times.source if times is not None else {}
    if python is not None and sampled:
        source = python.samples.source
    texts = {cell: text.splitlines() for cell, text in source.items()}
    out = pd.DataFrame(
        {
            "file": [_name(cell, cells) for cell, _ in row],
            "line": [line for _, line in row],
            "code": [
                texts[cell][line - 1] if 0 < line <= len(texts.get(cell, ())) else None
                for cell, line in row
            ],
            "calls": pd.array([*ran.calls, *[None] * (count - known)], "Int64"),
            **{part: values[:-1] for part, values in sums.items()},
        }
    )
    # The cell that was recorded is the one that ran first.
    order = {cell: i for i, cell in enumerate(dict.fromkeys(cell for cell, _ in row))}
    by_cell = np.array([order[cell] for cell, _ in row], np.int64)
    out = out.iloc[np.lexsort((out["line"].to_numpy(np.int64), by_cell))].reset_index(drop=True)
    return Lines(
        out[frames.names("lines.frame")].astype(frames.dtypes("lines.frame")),
        {part: float(values[-1]) for part, values in sums.items()},
        {_name(cell, cells): source[cell] for cell in order if cell in source},
        times is not None and times.cut,
        sampled,
    )


def _of_samples(python: Python) -> _Ran:
    """By sampled stacks, which say nothing of devices, nor of how often a line was reached."""
    found = python.host_lines
    host = np.array([*found.values(), max(python.cell_ns - sum(found.values()), 0.0)]) / 1e3
    return _Ran(list(found), [None] * len(found), host, np.full(len(found) + 1, np.nan))


def _of_times(activity: Activity, trace: Trace, times: LineTimes) -> _Ran:
    """By the changes of the line that were recorded."""
    count = len(times.lines)
    at = np.abs(times.line).astype(np.int64) - 1
    at[at < 0] = count
    reached = times.line[times.line > 0].astype(np.int64) - 1
    return _Ran(
        times.lines,
        np.bincount(reached, minlength=count).tolist(),
        _divided(at[:-1], np.diff(times.at) * 1000, count),
        _launched(activity, trace, times, at, count),
    )


def _of_stacks(activity: Activity, trace: Trace) -> _Ran:
    """By PyTorch's stacks: of the backward pass by those of the forward ops that it belongs to."""
    stacks, ops = activity.torch_stacks, activity.torch_ops.frame()
    if stacks is None or not len(stacks.frame):
        return _Ran([], [], np.full(1, np.nan), np.full(1, np.nan))
    own = [
        next((place for frame in str(said).split("\n") if (place := person_call(frame))), None)
        for said in stacks.frame.tolist()
    ]
    row = {
        place: i
        for i, place in enumerate(dict.fromkeys(place for place in own if place is not None))
    }
    count = len(row)
    is_own = np.array([count if place is None else row[place] for place in own], np.int64)
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
        kept = np.isin(lane, lane[row_of < count])
        host = _divided(row_of[kept], alone[kept], count)
        calls = np.bincount(is_own[stack], minlength=count + 1)[:count].tolist()
    device = np.full(count + 1, np.nan)
    if activity.has_device:
        forward, stack = ops["forward"].to_numpy(np.int64), ops["stack"].to_numpy(np.int64)
        of = np.where(forward >= 0, stack[forward], stack)
        device = _divided(inner[of], ops["device_own"].to_numpy(np.float64), count)
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
    found = _SOURCE.fullmatch(source)
    if found is None or int(found[2]) < 1 or _LIBRARY.search(found[1]):
        return None
    return stem(found[1]) or found[1], int(found[2])


def person_call(frame: str) -> Place | None:
    """The same of a call in a stack. What has a folder lies in a package, which is taken for a
    library.
    """
    found = _CALL.fullmatch(frame)
    if found is None or _LIBRARY.search(found[1]):
        return None
    path, line = found[1], max(int(found[2]), 1)
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
    out: list[tuple[str, float]] = []
    for runs, parts in (
        (activity.device_ops.frame(), activity.op_parts.frame()),
        (activity.cpu_ops.frame(), activity.cpu_parts.frame()),
    ):
        part = runs["part"].to_numpy(np.int64)
        known = part >= 0
        own = np.bincount(
            part[known], runs["own"].to_numpy(np.float64)[known], minlength=len(parts)
        )
        of_program = parts["hlo"].to_numpy(np.bool_)
        out += [
            (str(parts["source"].iloc[i] or ""), float(own[i]))
            for i in np.flatnonzero(of_program).tolist()
        ]
    return out


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
    at = np.searchsorted(changed * 1000, moment, side="right") - 1
    # Before the first change, and after the last, no line ran.
    row = np.where(at >= 0, ran[at], count)
    others = np.setdiff1d(_work(activity), target)
    return _divided(
        np.append(row, np.full(len(others), count)), duration[np.append(target, others)], count
    )


def _work(activity: Activity) -> Int64s:
    """The events of kernels, copies and fills."""
    return np.unique(np.concatenate([activity.kernels.event, activity.transfers.event]))
