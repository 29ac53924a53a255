"""Inputs of each format: small files as profilers write them, each damaged in some way that a seed
and a number choose.
"""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import ascend_databases, mutations
from tests.support import caching_allocator, msprof, nsys, rocprof
from tests.support import perfetto as perfetto_support
from tests.support.chrome import compact, complete, document
from tests.support.perfetto import Story
from tests.support.riegeli import RECORDS, TRANSPOSED, File, in_parts, simple, written
from tests.support.serving import Engine, sglang, vllm
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run
from tests.support.xspace import xspace as xspace_of
from tests.support.xspace_random import Writer, damaged

_DATA = Path(__file__).parent.parent / "data"
Files = dict[str, bytes]
"""A file by its name; several are one folder."""


@cache
def _spaces() -> list[bytes]:
    return [
        training_run(2),
        gpu_run(),
        _pipeline(),
        _cores(),
        (_DATA / "xspace/jax_cpu.xplane.pb").read_bytes(),
    ]


def _pipeline() -> bytes:
    """Steps that wait for a pipeline of tf.data, which states all that iterators state."""
    host, main, pool = PlaneWriter("/host:CPU"), [], []
    of_map = {
        "parent_id": 11,
        "parallelism": 8,
        "shapes": "[64,64] []",
        "types": "float int64",
        "batch_size": 4,
        "buffer_size": 2,
    }
    for step in range(4):
        at = 10 * step * MS
        main.append(host.event("train", at, 10 * MS, step_num=step, _r=1))
        main.append(host.event("IteratorGetNext", at, 8 * MS))
        pool.append(
            host.event("Iterator::Root", at, 8 * MS, id=10, parent_id=0, ram_budget_megabytes=1000)
        )
        pool.append(host.event("Iterator::Root::Repeat", at, 8 * MS, id=11, parent_id=10))
        pool.append(
            host.event(
                f"Iterator::Root::Repeat[{step // 2}]::ParallelMapV2",
                at,
                7 * MS,
                id=20 + step // 2,
                **of_map,
            )
        )
    host.line("python", main, line_id=1)
    host.line("tf_data_iterator_get_next/-8790653038117343132", pool, line_id=2)
    return xspace_of(host)


def _cores() -> bytes:
    """Two cores of a TPU, with steps, programs, ops and what its planes state."""
    planes = []
    fusion = "%fusion.1 = f32[8,8]{1,0} fusion(f32[8,8]{1,0} %p0)"
    reduce = "%all-reduce.3 = f32[8] all-reduce(f32[8] %x)"
    for number in range(2):
        plane = PlaneWriter(f"/device:TPU:{number}", {
            "device_type_string": "TPU v4", "core_details": b"\x08\x01\x20\x01", "peak_teraflops_per_second": 275.0,
            "peak_hbm_bw_gigabytes_per_second": 1200.0, "has_megacore": 1, "_chip_id": number,
        })  # fmt: skip
        steps = [
            plane.event(str(i), 10 * i * MS, 9 * MS, group_id=i, step_name=f"train {i}")
            for i in range(2)
        ]
        runs = [
            plane.event("jit_step(8)", 10 * i * MS, 9 * MS, run_id=i, program_id=8)
            for i in range(2)
        ]
        ops = [
            plane.event(
                fusion, 10 * i * MS, 4 * MS, hlo_category="fusion", flops=100, bytes_accessed=64
            )
            for i in range(2)
        ]
        ops += [
            plane.event(reduce, 10 * i * MS + 5 * MS, 2 * MS, hlo_category="all-reduce")
            for i in range(2)
        ]
        plane.line("Steps", steps, line_id=1)
        plane.line("XLA Modules", runs, line_id=2)
        plane.line("XLA Ops", ops, line_id=3)
        planes.append(plane)
    return xspace_of(*planes)


class _Chance:
    """Choices of `Random` for the random writer of XSpace."""

    def __init__(self, rng: Random) -> None:
        self.randrange = rng.randrange


