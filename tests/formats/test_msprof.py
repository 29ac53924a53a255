"""Ascend's tables and folders: every header and unit, what hands and exporters broke in them, and
which folders are one run.
"""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from nbprof.core.errors import RawError, ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.msprof import csv as msprof_csv
from nbprof.formats.msprof import msprof, recordings
from nbprof.formats.msprof import tables as msprof_tables
from nbprof.sources import locate
from tests.support import msprof as made
from tests.support.notes import numbers, of_key
from tests.support.profiles import real


def one(data: bytes) -> msprof_csv.Section:
    (section,) = msprof_csv.read(data)
    return section


def read(folder):
    return msprof.read(locate.find(folder).files)


@pytest.mark.parametrize("age", ["2022", "2025", "2026", "torch", "level0"])
def test_kernels_have_the_same_columns_whatever_wrote_them(age):
    tasks, _ = made.training(2)
    section = one(made.op_summary(tasks, age=age))
    assert section.kind == "op_summary"
    assert section.doubts == []
    frame = section.frame
    ordered = sorted(tasks, key=lambda t: t.start)
    assert frame["op_name"].tolist() == [t.name for t in ordered]
    assert frame["duration_us"].tolist() == [float(t.length) for t in ordered]
    exact = [int((made.EPOCH_US + t.start) * 1_000_000) for t in ordered]
    assert [section.base_ns * 1000 + ps for ps in frame["start_ps"].tolist()] == exact
    assert frame["block_num"].tolist() == [0 if t.stream is None else 24 for t in ordered]
    if age != "level0":
        assert frame["stream_id"].isna().tolist() == [t.stream is None for t in ordered]
        assert frame["input_shapes"].tolist()[0] == "32,64;64,32"
        # 4294967295 means none.
        assert frame["model_id"].isna().tolist() == [t.stream is None for t in ordered]
        assert frame["aic_mac_ratio"].dtype == np.float64


def test_the_same_kernels_with_crlf_and_a_mark_of_utf8():
    tasks, _ = made.training(2)
    plain, odd = (
        one(made.op_summary(tasks)),
        one(b"\xef\xbb\xbf" + made.op_summary(tasks, end="\r\n")),
    )
    pd.testing.assert_frame_equal(plain.frame, odd.frame)
    assert odd.doubts == []


@pytest.mark.parametrize(
    ("unit", "places", "factor"), [("ms", 3, 1e3), ("us", 0, 1.0), ("ns", -3, 1e-3)]
)
def test_times_are_microseconds_whatever_their_unit(unit, places, factor):
    # Of a clock that began with the machine; a date in ns has more digits than are read.
    begin = 1_700_000_000
    header = [f"Timestamp({unit})", "Node", f"Compute_time({unit})", f"Total_time({unit})"]
    rows = [
        [f"{(begin + at).scaleb(-places):f}", "GetNext", "1.5", "20"]
        for at in (Decimal("0.125"), Decimal("2.5"))
    ]
    section = one(made.table(header, rows))
    assert section.kind == "aicpu"
    assert section.doubts == []
    assert section.frame["compute_us"].tolist() == [1.5 * factor] * 2
    assert section.frame["total_us"].tolist() == [20 * factor] * 2
    exact = [begin * 1_000_000 + 125_000, begin * 1_000_000 + 2_500_000]
    assert [section.base_ns * 1000 + ps for ps in section.frame["timestamp_ps"].tolist()] == exact


@pytest.mark.parametrize(("unit", "factor"), [("KB", 1024.0), ("MB", 1024.0**2), ("Bytes", 1.0)])
def test_amounts_are_bytes_whatever_their_unit(unit, factor):
    header = [
        "Component",
        "Timestamp(us)",
        f"Total Allocated({unit})",
        f"Total Reserved({unit})",
        "Device Type",
    ]
    frame = one(made.table(header, [["PTA", made.moment(Decimal(5)), "1.5", "2", "NPU:0"]])).frame
    assert frame["allocated_bytes"].tolist() == [1.5 * factor]
    assert frame["reserved_bytes"].tolist() == [2 * factor]


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("1736408883704643.212\t", 1736408883704643212000),
        ('"1698131672794564.2"', 1698131672794564200000),
        ('"1698131672794564.2"\t', 1698131672794564200000),
        ("1710470419085512.", 1710470419085512000000),
        ("830074691.065", 830074691065000),
        ("56635864652.490005", 56635864652490005),
    ],
)
def test_moments_are_exact(text, exact):
    header = [
        "kernel_name",
        "kernel_type",
        "stream_id",
        "task_id",
        "task_time(us)",
        "task_start(us)",
        "task_stop(us)",
    ]
    section = one(made.table(header, [["a", "AI_CORE", 1, 2, 3, text, "N/A"]]))
    assert section.base_ns * 1000 + int(section.frame["start_ps"][0]) == exact
    assert section.frame["stop_ps"].isna().all()
    assert section.doubts == []


