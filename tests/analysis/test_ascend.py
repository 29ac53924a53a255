"""The analyses of Ascend's tables, on tables whose numbers can be checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend import iterations as ascend_iterations
from nbprof.analysis.ascend import ops as ascend_ops
from nbprof.analysis.ascend import pmu as ascend_pmu
from nbprof.analysis.ascend import tables as ascend_tables
from nbprof.analysis.ascend import waits as ascend_waits
from tests.support.ascend import MS, run, steps, table, tasks


def gathered(kind: str, *tables: Any, hosts: tuple[str, ...] = ("rank 0",)) -> pd.DataFrame:
    return ascend.gathered({kind: list(tables)}, hosts)[kind]


def iterations(**columns: Any) -> pd.DataFrame:
    return ascend_iterations.frame(gathered("step_trace", table("step_trace", **columns)))[0]


def test_the_parts_of_an_iteration_make_the_whole() -> None:
    frame = iterations(**steps())
    assert frame["warmup"].tolist() == [True, True, False, False, False, False]
    later = frame.iloc[1:]
    assert later["iteration_ms"].tolist() == pytest.approx([10.0] * 5)
    parts = (
        later["data_aug_ms"] + later["fp_to_bp_ms"] + later["all_reduce_ms"] + later["update_ms"]
    )
    assert parts.tolist() == pytest.approx(later["iteration_ms"].tolist())
    assert (
        later["data_aug_ms"].iloc[0],
        later["all_reduce_ms"].iloc[0],
        later["update_ms"].iloc[0],
    ) == pytest.approx((5.0, 1.5, 0.5))
    # Before the first one nothing ended.
    assert np.isnan(frame["data_aug_ms"].iloc[0])
    assert frame["iteration_ms"].iloc[0] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("reported", "lead", "means"),
    [
        (10.0, None, "end to end"),
        (5.0, None, "from FP Start"),
        (6.0, None, "own start"),
        (5.25, 0.25, "own start"),
        (12.0, None, ""),
    ],
)
def test_what_the_file_means_by_iteration_time(
    reported: float, lead: float | None, means: str
) -> None:
    columns = steps() | {"iteration_us": np.full(6, reported * 1000)}
    if lead is not None:
        columns["iteration_start_ps"] = columns["fp_start_ps"] - round(lead * MS)
    frame = iterations(**columns)
    assert ascend_iterations.summary(frame)["convention"].tolist() == [means]
    # What it means changes nothing of what is computed.
    assert frame["iteration_ms"].iloc[1:].tolist() == pytest.approx([10.0] * 5)


def test_an_all_reduce_behind_the_backward_pass_is_hidden_and_overlapping_ones_count_once() -> None:
    columns = steps(reduce=None)
    bp = columns["bp_end_ps"]
    columns |= {"reduce_0_start_ps": bp - MS, "reduce_0_us": np.full(6, 2000.0)}
    columns |= {"reduce_1_start_ps": bp + MS // 2, "reduce_1_us": np.full(6, 1000.0)}
    frame = iterations(**columns)
    assert frame["hidden_all_reduce_ms"].iloc[0] == pytest.approx(1.0)
    assert frame["all_reduce_ms"].iloc[0] == pytest.approx(1.5)


def test_what_was_not_recorded_is_missing() -> None:
    frame = iterations(**steps(reduce=None))
    assert (
        frame[["all_reduce_ms", "update_ms", "hidden_all_reduce_ms", "lead_in_ms", "get_next_ms"]]
        .isna()
        .all()
        .all()
    )
    inference = {
        name: values for name, values in steps(reduce=None).items() if name.startswith("iteration")
    }
    del inference["iteration_refresh_us"]
    result, doubts = ascend_iterations.frame(
        gathered("step_trace", table("step_trace", **inference))
    )
    assert result[["data_aug_ms", "fp_to_bp_ms", "grad_refresh_ms"]].isna().all().all()
    assert result["iteration_ms"].notna().all()
    assert "no FP Start or BP End" in doubts[0]


def test_durations_stand_in_for_marks_that_a_file_leaves_out() -> None:
    columns = steps()
    del columns["fp_start_ps"], columns["bp_end_ps"]
    # As a figure in a document has it: to a millisecond.
    columns["iteration_end_ps"] = columns["iteration_end_ps"] // MS * MS
    frame = iterations(**columns)
    assert frame["iteration_ms"].iloc[1:].tolist() == pytest.approx([10.0] * 5)
    assert frame["all_reduce_ms"].iloc[2] == pytest.approx(1.5)


def test_iterations_that_files_repeat_count_once_and_models_are_apart() -> None:
    first, other = table("step_trace", **steps()), table("step_trace", **steps())
    setup = table("step_trace", **steps(2, data_aug=900.0, model_id=[1, 1]))
    frame, _ = ascend_iterations.frame(gathered("step_trace", first, other, setup))
    assert len(frame) == 8
    # The graph of most iterations, though the other one takes longer.
    assert frame.loc[frame["main"], "model"].unique().tolist() == [2]
    devices = gathered(
        "step_trace",
        table("step_trace", device=0, **steps()),
        table("step_trace", device=1, **steps(data_aug=6.0)),
    )
    summary = ascend_iterations.summary(ascend_iterations.frame(devices)[0])
    assert summary["device"].tolist() == [0, 1]
    assert summary["data_aug_ms"].tolist() == pytest.approx([5.0, 6.0])
    assert summary["data_aug_fraction"].tolist() == pytest.approx([0.5, 6 / 11])


def test_a_gap_in_the_iteration_ids_is_no_wait_for_data() -> None:
    columns = {
        name: np.delete(values, 3)
        for name, values in steps(data_aug_bound_us=np.full(6, np.nan)).items()
    }
    frame = iterations(**columns)
    assert np.isnan(frame["data_aug_ms"].iloc[3])
    assert frame["iteration_ms"].iloc[3] == pytest.approx(5.0)


def test_marks_that_cannot_be_are_told_and_not_drawn() -> None:
    columns = steps()
    columns["fp_start_ps"] = columns["fp_start_ps"].copy()
    columns["fp_start_ps"][3] -= 8 * MS
    columns["bp_end_ps"] = columns["bp_end_ps"].copy()
    columns["bp_end_ps"][4] = columns["iteration_end_ps"][4] + 1
    frame, doubts = ascend_iterations.frame(gathered("step_trace", table("step_trace", **columns)))
    assert np.isnan(frame["data_aug_ms"].iloc[3])
    assert np.isnan(frame["grad_refresh_ms"].iloc[4])
    assert doubts == [
        "1 iteration starts before the previous one ends: the Data Aug Bound is unknown there."
    ]
    assert (frame[["data_aug_ms", "fp_to_bp_ms", "grad_refresh_ms"]].fillna(0) >= 0).all().all()


def test_texts_where_numbers_are_due_are_missing() -> None:
    columns = steps(data_aug_bound_us=["n/a"] * 6, iteration_us=["?"] * 6)
    assert iterations(**columns)["reported_data_aug_ms"].isna().all()
    ops = frame_of([("a", "A", "AI_CORE", 1, 0, 10.0)], wait_us=["soon"], block_num=[None])
    assert ops["reported_wait_us"].isna().all()
    assert ops["block_num"].isna().all()


def frame_of(rows: list[tuple[Any, ...]], device: int = 0, **more: Any) -> pd.DataFrame:
    return ascend_ops.frame(
        gathered("op_summary", table("op_summary", device=device, **tasks(rows, **more)))
    )


ROWS = [
    ("conv", "Conv2D", "AI_CORE", 1, 0, 100.0),
    ("trans_TransData_0", "TransData", "AI_VECTOR_CORE", 1, 130, 20.0),
    ("getnext", "GetNext", "AI_CPU", 2, 50, 30.0),
    ("hcom", "hcom_allReduce_", "COMMUNICATION", None, 140, 60.0),
    ("conv", "Conv2D", "AI_CORE", 1, 145, 5.0),
]


def test_a_wait_counts_on_its_own_stream() -> None:
    ops = frame_of(ROWS)
    assert ops["wait_us"].tolist() == pytest.approx(
        [np.nan, 30.0, np.nan, np.nan, 0.0], nan_ok=True
    )
    assert ops["core"].tolist() == ["AI Core", "Vector core", "AI CPU", "Communication", "AI Core"]


def test_waits_of_streams_and_of_the_device() -> None:
    ops = frame_of(ROWS)
    waits = ascend_waits.frame(ops)
    assert waits["stream"].isna().tolist() == [True, False, False]
    everything, first, second = (waits.iloc[i] for i in range(3))
    # Busy 0-100 and 130-200: communication keeps the device busy too.
    assert (everything["busy_us"], everything["wait_us"]) == pytest.approx((170.0, 30.0))
    assert (first["busy_us"], first["wait_us"], first["longest_before"]) == (
        pytest.approx(120.0),
        pytest.approx(30.0),
        "trans_TransData_0",
    )
    assert (second["tasks"], second["wait_us"]) == (1, 0.0)
    assert np.isnan(second["longest_us"])
    assert np.isnan(everything["input_wait_us"])


def test_what_of_a_wait_is_for_data() -> None:
    # Gaps before FP Start: 15-20, 25-30 ms and so on.
    frame = iterations(**steps())
    rows = [(f"op{i}", "A", "AI_CORE", 1, 10_000 + i * 10_000, 4_000.0) for i in range(3)]
    ops = ascend_ops.frame(gathered("op_summary", table("op_summary", **tasks(rows))), frame)
    assert ops["iteration"].tolist() == [1, 2, 3]
    waits = ascend_waits.frame(ops, frame)
    assert waits["wait_us"].tolist() == pytest.approx([12_000.0, 12_000.0])
    assert waits["input_wait_us"].tolist() == pytest.approx([10_000.0, 10_000.0])


def test_time_by_kind_of_core_knows_what_ran_alone() -> None:
    cores = ascend_ops.by_core(frame_of(ROWS)).set_index("core")
    assert cores.loc["AI CPU", ["total_us", "busy_us", "alone_us"]].tolist() == pytest.approx(
        [30.0, 30.0, 0.0]
    )
    assert cores.loc[
        "AI Core", ["tasks", "total_us", "busy_us", "alone_us"]
    ].tolist() == pytest.approx([2, 105.0, 105.0, 70.0])
    assert cores.loc["Communication", "alone_us"] == pytest.approx(50.0)
    assert cores["fraction"].sum() == pytest.approx(1.0)


STATISTIC = {
    "op_type": ["Conv2D", "GetNext", "TransData"],
    "core_type": ["AI_CORE", "AI_CPU", "AI_VECTOR_CORE"],
    "count": [2, 1, 1],
    "total_us": [105.0, 30.0, 20.0],
    "min_us": [5.0, 30.0, 20.0],
    "max_us": [100.0, 30.0, 20.0],
}


def test_op_statistic_and_op_summary_say_the_same() -> None:
    ops, statistic = frame_of(ROWS), gathered("op_statistic", table("op_statistic", **STATISTIC))
    counted, summed = ascend_ops.types(ops, statistic), ascend_ops.types(ops, None)
    numbers = ["op_type", "core", "tasks", "total_us", "avg_us", "min_us", "max_us", "fraction"]
    pd.testing.assert_frame_equal(counted[numbers], summed[numbers], check_dtype=False)
    assert (counted["source"].unique(), summed["source"].unique()) == (
        ["op_statistic"],
        ["op_summary"],
    )
    assert ascend_ops.disagreement(ops, statistic) == ""
    assert "not complete" in ascend_ops.disagreement(ops.head(1), statistic)


def test_a_device_without_a_statistic_is_told_by_its_tasks() -> None:
    statistic = gathered("op_statistic", table("op_statistic", device=0, **STATISTIC))
    ops = pd.concat([frame_of(ROWS), frame_of(ROWS, device=1)], ignore_index=True)
    types = ascend_ops.types(ops, statistic)
    assert types.groupby("device")["source"].unique().map(list).tolist() == [
        ["op_statistic"],
        ["op_summary"],
    ]
    assert types.groupby("device")["fraction"].sum().tolist() == pytest.approx([1.0, 1.0])


PMU = {
    "aicore_time_us": [90.0, 0.0, np.nan, np.nan, 4.0],
    "aic_total_cycles": [1000.0, 0.0, np.nan, np.nan, 50.0],
    "aic_mac_ratio": [0.9, 0.0, np.nan, np.nan, 0.1],
    "aic_mte2_ratio": [0.3, 0.0, np.nan, np.nan, 0.95],
    "aic_scalar_ratio": [0.2, 0.0, np.nan, np.nan, 0.2],
    "aiv_time_us": [0.0, 15.0, np.nan, np.nan, 0.0],
    "aiv_total_cycles": [0.0, 900.0, np.nan, np.nan, 0.0],
    "aiv_vec_ratio": [0.0, 0.5, np.nan, np.nan, 0.0],
    "aiv_mte2_ratio": [0.0, 0.7, np.nan, np.nan, 0.0],
    "cube_utilization_percent": [80.0, 0.0, np.nan, np.nan, 10.0],
}


def pmu_of(
    columns: dict[str, Any], cache: Any = None, rows: list[tuple[Any, ...]] = ROWS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    raw = gathered("op_summary", table("op_summary", **tasks(rows, **columns)))
    return raw, ascend_pmu.frame(raw, ascend_ops.frame(raw), cache)


def test_counters_of_the_side_that_ran() -> None:
    raw, pmu = pmu_of(PMU)
    assert ascend_pmu.groups(raw) == ["PipeUtilization"]
    # AI CPU and communication have none.
    assert pmu["op"].tolist() == ["conv", "trans_TransData_0", "conv"]
    assert pmu["bound_by"].tolist() == ["cube", "MTE2", "MTE2"]
    assert pmu["bound_fraction"].tolist() == pytest.approx([0.9, 0.7, 0.95])
    assert pmu["core_us"].tolist() == pytest.approx([90.0, 15.0, 4.0])
    assert np.isnan(pmu["vector_fraction"].iloc[0])
    assert pmu["memory_bound"].tolist() == pytest.approx([0.3 / 0.9, 0.7 / 0.5, 9.5])
    types = ascend_pmu.by_type(pmu).set_index("op_type")
    assert types.loc["Conv2D", "cube_fraction"] == pytest.approx((0.9 * 100 + 0.1 * 5) / 105)
    assert types.loc["Conv2D", "saturated_fraction"] == pytest.approx(1.0)
    assert types.loc["TransData", "saturated_fraction"] == 0.0


def test_counters_of_chips_without_prefix() -> None:
    columns = {
        "aicore_time_us": [9.0],
        "total_cycles": [100.0],
        "mac_ratio": [0.2],
        "vec_ratio": [0.6],
        "mte2_ratio": [0.3],
        "memory_bound": [0.5],
    }
    _, pmu = pmu_of(columns, rows=ROWS[:1])
    assert pmu[["bound_by", "bound_fraction", "memory_bound"]].iloc[0].tolist() == [
        "vector",
        0.6,
        0.5,
    ]


def test_cache_hits_from_counters_or_from_their_own_table() -> None:
    raw, pmu = pmu_of(
        {
            "aic_total_cycles": [100.0],
            "aic_r0_read_cache_hit": [30.0],
            "aic_r0_read_cache_miss_allocate": [10.0],
        },
        rows=ROWS[:1],
    )
    assert ascend_pmu.groups(raw) == ["L2Cache"]
    assert pmu["cache_hit_fraction"].tolist() == [0.75]
    cache = gathered(
        "l2_cache", table("l2_cache", stream_id=[1, 1], task_id=[0, 1], hit_rate=[0.4, 0.9])
    )
    _, with_cache = pmu_of(PMU, cache)
    assert with_cache["cache_hit_fraction"].tolist() == pytest.approx(
        [0.4, 0.9, np.nan], nan_ok=True
    )


def test_a_fused_op_knows_what_it_was_made_of_and_how_long_it_ran() -> None:
    columns = {
        "model_id": [2, 2],
        "fusion_op": ["conv", "other"],
        "original_ops": ["conv;bias, relu", "other"],
        "memory_workspace_bytes": [0.0, 2048.0],
    }
    frame = ascend_tables.fusion(
        gathered("fusion_op", table("fusion_op", device=None, **columns)), frame_of(ROWS)
    )
    assert frame["original_ops"].tolist() == ["conv, bias, relu", "other"]
    assert ascend_tables.fused_away(frame) == (4, 2)
    assert frame["tasks"].tolist() == [2, pd.NA]
    assert frame["total_us"].iloc[0] == pytest.approx(105.0)
    assert frame["memory_total_bytes"].isna().all()


def test_calls_of_the_host_are_parts_of_their_level() -> None:
    columns = {
        "level": ["node", "acl", "acl"],
        "api_name": ["launch", "a", "b"],
        "time_us": [50.0, 30.0, 10.0],
        "count": [5, 3, 0],
        "variance": [4.0, 9.0, -1.0],
    }
    frame = ascend_tables.api(
        gathered("api_statistic", table("api_statistic", device=None, **columns))
    ).set_index("api")
    assert frame["fraction"].tolist() == pytest.approx([1.0, 0.75, 0.25])
    assert frame.loc["launch", ["avg_us", "sd_us"]].tolist() == pytest.approx([10.0, 2.0])
    assert frame.loc["b", ["avg_us", "sd_us"]].isna().all()


def test_moments_keep_their_nanoseconds() -> None:
    late = 2**53 + 1_000
    frame = pd.DataFrame({"start_ps": pd.array([late + 1, None], dtype="Int64")})
    values, recorded = ascend.moments(frame, "start_ps")
    assert (values.tolist(), recorded.tolist()) == ([late + 1, 0], [True, False])


def test_a_million_tasks_have_no_loop() -> None:
    count = 200_000
    rng = np.random.default_rng(1)
    columns = {
        "stream_id": rng.integers(0, 8, count),
        "task_id": np.arange(count),
        "op_name": np.array([f"op{i}" for i in range(500)])[rng.integers(0, 500, count)],
        "op_type": np.full(count, "MatMul"),
        "task_type": np.full(count, "AI_CORE"),
        "start_ps": np.sort(rng.integers(0, 10**12, count)),
        "duration_us": rng.random(count),
    }
    ops = ascend_ops.frame(gathered("op_summary", table("op_summary", **columns)))
    waits = ascend_waits.frame(ops)
    assert waits["tasks"].tolist()[0] == count == waits["tasks"].iloc[1:].sum()
    # What a stream waits and what it is busy is all of the time from its first to its last task.
    for row in waits.iloc[1:].itertuples():
        of_stream = ops[ops["stream"] == row.stream]
        ends = of_stream["start_ms"] * 1000 + of_stream["duration_us"]
        assert row.busy_us + row.wait_us == pytest.approx(
            ends.max() - of_stream["start_ms"].min() * 1000, rel=1e-6
        )


def test_frames_have_the_columns_and_types_of_their_schema() -> None:
    from tests.support.frames import below, of_run

    tables = {
        "step_trace": [table("step_trace", **steps())],
        "op_summary": [table("op_summary", **tasks(ROWS, **PMU))],
        "op_statistic": [table("op_statistic", **STATISTIC)],
        "fusion_op": [
            table("fusion_op", device=None, fusion_op=["conv"], original_ops=["conv;relu"])
        ],
        "api_statistic": [
            table(
                "api_statistic",
                device=None,
                level=["acl"],
                api_name=["a"],
                time_us=[1.0],
                count=[1],
            )
        ],
    }
    for result in (run(tables), run({})):
        for name, columns in below("ascend.").items():
            frame = getattr(result.ascend, of_run(name))
            assert {c: str(t) for c, t in frame.dtypes.items()} == {
                col.name: col.dtype for col in columns
            }, name
            assert bool(len(frame)) == bool(result.ascend.kinds), name
    for columns in below("ascend.").values():
        assert all(col.help.endswith((".", "…")) and col.label for col in columns)


def test_ranks_keep_their_devices_apart() -> None:
    result = run(
        {
            "step_trace": [
                table("step_trace", host=0, **steps()),
                table("step_trace", host=1, **steps(data_aug=7.0)),
            ]
        },
        hosts=("rank 0", "rank 1"),
    )
    summary = result.ascend.iterations_summary
    assert summary["host"].tolist() == ["rank 0", "rank 1"]
    assert summary["device"].tolist() == [0, 0]
    assert summary["iteration_ms"].tolist() == pytest.approx([10.0, 12.0])
