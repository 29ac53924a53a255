"""Exports of Nsight Systems: of every version, of parts, of what is missing or wrong; and reports
that have to be exported.
"""

from __future__ import annotations

import gzip
import os
import shlex
import sqlite3
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.core.errors import RawError, ReadError
from nbprof.core.trace import Trace
from nbprof.tools.kernels import payload
from tests.support import nsys
from tests.support.notes import numbers, of_key
from tests.support.nsys import HARDWARE, US, UTC_NS, Export


def loaded(export: Export, folder: Path, name: str = "report1.sqlite") -> nbprof.Profile:
    return nbprof.load(export.sqlite(folder / name))


def args_of(trace: Trace, name: str) -> dict[str, object]:
    """The args of the first event of a name."""
    code = trace.names.tolist().index(name)
    row = int(np.flatnonzero(trace.events.name == code)[0])
    out: dict[str, object] = {}
    for key, column in trace.args.items():
        at = np.flatnonzero(column.event == row)
        if len(at):
            text = trace.text_arg(key)[row]
            out[key] = trace.strings[text] if text >= 0 else column.floats()[at[0]]
    return out


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> nbprof.Profile:
    return loaded(nsys.training(), tmp_path_factory.mktemp("nsys"))


def test_lanes_are_those_of_streams_and_threads(profile: nbprof.Profile) -> None:
    lanes = profile.run.trace.lanes
    named = lanes[["process", "thread", "note", "kind"]].to_numpy().tolist()
    assert ["GPU 0", "Stream 20", "collectives", "device"] in named
    assert ["GPU 0", "Waits of stream 7", "", "derived"] in named
    assert ["Host", "main thread", "pt_main_thread", "host"] in named
    assert set(lanes["host"]) == {"node7"}


def test_args_are_named_as_in_traces_of_kineto(profile: nbprof.Profile) -> None:
    trace = profile.run.trace
    kernel = {
        "cat": "kernel",
        "device": 0,
        "stream": 7,
        "context": 1,
        "correlation": 103,
        "registers per thread": 40,
    }
    shape = {"grid": "[8, 1, 1]", "block": "[256, 1, 1]", "shared memory": 16384}
    assert args_of(trace, "void at::native::gemm_kernel<0>(float*)") == kernel | shape
    assert args_of(trace, "void at::native::adam_kernel<2>()")["graph node id"] == 0x500000002
    copy = {
        "cat": "gpu_memcpy",
        "bytes": 1 << 20,
        "device": 0,
        "stream": 13,
        "context": 1,
        "correlation": 101,
    }
    assert args_of(trace, "Memcpy HtoD (Pinned -> Device)") == copy | {
        "memory bandwidth (GB/s)": 262.144
    }
    assert args_of(trace, "cudaGraphLaunch") == {"cat": "cuda_runtime", "correlation": 106}
    assert args_of(trace, "cuLaunchKernelEx")["cat"] == "cuda_driver"
    assert args_of(trace, "layer 1") == {"cat": "user_annotation", "payload": 1}
    assert args_of(trace, "ncclAllReduce") == {"cat": "user_annotation", "domain": "NCCL"}
    assert args_of(trace, "poll") == {"cat": "osrt"}


def test_facts_of_the_session_and_the_device(profile: nbprof.Profile) -> None:
    device = profile.run.activity.devices.iloc[0]
    assert (
        device["name"],
        device["compute_capability"],
        device["memory_bytes"],
        device["cores"],
    ) == (
        "NVIDIA A100-0",
        "8.0",
        80 << 30,
        108,
    )
    assert (device["memory_bytes_per_second"], device["clock_khz"]) == (2.039e12, 1_410_000)
    assert profile.run.trace.epoch_ns == UTC_NS + 500 * US
    assert profile.run.activity.environment["versions"] == {"nsys": "2024.5.1.113"}
    assert profile.run.activity.framework.title == "PyTorch"


def test_work_goes_by_the_range_around_its_launch(profile: nbprof.Profile) -> None:
    frame = profile.kernels.frame.set_index("kernel")["op"]
    assert frame["void at::native::gemm_kernel<1>(float*)"] == "layer 1"
    # A step holds everything, and is no scope.
    assert frame["void at::native::adam_kernel<2>()"] == ""