def test_a_moment_that_a_spreadsheet_rounded_is_lost_and_told():
    tasks, _ = made.training(1)
    text = made.op_summary(tasks).replace(made.moment(tasks[0].start).encode(), b"1.69512E+15")
    section = one(text)
    assert section.frame["start_ps"].isna().sum() == 1
    (doubt,) = of_key(section.doubts, "rounded_times")
    assert "1.69512E+15" in doubt.text


def test_a_difference_that_wrapped_around_is_put_right_exactly():
    _, marks = made.training(3)
    section = one(made.step_trace(marks, underflow=True))
    assert section.frame["reduce_0_us"].tolist() == pytest.approx([100.0] * 3, abs=1e-9)
    (doubt,) = of_key(section.doubts, "unsigned_differences")
    assert doubt.text.startswith("3 values")


def test_ragged_rows_are_kept_and_counted():
    _, marks = made.training(3)
    marks[1].reduces.append((marks[1].backward, marks[1].end))
    section = one(made.step_trace(marks))
    assert section.frame["iteration_id"].tolist() == [1, 2, 3]
    assert section.frame["reduce_1_us"].isna().tolist() == [True, False, True]
    assert numbers(section.doubts, "short_rows") == [2]
    longer = made.op_summary(made.training(1)[0]).rstrip(b"\n") + b",7,8\n"
    (doubt,) = of_key(one(longer).doubts, "long_rows")
    assert doubt.text.startswith("1 row is longer")
    assert len(one(longer).frame) == 4


def test_texts_where_numbers_are_due_are_counted_and_cost_themselves_only():
    tasks, _ = made.training(2)
    section = one(made.op_summary(tasks).replace(b",400.5,", b",about 400,", 1))
    assert section.frame["duration_us"].isna().sum() == 1
    assert section.frame["duration_us"].sum() == float(sum(t.length for t in tasks)) - 400.5
    (doubt,) = of_key(section.doubts, "invalid_numbers")
    assert "about 400" in doubt.text
    assert "duration_us" in doubt.text


def test_line_ends_of_two_kinds_are_told():
    data = made.op_summary(made.training(2)[0])
    first, rest = data.split(b"\n", 2)[0], data.split(b"\n", 1)[1]
    section = one(first + b"\n" + rest.replace(b"\n", b"\r\n", 2))
    assert len(section.frame) == 8
    assert of_key(section.doubts, "mixed_line_endings")


def test_an_open_quote_does_not_take_the_file():
    data = made.op_summary(made.training(2)[0])
    assert len(one(data + b'0,2,9,2,"open,Cast\n').frame) >= 8


def test_files_of_two_versions_in_one_are_two_tables():
    tasks, _ = made.training(2)
    sections = msprof_csv.read(
        made.op_summary(tasks, age="2025") + made.op_summary(tasks, age="2026")
    )
    assert [len(s.frame) for s in sections] == [8, 8]
    assert set(sections[0].frame["task_type"].dropna()) >= {"HCCL"}
    assert set(sections[1].frame["task_type"].dropna()) >= {"COMMUNICATION"}


@pytest.mark.parametrize("seed", range(4))
def test_damaged_tables_never_raise(seed):
    rng = np.random.default_rng(seed)
    data = bytearray(made.op_summary(made.training(3)[0]))
    for at in rng.integers(0, len(data), 40):
        data[at] = rng.integers(0, 256)
    for section in msprof_csv.read(bytes(data)):
        assert len(section.frame) <= 14


def test_slices_are_one_table_and_of_several_exports_the_newest_counts(tmp_path):
    tasks, _ = made.training(6)
    parts = [tasks[:8], tasks[8:16], tasks[16:]]
    # The first slice of a CSV has no number.
    for name, part in zip(
        ("op_summary", "op_summary_slice_1", "op_summary_slice_2"), parts, strict=True
    ):
        (tmp_path / f"{name}_20250109084754.csv").write_bytes(made.op_summary(part))
    (tmp_path / "op_summary_20240109084754.csv").write_bytes(made.op_summary(tasks[:1]))
    found, notes = msprof_tables.tables([LocalFile(p) for p in sorted(tmp_path.iterdir())])
    (table,) = found["op_summary"]
    assert table.frame["start_ps"].tolist() == sorted(table.frame["start_ps"].tolist())
    assert len(table) == len(tasks)
    assert table.frame["op_name"].cat.categories.size == 4
    assert ["exported 2 times" in note.text for note in notes] == [True]


