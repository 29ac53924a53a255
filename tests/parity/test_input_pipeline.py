"""The input pipeline: host ops, their kinds, the breakdown and what it says, held against XProf
2.24 and TensorFlow 2.3/2.4.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest

from nbprof.analysis.advice import checks
from nbprof.analysis.input import input_pipeline
from tests.parity.deviations import known
from tests.parity.peer import GUIDE, GUIDE_NAMES, NAMES, XPROF, guide, profile, same, xprof
from tests.support.build import profile as made
from tests.support.xspace import MS, PlaneWriter, xspace

TOOL = "input_pipeline_analyzer"
LABELS = {
    "preprocessing": "Preprocessing",
    "demanded_file_read": "Demanded file read",
    "advanced_file_read": "Advanced file read",
    "enqueue": "Enqueue",
}
BREAKDOWN = {
    "enqueue": "enqueue_us",
    "demanded_file_read": "demanded_file_read_us",
    "advanced_file_read": "advanced_file_read_us",
    "preprocessing": "preprocessing_us",
    "other": "unclassified_nonequeue_us",
}
SAYS = (
    ("HIGHLY input-bound", "high"),
    ("MODERATELY input-bound", "moderate"),
    ("POTENTIALLY input-bound", "potential"),
    ("NOT input-bound", "no"),
    ("No step time measured", "unknown"),
)


def level_of(statement):
    """Which of our levels a sentence of the peer stands for."""
    return next(level for text, level in SAYS if text in statement)


@pytest.mark.parametrize("name", NAMES)
def test_the_input_ops_are_xprofs(name):
    theirs, ours = xprof(name, TOOL)[2], profile(name).input_pipeline.frame
    same(ours["op"], theirs["opName"], "op")
    same(ours["occurrences"], theirs["count"], "count")
    same(ours["total_ms"], theirs["timeInMs"], "total")
    same(ours["total_percent"] / 100, theirs["timeInPercent"], "share of total")
    same(ours["self_ms"], theirs["selfTimeInMs"], "self")
    same(ours["self_percent"] / 100, theirs["selfTimeInPercent"], "share of self")
    same(ours["category"].map(LABELS), theirs["category"], "category")


@pytest.mark.parametrize("name", NAMES)
def test_the_breakdown_is_xprofs(name):
    theirs = xprof(name, TOOL)[2].attrs
    ours = profile(name).input_pipeline.summary["breakdown"].set_index("category")["us"]
    assert set(ours.index) == set(BREAKDOWN)
    for category, key in BREAKDOWN.items():
        assert ours[category] == pytest.approx(float(theirs[key]), abs=5e-4), key
    recorded = profile(name).input_pipeline.categories.set_index("category")["time_ms"].dropna()
    assert name.startswith("jax/") or len(recorded) == len(ours)
    assert (1000 * recorded).to_dict() == pytest.approx(ours[recorded.index].to_dict(), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_class_is_xprofs_on_its_own_steps(name):
    """XProf's steps differ from ours on purpose, so the conditions are held against it on the steps
    that it shows.
    """
    table = xprof(name, TOOL)[1]
    says = level_of(table.attrs["input_conclusion"])
    if not len(table) or "infeedTimeMs" not in table:
        assert says == "unknown"
        waits = other = None
    else:
        whole = table["stepTimeMs"].astype(float).sum()
        waits, other = (
            100 * table[key].astype(float).sum() / whole for key in ("infeedTimeMs", "otherTimeMs")
        )
    assert checks.input_class(waits, other)[1] == says
    if says in ("high", "moderate", "potential"):
        shown = f"{other if says == 'potential' else waits:.1f}%"
        assert shown in table.attrs["input_conclusion"]
        assert shown in checks.input_statement(waits, other)


@pytest.mark.parametrize("name", NAMES)
def test_our_class_is_xprofs_or_a_known_deviation(name):
    says, ours = (
        level_of(xprof(name, TOOL)[1].attrs["input_conclusion"]),
        profile(name).input_pipeline.summary["level"],
    )
    deviation = known(TOOL, "level", XPROF, name)
    assert (says == ours) is (deviation is None)


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_the_input_ops_are_the_guides(name):
    theirs, ours = (
        pd.DataFrame(guide(name, "input_pipeline").get("input_op_details", [])),
        profile(name).input_pipeline.frame,
    )
    numbers = theirs[
        ["count", "time_in_ms", "time_in_percent", "self_time_in_ms", "self_time_in_percent"]
    ].astype(float)
    same(ours["op"], theirs["op_name"], "op")
    same(ours["occurrences"], numbers["count"], "count")
    same(ours["total_ms"], numbers["time_in_ms"], "total")
    same(ours["total_percent"], numbers["time_in_percent"], "share of total")
    same(ours["self_ms"], numbers["self_time_in_ms"], "self")
    same(ours["self_percent"], numbers["self_time_in_percent"], "share of self")
    assert (
        ours["category"].map(LABELS).str.lower().tolist() == theirs["category"].str.lower().tolist()
    )


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_the_summary_is_the_guides(name):
    theirs, ours = guide(name, "input_pipeline"), profile(name).input_pipeline.summary
    parts = ours["breakdown"].set_index("category")["us"]
    stated = {
        key: theirs["input_time_breakdown"].get(f"{key}_us", 0.0)
        for key in parts.index
        if key != "other"
    }
    assert parts.drop("other").to_dict() == pytest.approx(stated, rel=1e-6, abs=1e-9)
    assert parts["other"] == pytest.approx(
        theirs["input_time_breakdown"].get("unclassified_non_enqueue_us", 0.0), abs=1e-9
    )
    deviation = known(TOOL, "input_percent", GUIDE, name)
    measured = theirs.get("input_percent")
    equal = (
        ours["input_percent"] is None
        if measured is None
        else ours["input_percent"] == pytest.approx(measured, rel=1e-6)
    )
    assert equal is (deviation is None)


def guide_steps(name):
    """The steps of the guide's tool as a frame of ours."""
    rows = guide(name, "input_pipeline").get("step_details", [])
    keys = {
        "step_time_ms": "step_time_ms",
        "input_ms": "host_wait_input_ms",
        "copies": "host_to_device_ms",
        "other_ms": "unknown_time_ms",
    }
    frame = pd.DataFrame(
        {ours: [float(row.get(key, 0.0)) for row in rows] for ours, key in keys.items()}
    )
    return frame.assign(input_ms=frame["input_ms"] + frame["copies"], counted=True)


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_shares_of_the_guides_steps_are_the_guides(name):
    theirs, steps = guide(name, "input_pipeline"), guide_steps(name)
    ours, over = input_pipeline._shares_of_steps(steps), theirs["input_percent_summary"]
    says = theirs["recommendation"]["bottleneck_analysis"]
    waits, other = (input_pipeline._ratio(steps, key) for key in ("input_ms", "other_ms"))
    assert checks.input_class(waits, other) == (
        says["input_classification"],
        level_of(says["input_statement"]),
    )
    if not over:
        assert set(ours.values()) == {None}
        return
    assert ours["input_percent"] == pytest.approx(theirs["input_percent"], rel=1e-9)
    assert ours["mean_percent"] == pytest.approx(over["average"], rel=1e-9)
    assert ours["min_percent"] == pytest.approx(over.get("minimum", 0.0), rel=1e-9)
    assert ours["max_percent"] == pytest.approx(over["maximum"], rel=1e-9)
    if len(steps) > 1:
        assert ours["sd_percent"] == pytest.approx(over["standard_deviation"], rel=1e-9)
    else:
        assert ours["sd_percent"] is None, "one step has no deviation; the guide's tool shows 0"


