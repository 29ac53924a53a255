"""The large inputs of the benchmark are what they claim to be: real events, valid files, tables
that grow.
"""

import gzip
import importlib
import importlib.util
import json
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from nbprof.profiles.load import load
from tests.support.profiles import require
from tests.support.xspace import MS, PlaneWriter, Ref, UInt, xspace

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def replicate(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("replicate")


def recorded() -> bytes:
    gpu = PlaneWriter("/device:GPU:0")
    host = PlaneWriter("/host:CPU", {"profile_stop_time": UInt(7_000)})
    kernels, ops = [], []
    for i in range(40):
        op = f"net/layer_{i}/MatMul:MatMul"
        common = {"correlation_id": UInt(1000 + i), "group_id": i // 20}
        unknown = b"\xaa\x06\x03new" if i == 3 else b""
        kernels.append(
            gpu.event(
                f"gemm<{i}>(float*)", i * MS, MS // 2, unknown=unknown, tf_op=Ref(op), **common
            )
        )
        ops.append(
            host.event(
                op,
                i * MS,
                MS // 4,
                tf_op=op,
                _c=i + 1,
                id=5,
                fragmentation=0.5,
                raw=b"\0\xff",
                **common,
            )
        )
    ops.append(host.event("Iterator::Root", 3 * MS, MS, id=77))
    ops.append(host.event("train", 4 * MS, MS, step_num=0, step_name="train 500", _p=9))
    ops.append(host.event("counted", 0, 5, occurrences=3))
    gpu.line(
        "Steps", [gpu.event(str(i), i * 20 * MS, 20 * MS, group_id=i) for i in range(2)], line_id=-7
    )
    gpu.line("Stream #7", kernels, line_id=7, timestamp_ns=50)
    host.line("python", ops, line_id=1, timestamp_ns=20)
    return xspace(gpu, host, hostname="host-a", errors=("an error",))


def parsed(data: bytes):
    require("tensorflow")
    xplane = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    out = xplane.XSpace()
    out.ParseFromString(data)
    return out


def rows(space):
    """Every event: plane, line, name, start, duration, stats by name in their order."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                stats = []
                for stat in event.stats:
                    kind = stat.WhichOneof("value")
                    value = getattr(stat, kind)
                    text = plane.stat_metadata[value].name if kind == "ref_value" else value
                    stats.append((plane.stat_metadata[stat.metadata_id].name, kind, text))
                name = plane.event_metadata[event.metadata_id].name
                yield (
                    plane.name,
                    line.id,
                    line.timestamp_ns,
                    name,
                    event.offset_ps,
                    event.duration_ps,
                    event.num_occurrences,
                    stats,
                )


def test_replicas_of_an_xspace(tmp_path, replicate):
    seed = tmp_path / "seed.xplane.pb"
    seed.write_bytes(recorded())
    target = tmp_path / "big.xplane.pb"
    written = replicate.make(str(seed), target, 85 * 7)
    data = target.read_bytes()
    before, after = parsed(seed.read_bytes()), parsed(data)
    old, new = list(rows(before)), list(rows(after))
    assert written["replicas"] == 7
    assert written["events"] == len(new) == len(old) * 7
    assert json.loads(replicate.manifest(target).read_text()) == written
    assert (list(after.hostnames), list(after.errors)) == (["host-a"], ["an error"])
    assert data.count(b"\xaa\x06\x03new") == 7, "unknown fields are kept"

    by_line: dict[int, tuple[list, list]] = {}
    for side, events in enumerate((old, new)):
        for event in events:
            by_line.setdefault(event[1], ([], []))[side].append(event)
    shifts = set()
    for seeds, found in by_line.values():
        assert found[: len(seeds)][0][4:6] == seeds[0][4:6]
        for i, event in enumerate(found):
            replica, like = i // len(seeds), seeds[i % len(seeds)]
            assert (event[0], event[2], event[5], event[6]) == (like[0], like[2], like[5], like[6])
            assert [s[:2] for s in event[7]] == [s[:2] for s in like[7]]
            if replica and not event[6]:
                shifts.add((event[4] - like[4]) / replica)
    span = 40 * MS + 20 * 1000
    assert len(shifts) == 1
    assert shifts.pop() >= span, "replicas do not overlap"


def test_what_numbers_a_launch_is_new_and_what_describes_it_is_not(tmp_path, replicate):
    seed, target = tmp_path / "seed.xplane.pb", tmp_path / "big.xplane.pb"
    seed.write_bytes(recorded())
    replicate.make(str(seed), target, 85 * 7)
    found = list(rows(parsed(target.read_bytes())))

    def values(stat, plane="/host:CPU"):
        return Counter(
            v for event in found if event[0] == plane for name, _, v in event[7] if name == stat
        )

    assert values("correlation_id") == Counter({1000 + i: 1 for i in range(280)})
    assert values("correlation_id") == values("correlation_id", "/device:GPU:0"), (
        "host and device still meet"
    )
    assert values("step_num") == Counter(range(7))
    assert set(values("group_id")) == set(range(14))
    assert len(values("_c")) == 280
    assert values("id")[77] == 7, "an iterator is the same one in every step"
    assert set(values("fragmentation")) == {0.5}
    assert set(values("raw")) == {b"\0\xff"}
    assert [int(t.split()[1]) for t in values("step_name")] == list(range(500, 507))
    assert {event[3] for event in found if event[1] == -7} == {str(i) for i in range(14)}


def test_tables_of_names_and_strings_grow(tmp_path, replicate):
    seed = tmp_path / "seed.xplane.pb"
    seed.write_bytes(recorded())
    sizes = []
    for replicas in (2, 12):
        target = tmp_path / f"{replicas}.xplane.pb"
        written = replicate.make(str(seed), target, 85 * replicas)
        space = parsed(target.read_bytes())
        assert written["names"] == sum(len(p.event_metadata) for p in space.planes)
        assert written["strings"] == sum(len(p.stat_metadata) for p in space.planes)
        host = [
            event
            for event in rows(space)
            if event[0] == "/host:CPU" and event[3].startswith("net/")
        ]
        assert all({n: v for n, _, v in event[7]}["tf_op"] == event[3] for event in host), (
            "an op has one name wherever it is written"
        )
        sizes.append((written["names"], written["strings"], len({event[3] for event in host})))
    assert all(more > less for less, more in zip(*sizes, strict=True))


KINETO = """{
  "schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000,
  "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#8", "pid": 1, "tid": 1, "ts": 10.250, "dur": 900.125, "args": {"External id": 3}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "1", "ts": "20.001", "dur": 1,
    "args": {"correlation": 11, "External id": 4, "text": "\\"ts\\": 5, 100%%"}},
%s
  {"ph": "s", "id": 11, "pid": 1, "tid": 1, "ts": 20.001, "cat": "ac2g", "name": "ac2g"},
  {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0.000, "args": {"name": "python"}}
], "traceName": "a.json"}
"""


def test_replicas_of_a_kineto_trace(tmp_path, replicate):
    kernel = '  {"ph": "X", "cat": "kernel", "name": "gemm_%d<float>(int)", "pid": 0, "tid": 7, "ts": %d.5, "dur": 2.25, "args": {"correlation": %d}},'
    seed, target = tmp_path / "seed.json", tmp_path / "big.json.gz"
    seed.write_text(KINETO % "\n".join(kernel % (i, 30 + i, 11 + i) for i in range(40)))
    written = replicate.make(str(seed), target, 43 * 5 + 1)
    big = json.loads(gzip.decompress(target.read_bytes()), parse_float=Decimal)
    events = big.pop("traceEvents")
    assert big == {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 1700000000000000000,
        "traceName": "a.json",
    }
    assert len(events) == written["events"] == 43 * 5 + 1
    assert sum(e["ph"] == "M" for e in events) == 1

    steps = [e for e in events if e["name"].startswith("ProfilerStep")]
    assert [e["name"] for e in steps] == [f"ProfilerStep#{8 + i}" for i in range(5)]
    gaps = {b["ts"] - a["ts"] for a, b in pairwise(steps)}
    assert len(gaps) == 1
    assert gaps.pop() > 900, "replicas do not overlap"
    assert {e["ts"] % 1 for e in steps} == {Decimal("0.250")}, "what follows the point stays exact"
    launches = [e for e in events if e["name"] == "cudaLaunchKernel"]
    assert all(e["args"]["text"] == '"ts": 5, 100%' for e in launches), (
        "texts that look like fields are left alone"
    )
    assert all(isinstance(e["ts"], str) for e in launches)
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert sorted(e["args"]["correlation"] for e in kernels) == list(range(11, 11 + 200))
    assert [e["id"] for e in events if e["ph"] == "s"] == [
        e["args"]["correlation"] for e in launches
    ]
    assert 40 < len({e["name"] for e in kernels}) < 200
    assert all(e["name"].endswith("<float>(int)") for e in kernels)


@pytest.mark.parametrize("seed", ["xspace/tf_cpu.xplane.pb", "kineto/cpu_train.pt.trace.json.gz"])
def test_time_of_ops_grows_with_the_replicas(tmp_path, replicate, seed):
    source = Path(__file__).resolve().parents[1] / "data" / seed
    target = tmp_path / f"big{''.join(Path(seed).suffixes)}"
    once = load(source)
    written = replicate.make(str(source), target, 5 * once.receipt.events)
    by = ["where", "type"]
    one, many = (
        p.ops.frame.groupby(by)[["occurrences", "total_us", "self_us"]].sum()
        for p in (once, load(target))
    )
    assert len(one) > 2
    pd.testing.assert_frame_equal(
        many, one * written["replicas"], check_exact=False, rtol=1e-9, check_dtype=False
    )
