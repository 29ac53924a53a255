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
from nbprof.core.trace import TEXT, Int64s, Receipt, Table, Trace
from nbprof.formats.msprof.tables import newest

_MARK = re.compile(
    r"(Iteration|FP_BP Time|Iteration Refresh|Reduce|Data_aug Bound|GetNext)(?:"
    r" |_)?(\d+)?(?:_(\d+))?\Z"
)
_MODEL = re.compile(r"Model ID:\s*(\d+)")
_DEVICE = re.compile(r"device_(\d{1,4})$")
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
        mark_lane = next(
            (
                int(m[1])
                for part in reversed(file.label.split("/")[:-1])
                if (m := _DEVICE.match(part))
            ),
            None,
        )
        device = devices[0] if mark_lane is None and len(devices) == 1 else mark_lane
        if (file.size or 0) > _MOST_BYTES:
            receipt.warn(
                f"{printable(file.name)} is too large for a list of iterations and was not read."
            )
            continue
        try:
            events = json.loads(bytes(file.read().data), parse_float=str)
        except (ReadError, ValueError, RecursionError):
            receipt.warn(f"{printable(file.name)} is damaged: its iterations are unknown.")
            continue
        by_device.setdefault(device, []).extend(_marks(events, device))
    result = []
    for device, marks in by_device.items():
        table = _table(
            marks,
            host,
            rank,
            device,
            clock,
            files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else ""),
        )
        if table is not None:
            result.append(table)
        elif marks:
            names = printable(files[0].name) + (
                f" and {len(files) - 1} more" if len(files) > 1 else ""
            )
            receipt.warn(
                f"{names}: none of its iterations ends near the timeline; they are unknown."
            )
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
        if isinstance(event, dict) and _MARK.match(name := str(event.get("name", ""))):
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
    in_lane = (lanes["host"] == trace.hosts[host]).to_numpy(np.bool_) & lanes["thread"].astype(
        str
    ).str.contains("Model ID").to_numpy(np.bool_)
    rows = np.flatnonzero(np.isin(events.name, codes))
    rows = rows[in_lane[events.lane[rows]]] if len(rows) else rows
    by_device: dict[int | None, list[_Mark]] = {}
    args = {name: _arg(trace, name) for name in _ARGS if name in trace.args}
    for row in rows.tolist():
        lane = int(events.lane[row])
        model, label = (
            _MODEL.search(str(lanes["thread"].iat[lane])),
            re.search(r"\d+", str(lanes["labels"].iat[lane])),
        )
        device = int(label[0]) if label else None
        stated_args = {name: values[row] for name, values in args.items() if row in values}
        # In ps already, which the type shows.
        start, length = int(events.start[row]), int(events.duration[row])
        mark = _Mark(
            str(trace.names[events.name[row]]),
            start,
            length,
            stated_args,
            int(model[1]) if model else None,
            device,
        )
        by_device.setdefault(device, []).append(mark)
    marks_ = []
    for device, marks in by_device.items():
        table = _table(
            marks, host, rank, device, (trace.epoch_ns, 0), "the timeline", picoseconds=True
        )
        if table is not None:
            marks_.append(table)
    return marks_


def _arg(trace: Trace, name: str) -> dict[int, object]:
    column = trace.args[name]
    numbers = column.floats()
    texts = (column.kinds == TEXT).tolist()
    values: Int64s = column.values
    return {
        event: trace.strings[values[i]] if texts[i] else float(numbers[i])
        for i, event in enumerate(column.event.tolist())
    }  # fmt: skip


