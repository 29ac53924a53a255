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
from nbprof.core.trace import TEXT, Int64s, Table, Trace
from nbprof.formats.msprof import notes
from nbprof.formats.msprof.tables import device_of, newest

_MARK = re.compile(
    r"(Iteration|FP_BP Time|Iteration Refresh|Reduce|Data_aug Bound|GetNext)(?:"
    r" |_)?(\d+)?(?:_(\d+))?\Z"
)
_MODEL = re.compile(r"Model ID:\s*(\d+)")
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
    """Moments of one iteration, ps since the begin of the trace."""

    start: int | None = None
    end: int | None = None
    forward: int | None = None
    backward: int | None = None
    length_us: float = np.nan
    refresh_us: float = np.nan
    forward_us: float = np.nan
    input_us: float = np.nan
    next_us: float = np.nan
    reduces: list[tuple[int, float]] = field(default_factory=list)


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
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    for device, marks in by_device.items():
        frame = _frame(marks, device, _Clock(*clock))
        if frame is not None:
            source = files[0].name + more
            result.append(Table("step_trace", device, rank, frame, [], source, [], host, clock[0]))
        elif marks:
            receipt.add(notes.iterations_off_timeline(printable(files[0].name) + more))
    return result


def _marks(events: object, device: int | None) -> Iterator[_Mark]:
    if not isinstance(events, list):
        return
    models: dict[tuple[object, object], int] = {}
    for event in events:
        if (
            isinstance(event, dict)
            and event.get("name") == "thread_name"
            and isinstance(event.get("args"), dict)
        ):
            match = _MODEL.search(str(event["args"].get("name", "")))
            if match:
                models[event.get("pid"), event.get("tid")] = int(match[1])
    for event in events:
        if not isinstance(event, dict):
            continue
        name = str(event.get("name", ""))
        if _MARK.match(name):
            args = event.get("args")
            model = models.get((event.get("pid"), event.get("tid")))
            yield _Mark(
                name,
                event.get("ts"),
                event.get("dur"),
                args if isinstance(args, dict) else {},
                model,
                device,
            )


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
        model = _MODEL.search(str(lanes["thread"].iat[lane]))
        label = re.search(r"\d+", str(lanes["labels"].iat[lane]))
        device = int(label[0]) if label else None
        args_of_mark = {name: values[row] for name, values in args.items() if row in values}
        # In ps already, which the type shows.
        start, length = int(events.start[row]), int(events.duration[row])
        mark = _Mark(
            str(trace.names[events.name[row]]),
            start,
            length,
            args_of_mark,
            int(model[1]) if model else None,
            device,
        )
        by_device.setdefault(device, []).append(mark)
    result = []
    epoch_ns = trace.epoch_ns
    for device, marks in by_device.items():
        frame = _frame(marks, device, _Clock(epoch_ns, picoseconds=True))
        if frame is not None:
            source = "the timeline"
            result.append(Table("step_trace", device, rank, frame, [], source, [], host, epoch_ns))
    return result


def _arg(trace: Trace, name: str) -> dict[int, object]:
    column = trace.args[name]
    numbers = column.floats()
    texts = (column.kinds == TEXT).tolist()
    values: Int64s = column.values
    result: dict[int, object] = {}
    for i, event in enumerate(column.event.tolist()):
        result[event] = trace.strings[values[i]] if texts[i] else float(numbers[i])
    return result


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


def _add_mark(iteration: _Iteration, kind: str, mark: _Mark, clock: _Clock) -> None:
    """Adds to an iteration what a mark of it states."""
    if clock.picoseconds and isinstance(mark.start, int):
        start: int | None = mark.start
    else:
        start = clock.moment(mark.start)
    written = _decimal(mark.length)
    length = np.nan
    if written is not None:
        length = float(written) / (1e6 if clock.picoseconds else 1)
    if kind == "Iteration":
        iteration.start, iteration.length_us = start, length
        iteration.forward = clock.moment(mark.args.get("FP Start"))
        iteration.backward = clock.moment(mark.args.get("BP End"))
        iteration.end = clock.moment(mark.args.get("Iteration End"))
        if iteration.end is None and start is not None and written is not None:
            iteration.end = start + int(written if clock.picoseconds else written * 1_000_000)
    elif kind == "FP_BP Time":
        iteration.forward_us = length
    elif kind == "Iteration Refresh":
        iteration.refresh_us = length
    elif kind == "GetNext":
        iteration.next_us = length
    elif kind == "Reduce":
        if start is not None and all(start != begin for begin, _ in iteration.reduces):
            iteration.reduces.append((start, length))
    elif kind == "Data_aug Bound":
        gap = _decimal(mark.args.get("Data_aug Bound(us)"))
        if gap is not None:
            iteration.input_us = float(gap)


def _frame(marks: Iterable[_Mark], device: int | None, clock: _Clock) -> pd.DataFrame | None:
    """The iterations of marks, a row each; None where none has an end."""
    iterations: dict[tuple[int | None, int], _Iteration] = {}
    for mark in marks:
        parts = _MARK.match(mark.name)
        if parts is None:
            continue
        ident = _integer(mark.args.get("Iteration ID"))
        if not ident:
            ident = int(parts[2]) if parts[2] else None
        if ident is not None:
            iteration = iterations.setdefault((mark.model, ident), _Iteration())
            _add_mark(iteration, parts[1], mark, clock)
    finished = [pair for pair in iterations.items() if pair[1].end is not None]
    if not finished:
        return None
    finished.sort(key=lambda pair: (pair[0][0] or 0, pair[0][1]))
    rows = [iteration for _, iteration in finished]
    columns: dict[str, Any] = {
        "device_id": _ints([device] * len(rows)),
        "iteration_id": _ints([ident for (_, ident), _ in finished]),
        "model_id": _ints([model for (model, _), _ in finished]),
        "iteration_start_ps": _ints([row.start for row in rows]),
        "fp_start_ps": _ints([row.forward for row in rows]),
        "bp_end_ps": _ints([row.backward for row in rows]),
        "iteration_end_ps": _ints([row.end for row in rows]),
        "iteration_us": [row.length_us for row in rows],
        "fp_to_bp_us": [row.forward_us for row in rows],
        "iteration_refresh_us": [row.refresh_us for row in rows],
        "data_aug_bound_us": [row.input_us for row in rows],
    }
    if any(not np.isnan(row.next_us) for row in rows):
        columns["get_next_us"] = [row.next_us for row in rows]
    for row in rows:
        row.reduces.sort()
    for k in range(max(len(row.reduces) for row in rows)):
        pairs = [row.reduces[k] if k < len(row.reduces) else (None, np.nan) for row in rows]
        columns[f"reduce_{k}_start_ps"] = _ints([start for start, _ in pairs])
        columns[f"reduce_{k}_us"] = [length for _, length in pairs]
    return pd.DataFrame(columns)


def _ints(values: Sequence[int | None]) -> pd.arrays.IntegerArray:
    none = np.array([v is None for v in values], np.bool_)
    return pd.arrays.IntegerArray(np.array([v or 0 for v in values], np.int64), none)


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
