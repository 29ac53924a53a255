"""The marks of iterations that Ascend's profilers write into JSON, as the table that newer versions
write as CSV.

An iteration of a graph: `Iteration n` from its begin to its end, `FP_BP Time n` from the first
forward op to the last backward one, `Iteration Refresh n` behind it, `Reduce_n_k` the k-th
all-reduce, `Data_aug Bound n` the wait for the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile, printable
from nbprof.core.receipt import Receipt
from nbprof.core.trace import TEXT, Table, Trace
from nbprof.core.units import join_some
from nbprof.formats.msprof import notes
from nbprof.formats.msprof.tables import device_of, newest

_MARK = re.compile(
    r"(Iteration|FP_BP Time|Iteration Refresh|Reduce|Data_aug Bound|GetNext)(?:"
    r" |_)?(\d+)?(?:_(\d+))?\Z"
)
_MODEL = re.compile(r"Model ID:\s*(\d+)")
_DIGITS = re.compile(r"(\d+)")
_MOST_BYTES = 1 << 28
# With room to add in int64.
_REACH_PS = 1 << 62
_ARGS = ("Iteration ID", "FP Start", "BP End", "Iteration End", "Data_aug Bound(us)")


@dataclass
class _Mark:
    """One event: its name, begin and length in µs as written, its args, and the model of its
    thread.
    """

    name: str
    start: object
    length: object
    args: dict[str, object]
    model: int | None
    device: int | None


@dataclass
class _Iteration:
    """One row of the table: moments are ps since the begin of the trace."""

    device_id: int | None
    iteration_id: int
    model_id: int | None
    iteration_start_ps: int | None = None
    fp_start_ps: int | None = None
    bp_end_ps: int | None = None
    iteration_end_ps: int | None = None
    iteration_us: float = np.nan
    fp_to_bp_us: float = np.nan
    iteration_refresh_us: float = np.nan
    data_aug_bound_us: float = np.nan
    get_next_us: float = np.nan
    reduces: list[tuple[int, float]] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """The columns by name."""
        columns = dict(vars(self))
        for k, (start, length) in enumerate(sorted(columns.pop("reduces"))):
            columns[f"reduce_{k}_start_ps"] = start
            columns[f"reduce_{k}_us"] = length
        return columns


def of_files(
    files: Sequence[SourceFile],
    host: int,
    rank: int | None,
    devices: Sequence[int],
    clock: tuple[int, int],
    receipt: Receipt,
) -> list[Table]:
    """The tables that files `step_trace_*.json` hold. `clock` is the begin of the trace in ns since
    1970, and what to add to theirs.
    """
    by_device: dict[int | None, list[_Mark]] = {}
    for file in newest(files)[0]:
        device = device_of(file)
        if device is None and len(devices) == 1:
            device = devices[0]
        if (file.size or 0) > _MOST_BYTES:
            receipt.add(notes.too_many_iterations(printable(file.name)))
            continue
        try:
            events = json.loads(bytes(file.read().data), parse_float=str)
        except (ReadError, ValueError, RecursionError):
            receipt.add(notes.damaged_iterations(printable(file.name)))
            continue
        by_device.setdefault(device, []).extend(_marks(events, device))
    result = []
    source = join_some([file.name for file in files], 1)
    for device, marks in by_device.items():
        frame = _frame(marks, device, _Clock(*clock))
        if frame is not None:
            result.append(Table("step_trace", device, rank, frame, [], source, [], host, clock[0]))
        elif marks:
            receipt.add(notes.iterations_off_timeline(printable(source)))
    return result


def _marks(events: object, device: int | None) -> Iterator[_Mark]:
    if not isinstance(events, list):
        return
    models: dict[tuple[object, object], int] = {}
    for event in map(_dict, events):
        if event.get("name") == "thread_name":
            match = _MODEL.search(str(_dict(event.get("args")).get("name", "")))
            if match:
                models[event.get("pid"), event.get("tid")] = int(match[1])
    for event in map(_dict, events):
        name = str(event.get("name", ""))
        if _MARK.match(name):
            model = models.get((event.get("pid"), event.get("tid")))
            args = _dict(event.get("args"))
            yield _Mark(name, event.get("ts"), event.get("dur"), args, model, device)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def of_trace(trace: Trace, host: int, rank: int | None) -> list[Table]:
    """The tables that the marks on the lanes of a timeline make."""
    events, lanes = trace.events, trace.lanes
    codes = np.flatnonzero([_MARK.match(str(name)) is not None for name in trace.names])
    on_host = (lanes["host"] == trace.hosts[host]).to_numpy(np.bool_)
    of_model = lanes["thread"].astype(str).str.contains("Model ID").to_numpy(np.bool_)
    rows = np.flatnonzero(np.isin(events.name, codes))
    if len(rows):
        rows = rows[(on_host & of_model)[events.lane[rows]]]
    by_device: dict[int | None, list[_Mark]] = {}
    args = {name: _arg(trace, name) for name in _ARGS if name in trace.args}
    for row in rows.tolist():
        lane = int(events.lane[row])
        model = _number(_MODEL, lanes["thread"].iat[lane])
        device = _number(_DIGITS, lanes["labels"].iat[lane])
        args_of_mark = {name: values[row] for name, values in args.items() if row in values}
        name = str(trace.names[events.name[row]])
        # In ps already, which the type shows.
        start, length = int(events.start[row]), int(events.duration[row])
        mark = _Mark(name, start, length, args_of_mark, model, device)
        by_device.setdefault(device, []).append(mark)
    result = []
    epoch_ns = trace.epoch_ns
    for device, marks in by_device.items():
        frame = _frame(marks, device, _Clock(epoch_ns, picoseconds=True))
        if frame is not None:
            source = "the timeline"
            result.append(Table("step_trace", device, rank, frame, [], source, [], host, epoch_ns))
    return result


def _number(pattern: re.Pattern[str], text: object) -> int | None:
    """The number in the first group of a pattern; None where the text does not match."""
    match = pattern.search(str(text))
    return int(match[1]) if match else None


def _arg(trace: Trace, name: str) -> dict[int, object]:
    """The values of an arg by event."""
    column = trace.args[name]
    values: list[object] = column.floats().tolist()
    for i in np.flatnonzero(column.kinds == TEXT).tolist():
        values[i] = trace.strings[column.values[i]]
    return dict(zip(column.event.tolist(), values, strict=True))


@dataclass
class _Clock:
    """The clock of marks.

    Attributes
    ----------
    epoch_ns : int
        The begin of the trace, ns since 1970.
    shift_ns : int
        Offset of the trace's clock from that of the marks.
    picoseconds : bool
        True if the begins and lengths of marks are ps of the trace already.
    """

    epoch_ns: int
    shift_ns: int = 0
    picoseconds: bool = False

    def moment(self, value: object) -> int | None:
        """A moment in µs, as written, in ps of the trace."""
        us = _decimal(value)
        if us is None or us <= 0:
            return None
        ps = int(us * 1_000_000) + (self.shift_ns - self.epoch_ns) * 1000
        return ps if abs(ps) < _REACH_PS else None

    def length(self, value: object) -> Decimal | None:
        """A length, as written, in ps."""
        length = _decimal(value)
        if length is None or self.picoseconds:
            return length
        return length * 1_000_000


def _add_mark(iteration: _Iteration, kind: str, mark: _Mark, clock: _Clock) -> None:
    """Adds to an iteration what a mark of it states."""
    start, length_ps = clock.moment(mark.start), clock.length(mark.length)
    if clock.picoseconds and isinstance(mark.start, int):
        start = mark.start
    length_us = np.nan
    if length_ps is not None:
        length_us = float(length_ps / 1_000_000)
    if kind == "Iteration":
        iteration.iteration_start_ps, iteration.iteration_us = start, length_us
        iteration.fp_start_ps = clock.moment(mark.args.get("FP Start"))
        iteration.bp_end_ps = clock.moment(mark.args.get("BP End"))
        iteration.iteration_end_ps = clock.moment(mark.args.get("Iteration End"))
        if iteration.iteration_end_ps is None and start is not None and length_ps is not None:
            iteration.iteration_end_ps = start + int(length_ps)
    elif kind == "FP_BP Time":
        iteration.fp_to_bp_us = length_us
    elif kind == "Iteration Refresh":
        iteration.iteration_refresh_us = length_us
    elif kind == "GetNext":
        iteration.get_next_us = length_us
    elif kind == "Reduce":
        if start is not None and start not in dict(iteration.reduces):
            iteration.reduces.append((start, length_us))
    elif kind == "Data_aug Bound":
        gap = _decimal(mark.args.get("Data_aug Bound(us)"))
        if gap is not None:
            iteration.data_aug_bound_us = float(gap)


def _frame(marks: Iterable[_Mark], device: int | None, clock: _Clock) -> pd.DataFrame | None:
    """The iterations of marks, a row each; None where none has an end."""
    iterations: dict[tuple[int | None, int], _Iteration] = {}
    for mark in marks:
        parts = _MARK.match(mark.name)
        if parts is None:
            continue
        ident = _integer(mark.args.get("Iteration ID")) or int(parts[2] or -1)
        if ident >= 0:
            iteration = _Iteration(device, ident, mark.model)
            iteration = iterations.setdefault((mark.model, ident), iteration)
            _add_mark(iteration, parts[1], mark, clock)
    rows = []
    for key in sorted(iterations, key=lambda key: (key[0] or 0, key[1])):
        if iterations[key].iteration_end_ps is not None:
            rows.append(iterations[key].row())
    if not rows:
        return None
    frame = pd.DataFrame(rows, dtype=object)
    for name in map(str, frame):
        frame[name] = frame[name].astype("float64" if name.endswith("_us") else "Int64")
    if frame["get_next_us"].isna().all():
        del frame["get_next_us"]
    return frame


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        result = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return result if result.is_finite() and abs(result) < 10**18 else None


def _integer(value: object) -> int | None:
    """A whole number of 31 bits; None for any other value."""
    number = _decimal(value)
    if number is None or not 0 <= number < 2**31 or number != int(number):
        return None
    return int(number)
