"""How fast exports of Nsight Systems are read: a database of kernels, CUDA calls and NVTX ranges,
by us and by the standard library.

    python benchmarks/decode_nsys.py [--events 1200000] [--repeats 5]

A third of the events is of each kind, with every column that the recorder writes. Reported is the
time of the processor, as other load on the machine changes it little: our reader from the bytes of
the file to the `Trace`, and `sqlite3` fetching the same columns as tuples, of which nothing is made
yet.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbprof.core.files import LocalFile
from nbprof.formats.nsys import nsys as reader
from tests.support import nsys as made

_NVTX = "NVTX_EVENTS"


def make(path: Path, events: int) -> None:
    """Writes the database."""
    export = made.training(1)
    export.sqlite(path)
    of_thread, of_process = made.HARDWARE | 4321 << 24 | 4321, made.HARDWARE | 4321 << 24
    rows = range(events // 3)
    tables = {
        reader.KERNELS: lambda i: {
            "start": 10**9 + 5000 * i, "end": 10**9 + 5000 * i + 4000, "deviceId": 0, "contextId": 1, "streamId": 7, "gridId": i,
            "correlationId": i + 1000, "globalPid": of_process, "demangledName": 2 + i % 5, "shortName": 2 + i % 5,
            "registersPerThread": 40, "gridX": 1 + i % 300, "gridY": 1, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1,
            "staticSharedMemory": 0, "dynamicSharedMemory": 16384,
        },
        reader.CALLS: lambda i: {
            "start": 10**9 + 5000 * i - 3000, "end": 10**9 + 5000 * i - 1000, "eventClass": 0, "globalTid": of_thread,
            "correlationId": i + 1000, "nameId": 3, "returnValue": 0,
        },
        _NVTX: lambda i: {
            "start": 10**9 + 5000 * i - 4000, "end": 10**9 + 5000 * i - 500, "eventType": 59, "globalTid": of_thread, "textId": 2 + i % 9,
            "domainId": 0,
        },
    }  # fmt: skip
    with sqlite3.connect(path) as db:
        for table, row in tables.items():
            names = made.COLUMNS[table].split()
            db.executemany(
                f"INSERT INTO {table} VALUES ({','.join('?' * len(names))})",
                ([row(i).get(n) for n in names] for i in rows),
            )
    db.close()


def fetched(path: Path) -> int:
    """All rows of the three tables, in the columns that our reader takes."""
    columns = {
        **reader.COLUMNS,
        _NVTX: ("start", "end", "eventType", "text", "textId", "globalTid", "category", "domainId"),
    }
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        found = 0
        for table in (reader.KERNELS, reader.CALLS, _NVTX):
            there = [name for name in columns[table] if name in made.COLUMNS[table].split()]
            found += len(db.execute(f"SELECT {', '.join(there)} FROM {table}").fetchall())
    db.close()
    return found


def measure(what: str, run: Callable[[], int], megabytes: float, repeats: int) -> None:
    """Prints one row."""
    times, count = [], 0
    for _ in range(repeats):
        began = time.process_time()
        count = run()
        times.append(time.process_time() - began)
    middle = statistics.median(times)
    spread = f"{middle:.2f} s ({min(times):.2f}–{max(times):.2f})"
    print(
        f"| {what} | {count:,} | {spread} | {megabytes / middle:,.0f} |"
        f" {count / middle / 1e6:.2f} |"
    )


def main() -> None:
    """Makes the file and measures both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_200_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report1.sqlite"
        make(path, given.events)
        size = path.stat().st_size / 1e6
        print(
            f"{size:.1f} MB\n\n| read by | events | CPU time | MB/s | million events/s"
            " |\n|---|---|---|---|---|"
        )
        measure(
            "nbprof, to the trace",
            lambda: len(reader.read([LocalFile(path)]).events),
            size,
            given.repeats,
        )
        measure("sqlite3, to tuples", lambda: fetched(path), size, given.repeats)


if __name__ == "__main__":
    main()
