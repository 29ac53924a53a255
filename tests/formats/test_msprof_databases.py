"""Databases of Ascend's profilers: where they lie, beside what, in which version, and how
damaged.
"""

from __future__ import annotations

import shutil
import sqlite3
import zipfile
from decimal import Decimal

import numpy as np
import pytest

import nbprof
from nbprof.core import sqlite
from nbprof.core.errors import ReadError
from nbprof.formats.msprof import msprof
from nbprof.formats.msprof.database import NONE, among, first_of
from nbprof.sources import locate
from nbprof.sources.sniff import recognise
from tests.support import ascend_db
from tests.support import msprof as made
from tests.support.notes import numbers, of_key

TORCH, PROF = "h_1_20250109084754000_ascend_pt", "PROF_000001_20250109084754000_A"
BASE = "ascend_pytorch_profiler_0.db"


@pytest.fixture(scope="module")
def tasks():
    return made.training(2)[0]


def read(place):
    return msprof.read(locate.find(place).files)


def both(folder, tasks):
    """A recording of `export_type=[Text, Db]`."""
    made.torch_npu(folder, tasks)
    ascend_db.main(folder / "ASCEND_PROFILER_OUTPUT" / BASE, tasks, steps=2)
    ascend_db.analysis(folder / "ASCEND_PROFILER_OUTPUT" / "analysis.db")
    return folder


def test_text_and_database_are_read_once(tmp_path, tasks):
    alone = read(made.torch_npu(tmp_path / "a" / TORCH, tasks))
    trace = read(both(tmp_path / "b" / TORCH, tasks))
    assert len(trace.events) == len(alone.events)
    assert len(trace.tables["op_summary"]) == 1
    (note,) = of_key(trace.receipt, "redundant_database")
    assert note.text.startswith(f"{BASE} ")
    # What the text lacks comes out of the other database.
    (note,) = of_key(trace.receipt, "database_contents")
    assert (
        note.text
        == "Read from analysis.db: communication, communication_bandwidth, communication_matrix, step_trace_time."
    )


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (
            "trace_view.json",
            "the timeline, api_statistic, task_time; op_summary: from the other files of the recording.",
        ),
        ("kernel_details.csv", "api_statistic, op_summary, task_time."),
    ],
)
def test_what_the_text_lacks_is_read_from_the_database(tmp_path, tasks, gone, told):
    folder = both(tmp_path / TORCH, tasks)
    (folder / "ASCEND_PROFILER_OUTPUT" / gone).unlink()
    trace = read(folder)
    texts = [note.text for note in of_key(trace.receipt, "database_contents")]
    assert any(text.startswith(f"Read from {BASE}: {told}") for text in texts)
    whole = read(made.torch_npu(tmp_path / "a" / TORCH, tasks))
    assert len(trace.events) == len(whole.events)
    (table,) = trace.tables["op_summary"]
    # Each row has its event, of the same name at the same moment.
    events = table.frame["event"].to_numpy()
    assert (events >= 0).all()
    assert [trace.names[trace.events.name[e]] for e in events] == table.frame["op_name"].astype(
        str
    ).tolist()
    assert trace.events.start[events].tolist() == table.frame["start_ps"].tolist()


def test_the_newest_of_several_exports_counts(tmp_path, tasks):
    folder = ascend_db.prof(tmp_path / PROF, tasks)
    shutil.copy(folder / f"msprof_{made.DATE}.db", folder / "msprof_20240101000000.db")
    trace = read(folder)
    assert len(trace.tables["task_time"]) == 1
    assert numbers(trace.receipt, "older_exports") == [2, 1]


def test_ranks_in_one_folder_are_hosts_of_one_run(tmp_path, tasks):
    for rank in (0, 1):
        ascend_db.main(tmp_path / f"ascend_pytorch_profiler_{rank}.db", tasks, steps=2, rank=rank)
    p = nbprof.load(tmp_path)
    assert p.run.trace.hosts == ["rank 0", "rank 1"]
    assert len(p.steps.frame) == 4
    assert p.ascend.table("op_summary").groupby("host").size().tolist() == [8, 8]


@pytest.mark.parametrize("name", ["msprof_20250109084754.db", "run.db", "renamed.sqlite"])
def test_one_file_whatever_its_name(tmp_path, tasks, name):
    ascend_db.main(tmp_path / name, tasks, steps=2)
    assert recognise((tmp_path / name).read_bytes()[:65536], name).format == "msprof"
    assert len(nbprof.load(tmp_path / name).kernels.frame) == 3