def test_an_empty_file_is_told_not_raised(tmp_path):
    tasks, marks = made.training(2)
    folder = made.prof(tmp_path / "PROF_1_20250109084754000_A", tasks, marks)
    (folder / "mindstudio_profiler_output" / f"task_time_{made.DATE}.csv").write_bytes(b"")
    (folder / "mindstudio_profiler_output" / f"communication_{made.DATE}.csv").write_bytes(
        b"a,b\n1,2\n"
    )
    trace = read(folder)
    (empty,) = of_key(trace.receipt, "empty_file")
    assert "task_time" in empty.text
    assert of_key(trace.receipt, "unused_table")


def test_rows_are_linked_to_the_events_of_the_timeline(tmp_path):
    tasks, marks = made.training(3)
    trace = read(made.prof(tmp_path / "PROF_1_20250109084754000_A", tasks, marks))
    (table,) = trace.tables["op_summary"]
    events = table.frame["event"].to_numpy()
    assert (events >= 0).all()
    assert len(set(events.tolist())) == len(tasks)
    assert trace.events.start[events].tolist() == table.frame["start_ps"].tolist()
    assert [str(trace.names[c]) for c in trace.events.name[events]] == table.frame[
        "op_name"
    ].tolist()


def test_rows_without_a_timeline_become_events_that_are_the_same(tmp_path):
    tasks, marks = made.training(3)
    both = read(made.prof(tmp_path / "PROF_1_20250109084754000_A", tasks, marks))
    alone = read(
        made.prof(
            tmp_path / "PROF_2_20250109094754000_A",
            tasks,
            marks,
            files=("op_summary", "step_trace"),
        )
    )

    def told(trace):
        table = trace.tables["op_summary"][0].frame
        at = table["event"].to_numpy()
        begin = trace.epoch_ns * 1000
        return sorted(
            (
                begin + int(trace.events.start[e]),
                int(trace.events.duration[e]),
                str(trace.names[trace.events.name[e]]),
            )
            for e in at
        )

    assert told(both) == told(alone)
    assert len(alone.events) == len(tasks) + len(marks)


def test_clocks_that_began_with_the_machine_become_dates(tmp_path):
    tasks, marks = made.training(3)
    trace = read(made.older(tmp_path / "PROF_1_20250109084754000_A", tasks, marks))
    shift = int(made.EPOCH_US) * 1000 - int(made.BOOT_US * 1000)
    first = min(t.start for t in tasks) - 9
    first = min(first, marks[0].start, Decimal(1))
    assert trace.epoch_ns == int((made.BOOT_US + first) * 1000) + shift
    frame = trace.tables["step_trace"][0].frame
    gaps = (frame["fp_start_ps"] - frame["iteration_end_ps"].shift(1)) / 1e6
    assert gaps.tolist()[1:] == pytest.approx([300.0, 300.0], abs=0.02)
    assert frame["model_id"].tolist() == [2, 2, 2]


def test_ranks_that_began_together_are_one_run_and_others_are_not(tmp_path):
    for rank, time in enumerate(("20250109084754000", "20250109084755250", "20250109104754000")):
        made.torch_npu(
            tmp_path / f"host_{rank}_{time}_ascend_pt", made.training(2)[0], rank=min(rank, 1)
        )
    runs = locate.runs(tmp_path)
    assert sorted(
        len({p.path.parts[-3] for p in run.files if p.name == "kernel_details.csv"}) for run in runs
    ) == [1, 2]
    two = next(run for run in runs if "1 more" in run.name)
    assert msprof.read(two.files).hosts == ["rank 0", "rank 1"]


def test_two_recordings_of_one_rank_are_told(tmp_path):
    tasks, _ = made.training(2)
    folders = [
        made.torch_npu(tmp_path / name / "h_1_20250109084754000_ascend_pt", tasks, rank=3)
        for name in "ab"
    ]
    trace = msprof.read([LocalFile(p) for f in folders for p in sorted(f.rglob("*.*"))])
    assert len(set(trace.hosts)) == 2
    assert all(host.startswith("rank 3, ") for host in trace.hosts)
    assert numbers(trace.receipt, "equal_ranks") == [2, 3]


def test_a_raw_recording_says_how_it_is_exported(tmp_path):
    (tmp_path / "PROF_1_20250109084754000_A" / "device_0" / "data").mkdir(parents=True)
    with pytest.raises(
        RawError, match=r"msprof --export=on --output=.*PROF_1_20250109084754000_A"
    ) as error:
        locate.find(tmp_path)
    assert error.value.recordings == (str(tmp_path / "PROF_1_20250109084754000_A"),)


def test_a_folder_of_nothing_that_is_read_says_so(tmp_path):
    (tmp_path / "PROF_1_X" / "mindstudio_profiler_output").mkdir(parents=True)
    with pytest.raises(ReadError, match="no table"):
        locate.find(tmp_path)


def test_one_table_alone_opens(tmp_path):
    file = tmp_path / "renamed.csv"
    file.write_bytes(made.op_summary(made.training(2)[0]))
    run = locate.find(file)
    assert run.format == "msprof"
    assert list(msprof.read(run.files).tables) == ["op_summary"]


