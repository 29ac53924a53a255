"""How fast the records of `*.xplane.riegeli` are unpacked, by packing.

    python benchmarks/decode_riegeli.py build/bench/xspace-tf-1M.xplane.pb      # made by replicate.py

JAX packs with brotli. A row gives bytes of XSpace a second, of processor time, best of three.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbprof.formats.xspace.riegeli.records import Record, records
from tests.support.riegeli import by_array_record

OPTIONS = ("uncompressed", "brotli:6", "zstd:3", "snappy")


def seconds(path: Path, data: bytes) -> float:
    """The least of three."""
    out = []
    for _ in range(3):
        began = time.process_time()
        with path.open("rb") as file:
            found = list(records(file, path.name))
        out.append(time.process_time() - began)
        assert [bytes(one.buffer.data) for one in found if isinstance(one, Record)] == [data]
    return min(out)


def main() -> None:
    data = Path(sys.argv[1]).read_bytes()
    print("| records | file, MB | MB/s |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xplane.riegeli"
        for option in OPTIONS:
            path.write_bytes(by_array_record(Path(folder) / "a", [data], f"group_size:1,{option}"))
            speed = len(data) / 1e6 / seconds(path, data)
            print(f"| {option} | {path.stat().st_size / 1e6:.1f} | {speed:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
