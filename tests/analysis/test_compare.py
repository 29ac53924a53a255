"""Two runs side by side, on frames made by hand. No other tool has such a view: what these figures
are is defined here.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.compare import compare
from nbprof.analysis.compare import memory as compare_memory
from nbprof.analysis.compare import verdict as compare_verdict
from nbprof.analysis.compare.compare import Side, plain_name
from nbprof.analysis.compare.findings import findings
from nbprof.analysis.steps.bare import BareSteps
from tests.support.frames import below

NO_OPS = pd.DataFrame({"where": [], "type": [], "op": [], "self_us": [], "occurrences": []})
NO_KERNELS = pd.DataFrame({"kernel": [], "total_us": [], "occurrences": []})


def steps(times, *, host="a", first=0, counted=None, kind="train", **categories):
    n = len(times)
    return pd.DataFrame(
        {
            "host": host,
            "step": np.arange(first, first + n),
            "name": [f"{kind} {i}" for i in range(n)],
            "start_ms": np.arange(n) * 100.0,
            "step_time_ms": np.asarray(times, float),
            **{
                f"{c}_ms": np.asarray(categories.get(c, np.full(n, np.nan)), float)
                for c in CATEGORIES
            },
            "kind": kind,
            "counted": np.ones(n, bool) if counted is None else counted,
        }
    )


def ops(rows):
    return pd.DataFrame(rows, columns=["where", "type", "op", "self_us", "occurrences"])


def side(
    label="run", times=(), *, ops=NO_OPS, kernels=NO_KERNELS, overview=None, frame=None, **more
):
    known = {
        "device_kind": "CPU",
        "devices": 0,
        "framework": "TensorFlow",
        "hosts": 1,
        **(overview or {}),
    }
    made = steps(times, **more.pop("categories", {})) if frame is None else frame
    return Side(label, made, ops, kernels, pd.DataFrame({"op": []}), known, **more)


def judged(a, b, **more):
    before, after = side("run 7", a, **more), side("run 9", b, **more)
    return compare_verdict.verdict(before, after, compare.categories(before, after))


def noisy(mean, n=21, sd=0.1, seed=0):
    return np.random.default_rng(seed).normal(mean, sd, n)


def test_a_real_change_is_told_as_a_factor():
    found = judged(noisy(6.2), noisy(3.2, seed=1))
    assert found.kind == "real"
    assert found.headline.startswith("1.9")
    assert "× faster (3." in found.headline
    assert found.evidence[0][0] is True
    assert "(95%), 21 steps each" in found.evidence[0][1]
    assert judged(noisy(3.2), noisy(6.2, seed=1)).headline.split(" (")[0].endswith("× slower")


def test_long_steps_are_told_in_seconds():
    found = judged(noisy(47_618.2, sd=100), noisy(9_000, sd=100))
    assert re.search(r"\([\d,.]+ ms vs 47\.\d\d s per step\)$", found.headline)
    assert re.search(r"^Difference −38\.\d\d s ± [\d.]+ ms \(95%\)", found.evidence[0][1])


def test_a_small_real_change_is_told_in_percent():
    found = judged(noisy(10, sd=0.01), noisy(9.7, sd=0.01, seed=1))
    assert found.kind == "real"
    assert found.headline.startswith("3.0% faster (")


def test_what_is_within_the_noise_is_no_difference():
    found = judged(noisy(5.0), noisy(5.0, seed=1))
    assert found.kind == "none"
    assert found.headline.startswith("No significant difference")
    assert found.evidence[0][0] is False


def test_the_same_steps_are_no_difference():
    times = noisy(5)
    found = judged(times, times)
    assert found.kind == "same"
    assert found.headline == f"No difference: both have the same steps of {times.mean():.2f} ms"
    assert not any("record 10" in text for _, text in found.evidence)
    # One step is the same as itself, too.
    assert judged([4.0], [4.0]).kind == "same"


def test_a_few_slow_steps_hide_a_change_of_the_typical_step():
    slow = [60.0, 45.0, 70.0]
    found = judged([*noisy(6.2, 17), *slow], [*noisy(5.2, 17, seed=1), *slow[:2], 90.0])
    assert found.kind == "typical"
    assert found.headline.startswith("The typical step is faster: 5.")
    assert any("hide the difference in the mean" in text for _, text in found.evidence)


def test_a_few_slow_steps_make_the_change_alone():
    base = noisy(5.0, 60)
    stalls = base.copy()
    stalls[5::10] += noisy(20, 6, seed=3)
    found = judged(base, stalls)
    assert found.kind == "some"
    assert any("Without the fastest and slowest 20%: +0.0" in text for _, text in found.evidence)


def test_steps_that_drift_are_worth_less():
    a = 5 + 0.1 * np.sin(np.arange(60) / 20)
    b = 5.04 + 0.1 * np.sin(np.arange(60) / 20 + 0.1)
    found = judged(a, b)
    assert found.kind == "serial"
    assert "not statistically significant" in found.headline
    assert any("Consecutive steps are correlated (0.9" in text for _, text in found.evidence)
    # The same values in another order are as they would be by chance.
    mixed = [np.random.default_rng(i).permutation(x) for i, x in enumerate((a, b))]
    assert judged(*mixed).kind == "real"


def test_large_but_uncertain_is_not_called_nothing():
    found = judged([150, 160, 170, 210, 180, 190], [120, 110, 210, 200, 118, 119])
    assert found.kind == "chance"
    assert "not statistically significant" in found.headline
    assert any("Only 6 steps before, 6 steps after" in text for _, text in found.evidence)


def test_few_steps_that_are_all_apart():
    found = judged([1.0, 1.1, 1.2, 1.0], [2.0, 2.1, 9.0, 2.2])
    assert found.kind == "typical"
    assert any(text.startswith("Every step after is slower") for _, text in found.evidence)
    # Of 3 and 3 this happens by chance in one of ten.
    assert judged([1.0, 1.1, 1.2], [2.0, 2.1, 9.0]).kind == "chance"


def test_two_steps_have_an_interval_and_one_has_none():
    found = judged(noisy(6), [3.0, 3.2])
    assert found.difference.has_interval
    assert any("Only 2 steps after: record 10 or more" in text for _, text in found.evidence)
    found = judged(noisy(6), [3.0])
    assert (found.kind, found.difference.has_interval) == ("unknown", False)
    assert any("a single step cannot show" in text for _, text in found.evidence)
    assert found.headline.startswith("1.99× faster (")


@pytest.mark.parametrize(
    ("a", "b", "who"),
    [([], [1.0, 2.0], "run 7 has"), ([1.0], [], "run 9 has"), ([], [], "run 7 and run 9 have")],
)
def test_a_run_without_steps(a, b, who):
    found = judged(a, b)
    assert found.kind == "unknown"
    assert found.headline == f"Step times cannot be compared: {who} no steps"
    assert not any("Difference" in text for _, text in found.evidence)


def test_only_counted_steps_count_and_hosts_are_one():
    frame = pd.concat(
        [
            steps([900.0, 4, 6], counted=[False, True, True]),
            steps([700.0, 8, 10], host="b", counted=[False, True, True]),
        ]
    )
    assert side(frame=frame).times.tolist() == [6, 8]
    # A step number that comes back in the next epoch is another step.
    again = pd.concat([frame, frame.assign(start_ms=frame["start_ms"] + 1000)])
    assert side(frame=again).times.tolist() == [6, 8, 6, 8]
    assert side(frame=frame.iloc[:0]).times.tolist() == []


def test_categories_have_their_intervals():
    a = side(times=[6, 7, 8], categories={"input": [3, 4, 5], "host_compute": [3, 3, 3]})
    b = side(times=[4, 5, 3], categories={"input": [1, 2, 0], "device_compute": [3, 3, 3]})
    rows = compare.categories(a, b).set_index("category")
    assert list(rows.index) == ["step_time", *CATEGORIES]
    assert rows.loc["step_time", ["before_ms", "after_ms", "change_ms"]].tolist() == [7, 4, -3]
    assert rows.loc["input", "change_percent"] == -75
    assert rows.loc["input", "margin_ms"] == pytest.approx(2.7764 * math.sqrt(2 / 3), abs=1e-4)
    assert bool(rows.loc["input", "real"])
    assert rows.loc["host_compute"].isna().tolist() == [False, True, True, True, True, True]
    assert math.isnan(rows.loc["device_compute", "before_ms"])


def test_ops_are_matched_by_side_type_and_name():
    a = side(
        times=[1, 1],
        ops=ops(
            [
                ("host", "Map", "Map", 200, 2),
                ("host", "X", "gone", 50, 1),
                ("device", "Map", "Map", 8, 1),
            ]
        ),
    )
    b = side(
        times=[1] * 4,
        ops=ops(
            [
                ("host", "Map", "Map", 40, 4),
                ("device", "Map", "Map", 16, 1),
                ("host", "Y", "new", 80, 8),
            ]
        ),
    )
    found = compare.ops(a, b)
    assert found[["where", "op", "state"]].to_numpy().tolist() == [
        ["host", "Map", "both"],
        ["host", "gone", "gone"],
        ["host", "new", "new"],
        ["device", "Map", "both"],
    ]
    # Two steps before, four after.
    assert found["before_us"].tolist()[:2] == [100, 25]
    assert found["after_us"].fillna(-1).tolist() == [10, -1, 20, 4]
    assert found["change_us"].tolist() == [-90, -25, 20, 0]
    assert found["before_calls"].fillna(-1).tolist() == [1, 0.5, -1, 0.5]
    assert math.isnan(found["before_us"][2])


def test_ops_whose_copies_have_other_numbers_are_the_same():
    a = ops(
        [
            ("host", "MatMul", "model/dense_1/MatMul", 10, 1),
            ("host", "F", "fusion.1", 5, 1),
            ("host", "F", "fusion.2", 4, 1),
        ]
    )
    b = ops(
        [
            ("host", "MatMul", "model_1/dense_3/MatMul", 30, 1),
            ("host", "F", "fusion.7", 6, 1),
            ("host", "F", "fusion.8", 7, 1),
        ]
    )
    found = compare.ops(side(times=[1], ops=a), side(times=[1], ops=b)).set_index("op")
    assert found.loc["model_1/dense_3/MatMul", ["state", "before_op", "change_us"]].tolist() == [
        "renamed",
        "model/dense_1/MatMul",
        20,
    ]
    # Which of several is which is not guessed.
    assert found["state"].drop("model_1/dense_3/MatMul").value_counts().to_dict() == {
        "new": 2,
        "gone": 2,
    }
    assert plain_name("a_1/b_22/c.3:0") == "a/b/c:0"
    assert plain_name("conv2d/Conv2D") == "conv2d/Conv2D"


def test_without_steps_ops_are_of_the_whole_profile():
    a, b = (
        side(times=[1, 1], ops=ops([("host", "A", "a", 200, 2)])),
        side(times=[], ops=ops([("host", "A", "a", 90, 1)])),
    )
    assert not compare.per_step(a, b)
    assert compare.ops(a, b)["change_us"].tolist() == [-110]
    assert any("whole profile" in text for _, text in judged([1.0], []).evidence)


def test_idle_is_no_op_and_kernels_add_up_by_name():
    idle = ops([("device", "IDLE", "IDLE", 1e6, 0), ("device", "A", "a", 2, 1)])
    assert compare.ops(side(times=[1], ops=idle), side(times=[1], ops=idle))["op"].tolist() == ["a"]
    k = pd.DataFrame(
        {
            "kernel": ["gemm", "gemm", "ncclAllReduce"],
            "total_us": [10.0, 5.0, 1.0],
            "occurrences": [1, 2, 3],
        }
    )
    found = compare.kernels(side(times=[1], kernels=k), side(times=[1], kernels=k.iloc[:1]))
    assert found["kernel"].tolist() == ["gemm", "ncclAllReduce"]
    assert found["change_us"].tolist() == [-5, -1]
    assert found["category"].tolist() == ["device_compute", "device_collectives"]


@pytest.mark.parametrize(
    ("name", "where", "category"),
    [
        ("MemcpyH2D", "device", "input"),
        ("Memcpy DtoH (Device -> Pageable)", "device", "output"),
        ("MEMCPYDtoD", "device", "device_to_device"),
        ("all-reduce.3", "device", "device_collectives"),
        ("Iterator::Root::Map", "host", "input"),
        ("read", "host", "input"),
        ("cudaLaunchKernel", "host", "kernel_launch"),
        ("MatMul", "host", "host_compute"),
        ("MatMul", "device", "device_compute"),
    ],
)
def test_the_colour_of_an_op(name, where, category):
    assert compare.category_of(name, "", where, {"read"}) == category


def told(found):
    return {text: ok for ok, text in found.evidence}


def evidence(a, b, **more):
    before, after = (
        side("run", noisy(5, seed=i), overview=known, **more) for i, known in enumerate((a, b))
    )
    return told(compare_verdict.verdict(before, after, compare.categories(before, after)))


def test_what_differs_is_a_warning():
    a = {
        "device_kind": "Tesla T4",
        "devices": 1,
        "framework": "TensorFlow",
        "compute_16bit_percent": 0.0,
    }
    found = evidence(
        a,
        {"device_kind": "TPU v6", "devices": 4, "framework": "JAX", "compute_16bit_percent": 90.0},
    )
    assert found["Device differs: Tesla T4 before, 4 × TPU v6 after"] is False
    assert found["Framework differs: TensorFlow before, JAX after"] is False
    assert found["The share of 16-bit compute differs: 0% before, 90% after"] is False
    assert "Batch size and precision were not recorded: make sure they match" in found
    assert "Same device and framework" not in found


def test_hosts_and_versions_are_looked_at():
    a = {"environment": {"hosts": ["one"], "versions": {"TensorFlow": "2.20.0", "Keras": "3.1"}}}
    b = {"environment": {"hosts": ["two"], "versions": {"TensorFlow": "2.21.0", "CUDA": "12"}}}
    found = evidence(a, b)
    assert found["Host differs: one before, two after"] is False
    assert found["Version of TensorFlow differs: 2.20.0 before, 2.21.0 after"] is False
    # Names of files of PyTorch, with the time at which they were written.
    same = [{"environment": {"hosts": [f"w.16231430{i}9861"]}} for i in range(2)]
    assert not any(text.startswith("Host differs") for text in evidence(*same))


def test_batch_and_precision_that_were_recorded():
    before, after = (
        side("a", noisy(5), batch="64", precision="float32"),
        side("b", noisy(5, seed=1), batch="128", precision="float32"),
    )
    found = told(compare_verdict.verdict(before, after, compare.categories(before, after)))
    assert found["Same device, framework and precision"] is True
    assert found["Batch size differs: 64 before, 128 after"] is False
    figures = compare.figures(before, after).set_index("figure")
    assert figures.loc["examples_per_second", "before"] == pytest.approx(
        64_000 / before.times.mean()
    )


def test_lost_events_failed_cells_and_other_kinds_of_steps():
    before = side("a", noisy(5), dropped=1200)
    after = side("b", frame=steps(noisy(5, 30, seed=1), kind="test"), failed=True)
    found = told(compare_verdict.verdict(before, after, compare.categories(before, after)))
    assert found["1,200 events were dropped before"] is False
    assert found['The "after" cell failed, so its recording is partial'] is False
    assert found["The kinds of steps differ: train before, test after"] is False
    assert found["The number of steps differs: 21 before, 30 after"] is False


def test_device_compute_is_the_control():
    def run(compute, seed):
        return side("x", noisy(5, seed=seed), categories={"device_compute": np.full(21, compute)})

    for compute, text, ok in (
        (1.54, "Device compute is unchanged (0.00 ms)", True),
        (3.0, "Device compute changed too (+1.46 ms)", False),
    ):
        before, after = run(1.54, 0), run(compute, 1)
        found = told(compare_verdict.verdict(before, after, compare.categories(before, after)))
        assert next(value for key, value in found.items() if key.startswith(text)) is ok


def test_the_detail_tells_real_changes_of_both_ways():
    a = side(
        "a",
        noisy(6.2),
        categories={
            "input": noisy(3.8, seed=2),
            "kernel_launch": noisy(0.4, sd=0.01, seed=3),
            "output": noisy(1, seed=4),
        },
    )
    b = side(
        "b",
        noisy(3.2, seed=1),
        categories={
            "input": noisy(0.1, sd=0.01, seed=5),
            "kernel_launch": noisy(0.9, sd=0.01, seed=6),
        },
    )
    found = compare_verdict.verdict(a, b, compare.categories(a, b))
    first, second, third = found.detail.split(". ")
    assert first.startswith("Waiting for input fell from 3.")
    assert second.startswith("Kernel launch rose from 0.4")
    assert third.startswith("The largest avoidable part is now kernel launch: 2")


def test_shares_change_in_points_and_unknown_figures_are_left_out():
    a, b = (
        side("a", [4.0, 4.0], overview={"input_percent": 61.0}),
        side("b", [2.0, 2.0], overview={"input_percent": 3.7}),
    )
    found = compare.figures(a, b).set_index("figure")
    assert list(found.index) == ["step_time", "input", "steps_per_second"]
    assert found.loc["input", "change"] == pytest.approx(-57.3)
    assert math.isnan(found.loc["input", "change_percent"])
    assert found.loc["step_time", "change_percent"] == -50


def test_where_ops_ran_is_a_figure_of_both_runs():
    a, b = (
        side("a", [4.0, 4.0], overview={"device_op_percent": 61.0}),
        side("b", [2.0, 2.0], overview={"device_op_percent": 85.5}),
    )
    found = compare.figures(a, b).set_index("figure").loc["ops_on_device"]
    assert found[["before", "after", "change", "unit"]].tolist() == [61.0, 85.5, 24.5, "percent"]
    assert (
        "ops_on_device"
        not in compare.figures(side("a", [4.0]), side("b", [2.0]))["figure"].tolist()
    )


@pytest.mark.parametrize("times", [([1.0, 2.0], [3.0]), ([], []), ([], [2.0])])
def test_frames_are_as_declared(times):
    a, b = (side(str(i), each, ops=ops([("host", "A", "a", 2, 2)])) for i, each in enumerate(times))
    found = compare_verdict.verdict(a, b, compare.categories(a, b))
    frames = {
        "verdict": pd.DataFrame([compare_verdict.record(found, a, b)]),
        "evidence": pd.DataFrame(found.evidence, columns=["ok", "text"]),
        "findings": findings(a, b),
        "memory": compare_memory.roles(a.memory(), b.memory()),
        "allocator": compare_memory.stacks(a.memory(), b.memory()),
        **{
            name: getattr(compare, name)(a, b)
            for name in ("figures", "steps", "categories", "ops", "kernels", "python")
        },
        "device_ops": compare.op_calls(a, b, "device"),
        "host_ops": compare.op_calls(a, b, "host"),
    }
    assert set(frames) == set(below("comparison."))
    for name, frame in frames.items():
        declared = {column.name: column.dtype for column in below("comparison.")[name]}
        assert set(frame.columns) == set(declared), name
        for column, dtype in declared.items():
            if len(frame):
                assert str(frame[column].dtype) in (dtype, "str" if dtype == "object" else dtype), (
                    name,
                    column,
                )


QUIET = {"cores": 2.0, "own_cores": 1.1, "other_cores": 0.1, "waited_percent": 3.0}
CROWDED = {"cores": 2.0, "own_cores": 1.9, "other_cores": 0.1, "waited_percent": 79.0}


def worked(label, compute, waits, cores, workers, seed=0):
    times = noisy(compute + waits, seed=seed)
    return side(
        label,
        times,
        categories={"host_compute": times - waits, "input": np.full(len(times), waits)},
        cores=cores,
        workers=workers,
    )


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [
        (
            (QUIET, 0),
            (CROWDED, 2),
            "The 2 workers took the 2 cores: ready threads of the training waited for one 79% of the time, 3% before.",
        ),
        ((QUIET, 0), (CROWDED, 1), "The worker took the 2 cores"),
        ((QUIET, 2), (CROWDED, 2), ""),
        (
            (QUIET, 0),
            (CROWDED | {"own_cores": 1.0, "other_cores": 1.0}, 0),
            "Other processes took the 2 cores",
        ),
        (
            (QUIET, None),
            (CROWDED | {"own_cores": 1.0, "other_cores": 1.0}, 2),
            "The 2 workers and other processes took the 2 cores",
        ),
        (
            (QUIET | {"other_cores": 1.0}, 0),
            (CROWDED | {"own_cores": 0.9, "other_cores": 1.0}, 1),
            "The worker took what other processes, which had 1.0 of the 2 cores before, leave: ",
        ),
        ((QUIET, 0), (CROWDED | {"waited_percent": 12.0}, 2), ""),
        ((QUIET, 0), (CROWDED | {"own_cores": 1.2}, 2), ""),
        ((QUIET, 0), ({}, 2), ""),
        (({}, 0), (CROWDED, 2), ""),
    ],
)
def test_who_took_the_cores_is_said_where_other_work_rose(before, after, who):
    a, b = worked("run 7", 20.0, 80.0, *before), worked("run 9", 90.0, 20.0, *after, seed=1)
    detail = compare_verdict.verdict(a, b, compare.categories(a, b)).detail
    assert "Host compute rose from" in detail
    assert who in detail
    assert (" took " in detail) is bool(who)


def test_cores_explain_no_work_that_did_not_rise():
    a, b = worked("run 7", 20.0, 80.0, QUIET, 0), worked("run 9", 20.1, 20.0, CROWDED, 2, seed=1)
    assert " took " not in compare_verdict.verdict(a, b, compare.categories(a, b)).detail


def bare(times, *, recorded_ms=math.nan):
    values = np.asarray(times, float)
    return BareSteps(
        len(values),
        float(np.median(values)),
        float(values.min()),
        float(values.max()),
        recorded_ms=recorded_ms,
        is_comparable=True,
        durations_ms=values,
    )


def recorded_and_bare(before, after, *, options=({}, {})):
    """Two runs, each with the times of its recorded steps and of those without the profiler; None
    for a run without these.
    """
    sides = []
    for name, (recorded, without), chosen in zip(
        ("run 7", "run 9"), (before, after), options, strict=True
    ):
        more = {"options": chosen}
        if without is not None:
            more["bare"] = bare(without, recorded_ms=float(np.mean(recorded)))
        sides.append(side(name, recorded, **more))
    categories = compare.categories(*sides)
    found = compare_verdict.verdict(*sides, categories)
    return found, compare_verdict.record(found, *sides), compare.figures(*sides)


def test_a_slower_recording_of_a_program_that_is_not_slower_is_no_regression():
    memory = {"memory": "False", "shapes": "True"}, {"memory": "True", "shapes": "True"}
    found, row, figures = recorded_and_bare(
        (noisy(15), noisy(12, 40)), (noisy(19, seed=1), noisy(12, 60, seed=2)), options=memory
    )
    assert found.kind == "none"
    assert found.headline.startswith("No significant difference: without recording, a step takes 1")
    assert found.detail == ""
    assert (row["steps_are"], row["before_steps"], row["after_steps"]) == ("bare", 40, 60)
    assert row["before_ms"] == pytest.approx(12, rel=0.01)
    assert row["recorded_before_ms"] == pytest.approx(15, rel=0.01)
    assert row["recorded_after_ms"] == pytest.approx(19, rel=0.01)
    assert row["recorded_reason"] == ""
    texts = {text: ok for ok, text in found.evidence}
    [beside] = [text for text in texts if text.startswith("While recorded")]
    assert re.search(r"14\.\d\d before, 1[89]\.\d\d ms after \(\+[34]\.\d\d ± 0\.\d\d ms\)", beside)
    assert "recording took 1.25 and 1.58 times as long" in beside
    assert not texts[beside]
    assert texts[
        "Options of the recording differ, which bear on recorded steps only: memory False before,"
        " True after"
    ]
    # Other numbers of steps without the profiler say nothing.
    assert not any("number of steps differs" in text for text in texts)
    values = figures.set_index("figure")["after"]
    assert values["bare_step_time"] == pytest.approx(12, rel=0.01)
    assert values["step_time"] == pytest.approx(19, rel=0.01)
    assert values["steps_per_second"] == pytest.approx(1000 / 12, rel=0.01)


def test_a_program_that_is_slower_is_a_regression_though_its_recordings_take_as_long():
    same = noisy(19)
    found, row, _ = recorded_and_bare((same, noisy(12, 40)), (same, noisy(14, 40, seed=1)))
    assert (found.kind, row["steps_are"]) == ("real", "bare")
    assert re.match(
        r"1\.1\d× slower \(1[34]\.\d\d ms vs 1[12]\.\d\d ms per step without recording\)",
        found.headline,
    )
    assert found.difference.change == pytest.approx(2, abs=0.2)
    assert "40 steps each without recording" in found.evidence[0][1]
    assert row["speedup"] == pytest.approx(12 / 14, rel=0.02)


@pytest.mark.parametrize("without", [(None, noisy(12)), (noisy(12), None)])
def test_with_bare_steps_of_one_run_the_recorded_ones_are_compared_and_that_is_said(without):
    found, row, figures = recorded_and_bare(
        (noisy(15), without[0]),
        (noisy(19, seed=1), without[1]),
        options=({"memory": "False"}, {"memory": "True"}),
    )
    assert (found.kind, row["steps_are"]) == ("real", "recorded")
    name = ("run 7", "run 9")[without[1] is None]
    assert row["recorded_reason"] == f"{name}: the recording did not time the steps of the cell"
    assert row["before_ms"] == row["recorded_before_ms"]
    assert found.headline.endswith("per recorded step)")
    texts = [text for _, text in found.evidence]
    assert (
        f"Compared are recorded steps, for bare ones of both are not known: {name}: the recording"
        " did not time the steps of the cell"
    ) in texts
    assert any(text.startswith("Options of the recording differ, which change") for text in texts)
    assert np.isnan(figures.set_index("figure").loc["bare_step_time", "change"])


def test_files_without_a_clock_are_compared_as_they_were_recorded():
    found, row, figures = recorded_and_bare((noisy(15), None), (noisy(19, seed=1), None))
    assert (found.kind, row["steps_are"]) == ("real", "recorded")
    assert row["recorded_reason"].count("did not time") == 2
    assert not any("bare" in text for _, text in found.evidence)
    assert "bare_step_time" not in set(figures["figure"])


def test_bare_steps_are_not_compared_with_calls():
    known = {"unit": {"kind": "call", "how": "", "agreement": None}}
    sides = [
        side(name, noisy(9), bare=bare(noisy(8)), overview=overview)
        for name, overview in (("run 7", {}), ("run 9", known))
    ]
    steps = compare.compared(*sides)
    assert (steps.kind, len(steps.before)) == ("recorded", 0)
    assert steps.reason == "run 9: its figures are per call"