def test_a_range_is_no_op_that_could_use_tensor_cores(profile: nbprof.Profile) -> None:
    frame = profile.kernels.frame.set_index("kernel")["op_tensor_core_eligible"]
    gemm = frame["void at::native::gemm_kernel<1>(float*)"]
    assert gemm is pd.NA
    assert [frame[name] for name in frame.index if "nccl" in name] == [False]
    figure = next(f for f in payload.figures(profile.run) if f["key"] == "tensor_cores_unused")
    assert (figure["value"], figure["note"]) == (None, "no op known for 60.0% of kernel time")


def test_what_a_version_did_not_write_is_unknown(tmp_path: Path) -> None:
    export = nsys.training()
    for table in (
        "TARGET_INFO_SESSION_START_TIME",
        "TARGET_INFO_GPU",
        "ThreadNames",
        "PROCESSES",
        "ENUM_NSYS_EVENT_TYPE",
        "TARGET_INFO_CUDA_DEVICE",
    ):
        del export.tables[table]
    export.without |= {
        "graphNodeId",
        "greenContextId",
        "domainId",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "srcKind",
        "dstKind",
    }
    profile = loaded(export, tmp_path)
    assert len(profile.steps.frame) == 4
    assert "graph node id" not in profile.run.trace.args
    assert profile.kernels.frame["static_shared_bytes"].isna().all()
    assert of_key(profile.receipt, "no_start_time")
    assert profile.run.activity.environment["start_time"] is None
    assert profile.run.activity.devices["memory_bytes"].isna().all()
    transfers = profile.run.activity.texts.values[profile.run.activity.transfers.frame()["kind"]]
    assert set(transfers) == {"H2D", "D2H", "memset"}


def test_only_kernels(tmp_path: Path) -> None:
    export = Export()
    export.kernel("k", 10, 20, 1)
    profile = loaded(export, tmp_path)
    assert profile.kernels.frame["total_us"].tolist() == [0.01]
    assert profile.overview["unit"]["kind"] == "recording"
    assert profile.steps.frame["step_time_ms"].tolist() == [0.00001]
    profile.save(tmp_path / "report.html")


def test_events_without_an_end_are_counted_and_left_out(tmp_path: Path) -> None:
    export = Export()
    for start, end in ((10, 20), (30, 50)):
        export.kernel("k", start, end, 1)
    rows = export.tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    rows.append({**rows[0], "end": None})
    profile = loaded(export, tmp_path)
    kernel = profile.kernels.frame.iloc[0]
    assert (kernel["occurrences"], kernel["total_us"]) == (2, 0.03)
    assert numbers(profile.receipt, "untimed_events") == [1]
    assert not of_key(profile.receipt, "negative_durations")


def test_only_ranges(tmp_path: Path) -> None:
    export = Export()
    for i in range(3):
        export.range(f"Iteration {i}/3", 100 * i, 100 * i + 50)
    profile = loaded(export, tmp_path)
    assert profile.steps.frame["name"].tolist() == [
        "Iteration 0/3",
        "Iteration 1/3",
        "Iteration 2/3",
    ]
    assert "no GPU kernels" in profile.run.activity.missing["kernels"]


def test_ranges_that_need_not_nest_lie_beside_one_another(tmp_path: Path) -> None:
    export = nsys.training(2)
    for i in range(3):
        export.range(f"request {i}", (600 + 10 * i) * US, (640 + 10 * i) * US, kind=60)
    export.range("never ended", 610 * US, None)
    export.range("here", 615 * US, None, kind=34, category=3)
    export.range("io", 1, None, kind=33, category=3)
    profile = loaded(export, tmp_path)
    trace = profile.run.trace
    lanes = trace.lanes.set_index("lane")["tid"]
    on = [
        lanes[int(trace.events.lane[row])]
        for i in range(3)
        for row in np.flatnonzero(trace.names[trace.events.name] == f"request {i}")
    ]
    assert on == ["NVTX ranges", "NVTX ranges 2", "NVTX ranges 3"]
    assert numbers(profile.receipt, "open_slices") == [1]
    assert args_of(trace, "here") == {"cat": "nvtx_mark", "ph": "i", "category": "io"}