def test_what_the_tools_found_is_read(tmp_path):
    timed = {
        "Start Timestamp(us)": made.moment(Decimal(40), tab=False),
        "Elapse Time(ms)": 2.5,
        "Wait Time(ms)": 1.5,
    }
    moved = {"SDMA": {"Transit Size(MB)": 2.0, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 4.0}}
    facts = {"Communication Time Info": timed, "Communication Bandwidth Info": moved}
    content = {
        "step1": {"p2p": {}, "collective": {"hcom_allReduce__1@77": facts, "Total Op Info": facts}}
    }
    rule = {
        "Rule Type": "Computation",
        "Rule Description": "x",
        "result": [{"Rule Suggestion": "Low cube", "Tuning Data": ["a"]}],
    }
    folder = made.torch_npu(
        tmp_path / "h_1_20250109084754000_ascend_pt",
        made.training(2)[0],
        communication=json.dumps(content).encode(),
        prof_rule_0=json.dumps(
            {"data": {"Op Summary": [rule, {"Rule Type": "Memory", "result": []}]}}
        ).encode(),
    )
    tables = read(folder).tables
    (operations,) = tables["communication"]
    assert operations.frame[["name", "group", "elapse_ms", "wait_ms"]].iloc[0].tolist() == [
        "hcom_allReduce__1",
        "77",
        2.5,
        1.5,
    ]
    trace = read(folder)
    assert int(
        trace.tables["communication"][0].frame["start_ps"][0]
    ) + trace.epoch_ns * 1000 == int((made.EPOCH_US + 40) * 1_000_000)
    assert tables["communication_bandwidth"][0].frame["transit_bytes"].tolist() == [2 * 1024.0**2]
    assert tables["prof_rule"][0].frame["suggestion"].tolist() == ["Low cube"]


def test_real_tables_of_msprof():
    trace = read(real("ascend/msprof-op-run/msprof_real_output"))
    summary, tasks = trace.tables["op_summary"][0].frame, trace.tables["task_time"][0].frame
    assert (len(summary), len(tasks)) == (9, 14)
    assert round(summary["duration_us"].sum(), 3) == 40.604
    assert trace.tables["op_statistic"][0].frame["total_us"].tolist() == [30.144, 6.24, 4.22]
    assert round(tasks["duration_us"].sum(), 3) == 119.966
    assert (summary["event"] >= 0).all()
    assert (tasks["event"] >= 0).all()


def test_real_marks_of_an_older_version():
    trace = read(real("ascend/msprof-old-layout"))
    first, second = (t.frame for t in trace.tables["step_trace"])
    assert len(first) == len(second) == 10
    row = first.iloc[1]
    assert (
        round(row["fp_to_bp_us"], 2),
        round(row["iteration_refresh_us"], 2),
        row["data_aug_bound_us"],
    ) == (4269.15, 11095.07, 32134.95)
    lengths = [
        (t["iteration_end_ps"] - t["iteration_end_ps"].shift(1)).iloc[1] / 1e6
        for t in (first, second)
    ]
    assert lengths[0] == pytest.approx(47499.17, abs=0.01)


def test_the_rows_of_the_exporters_own_tests():
    folder = real("ascend/msprof_ut_expected")
    table = next(
        s
        for s in msprof_csv.read((folder / "summary_step_trace_assembler_rows.csv").read_bytes())
        if len(s.frame)
    )
    assert table.frame["reduce_0_us"].tolist() == pytest.approx([30.312], abs=1e-9)
    assert table.frame["reduce_1_us"].tolist() == [6.556]


def test_names_say_which_file_is_which():
    assert msprof_tables.parsed("op_summary_slice_3_20250109084754.csv") == msprof_tables.Name(
        "op_summary", (), 3, "20250109084754"
    )
    assert msprof_tables.parsed("op_summary_0_1_1_20230905213000.csv") == msprof_tables.Name(
        "op_summary", (0, 1, 1), 0, "20230905213000"
    )
    assert recordings.use_of("trace_view.json") == "timeline"
    assert recordings.use_of("step_trace_0_2_1.json") == "partial"
    assert recordings.use_of("README.txt") == ""


def test_a_column_of_times_is_numbers_also_where_most_of_it_is_not():
    _, marks = made.training(3)
    data = made.step_trace(marks)
    for one_ in marks:
        data = data.replace(f",{one_.end - one_.start - (one_.gap or 0)},".encode(), b",abc,")
    section = one(data)
    assert section.frame["iteration_us"].dtype == np.float64
    assert section.frame["iteration_us"].isna().all()
    (doubt,) = of_key(section.doubts, "invalid_numbers")
    assert doubt.text.startswith("3 texts in iteration_us")