def _table(
    marks: Iterable[_Mark],
    host: int,
    rank: int | None,
    device: int | None,
    clock: tuple[int, int],
    source: str,
    *,
    picoseconds: bool = False,
) -> Table | None:
    epoch_ns, shift_ns = clock
    iterations: dict[tuple[int | None, int], _Iteration] = {}

    def moment(value: object) -> int | None:
        us = _decimal(value)
        if us is None or us <= 0:
            return None
        ps = int(us * 1_000_000) + (shift_ns - epoch_ns) * 1000
        return ps if abs(ps) < _REACH_PS else None

    for mark in marks:
        parts = _MARK.match(mark.name)
        ident = _whole(mark.args.get("Iteration ID")) or (
            int(parts[2]) if parts and parts[2] else None
        )
        if parts is None or ident is None:
            continue
        iteration = iterations.setdefault((mark.model, ident), _Iteration())
        start = mark.start if picoseconds and isinstance(mark.start, int) else moment(mark.start)
        us = _decimal(mark.length)
        length = float(us) / (1e6 if picoseconds else 1) if us is not None else np.nan
        mark_kind = parts[1]
        if mark_kind == "Iteration":
            iteration.start, iteration.length_us = start, length
            iteration.forward, iteration.backward = (
                moment(mark.args.get("FP Start")),
                moment(mark.args.get("BP End")),
            )
            iteration.end = moment(mark.args.get("Iteration End"))
            if iteration.end is None and start is not None and us is not None:
                iteration.end = start + int(us if picoseconds else us * 1_000_000)
        elif mark_kind == "FP_BP Time":
            iteration.forward_us = length
        elif mark_kind == "Iteration Refresh":
            iteration.refresh_us = length
        elif mark_kind == "GetNext":
            iteration.next_us = length
        elif (
            mark_kind == "Reduce"
            and start is not None
            and all(start != other for other, _ in iteration.reduces)
        ):
            iteration.reduces.append((start, length))
        elif (
            mark_kind == "Data_aug Bound"
            and (gap := _decimal(mark.args.get("Data_aug Bound(us)"))) is not None
        ):
            iteration.input_us = float(gap)
    finished = (
        sorted(
            (key, iteration) for key, iteration in iterations.items() if iteration.end is not None
        )
        if all(k[0] is not None for k in iterations)
        else []
    )
    finished = finished or sorted(
        ((key, iteration) for key, iteration in iterations.items() if iteration.end is not None),
        key=lambda pair: (pair[0][0] or 0, pair[0][1]),
    )
    if not finished:
        return None
    columns: dict[str, Any] = {
        "device_id": _ints([device] * len(finished)),
        "iteration_id": _ints([ident for (_, ident), _ in finished]),
        "model_id": _ints([model for (model, _), _ in finished]),
        "iteration_start_ps": _ints([iteration.start for _, iteration in finished]),
        "fp_start_ps": _ints([iteration.forward for _, iteration in finished]),
        "bp_end_ps": _ints([iteration.backward for _, iteration in finished]),
        "iteration_end_ps": _ints([iteration.end for _, iteration in finished]),
        "iteration_us": [iteration.length_us for _, iteration in finished],
        "fp_to_bp_us": [iteration.forward_us for _, iteration in finished],
        "iteration_refresh_us": [iteration.refresh_us for _, iteration in finished],
        "data_aug_bound_us": [iteration.input_us for _, iteration in finished],
    }
    if any(not np.isnan(iteration.next_us) for _, iteration in finished):
        columns["get_next_us"] = [iteration.next_us for _, iteration in finished]
    for k in range(max(len(iteration.reduces) for _, iteration in finished)):
        pairs = [
            sorted(iteration.reduces)[k] if k < len(iteration.reduces) else (None, np.nan)
            for _, iteration in finished
        ]
        columns[f"reduce_{k}_start_ps"] = _ints([start for start, _ in pairs])
        columns[f"reduce_{k}_us"] = [length for _, length in pairs]
    return Table("step_trace", device, rank, pd.DataFrame(columns), [], source, [], host, epoch_ns)


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


def _whole(value: object) -> int | None:
    number = _decimal(value)
    return (
        int(number)
        if number is not None and 0 <= number < 2**31 and number == int(number)
        else None
    )