def test_a_graph_recorded_as_a_whole_is_one_event(tmp_path: Path) -> None:
    export = nsys.training(2)
    ident = export.call("cudaGraphLaunch_v10000", 560 * US, 565 * US)
    export.on_gpu("GRAPH_TRACE", 570 * US, 580 * US, ident, graphId=12, graphExecId=13)
    profile = loaded(export, tmp_path)
    assert args_of(profile.run.trace, "CUDA graph 12")["graph id"] == 12
    assert of_key(profile.receipt, "graphs_without_kernels")


def test_counters_of_the_gpu(tmp_path: Path) -> None:
    export = nsys.training(2)
    export.add(
        "TARGET_INFO_GPU_METRICS",
        typeId=1 << 32,
        sourceId=1,
        typeName="GA100",
        metricId=4,
        metricName="SM Active [%]",
    )
    for i in range(3):
        export.add(
            "GPU_METRICS", timestamp=(500 + 10 * i) * US, typeId=1 << 32, metricId=4, value=10 * i
        )
    trace = loaded(export, tmp_path).run.trace
    assert trace.counters[["series", "time", "value"]].to_numpy().tolist() == [
        ["SM Active [%]", 10**7 * i, 10.0 * i] for i in range(3)
    ]


def test_two_processes_are_two_hosts_with_their_own_devices(tmp_path: Path) -> None:
    export = nsys.training(3, pid=4321, gpu=1)
    profile = loaded(nsys.training(3, pid=4400, gpu=0, out=export), tmp_path)
    assert profile.run.trace.hosts == ["node7 process 4321", "node7 process 4400"]
    assert profile.run.activity.devices["name"].tolist() == ["NVIDIA A100-1", "NVIDIA A100-0"]
    assert profile.steps.frame.groupby("host").size().tolist() == [3, 3]
    assert numbers(profile.receipt, "processes_as_hosts") == [2]


def test_exports_of_several_nodes_are_one_run(tmp_path: Path) -> None:
    paths = [
        nsys.training(3, at=(500 + i) * US).sqlite(tmp_path / f"rank{i}.sqlite") for i in range(2)
    ]
    profile = nbprof.load(paths)
    assert profile.run.trace.hosts == ["node7", "node7 (rank1)"]
    assert len(profile.steps.frame) == 6


def test_what_the_recorder_said_stands_in_the_receipt(tmp_path: Path) -> None:
    export = nsys.training(2)
    export.add("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", id=3, name="WARN", label="Warning")
    export.add("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", id=2, name="INFO", label="Information")
    export.add("DIAGNOSTIC_EVENT", severity=3, text="Not all CUDA events might have been collected")
    export.add("DIAGNOSTIC_EVENT", severity=2, text="Profiling has started.")
    text = str(loaded(export, tmp_path).receipt)
    assert "! Nsight Systems said: Not all CUDA events might have been collected." in text
    assert "Profiling has started" not in text
    assert "Tables not shown: DIAGNOSTIC_EVENT (2)." in text


def test_ops_of_pytorch_are_told_by_the_ranges_that_it_writes(tmp_path: Path) -> None:
    export = nsys.training(2)
    for i in range(2):
        t = (500 + 100 * i) * US
        export.range(
            f"aten::mm, seq = {12 + i}, op_id = {340 + i}, sizes = [[8, 8], [8, 8]]",
            t + 10 * US + 500,
            t + 15 * US,
        )
        export.range(f"ProfilerStep#{i}", t, t + 98 * US)
    profile = loaded(export, tmp_path)
    activity = profile.run.activity
    rows = profile.ops.frame.set_index("op")
    assert rows.loc["aten::mm", "occurrences"].sum() == 4
    kernels = profile.kernels.frame.set_index("kernel")
    assert kernels["op"]["void at::native::gemm_kernel<0>(float*)"] == "aten::mm"
    assert kernels["op_tensor_core_eligible"]["void at::native::gemm_kernel<0>(float*)"]
    shapes = activity.torch_ops.frame()["shape"]
    assert activity.texts.values[shapes[shapes >= 0]].tolist() == ["[[8, 8], [8, 8]]"] * 2
    assert profile.steps.frame["name"].tolist() == ["ProfilerStep#0", "ProfilerStep#1"]


