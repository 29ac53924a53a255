"""What was recorded with an event, in the words of the producer."""

from __future__ import annotations

import re

import numpy as np

from nbprof.core.trace import BYTES, DOUBLE, TEXT, UINT, ArgColumn, Trace

MOST_VALUE = 2_000
MOST_ARGS = 200
_MOST_BYTES = 64
# A key that tells its unit: "allocation_bytes", "bytes", "queued_ns". Those of the launch tell how many, not how long.
_BYTES = re.compile(
    r"(?:^|[_\s])(?:bytes|nbytes)(?:$|[_\s](?:reserved|allocated|available|accessed|in use)$)|^(?:peak_)?bytes_in_use$", re.I
)
_TIME = re.compile(r"(?:^|[_\s(])(ps|ns|us|ms)\)?$", re.I)


def args(trace: Trace, event: int) -> list[dict[str, str]]:
    """Key and value of each arg of an event, first those that are its own, then those that hold for its name.

    At most 200; values of more than 2,000 characters are cut. Where the key tells the unit, the value has it.
    """
    out: list[dict[str, str]] = []
    for key in trace.args:
        if len(out) >= MOST_ARGS:
            break
        value = value_of(trace, trace.args[key], event)
        if value is not None:
            out.append({"key": key, "value": shown(key, value)})
    name = int(trace.events.name[event])
    own = {arg["key"] for arg in out}
    for key, values in trace.name_args.items():
        if len(out) >= MOST_ARGS:
            break
        if name in values and key not in own:
            out.append({"key": key, "value": shown(key, values[name])})
    return out


def value_of(trace: Trace, column: ArgColumn, event: int) -> object:
    """The value that an event has in a column of args: an int, float, str or bytes; None where it has none."""
    # A plain int would make numpy turn the whole column into int64 first.
    at = int(np.searchsorted(column.event, column.event.dtype.type(event)))
    if at >= len(column.event) or int(column.event[at]) != event:
        return None
    kind = column.kind if isinstance(column.kind, int) else int(column.kind[at])
    value = int(column.value[at])
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