def test_in_an_archive(tmp_path, tasks):
    folder = ascend_db.torch_npu(tmp_path / TORCH, tasks)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for path in folder.rglob("*"):
            packed.write(path, path.relative_to(tmp_path))
    assert len(nbprof.load(tmp_path / "a.zip").steps.frame) == 2


def test_a_second_open_is_the_same(tmp_path, tasks):
    folder = ascend_db.torch_npu(tmp_path / TORCH, tasks, memory=True, counters=True)
    first, second = nbprof.load(folder), nbprof.load(folder)
    assert first.steps.frame.equals(second.steps.frame)
    assert len(first.run.trace.counters) == len(second.run.trace.counters) == 8


def test_samples_state_their_unit(tmp_path, tasks):
    counters = read(ascend_db.prof(tmp_path / PROF, tasks, memory=True, counters=True)).counters
    values = counters.groupby("series")["value"].apply(list).to_dict()
    assert values["AI Core Freq MHz"] == [800, 1800]
    assert values["HBM 0 read bandwidth(B/s)"] == [1000]
    assert values["NPU MEM APP hbm(B)"] == [1 << 20]


def changed(tmp_path, tasks, *statements, **more):
    """A database after some statements of SQL."""
    path = ascend_db.main(tmp_path / BASE, tasks, **more)
    with sqlite3.connect(path) as base:
        for statement in statements:
            base.execute(statement)
    return path


def test_the_stack_of_an_op_and_the_arrow_to_its_kernel(tmp_path, tasks):
    trace = read(changed(tmp_path, tasks, steps=2))
    stacks = trace.text_arg("Call stack")
    assert {trace.strings[c] for c in stacks[stacks >= 0]} == {
        "train.py(9): step;\ntrain.py(20): main"
    }
    categories = [trace.strings[c] for c in trace.flows.category]
    assert categories.count("async_npu") == 4
    assert categories.count("HostToDevice") == 2 * len(tasks)


def test_parts_of_collectives_lie_on_planes(tmp_path, tasks):
    columns = "name, globalTaskId, taskType, planeId, groupName, notifyId, srcRank, dstRank, transportType, size, dataType, linkType, opId"
    shared = next(i for i, t in enumerate(tasks) if t.stream is None)
    name, group = (
        "select id from STRING_IDS where value = 'MEMCPY_ASYNC'",
        "select groupName from COMMUNICATION_OP",
    )
    path = changed(
        tmp_path,
        tasks,
        f"create table COMMUNICATION_TASK_INFO ({columns}, bandwidth)",
        f"insert into COMMUNICATION_TASK_INFO values (({name}), {ascend_db.COPY}, ({name}), 1, ({group}), 4294967295, 0, 1, 0, 512, 65534, 1, {shared}, 2e9)",
        "alter table COMMUNICATION_OP drop column deviceId",
    )
    trace = read(path)
    lanes = trace.lanes[trace.lanes["thread"] == "Plane 1"]
    (event,) = (trace.events.lane == lanes["lane"].iloc[0]).nonzero()[0]
    assert trace.arg("size(Byte)")[event] == 512
    assert trace.strings[trace.text_arg("link type")[event]] == "HCCS"
    assert trace.text_arg("data type")[event] == -1
    assert trace.arg("notify_id")[event] == -1
    # Old versions state the device of a collective by its parts, or not at all.
    assert trace.tables["op_summary"][0].frame["device_id"].tolist() == [0] * len(tasks)


def test_columns_of_older_versions(tmp_path, tasks):
    path = changed(
        tmp_path,
        tasks,
        "alter table COMPUTE_TASK_INFO rename column blockNum to blockDim",
        "alter table COMPUTE_TASK_INFO drop column opState",
        "drop table ENUM_API_TYPE",
        "drop table ENUM_HCCL_DATA_TYPE",
    )
    trace = read(path)
    frame = trace.tables["op_summary"][0].frame
    assert frame["block_num"].dropna().unique().tolist() == [24]
    assert frame["op_state"].isna().all()
    assert "Node@launch" in trace.names
    assert {trace.strings[c] for c in trace.text_arg("data_type") if c >= 0} == {"4"}


