"""How fast Perfetto's protobuf traces are read: a synthetic trace of slices on eight threads, as
the SDK writes it.

    python benchmarks/decode_perfetto.py [--slices 1M] [--repeats 5] [--args] [--packed]

Names and categories are interned, tracks have random ids of 64 bits, a packet begins or ends one
slice. With `--args` each slice has an annotation, with `--packed` packets are compressed in blocks
as the tracing service does. Times are from the file to the trace, in this process, the file being
in memory; those of the processor are of all threads.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import tempfile
import time
import zlib
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from decode import number, spread

from nbprof.core.files import LocalFile
from nbprof.formats.perfetto import perfetto

_BLOCK = 1 << 17


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def whole(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def content(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def packets(slices: int, *, args: bool) -> list[bytes]:
    rng = random.Random(1)
    tracks = [rng.getrandbits(64) for _ in range(8)]
    out = [
        content(
            1,
            whole(10, 7)
            + content(
                60,
                whole(1, uuid)
                + content(4, whole(1, 100) + whole(2, 101 + i) + content(5, b"worker")),
            ),
        )
        for i, uuid in enumerate(tracks)
    ]
    names = b"".join(content(2, whole(1, i) + content(2, b"op %d" % i)) for i in range(1, 201))
    names += content(1, whole(1, 1) + content(2, b"work")) + content(
        3, whole(1, 1) + content(2, b"number")
    )
    out.append(content(1, whole(10, 7) + whole(13, 1) + content(12, names)))
    tail = whole(10, 7) + whole(13, 2)
    now, begun, open_ = 1_700_000_000_000_000, 0, [0] * len(tracks)
    while begun < slices or any(open_):
        at = rng.randrange(len(tracks))
        now += rng.randrange(1, 2000)
        if begun < slices and (open_[at] < 2 or (open_[at] < 6 and rng.random() < 0.5)):
            begun += 1
            open_[at] += 1
            event = (
                whole(9, 1)
                + whole(11, tracks[at])
                + whole(10, rng.randrange(200) + 1)
                + whole(3, 1)
            )
            if args:
                event += content(4, whole(1, 1) + whole(4, begun))
        elif open_[at]:
            open_[at] -= 1
            event = whole(9, 2) + whole(11, tracks[at])
        else:
            continue
        out.append(content(1, whole(8, now) + content(11, event) + tail))
    return out


def compressed(parts: list[bytes]) -> bytes:
    data = b"".join(parts)
    ends, at, block = [], 0, 0
    for part in parts:
        at += len(part)
        if at - block >= _BLOCK:
            ends.append(at)
            block = at
    bounds = [0, *ends, len(data)]
    return b"".join(
        content(1, content(50, zlib.compress(data[a:b]))) for a, b in pairwise(bounds) if b > a
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=number, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--args", action="store_true")
    parser.add_argument("--packed", action="store_true")
    given = parser.parse_args()
    parts = packets(given.slices, args=given.args)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.pftrace"
        path.write_bytes(compressed(parts) if given.packed else b"".join(parts))
        size = sum(map(len, parts)) / 1e6
        walls, processors = [], []
        for _ in range(given.repeats + 1):
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            trace = perfetto.read([LocalFile(path)])
            walls.append(time.monotonic() - began)
            after = resource.getrusage(resource.RUSAGE_SELF)
            processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            assert len(trace.events) == given.slices
            assert not trace.receipt.lines
        # The first one also imports, and asks the system for memory.
        walls, processors = walls[1:], processors[1:]
        print(
            f"{given.slices:,} slices, {len(parts):,} packets, {size:,.1f} MB"
            f" ({path.stat().st_size / 1e6:,.1f} MB on the disk)"
        )
        print(f"{spread(walls)} s, of the processor {spread(processors)} s")
        print(f"{size / statistics.median(walls):,.0f} MB/s ({size / min(walls):,.0f} at best)")


if __name__ == "__main__":
    main()
