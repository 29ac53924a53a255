"""Ascend profiles in the vocabulary of the others: steps, kernels, ops, copies, collectives,
launches, memory, several ranks.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.activity.unit import ITERATION
from nbprof.dialects.msprof import lanes as msprof_lanes
from nbprof.dialects.msprof import work as msprof_work
from nbprof.run.run import Run
from nbprof.sources import locate
from tests.support import msprof as made
from tests.support.profiles import real


def run_of(folder) -> Run:
    return Run.read(locate.find(folder), keep=False)


@pytest.fixture
def graph(tmp_path):
    tasks, marks = made.training(5)
    return run_of(made.prof(tmp_path / "PROF_1_20250109084754000_A", tasks, marks))


def test_an_iteration_is_input_compute_and_communication(graph):
    steps = graph.steps
    assert steps["name"].tolist() == [f"Iteration {i}" for i in range(1, 6)]
    # The wait before the first is not recorded; and the second still starts up, as for
    # `p.ascend.iterations`.
    assert steps["counted"].tolist() == [False, False, True, True, True]
    assert steps["warmup"].tolist() == graph.ascend.iterations["warmup"].tolist()
    assert graph.overview["step_time_ms"] == pytest.approx(
        graph.ascend.iterations_summary["iteration_ms"].iloc[0]
    )
    assert "startup_iterations" in set(graph.receipt.notes["key"])
    whole = steps.iloc[1:]
    assert whole["step_time_ms"].tolist() == pytest.approx([0.96] * 4)
    assert whole["input_ms"].tolist() == pytest.approx([0.3] * 4)
    # 400.5 + 150.25 + 40, of which the matrix product takes turns with nothing.
    assert whole["device_compute_ms"].tolist() == pytest.approx([0.59075] * 4)
    assert whole["device_collectives_ms"].tolist() == pytest.approx([0.06] * 4)
    parts = [
        c
        for c in steps.columns
        if c.endswith("_ms")
        and c not in ("start_ms", "step_time_ms", "host_to_device_ms", "waiting_ms")
    ]
    assert whole[parts].sum(axis=1).tolist() == pytest.approx(whole["step_time_ms"].tolist())
    assert graph.overview["input_percent"] == pytest.approx(31.25)


def test_kernels_sum_up_to_the_exporters_own_table(graph):
    stated = graph.trace.tables["op_statistic"][0].frame.set_index("op_type")["total_us"]
    mine = graph.kernels.groupby("kernel")["total_us"].sum()
    assert mine.to_dict() == stated.to_dict()
    row = graph.kernels.set_index("kernel").loc["MatMulV2"]
    assert (row["occurrences"], row["grid"], row["op"]) == (5, "24", "gradients/layer/MatMul_1")
    assert bool(row["op_tensor_core_eligible"])
    assert bool(row["uses_tensor_core"])
    assert not graph.kernels.set_index("kernel").loc["TransData", "uses_tensor_core"]


@pytest.mark.parametrize(
    "files",
    [
        ("op_summary", "step_trace"),
        ("op_summary", "step_trace", "msprof"),
        ("op_summary", "msprof", "step_trace"),
    ],
)
def test_tables_alone_and_with_a_timeline_give_the_same_steps_and_kernels(graph, tmp_path, files):
    tasks, marks = made.training(5)
    other = run_of(made.prof(tmp_path / "PROF_2_20250109094754000_A", tasks, marks, files=files))
    columns = [
        "name",
        "step_time_ms",
        "input_ms",
        "device_compute_ms",
        "device_collectives_ms",
        "counted",
    ]
    pd.testing.assert_frame_equal(graph.steps[columns], other.steps[columns])
    pd.testing.assert_frame_equal(graph.kernels, other.kernels)


def test_a_timeline_alone_is_read_without_its_tables(graph, tmp_path):
    tasks, _ = made.training(5)
    file = tmp_path / "msprof_20250109084754.json"
    file.write_bytes(made.timeline(tasks))
    run = run_of(file)
    assert run.devices["kind"].tolist() == ["NPU"]
    # Without types of operators they are told by their names.
    assert set(run.kernels["kernel"]) == {"MatMul", "trans_TransData", "Cast"}
    assert run.kernels["total_us"].sum() == graph.kernels["total_us"].sum()
    # Nothing marks its steps: they are the repeats of the sequence of operators.
    assert run.activity.unit.kind == ITERATION
    assert run.activity.unit.estimated
    assert (len(run.steps), "steps" in run.missing) == (5, False)


def test_launches_copies_and_collectives(graph):
    activity = graph.activity
    assert len(activity.launches) == 20
    events = graph.trace.events
    launch, target = (activity.launches.frame()[c].to_numpy() for c in ("event", "target"))
    assert set((events.start[target] - events.start[launch]).tolist()) == {9_000_000}
    copies, collectives = activity.transfers.frame(), activity.collectives.frame()
    texts = activity.texts.values
    assert [texts[k] for k in copies["kind"]] == ["H2D"]
    assert copies["bytes"].tolist() == [4096]
    assert {texts[k] for k in collectives["name"]} == {"hcom_allReduce"}
    assert set(activity.collectives.frame()["bytes"]) == {1024}


def test_copies_by_which_a_collective_moves_its_data_are_no_copies_of_the_program(tmp_path):
    tasks, marks = made.training(3)
    collectives = [t for t in tasks if t.stream is None]
    inner = [
        made.Task(
            "MEMCPY_ASYNC", "N/A", t.start + 5, Decimal(50), "MEMCPY_ASYNC", stream=8, task=90
        )
        for t in collectives
    ]
    folder = made.prof(
        tmp_path / "PROF_1_20250109084754000_A", tasks, marks, files=("op_summary", "step_trace")
    )
    (folder / "mindstudio_profiler_output" / f"msprof_{made.DATE}.json").write_bytes(
        made.timeline([*tasks, *inner])
    )
    run = run_of(folder)
    assert len(run.activity.transfers) == 1
    assert run.steps["device_to_device_ms"].tolist() == [0.0] * 3


def test_the_graph_that_trains_gives_the_steps(tmp_path):
    tasks, marks = made.training(4)
    first = made.Iteration(1, Decimal(1), Decimal(2), Decimal(4), Decimal(5), None, model=1)
    run = run_of(made.prof(tmp_path / "PROF_1_20250109084754000_A", tasks, [first, *marks]))
    assert len(run.steps) == 4
    assert any("iterations of model 2" in note.text for note in run.activity.notes)


def test_marked_steps_of_torch_npu_hold_what_was_launched_in_them(tmp_path):
    tasks, _ = made.training(4)
    run = run_of(made.torch_npu(tmp_path / "h_1_20250109084754000_ascend_pt", tasks, steps=4))
    assert run.steps["name"].tolist() == [f"ProfilerStep#{i}" for i in range(4)]
    assert run.overview["framework"] == "PyTorch"
    host = run.ops[run.ops["where"] == "host"]
    assert host["op"].tolist() == ["aten::mm"]
    assert host["occurrences"].tolist() == [4]
    assert run.kernels["occurrences"].sum() == 12


def test_the_lowest_level_has_kernels_without_types(tmp_path):
    tasks, _ = made.training(3)
    folder = made.torch_npu(tmp_path / "h_1_20250109084754000_ascend_pt", tasks, level="level0")
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").unlink()
    run = run_of(folder)
    assert run.kernels["occurrences"].sum() == 9
    assert len(run.activity.collectives) == 3


def test_an_older_layout_gives_the_same_steps(graph, tmp_path):
    tasks, marks = made.training(5)
    other = run_of(made.older(tmp_path / "PROF_2_20250109094754000_A", tasks, marks))
    columns = ["step_time_ms", "input_ms", "device_compute_ms", "device_collectives_ms"]
    # Numbers of that age are rounded to some ns.
    np.testing.assert_allclose(
        graph.steps[columns].to_numpy(float), other.steps[columns].to_numpy(float), atol=2e-5
    )
    assert other.devices[["cores", "clock_khz"]].iloc[0].tolist() == [32, 1_000_000]


def test_ranks_are_workers_of_one_profile(tmp_path):
    for device, slow in ((0, "0"), (1, "200")):
        tasks, marks = made.training(5, device, slow)
        made.older(tmp_path / f"PROF_00000{device}_2025010908475{device}000_A", tasks, marks)
    run = run_of(tmp_path)
    assert run.hosts == ["rank 0", "rank 1"]
    assert run.devices["device"].tolist() == [0, 1]
    last = run.pods[run.pods["step"] == 5].set_index("worker")["step_time_ms"]
    assert last["rank 1"] - last["rank 0"] == pytest.approx(0.2, abs=1e-4)


MEMORY = [
    "Device_id",
    "Name",
    "Size(KB)",
    "Allocation Time(us)",
    "Duration(us)",
    "Allocation Total Allocated(KB)",
]
MEMORY += [
    "Allocation Total Reserved(KB)",
    "Release Total Allocated(KB)",
    "Release Total Reserved(KB)",
    "Device",
]


def test_blocks_of_memory_make_the_timeline(tmp_path):
    tasks, marks = made.training(3)
    rows = [
        [0, "a", 64, made.moment(Decimal(20)), "50", 64, 256, 96, 256, "NPU:0"],
        [0, "b", 96, made.moment(Decimal(40)), "", 160, 256, "", "", "NPU:0"],
        [0, "N/A", -32, made.moment(Decimal(60)), "5", 0, 0, 0, 0, "NPU:0"],
    ]
    run = run_of(
        made.prof(
            tmp_path / "PROF_1_20250109084754000_A",
            tasks,
            marks,
            operator_memory=made.table(MEMORY, rows),
        )
    )
    (summary,) = run.memory_summary.to_dict("records")
    assert (summary["memory_id"], summary["allocations"], summary["deallocations"]) == (
        "NPU 0",
        2,
        1,
    )
    assert summary["peak_bytes"] == 160 * 1024
    assert run.memory_timeline["allocated_bytes"].tolist() == [64 * 1024, 96 * 1024, -64 * 1024]
    assert sorted(run.memory_peak["op"]) == ["a", "b"]
    assert "ignored_allocations" in {note.key for note in run.activity.notes}


@pytest.mark.parametrize("before", [True, False])
def test_totals_at_a_release_are_from_before_or_after_it(tmp_path, before):
    # 16 KB are always held; of graphs (GE) the total at a release still has the block that is given
    # back.
    rows = [
        [
            0,
            name,
            size,
            made.moment(Decimal(at)),
            "50",
            16 + size,
            256,
            16 + (size if before else 0),
            256,
            "NPU:0",
        ]
        for name, size, at in (("a", 64, 20), ("b", 96, 80), ("c", 32, 140))
    ]
    run = run_of(
        made.prof(
            tmp_path / "PROF_1_20250109084754000_A",
            *made.training(3),
            operator_memory=made.table(MEMORY, rows),
        )
    )
    held = run.activity.allocations.sort_values("time")["heap"].tolist()
    assert held == [size * 1024 for size in (80, 16, 112, 16, 48, 16)]
    assert run.memory_peak["op"].tolist()[0] == "b"


def test_what_components_held_is_told_where_no_block_is(tmp_path):
    tasks, marks = made.training(3)
    header = [
        "Device_id",
        "Component",
        "Timestamp(us)",
        "Total Allocated(KB)",
        "Total Reserved(KB)",
        "Device",
    ]
    rows = [
        [0, "GE", made.moment(Decimal(10 * i)), 100 + 50 * (i % 3), 400, "NPU:0"] for i in range(6)
    ]
    run = run_of(
        made.prof(
            tmp_path / "PROF_1_20250109084754000_A",
            tasks,
            marks,
            memory_record=made.table(header, rows),
        )
    )
    assert run.memory_summary["memory_id"].tolist() == ["NPU 0 GE"]
    assert run.memory_summary["peak_bytes"].tolist() == [200 * 1024]
    assert "memory_samples_only" in {note.key for note in run.activity.notes}


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("AI_CORE", msprof_work.COMPUTE),
        ("KERNEL_AICORE", msprof_work.COMPUTE),
        ("MIX_AIC", msprof_work.COMPUTE),
        ("AI_CPU", msprof_work.COMPUTE),
        ("DSA_SQE", msprof_work.COMPUTE),
        ("COMMUNICATION", msprof_work.COLLECTIVE),
        ("MEMCPY_ASYNC", msprof_work.COPY),
        ("EVENT_WAIT", msprof_work.NO_WORK),
        ("NOTIFY_WAIT", msprof_work.NO_WORK),
        ("PROFILING_ENABLE", msprof_work.NO_WORK),
        ("TASK_TIMEOUT_SET", msprof_work.NO_WORK),
    ],
)
def test_the_type_of_a_task_decides_whether_it_is_work(task, kind):
    assert msprof_work.kind_of(task) == kind


def test_a_profile_out_of_the_cache_is_the_same(tmp_path):
    tasks, marks = made.training(5)
    folder = made.prof(tmp_path / "PROF_1_20250109084754000_A", tasks, marks)
    run = run_of(folder)
    from nbprof.run.cache.stored import StoredTrace, TraceToStore

    kept = TraceToStore(Run.read(locate.find(folder), keep=False).as_read, [])
    stored = dict([*kept.facts(), *kept.columns()])
    trace = StoredTrace(stored.__getitem__, lambda: pytest.fail("read again"), [])
    again = Run(trace, run._interpret, run.source)
    pd.testing.assert_frame_equal(run.steps, again.steps)
    pd.testing.assert_frame_equal(run.kernels, again.kernels)
    assert list(again.activity.tables) == list(run.activity.tables)


def test_the_dashboard_of_each_layout_is_made(tmp_path):
    tasks, marks = made.training(4)
    folders = [
        made.prof(tmp_path / "a" / "PROF_1_20250109084754000_A", tasks, marks),
        made.older(tmp_path / "b" / "PROF_1_20250109084754000_A", tasks, marks),
        made.torch_npu(tmp_path / "c" / "h_1_20250109084754000_ascend_pt", tasks),
    ]
    for folder in folders:
        profile = nbprof.load(folder)
        assert {"overview", "ops", "kernels", "trace"} <= set(profile.payload())


def test_real_marks_and_kernels_of_two_devices():
    run = run_of(real("ascend/msprof-old-layout"))
    assert run.hosts == ["rank 0", "rank 1"]
    mine = run.steps[run.steps["host"] == "rank 0"].set_index("step")
    assert mine.loc[2, "step_time_ms"] == pytest.approx(47.49917, abs=1e-5)
    assert mine.loc[2, "input_ms"] == pytest.approx(32.13495, abs=1e-5)
    assert mine.loc[1, "device_collectives_ms"] == pytest.approx(41.5343, abs=1e-5)
    # About half of the later iterations is the wait for input.
    late = mine[mine.index >= 3]
    assert 0.4 < (late["input_ms"] / late["step_time_ms"]).mean() < 0.6
    assert run.overview["bound"] == "input"
    first = run.pods[run.pods["step"] == 1].set_index("worker")["step_time_ms"]
    assert first.to_dict() == pytest.approx({"rank 0": 47.58781, "rank 1": 57.53296}, abs=1e-5)


def test_real_kernels_sum_up_to_op_statistic():
    run = run_of(real("ascend/msprof-op-run/msprof_real_output"))
    assert run.kernels.groupby("kernel")["total_us"].sum().round(3).to_dict() == {
        "matmul_kernel": 30.144,
        "Cast": 6.24,
        "DSARandomNormal": 4.22,
    }


def test_real_computing_of_each_step_is_that_of_torch_npu():
    run = run_of(real("ascend/msprof-op-run/standalone_real_output"))
    stated = run.trace.tables["step_trace_time"][0].frame
    assert (run.steps["device_compute_ms"] * 1000).tolist() == pytest.approx(
        stated["computing_us"].tolist(), abs=0.001
    )
    identity = (
        stated["computing_us"] + stated["communication_not_overlapped_us"] + stated["free_us"]
    )
    assert identity.tolist() == pytest.approx(stated["stage_us"].tolist(), abs=0.25)


CELLS = [
    b"N/A",
    b"",
    b"-1",
    b"18446744073709551615",
    b"1e30",
    b"abc",
    b'"',
    b"4294967295",
    b"nan",
    b"inf",
    b"9" * 24,
]


@pytest.mark.parametrize("seed", range(8))
def test_damaged_folders_are_read_or_refused(tmp_path, seed):
    rng = np.random.default_rng(seed)
    tasks, marks = made.training(4)
    folder = (made.prof, made.older)[seed % 2](
        tmp_path / "PROF_1_20250109084754000_A", tasks, marks
    )
    if seed % 4 == 3:
        folder = made.torch_npu(tmp_path / "h_1_20250109094754000_ascend_pt", tasks)
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        parts = file.read_bytes().split(b",")
        for at in rng.integers(0, len(parts), 6):
            parts[at] = CELLS[rng.integers(len(CELLS))]
        data = b",".join(parts)
        file.write_bytes(data[: rng.integers(1, len(data))] if rng.random() < 0.3 else data)
    try:
        run = run_of(folder)
    except nbprof.core.errors.ReadError:
        return
    for frame in (run.steps, run.kernels, run.ops, run.memory_timeline, run.devices):
        assert isinstance(frame, pd.DataFrame)
    assert len(run.trace.events) == run.receipt.events


def test_iterations_without_tasks_have_the_verdict_of_their_marks(tmp_path):
    tasks, marks = made.training(5)
    alone = run_of(
        made.prof(tmp_path / "PROF_5_20250109094754000_A", tasks, marks, files=("step_trace",))
    )
    said = alone.ascend.verdict
    assert said["verdict"] == "Device-bound"
    assert (alone.overview["verdict"], alone.overview["verdict_text"], alone.overview["bound"]) == (
        "Device-bound",
        said["text"],
        said["bound"],
    )
    assert said["detail"] in alone.overview["verdict_detail"]
    assert not alone.overview["confidence_evidence"][0][0]
    assert "Python" not in alone.overview["verdict_text"] + alone.overview["verdict_detail"]


def test_the_wait_of_an_iteration_without_mark_of_the_forward_pass_is_as_stated(tmp_path):
    tasks, marks = made.training(5)
    folder = made.prof(tmp_path / "PROF_6_20250109094754000_A", tasks, marks, files=("step_trace",))
    (file,) = folder.rglob("step_trace*.csv")
    lines = [line.split(",") for line in file.read_text().splitlines()]
    at = lines[0].index("FP Start(us)")
    file.write_text(
        "\n".join(
            ",".join("N/A" if i == at and row else cell for i, cell in enumerate(line))
            for row, line in enumerate(lines)
        )
    )
    assert run_of(folder).steps["input_ms"].iloc[1:].tolist() == pytest.approx([0.3] * 4)


def test_the_wait_of_iterations_is_not_told_of_tf_data(tmp_path):
    tasks, marks = made.training(5)
    said = run_of(
        made.prof(
            tmp_path / "PROF_7_20250109094754000_A", [t for t in tasks if t.core != "AI_CPU"], marks
        )
    ).input_summary
    assert "Data Aug Bound" in said["next_step"]
    assert "tf.data" not in said["next_step"]


def test_a_million_names_of_ops_are_no_texts_of_the_tables(graph):
    work = msprof_work.Work(graph.trace, msprof_lanes.name_lanes(graph.trace))
    assert work.table["named"].all()
    assert not {"gradients/layer/MatMul_1", "trans_TransData_0"} & set(work.texts)


def test_tables_that_are_all_empty_say_so(tmp_path):
    folder = tmp_path / "PROF_8_20250109094754000_A" / "mindstudio_profiler_output"
    folder.mkdir(parents=True)
    (folder / "op_summary_20250109094754.csv").write_bytes(b"")
    with pytest.raises(
        nbprof.ReadError, match=r"op_summary.*all of its tables are empty.*msprof --export=on"
    ):
        nbprof.load(folder)


def test_the_iterations_of_an_older_layout_alone_are_those_of_their_graph(tmp_path):
    tasks, marks = made.training(5)
    folder = made.older(tmp_path / "PROF_9_20230818142704000_A", tasks, marks)
    (file,) = folder.rglob("step_trace*.json")
    alone = run_of(file)
    assert alone.steps["name"].tolist() == [f"Iteration {i}" for i in range(1, 6)]
    assert alone.ascend.iterations["data_aug_ms"].iloc[1:].tolist() == pytest.approx([0.3] * 4)
    assert "plain trace" not in str(alone.receipt)