def xspace(rng: Random) -> Files:
    """XSpace: fields of messages and bytes, of profiles and of what the format allows."""
    if (way := rng.randrange(10)) == 0:
        data = damaged(Writer(_Chance(rng)).space(), _Chance(rng))
    else:
        data = rng.choice(_spaces())
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = mutations.of_message(data, rng) if way < 7 else mutations.of_bytes(data, rng)
    return {"host.xplane.pb": data}


@cache
def _in_parts() -> list[list[bytes]]:
    return [in_parts(training_run(8), 1500), in_parts(gpu_run(), 1000), [training_run(2), b""]]


def riegeli(rng: Random) -> Files:
    """XSpace in parts: the file, the content of its chunks, and the records in them."""
    way = rng.randrange(10)
    records = [
        mutations.perhaps(mutations.of_message, record or b"\x0a\0", rng, 0.1)
        for record in rng.choice(_in_parts())
    ]
    packed, together = (
        rng.choice(("none", "none", "brotli", "zstd", "snappy")),
        rng.choice((1, 1, 2, 100)),
    )
    if way < 5:
        data = written(records, packed, together)
        return {
            "host.xplane.riegeli": mutations.perhaps(
                mutations.of_bytes, data.rstrip(b"\0") if way else data, rng, 0.8
            )
        }
    file = File()
    groups = [records[begin : begin + together] for begin in range(0, len(records), together)]
    for group in groups:
        data, count, decoded = simple(group, packed), len(group), sum(map(len, group))
        kind = rng.choice((RECORDS,) * 18 + (TRANSPOSED, rng.randrange(256)))
        count, decoded = rng.choice(
            ((count, decoded),) * 9
            + ((count + 1, decoded), (count, decoded + 1), (1 << 40, 1 << 50))
        )
        file.chunk(kind, mutations.perhaps(mutations.of_bytes, data, rng, 0.7), count, decoded)
    return {"host.xplane.riegeli": file.pad()}


