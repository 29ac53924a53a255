"""Coverage-guided fuzzing of the reader of Chrome traces: only `ReadError` may come out, and JSON
is read as JSON.

Run it, outside of the test suite, with as many seconds as there are:

    pip install atheris
    PYTHONPATH=. python tests/fuzz/chrome.py -max_total_time=3600 -max_len=4096 corpus/

What it finds is kept as a small test in `tests/formats/test_chrome_damage.py`.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["nbprof.formats"]):
    from nbprof.core.errors import ReadError
    from nbprof.formats.chrome import chrome
    from nbprof.formats.chrome import document as chrome_document

from tests.support.chrome import Memory, compact, complete, kineto, packed

# Small stretches, so that short inputs reach the seams between them.
chrome_document.STRETCH = 200


def one(data: bytes) -> None:
    """Reads one input; looks at all of the trace that comes out."""
    try:
        trace = chrome.read([Memory(data)], limit_bytes=1 << 24)
    except ReadError as error:
        assert error.path.startswith("/run/")  # noqa: PT017
        return
    events = trace.events
    assert (events.duration >= 0).all()
    assert len(events) == 0 or (events.start.min() >= 0 and events.lane.max() < len(trace.lanes))
    for column in trace.args.values():
        column.floats()
        assert (column.event[1:] > column.event[:-1]).all()
    str(trace.receipt)
    try:
        top = json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError):
        return
    made = top.get("traceEvents") if isinstance(top, dict) else top
    if not isinstance(made, list) or (isinstance(top, dict) and data.count(b"traceEvents") != 1):
        return
    slices = sum(isinstance(e, dict) and e.get("ph") == "X" for e in made)
    marks = sum(isinstance(e, dict) and e.get("ph") in ("i", "I", "R") for e in made)
    others = sum(
        isinstance(e, dict) and e.get("ph") in ("B", "b", "S", "n", "T", "p") for e in made
    )
    # Whatever is JSON is read whole: each slice is there, or counted.
    told = (
        len(events)
        + trace.receipt.dropped
        + sum("Trace-wide marks" in n.text for n in trace.receipt.entries) * marks
    )
    assert told >= slices + marks + others, (len(events), slices, marks, others, trace.receipt)


def seeds(folder: Path) -> None:
    """Writes inputs to begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    events = [
        complete("a", 5.125, 1, args={"External id": 1, "d": [[1], []], "f": 0.5, "t": "x"}),
        {"ph": "B", "name": "b", "pid": 1, "tid": 2, "ts": 1},
        {"ph": "E", "pid": 1, "tid": 2, "ts": "2.5"},
        {"ph": "b", "id": "0x1", "cat": "c", "name": "n", "pid": 1, "ts": 1},
        {"ph": "e", "id": "0x1", "cat": "c", "name": "n", "pid": 1, "ts": 2},
        {"ph": "C", "name": "m", "pid": 1, "ts": 1, "args": {"v": 1.5}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
        {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 1},
        {"ph": "i", "s": "g", "name": "mark", "ts": 3},
    ]
    for i, text in enumerate(
        [
            kineto(*events, baseTimeNanoseconds=7),
            compact(*events),
            json.dumps(events, indent=1),
            *map(json.dumps, events),
        ]
    ):
        (folder / f"seed{i}").write_bytes(text.encode())
    (folder / "packed").write_bytes(packed(compact(events[0])))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            seeds(Path(argument))
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
