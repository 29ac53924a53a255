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
        op = self._links.op(event) if self._links else ""
        full = str(tracks.full[code])
        category = int(tracks.category[code])
        return {
            "slice": slices.ref(event),
            "full_name": full,
            "process": lane.process if lane else "",
            "thread": lane.name if lane else "",
            "self_ns": self._self_time(event) / 1000,
            "same": self._same(event),
            "parent": slices.ref_or_none(slices.step(event, "parent")),
            "op": op,
            "step": self._links.step(event) if self._links else "",
            "category": BY_KEY[CATEGORIES[category - 1]].label if category else "",
            "launch": self._launch(event),
            "stack": self._links.stack(event) if self._links else [],
            # Derived events have no args of their own.
            "args": args(self._run.trace, row) if part.first == 0 else [],
            "arrows": self._arrows(event),
            "row": (
                self._row(lane.kind if lane else "", str(tracks.names[code]), full, op)
                or (self._memory(row) if part.first == 0 else None)
            ),
        }

    def _same(self, event: int) -> dict[str, Any]:
        """Count, mean and median of the slices of the same name."""
        slices = self._slices
        same = slices.same(event)
        if not len(same):
            return {"count": 0, "mean_ns": 0.0, "median": None}
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
        return [
            {"kind": kind, "from": ref(start), "to": ref(finish)}
            for kind, start, finish in self._links.arrows(event)
        ]

    def _self_time(self, event: int) -> int:
        part, row = self._slices.part_and_row(event)
        inner = part.events.duration[self._slices.children(part, row)]
        return max(int(part.events.duration[row]) - int(inner.sum()), 0)

    def _launch(self, event: int) -> dict[str, Any] | None:
        launch = self._links.launch(event) if self._links else None
        if launch is None:
            return None
        return {"slice": self._slices.ref(launch[0]), "delay_ns": launch[1] / 1000}

    def _row(self, kind: str, short: str, full: str, op: str) -> dict[str, str] | None:
        """The row of the table that counts the slice, by the text in the table."""
        if kind not in ("device", "host"):
            return None
        # A host op of TensorFlow is recorded as "name:Type"; tables have its name.
        names = list(dict.fromkeys(text for text in (full, short, full.rpartition(":")[0]) if text))
        rows = self._tables()
        tab = "kernels" if kind == "device" else "input"
        for text in names:
            if text in rows[tab]:
                return {"tab": tab, "filter": text}
        for text in [*names, op]:
            if text in rows["ops"]:
                return {"tab": "ops", "filter": text}
        return None

    def _memory(self, event: int) -> dict[str, str] | None:
        """The row of the table of memory at the peak, for a call of an allocator with its op."""
        column = self._run.trace.args.get("tf_op")
        op = value_of(self._run.trace, column, event) if column is not None else None
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
            self._rows = {
                tab: frozenset(map(str, frame[column])) if len(frame) else frozenset()
                for tab, frame, column in frames
            }
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
    kind = column.kind if isinstance(column.kind, int) else int(column.kind[index])
    value = int(column.value[index])
    if kind == TEXT:
        return str(trace.strings[value])
    if kind == BYTES:
        return trace.blobs[value] if 0 <= value < len(trace.blobs) else b""
    if kind == DOUBLE:
        return float(np.int64(value).view(np.float64))
    return value % (1 << 64) if kind == UINT else value


def value_text(key: str, value: object) -> str:
    """A value as text, with the unit of its key."""
    if isinstance(value, bytes):
        more = f" … {len(value):,} bytes" if len(value) > _MOST_BYTES else ""
        return value[:_MOST_BYTES].hex(" ") + more
    if isinstance(value, int) and not isinstance(value, bool):
        if _BYTES.search(key):
            return f"{value:,} bytes"
        if match := _TIME.search(key):
            return f"{value:,} {_unit(match[1])}"
        return str(value)
    if isinstance(value, float):
        text = f"{value:.6g}"
        return f"{text} {_unit(match[1])}" if (match := _TIME.search(key)) else text
    text = str(value)
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}… ({len(text):,} characters)"


def _unit(unit: str) -> str:
    return {"us": "µs"}.get(unit.lower(), unit.lower())
