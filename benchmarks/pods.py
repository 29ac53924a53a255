"""What many hosts cost: to the verdict, to the dashboard, when they are opened again, and in
memory, by their number.

Usage: python benchmarks/pods.py [--hosts 64 256 1024] [--workers 2] [--seed PROFILE ...] [--peer]

The hosts are copies of one recording with clocks, names and lengths of their own: an XSpace file,
by default a Keras run that is recorded first, or a PyTorch trace. Each number of hosts is read in
fresh processes without a cache, one that asks for the verdict and the stragglers and one that draws
the dashboard, and once more with what these left in one. With `--peer` the same files are also read
by one process at once, as where they are few.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
# A user's Python keeps what it compiled; a process that compiles nbprof again takes half a second
# longer.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

OURS = """
import gc, json, resource, sys, threading, time
from nbprof.profiles.load import read
from nbprof.run import parallel
if sys.argv[2] == "joint":
    parallel.MANY = 10**9
began = time.perf_counter()
out = {}
profile = read(sys.argv[1], executor=int(sys.argv[2]) if sys.argv[2] != "joint" else None)
if sys.argv[3] == "verdict":
    out["bound"] = str(profile.overview["bound"])
    out["verdict_s"] = time.perf_counter() - began
    profile.pods.stragglers
    out["stragglers_s"] = time.perf_counter() - began
else:
    data, _ = profile.mimebundle()
    out["dashboard_s"] = time.perf_counter() - began
    out["output_mb"] = sum(len(v if isinstance(v, str) else json.dumps(v)) for v in data.values()) / 1e6
out["client_mb"] = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
# The processes end with the profile; only what has ended is counted.
del profile
gc.collect()
for thread in threading.enumerate():
    if thread.name.startswith("nbprof process"):
        thread.join()
out["workers_s"] = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
print(json.dumps(out))
"""


def xspace(seed: bytes, name: str, random_: random.Random) -> bytes:
    """A recording of another host: its own name, clock and speed."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(seed)
    del space.hostnames[:]
    space.hostnames.append(name)
    late, slow = random_.randrange(1_000_000), 1 + random_.gauss(0, 0.01)
    for plane in space.planes:
        for line in plane.lines:
            line.timestamp_ns += late
            if plane.name.startswith("/device"):
                for event in line.events:
                    event.duration_ps = int(event.duration_ps * min(slow, 1.0))
    return space.SerializeToString()


def kineto(seed: bytes, rank: int, ranks: int, random_: random.Random) -> bytes:
    """A trace of another rank, on a clock of its own."""
    said = json.loads(seed)
    said["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
    said["baseTimeNanoseconds"] = said.get("baseTimeNanoseconds", 0) + random_.randrange(1_000_000)
    return gzip.compress(json.dumps(said).encode(), 1)


def write(seed: Path, folder: Path, hosts: int) -> int:
    """Writes the files of so many hosts; returns their bytes."""
    data, random_ = seed.read_bytes(), random.Random(1)
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    out = folder / "plugins" / "profile" / "run"
    out.mkdir(parents=True)
    for number in range(hosts):
        if seed.name.endswith(".xplane.pb"):
            (out / f"host{number:04d}.xplane.pb").write_bytes(
                xspace(data, f"host{number:04d}", random_)
            )
        else:
            (out / f"rank{number:04d}.1700000000000.pt.trace.json.gz").write_bytes(
                kineto(data, number, hosts, random_)
            )
    return sum(path.stat().st_size for path in out.iterdir())


def opened(folder: Path, workers: str, cache: Path | None) -> dict[str, float]:
    """The figures of two processes that open them, each with a cache of its own; memory and workers
    are those of the dashboard.
    """
    out: dict[str, float] = {}
    for asks in ("verdict", "dashboard"):
        kept = (
            {"NBPROF_CACHE": "off"}
            if cache is None
            else {"NBPROF_CACHE": "on", "NBPROF_CACHE_DIR": str(cache / asks)}
        )
        command = [sys.executable, "-c", OURS, str(folder), workers, asks]
        made = subprocess.run(
            command, env={**os.environ, **kept}, capture_output=True, text=True, check=False
        )
        if made.returncode:
            sys.exit(made.stderr)
        out |= json.loads(made.stdout.splitlines()[-1])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seed", type=Path, nargs="+", help="XSpace files and PyTorch traces, one after the other"
    )
    parser.add_argument("--peer", action="store_true", help="read them at once, too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        from to_dashboard import record

        heads = (
            "hosts",
            "MB",
            "how",
            "verdict s",
            "stragglers",
            "dashboard",
            "output MB",
            "client MB",
            "ms/host",
            "in all s",
        )
        print(" ".join(f"{head:>10}" for head in heads))
        for seed, hosts in product(asked.seed or [record(Path(place))], asked.hosts):
            folder = Path(tempfile.mkdtemp(dir=place))
            cache, size = folder / "cache", write(seed, folder / "pod", hosts)
            # Files that were written a moment ago may change unseen: they would be hashed when they
            # are opened again.
            time.sleep(3)
            ways = [("apart", str(asked.workers), cache), ("again", str(asked.workers), cache)]
            for how, workers, kept in [
                *ways,
                *([("at once", "joint", None)] if asked.peer else []),
            ]:
                began = time.perf_counter()
                found = opened(folder / "pod", workers, kept)
                cells = [
                    f"{hosts:,}",
                    f"{size / 1e6:.0f}",
                    how,
                    *(f"{found[key]:.1f}" for key in ("verdict_s", "stragglers_s", "dashboard_s")),
                ]
                cells += [
                    f"{found['output_mb']:.2f}",
                    f"{found['client_mb']:.0f}",
                    f"{1000 * found['workers_s'] / hosts:.0f}",
                ]
                print(
                    " ".join(
                        f"{cell:>10}" for cell in [*cells, f"{time.perf_counter() - began:.1f}"]
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
