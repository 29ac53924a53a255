"""All details of one slice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.core.trace import BYTES, DOUBLE, TEXT, UINT, ArgColumn, Trace
from nbprof.display.categories import BY_KEY
from nbprof.timeline.drawable import Drawable
from nbprof.timeline.links import kind_at
from nbprof.timeline.slices import Slices

if TYPE_CHECKING:
    from nbprof.timeline.links import Links


class Details:
    """The details of a slice: names, self time, args, arrows and its row in a table.

    Parameters
    ----------
    run : Drawable
    slices : Slices
    links : Links, optional
        Without them ops, steps, stacks and launches stay empty.
    """

    def __init__(self, run: Drawable, slices: Slices, links: Links | None = None) -> None:
        self._run, self._slices, self._links = run, slices, links
        self._rows: dict[str, frozenset[str]] | None = None

    def info(self, event: int) -> dict[str, Any]:
        """The `SliceInfo` of an event, with everything recorded of it.

        Raises
        ------
        IndexError
            The event does not exist.
        """
        slices, tracks = self._slices, self._slices.tracks
        part, row = slices.part_and_row(event)
        code, lane = int(part.events.name[row]), slices.lanes.get(int(part.events.lane[row]))
        process = thread = kind = ""
        if lane is not None:
            process, thread, kind = lane.process, lane.name, lane.kind
        op = step = category = ""
        frames: list[str] = []
        if self._links is not None:
            op, step = self._links.op(event), self._links.step(event)
            frames = self._links.stack(event)
        if tracks.category[code]:
            category = BY_KEY[CATEGORIES[tracks.category[code] - 1]].label
        full = str(tracks.full[code])
        table_row = self._row(kind, str(tracks.names[code]), full, op)
        event_args: list[dict[str, str]] = []
        if part.first == 0:
            event_args = args(self._run.trace, row)
            table_row = table_row or self._memory(row)
        else:
            derived = tracks.args.get(row, {})
            event_args = [{"key": key, "value": value} for key, value in derived.items()]
        return {
            "slice": slices.ref(event),
            "full_name": full,
            "process": process,
            "thread": thread,
            "self_ns": self._self_time(event) / 1000,
            "same": self._same(event),
            "parent": slices.ref_or_none(slices.step(event, "parent")),
            "op": op,
            "step": step,
            "category": category,
            "launch": self._launch(event),
            "stack": frames,
            "args": event_args,
            "arrows": self._arrows(event),
            "row": table_row,
        }

    def _same(self, event: int) -> dict[str, Any]:
        """Count, mean and median of the slices of the same name."""
        slices = self._slices
        same = slices.same(event)
        duration = slices.durations(same)
        # Of an even number the shorter of the two.
        middle = np.argsort(duration, kind="stable")[(len(same) - 1) // 2]
        return {
            "count": len(same),
            "mean_ns": float(duration.mean(dtype=np.float64)) / 1000,
            "median": slices.ref(int(same[middle])),
        }

    def _arrows(self, event: int) -> list[dict[str, Any]]:
        if self._links is None:
            return []
        ref = self._slices.ref
        result = []
        for kind, start, finish in self._links.arrows(event):
            result.append({"kind": kind, "from": ref(start), "to": ref(finish)})
        return result

    def _self_time(self, event: int) -> int:
        part, row = self._slices.part_and_row(event)
        inner = part.events.duration[self._slices.children(part, row)]
        return max(int(part.events.duration[row]) - int(inner.sum()), 0)

    def _launch(self, event: int) -> dict[str, Any] | None:
        if self._links is None:
            return None
        launch = self._links.launch(event)
        if launch is None:
            return None
        call, delay = launch
        return {"slice": self._slices.ref(call), "delay_ns": delay / 1000}

    def _row(self, kind: str, short: str, full: str, op: str) -> dict[str, str] | None:
        """The row of the table that counts the slice, by the text in the table."""
        if kind not in ("device", "host"):
            return None
        # A host op of TensorFlow is recorded as "name:Type"; tables have its name.
        names = list(filter(None, (full, short, full.rpartition(":")[0])))
        tab = {"device": "kernels", "host": "input"}[kind]
        candidates = [(tab, name) for name in names]
        candidates += [("ops", name) for name in [*names, op]]
        rows = self._tables()
        for tab, text in candidates:
            if text in rows[tab]:
                return {"tab": tab, "filter": text}
        return None

    def _memory(self, event: int) -> dict[str, str] | None:
        """The row of the table of memory at the peak, for a call of an allocator with its op."""
        column = self._run.trace.args.get("tf_op")
        if column is None:
            return None
        op = value_of(self._run.trace, column, event)
        if isinstance(op, str) and op in self._tables()["memory"]:
            return {"tab": "memory", "filter": op}
        return None

    def _tables(self) -> dict[str, frozenset[str]]:
        if self._rows is None:
            run = self._run
            frames: tuple[tuple[str, pd.DataFrame, str], ...] = (
                ("kernels", run.kernels, "kernel"),
                ("ops", run.ops, "op"),
                ("input", run.input_ops, "op"),
                ("memory", run.memory_peak, "op"),
            )
            self._rows = dict.fromkeys((tab for tab, _, _ in frames), frozenset())
            for tab, frame, column in frames:
                if len(frame):
                    self._rows[tab] = frozenset(map(str, frame[column]))
        return self._rows


MOST_VALUE = 2_000
MOST_ARGS = 200
_MOST_BYTES = 64
# Keys with a unit: "allocation_bytes", "bytes", "queued_ns".
_BYTES = re.compile(
    r"(?:^|[_\s])(?:bytes|nbytes)(?:$|[_\s](?:reserved|allocated|available|accessed|in"
    r" use)$)|^(?:peak_)?bytes_in_use$",
    re.I,
)
_TIME = re.compile(r"(?:^|[_\s(])(ps|ns|us|ms)\)?$", re.I)


def args(trace: Trace, event: int) -> list[dict[str, str]]:
    """Key and value of each arg of an event, its own first, then those of its name.

    At most 200; values of more than 2,000 characters are cut. The unit of a key is in the value.
    """
    rows: list[dict[str, str]] = []
    for key in trace.args:
        if len(rows) >= MOST_ARGS:
            break
        value = value_of(trace, trace.args[key], event)
        if value is not None:
            rows.append({"key": key, "value": value_text(key, value)})
    name = int(trace.events.name[event])
    keys = {arg["key"] for arg in rows}
    for key, values in trace.name_args.items():
        if len(rows) >= MOST_ARGS:
            break
        if name in values and key not in keys:
            rows.append({"key": key, "value": value_text(key, values[name])})
    return rows


def value_of(trace: Trace, column: ArgColumn, event: int) -> object:
    """The value of an event in a column of args: an int, float, str or bytes; None if it has
    none.
    """
    # A plain int would make numpy turn the whole column into int64 first.
    index = int(np.searchsorted(column.event, column.event.dtype.type(event)))
    if index >= len(column.event) or int(column.event[index]) != event:
        return None
    kind, value = kind_at(column, index), int(column.value[index])
    if kind == TEXT:
        return str(trace.strings[value])
    if kind == BYTES:
        if not 0 <= value < len(trace.blobs):
            return b""
        return trace.blobs[value]
    if kind == DOUBLE:
        return float(np.int64(value).view(np.float64))
    if kind == UINT:
        return value % (1 << 64)
    return value


def value_text(key: str, value: object) -> str:
    """A value as text, with the unit of its key."""
    if isinstance(value, bytes):
        text = value[:_MOST_BYTES].hex(" ")
        if len(value) > _MOST_BYTES:
            text += f" … {len(value):,} bytes"
        return text
    if isinstance(value, int) and not isinstance(value, bool):
        if _BYTES.search(key):
            return f"{value:,} bytes"
        unit = _unit(key)
        return f"{value:,}{unit}" if unit else str(value)
    if isinstance(value, float):
        return f"{value:.6g}{_unit(key)}"
    text = str(value)
    if len(text) > MOST_VALUE:
        return f"{text[:MOST_VALUE]}… ({len(text):,} characters)"
    return text


def _unit(key: str) -> str:
    """The unit of a time with a space before it; "" for other keys."""
    match = _TIME.search(key)
    if match is None:
        return ""
    unit = match[1].lower()
    return f" {unit.replace('us', 'µs')}"