@pytest.mark.parametrize("name", GUIDE_NAMES[:4])
def test_our_share_of_input_is_the_guides_and_the_copies_to_the_device(name):
    p, theirs = profile(name), guide_steps(name)
    ours, copies = p.steps.frame, p.trace.events(name="MemcpyH2D")
    assert len(copies)
    for row, waits in zip(ours.itertuples(), theirs["input_ms"], strict=True):
        begin, end = row.start_ms * 1000, (row.start_ms + row.step_time_ms) * 1000
        inside = (copies["start_us"] < end) & (copies["start_us"] + copies["duration_us"] > begin)
        assert (
            waits - 1e-9
            <= row.input_ms
            <= waits + copies.loc[inside, "duration_us"].sum() / 1000 + 1e-9
        )
    assert ours["input_ms"].sum() > theirs["input_ms"].sum()
    assert p.input_pipeline.summary["input_percent"] == pytest.approx(
        100 * ours["input_ms"].sum() / ours["step_time_ms"].sum()
    )


def test_the_host_waits_for_input_in_steps_of_a_gpu():
    p = profile("tf-gpu/v100x8-collectives")
    (row,) = p.steps.frame.itertuples()
    assert xprof("tf-gpu/v100x8-collectives", TOOL)[1]["infeedTimeMs"].tolist() == [0.0]
    gets = p.trace.events(
        name="IteratorGetNext", between=(row.start_ms, row.start_ms + row.step_time_ms)
    )
    assert 0 < row.input_ms <= gets["duration_us"].sum() / 1000
    assert p.input_pipeline.summary["level"] == "moderate"


