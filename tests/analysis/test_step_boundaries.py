"""Borders between steps, and steps that hold the batches of several."""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.activity.unit import ITERATION, MARKED, RECORDING, Unit
from nbprof.analysis.steps.boundaries import boundaries
from nbprof.analysis.steps.warmup import about_crowded, averaged, crowded
from nbprof.capture.clock import boundary
from tests.support.kineto import Kineto, profile

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def steps_of(
    kinds: list[str], numbers: list[int] | None = None, starts: list[float] | None = None
) -> pd.DataFrame:
    count = len(kinds)
    return pd.DataFrame(
        {
            "host": "a",
            "kind": kinds,
            "step": numbers or list(range(1, count + 1)),
            "start_ms": starts or [10.0 * i for i in range(count)],
            "step_time_ms": 10.0,
        }
    )


def drawn(steps: pd.DataFrame, recorded: list[dict], unit: Unit = MARKED) -> list[tuple[int, str]]:
    return [tuple(each) for each in boundaries(steps, recorded, unit)]


def test_what_a_recording_noted_stands_before_its_step() -> None:
    steps = steps_of(["ProfilerStep"] * 8)
    noted = [
        boundary("epoch", 1),
        boundary("epoch", 5),
        boundary("evaluation", 5, 1, 12.5),
        boundary("evaluation", 9, 2, 20),
    ]
    assert drawn(steps, noted) == [
        (4, "evaluation (1 batch, 12.50 ms), epoch"),
        (8, "evaluation (2 batches, 20.00 ms)"),
    ]


def test_steps_of_another_kind_begin_with_a_border() -> None:
    steps = steps_of(["ProfilerStep"] * 4 + ["test"] * 2 + ["ProfilerStep"] * 4)
    assert drawn(steps, [boundary("epoch", 7), boundary("loop", 5), boundary("loop", 7)]) == [
        (4, "loop, test"),
        (6, "epoch, train"),
    ]


def test_numbers_that_begin_anew_are_another_loop() -> None:
    assert drawn(steps_of(["train"] * 6, [1, 2, 3, 1, 2, 3]), []) == [(3, "loop")]


def test_iterations_after_a_gap_are_another_run_of_the_loop() -> None:
    steps = steps_of(["iteration"] * 6, starts=[0, 10, 20, 35, 45, 55])
    assert drawn(steps, [], Unit(ITERATION)) == [(3, "loop")]
    assert drawn(steps, []) == [], "of steps, time between them is no border"
    assert drawn(steps, [], Unit(ITERATION, "", 0.9)) == [], "an estimate says nothing of it"


def test_no_borders_where_each_step_has_one_or_several_hosts_recorded() -> None:
    steps = steps_of(["train"] * 4)
    assert drawn(steps, [boundary("epoch", number) for number in (2, 3, 4)]) == []
    assert drawn(steps.assign(host=["a", "b", "a", "b"]), [boundary("epoch", 3)]) == []
    assert drawn(steps, [boundary("epoch", 3)], Unit(RECORDING)) == []


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([1, 1, 1, 2, 1], []),
        ([1, 1, 4, 1, 2], [2]),
        ([0, 0, 2, 0], []),
        ([0, 0, 3, 0], [2]),
        ([4, 5, 4, 9], []),
        ([4, 5, 4, 10], [3]),
        ([1, 13], [1]),
    ],
)
def test_a_step_with_several_times_the_batches_of_the_others_stands_apart(
    batches, expected
) -> None:
    steps = steps_of(["train"] * len(batches)).assign(batches=batches)
    assert crowded(steps).to_numpy().nonzero()[0].tolist() == expected
    assert bool(about_crowded(steps)) == bool(expected)


def test_steps_without_known_batches_are_all_alike() -> None:
    assert not crowded(steps_of(["train"] * 4)).any()
    assert about_crowded(steps_of(["train"] * 4)) == ""


def test_training_of_pytorch_is_what_averages_are_of() -> None:
    assert averaged(pd.Series({"ProfilerStep": 10.0, "test": 30.0})) == "ProfilerStep"
    assert averaged(pd.Series({"ProfilerStep": 10.0, "test": 50.0})) == "test"


def training(marked: bool) -> Kineto:
    """Two epochs of four steps; a validation of six batches stands before the second, and is in its
    first step.
    """
    k, now = Kineto(), 0
    for step in range(8):
        begin = now
        for _ in range(8 if step == 4 else 1):
            k.note(LOADER, now, 10)
            k.op("aten::addmm", now + 10, 20)
            now += 30
        k.note("Optimizer.step#SGD.step", now, 10)
        now += 10
        if marked:
            k.step(step, begin, now - begin)
    return k


@pytest.mark.parametrize("marked", [True, False])
def test_a_step_with_a_validation_is_in_no_average(tmp_path, marked) -> None:
    p = profile(tmp_path, training(marked))
    frame = p.steps.frame
    assert frame["batches"].tolist() == [1, 1, 1, 1, 8, 1, 1, 1]
    assert frame["counted"].tolist() == [True] * 4 + [False] + [True] * 3
    row = p.steps.summary.set_index("category").loc["step_time"]
    assert row["mean_ms"] == row["median_ms"] == row["p95_ms"] == pytest.approx(0.04)
    assert any(
        "Averages exclude step 4 (8 requests to DataLoaders where others make 1," in line.text
        for line in p.receipt.entries
    )
    assert "step 4 (8 requests" in p.payload(0)["steps"]["left_out"]


def test_p95_is_a_measured_time(tmp_path) -> None:
    k, now = Kineto(), 0
    for step in range(20):
        took = 1000 * (step + 1)
        k.step(step, now, took)
        k.op("aten::mm", now, took)
        now += took
    row = profile(tmp_path, k).steps.summary.set_index("category").loc["step_time"]
    assert (row["median_ms"], row["p95_ms"], row["max_ms"]) == pytest.approx((10.5, 19.0, 20.0))