def test_counters_of_a_number_that_two_tasks_have(tmp_path, tasks):
    later = int((made.EPOCH_US + 9_000) * 1000)
    again = f"insert into TASK select {later}, {later} + 5000, deviceId, connectionId, 1, globalPid, taskType, contextId, streamId, taskId, modelId"
    path = changed(tmp_path, tasks, f"{again} from TASK where globalTaskId = 1")
    trace = read(path)
    frame = trace.tables["op_summary"][0].frame
    ours = frame[frame["op_name"] == "gradients/layer/MatMul_1"]
    assert ours["aic_mac_ratio"].isna().tolist() == [True, False, True]
    assert of_key(trace.receipt, "ambiguous_task_numbers")
    with sqlite3.connect(path) as base:
        base.execute("alter table TASK_PMU_INFO add column timestampNs INTEGER")
        base.execute(
            f"update TASK_PMU_INFO set timestampNs = {later} + 5000, value = 0.75 where globalTaskId = 1"
        )
    frame = read(path).tables["op_summary"][0].frame
    ours = frame[frame["op_name"] == "gradients/layer/MatMul_1"]["aic_mac_ratio"]
    assert ours.isna().tolist() == [True, False, False]
    assert ours.tolist()[1:] == [0.5, 0.75]


def test_memory_of_graphs_is_paired(tmp_path, tasks):
    at = int(made.EPOCH_US * 1000)
    rows = [
        ("a", 16, "allocate", 512, 0, 512),
        ("a", 16, "release", 512, 10, 0),
        ("b", 16, "allocate", 64, 20, 64),
        ("c", 8, "release", 9, 30, 0),
    ]
    values = ", ".join(
        f"((select id from STRING_IDS where value = '{n}'), {addr}, (select id from STRING_IDS where value = '{kind}'), {size}, {at + 1000 * us}, 0, {held}, 1024, NULL, 0)"
        for n, addr, kind, size, us, held in rows
    )
    texts = ", ".join(
        f"({900 + i}, '{text}')" for i, text in enumerate(("a", "b", "c", "allocate", "release"))
    )
    columns = "operatorName, addr, type, size, timestampNs, globalTid, totalAllocate, totalReserve, component, deviceId"
    trace = read(
        changed(
            tmp_path,
            tasks,
            f"insert into STRING_IDS values {texts}",
            f"create table NPU_OP_MEM ({columns})",
            f"insert into NPU_OP_MEM values {values}",
        )
    )
    frame = trace.tables["operator_memory"][0].frame.sort_values("name")
    assert frame["name"].tolist() == ["a", "b"]
    assert frame["duration_us"].tolist()[0] == 10
    assert frame["release_ps"].isna().tolist() == [False, True]
    assert frame["release_allocated_bytes"].tolist()[0] == 0
    assert trace.tables["memory_record"][0].frame["allocated_bytes"].tolist() == [512, 0, 64, 0]


def test_what_is_not_documented_is_shown_raw(tmp_path, tasks):
    path = changed(
        tmp_path,
        tasks,
        "create table NEW_THING (a INTEGER, b TEXT)",
        "insert into NEW_THING values (3, 'x')",
    )
    p = nbprof.load(path)
    assert p.ascend.table("NEW_THING")[["a", "b"]].to_numpy().tolist() == [[3, "x"]]
    (note,) = of_key(p.receipt, "undocumented_tables")
    assert "NEW_THING" in note.text


def test_rows_without_a_time_are_counted(tmp_path, tasks):
    path = changed(
        tmp_path,
        tasks,
        "update CANN_API set startNs = 'x' where connectionId = 1",
        "update TASK set endNs = NULL where connectionId = 2",
    )
    trace = read(path)
    assert trace.receipt.skipped == {"left out: time (ts) is not a number or is out of range.": 1}
    assert "without a duration" in str(trace.receipt)


def test_a_damaged_table_is_left_out_by_name(tmp_path, tasks):
    path = ascend_db.main(tmp_path / BASE, tasks, steps=2)
    with sqlite3.connect(path) as base:
        (page,) = base.execute(
            "select rootpage from sqlite_master where name = 'CANN_API'"
        ).fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096] = 99
    path.write_bytes(data)
    trace = read(path)
    (note,) = of_key(trace.receipt, "damaged_table")
    assert "CANN_API" in note.text
    assert "api_statistic" not in trace.tables
    assert "op_summary" in trace.tables


@pytest.mark.parametrize("left", [0, 60, 5_000])
def test_a_database_that_is_cut_off_is_a_sentence(tmp_path, tasks, left):
    path = ascend_db.main(tmp_path / BASE, tasks)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ReadError) as error:
        nbprof.load(path)
    assert BASE in str(error.value)
    # Beside text it costs itself alone.
    folder = made.torch_npu(tmp_path / TORCH, tasks)
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()
    shutil.copy(path, folder / "ASCEND_PROFILER_OUTPUT" / BASE)
    assert f"{BASE} " in str(read(folder).receipt)


