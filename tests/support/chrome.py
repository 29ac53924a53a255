"""Writes small Chrome traces for tests, in the layouts that profilers have, and says what the
standard library reads in them.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from nbprof.core.files import Buffer
from nbprof.core.trace import DOUBLE, TEXT, UINT, Trace
from nbprof.formats.chrome import chrome

EXTRAS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "args")


@dataclass(frozen=True)
class Memory:
    """A file of a run that is nowhere but here."""

    data: bytes
    name: str = "host.pt.trace.json"
    modified: float = 0.0

    @property
    def label(self) -> str:
        return f"/run/{self.name}"

    @property
    def size(self) -> int:
        return len(self.data)

    def head(self, count: int) -> bytes:
        return self.data[:count]

    def read(self) -> Buffer:
        return Buffer.of(self.data)


def read(data: bytes | str, name: str = "host.pt.trace.json", **options: Any) -> Trace:
    return chrome.read([Memory(data.encode() if isinstance(data, str) else data, name)], **options)


def complete(name: str = "op", ts: Any = 1, dur: Any = 1, **fields: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 7,
        "tid": 8,
        "ts": ts,
        "dur": dur,
        **fields,
    }


def document(*events: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {**facts, "traceEvents": list(events)}


def compact(*events: dict[str, Any], **facts: Any) -> str:
    """As TensorFlow and JAX write it."""
    return json.dumps(document(*events, **facts), separators=(",", ":"))


def kineto(*events: dict[str, Any], **facts: Any) -> str:
    """As PyTorch writes it: an event over some lines, times with three decimals."""

    def event(fields: dict[str, Any]) -> str:
        head = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items() if k != "args"]
        out = "  {\n    " + ", ".join(head)
        if "args" in fields:
            args = ",".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in fields["args"].items())
            out += ',\n    "args": {\n      ' + args + "\n    }"
        return out + "\n  }"

    facts = {"schemaVersion": 1, **facts}
    head = "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in facts.items())
    return (
        "{\n"
        + head
        + '  "traceEvents": [\n'
        + ",\n".join(event(e) for e in events)
        + '\n  ],\n  "traceName": "/tmp/t.json"\n}'
    )


def lane_name(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def picoseconds(value: Any) -> int:
    """Exactly, and to the nearest where digits go below a picosecond (halves up)."""
    scaled = (value if isinstance(value, Decimal) else Decimal(str(value))) * 10**6
    whole = int(scaled.to_integral_value(rounding="ROUND_FLOOR"))
    return whole + (scaled - whole >= Decimal("0.5"))


def arg_value(value: Any) -> Any:
    """An arg as JSON has it -> what a column holds."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else str(value)
    if isinstance(value, Decimal):
        return float(value)
    return value


def slices_of(trace: Trace) -> Counter[str]:
    """Every slice and instant with all that is known of it, as texts that can be counted."""
    columns: list[dict[str, Any]] = [{} for _ in range(len(trace.events))]
    for name, column in trace.args.items():
        assert (column.event[1:] > column.event[:-1]).all()
        rows = zip(
            *(
                each.tolist()
                for each in (column.event, column.kinds, column.values, column.floats())
            ),
            strict=True,
        )
        value: Any
        for event, kind, value, double in rows:
            if kind == TEXT:
                value = trace.strings[value]
            elif kind == DOUBLE:
                value = double
            elif kind == UINT:
                value = value % (1 << 64)
            columns[event][name] = value
    where = list(zip(trace.lanes["pid"].tolist(), trace.lanes["tid"].tolist(), strict=True))
    events = trace.events
    out: Counter[str] = Counter()
    for i, (lane, name, start, duration) in enumerate(
        zip(
            events.lane.tolist(),
            events.name.tolist(),
            events.start.tolist(),
            events.duration.tolist(),
            strict=True,
        )
    ):
        args = columns[i]
        args.pop("ph", None)
        out[
            repr(
                (
                    *where[lane],
                    trace.names[name],
                    start + trace.epoch_ns * 1000,
                    duration,
                    _plain(args),
                )
            )
        ] += 1
    return out


def expected_slices(text: str) -> Counter[str]:
    """The same from the standard library's JSON, for traces of complete events and instants without
    faults.
    """
    top = json.loads(text, parse_float=Decimal)
    events = top["traceEvents"] if isinstance(top, dict) else top
    base = int(top.get("baseTimeNanoseconds", 0)) * 1000 if isinstance(top, dict) else 0
    out: Counter[str] = Counter()
    for event in events:
        if event.get("ph") not in ("X", "i", "I", "R"):
            continue
        args = {k: v for k, v in event.items() if k not in EXTRAS} | (
            {"cat": event["cat"]} if event.get("cat") is not None else {}
        )
        args |= event.get("args") or {}
        out[
            repr(
                (
                    lane_name(event.get("pid")),
                    lane_name(event.get("tid")),
                    event.get("name", ""),
                    picoseconds(event["ts"]) + base,
                    picoseconds(event.get("dur", 0)) if event["ph"] == "X" else 0,
                    _plain({k: arg_value(v) for k, v in args.items() if v is not None}),
                )
            )
        ] += 1
    return out


def _plain(args: dict[str, Any]) -> list[tuple[str, str]]:
    """Args in one order, lists and objects as what they mean (the columns have their text)."""
    return [
        (key, _meant(value) if isinstance(value, str) and value[:1] in ("[", "{") else repr(value))
        for key, value in sorted(args.items())
    ]


# The shapes and types of an op are those of each of its calls.
@lru_cache(maxsize=1 << 16)
def _meant(text: str) -> str:
    with contextlib.suppress(ValueError):
        return repr(json.loads(text, parse_float=Decimal))
    return repr(text)


def packed(text: str | bytes) -> bytes:
    return gzip.compress(text.encode() if isinstance(text, str) else text, 1)