def test_a_packed_database_one_in_an_archive_and_one_in_a_folder(tmp_path: Path) -> None:
    path = nsys.training(2).sqlite(tmp_path / "report1.sqlite")
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / "report1.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        archive.write(path, "runs/report1.sqlite")
    path.rename(tmp_path / "packed" / "plain.sqlite")
    for source in (packed, tmp_path / "both.zip", tmp_path / "packed"):
        assert len(nbprof.load(source).steps.frame) == 2
    assert nbprof.runs(tmp_path / "both.zip")[["run", "format"]].to_numpy().tolist() == [
        ["report1", "nsys"]
    ]


def test_other_databases_are_none_of_them(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as db:
        db.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(ReadError, match="an SQLite database that is not a profile"):
        nbprof.load(tmp_path / "a.sqlite")
    with sqlite3.connect(tmp_path / "b.sqlite") as db:
        db.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT)")
    with pytest.raises(ReadError, match="a profile of nvprof"):
        nbprof.load(tmp_path / "b.sqlite")
    export = Export()
    nsys.facts(export, 0)
    with pytest.raises(ReadError, match=r"no events: .*nsys profile --trace=cuda,nvtx"):
        loaded(export, tmp_path, "c.sqlite")


def test_a_damaged_table_of_parquet_is_an_error_in_words(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    folder = nsys.training(2).parquet(tmp_path / "report1_pqtdir")
    table = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table.write_bytes(table.read_bytes()[:-30] + bytes(30))
    with pytest.raises(
        ReadError, match=r"KERNEL.parquet: this Parquet file is damaged: .* export it again"
    ):
        nbprof.load(folder)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = nsys.training(2).parquet(tmp_path / "report1_pqtdir")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ReadError, match=r"pip install nbprof\[parquet\]"):
        nbprof.load(folder)


def tool(monkeypatch: pytest.MonkeyPatch, where: Path, code: str) -> None:
    """Puts an `nsys` on the PATH that runs some Python."""
    where.mkdir()
    (where / "tool.py").write_text(code)
    script = where / "nsys"
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(where / "tool.py"))} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}{os.pathsep}{os.environ['PATH']}")


def test_a_report_is_exported_where_the_tool_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report1.nsys-rep"
    report.write_bytes(b"\xa5" * 64)
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(
        RawError, match=r"a report of Nsight Systems. .* nsys export --type sqlite report1.nsys-rep"
    ):
        nbprof.load(report)
    made = nsys.training(2).sqlite(tmp_path / "made.sqlite")
    if os.name != "nt":
        check = f"import shutil, sys\nassert sys.argv[1:5] == ['export', '--type', 'sqlite', '--output'] and sys.argv[6] == {str(report)!r}\n"
        tool(monkeypatch, tmp_path / "bin", f"{check}shutil.copy({str(made)!r}, sys.argv[5])")
        assert len(nbprof.load(report).steps.frame) == 2
        (tmp_path / "bin" / "tool.py").write_text(
            "import sys\nsys.exit('the report is of a newer version')"
        )
        with pytest.raises(ReadError, match=r"nsys export failed with code 1: .*newer version"):
            nbprof.load(report)
    # One that `nsys stats` left beside it is as good.
    made.rename(tmp_path / "report1.sqlite")
    os.utime(tmp_path / "report1.sqlite", ns=(2**62, 2**62))
    assert len(nbprof.load(report).steps.frame) == 2


def test_ids_of_threads_have_24_bits_each(tmp_path: Path) -> None:
    export = nsys.training(2, pid=0xABCDEF)
    trace = loaded(export, tmp_path).run.trace
    assert "11259375" in trace.lanes["pid"].tolist()
    assert HARDWARE >> 56 == 1