def test_steps_of_the_host_count_where_the_device_ran_nothing():
    p = profile("tf-cpu/prefetch-128-empty-gpu-plane")
    assert p.steps.frame["name"].tolist() == [f"train {n}" for n in range(109, 128)]
    s = p.input_pipeline.summary
    used = p.steps.frame[p.steps.frame["counted"]]
    assert s["steps"] == len(used) > 10
    assert s["input_percent"] == pytest.approx(
        100 * used["input_ms"].sum() / used["step_time_ms"].sum()
    )
    assert s["level"] == "potential"
    assert p.overview["device_busy_percent"] is None


def enqueues(tmp_path, *extra):
    """Three enqueues of 2 ms, begun 10 ms apart; a read of 3 ms and a map of 1 ms."""
    host = PlaneWriter("/host:CPU")
    events = [host.event("feed:InfeedEnqueueTuple", at * 10 * MS, 2 * MS) for at in range(3)]
    host.line("feeder", events, line_id=1)
    read = [
        host.event("Iterator::Root::TFRecord", 0, 3 * MS, id=1),
        host.event("Iterator::Root::Map", 5 * MS, MS, id=2),
    ]
    host.line("reader", [*read, *[host.event(*e[:3], **e[3]) for e in extra]], line_id=2)
    return made(tmp_path, xspace(host))


def test_time_between_enqueues_is_shared_out(tmp_path):
    """The first two enqueues take 4 of the 20 ms between the three starts: r = 0.2, and 6 ms of
    enqueuing stand for 24 ms of the rest.
    """
    p = enqueues(tmp_path)
    s = p.input_pipeline.summary
    assert (s["enqueue_ratio"], s["enqueue_ratio_from"]) == (0.2, "enqueue starts")
    assert dict(
        zip(s["breakdown"]["category"], s["breakdown"]["us"], strict=True)
    ) == pytest.approx(
        {
            "enqueue": 6000.0,
            "demanded_file_read": 18000.0,
            "advanced_file_read": 0.0,
            "preprocessing": 6000.0,
            "other": 0.0,
        }
    )
    assert s["copy_percent"] == pytest.approx(20.0)
    assert s["copy_level"] == "significant"
    assert s["breakdown"]["us_per_step"].tolist() == s["breakdown"]["us"].tolist(), (
        "the recording is the unit"
    )
    assert p.input_pipeline.categories.set_index("category").loc["enqueue", "time_ms"] == 6.0


def test_what_no_input_op_explains_is_other(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "feeder", [host.event("feed:InfeedEnqueueTuple", at * 10 * MS, 2 * MS) for at in range(3)]
    )
    parts = (
        made(tmp_path, xspace(host)).input_pipeline.summary["breakdown"].set_index("category")["us"]
    )
    assert parts["other"] == pytest.approx(24000.0)
    assert parts["enqueue"] == 6000.0


@pytest.mark.parametrize(
    ("enqueue", "says"),
    [(9.0, "dominant"), (8.9, "significant"), (1.0, "significant"), (0.9, "small")],
)
def test_shares_of_copies_at_their_bounds(enqueue, says):
    parts = input_pipeline.scaled({"enqueue": enqueue, "preprocessing": 10.0 - enqueue}, 0.0)
    share = 100 * parts["enqueue"] / sum(parts.values())
    assert input_pipeline.copy_level(share) == says


def test_copies_of_a_step_stand_in_for_enqueues():
    steps = pd.DataFrame({"step_time_ms": [8.0, 12.0], "host_to_device_ms": [1.0, 4.0]})
    assert input_pipeline._ratio(steps, "host_to_device_ms") == 25.0
    assert input_pipeline.scaled({"enqueue": 5.0, "preprocessing": 1.0}, 0.25)[
        "preprocessing"
    ] == pytest.approx(15.0)


