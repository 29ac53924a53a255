"""How fast databases of Ascend's profilers are read: a synthetic run of torch_npu with two tasks,
seven counters and a call an operator.

    python benchmarks/decode_ascend.py [--operators 150k] [--repeats 5]

Times are from the file to the trace and its tables, in this process, the file being in memory;
those of the processor are of all threads.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from decode import number, spread

from nbprof.core.files import LocalFile
from nbprof.formats.msprof import msprof
from tests.support import ascend_db
from tests.support.msprof import Task

_KINDS = (
    ("MatMulV2", "AI_CORE"),
    ("TransData", "AI_VECTOR_CORE"),
    ("Add", "AI_CORE"),
    ("Cast", "AI_VECTOR_CORE"),
)


def tasks(count: int) -> list[Task]:
    """Operators of 200 layers on three streams, and a collective every 50."""
    out = []
    for i in range(count):
        kind, core = _KINDS[i % len(_KINDS)]
        start = Decimal(12 * i)
        out.append(
            Task(
                f"layer{i % 200}/{kind}",
                kind,
                start,
                Decimal(9),
                core,
                stream=2 + i % 3,
                task=i % 65536,
            )
        )
        if i % 50 == 0:
            out.append(
                Task(
                    f"hcom_allReduce__{i}",
                    "hcom_allReduce_",
                    start,
                    Decimal(30),
                    "COMMUNICATION",
                    stream=None,
                )
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operators", type=number, default=150_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = ascend_db.main(
            Path(folder) / "ascend_pytorch_profiler_0.db", tasks(given.operators), steps=20
        )
        size = path.stat().st_size / 1e6
        walls, processors, events = [], [], 0
        for _ in range(given.repeats + 1):
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            trace = msprof.read([LocalFile(path)])
            walls.append(time.monotonic() - began)
            after = resource.getrusage(resource.RUSAGE_SELF)
            processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            events = len(trace.events)
            assert len(trace.tables["op_summary"][0]) >= given.operators
        # The first one also imports, and asks the system for memory.
        walls, processors = walls[1:], processors[1:]
        print(f"{given.operators:,} operators, {events:,} events, {size:,.1f} MB")
        print(f"{spread(walls)} s, of the processor {spread(processors)} s")
        print(f"{size / statistics.median(walls):,.0f} MB/s ({size / min(walls):,.0f} at best)")


if __name__ == "__main__":
    main()
