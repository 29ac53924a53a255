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
    """Details of slices.

    Parameters
    ----------
    run : Drawable
    slices : Slices
    links : Links, optional
        Without them nothing is said of ops, steps, stacks and launches.
    """

    def __init__(self, run: Drawable, slices: Slices, links: Links | None = None) -> None:
        self._run, self._slices, self._links = run, slices, links
        self._rows: dict[str, frozenset[str]] | None = None

    def info(self, event: int) -> dict[str, Any]:
        """A `SliceInfo`.

        Raises
        ------
        IndexError
            There is no such event.
        """
        slices, tracks = self._slices, self._slices.tracks
        part, row = slices.of(event)
        code, lane = int(part.events.name[row]), slices.lanes.get(int(part.events.lane[row]))
        same = slices.same(event)
        duration = slices.durations(same)
        op = self._links.op(event) if self._links else ""
        full = str(tracks.full[code])
        category = int(tracks.category[code])
        return {
            "slice": slices.ref(event),
            "full_name": full,
            "process": lane.process if lane else "",
            "thread": lane.name if lane else "",
            "self_ns": self._own(event) / 1000,
            "same": {
                "count": len(same),
                "mean_ns": float(duration.mean(dtype=np.float64)) / 1000 if len(same) else 0.0,
                # Of an even number the shorter of the two.
                "median": (
                    slices.ref(int(same[np.argsort(duration, kind="stable")[(len(same) - 1) // 2]]))
                    if len(same)
                    else None
                ),
            },
            "parent": slices.ref_or_none(slices.step(event, "parent")),
            "op": op,
            "step": self._links.step(event) if self._links else "",
            "category": BY_KEY[CATEGORIES[category - 1]].label if category else "",
            "launch": self._launch(event),
            "stack": self._links.stack(event) if self._links else [],
            # Derived events have no args of their own.
            "args": args(self._run.trace, row) if part.first == 0 else [],
            "arrows": (
                [
                    {"kind": k, "from": slices.ref(a), "to": slices.ref(b)}
                    for k, a, b in self._links.of(event)
                ]
                if self._links
                else []
            ),
            "row": (
                self._row(lane.kind if lane else "", str(tracks.names[code]), full, op)
                or (self._memory(row) if part.first == 0 else None)
            ),
        }

    def _own(self, event: int) -> int:
        part, row = self._slices.of(event)
        inner = part.events.duration[self._slices.children(part, row)]
        return max(int(part.events.duration[row]) - int(inner.sum()), 0)

    def _launch(self, event: int) -> dict[str, Any] | None:
        launch = self._links.launch(event) if self._links else None
        return (
            None
            if launch is None
            else {"slice": self._slices.ref(launch[0]), "delay_ns": launch[1] / 1000}
        )

    def _row(self, kind: str, short: str, full: str, op: str) -> dict[str, str] | None:
        """The row of a table that the slice is counted in, by the very text that the table has."""
        if kind not in ("device", "host"):
            return None
        # A host op of TensorFlow is recorded as "name:Type"; tables have its name.
        names = list(dict.fromkeys(text for text in (full, short, full.rpartition(":")[0]) if text))
        rows = self._tables()
        for tab in ("kernels",) if kind == "device" else ("input",):
            for text in names:
                if text in rows[tab]:
                    return {"tab": tab, "filter": text}
        for text in [*names, op]:
            if text in rows["ops"]:
                return {"tab": "ops", "filter": text}
        return None

    def _memory(self, event: int) -> dict[str, str] | None:
        """The row of what was in memory at the peak, for a call of an allocator that says which op
        called it.
        """
        column = self._run.trace.args.get("tf_op")
        op = value_of(self._run.trace, column, event) if column is not None else None
        return (
            {"tab": "memory", "filter": op}
            if isinstance(op, str) and op in self._tables()["memory"]
            else None
        )

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
# A key that tells its unit: "allocation_bytes", "bytes", "queued_ns". Those of the launch tell how
# many, not how long.
_BYTES = re.compile(
    r"(?:^|[_\s])(?:bytes|nbytes)(?:$|[_\s](?:reserved|allocated|available|accessed|in"
    r" use)$)|^(?:peak_)?bytes_in_use$",
    re.I,
)
_TIME = re.compile(r"(?:^|[_\s(])(ps|ns|us|ms)\)?$", re.I)


def args(trace: Trace, event: int) -> list[dict[str, str]]:
    """Key and value of each arg of an event, first those that are its own, then those that hold for
    its name.

    At most 200; values of more than 2,000 characters are cut. Where the key tells the unit, the
    value has it.
    """
    rows: list[dict[str, str]] = []
    for key in trace.args:
        if len(rows) >= MOST_ARGS:
            break
        value = value_of(trace, trace.args[key], event)
        if value is not None:
            rows.append({"key": key, "value": shown(key, value)})
    name = int(trace.events.name[event])
    keys = {arg["key"] for arg in rows}
    for key, values in trace.name_args.items():
        if len(rows) >= MOST_ARGS:
            break
        if name in values and key not in keys:
            rows.append({"key": key, "value": shown(key, values[name])})
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


def shown(key: str, value: object) -> str:
    """A value as text, with the unit that its key tells."""
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
