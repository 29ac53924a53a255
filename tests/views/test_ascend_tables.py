"""Tables of Ascend's profilers that no other view is made of: opened by themselves, and below the
others.
"""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import pytest

import nbprof
from nbprof.core.errors import ReadError
from nbprof.display.codec import Coded
from nbprof.tools import dashboard as payload
from nbprof.tools.ascend import payload as ascend
from nbprof.tools.ascend import static as ascend_static
from nbprof.tools.ascend.tables import TABLES
from tests.support import msprof as made
from tests.support.profiles import real

AT = 1736412474000000
STEP = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"
FILES = {
    "step_trace_time": f"{STEP}\n50,8878.275,1000.5,200.5,1201.0,5000.0,14878.775,0,18055.693\n",
    "l2_cache": "Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n2,10,0.81,0.12,MatMul_1\n2,11,0.4,1.3,Add_2\n3,12,N/A,0.2,Conv_3\n",
    "npu_module_mem": f"Component,Timestamp(us),Total Reserved(KB),Device\nHCCL,{AT}.5\t,-1,NPU:0\nSLOG,{AT}.5\t,10,NPU:0\nSLOG,{AT + 9}.5\t,7,NPU:0\n",
    "static_op_mem": "Device_id,Op Name,Model Name,Graph ID,Node Index Start,Node Index End,Size(KB)\n0,conv,g,1,0,4294967295,100\n",
    "bandwidth": "Metric,Read(MB/s),Write(MB/s)\nAverage,1,2\n",
    "communication_statistic": "OP Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\nhcom_allReduce_,5,30,5,6,7,100\n",
    "communication": '{"step1":{"collective":{"hcom_allReduce__1@7":{"Communication Time Info":{"Elapse Time(ms)":2.5,"Wait Time(ms)":1.5}}}}}',
    "communication_matrix": '{"step1":{"collective":{"allreduce-top1@7":{"0-1":{"Transport Type":"HCCS","Transit Size(MB)":2,"Transit Time(ms)":1}}}}}',
}  # fmt: skip


def cells(section, key):
    data = section["table"]["data"][key]
    return (
        [data.values[int(code)] for code in data.codes]
        if isinstance(data, Coded)
        else [float(value) for value in data]
    )


def opened(tmp_path, kind):
    text = FILES[kind]
    file = tmp_path / f"{kind}.{'json' if text.startswith('{') else 'csv'}"
    file.write_text(text)
    p = nbprof.load(file)
    return p, payload.dashboard(p.run)


@pytest.mark.parametrize("kind", FILES)
def test_a_table_that_is_opened_by_itself_is_shown(tmp_path, kind):
    p, whole = opened(tmp_path, kind)
    assert [tab["id"] for tab in whole["meta"]["tabs"]] == ["ascend"]
    part = whole["ascend"]
    assert part["verdict"]["word"] == TABLES[kind].title
    assert "load the folder that contains it" in part["verdict"]["detail"]
    (section,) = part["sections"]
    assert section["id"] == f"table_{kind}"
    assert section["table"]["rows"] >= 1
    assert all(head["help"] and head["label"] for head in section["table"]["columns"])
    assert p.overview["device_kind"] == "Ascend NPU"
    assert any(f"{kind} {len(p.ascend.table(kind))}" in line.text for line in p.run.receipt.lines)
    page = ascend_static.html(SimpleNamespace(ascend=part))
    assert TABLES[kind].title in page


def test_what_the_tables_say(tmp_path):
    steps = opened(tmp_path, "step_trace_time")[1]["ascend"]["sections"][0]
    labels = {head["key"]: head["label"] for head in steps["table"]["columns"]}
    assert labels["communication_not_overlapped_us"] == "Communication not overlapped µs"
    assert cells(steps, "stage_us") == pytest.approx([14878.775])
    cache = opened(tmp_path, "l2_cache")[1]["ascend"]["sections"][0]
    # Those that miss most first, what is not known last.
    assert cells(cache, "op_name") == ["Add_2", "MatMul_1", "Conv_3"]
    modules = opened(tmp_path, "npu_module_mem")[1]["ascend"]["sections"][0]
    assert cells(modules, "component") == ["SLOG", "HCCL"]
    held = cells(modules, "reserved_bytes")
    assert held[0] == 10 * 1024
    # -1 is none, not a size.
    assert held[1] != held[1]


def test_tasks_of_the_table_of_all_tasks(tmp_path):
    head = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
    rows = [
        f"0,mm,AI_CORE,2,1,6.5,{AT}.000\t,{AT + 6}.500\t",
        f"0,N/A,PROFILING_ENABLE,2,2,9,{AT + 10}.000\t,{AT + 19}.000\t",
    ]
    (tmp_path / "task_time.csv").write_text("\n".join([head, *rows]) + "\n")
    ops = nbprof.load(tmp_path / "task_time.csv").ascend.ops.frame
    assert ops[["op", "core", "duration_us"]].to_numpy().tolist() == [["mm", "AI Core", 6.5]]


def test_they_stand_below_the_others_in_a_folder(tmp_path):
    folder = made.torch_npu(
        tmp_path / "h_1_20250109084754000_ascend_pt",
        made.training(2)[0],
        step_trace_time=FILES["step_trace_time"].encode(),
        communication=FILES["communication"].encode(),
    )
    p = nbprof.load(folder)
    ids = [section["id"] for section in ascend.payload(p.run)["sections"]]
    assert ids[0] == "op_types"
    assert ids[-2:] == ["table_step_trace_time", "table_communication"]


def test_a_long_table_is_cut_and_says_so(tmp_path):
    rows = "".join(f"2,{i},0.{i % 10},0.1,op{i}\n" for i in range(250))
    (tmp_path / "l2.csv").write_text(FILES["l2_cache"].split("\n")[0] + "\n" + rows)
    section = ascend.payload(nbprof.load(tmp_path / "l2.csv").run)["sections"][0]
    assert (section["table"]["rows"], section["note"]) == (
        100,
        "150 more rows: p.ascend.table('l2_cache') has all.",
    )


def test_a_real_folder_of_pytorch_shows_its_steps():
    p = nbprof.load(real("ascend/msprof-op-run/standalone_real_output"))
    section = next(
        one for one in ascend.payload(p.run)["sections"] if one["id"] == "table_step_trace_time"
    )
    steps = p.ascend.table("step_trace_time")
    parts = steps["computing_us"] + steps["communication_not_overlapped_us"] + steps["free_us"]
    assert parts.tolist() == pytest.approx(steps["stage_us"].tolist(), abs=0.3)
    assert section["table"]["rows"] == len(steps) == 10


def test_a_database_that_is_not_read_says_so(tmp_path):
    for name, what in (
        ("mindstudio_insight_data.db", "Load the folder"),
        ("other.db", "an SQLite database that is not a profile"),
    ):
        with sqlite3.connect(tmp_path / name) as base:
            base.execute("create table OTHER(startNs)")
        with pytest.raises(ReadError, match="SQLite") as error:
            nbprof.load(tmp_path / name)
        assert what in str(error.value)


def test_a_folder_with_nothing_to_read_says_how_to_get_it(tmp_path):
    out = tmp_path / "h_1_20250109084754000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out.parent / "PROF_1_20250109084754000_A" / "device_0" / "data").mkdir(parents=True)
    with pytest.raises(ReadError, match=r"run  torch_npu\.profiler\.profiler\.analyse"):
        nbprof.load(tmp_path)