def test_copies_on_the_device_alone_scale_nothing(tmp_path):
    """XProf would scale by them, and leave 0 of all input work, because nothing was enqueued on the
    host.
    """
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    main, copies = [], []
    for i in range(4):
        main.append(host.event("train", 10 * i * MS, 10 * MS, step_num=i, _r=1))
        main.append(host.event("Iterator::Root::Map", 10 * i * MS, 3 * MS, id=1))
        main.append(host.event("cuLaunchKernel", (10 * i + 4) * MS, MS, correlation_id=2 * i + 1))
        main.append(host.event("cuMemcpyHtoD", (10 * i + 5) * MS, MS, correlation_id=2 * i + 2))
        copies.append(gpu.event("sgemm", (10 * i + 6) * MS, 2 * MS, correlation_id=2 * i + 1))
        copies.append(gpu.event("MemcpyHToD", (10 * i + 8) * MS, MS, correlation_id=2 * i + 2))
    gpu.line("Stream #1(Compute)", copies, line_id=1)
    host.line("python", main, line_id=2)
    p = made(tmp_path, xspace(gpu, host))
    assert p.steps.frame["host_to_device_ms"].tolist() == [1.0] * 4
    s = p.input_pipeline.summary
    assert s["enqueue_ratio"] == 0.0
    assert s["breakdown"].set_index("category").loc["preprocessing", "us"] == 12000.0
    assert s["breakdown"].set_index("category").loc["preprocessing", "us_per_step"] == 3000.0


@pytest.mark.parametrize(
    ("op", "kind", "category"),
    [
        ("Iterator::Model::TFRecord", "Dataset", "demanded_file_read"),
        ("Iterator::Model::RecordIO", "Dataset", "demanded_file_read"),
        ("Iterator::Model::Prefetch::ArrayRecord", "Dataset", "advanced_file_read"),
        ("Iterator::Model::ParallelMapV2::TextLine", "Dataset", "advanced_file_read"),
        ("Iterator::Model::Interleave[0]::FixedLengthRecord", "Dataset", "advanced_file_read"),
        ("Iterator::Model::MemoryReader::SSTable", "Dataset", "advanced_file_read"),
        ("Iterator::Model::ParallelInterleaveV4::TFRecord", "Dataset", "demanded_file_read"),
        ("Iterator::Model::TFRecord::Map", "Dataset", "preprocessing"),
        ("feed", "InfeedEnqueueTuple", "enqueue"),
        ("MemcpyHToD", "MemcpyHToD", "enqueue"),
        ("IteratorGetNext", "IteratorGetNext", ""),
        ("loader", "enqueue", "enqueue"),
        ("loader", "read", "demanded_file_read"),
        ("loader", "preprocessing", "preprocessing"),
        ("loader", "unknown", "other"),
        ("dense", "MatMul", ""),
    ],
)
def test_kinds_of_input_work(op, kind, category):
    assert input_pipeline.category(op, kind) == category


def test_stages_of_other_pipelines_are_input_ops(tmp_path):
    host = PlaneWriter("/host:CPU")
    stage = {"_ipl_stage_name": "load", "_ipl_stage_cat": "read"}
    events = [
        host.event("load", 0, 10 * MS, _ipl_stage_id=1, **stage),
        host.event("a/Add:Add", MS, 4 * MS),
        host.event("load", 20 * MS, 5 * MS, _ipl_stage_id=2, **stage),
        host.event("tune", 30 * MS, 2 * MS, _ipl_stage_id=3, _ipl_stage_cat="preprocessing"),
        host.event("read", 40 * MS, 2 * MS),
    ]
    host.line("python", events)
    p = made(tmp_path, xspace(host))
    frame = p.input_pipeline.frame.set_index("op")
    assert frame["self_ms"].to_dict() == {"load (stage 1)": 6.0, "load (stage 2)": 5.0, "tune": 2.0}
    assert frame["category"].tolist() == [
        "demanded_file_read",
        "demanded_file_read",
        "preprocessing",
    ]
    assert "load (stage 1)" in p.ops.frame["op"].tolist()


def test_loops_over_a_dataset_inside_a_function_are_input(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = [
        host.event("ReduceIterator::Root", 0, 9 * MS, id=1),
        host.event("ReduceIterator::Root::Map", 0, 8 * MS, id=2, parent_id=1),
    ]
    host.line("main", events)
    p = made(tmp_path, xspace(host))
    assert p.input_pipeline.frame["op"].tolist() == [
        "ReduceIterator::Root::Map",
        "ReduceIterator::Root",
    ]
    assert p.input_pipeline.frame["self_ms"].tolist() == [8.0, 1.0]


def test_one_step_has_no_deviation(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("train", 0, 10 * MS, step_num=1, _r=1),
            host.event("dense/MatMul:MatMul", 0, 5 * MS),
        ],
    )
    host.line("loader", [host.event("Iterator::Batch", 20 * MS, 5 * MS)])
    p = made(tmp_path, xspace(host))
    s = p.input_pipeline.summary
    assert (s["sd_percent"], s["mean_percent"], s["steps"]) == (None, 0.0, 1)
    assert json.dumps({k: v for k, v in s.items() if k != "breakdown"})
