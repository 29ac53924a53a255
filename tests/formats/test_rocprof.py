"""The reader of rocprofv3's files: what is recognized, which files are one run, and what is left of
damaged ones.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import nbprof
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.core.trace import Trace
from nbprof.formats.rocprof import rocprof as reader
from nbprof.sources.sniff import recognise
from tests.support import rocprof
from tests.support.notes import numbers, of_key


def _trace(folder: Path, files: dict[str, bytes]) -> Trace:
    rocprof.write(folder, files)
    return reader.read([LocalFile(folder / name) for name in files])


def _arg(trace: Trace, name: str, *, text: bool = False) -> list[object]:
    """The values of an arg by event, None where there is none."""
    if name not in trace.args:
        return [None] * len(trace.events)
    if text:
        return [value or None for value in trace.texts(trace.text_arg(name))]
    return [None if value < 0 else value for value in trace.arg(name).tolist()]


@pytest.mark.parametrize(
    "name", ["717_results.json", "717_results.db", "717_kernel_trace.csv", "anything", "a.txt"]
)
def test_content_tells_what_a_file_is(name: str) -> None:
    run = rocprof.training(1)
    for data, what in (
        (rocprof.as_json(run), "JSON"),
        (rocprof.as_db(run), "rocpd"),
        (rocprof.as_db(run, schema=4), "rocpd"),
        *((table, "table") for key, table in rocprof.as_csv(run).items() if "stats" not in key),
        *(
            (table, "table")
            for key, table in rocprof.as_csv(run, "6.2").items()
            if "stats" not in key
        ),
    ):
        kind = recognise(data[: 1 << 16], name)
        assert (kind.format, kind.sure) == ("rocprof", True)
        assert what in kind.what
    kind = recognise(rocprof.as_csv(run)["717_kernel_stats.csv"], name)
    assert kind.format == ""
    assert "*_trace.csv" in kind.remedy


def test_kernels_state_what_the_profiler_does(tmp_path: Path) -> None:
    trace = _trace(tmp_path, {"717_results.json": rocprof.as_json(rocprof.training(1))})
    kernels = [i for i, cat in enumerate(_arg(trace, "cat", text=True)) if cat == "kernel"]
    names = [str(trace.names[trace.events.name[i]]).partition("(")[0] for i in kernels]
    assert names == ["Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SN"] * 3 + [
        "void add<float>",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    ]
    # 1024 x 1000 work-items in groups of 64 x 16: the last row of them is half filled.
    assert [_arg(trace, "grid", text=True)[i] for i in kernels] == ["[16, 63, 1]"] * 3 + [
        "[4, 1, 1]",
        "[16, 1, 1]",
    ]
    assert [_arg(trace, "block", text=True)[i] for i in kernels] == ["[64, 16, 1]"] * 3 + [
        "[256, 1, 1]",
        "[512, 1, 1]",
    ]
    for name, values in {
        "device": [0, 0, 0, 0, 1], "stream": [1, 1, 1, 1, 2], "queue": [1, 1, 1, 1, 2], "shared memory": [16896] * 3 + [1024, 512],
        "scratch size": [0, 0, 0, 16, 0], "registers per thread": [128] * 3 + [8, 64], "AccVGPR count": [64] * 3 + [0, 0],
        "SGPR count": [96] * 3 + [16, 48], "dispatch id": [1, 2, 3, 4, 5],
    }.items():  # fmt: skip
        assert [_arg(trace, name)[i] for i in kernels] == values
    # A counter is the sum of its instances.
    counted = trace.args["SQ_WAVES"]
    assert counted.event.tolist() == kernels
    assert counted.floats().tolist() == [16.0, 32.0, 48.0, 64.0, 80.0]
    assert of_key(trace.receipt, "grids_in_workgroups")


def test_copies_go_by_direction_and_bytes(tmp_path: Path) -> None:
    trace = _trace(tmp_path, {"717_results.db": rocprof.as_db(rocprof.training(1))})
    copies = [i for i, cat in enumerate(_arg(trace, "cat", text=True)) if cat == "gpu_memcpy"]
    assert [_arg(trace, "bytes")[i] for i in copies] == [4 << 20, 4]
    assert [
        (_arg(trace, "source", text=True)[i], _arg(trace, "destination", text=True)[i])
        for i in copies
    ] == [
        ("CPU 0", "GPU 0"),
        ("GPU 0", "CPU 0"),
    ]
    # rocpd writes 0 for the size of scratch memory, which is not known.
    sized = dict(zip(_arg(trace, "cat", text=True), _arg(trace, "bytes"), strict=True))
    assert (sized["MEMORY_ALLOCATION"], sized["SCRATCH_MEMORY"]) == (1 << 20, None)


def test_times_are_exact_and_have_no_date(tmp_path: Path) -> None:
    run = rocprof.training(1)
    later = 9_400_000_000_000_001
    for row in (
        *run.kernels,
        *run.copies,
        *run.calls,
        *run.markers,
        *run.allocations,
        *run.scratch,
    ):
        # Beyond what a float64 counts exactly: the machine has run for a hundred days.
        row["start"] += later - rocprof.EPOCH
        row["end"] += later - rocprof.EPOCH
    begun = sorted(1000 * (k["start"] - later) for k in run.kernels)
    broken = rocprof.as_csv(run)
    broken["717_kernel_trace.csv"] += (
        b'"KERNEL_DISPATCH","Agent 1",1,1,717,99,1,"k",1,soon,later,0,0,0,0,0,1,1,1,1,1,1\n'
    )
    for i, files in enumerate(
        (
            {"a_results.json": rocprof.as_json(run)},
            {"a_results.db": rocprof.as_db(run, schema=4)},
            broken,
        )
    ):
        trace = _trace(tmp_path / str(i), files)
        assert trace.epoch_ns == later
        rows = [j for j, cat in enumerate(_arg(trace, "cat", text=True)) if cat == "kernel"]
        assert sorted(trace.events.start[rows].tolist()) == begun
    assert numbers(trace.receipt, "events_without_time") == [1]
    assert nbprof.load(tmp_path / "0").overview["environment"]["start_time"] is None


def test_processes_of_a_folder_are_one_run(tmp_path: Path) -> None:
    for pid in (717, 718):
        rocprof.write(tmp_path, rocprof.as_csv(rocprof.training(1, pid=pid)))
    found = nbprof.runs(tmp_path)
    assert found[["hosts", "format"]].to_numpy().tolist() == [[20, "rocprof"]]
    profile = nbprof.load(tmp_path)
    assert profile.run.hosts == ["process 717", "process 718"]
    assert profile.kernels.frame["occurrences"].sum() == 10
    # The database says more, and is the same recording.
    for pid in (717, 718):
        (tmp_path / f"{pid}_results.db").write_bytes(rocprof.as_db(rocprof.training(2, pid=pid)))
    profile = nbprof.load(tmp_path)
    assert profile.kernels.frame["occurrences"].sum() == 20
    assert "the same recording in another format" in str(profile.receipt)
    # Another run into the same folder, an hour later.
    (tmp_path / "900_results.json").write_bytes(rocprof.as_json(rocprof.training(3, pid=900)))
    os.utime(tmp_path / "900_results.json", ns=(4 * 10**18, 4 * 10**18))
    assert nbprof.runs(tmp_path)["run"].tolist()[0] == "900"
    assert len(nbprof.load(tmp_path).steps.frame) == 3


def test_processes_in_one_file(tmp_path: Path) -> None:
    runs = [rocprof.training(1, pid=717), rocprof.training(1, pid=718)]
    runs[1].host = "other-node"
    for files in (
        {"out_results.json": rocprof.as_json(*runs)},
        {"out_results.db": rocprof.as_db(*runs)},
    ):
        trace = _trace(tmp_path, files)
        assert len(trace.hosts) == 2
        assert len(trace.events) == 2 * len(
            _trace(tmp_path / "one", {"x_results.json": rocprof.as_json(runs[0])}).events
        )
    assert trace.hosts == ["gpu-node process 717", "other-node process 718"]
    assert of_key(trace.receipt, "unrelated_clocks")


def test_one_table_alone_says_that_there_are_others(tmp_path: Path) -> None:
    rocprof.write(tmp_path, rocprof.as_csv(rocprof.training(2)))
    profile = nbprof.load(tmp_path / "717_kernel_trace.csv")
    assert profile.kernels.frame["occurrences"].sum() == 10
    assert "other tables of the same recording: load the folder" in str(profile.receipt)
    assert of_key(profile.receipt, "no_agent_info")
    # The numbers of agents, which count processors too.
    assert sorted(set(profile.trace.lanes["process"])) == ["GPU 1", "GPU 2"]


def test_agents_go_by_the_numbers_that_the_profiler_was_told_to_use(tmp_path: Path) -> None:
    run = rocprof.training(1)
    plain = rocprof.as_csv(run)
    for i, (old, new) in enumerate(((b'"Agent 1"', b'"GPU 0"'), (b'"Agent 1"', b'"Agent 2"'))):
        files = {
            name: data.replace(b'"Agent 2"', b'"GPU 1"' if i == 0 else b'"Agent 3"').replace(
                old, new
            )
            for name, data in plain.items()
        }
        files = {
            name: data.replace(b'"Agent 0"', b'"CPU 0"' if i == 0 else b'"Agent 0"')
            for name, data in files.items()
        }
        trace = _trace(tmp_path / str(i), files)
        assert [
            d
            for d, cat in zip(_arg(trace, "device"), _arg(trace, "cat", text=True), strict=True)
            if cat == "kernel"
        ] == [
            0,
            0,
            0,
            0,
            1,
        ]


def test_without_hip_there_are_queues(tmp_path: Path) -> None:
    run = rocprof.training(1)
    for row in (*run.kernels, *run.copies):
        row["stream"] = 0
    (tmp_path / "a_results.json").write_bytes(rocprof.as_json(run))
    lanes = nbprof.load(tmp_path).trace.lanes
    assert [
        tuple(row)
        for row in lanes[lanes["kind"] == "device"][["process", "thread", "events"]]
        .to_numpy()
        .tolist()
    ] == [
        ("GPU 0", "Copies to the device", 1),
        ("GPU 0", "Copies from the device", 1),
        ("GPU 0", "Queue 1", 4),
        ("GPU 1", "Queue 2", 1),
    ]


def test_counters_alone_are_kernels(tmp_path: Path) -> None:
    run = rocprof.training(1)
    name = "717_counter_collection.csv"
    trace = _trace(tmp_path, {name: rocprof.as_csv(run)[name]})
    assert (len(trace.events), len(trace.args["GRBM_COUNT"])) == (5, 5)
    # Before ROCm 6.4 they had no times.
    with pytest.raises(
        ReadError, match=r"717_counter_collection\.csv: it has no kernel.*--kernel-trace"
    ):
        _trace(tmp_path / "old", {name: rocprof.as_csv(run, "6.2")[name]})
    tree = rocprof.tree(run)
    tree["buffer_records"]["kernel_dispatch"] = []
    trace = _trace(
        tmp_path / "json", {"a_results.json": json.dumps({"rocprofiler-sdk-tool": [tree]}).encode()}
    )
    assert _arg(trace, "cat", text=True).count("kernel") == 5


def test_work_that_states_a_call_of_hsa_goes_to_the_call_around_it(tmp_path: Path) -> None:
    run = rocprof.training(2)
    for copy in run.copies:
        hip = next(call for call in run.calls if call["correlation"] == copy["correlation"])
        copy["correlation"] = run.call(
            "HSA_CORE_API", "hsa_queue_create", hip["start"] + 500, 1_000
        )
    (tmp_path / "a_results.json").write_bytes(rocprof.as_json(run))
    profile = nbprof.load(tmp_path)
    launches = profile.run.activity.launches.frame()
    names = profile.run.trace.names[
        profile.run.trace.events.name[launches["event"][launches["target"] >= 0]]
    ]
    assert sorted(set(names)) == ["hipLaunchKernel", "hipMemcpyAsync", "hipMemcpyWithStream"]
    assert not (launches["target"] < 0).any()


def test_a_cut_json_keeps_what_comes_before(tmp_path: Path) -> None:
    data = rocprof.as_json(rocprof.training(4))
    whole = len(_trace(tmp_path, {"a_results.json": data}).events)
    counts = []
    for part in (0.55, 0.7, 0.9, 0.999):
        trace = _trace(tmp_path, {"a_results.json": data[: int(part * len(data))]})
        assert of_key(trace.receipt, "file_read_in_part")
        counts.append(len(trace.events))
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1] <= whole
    with pytest.raises(ReadError, match=r"a_results\.json"):
        _trace(tmp_path, {"a_results.json": data[:40]})


def test_records_that_lack_something_are_left_out_alone(tmp_path: Path) -> None:
    tree = rocprof.tree(rocprof.training(2))
    records = tree["buffer_records"]
    del records["kernel_dispatch"][0]["end_timestamp"]
    records["kernel_dispatch"][1] = [1, 2]
    records["kernel_dispatch"][2]["start_timestamp"] = 1 << 70
    records["kernel_dispatch"][3]["dispatch_info"]["queue_id"] = None
    records["memory_copy"][0]["bytes"] = "many"
    records["hip_api"][0]["operation"] = 999
    tree["strings"]["buffer_records"][1] = "HSA"
    trace = _trace(
        tmp_path, {"a_results.json": json.dumps({"rocprofiler-sdk-tool": tree}).encode()}
    )
    categories = _arg(trace, "cat", text=True)
    assert categories.count("kernel") == 7
    assert numbers(trace.receipt, "events_without_time") == [3]
    queues = [
        queue
        for queue, cat in zip(_arg(trace, "queue"), categories, strict=True)
        if cat == "kernel"
    ]
    assert queues.count(None) == 1
    assert _arg(trace, "bytes").count(None) == len(trace.events) - 4
    assert "HIP_RUNTIME_API operation 999" in trace.names


def test_damaged_tables_cost_their_rows(tmp_path: Path) -> None:
    files = rocprof.as_csv(rocprof.training(1))
    lines = files["717_kernel_trace.csv"].splitlines(keepends=True)
    lines[1] = lines[1].replace(b"8819330200", b"x")
    lines[2] = lines[2][:40] + b"\n"
    lines[3] = lines[3].rstrip() + b",1,2,3\n"
    files["717_kernel_trace.csv"] = b"".join(lines)
    files["717_hip_api_trace.csv"] = files["717_hip_api_trace.csv"].splitlines(keepends=True)[0]
    trace = _trace(tmp_path, files)
    assert _arg(trace, "cat", text=True).count("kernel") == 3
    assert numbers(trace.receipt, "events_without_time") == [2]
    assert of_key(trace.receipt, "unmatched_counters")


def test_a_damaged_database_is_an_error(tmp_path: Path) -> None:
    data = rocprof.as_db(rocprof.training(3))
    with pytest.raises(ReadError, match=r"a_results\.db.*(damaged|truncated)"):
        _trace(tmp_path, {"a_results.db": data[: len(data) // 2]})


def test_what_a_database_lacks_is_unknown(tmp_path: Path) -> None:
    import sqlite3

    run = rocprof.training(2)
    (tmp_path / "a_results.db").write_bytes(rocprof.as_db(run))
    with sqlite3.connect(tmp_path / "a_results.db") as base:
        tables = [
            name for (name,) in base.execute("select name from sqlite_master where type = 'table'")
        ]
        for view in [
            name for (name,) in base.execute("select name from sqlite_master where type = 'view'")
        ]:
            base.execute(f"drop view {view}")
        for name in tables:
            if any(
                part in name
                for part in (
                    "_info_agent_",
                    "_info_kernel_symbol_",
                    "_pmc_event_",
                    "_event_0000",
                    "_memory_copy_",
                    "_info_node_",
                )
            ):
                base.execute(f'drop table "{name}"')
    base.close()
    trace = reader.read([LocalFile(tmp_path / "a_results.db")])
    categories = _arg(trace, "cat", text=True)
    assert categories.count("kernel") == 10
    assert "kernel 1" in trace.names
    assert "registers per thread" not in trace.args
    assert of_key(trace.receipt, "unlisted_gpu")
    assert np.unique(trace.lanes["host"]).tolist() == ["a"]


def _database(path: Path, **tables: str) -> bytes:
    with sqlite3.connect(path) as base:
        for name, columns in tables.items():
            base.execute(f"create table {name} ({columns})")
    return path.read_bytes()


_V1_KERNELS = (
    '"Index" INTEGER, "KernelName" TEXT, "gpu-id" INTEGER, "BeginNs" INTEGER, "EndNs" INTEGER'
)
_V1_CALLS = (
    '"BeginNs" INTEGER, "EndNs" INTEGER, "pid" INTEGER, "tid" INTEGER, "Name" TEXT, "args" TEXT'
)


def test_files_of_the_predecessor_are_called_by_its_name(tmp_path: Path) -> None:
    files = {
        "results.csv": b'"Index","KernelName","gpu-id","queue-id","grd","wgr","DispatchNs","BeginNs","EndNs"\n0,"k",0,0,64,64,1,2,3\n',
        "results.stats.csv": b'"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"k",1,5,5,100\n',
        "new.db": _database(tmp_path / "new.db", KERN=_V1_KERNELS, HIP=_V1_CALLS),
        "old.db": _database(tmp_path / "old.db", A=_V1_KERNELS),
    }
    for name, data in files.items():
        kind = recognise(data, name)
        assert (kind.format, kind.what.endswith("of rocprof (v1)")) == ("", True), name
        assert "rocprofv3 --runtime-trace" in kind.remedy


def test_databases_with_a_table_of_the_same_name_are_no_recordings(tmp_path: Path) -> None:
    assert (
        "not a profile" in recognise(_database(tmp_path / "a.db", COPY="id", A="id"), "a.db").what
    )
    data = _database(
        tmp_path / "b.rpd",
        rocpd_string="id, string",
        rocpd_api="id",
        rocpd_api_ops="id",
        rocpd_op="id",
    )
    kind = recognise(data, "b.rpd")
    assert (kind.format, "rocmProfileData" in kind.what) == ("", True)


def test_a_table_that_ends_within_a_row_lacks_that_row(tmp_path: Path) -> None:
    """Of a number that is cut off, what remains is another one."""
    files = rocprof.as_csv(rocprof.training())
    name = next(name for name in files if name.endswith("kernel_trace.csv"))
    rows = files[name].splitlines(keepends=True)
    whole, cut = (tmp_path / each for each in ("whole", "cut"))
    for folder, data in ((whole, b"".join(rows[:-1])), (cut, b"".join(rows)[:-4])):
        folder.mkdir()
        rocprof.write(folder, files | {name: data})
    totals = [nbprof.load(folder).kernels.by_name()["total_us"].sum() for folder in (whole, cut)]
    assert totals[0] == totals[1] > 0
    (note,) = of_key(nbprof.load(cut).receipt, "file_read_in_part")
    assert note.text.startswith(f"{name}: The file ends within its last row")