@cache
def _traces() -> list[dict[str, Any]]:
    kinds = [
        {"ph": "B", "name": "b", "pid": 1, "tid": 2, "ts": 1},
        {"ph": "E", "pid": 1, "tid": 2, "ts": "2.5"},
        {"ph": "b", "id": "0x1", "cat": "c", "name": "n", "pid": 1, "ts": 1},
        {"ph": "e", "id": "0x1", "cat": "c", "name": "n", "pid": 1, "ts": 2},
        {"ph": "C", "name": "m", "pid": 1, "ts": 1, "args": {"v": 1.5}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
        {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 1},
        {"ph": "i", "s": "g", "name": "mark", "ts": 3},
        complete("a", 5.125, 1, args={"External id": 1, "d": [[1], []], "f": 0.5, "t": "x"}),
    ]
    return [
        document(*kinds, baseTimeNanoseconds=7),
        _training(),
        _cut("kineto/cpu_train.pt.trace.json.gz"),
        _cut("chrome/jax_cpu.trace.json.gz"),
        _serving(Engine(vllm, layers=1)),
        _serving(Engine(sglang, layers=1, graphs=True, overlap=True)),
    ]


def _serving(engine: Engine) -> dict[str, Any]:
    """A prompt, one that comes while it is decoded, and both on their own."""
    engine.iteration(prefill=(1, 40))
    engine.iteration(prefill=(1, 25), decode=(1, 1))
    engine.iteration(decode=(2, 2))
    made: dict[str, Any] = json.loads(engine.encode())
    return made


def _cut(name: str) -> dict[str, Any]:
    """Some events of a real file."""
    made: dict[str, Any] = json.loads(gzip.decompress((_DATA / name).read_bytes()))
    events = made["traceEvents"]
    return {**made, "traceEvents": events[:: max(len(events) // 60, 1)]}


def _training() -> dict[str, Any]:
    """Two steps of PyTorch on a GPU, with each kind of event that its reader knows."""
    events = [
        {
            "ph": "M",
            "name": "process_name",
            "pid": 1,
            "tid": 0,
            "ts": 0,
            "args": {"name": "python"},
        },
        {
            "ph": "M",
            "name": "process_labels",
            "pid": 0,
            "tid": 0,
            "ts": 0,
            "args": {"labels": "GPU 0"},
        },
    ]
    for i in range(2):
        at, ident = 1000.5 + 100 * i, 10 * i
        note = {"cat": "user_annotation", "pid": 1, "tid": 1}
        events += [
            complete(f"ProfilerStep#{i}", at, 90, **note, args={"External id": ident}),
            complete("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 20, **note, args={"External id": ident + 1}),
            complete("aten::mm", at + 30, 20, pid=1, tid=1, args={
                "External id": ident + 2, "Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"], "Sequence number": i,
                "Call stack": "train.py(3): f;train.py(9): <module>",
            }),
            complete("train.py(3): f", at + 22, 40, cat="python_function", pid=1, tid=1, args={"Python id": i + 1, "Python parent id": None}),
            complete("cudaLaunchKernel", at + 35, 3, cat="cuda_runtime", pid=1, tid=1, args={"External id": ident + 2, "correlation": ident + 2}),
            complete("ampere_sgemm", at + 50, 30, cat="kernel", pid=0, tid=7, args={
                "External id": ident + 2, "correlation": ident + 2, "device": 0, "stream": 7, "grid": [4, 1, 1], "block": [128, 1, 1],
                "registers per thread": 32, "shared memory": 16, "blocks per SM": 0.5, "est. achieved occupancy %": 40,
            }),
            complete("ncclDevKernel_AllReduce_Sum_f32", at + 70, 15, cat="kernel", pid=0, tid=20, args={
                "correlation": ident + 3, "device": 0, "stream": 20, "Collective name": "allreduce", "In msg nelems": 64, "Group size": 2,
                "dtype": "Float",
            }),
            {"ph": "s", "id": ident + 2, "pid": 1, "tid": 1, "ts": at + 35, "cat": "ac2g", "name": "ac2g"},
            {"ph": "f", "id": ident + 2, "pid": 0, "tid": 7, "ts": at + 50, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "pid": 1, "tid": 1, "ts": at + 31, "args": {
                "Total Allocated": 512 * i, "Total Reserved": 1024, "Bytes": 256, "Addr": 140000 + i, "Device Id": 0, "Device Type": 1,
            }},
        ]  # fmt: skip
    facts = {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": 0,
                "name": "NVIDIA A100",
                "totalGlobalMem": 1 << 34,
                "computeMajor": 8,
                "computeMinor": 0,
                "numSms": 108,
            }
        ],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "trace_id": "A1",
    }
    return document(*events, **facts)


@cache
def _long() -> list[bytes]:
    names = (
        "kineto/cpu_train.pt.trace.json.gz",
        "torch/modules.pt.trace.json.gz",
        "torch/cpu_ops.pt.trace.json.gz",
    )
    return [gzip.decompress((_DATA / name).read_bytes()) for name in names]


def chrome(rng: Random) -> Files:
    """Traces in JSON: their trees, their text, keys that are there twice."""
    if rng.random() < 0.02:
        # What takes time with the square of something shows in a long file only.
        text = rng.choice(_long())
        old = rng.choice(
            (
                b'"ts": ',
                b'"dur": ',
                b'"name": ',
                b'"args": {',
                b"}",
                b'"',
                b",",
                b'"ph": "X"',
                b'"tid": ',
                b'"pid": ',
                b'"cat": "cpu_op"',
            )
        )
        new = rng.choice(
            (
                b'"ts": 9',
                b'"dur": 9',
                b'"ts": -',
                b"",
                b'"',
                b"}}",
                b"{",
                b"[",
                b'"ph": "B"',
                b'"ph": "i"',
                b'"tid": 1',
                b"\\",
                b'"cat": "kernel"',
            )
        )
        data = text.replace(old, new, rng.choice((1, 50, -1)))
        return {"host.pt.trace.json": mutations.perhaps(mutations.of_bytes, data, rng, 0.5)}
    tree, way = rng.choice(_traces()), rng.randrange(10)
    if way < 5:
        tree = mutations.of_tree(tree, rng)
    if isinstance(tree, dict) and rng.random() < 0.1:
        tree = tree.get("traceEvents")
    text = (
        compact(*tree["traceEvents"], **{k: v for k, v in tree.items() if k != "traceEvents"})
        if _whole(tree) and way % 2
        else json.dumps(tree, indent=rng.choice((None, 1, 2)))
    )
    if way == 5:
        text = mutations.doubled_keys(text, rng)
    data = text.encode("utf-8", "surrogatepass")
    if way >= 6:
        data = mutations.of_bytes(data, rng)
    return {rng.choice(("host.pt.trace.json", "host.trace.json", "trace.json")): data}


def _whole(tree: Any) -> bool:
    return isinstance(tree, dict) and isinstance(tree.get("traceEvents"), list)


@cache
def _tables() -> Files:
    tasks, marks = msprof.training(3)
    at = f"_{msprof.DATE}"
    api = msprof.table(["Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)"], [
        ["host", "acl", "aclopExecute", 120.5, 4, 30.1, 20, 40], ["host", "node", "launch", 80, 4, 20, 10, 30],
    ])  # fmt: skip
    fusion = msprof.table(["Model ID", "Model Name", "Fusion Op", "Original Ops", "Memory Input(KB)", "Memory Total(KB)"], [
        [2, "g", "layer/MatMul_1", "a;b", 1.5, 3], [2, "g", "trans_TransData_0", "c", 0.5, 1],
    ])  # fmt: skip
    record = msprof.table(["Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)", "Device"], [
        ["PTA", msprof.moment(tasks[0].start), 10.5, 20, "NPU:0"], ["PTA", msprof.moment(tasks[1].start), 12, 20, "NPU:0"],
    ])  # fmt: skip
    memory = msprof.table(["Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Duration(us)", "Device"], [
        ["aten::mm", 2.5, msprof.moment(tasks[0].start), msprof.moment(tasks[1].start), 5, "NPU:0"],
    ])  # fmt: skip
    task_time = msprof.table(["Device_id", "kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)", "task_start(us)", "task_stop(us)"], [
        [0, t.name, t.core, t.stream or 0, t.task, t.length, msprof.moment(t.start), msprof.moment(t.start + t.length)] for t in tasks[:6]
    ])  # fmt: skip
    step_time = msprof.table(
        ["Device_id", "Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Stage", "Bubble",
         "Communication(Not Overlapped and Exclude Receive)", "Preparing"],
        [[0, i, 100, 20, 5, 25, 30, 150, 0, 20, 1] for i in range(3)],
    )  # fmt: skip
    l2 = msprof.table(
        ["Stream Id", "Task Id", "Hit Rate", "Victim Rate", "Op Name"],
        [[2, t.task, 0.5, 0.1, t.name] for t in tasks[:4]],
    )
    return {
        f"op_summary{at}.csv": msprof.op_summary(tasks),
        f"op_summary_0_2_1{at}.csv": msprof.op_summary(tasks, age="2022"),
        f"op_statistic{at}.csv": msprof.op_statistic(tasks),
        f"step_trace{at}.csv": msprof.step_trace(marks),
        f"msprof{at}.json": msprof.timeline(tasks),
        f"api_statistic{at}.csv": api,
        f"fusion_op{at}.csv": fusion,
        f"l2_cache{at}.csv": l2,
        f"task_time{at}.csv": task_time,
        "kernel_details.csv": msprof.op_summary(tasks, age="torch", end="\r\n"),
        "trace_view.json": msprof.timeline(tasks, torch=2),
        "memory_record.csv": record,
        "operator_memory.csv": memory,
        "step_trace_time.csv": step_time,
    }


def msprof_tables(rng: Random) -> Files:
    """Tables of Ascend's profilers, alone or several in the folder of a recording, most of them
    damaged.
    """
    tables = _tables()
    torch = [
        name
        for name in tables
        if name
        in ("kernel_details.csv", "trace_view.json", "memory_record.csv", "operator_memory.csv")
    ]
    torch += ["step_trace_time.csv"]
    pool = torch if rng.random() < 0.3 else [name for name in tables if name not in torch]
    names = rng.sample(pool, rng.choice((1, 1, 2, min(3, len(pool)), len(pool) - 1)))
    out: Files = {}
    folder = (
        "x_ascend_pt/ASCEND_PROFILER_OUTPUT/"
        if pool is torch
        else "PROF_000001/mindstudio_profiler_output/"
    )
    whole = rng.random() < 0.1
    for name in names:
        data = tables[name]
        if not whole and rng.random() < 0.75:
            data = _json(data, rng) if name.endswith(".json") else mutations.of_table(data, rng)
        out[(folder if len(names) > 1 or rng.random() < 0.3 else "") + name] = data
    if len(names) > 1 and rng.random() < 0.2:
        info = {
            "rank_id": 0,
            "DeviceInfo": [{"id": 0, "ai_core_num": 32, "aic_frequency": "1000"}],
            "pid": 5,
        }
        out["PROF_000001/device_0/info.json.0"] = json.dumps(mutations.of_tree(info, rng)).encode()
    return out


def _json(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.4:
        return mutations.of_bytes(data, rng)
    return json.dumps(mutations.of_tree(json.loads(data), rng)).encode()


@cache
def _snapshots() -> list[dict[str, Any]]:
    few = caching_allocator.Allocator(64 << 20)
    kept = [
        few.alloc(1 << 20, caching_allocator.ACTIVATION),
        few.alloc(300, caching_allocator.WEIGHT),
        few.alloc(5 << 20, []),
    ]
    few.free(kept[0])
    return [
        caching_allocator.snapshot(few),
        caching_allocator.snapshot(caching_allocator.fragmented(capacity=64 << 20)),
        caching_allocator.snapshot(
            caching_allocator.fragmented(capacity=64 << 20, expandable=True, device=1), few
        ),
    ]


def torch_snapshot(rng: Random) -> Files:
    """Snapshots of PyTorch's allocator: their trees, and the bytes of their pickles."""
    tree, way = rng.choice(_snapshots()), rng.randrange(10)
    if way < 6:
        tree = mutations.of_tree(tree, rng)
    data = pickle.dumps(tree, rng.choice((0, 2, 2, 4, 4, 5)))
    if way >= 5:
        data = mutations.of_bytes(data, rng)
    return {"snapshot.pickle": data}


@cache
def _packets() -> list[bytes]:
    story = Story.random(Random(1), 150)
    ways: list[dict[str, bool]] = [
        {"interned": False},
        {"interned": True},
        {"interned": True, "forget": True},
    ]
    out = [
        story.perfetto(Random(2), **way) for way in [*ways, {"interned": True, "compressed": True}]
    ]
    return [*out, perfetto_support.every_kind().bytes()]


def perfetto(rng: Random) -> Files:
    """Perfetto traces: fields of messages and bytes."""
    data, way = rng.choice(_packets()), rng.randrange(10)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        data = mutations.of_message(data, rng) if way < 7 else mutations.of_bytes(data, rng)
    return {"host.pftrace": data}


def _export(rng: Random | None = None) -> nsys.Export:
    """An export of Nsight Systems, some values of which may be others, and which may lack columns
    and tables.
    """
    out = nsys.training(2)
    nsys.training(2, pid=4400, gpu=1, out=out)
    out.range("request", 510_000, 530_000, kind=60)
    out.range("here", 515_000, None, kind=34, category=3)
    out.add("GPU_METRICS", timestamp=510_000, typeId=0, metricId=4, value=10)
    if rng is None:
        return out
    values = [
        v
        for v in (*mutations.NUMBERS, *mutations.TEXTS, None, 2**40, 5 << 24)
        if not isinstance(v, str) or v.isprintable()
    ]
    values = [v for v in values if not isinstance(v, int) or -(2**63) <= v < 2**63]
    for _ in range(rng.choice((1, 2, 5, 40))):
        table = rng.choice(list(out.tables))
        way = rng.randrange(12)
        if way == 0 and table != "StringIds":
            del out.tables[table]
        elif way == 1:
            out.without.add(
                rng.choice(
                    [name for name in nsys.COLUMNS[table].split() if name not in ("id", "value")]
                    or ["name"]
                )
            )
        else:
            row = rng.choice(out.tables[table])
            row[
                rng.choice(
                    [name for name in row if (table, name) != ("StringIds", "id")] or ["value"]
                )
            ] = rng.choice(values)
    return out


@cache
def _databases() -> list[bytes]:
    return [_written(_export()), _written(nsys.training(40))]


def _written(export: nsys.Export) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return export.sqlite(Path(folder) / "a.sqlite").read_bytes()


def nsight(rng: Random) -> Files:
    """Databases of Nsight Systems: their values, their pages; and folders of Parquet."""
    way = rng.randrange(10)
    if way < 4:
        return {"report1.sqlite": _written(_export(rng))}
    if way < 9:
        return {"report1.sqlite": mutations.of_bytes(rng.choice(_databases()), rng)}
    with tempfile.TemporaryDirectory() as folder:
        files = {
            f"r_pqtdir/{file.name}": file.read_bytes()
            for file in _export().parquet(Path(folder) / "r_pqtdir").iterdir()
        }
    name = rng.choice(sorted(files))
    return {**files, name: mutations.of_bytes(files[name], rng)}


@cache
def _recordings() -> list[tuple[str, bytes]]:
    """Files of rocprofv3 that each hold a whole recording."""
    run = rocprof.training(2)
    other = rocprof.training(1, pid=718)
    return [
        ("717_results.json", rocprof.as_json(run)),
        ("out_results.json", rocprof.as_json(other, run)),
        *(("717_results.db", rocprof.as_db(run, other, schema=schema)) for schema in (3, 4)),
    ]


def rocprof_files(rng: Random) -> Files:
    """Recordings of rocprofv3: trees and text of their JSON, tables, values and pages of their
    databases.
    """
    way = rng.randrange(10)
    if way < 3:
        tree = mutations.of_tree(
            {"rocprofiler-sdk-tool": [rocprof.tree(rocprof.training(rng.choice((1, 2))))]}, rng
        )
        data = json.dumps(tree, indent=rng.choice((None, 1))).encode("utf-8", "surrogatepass")
        return {"717_results.json": mutations.perhaps(mutations.of_bytes, data, rng, 0.2)}
    if way < 6:
        tables = rocprof.as_csv(rocprof.training(2), rng.choice(("6.2", "7.0")))
        names = rng.sample(sorted(tables), rng.choice((1, 2, len(tables))))
        return {
            name: mutations.of_table(tables[name], rng) if rng.random() < 0.7 else tables[name]
            for name in names
        }
    if way < 8:
        return {"717_results.db": _changed(rng.choice(_recordings()[2:])[1], rng)}
    name, data = rng.choice(_recordings())
    return {name: mutations.of_bytes(data, rng)}


def _changed(data: bytes, rng: Random) -> bytes:
    """A database with other values, and without some columns and tables."""
    base = sqlite3.connect(":memory:")
    base.deserialize(data)
    tables = [
        name
        for (name,) in base.execute(
            "select name from sqlite_master where type = 'table' and name like 'rocpd%'"
        )
    ]
    for (view,) in base.execute("select name from sqlite_master where type = 'view'").fetchall():
        base.execute(f"drop view {view}")
    for _ in range(rng.choice((1, 2, 5, 40))):
        table = rng.choice(tables)
        columns = [name for _, name, *_ in base.execute(f'pragma table_info("{table}")')]
        column, chosen = rng.choice(columns), rng.randrange(12)
        if chosen == 0 and len(tables) > 4:
            base.execute(f'drop table "{table}"')
            tables.remove(table)
        elif chosen == 1 and len(columns) > 2 and column != "id":
            base.execute(f'alter table "{table}" drop column "{column}"')
        elif column != "id":
            value = rng.choice(
                (
                    *mutations.NUMBERS,
                    "",
                    "x",
                    None,
                    b"\xff",
                    2**40,
                    -1,
                    0.5,
                    '{"message": 5}',
                    "[" * 50,
                )
            )
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                value = -5
            base.execute(
                f'update "{table}" set "{column}" = ? where rowid % ? = 0',
                (value, rng.choice((1, 2, 7))),
            )
    base.commit()
    return base.serialize()


_INSIDE: tuple[Callable[[Random], Files], ...] = (
    xspace,
    chrome,
    msprof_tables,
    torch_snapshot,
    perfetto,
)


@cache
def _sound() -> list[Files]:
    tables = _tables()
    kept = {
        name: tables[name]
        for name in tables
        if name.startswith(("op_summary_2", "op_statistic", "step_trace_2"))
    }
    return [
        {"host.xplane.pb": _spaces()[0]},
        {"host.pt.trace.json": json.dumps(_traces()[1]).encode()},
        {f"PROF_000001/mindstudio_profiler_output/{name}": data for name, data in kept.items()},
        {"snapshot.pickle": pickle.dumps(_snapshots()[0], 4)},
    ]


def archives(rng: Random) -> Files:
    """Packed files, zips and tars around any of these, up to three deep, damaged at one of the
    levels or at several.
    """
    if rng.random() < 0.0005:
        name, data = mutations.bomb(rng)
        return {name: data}
    files = rng.choice(_sound()) if rng.random() < 0.7 else rng.choice(_INSIDE)(rng)
    chance = rng.choice((0.2, 0.5, 1.0))
    for level in range(rng.choice((1, 1, 1, 2, 2, 3))):
        kind = rng.choice((*mutations.PACKERS, *mutations.ARCHIVES, *mutations.ARCHIVES))
        if kind in mutations.PACKERS:
            files = {
                f"{name}.{kind}": _hit(mutations.PACKERS[kind](data), rng, chance)
                for name, data in files.items()
            }
        elif rng.random() < 0.1:
            files = {_strange(name, rng): data for name, data in files.items()}
        if kind in mutations.ARCHIVES:
            more = {"notes.txt": b"x", **files} if rng.random() < 0.2 else files
            files = {f"run{level}.{kind}": _hit(mutations.archive(more, kind), rng, chance)}
    return files


def _hit(data: bytes, rng: Random, chance: float) -> bytes:
    return mutations.perhaps(mutations.of_bytes, data, rng, chance)


def _strange(name: str, rng: Random) -> str:
    return rng.choice(
        (
            "../" + name,
            "/" + name,
            "a/" * 60 + name,
            name + "/x",
            "a\\" + name,
            "\u202e" + name,
            name.upper(),
        )
    )


FORMATS: dict[str, Callable[[Random], Files]] = {
    "xspace": xspace,
    "riegeli": riegeli,
    "chrome": chrome,
    "msprof": msprof_tables,
    "ascend_databases": ascend_databases.draw,
    "torch_snapshot": torch_snapshot,
    "perfetto": perfetto,
    "nsys": nsight,
    "rocprof": rocprof_files,
    "archives": archives,
}


def draw(form: str, seed: int, number: int) -> Files:
    """The input of that number: the same whenever and wherever it is asked for."""
    rng = Random(f"{seed} {form} {number}")
    while True:
        try:
            return FORMATS[form](rng)
        except RecursionError:
            # Nested too deep for Python to write it.
            continue
