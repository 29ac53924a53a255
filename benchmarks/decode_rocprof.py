"""How fast files of rocprofv3 are decoded into a trace, by format: of one made-up run, in MB of the
file a second.

    python benchmarks/decode_rocprof.py [--steps 8000] [--repeats 3]

Reported is the best of the repeats, in seconds of CPU time, which other load on the machine changes
little.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nbprof.core.files import LocalFile
from nbprof.formats.rocprof import rocprof as reader
from tests.support import rocprof


def main() -> None:
    """Prints a line for each format."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    run = rocprof.training(options.steps)
    forms = {
        "JSON": lambda: {"717_results.json": rocprof.as_json(run)},
        "CSV": lambda: rocprof.as_csv(run),
        "database, schema 3": lambda: {"717_results.db": rocprof.as_db(run)},
        "database, schema 4": lambda: {"717_results.db": rocprof.as_db(run, schema=4)},
    }
    for name, make in forms.items():
        with tempfile.TemporaryDirectory() as folder:
            files = [
                LocalFile(rocprof.write(Path(folder), {key: data}) / key)
                for key, data in make().items()
            ]
            size = sum(file.size or 0 for file in files)
            best, events = float("inf"), 0
            for _ in range(options.repeats):
                began = time.process_time()
                events = len(reader.read(files).events)
                best = min(best, time.process_time() - began)
        rate, pace = size / 1e6 / best, events / best / 1e6
        print(
            f"{name:20} {size / 1e6:8.1f} MB {events:10,} events {best:7.2f} s {rate:7.1f} MB/s"
            f" {pace:6.2f} M events/s"
        )


if __name__ == "__main__":
    main()
