"""The analyses on real recordings of Ascend's profilers, against what their tables state
themselves.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend import iterations as ascend_iterations
from nbprof.core.files import LocalFile
from nbprof.formats.msprof import tables as msprof_tables
from nbprof.profiles import load as profiles
from tests.support.profiles import real


@cache
def opened(name: str) -> profiles.Profile:
    return profiles.read(real(f"ascend/{name}"))


def test_iterations_of_a_graph_on_two_devices() -> None:
    face = opened("msprof-old-layout").ascend
    frame = face.iterations.frame
    assert frame.groupby("device").size().to_dict() == {0: 10, 1: 10}
    two = frame[(frame["device"] == 0) & (frame["iteration"] == 2)].iloc[0]
    measured = two[
        ["fp_to_bp_ms", "grad_refresh_ms", "data_aug_ms", "iteration_ms", "reported_iteration_ms"]
    ].tolist()
    assert measured == pytest.approx([4.26915, 11.09507, 32.13495, 47.49917, 15.36916], abs=1e-5)
    first = frame[frame["iteration"] == 1].sort_values("device")
    assert first["reported_iteration_ms"].tolist() == pytest.approx([47.58781, 57.53296], abs=1e-5)
    assert first["data_aug_ms"].isna().all()
    follows = frame[frame["data_aug_ms"].notna()]
    parts = follows[["data_aug_ms", "fp_to_bp_ms", "all_reduce_ms", "update_ms"]].sum(axis=1)
    np.testing.assert_allclose(parts, follows["iteration_ms"], rtol=1e-9)
    summary = face.iterations.summary
    assert summary["convention"].tolist() == ["own start"] * 2
    assert summary["data_aug_fraction"].between(0.45, 0.55).all()
    assert face.verdict["verdict"] == "Input-bound"
    rules = face.rules.frame.set_index("rule")["state"]
    assert (rules["input"], rules["slow_device"]) == ("found", "not found")


def test_tasks_that_only_the_timeline_has() -> None:
    run = opened("msprof-old-layout").run
    ops = run.ascend.ops
    each = ops[ops["device"] == 0].groupby("core").size()
    # One iteration has 137 tasks of AI Core, 2 of AI CPU and 1 all-reduce.
    assert each.to_dict() == {"AI CPU": 20, "AI Core": 1370, "Communication": 10}
    counts = ops[ops["core"] == "AI Core"].groupby(["device", "iteration"]).size()
    assert (counts == 137).all()
    assert len(counts) == 20
    everything = run.ascend.waits[run.ascend.waits["stream"].isna()]
    assert (everything["input_wait_us"] / everything["wait_us"]).between(0.9, 1.0).all()


def test_iteration_time_end_to_end_of_a_page_of_the_documentation() -> None:
    run = opened("doc_figures_transcribed").run
    frame = run.ascend.iterations
    later = frame.iloc[1:]
    np.testing.assert_allclose(later["iteration_ms"], later["reported_iteration_ms"], atol=1e-6)
    np.testing.assert_allclose(
        later["data_aug_ms"] + later["fp_to_bp_ms"] + later["grad_refresh_ms"],
        later["iteration_ms"],
        rtol=1e-9,
    )
    assert later["iteration_ms"].iloc[0] == pytest.approx(1.551622034)
    assert run.ascend.iterations_summary["convention"].tolist() == ["end to end"]
    # Start-up, and no wait for a batch.
    assert np.isnan(frame["data_aug_ms"].iloc[0])
    assert frame["reported_data_aug_ms"].iloc[0] == pytest.approx(3792.445382)


def test_op_statistic_equals_op_summary_put_together() -> None:
    run = opened("msprof-op-run/msprof_real_output").run
    ops, types = run.ascend.ops, run.ascend.op_types
    assert (len(ops), ops["duration_us"].sum()) == (9, pytest.approx(40.604))
    by_type = ops.groupby("op_type")["duration_us"].agg(["size", "sum", "min", "max"])
    counted = types.set_index("op_type")[["tasks", "total_us", "min_us", "max_us"]]
    np.testing.assert_allclose(by_type.loc[counted.index].to_numpy(), counted.to_numpy(), rtol=1e-6)
    assert types["total_us"].tolist() == pytest.approx([30.144, 6.24, 4.22])
    ratio = run.ascend.tables["op_statistic"].set_index("op_type")["ratio_percent"]
    np.testing.assert_allclose(
        types.set_index("op_type")["fraction"] * 100, ratio[types["op_type"]], atol=5e-4
    )
    assert run.ascend.notes == []
    # One stream: the wait of the file is that of the stream, but for the quarter of a microsecond
    # that it rounds moments to.
    later = ops["wait_us"].notna()
    assert later.sum() == 8
    np.testing.assert_allclose(
        ops.loc[later, "wait_us"], ops.loc[later, "reported_wait_us"], atol=0.5
    )


def test_tables_that_are_cut_are_told() -> None:
    notes = opened("msprof-op-run/realistic_parent_layout").run.ascend.notes
    assert len(notes) == 1
    assert "not complete" in notes[0]


def test_counters_of_a_matrix_product_say_that_memory_bounds_it() -> None:
    face = opened("msprof-op-run/standalone_real_output").ascend
    assert face.pmu.groups == ["PipeUtilization"]
    types = face.pmu.types
    assert types["bound_by"].tolist() == ["MTE2"]
    raw = face.table("op_summary")
    mean = (raw["aic_mte2_ratio"] * raw["duration_us"]).sum() / raw["duration_us"].sum()
    assert types["mte2_fraction"].iloc[0] == pytest.approx(mean)
    names = face.rules.found["rule"].tolist()
    assert {"memory_bound", "low_cube", "wait"} <= set(names)
    # As msprof-analyze: op by op, no pipe below 80% stays.
    assert "no_bound" not in names


def test_computing_what_is_not_hidden_and_free_make_a_stage() -> None:
    times = opened("msprof-op-run/standalone_real_output").ascend.table("step_trace_time")
    parts = times[["computing_us", "communication_not_overlapped_us", "free_us"]].sum(axis=1)
    np.testing.assert_allclose(parts - times["bubble_us"].fillna(0), times["stage_us"], atol=0.3)
    np.testing.assert_allclose(
        times["communication_us"],
        times["communication_not_overlapped_us"] + times["overlapped_us"],
        atol=0.3,
    )
    # The same from the tasks: what computes in a step is the union of its tasks.
    ops = opened("msprof-op-run/standalone_real_output").ascend.ops.frame
    assert ops["duration_us"].sum() == pytest.approx(times["computing_us"].sum(), abs=0.5)


def test_the_underflow_of_a_reduce_is_mended() -> None:
    file = LocalFile(real("ascend/msprof_ut_expected/summary_step_trace_assembler_rows.csv"))
    tables, _ = msprof_tables.tables([file])
    frame, _ = ascend_iterations.frame(ascend.gathered(tables, ["rank 0"])["step_trace"])
    row = frame[frame["iteration"] == 1].iloc[0]
    # BP End .. end is 19.719 us: the second reduce ends in it, the first lies before BP End.
    assert row["all_reduce_ms"] == pytest.approx(0.006556)
    assert row["hidden_all_reduce_ms"] == pytest.approx(0.030312)
    assert row["grad_refresh_ms"] == pytest.approx(0.019719)


@pytest.mark.parametrize("name", ["msprof-old-layout", "msprof-op-run", "doc_figures_transcribed"])
def test_frames_of_every_recording_have_their_schema(name: str) -> None:
    from tests.support.frames import below, of_run

    run = opened(name).run
    for frame, columns in below("ascend.").items():
        table = getattr(run.ascend, of_run(frame))
        assert [str(t) for t in table.dtypes] == [col.dtype for col in columns], frame
        fractions = [col.name for col in columns if col.unit == "fraction"]
        for column in fractions:
            values = pd.to_numeric(table[column]).dropna()
            assert values.between(0, 1.001).all(), (frame, column)