def test_a_size_of_pages_that_is_not_its_own(tmp_path, tasks):
    path = ascend_db.main(tmp_path / BASE, tasks, page=512)
    data = bytearray(path.read_bytes())
    data[16:18] = (4096).to_bytes(2, "big")
    path.write_bytes(data)
    with pytest.raises(ReadError, match=r"damaged|truncated"):
        nbprof.load(path)


def test_an_export_that_was_stopped(tmp_path):
    path = ascend_db.main(tmp_path / BASE, [made.Task("a", "b", Decimal(1), Decimal(1))])
    with sqlite3.connect(path) as base:
        for (name,) in base.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall():
            base.execute(f"delete from {name}")
    with pytest.raises(ReadError, match="has no rows that nbprof reads"):
        nbprof.load(path)


def test_no_column_is_taken_out_of_the_file_twice(tmp_path, tasks, monkeypatch):
    path = ascend_db.main(tmp_path / BASE, tasks, steps=2)
    read, seen = sqlite.Database.read, []

    def noted(self, table, *columns):
        seen.extend((table, name) for name in columns or self.tables[table].columns)
        return read(self, table, *columns)

    monkeypatch.setattr(sqlite.Database, "read", noted)
    msprof.read(locate.find(path).files)
    events = {table for table, _ in seen if table in ("TASK", "CANN_API", "COMPUTE_TASK_INFO")}
    assert events == {"TASK", "CANN_API", "COMPUTE_TASK_INFO"}
    twice = {key for key in seen if seen.count(key) > 1}
    assert not {key for key in twice if key[0] in events}, twice


@pytest.mark.parametrize("low", [0, -5, 2**62, NONE, 2**63 - 60])
def test_ids_are_looked_up_alike_whether_they_have_gaps_or_not(low: int) -> None:
    rng = np.random.default_rng(abs(low) % 1000)
    for _ in range(200):
        found, wanted = (low + rng.integers(0, 50, int(n)) for n in rng.integers(0, 40, 2))
        wanted = np.append(wanted, [NONE, -1, 0, 2**63 - 1])
        apart = np.where(found == low, NONE, found) if rng.random() < 0.5 else found
        for ids in (found, apart):
            first = {value: len(ids) - 1 - i for i, value in enumerate(ids[::-1].tolist())}
            assert first_of(ids, wanted).tolist() == [
                first.get(value, -1) for value in wanted.tolist()
            ]
            assert among(wanted, ids).tolist() == [value in first for value in wanted.tolist()]


def test_overlap_analysis_without_the_names_of_its_kinds(tmp_path, tasks):
    at = int(made.EPOCH_US * 1000)
    path = changed(
        tmp_path,
        tasks,
        "drop table ENUM_OVERLAP_ANALYSIS_TYPE",
        "create table OVERLAP_ANALYSIS (deviceId, startNs, endNs, type)",
        f"insert into OVERLAP_ANALYSIS values (0, {at}, {at + 500}, 0), (0, {at}, {at + 9}, 3), (0, {at}, {at + 9}, 7)",
    )
    lanes = read(path).lanes
    named = lanes.loc[lanes["process"] == "Overlap Analysis", "thread"]
    assert sorted(named) == ["7", "Computing", "Free"]


def test_a_database_that_is_called_dat(tmp_path, tasks):
    folder = ascend_db.torch_npu(tmp_path / TORCH, tasks)
    expected = nbprof.load(folder).kernels.frame
    for path in (folder / "ASCEND_PROFILER_OUTPUT").glob("*.db"):
        path.rename(path.with_suffix(".dat"))
    p = nbprof.load(folder)
    assert p.kernels.frame.equals(expected)
    assert "step_trace_time" in p.ascend.kinds


def test_tables_that_sqlite_keeps_for_itself_are_none_of_the_profile(tmp_path, tasks):
    made_by_a_viewer = "create table VIEWED (id INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT)"
    p = nbprof.load(
        changed(tmp_path, tasks, made_by_a_viewer, "insert into VIEWED (b) values ('x')")
    )
    assert "VIEWED" in p.ascend.kinds
    assert not [kind for kind in p.ascend.kinds if kind.startswith("sqlite_")]
